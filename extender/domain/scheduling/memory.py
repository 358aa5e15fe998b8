"""Memory from one cycle to the next: inadmissible groups, and the state that their decisions are based on.

Memory only saves work: the decisions are the same with and without it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from functools import cached_property
from itertools import chain
from math import inf
from typing import NamedTuple

import msgspec

from extender.domain.model.reasons import Verdict
from extender.domain.model.records import GroupKey
from extender.domain.model.run_history import RunHistory
from extender.domain.model.shared_maps import with_changes
from extender.domain.placement.planner import EquivalenceClass, Reads, ReadTopics, Topic
from extender.domain.placement.totals import MAX_ROWS, Totals
from extender.domain.scheduling.budget import CountsByScope, Scope
from extender.domain.scheduling.cycle import Cycle
from extender.domain.scheduling.gang_admission import has_spares
from extender.domain.scheduling.obstacles import state_decision
from extender.domain.scheduling.order import Rank, Strategies
from extender.domain.scheduling.reclaim import StarvingGroups
from extender.domain.scheduling.reservation import Reservations, WithheldByGroup
from extender.domain.scheduling.shares import ShareState
from extender.domain.scheduling.victims import ALL_CAUSES
from extender.domain.snapshot.decisions import Decisions, GroupDecision
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.phases import State, state_of
from extender.domain.snapshot.snapshot import Snapshot

_SHAPES_PER_CLASS = 4  # expected number of shapes of the missing members in an equivalence class


class Evaluation(msgspec.Struct, frozen=True, eq=False):
    """Evaluation of a cycle, in which all groups have got their decisions."""

    cycle: Cycle
    strategies: Strategies
    reservations: Reservations
    starving: StarvingGroups
    lines: Mapping[str, Sequence[GroupInfo]]  # all groups to evaluate, by queue, in order
    heads: Mapping[Scope, GroupKey]  # groups that block other groups, by scope
    uses_capacity: bool  # whether anything was allocated, or is reserved for waiting groups
    depends_on_others: bool  # whether decisions depend on other groups beyond the budget

    @property
    def has_no_effect(self) -> bool:
        """Return whether the cycle neither used capacity nor made decisions that depend on other groups."""
        return not (self.uses_capacity or self.depends_on_others)


class EquivalenceClasses:
    """Equivalence classes of inadmissible groups, with their groups in queue order and their reads.

    Immutable.
    """

    def __init__(
        self,
        class_by_group: Mapping[GroupKey, EquivalenceClass],
        keys_by_class: Mapping[EquivalenceClass, Sequence[GroupKey]],
        reads_by_class: Mapping[EquivalenceClass, ReadTopics],
    ) -> None:
        self.keys_by_class = keys_by_class
        self.reads = reads_by_class
        self._class_by_group = class_by_group

    @cached_property
    def classes_by_topic(self) -> Mapping[Topic, Sequence[EquivalenceClass]]:
        """Return the equivalence classes that have read each topic."""
        classes: dict[Topic, list[EquivalenceClass]] = {}
        for class_, topics in self.reads.items():
            for topic in topics:
                classes.setdefault(topic, []).append(class_)
        return classes

    def after(
        self,
        new_keys: Mapping[GroupKey, EquivalenceClass],
        changed_keys: Collection[GroupKey],
        reads: Reads,
        find_rank: Callable[[GroupKey], Rank],
        moved_keys: Collection[GroupKey],
    ) -> "EquivalenceClasses":
        """Return the equivalence classes after a cycle.

        Args:
            new_keys: The class of each evaluated group that is inadmissible after the cycle.
            changed_keys: All groups that were evaluated or no longer exist.
            reads: The reads of the cycle.
            find_rank: Returns the rank that orders groups in an equivalence class.
            moved_keys: The groups whose rank may have changed.
        """
        new: dict[GroupKey, EquivalenceClass | None] = {**dict.fromkeys(changed_keys, None), **new_keys}
        old = self._class_by_group
        changes = {key: class_ for key, class_ in new.items() if old.get(key) != class_ or key in moved_keys}
        reads_by_class = {
            **self.reads,
            **{class_: reads.reads_by_class[class_] for class_ in set(new_keys.values())},
        }
        if not changes:
            return EquivalenceClasses(old, self.keys_by_class, reads_by_class) if new_keys else self
        joining_keys: dict[EquivalenceClass, list[GroupKey]] = {old[key]: [] for key in changes if key in old}
        for key, class_ in changes.items():
            if class_ is not None:
                joining_keys.setdefault(class_, []).append(key)
        groups = dict(self.keys_by_class)
        for class_, new_members in joining_keys.items():
            members = [key for key in groups.get(class_, ()) if key not in changes]
            groups[class_] = sorted((*members, *new_members), key=find_rank) if new_members else members
            if not groups[class_]:
                del groups[class_]
                reads_by_class.pop(class_, None)
        return EquivalenceClasses(with_changes(old, changes), groups, reads_by_class)


_NO_CLASSES = EquivalenceClasses({}, {}, {})


class Basis(msgspec.Struct, frozen=True, eq=False):
    """State that evaluations are based on: the budget of a cycle and the run history. Immutable."""

    totals: Totals
    shares: ShareState
    running_counts: CountsByScope
    withheld_by_group: WithheldByGroup  # reservations
    history: RunHistory  # run times, which decide which groups may pass reservations

    @classmethod
    def from_cycle(cls, cycle: Cycle, withheld_by_group: WithheldByGroup, totals: Totals) -> "Basis":
        """Return the basis of the evaluations of a cycle. `totals` sum up the free capacity."""
        budget, history = cycle.budget, cycle.snapshot.history
        return cls(totals, budget.shares.state, budget.running.sums, withheld_by_group, history)


class Memory(msgspec.Struct, frozen=True, eq=False):
    """Memory of the groups that need not be evaluated."""

    snapshot: Snapshot
    evaluable_keys: frozenset[GroupKey] | None  # groups whose state alone does not decide; None: all groups
    depends_on_others: bool  # whether the next cycle evaluates all groups
    totals: Totals | None = None
    basis: Basis | None = None  # common basis of all evaluations, if they have one
    active_keys: frozenset[GroupKey] = frozenset()  # groups that the next cycle evaluates
    classes: EquivalenceClasses = _NO_CLASSES
    first_eligible: Mapping[EquivalenceClass, GroupInfo] = {}  # first group that may get a reservation
    next_group: GroupInfo | None = None  # group that gets the next reservation
    starving_by_class: Mapping[object, GroupInfo] = {}  # first group that looks for victims, by class
    victimless_groups: Mapping[tuple[str, int], GroupInfo] = {}  # groups without possible victims

    def with_all_active(self, snapshot: Snapshot) -> "Memory":
        """Return the memory in which all groups are active, unless their own state decides."""
        return Memory(snapshot, self.evaluable_keys, depends_on_others=True)


class NodeRequests(NamedTuple):
    """Groups that request nodes.

    The queues concerned have too little headroom for all groups that nodes would help.
    """

    large_gangs: Set[GroupKey] = frozenset()  # gangs that are too large for all nodes together
    requesters: Mapping[str, Set[GroupKey]] = {}  # the groups that request nodes, by such queue


class CarriedFacts(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Facts that one cycle carries to the next cycle.

    All instances compare equal, because no decision depends on them.
    """

    evaluation: Evaluation
    old_memory: Memory | None  # memory with which the cycle began, if any group was inadmissible
    groups: Mapping[GroupKey, GroupDecision]  # decisions on all groups
    lines: Mapping[str, Sequence[GroupInfo]]  # groups in line by queue
    instants: Mapping[GroupKey, float]  # next time at which time alone could change a decision
    reserving_queues: Set[str]  # queues with a reservation, or with reclaimed capacity
    requests: NodeRequests

    @property
    def snapshot(self) -> Snapshot:
        return self.evaluation.cycle.snapshot

    def is_current(self, snapshot: Snapshot, previous: Decisions) -> bool:
        """Return whether nothing has changed since the cycle, and no decision changes by time alone."""
        requeue_at = inf if previous.requeue_at is None else previous.requeue_at
        return (
            snapshot.version == previous.version
            and not snapshot.dirty_groups
            and snapshot.groups is self.snapshot.groups
            and self.snapshot.now <= snapshot.now < requeue_at
            and snapshot.limits is self.snapshot.limits
            and snapshot.attention == self.snapshot.attention
        )

    @cached_property
    def memory(self) -> Memory:
        """Return the memory by which the next cycle finds the groups whose decision may change.

        After a cycle with an allocation, the next cycle evaluates one group of each class in any case.
        """
        evaluation, old_memory, cycle = self.evaluation, self.old_memory, self.evaluation.cycle
        decided, snapshot, capacity = cycle.decisions, cycle.snapshot, cycle.budget.planner.capacity
        reservations, starving, groups = evaluation.reservations, evaluation.starving, snapshot.groups
        deleted_keys = [key for key in snapshot.dirty_groups if key not in groups]
        active_keys = {group.key for group in (*reservations.eligible_groups, *starving.by_kind.values())}
        inactive = {key for key in decided if _may_be_inadmissible(evaluation, groups[key], self.groups[key])}
        active_keys |= (decided.keys() - inactive).union(evaluation.heads.values())
        reads, totals = cycle.reads, capacity.cached_totals()
        class_of = {
            key: reads.class_by_group[key]
            for key in decided
            if key not in active_keys and key in reads.class_by_group
        }
        topics_of = {class_: reads.reads_by_class[class_] for class_ in {*class_of.values()}}
        valid = set(topics_of)
        if evaluation.has_no_effect:
            covers = totals.covers if totals is not None else lambda _: False
            valid = {class_ for class_, topics in topics_of.items() if covers(topics)}
        active_keys |= {key for key, class_ in class_of.items() if class_ not in valid}
        settled = {key: class_ for key, class_ in class_of.items() if class_ in valid and topics_of[class_]}
        is_usage_changed = old_memory is None or old_memory.snapshot.past_usage is not snapshot.past_usage
        classes = (_NO_CLASSES if old_memory is None else old_memory.classes).after(
            settled,
            (*decided, *deleted_keys),
            reads,
            lambda key: evaluation.strategies.rank(groups[key]),
            groups.keys() if is_usage_changed else snapshot.dirty_groups,
        )
        if totals is not None and len(totals.pods) > MAX_ROWS + _SHAPES_PER_CLASS * len(classes.reads):
            # most of these totals are of outdated shapes
            totals = totals.with_topics(
                {*chain.from_iterable((*classes.reads.values(), *reads.reads_by_class.values()))}
            )
        withheld_by_group = reservations.withheld_by_group
        basis = None
        covers_all = totals is not None and (not totals.is_fresh or _covers_all(totals, classes))
        if totals is not None and evaluation.has_no_effect and covers_all:
            basis = Basis.from_cycle(cycle, withheld_by_group, totals)
        return Memory(
            snapshot,
            evaluable_keys=None if cycle.evicts_groups else self._evaluable(deleted_keys),
            depends_on_others=evaluation.depends_on_others,
            totals=totals,
            basis=basis,
            active_keys=frozenset(active_keys),
            classes=classes,
            first_eligible=self._first_eligible(),
            next_group=reservations.next_group,
            starving_by_class=starving.by_kind,
            victimless_groups=self._without_victims(),
        )

    def _evaluable(self, deleted_keys: Iterable[GroupKey]) -> frozenset[GroupKey]:
        """Return the groups whose own state alone does not decide on them.

        They include groups that this cycle did not evaluate.
        """
        decisions, old_memory, groups = self.evaluation.cycle.decisions, self.old_memory, self.snapshot.groups
        keys = {key for key in decisions if self.groups[key].fault or state_decision(groups[key]) is None}
        if old_memory is not None and old_memory.evaluable_keys is not None:
            keys |= old_memory.evaluable_keys.difference(decisions, deleted_keys)
        return frozenset(keys)

    def _first_eligible(self) -> Mapping[EquivalenceClass, GroupInfo]:
        """Return the first group of each class that may get a reservation, including inadmissible groups."""
        evaluation, old_memory = self.evaluation, self.old_memory
        first_by_class, rank = dict(evaluation.reservations.first_by_class), evaluation.strategies.rank
        for class_, group in old_memory.first_eligible.items() if old_memory is not None else ():
            if group.key not in evaluation.cycle.decisions and group.key in self.snapshot.groups:
                first_by_class[class_] = min(group, first_by_class.get(class_, group), key=rank)
        return first_by_class

    def _without_victims(self) -> Mapping[tuple[str, int], GroupInfo]:
        """Return starving groups for which no running group may be a victim, by queue and priority."""
        starving_groups, old_memory = self.evaluation.starving, self.old_memory
        if old_memory is None:
            return starving_groups.victimless_groups
        old_groups = (*old_memory.victimless_groups.values(), *old_memory.starving_by_class.values())
        groups = [group for group in old_groups if not starving_groups.has_victims(group, ALL_CAUSES)]
        return {**{(g.queue, g.priority): g for g in groups}, **starving_groups.victimless_groups}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CarriedFacts)

    def __hash__(self) -> int:
        return 0


def _covers_all(base: Totals, classes: EquivalenceClasses) -> bool:
    """Return whether the totals would show every change of the reads of these classes."""
    return all(base.covers(topics) for topics in classes.reads.values())


def read_facts(previous: Decisions) -> CarriedFacts | None:
    """Return the facts that the previous decisions carry; None if they are of another kind."""
    return previous.memory if isinstance(previous.memory, CarriedFacts) else None


def _may_be_inadmissible(evaluation: Evaluation, group: GroupInfo, decision: GroupDecision) -> bool:
    """Return whether a group may be inadmissible.

    Such a group only waits, holds nothing, and no other group depends on it.
    """
    if decision.fault:
        return False
    if state_decision(group) is not None:
        return True
    queue = evaluation.cycle.snapshot.queues.get(group.queue)
    has_capacity = group.placed_pods or group.assumed_pods or group.planned_nodes or group.departing_pods
    has_gain = decision.plan or decision.reservation or decision.reclaim or decision.spared or decision.price
    has_changes = decision.undo or decision.failed or decision.moved
    return (
        decision.verdict is Verdict.WAITING
        and state_of(group) is State.WAITING
        and queue is not None
        and evaluation.strategies.strategy_of(group).may_be_inadmissible(group)
        and not (has_capacity or group.start.reservation or group.start.reclaim)
        and not (has_gain or has_changes)
        and group.start.window_full_since is None
        and not group.job.min_partial_size  # a job with partial starts is evaluated with several sizes
        and not group.compute(has_spares)
        and group.key not in evaluation.cycle.costly_groups  # its evaluation leaves other groups less effort
        # the run time decides which reservations it may pass, unlike other groups of its class
        and not (evaluation.reservations.withheld_by_group and group.spec.run_time is not None)
    )
