"""Inadmissible groups: pending groups whose last decision is still valid, and the changes that requeue them.

Groups of one queue that miss the same lie in a bucket: they are decided on alike, by what was read of the
budget for one of them (`Reads`), and sleep while all of that would be read alike. Of each bucket that an
event touches, the first group is evaluated; of every bucket where anything is allocated or kept in the cycle
(`is_alert`). If that group starts, the next one of its bucket follows. The others repeat the numbers that it
is told; if more than numbers differs, they wake, and the cycle is repeated.

No rule knows of it: with or without sleepers, the same is decided."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from extender.domain.model.evictions import EvictionCause
from extender.domain.model.reasons import Verdict
from extender.domain.model.records import GroupKey
from extender.domain.model.shared_maps import have_same_keys
from extender.domain.placement.planner import Kind, Question, Topic
from extender.domain.placement.totals import PLACES, Totals
from extender.domain.scheduling.budget import Budget, RunningCounts, Scope
from extender.domain.scheduling.gangs import BEHIND, Behind, behind
from extender.domain.scheduling.memory import Grounds, Judged, Memory, Notes
from extender.domain.scheduling.order import orders_by_usage
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
    """Inadmissible groups of one decision; fewer with each cycle that is repeated for it."""

    def __init__(self, snapshot: Snapshot, previous: Decisions | None, notes: Notes | None) -> None:
        self.snapshot = snapshot
        self.before = Decisions() if previous is None else previous
        self.notes = notes
        self.then: Memory | None = None  # what is known of the sleepers; None where nobody sleeps
        self.awake: Mapping[GroupKey, GroupView] = snapshot.groups
        self.stirred: dict[Kind, GroupKey] = {}  # by bucket, its group that is judged: the last one so far
        self._following: dict[GroupKey, tuple[Kind, Iterator[GroupKey]]] = {}  # the groups behind that one
        self.is_alert = False  # whether one group of each bucket is judged
        self.are_all_awake = True  # but for those at rest, perhaps
        if notes is None:
            return
        if notes.memory.concerns_all:
            self._wake_all(notes.memory)
        else:
            self.then, self.awake, self.are_all_awake = notes.memory, {}, False
            self.is_alert = notes.memory.grounds is None
            self._wake(BEFORE, self, notes)
            self._wake([lambda: notes.memory.awake])

    @property
    def budget(self) -> Budget | None:
        return self.notes.judged.round_.budget if self.notes is not None else None

    @property
    def decisions(self) -> Mapping[GroupKey, GroupDecision]:
        """Return the decisions on inadmissible groups, and on others before."""
        return self.before.groups if self.then is not None else {}

    def stir(self, round_: Round, in_force: InForce) -> list[GroupView]:
        """Return one group of each class that a change concerns, now that the budget is complete."""
        self.stirred, self._following = {}, {}
        capacity = round_.budget.planner.capacity
        if self.notes is not None and self.notes.memory.totals is not None:
            capacity.settle(self.notes.memory.totals)
        if self.then is None or not self.then.buckets.groups:
            return []
        self.is_alert |= capacity.base is None
        kinds: Iterable[Kind] = self.then.buckets.groups
        if not self.is_alert and capacity.base is not None:
            kinds = self._touched_kinds(round_, in_force, capacity.base)
        for kind in self.then.buckets.groups if self.is_alert else kinds:
            self._stir(kind, filter(self.sleeps, self.then.buckets.groups[kind]))
        return [self.snapshot.groups[key] for key in self.stirred.values()]

    def _touched_kinds(self, round_: Round, in_force: InForce, totals: Totals) -> Set[Kind]:
        """Return the kinds for which something of the budget would be read otherwise than it was."""
        then, touched = self.then, dict[Kind, None]()
        if then is None or then.grounds is None:
            return touched.keys()
        now, buckets = Grounds.of(round_, in_force, totals), then.buckets
        for touches in WITHIN:
            topics = touches(then.grounds, now)
            self.is_alert |= topics is None
            for topic in topics or ():
                for kind in buckets.by_topic.get(topic, ()):
                    if kind not in touched and not _is_read_alike(buckets.read[kind][topic], round_.budget):
                        touched[kind] = None
        return touched.keys()

    def _stir(self, kind: Kind, asleep: Iterator[GroupKey]) -> GroupKey | None:
        """Have the next group of a bucket judged, if it has any left."""
        if (key := next(asleep, None)) is not None:
            self.stirred[kind] = key
            self._following[key] = kind, asleep
        return key

    def next_equal(self, group: GroupView) -> GroupView | None:
        """Return the group of a class that is evaluated after one which starts; None without one."""
        if group.key not in self._following:
            return None
        key = self._stir(*self._following[group.key])
        return None if key is None else self.snapshot.groups[key]

    def sleeps(self, group: GroupKey) -> bool:
        return group not in self.awake and group in self.snapshot.groups  # it may be gone

    def those_in(self, queues: Set[str]) -> Iterator[GroupKey]:
        """Yield the inadmissible groups of some queues."""
        groups = self.snapshot.groups.items() if queues else ()
        return (key for key, group in groups if group.queue in queues and self.sleeps(key))

    def those_limited(self, scopes: Set[Scope]) -> Iterator[GroupKey]:
        """Yield the inadmissible groups to which limits of some users and namespaces apply."""
        budget, groups = self.budget, self.snapshot.groups
        if budget is None or not scopes:
            return iter(())
        inside = self.those_in({scope.queue for scope in scopes})
        return (key for key in inside if budget.running.concerns(groups[key], scopes))

    def wake_after(self, judged: Judged) -> bool:
        """Return whether decisions requeue a group, so that the cycle has to be repeated."""
        if self._wake(AFTER, self, self.then, judged):
            return True
        if self._has_to_be_alert(judged):
            self.is_alert = True
            return True
        if not self.are_all_awake or self.then is None or not judged.round_.takes_back:
            return False
        self.then, self.awake = None, self.snapshot.groups
        return True

    def _has_to_be_alert(self, judged: Judged) -> bool:
        """Return whether anything was allocated or reserved, and a class was left out.

        All that comes after that in the cycle is evaluated by less.
        """
        if not judged.takes or self.is_alert or self.then is None:
            return False
        return self.stirred.keys() != self.then.buckets.groups.keys()

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

    def told(
        self, decided: Mapping[GroupKey, GroupDecision], heads: Mapping[Scope, GroupKey]
    ) -> Iterator[GroupDecision]:
        """Yield the decisions of sleepers that repeat the numbers, and the claim, of one of their bucket."""
        buckets = self.then.buckets.groups if self.then is not None else {}
        for kind, key in self.stirred.items():
            now, before = decided[key], self.before.groups[key]
            if _is_head(kind, key, heads):
                now = replace(before, detail=behind(key, now.queue))
            is_alike = now.detail == before.detail and now.claims_room == before.claims_room
            if is_alike or now.verdict is Verdict.STARTING:
                continue
            for other in buckets[kind]:
                if other not in decided and self.sleeps(other):
                    told = self.before.groups[other]
                    yield replace(told, detail=now.detail, claims_room=now.claims_room)


def _is_head(kind: Kind, group: GroupKey, heads: Mapping[Scope, GroupKey]) -> bool:
    """Return whether a group of those behind a head is the head now."""
    return isinstance(kind, Behind) and heads.get(kind.scope) == group


def _is_read_alike(questions: Sequence[Question], budget: Budget) -> bool:
    """Return whether all questions have the same answer; without questions, any change counts."""
    parts: Mapping[type, object] = {QueueShares: budget.shares, RunningCounts: budget.running}
    try:
        return bool(questions) and all(asked.is_answered_alike(parts[asked.part]) for asked in questions)
    except Exception:  # whatever is wrong with a group: it is judged again, inside a guard
        return False


# ---- What wakes groups before a round: None where everybody wakes.


def cluster(sleepers: Sleepers, notes: Notes) -> Iterable[GroupKey] | None:
    """Return the groups affected by changes of the cluster besides the budget."""
    before, now = notes.snapshot, sleepers.snapshot
    is_alike = (
        before.now <= now.now
        and now.limits is before.limits
        and now.nodes is before.nodes
        and now.pools == before.pools
        and now.dimensions == before.dimensions
        and now.refused == before.refused
        and have_same_keys(now.queues, before.queues)
        and now.occupancy.is_alike(before.occupancy)
        and np.array_equal(now.allocatable, before.allocatable)
    )
    return () if is_alike else None


def objects(sleepers: Sleepers, notes: Notes) -> Iterable[GroupKey]:
    """Return groups with changes in themselves or in what belongs to them.

    These are members, their queue or one above it, and records.
    """
    return sleepers.snapshot.touched


def moments(sleepers: Sleepers, notes: Notes) -> Iterable[GroupKey]:
    """Time alone could change what is decided on it."""
    now, wake_at = sleepers.snapshot.now, sleepers.before.wake_at
    is_due = wake_at is not None and wake_at <= now
    return [key for key, at in notes.moments.items() if at <= now] if is_due else ()


def usage(sleepers: Sleepers, notes: Notes) -> Iterable[GroupKey]:
    """Return groups in an order by recent usage of users.

    The usage of queues does not matter to pending groups while nothing is allocated.
    """
    if sleepers.snapshot.past is notes.snapshot.past:
        return ()
    queues = sleepers.snapshot.queues.items()
    return sleepers.those_in({name for name, queue in queues if orders_by_usage(queue.record)})


# ---- What of the budget is not as it was: topics, by which buckets are found; None for all.


def room(then: Grounds, now: Grounds) -> Iterable[Topic] | None:
    """Return changed numbers of pods of a shape that fit, and changed rests of resources."""
    return now.totals.changed


def reservations(then: Grounds, now: Grounds) -> Iterable[Topic] | None:
    """Return changed reservations.

    Turns to get a reservation may depend on it, too; so do passing groups, and those that would fit
    without it. The first turn depends on shares and usage.
    """
    if then.in_force != now.in_force:
        return None
    are_turns_alike = now.shares.snapshot.past is then.shares.snapshot.past
    are_turns_alike = are_turns_alike and now.shares.nodes_unlike(then.shares) == set()
    is_alike = are_turns_alike and now.history is then.history
    is_alike = is_alike and PLACES not in (now.totals.changed or ())
    return () if is_alike or not now.in_force else (RESERVED,)


def shares(then: Grounds, now: Grounds) -> Iterable[Topic]:
    """Yield the queues of which the share, ceiling, holdings or decayed usage differ, also of one above."""
    is_past_alike = now.shares.snapshot.past is then.shares.snapshot.past
    unlike = now.shares.queues_unlike(then.shares) if is_past_alike else now.shares.division.tree.seat
    return ((QueueShares, queue) for queue in unlike)


def running(then: Grounds, now: Grounds) -> Iterable[Topic]:
    """Return changes in what runs of a queue that has limits on it."""
    queues = (scope.queue for scope in _unlike(then.running, now.running))
    return [(RunningCounts, queue) for queue in dict.fromkeys(queues)]


def lines(then: Grounds, now: Grounds) -> Iterable[Topic]:
    """Return changed heads of queues: the first group behind one is evaluated in each cycle."""
    return (BEHIND,)


def _unlike(one: Mapping[T, object], other: Mapping[T, object]) -> Iterator[T]:
    return (key for key in {**one, **other} if one.get(key) != other.get(key))


# ---- What wakes groups after a round, which is then repeated: None where everybody wakes.


def decisions(sleepers: Sleepers, then: Memory, judged: Judged) -> Iterable[GroupKey]:
    """One group of a bucket is decided on otherwise, in more than numbers, and does not start."""
    kind_of = judged.round_.reads.kind_of
    for kind, key in sleepers.stirred.items():
        before, now = sleepers.before.groups[key], judged.round_.decided[key]
        if now.verdict is Verdict.STARTING or _is_head(kind, key, judged.heads):
            continue
        if (
            kind_of[key] != kind
            or replace(now, detail=before.detail, life=before.life, position=before.position) != before
        ):
            yield from then.buckets.groups[kind]


def users(sleepers: Sleepers, then: Memory, judged: Judged) -> Iterable[GroupKey]:
    """Return the groups of users and namespaces whose running counts have changed."""
    now, known = judged.round_.budget.running, sleepers.budget
    before = {} if known is None else known.running.personal
    return sleepers.those_limited({*_unlike(before, now.begun), *_unlike(now.begun, now.personal)})


def heads(sleepers: Sleepers, then: Memory, judged: Judged) -> Iterable[GroupKey]:
    """Return groups behind one that newly blocks its queue."""
    known = sleepers.notes.judged.heads if sleepers.notes is not None else {}
    return sleepers.those_in({scope.queue for scope in judged.heads.keys() - known.keys()})


def turns(sleepers: Sleepers, then: Memory, judged: Judged) -> Iterable[GroupKey] | None:
    """Return groups that may be first now to get a reservation, or to look for victims."""
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
    """Return whether inadmissible groups may come before the one that looks for victims now."""
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


BEFORE = (cluster, objects, moments, usage)
WITHIN = (room, reservations, shares, running, lines)
AFTER = (decisions, users, heads, turns, victims)
