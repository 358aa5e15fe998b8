"""Inadmissible groups: pending groups whose last decision is still valid, and the changes that requeue them.

Groups of one queue that lack the same capacity form an equivalence class. The evaluation of one of these
groups reads a part of the budget (`Reads`). The class stays inadmissible as long as a new read would return
the same.

The first group of each class is evaluated if a change concerns the class, or if the cycle allocates or
reserves any capacity (`evaluates_all_classes`). If that group starts, the next group of its class follows.
Otherwise, the other groups of the class get the numbers of the new decision. If the new decision differs from
the last one in more than numbers, the other groups are requeued, and the cycle is repeated.

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
from extender.domain.placement.totals import NODES_TOPIC, Totals
from extender.domain.scheduling.budget import Budget, RunningCounts, Scope
from extender.domain.scheduling.cycle import Cycle
from extender.domain.scheduling.gang_admission import HEAD_TOPIC, BehindHead, behind_message
from extender.domain.scheduling.memory import Basis, CarriedFacts, Evaluation, Memory
from extender.domain.scheduling.order import orders_by_usage
from extender.domain.scheduling.reservation import RESERVATION_TOPIC, WithheldByGroup
from extender.domain.scheduling.shares import QueueShares
from extender.domain.scheduling.victims import ALL_CAUSES
from extender.domain.snapshot.decisions import Decisions, GroupDecision
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.snapshot import Snapshot
from extender.domain.snapshot.wholeness import ready_since

T = TypeVar("T")


class InadmissibleGroups:
    """Inadmissible groups of one run of decide(). If the cycle is repeated, fewer groups are inadmissible."""

    def __init__(self, snapshot: Snapshot, previous: Decisions | None, facts: CarriedFacts | None) -> None:
        self.snapshot = snapshot
        self.previous = Decisions() if previous is None else previous
        self.facts = facts
        self.memory: Memory | None = None  # the memory of inadmissible groups, if there are any
        self.active_groups: Mapping[GroupKey, GroupInfo] = snapshot.groups
        self.group_by_class: dict[EquivalenceClass, GroupKey] = {}  # the evaluated group of each class
        self._remaining_keys: dict[GroupKey, tuple[EquivalenceClass, Iterator[GroupKey]]] = {}  # of its class
        self.evaluates_all_classes = False  # whether one group of each equivalence class is evaluated
        self.are_all_active = True  # except groups whose own state decides on them
        if facts is None:
            return
        if facts.memory.depends_on_others:
            self._requeue_all(facts.memory)
        else:
            self.memory, self.active_groups, self.are_all_active = facts.memory, {}, False
            self.evaluates_all_classes = facts.memory.basis is None
            self._requeue(CAUSES_BEFORE_CYCLE, self, facts)
            self._requeue([lambda: facts.memory.active_keys])

    @property
    def budget(self) -> Budget | None:
        """Return the budget of the previous cycle."""
        return self.facts.evaluation.cycle.budget if self.facts is not None else None

    @property
    def decisions(self) -> Mapping[GroupKey, GroupDecision]:
        """Return the decisions of the previous cycle, which are valid for inadmissible groups."""
        return self.previous.groups if self.memory is not None else {}

    def requeue_changed(self, cycle: Cycle, withheld_by_group: WithheldByGroup) -> list[GroupInfo]:
        """Requeue a group of each class that a change concerns, and return these groups.

        The caller has already completed the budget of the cycle.
        """
        self.group_by_class, self._remaining_keys = {}, {}
        capacity = cycle.budget.planner.capacity
        if self.facts is not None and self.facts.memory.totals is not None:
            capacity.count_assumed(self.facts.memory.totals)
        if self.memory is None or not self.memory.classes.keys_by_class:
            return []
        self.evaluates_all_classes |= capacity.base is None
        classes: Iterable[EquivalenceClass] = self.memory.classes.keys_by_class
        if not self.evaluates_all_classes and capacity.base is not None:
            classes = self._dirty_classes(cycle, withheld_by_group, capacity.base)
        for class_ in self.memory.classes.keys_by_class if self.evaluates_all_classes else classes:
            self._requeue_one(class_, filter(self.is_inadmissible, self.memory.classes.keys_by_class[class_]))
        return [self.snapshot.groups[key] for key in self.group_by_class.values()]

    def _dirty_classes(
        self, cycle: Cycle, withheld_by_group: WithheldByGroup, totals: Totals
    ) -> Set[EquivalenceClass]:
        """Return the classes for which the budget has changed: their questions have other answers now."""
        memory, dirty_classes = self.memory, dict[EquivalenceClass, None]()
        if memory is None or memory.basis is None:
            return dirty_classes.keys()
        new_basis, classes = Basis.from_cycle(cycle, withheld_by_group, totals), memory.classes
        for changes_between in BUDGET_CHANGES:
            topics = changes_between(memory.basis, new_basis)
            self.evaluates_all_classes |= topics is None
            for topic in topics or ():
                for class_ in classes.classes_by_topic.get(topic, ()):
                    if class_ not in dirty_classes and not _have_same_answers(
                        classes.reads[class_][topic], cycle.budget
                    ):
                        dirty_classes[class_] = None
        return dirty_classes.keys()

    def _requeue_one(self, class_: EquivalenceClass, remaining_keys: Iterator[GroupKey]) -> GroupKey | None:
        """Requeue the next group of an equivalence class, and return it; None if there is none."""
        if (key := next(remaining_keys, None)) is not None:
            self.group_by_class[class_] = key
            self._remaining_keys[key] = class_, remaining_keys
        return key

    def requeue_equal(self, group: GroupInfo) -> GroupInfo | None:
        """Requeue the next group of the class of the starting `group`, and return it.

        None means that the class has no other group.
        """
        if group.key not in self._remaining_keys:
            return None
        key = self._requeue_one(*self._remaining_keys[group.key])
        return None if key is None else self.snapshot.groups[key]

    def is_inadmissible(self, group: GroupKey) -> bool:
        """Return whether a group exists and is inadmissible."""
        return group not in self.active_groups and group in self.snapshot.groups  # it may be gone

    def keys_in_queues(self, queues: Set[str]) -> Iterator[GroupKey]:
        """Yield the inadmissible groups in `queues`."""
        groups = self.snapshot.groups.items() if queues else ()
        return (key for key, group in groups if group.queue in queues and self.is_inadmissible(key))

    def groups_in_scopes(self, scopes: Set[Scope]) -> Iterator[GroupKey]:
        """Yield the inadmissible groups to which limits of these scopes apply."""
        budget, groups = self.budget, self.snapshot.groups
        if budget is None or not scopes:
            return iter(())
        keys_in_queues = self.keys_in_queues({scope.queue for scope in scopes})
        return (key for key in keys_in_queues if budget.running.is_in_scope(groups[key], scopes))

    def requeue_after(self, evaluation: Evaluation) -> bool:
        """Requeue the groups that the decisions of a cycle affect.

        Return whether the cycle must be repeated.
        """
        if self._requeue(CAUSES_AFTER_CYCLE, self, self.memory, evaluation):
            return True
        if self._must_evaluate_all_classes(evaluation):
            self.evaluates_all_classes = True
            return True
        if not self.are_all_active or self.memory is None or not evaluation.cycle.evicts_groups:
            return False
        self.memory, self.active_groups = None, self.snapshot.groups
        return True

    def _must_evaluate_all_classes(self, evaluation: Evaluation) -> bool:
        """Return whether all classes must be evaluated.

        If anything was allocated or reserved, classes that were left out may have less capacity.
        """
        if not evaluation.uses_capacity or self.evaluates_all_classes or self.memory is None:
            return False
        return self.group_by_class.keys() != self.memory.classes.keys_by_class.keys()

    def _requeue(self, causes: Iterable[Callable[..., Iterable[GroupKey] | None]], *inputs: object) -> bool:
        """Requeue the groups that causes affect. Return whether any of them was inadmissible.

        Args:
            causes: Functions that return the affected groups. None means all groups.
            inputs: The arguments of these functions.
        """
        if self.are_all_active or self.memory is None:
            return False
        old_keys, requeued_keys = self.active_groups.keys(), set(self.active_groups)
        for cause in causes:
            affected_keys = cause(*inputs)
            if affected_keys is None:  # requeue all groups
                self._requeue_all(self.memory)
                break
            requeued_keys.update(affected_keys)
        else:
            self.active_groups = self._find_groups(requeued_keys)
        return self.active_groups.keys() != old_keys

    def _requeue_all(self, memory: Memory) -> None:
        """Requeue all groups, except groups whose decisions depend only on their own state.

        The excepted groups are requeued only if their own objects have changed, or if their decisions depend
        on an instant that is due.
        """
        self.are_all_active = True
        if memory.evaluable_keys is None:
            self.memory, self.active_groups = None, self.snapshot.groups
        else:
            self.memory = memory.with_all_active(self.snapshot)
            due_groups = () if self.facts is None else due_instants(self, self.facts)
            requeued_keys = memory.evaluable_keys.union(self.snapshot.dirty_groups, due_groups)
            self.active_groups = self._find_groups(requeued_keys)

    def _find_groups(self, keys: Set[GroupKey]) -> Mapping[GroupKey, GroupInfo]:
        groups = self.snapshot.groups
        return {key: groups[key] for key in sorted(keys) if key in groups}

    def updated_decisions(
        self, new_decisions: Mapping[GroupKey, GroupDecision], heads: Mapping[Scope, GroupKey]
    ) -> Iterator[GroupDecision]:
        """Yield decisions on other groups of requeued classes, with the numbers of the evaluated group."""
        classes = self.memory.classes.keys_by_class if self.memory is not None else {}
        for class_, key in self.group_by_class.items():
            new, old = new_decisions[key], self.previous.groups[key]
            if _is_head(class_, key, heads):
                new = replace(old, detail=behind_message(key, new.queue))
            is_unchanged = new.detail == old.detail and new.claims_capacity == old.claims_capacity
            if is_unchanged or new.verdict is Verdict.STARTING:
                continue
            for other_key in classes[class_]:
                if other_key not in new_decisions and self.is_inadmissible(other_key):
                    old_decision = self.previous.groups[other_key]
                    yield replace(old_decision, detail=new.detail, claims_capacity=new.claims_capacity)


def _is_head(class_: EquivalenceClass, group: GroupKey, heads: Mapping[Scope, GroupKey]) -> bool:
    """Return whether the evaluated group of the class behind a head is the new head."""
    return isinstance(class_, BehindHead) and heads.get(class_.scope) == group


def _have_same_answers(questions: Sequence[Question], budget: Budget) -> bool:
    """Return whether all questions have the same answer. If there are no questions, any change counts."""
    parts: Mapping[type, object] = {QueueShares: budget.shares, RunningCounts: budget.running}
    try:
        return bool(questions) and all(item.has_same_answer(parts[item.part_type]) for item in questions)
    except Exception:  # if a group has an error, evaluate it again inside a guard
        return False


# The next functions return the groups to requeue before a cycle. None means all groups.


def cluster_changes(inadmissible: InadmissibleGroups, facts: CarriedFacts) -> Iterable[GroupKey] | None:
    """Return None, which requeues all groups, if more than the budget has changed; otherwise no group."""
    old_snapshot, new_snapshot = facts.snapshot, inadmissible.snapshot
    is_unchanged = (
        old_snapshot.now <= new_snapshot.now
        and new_snapshot.limits is old_snapshot.limits
        and new_snapshot.nodes is old_snapshot.nodes
        and new_snapshot.pools == old_snapshot.pools
        and new_snapshot.dimensions == old_snapshot.dimensions
        and new_snapshot.refused_rows == old_snapshot.refused_rows
        and have_same_keys(new_snapshot.queues, old_snapshot.queues)
        and new_snapshot.occupancy.is_equal(old_snapshot.occupancy)
        and np.array_equal(new_snapshot.allocatable, old_snapshot.allocatable)
    )
    return () if is_unchanged else None


def object_changes(inadmissible: InadmissibleGroups, carried_facts: CarriedFacts) -> Iterable[GroupKey]:
    """Return the groups whose own objects have changed: members, records, or their queues.

    Queues above the group's queue count, too.
    """
    return inadmissible.snapshot.dirty_groups


def due_instants(inadmissible: InadmissibleGroups, carried_facts: CarriedFacts) -> Iterable[GroupKey]:
    """Return the groups whose decision may have changed by time alone."""
    now, requeue_at = inadmissible.snapshot.now, inadmissible.previous.requeue_at
    is_due = requeue_at is not None and requeue_at <= now
    return [key for key, at in carried_facts.instants.items() if at <= now] if is_due else ()


def usage_changes(inadmissible: InadmissibleGroups, carried_facts: CarriedFacts) -> Iterable[GroupKey]:
    """Return the groups of queues that order groups by the recent usage of users, if usage has changed.

    The usage of queues does not matter to pending groups while nothing is allocated.
    """
    if inadmissible.snapshot.past_usage is carried_facts.snapshot.past_usage:
        return ()
    queues = inadmissible.snapshot.queues.items()
    return inadmissible.keys_in_queues({name for name, queue in queues if orders_by_usage(queue.record)})


# The next functions return the topics of changed parts of the budget. None means all topics.


def capacity_changes(old_basis: Basis, basis: Basis) -> Iterable[Topic] | None:
    """Return the shapes and resources for which the number of fitting pods or the free amount has changed."""
    return basis.totals.changed_topics


def reservation_changes(old_basis: Basis, basis: Basis) -> Iterable[Topic] | None:
    """Return the topic of reservations if the groups that may pass them may have changed.

    None means that the reservations themselves changed. The groups that may pass a reservation, or would fit
    without it, depend on shares, usage, run times and the free capacity of nodes.
    """
    if old_basis.withheld_by_group != basis.withheld_by_group:
        return None
    are_turns_unchanged = basis.shares.snapshot.past_usage is old_basis.shares.snapshot.past_usage
    are_turns_unchanged = are_turns_unchanged and basis.shares.nodes_changed_since(old_basis.shares) == set()
    is_unchanged = are_turns_unchanged and basis.history is old_basis.history
    is_unchanged = is_unchanged and NODES_TOPIC not in (basis.totals.changed_topics or ())
    return () if is_unchanged or not basis.withheld_by_group else (RESERVATION_TOPIC,)


def share_changes(old: Basis, new: Basis) -> Iterable[Topic]:
    """Return the queues whose share, ceiling, allocation or decayed usage has changed.

    Queues below a changed queue are included.
    """
    is_same = new.shares.snapshot.past_usage is old.shares.snapshot.past_usage
    queues = new.shares.queues_changed_since(old.shares) if is_same else new.shares.division.tree.leaves
    return ((QueueShares, queue) for queue in queues)


def running_changes(old_basis: Basis, basis: Basis) -> Iterable[Topic]:
    """Return the queues with limits on running groups or pods whose running counts have changed."""
    queues = (scope.queue for scope in _changed_keys(old_basis.running_counts, basis.running_counts))
    return [(RunningCounts, queue) for queue in dict.fromkeys(queues)]


def changed_heads(old_basis: Basis, basis: Basis) -> Iterable[Topic]:
    """Return the topic of queue heads in any case: each cycle evaluates the first group behind a head."""
    return (HEAD_TOPIC,)


def _changed_keys(old_values: Mapping[T, object], new_values: Mapping[T, object]) -> Iterator[T]:
    """Yield the keys whose values differ."""
    return (key for key in {**old_values, **new_values} if old_values.get(key) != new_values.get(key))


# The next functions return the groups to requeue after a cycle, which is then repeated. None means all.


def decision_changes(
    inadmissible: InadmissibleGroups, memory: Memory, evaluation: Evaluation
) -> Iterable[GroupKey]:
    """Return all groups of each class whose evaluated group got a different decision and does not start."""
    class_by_group = evaluation.cycle.reads.class_by_group
    for class_, key in inadmissible.group_by_class.items():
        old, new_decision = inadmissible.previous.groups[key], evaluation.cycle.decisions[key]
        if new_decision.verdict is Verdict.STARTING or _is_head(class_, key, evaluation.heads):
            continue
        if (
            class_by_group[key] != class_
            or replace(new_decision, detail=old.detail, life=old.life, position=old.position) != old
        ):
            yield from memory.classes.keys_by_class[class_]


def user_changes(
    inadmissible: InadmissibleGroups, memory: Memory, evaluation: Evaluation
) -> Iterable[GroupKey]:
    """Return the groups of each user and namespace that now has more or fewer running groups or pods."""
    new, old_budget = evaluation.cycle.budget.running, inadmissible.budget
    old_counts = {} if old_budget is None else old_budget.running.tenant_counts
    return inadmissible.groups_in_scopes(
        {*_changed_keys(old_counts, new.start_counts), *_changed_keys(new.start_counts, new.tenant_counts)}
    )


def blocked_groups(
    inadmissible: InadmissibleGroups, memory: Memory, evaluation: Evaluation
) -> Iterable[GroupKey]:
    """Return the groups of each queue in which a new head blocks other groups."""
    old_heads = inadmissible.facts.evaluation.heads if inadmissible.facts is not None else {}
    return inadmissible.keys_in_queues({scope.queue for scope in evaluation.heads.keys() - old_heads.keys()})


def next_candidates(
    inadmissible: InadmissibleGroups, memory: Memory, evaluation: Evaluation
) -> Iterable[GroupKey] | None:
    """Return the groups that may now be first to get a reservation or look for victims; None: all."""
    starving, groups = evaluation.starving, inadmissible.snapshot.groups
    if memory.next_group is not None and evaluation.reservations.next_group is not memory.next_group:
        return None  # all groups waited for this one
    reserving_queues = {
        group.queue
        for class_, group in memory.first_eligible.items()
        if (class_, group.key) not in evaluation.reservations.candidates
        and (group.key in evaluation.cycle.decisions or group.key not in groups)
    }
    starving_queues = (
        group.queue
        for class_, group in memory.starving_by_class.items()
        if _is_later(starving.by_kind.get(class_), group) and starving.has_victims(group, ALL_CAUSES)
    )
    return inadmissible.keys_in_queues(reserving_queues.union(starving_queues))


def _is_later(new_seeker: GroupInfo | None, old_seeker: GroupInfo) -> bool:
    """Return whether a group that now looks for victims comes after an inadmissible group."""
    if new_seeker is None:
        return True
    return new_seeker.order > old_seeker.order or ready_since(new_seeker) > ready_since(old_seeker)


def victim_seekers(
    inadmissible: InadmissibleGroups, memory: Memory, evaluation: Evaluation
) -> Iterable[GroupKey]:
    """Return the groups for which newly running groups may be victims."""
    cycle, groups_without_victims, causes = evaluation.cycle, memory.victimless_groups.values(), ALL_CAUSES
    old_groups, new = memory.snapshot.groups, cycle.snapshot
    infos = (part.get(key) for key in {*cycle.groups, *new.dirty_groups} for part in (old_groups, new.groups))
    share_state, basis = cycle.budget.shares.state, memory.basis
    has_no_effect = basis and not any(share_state.queues_changed_since(basis.shares))
    if has_no_effect and not any(group is not None and group.placed_pods for group in infos):
        causes = (EvictionCause.UNMANAGED,)  # no other group of Muster has started
    return inadmissible.keys_in_queues(
        {group.queue for group in groups_without_victims if evaluation.starving.has_victims(group, causes)}
    )


CAUSES_BEFORE_CYCLE = (cluster_changes, object_changes, due_instants, usage_changes)
BUDGET_CHANGES = (capacity_changes, reservation_changes, share_changes, running_changes, changed_heads)
CAUSES_AFTER_CYCLE = (decision_changes, user_changes, blocked_groups, next_candidates, victim_seekers)
