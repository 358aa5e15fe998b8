"""What one round hands to the next to save work. It says nothing: with or without it, the same is decided."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import inf

import msgspec
import numpy as np
from msgspec.structs import replace

from extender.domain.model.reasons import Verdict
from extender.domain.model.records import GroupKey
from extender.domain.placement.capacity import Capacity, KeptTotals
from extender.domain.scheduling.gangs import may_choose
from extender.domain.scheduling.no_room import Tally
from extender.domain.scheduling.order import lets_all_pass
from extender.domain.scheduling.round import Shortages
from extender.domain.scheduling.shares import KeptShares
from extender.domain.scheduling.steps import Judged, Means
from extender.domain.snapshot.decisions import Decisions, GroupDecision
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.nodes import AmountRows, Mask
from extender.domain.snapshot.phases import State, state_of
from extender.domain.snapshot.snapshot import Snapshot

# ---- Bystanders: groups that only wait, have nothing, and are asked nothing for others.
#
# What is said of them depends on the means of the round alone. As long as nobody takes anything from
# these, what others do is no matter to them, nor is it to others that they are there.


class Bystanders(msgspec.Struct, frozen=True, eq=False, dict=True):
    """All groups of a snapshot but those that have to take part in the next round, too."""

    snapshot: Snapshot
    """That of the groups that were judged; all others were bystanders before."""
    decided: Mapping[GroupKey, GroupDecision]
    """What was decided on these."""
    means: Means
    """What bystanders were judged by."""
    foremost: frozenset[GroupKey]
    """Groups that were asked for others."""
    lines: Mapping[str, Sequence[GroupView]]
    """By queue all groups in line, in their order."""
    same_until: float
    """Until when all of them pass the same reservations."""

    @classmethod
    def of(
        cls,
        judged: Judged,
        decided: Mapping[GroupKey, GroupDecision],
        lines: Mapping[str, Sequence[GroupView]],
    ) -> "Bystanders | None":
        if judged.means is None:
            return None
        snapshot, until = judged.round_.snapshot, judged.same_until
        return cls(snapshot, decided, judged.means, judged.foremost, lines, until)

    def no_longer_than(self, until: float) -> "Bystanders":
        """The same, for no longer than others of them pass the same reservations."""
        return replace(self, same_until=min(until, self.same_until))

    def after(self, then: AmountRows, now: AmountRows) -> "Bystanders":
        """The same with other room on nodes, which changes nothing for anyone."""
        rows = np.flatnonzero((then != now).any(axis=1))
        later = replace(self, means=self.means.with_room(rows, now[rows] - then[rows]))
        later.__dict__.update(self.__dict__)  # who has to take part, if that was looked up
        return later

    @cached_property
    def others(self) -> frozenset[GroupKey]:
        """Those that have to take part. Looked up when it is first asked for."""
        groups = self.snapshot.groups
        return frozenset(key for key, each in self.decided.items() if not self._stands_by(groups[key], each))

    def _stands_by(self, group: GroupView, decision: GroupDecision) -> bool:
        queue = self.snapshot.queues.get(group.queue)
        return (
            decision.verdict is Verdict.WAITING
            and state_of(group) is State.WAITING
            and group.key not in self.foremost
            and queue is not None
            and lets_all_pass(queue.record)
            and not _has_anything(group)
            and not group.least  # it would be judged by several sizes
            and not group.once(may_choose)
            and not _goes_on(decision)
            and not (self.means.in_force and group.run_time is not None)  # others of its kind may outrun it
        )


def _has_anything(group: GroupView) -> bool:
    promised = group.start.reservation or group.start.reclaim
    return bool(group.placed or group.pinned or group.planned or group.departing or promised)


def _goes_on(decision: GroupDecision) -> bool:
    """Whether more than a verdict was decided."""
    room = decision.plan or decision.reservation or decision.reclaim or decision.spared
    return bool(room or decision.undo or decision.failed or decision.moved or decision.fault)


# ---- What one round hands to the next to save work. It says nothing: with or without it, the same is
# decided.


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
