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
from extender.domain.scheduling.budget import Budget, Sums
from extender.domain.scheduling.flavors import Amounts
from extender.domain.scheduling.gangs import may_choose
from extender.domain.scheduling.no_room import Tally
from extender.domain.scheduling.order import Strategies, lets_all_pass
from extender.domain.scheduling.reservation import InForce
from extender.domain.scheduling.round import Round, Shortages
from extender.domain.scheduling.shares import KeptShares, Standing
from extender.domain.snapshot.decisions import Decisions, GroupDecision
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.nodes import AmountRows, Mask, Rows
from extender.domain.snapshot.phases import State, state_of
from extender.domain.snapshot.snapshot import Snapshot


class Remaining(msgspec.Struct, frozen=True, eq=False):
    """What groups are judged by besides themselves, once all are judged. Never changed.

    Where two rounds took nothing of it and it is alike in both, they say the same of the same group, as long
    as that is on the same side of what its queue deserves."""

    room: AmountRows
    """What is left on nodes."""
    shares: Standing
    """What queues deserve, may hold and hold."""
    flavors: Amounts
    """What they hold of their flavors."""
    running: Sums
    """What runs of that on which they have limits."""
    places: Mapping[str, int]
    """By queue those that are taken in the window."""
    in_force: InForce
    """The reservations."""

    @classmethod
    def of(cls, budget: Budget, in_force: InForce) -> "Remaining":
        return cls(
            budget.planner.capacity.left,
            budget.shares.standing,
            budget.flavors.amounts,
            budget.running.sums,
            +budget.window.taken,
            in_force,
        )

    def is_alike(self, other: "Remaining") -> bool:
        """Whether all is the same but for what queues deserve."""
        return (
            self.places == other.places
            and self.flavors == other.flavors
            and self.running == other.running
            and self.in_force == other.in_force
            and np.array_equal(self.room, other.room)
            and self.shares.is_alike(other.shares)
        )

    def with_room(self, rows: Rows, more: AmountRows) -> "Remaining":
        """The same with `more` room on some rows."""
        room = self.room.copy()
        room[rows] += more
        return replace(self, room=room)


class Judged(msgspec.Struct, frozen=True, eq=False):
    """A round in which all has been decided."""

    round_: Round
    strategies: Strategies
    lines: Mapping[str, Sequence[GroupView]]
    """By queue all groups that were to be judged, in their order."""
    remaining: Remaining | None
    """What was left when gangs were judged, to the last of them as to the first; None where one of them took
    something, or where what one does may matter to others in another way."""
    foremost: frozenset[GroupKey]
    """Groups that were asked for others: for a reservation the one of their queue that has waited the
    longest, for victims the first of their kind."""
    same_until: float
    """Until when all groups may pass the same reservations."""


class Inadmissible(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Groups that only wait, have nothing, and are asked nothing for others: all of a snapshot but those that
    are active.

    What is said of them depends on what remains of the round's budget alone. As long as nobody takes anything
    of that, what others do is no matter to them, nor is it to others that they are there."""

    snapshot: Snapshot
    """That of the groups that were judged; all others were inadmissible before."""
    decided: Mapping[GroupKey, GroupDecision]
    """What was decided on these."""
    remaining: Remaining
    """What they were judged by."""
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
    ) -> "Inadmissible | None":
        if judged.remaining is None:
            return None
        snapshot, until = judged.round_.snapshot, judged.same_until
        return cls(snapshot, decided, judged.remaining, judged.foremost, lines, until)

    def no_longer_than(self, until: float) -> "Inadmissible":
        """The same, for no longer than others of them pass the same reservations."""
        return replace(self, same_until=min(until, self.same_until))

    def after(self, then: AmountRows, now: AmountRows) -> "Inadmissible":
        """The same with other room on nodes, which changes nothing for any of them."""
        rows = np.flatnonzero((then != now).any(axis=1))
        later = replace(self, remaining=self.remaining.with_room(rows, now[rows] - then[rows]))
        later.__dict__.update(self.__dict__)  # who is active, if that was looked up
        return later

    @cached_property
    def active(self) -> frozenset[GroupKey]:
        """Those that have to take part in the next round, too. Looked up when it is first asked for."""
        groups = self.snapshot.groups
        return frozenset(key for key, made in self.decided.items() if not self._only_waits(groups[key], made))

    def _only_waits(self, group: GroupView, decision: GroupDecision) -> bool:
        queue = self.snapshot.queues.get(group.queue)
        has_room = group.placed or group.pinned or group.planned or group.departing
        was_given = decision.plan or decision.reservation or decision.reclaim or decision.spared
        changes = decision.undo or decision.failed or decision.moved or decision.fault
        return (
            decision.verdict is Verdict.WAITING
            and state_of(group) is State.WAITING
            and group.key not in self.foremost
            and queue is not None
            and lets_all_pass(queue.record)
            and not (has_room or group.start.reservation or group.start.reclaim)
            and not (was_given or changes)
            and not group.job.least  # it would be judged by several sizes
            and not group.once(may_choose)
            # others of its kind may outrun it
            and not (self.remaining.in_force and group.spec.run_time is not None)
        )


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


class Memory(msgspec.Struct, frozen=True, eq=False):
    """What one round hands to the next. All memories are equal, since no decision depends on them."""

    snapshot: Snapshot
    totals: KeptTotals | None
    shares: KeptShares
    waiting: Waiting | None
    """None where something else depended on how much room there is."""
    inadmissible: Inadmissible | None
    """None where groups mattered to each other."""
    moments: Mapping[GroupKey, float]
    """By group when time alone could next change what is decided on it."""

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
        inadmissible = Inadmissible.of(judged, groups, lines)
        return cls(round_.snapshot, totals, budget.shares.kept, waiting, inadmissible, round_.moments)

    def after(self, snapshot: Snapshot, waiting: Waiting) -> "Memory":
        """The memory once nothing but room has changed."""
        assert self.waiting is not None
        more = self.waiting.tally.difference(waiting.tally)
        totals = self.totals.after(snapshot.room, more) if self.totals is not None else None
        inadmissible = self.inadmissible and self.inadmissible.after(self.snapshot.room, snapshot.room)
        return Memory(snapshot, totals, self.shares, waiting, inadmissible, self.moments)

    def after_partial(
        self,
        snapshot: Snapshot,
        judged: Judged,
        inadmissible: Inadmissible | None,
        others: Mapping[GroupKey, object],
    ) -> "Memory":
        """The memory once a round without the groups of `others` has been added to it."""
        assert self.inadmissible is not None
        assert inadmissible is not None
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
            inadmissible.no_longer_than(self.inadmissible.same_until),
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
