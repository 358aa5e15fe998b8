"""What one round hands to the next to save work. It says nothing: with or without it, the same is decided."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import inf

import numpy as np

from extender.domain.decisions.decisions import Decisions, GroupDecision
from extender.domain.model.records import GroupKey
from extender.domain.placement.capacity import Capacity
from extender.domain.placement.kept_totals import KeptTotals
from extender.domain.placement.tally import Tally
from extender.domain.scheduling.bystanders import Bystanders
from extender.domain.scheduling.kept_shares import KeptShares
from extender.domain.scheduling.shortages import Shortages
from extender.domain.scheduling.steps import Judged
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.nodes import Mask
from extender.domain.snapshot.snapshot import Snapshot


class Waiting:
    """The shortages at the end of a round, and the room that was counted for them, net of all that is on its
    way. Worked out when it is first asked for."""

    def __init__(self, shortages: Shortages, capacity: Capacity, snapshot: Snapshot) -> None:
        self.shortages = shortages
        self._capacity = capacity.without_counts()
        self._room = snapshot.room

    @cached_property
    def tally(self) -> Tally:
        return Tally.of(self._capacity, (shortage.shapes for shortage in self.shortages.known.values()))

    @cached_property
    def taken(self) -> Mask:
        """Rows where anything is on its way."""
        return np.asarray((self._capacity.left != self._room).any(axis=1), np.bool_)

    def after(self, shortages: Shortages, tally: Tally, snapshot: Snapshot) -> "Waiting":
        """The same with other numbers."""
        later = Waiting(shortages, self._capacity, snapshot)
        later.tally, later.taken = tally, self.taken
        return later


class Memory:
    """All memories are equal, since no decision depends on them. `waiting`: None where something else
    depended on how much room there is. `bystanders`: None where groups mattered to each other. `moments`: by
    group when time alone could next change what is decided on it."""

    def __init__(
        self,
        snapshot: Snapshot,
        totals: KeptTotals | None,
        shares: KeptShares,
        waiting: Waiting | None,
        bystanders: Bystanders | None,
        moments: Mapping[GroupKey, float],
    ) -> None:
        self.snapshot = snapshot
        self.totals = totals
        self.shares = shares
        self.waiting = waiting
        self.bystanders = bystanders
        self.moments = moments

    @classmethod
    def of(
        cls,
        judged: Judged,
        groups: Mapping[GroupKey, GroupDecision],
        lines: Mapping[str, Sequence[GroupView]],
    ) -> "Memory":
        round_ = judged.round_
        budget, shortages = round_.budget, round_.shortages
        totals = budget.totals.without_history() if budget.totals is not None else None
        holds = shortages.hold_after(budget.takings)
        waiting = Waiting(shortages, budget.planner.capacity, round_.snapshot) if holds else None
        bystanders = Bystanders.of(judged, groups, lines)
        return cls(round_.snapshot, totals, budget.shares.kept, waiting, bystanders, round_.moments)

    def after(self, snapshot: Snapshot, waiting: Waiting) -> "Memory":
        """The memory once nothing but room has changed."""
        assert self.waiting is not None
        more = self.waiting.tally.difference(waiting.tally)
        totals = self.totals.after(snapshot.room, more) if self.totals is not None else None
        bystanders = self.bystanders and self.bystanders.after(self.snapshot.room, snapshot.room)
        return Memory(snapshot, totals, self.shares, waiting, bystanders, self.moments)

    def after_partial(
        self,
        snapshot: Snapshot,
        judged: Judged,
        bystanders: Bystanders | None,
        others: Mapping[GroupKey, object],
    ) -> "Memory":
        """The memory once a round without the groups of `others` has been added to it."""
        assert self.bystanders is not None
        assert bystanders is not None
        budget, now = judged.round_.budget, judged.round_.shortages
        totals = budget.planner.capacity.totals_of_all()
        waiting = None
        if self.waiting is not None and now.hold_after(budget.takings):
            shortages = self.waiting.shortages.together_with(now, others)
            waiting = Waiting(shortages, budget.planner.capacity, snapshot)
        return Memory(
            snapshot,
            totals,
            budget.shares.kept,
            waiting,
            bystanders.no_longer_than(self.bystanders.same_until),
            {key: at for key, at in self.moments.items() if key in others} | judged.round_.moments,
        )

    def holds(self, snapshot: Snapshot, previous: Decisions) -> bool:
        """Whether nothing has changed since, and no time has come that would change a decision."""
        return (
            snapshot.version == previous.version
            and not snapshot.touched
            and snapshot.groups is self.snapshot.groups
            and self.is_same_time(snapshot, previous)
        )

    def is_same_time(self, snapshot: Snapshot, previous: Decisions) -> bool:
        """Whether all that hangs on time, limits and the scheduler's attention is as it was."""
        wake_at = inf if previous.wake_at is None else previous.wake_at
        return (
            self.snapshot.now <= snapshot.now < wake_at
            and snapshot.limits is self.snapshot.limits
            and snapshot.attention == self.snapshot.attention
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Memory)

    def __hash__(self) -> int:
        return 0


def memory_of(previous: Decisions | None) -> Memory | None:
    return previous.memory if previous is not None and isinstance(previous.memory, Memory) else None
