"""Inadmissible groups: pending groups whose last decision is still valid, and the changes that requeue them.

Groups of one queue that lack the same capacity form an equivalence class. The evaluation of one of these
groups reads a part of the budget (`Reads`). The class stays inadmissible as long as a new read would return
the same.

The first group of each class is evaluated if a change concerns the class, or if the cycle allocates or
reserves any capacity (`evaluates_all_classes`). If that group starts, the next group of its class follows.
Otherwise the other groups of the class take over the numbers of its decision. If more than numbers differ,
they are requeued, and the cycle is repeated.

The decisions are the same with and without inadmissible groups.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from extender.domain.model.evictions import EvictionCause
from extender.domain.model.reasons import Verdict
from extender.domain.model.records import GroupKey
from extender.domain.model.shared_maps import have_same_keys
from extender.domain.placement.planner import EquivalenceClass, Question, Topic
from extender.domain.placement.totals import PLACES, Totals
from extender.domain.scheduling.budget import Budget, RunningCounts, Scope
from extender.domain.scheduling.cycle import Cycle
from extender.domain.scheduling.gang_admission import BEHIND_HEAD, BehindHead, behind_message
from extender.domain.scheduling.memory import Basis, CarriedFacts, Evaluation, Memory
from extender.domain.scheduling.order import orders_by_usage
from extender.domain.scheduling.reservation import RESERVED, InForce
from extender.domain.scheduling.shares import QueueShares
from extender.domain.scheduling.victims import ALL_CAUSES
from extender.domain.snapshot.decisions import Decisions, GroupDecision
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.snapshot import Snapshot
from extender.domain.snapshot.wholeness import ready_since

T = TypeVar("T")


class InadmissibleGroups:
    """Inadmissible groups of one decision. Each repetition of the cycle makes them fewer."""

    def __init__(self, snapshot: Snapshot, previous: Decisions | None, carried: CarriedFacts | None) -> None:
        self.snapshot = snapshot
        self.before = Decisions() if previous is None else previous
        self.carried = carried
        self.memory: Memory | None = None  # the memory of inadmissible groups, if there are any
        self.active: Mapping[GroupKey, GroupInfo] = snapshot.groups
        self.requeued: dict[EquivalenceClass, GroupKey] = {}  # the evaluated group of each class
        self._following: dict[GroupKey, tuple[EquivalenceClass, Iterator[GroupKey]]] = {}  # next in class
        self.evaluates_all_classes = False  # whether one group of each equivalence class is evaluated
        self.are_all_active = True  # except groups that their state decides
        if carried is None:
            return
        if carried.memory.depends_on_others:
            self._requeue_all(carried.memory)
        else:
            self.memory, self.active, self.are_all_active = carried.memory, {}, False
            self.evaluates_all_classes = carried.memory.basis is None
            self._requeue(BEFORE, self, carried)
            self._requeue([lambda: carried.memory.active])

    @property
    def budget(self) -> Budget | None:
        """Return the budget of the previous cycle."""
        return self.carried.evaluated.cycle.budget if self.carried is not None else None

    @property
    def decisions(self) -> Mapping[GroupKey, GroupDecision]:
        """Return the decisions of the previous cycle, which are valid for inadmissible groups."""
        return self.before.groups if self.memory is not None else {}

    def requeue_changed(self, cycle: Cycle, in_force: InForce) -> list[GroupInfo]:
        """Return one group of each class that a change concerns.

        The budget of the cycle is complete by now.
        """
        self.requeued, self._following = {}, {}
        capacity = cycle.budget.planner.capacity
        if self.carried is not None and self.carried.memory.totals is not None:
            capacity.count_assumed(self.carried.memory.totals)
        if self.memory is None or not self.memory.classes.groups:
            return []
        self.evaluates_all_classes |= capacity.base is None
        classes: Iterable[EquivalenceClass] = self.memory.classes.groups
        if not self.evaluates_all_classes and capacity.base is not None:
            classes = self._dirty_classes(cycle, in_force, capacity.base)
        for class_ in self.memory.classes.groups if self.evaluates_all_classes else classes:
            self._requeue_one(class_, filter(self.is_inadmissible, self.memory.classes.groups[class_]))
        return [self.snapshot.groups[key] for key in self.requeued.values()]

    def _dirty_classes(self, cycle: Cycle, in_force: InForce, totals: Totals) -> Set[EquivalenceClass]:
        """Return the classes whose reads of the budget would now return something else."""
        memory, dirty = self.memory, dict[EquivalenceClass, None]()
        if memory is None or memory.basis is None:
            return dirty.keys()
        now, classes = Basis.from_cycle(cycle, in_force, totals), memory.classes
        for changes_between in WITHIN:
            topics = changes_between(memory.basis, now)
            self.evaluates_all_classes |= topics is None
            for topic in topics or ():
                for class_ in classes.by_topic.get(topic, ()):
                    if class_ not in dirty and not _have_same_answers(
                        classes.read[class_][topic], cycle.budget
                    ):
                        dirty[class_] = None
        return dirty.keys()

    def _requeue_one(self, class_: EquivalenceClass, inadmissible: Iterator[GroupKey]) -> GroupKey | None:
        """Requeue the next group of an equivalence class, and return it; None if there is none."""
        if (key := next(inadmissible, None)) is not None:
            self.requeued[class_] = key
            self._following[key] = class_, inadmissible
        return key

    def next_equal(self, group: GroupInfo) -> GroupInfo | None:
        """Return the next group of the class of the starting `group`.

        None means that the class has no other group.
        """
        if group.key not in self._following:
            return None
        key = self._requeue_one(*self._following[group.key])
        return None if key is None else self.snapshot.groups[key]

    def is_inadmissible(self, group: GroupKey) -> bool:
        """Return whether a group exists and is inadmissible."""
        return group not in self.active and group in self.snapshot.groups  # the group may no longer exist

    def in_queues(self, queues: Set[str]) -> Iterator[GroupKey]:
        """Yield the inadmissible groups in `queues`."""
        groups = self.snapshot.groups.items() if queues else ()
        return (key for key, group in groups if group.queue in queues and self.is_inadmissible(key))

    def in_scopes(self, scopes: Set[Scope]) -> Iterator[GroupKey]:
        """Yield the inadmissible groups to which limits of these scopes apply."""
        budget, groups = self.budget, self.snapshot.groups
        if budget is None or not scopes:
            return iter(())
        inside = self.in_queues({scope.queue for scope in scopes})
        return (key for key in inside if budget.running.concerns(groups[key], scopes))

    def requeues_after(self, evaluated: Evaluation) -> bool:
        """Return whether decisions requeue a group, so that the cycle must be repeated."""
        if self._requeue(AFTER, self, self.memory, evaluated):
            return True
        if self._must_evaluate_all_classes(evaluated):
            self.evaluates_all_classes = True
            return True
        if not self.are_all_active or self.memory is None or not evaluated.cycle.evicts_groups:
            return False
        self.memory, self.active = None, self.snapshot.groups
        return True

    def _must_evaluate_all_classes(self, evaluated: Evaluation) -> bool:
        """Return whether all classes must be evaluated.

        If anything was allocated or reserved, classes that were left out may have less capacity.
        """
        if not evaluated.uses_capacity or self.evaluates_all_classes or self.memory is None:
            return False
        return self.requeued.keys() != self.memory.classes.groups.keys()

    def _requeue(self, causes: Iterable[Callable[..., Iterable[GroupKey] | None]], *inputs: object) -> bool:
        """Requeue the groups that causes affect. Return whether any of them was inadmissible.

        Args:
            causes: Functions that return the affected groups. None means all groups.
            inputs: The arguments of these functions.
        """
        if self.are_all_active or self.memory is None:
            return False
        before, requeued = self.active.keys(), set(self.active)
        for cause in causes:
            affected = cause(*inputs)
            if affected is None:  # requeue all groups
                self._requeue_all(self.memory)
                break
            requeued.update(affected)
        else:
            self.active = self._existing(requeued)
        return self.active.keys() != before

    def _requeue_all(self, memory: Memory) -> None:
        """Requeue all groups, except groups that their state decides.

        Only time can change the decisions on such groups.
        """
        self.are_all_active = True
        if memory.evaluable is None:
            self.memory, self.active = None, self.snapshot.groups
        else:
            self.memory = memory.with_all_active(self.snapshot)
            due_groups = () if self.carried is None else due_instants(self, self.carried)
            self.active = self._existing(memory.evaluable.union(self.snapshot.dirty_groups, due_groups))

    def _existing(self, keys: Set[GroupKey]) -> Mapping[GroupKey, GroupInfo]:
        groups = self.snapshot.groups
        return {key: groups[key] for key in sorted(keys) if key in groups}

    def reported(
        self, decided: Mapping[GroupKey, GroupDecision], heads: Mapping[Scope, GroupKey]
    ) -> Iterator[GroupDecision]:
        """Yield decisions on other groups of requeued classes, with the numbers of the evaluated group."""
        classes = self.memory.classes.groups if self.memory is not None else {}
        for class_, key in self.requeued.items():
            now, before = decided[key], self.before.groups[key]
            if _is_head(class_, key, heads):
                now = replace(before, detail=behind_message(key, now.queue))
            is_unchanged = now.detail == before.detail and now.claims_capacity == before.claims_capacity
            if is_unchanged or now.verdict is Verdict.STARTING:
                continue
            for other in classes[class_]:
                if other not in decided and self.is_inadmissible(other):
                    reported = self.before.groups[other]
                    yield replace(reported, detail=now.detail, claims_capacity=now.claims_capacity)


def _is_head(class_: EquivalenceClass, group: GroupKey, heads: Mapping[Scope, GroupKey]) -> bool:
    """Return whether the evaluated group of the class behind a head is the new head."""
    return isinstance(class_, BehindHead) and heads.get(class_.scope) == group


def _have_same_answers(questions: Sequence[Question], budget: Budget) -> bool:
    """Return whether all questions have the same answer. If there are no questions, any change counts."""
    parts: Mapping[type, object] = {QueueShares: budget.shares, RunningCounts: budget.running}
    try:
        return bool(questions) and all(each.has_same_answer(parts[each.part]) for each in questions)
    except Exception:  # if a group has an error, evaluate it again inside a guard
        return False


# The next functions return the groups to requeue before a cycle. None means all groups.


def cluster_changes(inadmissible: InadmissibleGroups, carried: CarriedFacts) -> Iterable[GroupKey] | None:
    """Return None if the cluster has changed in more than the budget, so that all groups are requeued."""
    before, now = carried.snapshot, inadmissible.snapshot
    is_unchanged = (
        before.now <= now.now
        and now.limits is before.limits
        and now.nodes is before.nodes
        and now.pools == before.pools
        and now.dimensions == before.dimensions
        and now.refused_rows == before.refused_rows
        and have_same_keys(now.queues, before.queues)
        and now.occupancy.is_equal(before.occupancy)
        and np.array_equal(now.allocatable, before.allocatable)
    )
    return () if is_unchanged else None


def object_changes(inadmissible: InadmissibleGroups, carried: CarriedFacts) -> Iterable[GroupKey]:
    """Return the groups whose own objects have changed: members, records, or their queues.

    Queues above the group's queue count, too.
    """
    return inadmissible.snapshot.dirty_groups


def due_instants(inadmissible: InadmissibleGroups, carried: CarriedFacts) -> Iterable[GroupKey]:
    """Return the groups whose decision may have changed by time alone."""
    now, requeue_at = inadmissible.snapshot.now, inadmissible.before.requeue_at
    is_due = requeue_at is not None and requeue_at <= now
    return [key for key, at in carried.instants.items() if at <= now] if is_due else ()


def usage_changes(inadmissible: InadmissibleGroups, carried: CarriedFacts) -> Iterable[GroupKey]:
    """Return the groups of queues that order groups by the recent usage of users, if usage has changed.

    The usage of queues does not matter to pending groups while nothing is allocated.
    """
    if inadmissible.snapshot.past_usage is carried.snapshot.past_usage:
        return ()
    queues = inadmissible.snapshot.queues.items()
    return inadmissible.in_queues({name for name, queue in queues if orders_by_usage(queue.record)})


# The next functions return the topics of changed parts of the budget. None means all topics.


def capacity_changes(before: Basis, now: Basis) -> Iterable[Topic] | None:
    """Return the shapes and resources for which the number of fitting pods or the free amount has changed."""
    return now.totals.changed


def reservation_changes(before: Basis, now: Basis) -> Iterable[Topic] | None:
    """Return the topic of reservations if other groups may pass them now.

    None means that reservations changed. The groups that may pass a reservation, or would fit without it,
    depend on shares, usage, run times and the free capacity of nodes.
    """
    if before.in_force != now.in_force:
        return None
    are_turns_unchanged = now.shares.snapshot.past_usage is before.shares.snapshot.past_usage
    are_turns_unchanged = are_turns_unchanged and now.shares.nodes_changed_since(before.shares) == set()
    is_unchanged = are_turns_unchanged and now.history is before.history
    is_unchanged = is_unchanged and PLACES not in (now.totals.changed or ())
    return () if is_unchanged or not now.in_force else (RESERVED,)


def share_changes(before: Basis, now: Basis) -> Iterable[Topic]:
    """Return the queues whose share, ceiling, allocation or decayed usage has changed.

    Queues below such a queue are included.
    """
    is_past_unchanged = now.shares.snapshot.past_usage is before.shares.snapshot.past_usage
    changed = (
        now.shares.queues_changed_since(before.shares) if is_past_unchanged else now.shares.division.tree.leaf
    )
    return ((QueueShares, queue) for queue in changed)


def running_changes(before: Basis, now: Basis) -> Iterable[Topic]:
    """Return the queues with limits on running groups or pods whose running counts have changed."""
    queues = (scope.queue for scope in _changed_keys(before.running, now.running))
    return [(RunningCounts, queue) for queue in dict.fromkeys(queues)]


def changed_heads(before: Basis, now: Basis) -> Iterable[Topic]:
    """Return the topic of queue heads in any case: each cycle evaluates the first group behind a head."""
    return (BEHIND_HEAD,)


def _changed_keys(one: Mapping[T, object], other: Mapping[T, object]) -> Iterator[T]:
    """Yield the keys whose values differ."""
    return (key for key in {**one, **other} if one.get(key) != other.get(key))


# The next functions return the groups to requeue after a cycle, which is then repeated. None means all.


def decision_changes(
    inadmissible: InadmissibleGroups, memory: Memory, evaluated: Evaluation
) -> Iterable[GroupKey]:
    """Return the groups of each class whose evaluated group has got another decision and does not start."""
    class_of = evaluated.cycle.reads.class_of
    for class_, key in inadmissible.requeued.items():
        before, now = inadmissible.before.groups[key], evaluated.cycle.decided[key]
        if now.verdict is Verdict.STARTING or _is_head(class_, key, evaluated.heads):
            continue
        if (
            class_of[key] != class_
            or replace(now, detail=before.detail, life=before.life, position=before.position) != before
        ):
            yield from memory.classes.groups[class_]


def user_changes(
    inadmissible: InadmissibleGroups, memory: Memory, evaluated: Evaluation
) -> Iterable[GroupKey]:
    """Return the groups of users and namespaces whose running counts have changed."""
    now, old_budget = evaluated.cycle.budget.running, inadmissible.budget
    before = {} if old_budget is None else old_budget.running.scoped
    return inadmissible.in_scopes(
        {*_changed_keys(before, now.scoped_at_start), *_changed_keys(now.scoped_at_start, now.scoped)}
    )


def newly_blocked(
    inadmissible: InadmissibleGroups, memory: Memory, evaluated: Evaluation
) -> Iterable[GroupKey]:
    """Return the groups of each queue that a head has newly blocked."""
    old_heads = inadmissible.carried.evaluated.heads if inadmissible.carried is not None else {}
    return inadmissible.in_queues({scope.queue for scope in evaluated.heads.keys() - old_heads.keys()})


def next_candidates(
    inadmissible: InadmissibleGroups, memory: Memory, evaluated: Evaluation
) -> Iterable[GroupKey] | None:
    """Return the groups that may now be the first to get a reservation or to look for victims."""
    reserved, seekers, groups = evaluated.reservations, evaluated.starving, inadmissible.snapshot.groups
    if memory.next_reserving is not None and reserved.next_reserving is not memory.next_reserving:
        return None  # all other groups waited for it
    reserving = {
        group.queue
        for class_, group in memory.first_eligible.items()
        if (class_, group.key) not in reserved.candidates
        and (group.key in evaluated.cycle.decided or group.key not in groups)
    }
    starving_queues = (
        group.queue
        for class_, group in memory.first_starving.items()
        if _comes_later(seekers.first.get(class_), group) and seekers.may_find(group, ALL_CAUSES)
    )
    return inadmissible.in_queues(reserving.union(starving_queues))


def _comes_later(now: GroupInfo | None, before: GroupInfo) -> bool:
    """Return whether a group that now looks for victims comes after an inadmissible group."""
    if now is None:
        return True
    return now.order > before.order or ready_since(now) > ready_since(before)


def new_victims(
    inadmissible: InadmissibleGroups, memory: Memory, evaluated: Evaluation
) -> Iterable[GroupKey]:
    """Return the groups for which newly running groups may be victims."""
    cycle, unserved, causes = evaluated.cycle, memory.without_victims.values(), ALL_CAUSES
    before, now = memory.snapshot.groups, cycle.snapshot
    changed = (part.get(key) for key in {*cycle.groups, *now.dirty_groups} for part in (before, now.groups))
    share_state, basis = cycle.budget.shares.state, memory.basis
    has_no_effect = basis and not any(share_state.queues_changed_since(basis.shares))
    if has_no_effect and not any(group is not None and group.placed for group in changed):
        causes = (EvictionCause.UNMANAGED,)  # no other group of Muster has started
    return inadmissible.in_queues(
        {group.queue for group in unserved if evaluated.starving.may_find(group, causes)}
    )


BEFORE = (cluster_changes, object_changes, due_instants, usage_changes)
WITHIN = (capacity_changes, reservation_changes, share_changes, running_changes, changed_heads)
AFTER = (decision_changes, user_changes, newly_blocked, next_candidates, new_victims)
