"""Memory from one cycle to the next: inadmissible groups, and the grounds of their decisions.

Memory only saves work: with or without it, the decisions are equal.
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
from extender.domain.placement.planner import EquivalenceClass, Read, Reads, Topic
from extender.domain.placement.totals import FEW, Totals
from extender.domain.scheduling.budget import Scope, Sums
from extender.domain.scheduling.cycle import Cycle
from extender.domain.scheduling.gang_admission import may_choose
from extender.domain.scheduling.obstacles import state_decision
from extender.domain.scheduling.order import Rank, Strategies
from extender.domain.scheduling.reclaim import Starving
from extender.domain.scheduling.reservation import InForce, Reservations
from extender.domain.scheduling.shares import ShareState
from extender.domain.scheduling.victims import ALL_CAUSES
from extender.domain.snapshot.decisions import Decisions, GroupDecision
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.phases import State, state_of
from extender.domain.snapshot.snapshot import Snapshot

_FEW_SHAPES = 4  # shapes of the missing members in an equivalence class


class Evaluation(msgspec.Struct, frozen=True, eq=False):
    """Evaluation of a cycle: all groups have their decisions."""

    cycle: Cycle
    strategies: Strategies
    reservations: Reservations
    starving: Starving
    lines: Mapping[str, Sequence[GroupInfo]]  # by queue all groups that were to be evaluated, in their order
    heads: Mapping[Scope, GroupKey]  # groups that block others, by scope
    uses_capacity: bool  # whether anything was allocated, or is reserved for waiting groups
    depends_on_others: bool  # whether decisions depend on other groups beyond the budget

    @property
    def is_calm(self) -> bool:
        return not (self.uses_capacity or self.depends_on_others)


class EquivalenceClasses:
    """Equivalence classes of inadmissible groups, in queue order, with the reads of each. Immutable."""

    def __init__(
        self,
        class_of: Mapping[GroupKey, EquivalenceClass],
        groups: Mapping[EquivalenceClass, Sequence[GroupKey]],
        read: Mapping[EquivalenceClass, Read],
    ) -> None:
        self.groups = groups
        self.read = read
        self._class_of = class_of

    @cached_property
    def by_topic(self) -> Mapping[Topic, Sequence[EquivalenceClass]]:
        """Return the equivalence classes that read each topic."""
        classes: dict[Topic, list[EquivalenceClass]] = {}
        for class_, read in self.read.items():
            for topic in read:
                classes.setdefault(topic, []).append(class_)
        return classes

    def after(
        self,
        settled: Mapping[GroupKey, EquivalenceClass],
        evaluated_or_gone: Collection[GroupKey],
        reads: Reads,
        rank: Callable[[GroupKey], Rank],
        reordered: Collection[GroupKey],
    ) -> "EquivalenceClasses":
        """Return the equivalence classes after a cycle.

        Args:
            settled: The groups that are inadmissible after the cycle, with their class.
            evaluated_or_gone: All groups that were evaluated, or are gone.
            reads: The reads of the cycle.
            rank: The order of groups in an equivalence class.
            reordered: The groups whose rank may have changed.
        """
        now: dict[GroupKey, EquivalenceClass | None] = {**dict.fromkeys(evaluated_or_gone, None), **settled}
        known = self._class_of
        moved = {key: class_ for key, class_ in now.items() if known.get(key) != class_ or key in reordered}
        read = {**self.read, **{class_: reads.by_class[class_] for class_ in set(settled.values())}}
        if not moved:
            return EquivalenceClasses(known, self.groups, read) if settled else self
        joining: dict[EquivalenceClass, list[GroupKey]] = {known[key]: [] for key in moved if key in known}
        for key, class_ in moved.items():
            if class_ is not None:
                joining.setdefault(class_, []).append(key)
        groups = dict(self.groups)
        for class_, more in joining.items():
            members = [key for key in groups.get(class_, ()) if key not in moved]
            groups[class_] = sorted((*members, *more), key=rank) if more else members
            if not groups[class_]:
                del groups[class_]
                read.pop(class_, None)
        return EquivalenceClasses(with_changes(known, moved), groups, read)


_NO_CLASSES = EquivalenceClasses({}, {}, {})


class Grounds(msgspec.Struct, frozen=True, eq=False):
    """Grounds of evaluations: the state of the budget and history that they depend on. Immutable."""

    totals: Totals
    shares: ShareState
    running: Sums
    in_force: InForce  # the reservations
    history: RunHistory  # run times, which decide the groups that may pass

    @classmethod
    def from_cycle(cls, cycle: Cycle, in_force: InForce, totals: Totals) -> "Grounds":
        """Return the grounds of a cycle; `totals` sum up the free capacity."""
        budget, history = cycle.budget, cycle.snapshot.history
        return cls(totals, budget.shares.state, budget.running.sums, in_force, history)


class Memory(msgspec.Struct, frozen=True, eq=False):
    """Memory of the groups that need not be evaluated."""

    snapshot: Snapshot
    not_at_rest: frozenset[GroupKey] | None  # groups not at rest; None: groups at rest may be evicted
    depends_on_others: bool  # whether the next cycle evaluates all groups
    totals: Totals | None = None
    grounds: Grounds | None = None  # grounds of all evaluations; None: they differ
    active: frozenset[GroupKey] = frozenset()  # evaluated by the next cycle; all others are inadmissible
    classes: EquivalenceClasses = _NO_CLASSES
    first_due: Mapping[EquivalenceClass, GroupInfo] = {}  # first that may get a reservation, by class
    first_in_turn: GroupInfo | None = None  # the group whose reservation needs others to end
    first_starving: Mapping[object, GroupInfo] = {}  # first that looks for victims, by class
    idly_starving: Mapping[tuple[str, int], GroupInfo] = {}  # by queue and priority: no victim runs for it

    def at_rest_only(self, now: Snapshot) -> "Memory":
        """Return the memory with all other groups active."""
        return Memory(now, self.not_at_rest, depends_on_others=True)


class NodeRequests(NamedTuple):
    """Groups that ask for nodes, in queues where not all groups that nodes would help may ask."""

    too_large: Set[GroupKey] = frozenset()  # gangs that all nodes together cannot hold: they have no position
    asking: Mapping[str, Set[GroupKey]] = {}  # the asking groups of each queue without headroom for all


class CarriedFacts(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Facts that one cycle carries to the next.

    All instances compare equal: no decision depends on them.
    """

    evaluated: Evaluation
    memory_before: Memory | None  # memory of the groups that were inadmissible in the cycle; None: none
    groups: Mapping[GroupKey, GroupDecision]  # decisions on all groups
    lines: Mapping[str, Sequence[GroupInfo]]  # by queue the groups that are in line
    instants: Mapping[GroupKey, float]  # next time at which time alone could change a decision, by group
    reserving_queues: Set[str]  # the queues with a reservation, or that reclaimed capacity
    requests: NodeRequests

    @property
    def snapshot(self) -> Snapshot:
        return self.evaluated.cycle.snapshot

    def is_current(self, snapshot: Snapshot, previous: Decisions) -> bool:
        """Return whether nothing has changed since that cycle, and no decision is due to change."""
        requeue_at = inf if previous.requeue_at is None else previous.requeue_at
        return (
            snapshot.version == previous.version
            and not snapshot.dirty
            and snapshot.groups is self.snapshot.groups
            and self.snapshot.now <= snapshot.now < requeue_at
            and snapshot.limits is self.snapshot.limits
            and snapshot.attention == self.snapshot.attention
        )

    @cached_property
    def memory(self) -> Memory:
        """Return what the next cycle needs to know to evaluate only the groups whose decision may change."""
        evaluated, before, cycle = self.evaluated, self.memory_before, self.evaluated.cycle
        decided, snapshot, capacity = cycle.decided, cycle.snapshot, cycle.budget.planner.capacity
        reservations, starving, groups = evaluated.reservations, evaluated.starving, snapshot.groups
        gone = [key for key in snapshot.dirty if key not in groups]
        active = {group.key for group in (*reservations.due, *starving.first.values())}
        idle = {key for key in decided if _may_be_inadmissible(evaluated, groups[key], self.groups[key])}
        active |= (decided.keys() - idle).union(evaluated.heads.values())
        reads, totals = cycle.reads, capacity.all_known()
        class_of = {
            key: reads.class_of[key] for key in decided if key not in active and key in reads.class_of
        }
        topics_of = {class_: reads.by_class[class_] for class_ in {*class_of.values()}}
        # After a cycle with an allocation, one group of each class is evaluated in any case.
        covered = set(topics_of)
        if evaluated.is_calm:
            cover = totals.cover if totals is not None else lambda _: False
            covered = {class_ for class_, topics in topics_of.items() if cover(topics)}
        active |= {key for key, class_ in class_of.items() if class_ not in covered}
        settled = {key: class_ for key, class_ in class_of.items() if class_ in covered and topics_of[class_]}
        is_usage_changed = before is None or before.snapshot.past is not snapshot.past
        classes = (_NO_CLASSES if before is None else before.classes).after(
            settled,
            (*decided, *gone),
            reads,
            lambda key: evaluated.strategies.rank(groups[key]),
            groups.keys() if is_usage_changed else snapshot.dirty,
        )
        if totals is not None and len(totals.pods) > FEW + _FEW_SHAPES * len(classes.read):
            # most of these shapes are outdated
            totals = totals.with_topics(
                {*chain.from_iterable((*classes.read.values(), *reads.by_class.values()))}
            )
        in_force = reservations.in_force
        grounds = None
        knows_all = totals is not None and (not totals.is_fresh or _knows_all(totals, classes))
        if totals is not None and evaluated.is_calm and knows_all:
            grounds = Grounds.from_cycle(cycle, in_force, totals)
        return Memory(
            snapshot,
            not_at_rest=None if cycle.evicts_groups else self._not_at_rest(gone),
            depends_on_others=evaluated.depends_on_others,
            totals=totals,
            grounds=grounds,
            active=frozenset(active),
            classes=classes,
            first_due=self._first_due(),
            first_in_turn=reservations.first_in_turn,
            first_starving=starving.first,
            idly_starving=self._idly_starving(),
        )

    def _not_at_rest(self, gone: Iterable[GroupKey]) -> frozenset[GroupKey]:
        decided, before, groups = self.evaluated.cycle.decided, self.memory_before, self.snapshot.groups
        found = {key for key in decided if self.groups[key].fault or state_decision(groups[key]) is None}
        if before is not None and before.not_at_rest is not None:
            found |= before.not_at_rest.difference(decided, gone)
        return frozenset(found)

    def _first_due(self) -> Mapping[EquivalenceClass, GroupInfo]:
        """Return the first group of each class that may get a reservation, inadmissible ones included."""
        evaluated, before = self.evaluated, self.memory_before
        first, rank = dict(evaluated.reservations.first_due), evaluated.strategies.rank
        for class_, group in before.first_due.items() if before is not None else ():
            if group.key not in evaluated.cycle.decided and group.key in self.snapshot.groups:
                first[class_] = min(group, first.get(class_, group), key=rank)
        return first

    def _idly_starving(self) -> Mapping[tuple[str, int], GroupInfo]:
        """Return starving groups, by queue and priority, for which no running group is a victim."""
        starving, before = self.evaluated.starving, self.memory_before
        if before is None:
            return starving.idle
        earlier = (*before.idly_starving.values(), *before.first_starving.values())
        rest = [group for group in earlier if not starving.may_find(group, ALL_CAUSES)]
        return {**{(group.queue, group.priority): group for group in rest}, **starving.idle}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CarriedFacts)

    def __hash__(self) -> int:
        return 0


def _knows_all(base: Totals, classes: EquivalenceClasses) -> bool:
    """Return whether every change of a class's reads would be noticed."""
    return all(base.cover(topics) for topics in classes.read.values())


def carried_facts_of(previous: Decisions) -> CarriedFacts | None:
    return previous.memory if isinstance(previous.memory, CarriedFacts) else None


def _may_be_inadmissible(evaluated: Evaluation, group: GroupInfo, decision: GroupDecision) -> bool:
    """Return whether a group may be inadmissible.

    Such a group only waits and holds nothing, and no other group depends on it.
    """
    if decision.fault:
        return False
    if state_decision(group) is not None:
        return True
    queue = evaluated.cycle.snapshot.queues.get(group.queue)
    has_capacity = group.placed or group.assumed or group.planned or group.departing
    was_given = decision.plan or decision.reservation or decision.reclaim or decision.spared or decision.price
    changes = decision.undo or decision.failed or decision.moved
    return (
        decision.verdict is Verdict.WAITING
        and state_of(group) is State.WAITING
        and queue is not None
        and evaluated.strategies.traverse_of(group).may_be_inadmissible(group)
        and not (has_capacity or group.start.reservation or group.start.reclaim)
        and not (was_given or changes)
        and group.start.places_since is None
        and not group.job.least  # it is evaluated with several sizes
        and not group.computed(may_choose)
        and group.key not in evaluated.cycle.costly  # it leaves others less effort
        # other groups of its class may come before it
        and not (evaluated.reservations.in_force and group.spec.run_time is not None)
    )
