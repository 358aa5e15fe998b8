"""Who sleeps: groups that a round need not judge, and what wakes them.

Most groups rest, or only wait. Those that wait lie in buckets: groups of one queue that miss the same are
decided on alike, by what was read of the budget for one of them (`Reads`), and sleep as long as all of that
would be read alike. Of each bucket that an event touches a round judges one group. The others repeat what it
is told if only the numbers differ; else all of them wake and the round is repeated. Where anything is taken,
everybody wakes who waits; where whole groups have to go, those at rest do, too.

No rule knows of it: with or without sleepers, the same is decided."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from extender.domain.model.evictions import EvictionCause
from extender.domain.model.records import GroupKey
from extender.domain.model.shared_maps import have_same_keys
from extender.domain.placement.planner import Kind, Question, Topic
from extender.domain.placement.totals import PLACES
from extender.domain.scheduling.budget import Budget, RunningCounts
from extender.domain.scheduling.memory import Grounds, Judged, Memory, Notes
from extender.domain.scheduling.reservation import RESERVED, InForce
from extender.domain.scheduling.round import Round
from extender.domain.scheduling.shares import QueueShares
from extender.domain.scheduling.victims import ALL_CAUSES
from extender.domain.snapshot.decisions import Decisions, GroupDecision
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.snapshot import Snapshot
from extender.domain.snapshot.wholeness import ready_since

T = TypeVar("T")


class Sleepers:
    """Those of one decision; fewer with each round that is repeated for it."""

    def __init__(self, snapshot: Snapshot, previous: Decisions | None, notes: Notes | None) -> None:
        self.snapshot = snapshot
        self.before = Decisions() if previous is None else previous
        self.notes = notes
        self.then: Memory | None = None  # what is known of the sleepers; None where nobody sleeps
        self.awake: Mapping[GroupKey, GroupView] = snapshot.groups
        self.stirred: dict[Kind, GroupKey] = {}  # by bucket that an event touched, its group that is judged
        self.is_touched_all_over = False  # whether more has changed than it is worth to look for
        self.are_all_awake = True  # but for those at rest, perhaps
        if notes is None:
            return
        if notes.memory.grounds is None:
            self._wake_all(notes.memory)
        else:
            self.then, self.awake, self.are_all_awake = notes.memory, {}, False
            self._wake(BEFORE, self, notes)
            self._wake([lambda: notes.memory.awake])

    @property
    def budget(self) -> Budget | None:
        return self.notes.judged.round_.budget if self.notes is not None else None

    @property
    def decisions(self) -> Mapping[GroupKey, GroupDecision]:
        """Those on the sleepers, and on others before."""
        return self.before.groups if self.then is not None else {}

    def stir(self, round_: Round, in_force: InForce) -> list[GroupView]:
        """One group of each bucket that an event has touched, now that the budget is what those that wait are
        judged by."""
        self.stirred, capacity = {}, round_.budget.planner.capacity
        if self.notes is not None and self.notes.memory.totals is not None:
            capacity.settle(self.notes.memory.totals)
        if self.then is None or self.then.grounds is None:
            return []
        self.is_touched_all_over = capacity.base is None
        if capacity.base is not None:
            now, buckets = Grounds.of(round_, in_force, capacity.base), self.then.buckets
            for touches in WITHIN:
                topics = touches(self.then.grounds, now)
                self.is_touched_all_over |= topics is None
                for topic in topics or () if buckets.read else ():
                    for kind in buckets.by_topic.get(topic, ()):
                        if kind in self.stirred or _is_read_alike(buckets.read[kind][topic], round_.budget):
                            continue
                        if asleep := next(filter(self.sleeps, buckets.groups[kind]), None):
                            self.stirred[kind] = asleep
        return [self.snapshot.groups[key] for key in self.stirred.values()]

    def sleeps(self, group: GroupKey) -> bool:
        return group not in self.awake and group in self.snapshot.groups  # it may be gone

    def those_in(self, queues: Set[str]) -> Iterator[GroupKey]:
        """The sleepers of some queues."""
        groups = self.snapshot.groups.items() if queues else ()
        return (key for key, group in groups if group.queue in queues and self.sleeps(key))

    def wake_after(self, judged: Judged) -> bool:
        """Whether anybody wakes by what was decided, so that the round has to be repeated."""
        if self._wake(AFTER, self, self.then, judged):
            return True
        if not self.are_all_awake or self.then is None or not judged.round_.takes_back:
            return False
        self.then, self.awake = None, self.snapshot.groups
        return True

    def _wake(self, causes: Iterable[Callable[..., Iterable[GroupKey] | None]], *about: object) -> bool:
        if self.are_all_awake or self.then is None:
            return False
        before, woken = self.awake.keys(), set(self.awake)
        for cause in causes:
            more = cause(*about)
            if more is None:  # nobody else may have slept
                self._wake_all(self.then)
                break
            woken.update(more)
        else:
            self.awake = self._there(woken)
        return self.awake.keys() != before

    def _wake_all(self, memory: Memory) -> None:
        """But for those at rest, on which nothing around them has a bearing, only time."""
        self.are_all_awake = True
        if memory.not_at_rest is None:
            self.then, self.awake = None, self.snapshot.groups
        else:
            self.then = memory.of_those_at_rest(self.snapshot)
            due = () if self.notes is None else moments(self, self.notes)
            self.awake = self._there(memory.not_at_rest.union(self.snapshot.touched, due))

    def _there(self, keys: Set[GroupKey]) -> Mapping[GroupKey, GroupView]:
        groups = self.snapshot.groups
        return {key: groups[key] for key in sorted(keys) if key in groups}

    def told(self, decided: Mapping[GroupKey, GroupDecision]) -> Iterator[GroupDecision]:
        """What sleepers repeat: the numbers that were told to one of their bucket."""
        for kind, key in self.stirred.items() if self.then is not None else ():
            detail = decided[key].detail
            if self.then is not None and detail != self.before.groups[key].detail:
                for other in self.then.buckets.groups[kind]:
                    if other != key and self.sleeps(other):
                        yield replace(self.before.groups[other], detail=detail)


def _is_read_alike(questions: Sequence[Question], budget: Budget) -> bool:
    """Whether all of them are answered as before; where there are none, whatever was read has changed."""
    parts: Mapping[type, object] = {QueueShares: budget.shares, RunningCounts: budget.running}
    try:
        return bool(questions) and all(asked.is_answered_alike(parts[asked.part]) for asked in questions)
    except Exception:  # whatever is wrong with a group: it is judged again, inside a guard
        return False


# ---- What wakes groups before a round: None where everybody wakes.


def cluster(sleepers: Sleepers, notes: Notes) -> Iterable[GroupKey] | None:
    """What everybody is judged by besides the budget."""
    before, now = notes.snapshot, sleepers.snapshot
    is_alike = (
        before.now <= now.now
        and now.limits is before.limits
        and now.nodes is before.nodes
        and now.pools == before.pools
        and now.dimensions == before.dimensions
        and now.refused == before.refused
        and now.past is before.past
        and have_same_keys(now.queues, before.queues)
        and now.occupancy.is_alike(before.occupancy)
        and np.array_equal(now.allocatable, before.allocatable)
    )
    return () if is_alike else None


def objects(sleepers: Sleepers, notes: Notes) -> Iterable[GroupKey]:
    """The group itself, its members, its queue or one above it, or what is known of it."""
    return sleepers.snapshot.touched


def moments(sleepers: Sleepers, notes: Notes) -> Iterable[GroupKey]:
    """Time alone could change what is decided on it."""
    now, wake_at = sleepers.snapshot.now, sleepers.before.wake_at
    is_due = wake_at is not None and wake_at <= now
    return [key for key, at in notes.moments.items() if at <= now] if is_due else ()


# ---- What of the budget is not as it was: topics, by which buckets are found; None for all.


def room(then: Grounds, now: Grounds) -> Iterable[Topic] | None:
    """How many pods of a shape all nodes have room for, what is left of a resource, as it is told, and what
    is left on any node."""
    return now.totals.changed


def reservations(then: Grounds, now: Grounds) -> Iterable[Topic] | None:
    """What is reserved: whose turn it is to get a reservation may depend on it, too. And who passes it, or
    would have room without it."""
    if then.in_force != now.in_force:
        return None
    is_alike = not now.in_force or (now.history is then.history and PLACES not in (now.totals.changed or ()))
    return () if is_alike else (RESERVED,)


def shares(then: Grounds, now: Grounds) -> Iterable[Topic]:
    """What a queue, or one above it, deserves, may hold and holds."""
    return ((QueueShares, queue) for queue in now.shares.queues_unlike(then.shares))


def running(then: Grounds, now: Grounds) -> Iterable[Topic]:
    """What runs of a queue that has limits on it."""
    queues = (scope.queue for scope in _unlike(then.running, now.running))
    return [(RunningCounts, queue) for queue in dict.fromkeys(queues)]


def _unlike(one: Mapping[T, object], other: Mapping[T, object]) -> Iterator[T]:
    return (key for key in {**one, **other} if one.get(key) != other.get(key))


# ---- What wakes groups after a round, which is then repeated: None where everybody wakes.


def takings(sleepers: Sleepers, then: Memory, judged: Judged) -> Iterable[GroupKey] | None:
    """Anything was taken or kept: whoever comes after that is judged by less."""
    is_touched = sleepers.is_touched_all_over
    return None if is_touched or not judged.is_calm else ()


def decisions(sleepers: Sleepers, then: Memory, judged: Judged) -> Iterable[GroupKey]:
    """One group of a bucket is decided on otherwise, in more than numbers."""
    for kind, key in sleepers.stirred.items():
        before, now = sleepers.before.groups[key], judged.round_.decided[key]
        if replace(now, detail=before.detail, life=before.life, position=before.position) != before:
            yield from then.buckets.groups[kind]


def turns(sleepers: Sleepers, then: Memory, judged: Judged) -> Iterable[GroupKey] | None:
    """Whoever was first to get a reservation, or to look for victims, is not any more: others may be."""
    reservations, first, groups = judged.reservations, judged.starving, sleepers.snapshot.groups
    if then.first_in_turn is not None and reservations.first_in_turn is not then.first_in_turn:
        return None  # all others waited behind it
    waiting = {
        group.queue
        for kind, group in then.first_due.items()
        if (kind, group.key) not in reservations.lacking
        and (group.key in judged.round_.decided or group.key not in groups)
    }
    starving = (
        group.queue
        for kind, group in then.first_starving.items()
        if _comes_later(first.first.get(kind), group) and first.may_find(group, ALL_CAUSES)
    )
    return sleepers.those_in(waiting.union(starving))


def _comes_later(now: GroupView | None, before: GroupView) -> bool:
    """Whether those that sleep may come before the one that looks for victims now."""
    if now is None:
        return True
    return now.order > before.order or ready_since(now) > ready_since(before)


def victims(sleepers: Sleepers, then: Memory, judged: Judged) -> Iterable[GroupKey]:
    """Anything runs that might make way."""
    round_, idle, causes = judged.round_, then.idly_starving.values(), ALL_CAUSES
    before, now = then.snapshot.groups, round_.snapshot
    moved = (groups.get(key) for key in {*round_.groups, *now.touched} for groups in (before, now.groups))
    is_calm = then.grounds and not any(round_.budget.shares.standing.queues_unlike(then.grounds.shares))
    if is_calm and not any(group is not None and group.placed for group in moved):
        causes = (EvictionCause.UNMANAGED,)  # of ours, nothing runs that did not before
    return sleepers.those_in({group.queue for group in idle if judged.starving.may_find(group, causes)})


BEFORE = (cluster, objects, moments)
WITHIN = (room, reservations, shares, running)
AFTER = (takings, decisions, turns, victims)
