"""Planner: chooses real nodes for all members of a group at once, in a working copy of the capacity.

Pods of one shape (pods with equal needs) are placed in bulk. Some pods have constraints on other pods, or are
selected by the constraints of other pods. Such pods are placed in batches. All pods of a batch have the same
shape and are selected by the same terms.
"""

from collections import Counter
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial, wraps
from itertools import chain, groupby
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

import numpy as np

from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.resources import Resources
from extender.domain.model.shapes import Shape, requests_of, total_requests
from extender.domain.model.topology import TopologySet
from extender.domain.placement.affinity import AffinityCounts, SetCount
from extender.domain.placement.capacity import Capacity
from extender.domain.placement.domains import DomainSearch, Tools, sorted_by_index
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.nodes import AmountRows, Mask, NodeTable, Rows
from extender.domain.snapshot.snapshot import Occupancy, Snapshot
from extender.domain.snapshot.wholeness import Missing

ZONE = "topology.kubernetes.io/zone"
_MIN_REFUSING_NODES = 3  # number of refusing nodes from which the whole zone counts as refusing the shape
_MAX_TRIED_ROWS = 16  # all choices are tried for up to this number of rows, or of pods of the rarer shape
_NO_FIT_COST = 2**40  # cost of a placement that does not fit; greater than the number of pods of any cluster
_MAX_SINGLE_PODS = 6  # the nodes of up to this number of pods are searched one by one
_MAX_TRIES, _MAX_EFFORT = 100, 5e4  # limits of one search for a gang: tries, and affinity look-ups
PlannedPod = tuple[PodRecord, str]


EquivalenceClass = Hashable  # key of groups with equal decisions; they share their reads
Topic = Hashable  # subject of a read: a shape, or a part of the budget with a queue


class Question(NamedTuple):
    """Question to a part of the budget (a type such as the shares). A later cycle can ask it again."""

    part_type: type
    ask: Callable[..., object]
    arguments: tuple[Any, ...]
    answer: object

    def has_same_answer(self, part: object) -> bool:
        return self.ask(part, *self.arguments) == self.answer


ReadTopics = Mapping[Topic, Sequence[Question]]  # by topic; an empty list means that any change matters


class Reads:
    """Recorder of reads: the answers of capacity and shares that the evaluation of each group is based on.

    The decision on a pending group stays valid as long as each of its reads would return the same answer.
    """

    def __init__(self) -> None:
        self.reads_by_class: dict[EquivalenceClass, dict[Topic, list[Question]]] = {}
        self.class_by_group: dict[GroupKey, EquivalenceClass] = {}  # a unique group has its own class
        self.current: dict[Topic, list[Question]] | None = None  # reads for the group under evaluation

    def begin_group(self, group: GroupKey) -> None:
        """Attribute all reads from now on to this group."""
        class_ = self.class_by_group.setdefault(group, group)
        self.current = self.reads_by_class.setdefault(class_, {})

    def set_class(self, group: GroupKey, class_: EquivalenceClass) -> None:
        """Record the equivalence class of the group under evaluation, and move its reads there."""
        earlier_reads, self.class_by_group[group] = self.current or {}, class_
        self.current = self.reads_by_class.setdefault(class_, {})
        if earlier_reads is not self.current:
            for topic, questions in earlier_reads.items():
                self.current.setdefault(topic, []).extend(questions)

    def record(self, topic: Topic, question: Question | None = None) -> None:
        """Record a read of a topic for the group under evaluation, if there is one."""
        if self.current is not None:
            questions = self.current.setdefault(topic, [])
            if question is not None:
                questions.append(question)

    def share_reads(self, questions_by_topic: ReadTopics) -> None:
        """Record the reads of another group, whose result is reused for the group under evaluation.

        Only topics without questions are recorded.
        """
        for topic, questions in questions_by_topic.items():
            if not questions:
                self.record(topic)


class Journal:
    """Journal of the allocations in a scheduling cycle, in the order in which they were made.

    All parts of the budget (capacity, shares, …) write to the same journal.
    """

    def __init__(self) -> None:
        self._undo_steps: list[Callable[[], None]] = []
        self.reads = Reads()

    def apply(self, allocation: Callable[[int], None], times: int = 1) -> None:
        """Apply an allocation `times` times, and record it.

        To undo it, the journal applies the allocation -`times` times.
        """
        allocation(times)
        self.record(allocation, times)

    def record(self, allocation: Callable[[int], None], times: int = 1) -> None:
        """Record an allocation that was already applied."""
        self._undo_steps.append(partial(allocation, -times))

    def checkpoint(self) -> int:
        """Return a checkpoint for `roll_back`."""
        return len(self._undo_steps)

    def roll_back(self, checkpoint: int) -> None:
        """Undo all allocations and releases since a checkpoint."""
        while len(self._undo_steps) > checkpoint:
            self._undo_steps.pop()()


P = ParamSpec("P")
R = TypeVar("R")
N = TypeVar("N", str, int)  # name or row of a node


def recorded_read(method: Callable[P, R]) -> Callable[P, R]:
    """Decorate a method of the budget, so that its answers about a queue or a group are recorded as reads."""

    @wraps(method)
    def ask(*args: P.args, **kwargs: P.kwargs) -> R:
        answer = method(*args, **kwargs)
        part, arguments = cast(Any, args[0]), (*args[1:], *kwargs.values())
        if part.reads.current is not None:
            queue = arguments[0] if isinstance(arguments[0], str) else cast(Any, arguments[0]).queue
            part.reads.record((type(part), queue), Question(type(part), method, arguments, answer))
        return answer

    return ask


class Holding:
    """Allocation of a group's plan: pods with their planned nodes, and `unplanned_pods` without a node."""

    def __init__(self, pods: Iterable[PlannedPod], unplanned: Iterable[PodRecord]) -> None:
        self.pods = tuple(pods)
        self.unplanned_pods = tuple(unplanned)
        self._rows: tuple[NodeTable | None, dict[Shape, Rows]] = (None, {})

    @cached_property
    def plan(self) -> dict[Uid, str]:
        return {pod.uid: node for pod, node in self.pods}

    @cached_property
    def counts_in_sets(self) -> list[SetCount]:
        """Return the number of planned pods by pod sets and node."""
        return counts_in_sets_of(self.pods)

    @cached_property
    def requests(self) -> Resources:
        """Return the sum of the requests of the planned pods."""
        return total_requests(pod.shape for pod, _ in self.pods)

    def rows(self, nodes: NodeTable) -> dict[Shape, Rows]:
        """Return for each shape the row of each planned pod; the row is -1 if the node no longer exists."""
        table, rows_by_shape = self._rows
        if table is not nodes:
            rows_by_shape = rows_of(self.pods, nodes)
            self._rows = (nodes, rows_by_shape)
        return rows_by_shape

    def without_pods(self, refused_pods: Container[Uid]) -> "Holding":
        """Return the holding without the nodes of `refused_pods`, which become unplanned.

        The scheduler would not use the planned nodes of these pods.
        """
        remaining_pods = [(pod, node) for pod, node in self.pods if pod.uid not in refused_pods]
        newly_unplanned_pods = [pod for pod, _ in self.pods if pod.uid in refused_pods]
        return Holding(remaining_pods, [*newly_unplanned_pods, *self.unplanned_pods])


def counts_in_sets_of(pods: Iterable[tuple[PodRecord, N]]) -> list[tuple[tuple[TopologySet, ...], N, int]]:
    """Return the number of pods by pod sets and node. Pods without pod sets do not count."""
    pod_counts: list[tuple[tuple[TopologySet, ...], N, int]] = []
    for _, planned_pods in groupby(pods, lambda planned: id(planned[0].pod_sets)):
        (pod, node), *other_pods = planned_pods
        if pod.pod_sets:
            count_by_node = Counter([node, *(other_node for _, other_node in other_pods)])
            pod_counts += [(pod.pod_sets, other_node, count) for other_node, count in count_by_node.items()]
    return pod_counts


def rows_of(pods: Iterable[PlannedPod], nodes: NodeTable) -> dict[Shape, Rows]:
    """Return for each shape the row of each pod; the row is -1 if the node does not exist."""
    rows: dict[Shape, list[int]] = {}
    for pod, node in pods:
        rows.setdefault(pod.shape, []).append(nodes.row_of.get(node, -1))
    return {shape: np.array(shape_rows) for shape, shape_rows in rows.items()}


class Planner:
    """Planner of one cycle: free amounts, and pods by node. The journal records each allocation.

    Args:
        capacity: The free capacity.
        occupancy: The pods on nodes, if (anti-)affinity terms or host ports concern these pods.
        journal: The journal of the cycle. If it is None, the planner has a journal of its own.
        like: Affinity counts of another planner, whose caches are reused.
        groups: The groups with members on the nodes.
    """

    def __init__(
        self,
        capacity: Capacity,
        occupancy: Occupancy,
        journal: Journal | None = None,
        like: AffinityCounts | None = None,
        groups: Mapping[GroupKey, GroupInfo] | None = None,
    ) -> None:
        self.capacity = capacity
        self.nodes = capacity.nodes
        self.affinity = AffinityCounts(occupancy, capacity.nodes, capacity.counts, like, groups)
        self._block_rows: Mask | None = None  # rows on which pods may be placed; None means all rows
        self._rows_by_sets: Mapping[int, Mask] = {}  # rows on which pods may be placed, by id(pod_sets)
        self._journal = Journal() if journal is None else journal

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot, journal: Journal | None = None) -> "Planner":
        """Return the planner of the free capacity of a snapshot.

        Nodes and zones that refuse a shape have no capacity for its pods.
        """
        journal = Journal() if journal is None else journal
        refusals, free = with_refusing_zones(snapshot.refused_rows, snapshot.nodes), snapshot.capacity.copy()
        capacity = Capacity(snapshot.dimensions, snapshot.nodes, free, refusals, record=journal.reads.record)
        return cls(capacity, snapshot.occupancy, journal, groups=snapshot.groups)

    @classmethod
    def empty(cls, snapshot: Snapshot, like: AffinityCounts, keeps_refusals: bool = False) -> "Planner":
        """Return the planner of the capacity that the nodes would have without any pod.

        Args:
            snapshot: The nodes and their capacity.
            like: The affinity counts of the scheduling cycle, whose caches are reused.
            keeps_refusals: Whether to leave out the nodes that the scheduler refuses.
        """
        nodes = snapshot.nodes
        refusing_rows = with_refusing_zones(snapshot.refused_rows, nodes) if keeps_refusals else {}
        max_pods = None if keeps_refusals else nodes.cached_totals
        capacity = Capacity(snapshot.dimensions, nodes, snapshot.allocatable.copy(), refusing_rows, max_pods)
        return cls(capacity, Occupancy(terms=snapshot.occupancy.terms), like=like)

    def clone(self) -> "Planner":
        """Return a planner that changes independently, without a common journal."""
        clone = Planner(self.capacity.clone(), Occupancy())
        clone.affinity = self.affinity.clone(clone.capacity.counts)
        return clone

    def place(
        self,
        pods: Iterable[PodRecord],
        is_partial: bool = False,
        is_spread: bool = False,
        gang_pods: Sequence[PodRecord] = (),
        uses_domains: bool = True,
    ) -> dict[Uid, str] | None:
        """Return nodes for all of `pods` at once, and allocate their capacity.

        The largest shapes are placed first, each pod on the tightest node that fits. If a pod remains without
        a node, the planner tries in this order:

        1. the shapes with the fewest suitable nodes first,
        2. the smallest shapes first,
        3. all divisions of the nodes between two shapes, if there are just two,
        4. other domains for pods with constraints on other pods.

        Args:
            pods: The pods to place.
            is_partial: Place as many pods as possible if not all pods fit.
            is_spread: Place each pod on the emptiest node, if all pods fit that way.
            gang_pods: Pods that may have to share a domain: prefer domains with capacity for all of them. If
                it is empty, the domains need capacity for `pods` only.
            uses_domains: Place each pod set in a domain.

        Returns:
            The node of each pod. None, and nothing is allocated, if not all pods fit.
        """
        pods = list(pods)
        if uses_domains and not is_partial and any(pod.pod_sets for pod in pods):
            return self._domain_search(is_spread, gang_pods).place(pods, self._block_rows)
        with self.affinity.gathering(pods):
            batches = self.batches(pods)
            if is_spread and (plan := self._place(batches, is_partial, is_spread)) is not None:
                return plan
            plan = self._place(batches, is_partial)
            if plan is not None or len(batches) == 1:
                return plan
            return next((plan for plan in self._retries(batches, is_partial) if plan is not None), None)

    def _retries(self, batches: list[list[PodRecord]], is_partial: bool) -> Iterator[dict[Uid, str] | None]:
        """Yield the result of each further try. The caller stops at the first plan."""
        count_fitting = self._fitting_counts
        fewest_nodes_first = sorted(batches, key=lambda batch: np.count_nonzero(count_fitting(batch[0])))
        if fewest_nodes_first != batches:
            yield self._place(fewest_nodes_first, is_partial)
        yield self._place(batches[::-1], is_partial)
        if len(batches) == 2:
            yield self._place_two(*batches)
        if not is_partial:
            yield self._search_placement(batches)

    def _domain_search(self, is_spread: bool = False, gang_pods: Sequence[PodRecord] = ()) -> DomainSearch:
        """Return a search for topology domains that places and counts pods with this planner.

        Args:
            is_spread: Whether to spread the pods over nodes.
            gang_pods: The members of the group, including members that may join later.
        """

        def place(pods: Sequence[PodRecord], rows: Mask) -> dict[Uid, str] | None:
            with self.inside(rows):
                return self.place(pods, is_spread=is_spread, uses_domains=False)

        def place_all(pods: Sequence[PodRecord], rows: Mapping[int, Mask]) -> dict[Uid, str] | None:
            self._rows_by_sets = rows
            try:
                return self.place(pods, is_spread=is_spread, uses_domains=False)
            finally:
                self._rows_by_sets = {}

        def allocate(placements: Sequence[tuple[PodRecord, int]]) -> dict[Uid, str]:
            self._allocate_all(placements, times=1)
            return {pod.uid: self.name_of(row) for pod, row in placements}

        journal = self._journal
        tools = Tools(self.capacity.counts, place, place_all, allocate, journal.checkpoint, journal.roll_back)
        return DomainSearch(self.nodes, self.affinity, tools, is_spread, gang_pods)

    @contextmanager
    def inside(self, rows: Mask | None) -> Iterator[None]:
        """Place pods on these rows only, during the block. None allows all rows."""
        outer_rows, self._block_rows = self._block_rows, rows
        try:
            yield
        finally:
            self._block_rows = outer_rows

    def _allowed_rows(self, pod: PodRecord) -> Mask | None:
        """Return the rows on which a pod may be placed at present. None means all rows."""
        return self._rows_by_sets.get(id(pod.pod_sets), self._block_rows)

    def _fitting_counts(self, pod: PodRecord) -> Rows:
        """Return how many pods like this one fit on each allowed row."""
        counts, allowed_rows = self.capacity.counts(pod.shape), self._allowed_rows(pod)
        return counts if allowed_rows is None else counts * allowed_rows

    def could_place(self, need: Missing) -> bool:
        """Return whether all missing members would fit, without allocating any capacity."""
        if self.capacity.is_short_for(need.shapes):
            return False
        if len(need.shapes) == 1 and not (need.pod_sets or self.affinity.is_any_interdependent(need)):
            return True
        checkpoint = self._journal.checkpoint()
        try:
            return self.place(need.members) is not None
        finally:
            self._journal.roll_back(checkpoint)

    def domains_to_clear(self, pods: Sequence[PodRecord]) -> list[Mask]:
        """Return the rows of each domain that pods may share once other pods are evicted.

        See DomainSearch.
        """
        return self._domain_search().domains_to_clear(pods)

    def checkpoint(self) -> int:
        return self._journal.checkpoint()

    def roll_back(self, checkpoint: int) -> None:
        self._journal.roll_back(checkpoint)

    def largest_domain(self, pod_set: TopologySet, pods: Sequence[PodRecord]) -> tuple[str, int, bool] | None:
        """Return the domain with capacity for the most pods of a set.

        Returns:
            - the value of the domain's label,
            - the number of pods that fit there, where each shape is counted without the other shapes,
            - whether members in the domain bind the other members to it.

            The result is None if no node has the label of the set's level.
        """
        return self._domain_search().largest_domain(pod_set, pods)

    def fitting_pods(self, pods: Sequence[PodRecord]) -> frozenset[Uid]:
        """Return as many of the pods as fit at the same time. Nothing is allocated.

        The smallest shapes are tried first.
        """
        checkpoint = self._journal.checkpoint()
        try:
            with self.affinity.gathering(pods):
                return frozenset(self._place(self.batches(pods)[::-1], is_partial=True) or {})
        finally:
            self._journal.roll_back(checkpoint)

    def allocate_holdings(self, holdings: Iterable[Holding]) -> bool:
        """Allocate the holdings of groups, all or none. Return whether all of them fit.

        The result is also False if pods have constraints on other pods, or if constraints of other pods
        select them.
        """
        rows: dict[Shape, list[Rows]] = {}
        counts: list[SetCount] = []
        for holding in holdings:
            if any(self.affinity.is_related(pod) for pod, _ in holding.pods):
                return False
            counts += holding.counts_in_sets
            for shape, shape_rows in holding.rows(self.nodes).items():
                rows.setdefault(shape, []).append(shape_rows)
        return self._allocate_at_once({shape: np.concatenate(each) for shape, each in rows.items()}, counts)

    def free_holding(self, holding: Holding) -> None:
        """Free the allocation of a group on the nodes that exist."""
        if any(self.affinity.is_related(pod) for pod, _ in holding.pods):
            self.allocate(holding.pods, times=-1)
        else:
            self._journal.apply(partial(self.capacity.allocate_rows, holding.rows(self.nodes)), times=-1)
            self._journal.apply(partial(self.affinity.add_to_sets, holding.counts_in_sets), times=-1)

    def allocate_on_nodes(self, targets: Sequence[PlannedPod]) -> dict[Uid, str]:
        """Allocate capacity for pods on given nodes. Return the pods that fit, with their nodes."""
        are_unrelated = not any(self.affinity.is_related(pod) for pod, _ in targets)
        if are_unrelated and self._allocate_at_once(rows_of(targets, self.nodes), counts_in_sets_of(targets)):
            return {pod.uid: node for pod, node in targets}
        node_by_uid = {pod.uid: node for pod, node in targets}
        plan: dict[Uid, str] = {}
        for batch in self.batches([pod for pod, _ in targets]):
            shares_domain = batch[0].shape.constraints.affinity or batch[0].pod_sets
            sub_batch_size = 1 if shares_domain else len(batch)
            while batch:
                sub_batch, batch = batch[:sub_batch_size], batch[sub_batch_size:]
                fitting = self._allocate_sub_batch(sub_batch, node_by_uid)
                plan.update(fitting)
                sub_batch_size = len(batch) if fitting else sub_batch_size  # the others follow the first pod
        return plan

    def allocate_on_node(self, pod: PodRecord, node: str) -> bool:
        """Allocate capacity for `pod` on a given node. Return whether the pod fits there."""
        return bool(self._allocate_sub_batch([pod], {pod.uid: node}))

    def _allocate_sub_batch(self, pods: Sequence[PodRecord], node_of: Mapping[Uid, str]) -> dict[Uid, str]:
        """Allocate capacity for pods of one batch on the nodes `node_of`.

        Return the node of each pod that fits.
        """
        pairs = ((pod, self.nodes.row_of.get(node_of[pod.uid])) for pod in pods)
        rows = [(pod, row) for pod, row in pairs if row is not None and self.capacity.admits(pod.shape, row)]
        if rows and self.affinity.is_interdependent(pods[0]):
            admitting_rows = self.affinity.rows_for(pods[0])
            rows = [(pod, row) for pod, row in rows if admitting_rows[row]]
            row_numbers = np.array([row for _, row in rows], dtype=np.int64)
            rows = [rows[i] for i in self.affinity.positions(pods[0], row_numbers, np.ones_like(row_numbers))]
        if (set_rows := self.affinity.rows_of_sets(pods[0])) is not None:
            rows = [(pod, row) for pod, row in rows if set_rows[row]]
        plan = {}
        for pod, row in rows:
            if self.capacity.admits(pod.shape, row):
                self._allocate_one(pod, row, times=1)
                plan[pod.uid] = node_of[pod.uid]
        return plan

    def allocate_amounts(self, rows: Rows, amounts: AmountRows, times: int = 1) -> None:
        """Allocate amounts on rows without pods. With `times` -1, free them."""
        self._journal.apply(partial(self.capacity.allocate_amounts, rows, amounts), times)

    def unplace(self, pods: Iterable[PodRecord], plan: Mapping[Uid, str]) -> None:
        """Free the capacity of all `pods` that have a node in `plan`."""
        self.allocate(((pod, plan[pod.uid]) for pod in pods if pod.uid in plan), times=-1)

    def free(self, pods: Iterable[PodRecord]) -> None:
        """Free the capacity of pods that are on nodes."""
        self.allocate(((pod, pod.node) for pod in pods), times=-1)

    def allocate(self, planned_pods: Iterable[PlannedPod], times: int = 1) -> None:
        """Allocate capacity for pods on given nodes, even if the capacity is not free yet.

        No other group then gets that capacity when it becomes free. With `times` -1, free the capacity.
        """
        rows = ((pod, self.nodes.row_of.get(node)) for pod, node in planned_pods)
        self._allocate_all([(pod, row) for pod, row in rows if row is not None], times)

    def forbid(self, shape: Shape, node: str) -> None:
        """Record that the scheduler refuses `shape` on `node`."""
        row = self.nodes.row_of.get(node)
        if row is not None:
            self.capacity.forbid(shape, row)

    def batches(self, pods: Collection[PodRecord]) -> list[list[PodRecord]]:
        """Return the pods in batches. The pods of a batch are placed together, the largest requests first.

        All pods of a batch have the same shape. The same terms select all of them, if any terms do. They also
        have the same pod sets, if pod sets matter.
        """
        batches: dict[Any, list[PodRecord]] = {}
        interdependent_uids = self.affinity.dependent_uids(pods)
        has_sets = (self._block_rows is None or self._rows_by_sets) and any(pod.pod_sets for pod in pods)
        for pod in pods:
            terms = self.affinity.sets.terms_for(pod) if pod.uid in interdependent_uids else None
            batch_key = (pod.shape, terms, id(pod.pod_sets)) if terms or has_sets else pod.shape
            batches.setdefault(batch_key, []).append(pod)
        largest_part = self.capacity.largest_part_of
        return sorted(batches.values(), key=lambda batch: -largest_part(batch[0].shape.requests))

    def _place(
        self, batches: list[list[PodRecord]], is_partial: bool, is_spread: bool = False
    ) -> dict[Uid, str] | None:
        """Return the nodes of as many pods as fit, and count the pods on these nodes.

        Args:
            batches: Pods of one shape each, in the order in which they are placed.
            is_partial: Whether to place as many pods as possible. If False, and a pod does not fit, no pod is
                placed, and the result is None.
            is_spread: Whether to spread the pods over nodes.
        """
        placements: list[tuple[PodRecord, int]] = []
        with self.inside(self._block_rows):
            for batch in batches:
                if is_partial and batch[0].pod_sets:
                    self._block_rows = self._domain_search().rows_for_most(batch)
                pod = batch[0]
                # The first member chooses the domain if members must share one.
                follow_first = len(batch) > 1 and pod.shape.constraints.affinity
                for sub_batch in (batch[:1], batch[1:]) if follow_first else (batch,):
                    counts, allowed_rows = self.capacity.counts(pod.shape), self._allowed_rows(pod)
                    counts = counts if allowed_rows is None else counts * allowed_rows
                    if is_spread and not self.affinity.is_interdependent(pod):
                        rows = self.capacity.emptiest_first(pod.shape, counts, len(sub_batch))
                    else:
                        rows = self._rows_for(sub_batch, counts, is_spread)
                    rows = rows[: len(sub_batch)]
                    if pod.pod_sets and not self.affinity.is_interdependent(pod):
                        # Pods with neighboring indices get neighboring nodes in the topology.
                        rows = rows[np.argsort(self.nodes.path_order(pod.pod_sets[-1].level)[1][rows])]
                        sub_batch = sorted_by_index(sub_batch)
                    new_placements = list(zip(sub_batch, rows.tolist(), strict=False))
                    self._allocate_all(new_placements, times=1)
                    placements += new_placements
                    if len(new_placements) < len(sub_batch) and not is_partial:
                        self._allocate_all(placements, times=-1)
                        return None
        return {pod.uid: self.name_of(row) for pod, row in placements}

    def _rows_for(
        self, pods: Sequence[PodRecord], counts: Rows, is_spread: bool = False, first_rows: Mask | None = None
    ) -> Rows:
        """Return a row for each pod of one batch; fewer rows if not all pods fit.

        The tightest rows come first, or the emptiest rows with `is_spread`. Each row is filled before the
        next row. The rows `first_rows` come before all other rows.

        Args:
            pods: The pods of one batch.
            counts: The number of these pods that fit on each row.
            is_spread: Prefer the emptiest rows.
            first_rows: The rows to fill first, if any.
        """
        pod, is_interdependent = pods[0], self.affinity.is_interdependent(pods[0])
        if is_interdependent or first_rows is not None:
            rows = self._open_rows(pod)
            rows = rows[::-1] if is_spread else rows
        else:
            rows = self.capacity.tightest_first(np.flatnonzero(counts), len(pods))
        if first_rows is not None:
            rows = np.concatenate([rows[first_rows[rows]], rows[~first_rows[rows]]])
        max_pods = np.minimum(counts[rows], len(pods))
        if is_interdependent:
            return rows[self.affinity.positions(pod, rows, max_pods)]
        return np.repeat(rows, max_pods)

    def _open_rows(self, pod: PodRecord) -> Rows:
        """Return the rows that have capacity for a pod and meet its constraints, the tightest rows first."""
        rows = self._fitting_counts(pod) > 0
        rows = rows & self.affinity.rows_for(pod) if self.affinity.is_interdependent(pod) else rows
        return self.capacity.tightest_first(np.flatnonzero(rows))

    def _search_placement(self, batches: Sequence[list[PodRecord]]) -> dict[Uid, str] | None:
        """Return the nodes that a bounded search finds for all pods; None if it finds no nodes.

        There is no search if a batch does not fit even alone. The search tries the first pod of a batch in
        each domain, and prefers the same domain for the other pods of the batch. If there are at most
        `_MAX_SINGLE_PODS` pods, each pod is a batch of its own. If a pod fits on at most `_MAX_TRIED_ROWS`
        rows, the search tries each of these rows instead of one row of each domain.
        """
        pods, checkpoint = list(chain.from_iterable(batches)), self._journal.checkpoint()
        shapes = Counter(pod.shape for pod in pods)
        sums = self.capacity.free_sum(shapes)
        is_any_interdependent = len(batches) > 2 or self._rows_by_sets or self.affinity.dependent_uids(pods)
        if not is_any_interdependent or any(n > sums.get(name, 0) for name, n in requests_of(shapes).items()):
            return None
        for batch in batches:
            fits_alone = self._place([batch], is_partial=False) is not None
            self._journal.roll_back(checkpoint)
            if not fits_alone:
                return None
        small_batches = [[pod] for pod in pods] if len(pods) <= _MAX_SINGLE_PODS else batches
        topology_keys = {term.topology_key for shape in shapes for term in shape.terms}
        domains = [self.nodes.domains(key) for key in sorted(topology_keys)]
        search = partial(self._place_by_search, small_batches, domains, tries_left=[_MAX_TRIES])
        if (plan := self.affinity.effort.within(_MAX_EFFORT, search)) is None:
            self._journal.roll_back(checkpoint)
        return plan

    def _place_by_search(
        self, parts: Sequence[Sequence[PodRecord]], domains: Sequence[Rows], tries_left: list[int]
    ) -> dict[Uid, str] | None:
        """Place parts of the pods by depth-first search.

        Args:
            parts: The pods that are placed together, for each part.
            domains: For each topology key, the domain of each row.
            tries_left: A list of one number: the tries that remain, counted down.
        """
        if not parts:
            return {}
        (pod, *rest), checkpoint, counts = parts[0], self._journal.checkpoint(), self._fitting_counts
        rows = self._open_rows(pod).tolist()
        shared_domains = [codes for codes in domains if len(np.unique(codes[rows])) < len(rows)]
        row_by_domains = {tuple(int(codes[row]) for codes in shared_domains): row for row in reversed(rows)}
        first_rows = sorted(row_by_domains.values(), key=rows.index)
        for row in first_rows if len(rows) > _MAX_TRIED_ROWS else dict.fromkeys([*first_rows, *rows]):
            tries_left[0] -= 1
            if tries_left[0] < 0:
                return None
            picked_rows = [row]
            self._allocate_all([(pod, row)], times=1)
            if rest:
                all_rows = np.ones(len(self.nodes.nodes), dtype=np.bool_)
                shared_rows = np.all([all_rows, *(codes == codes[row] for codes in shared_domains)], axis=0)
                picked_rows += self._rows_for(rest, counts(pod), first_rows=shared_rows)[: len(rest)].tolist()
                self._allocate_all(zip(rest, picked_rows[1:], strict=False), times=1)
            if len(picked_rows) > len(rest):
                others_plan = self._place_by_search(parts[1:], domains, tries_left)
                if others_plan is not None:
                    nodes = map(self.name_of, picked_rows)
                    return others_plan | {item.uid: name for item, name in zip(parts[0], nodes, strict=True)}
            self._journal.roll_back(checkpoint)
        return None

    def _place_two(self, *batches: list[PodRecord]) -> dict[Uid, str] | None:
        """Place pods of two shapes, if all of them fit.

        Pods of the rarer shape go to the rows where the other shape loses the least capacity. For each number
        of rare pods, only the cheapest rows need to be tried: if any rows are a solution, the cheapest rows
        are a solution, too. `best` has the lowest cost and the rows for each number of rare pods that are
        placed so far.

        The result is None if the pods do not fit, if a pod depends on other pods, or if there are too many
        rare pods.
        """
        rare_pods, common_pods = sorted(batches, key=len)
        rare_count = len(rare_pods)
        rare_pod, common_pod = rare_pods[0], common_pods[0]
        if self._allowed_rows(rare_pod) is not self._allowed_rows(common_pod):
            return None
        if rare_count > _MAX_TRIED_ROWS or any(map(self.affinity.is_interdependent, (rare_pod, common_pod))):
            return None
        rows, common_counts = self.capacity.capacity_for_both(
            rare_pods[0].shape, rare_count, common_pods[0].shape, self._allowed_rows(rare_pod)
        )
        costs = np.where(common_counts < 0, _NO_FIT_COST, common_counts[:, :1] - common_counts)
        cheapest_positions = np.argsort(costs, axis=0, kind="stable")[:rare_count, 1:]
        best: list[tuple[int, tuple[int, ...]]] = [(0, ()), *[(_NO_FIT_COST, ())] * rare_count]
        for position in np.unique(cheapest_positions).tolist():
            cost, row = costs[position].tolist(), int(rows[position])
            for n in range(rare_count, 0, -1):
                options = ((best[n - k][0] + cost[k], best[n - k][1] + (row,) * k) for k in range(1, n + 1))
                best[n] = min(best[n], *options)
        cost_of_all, rows_of_all = best[rare_count]
        if cost_of_all >= _NO_FIT_COST or common_counts[:, 0].sum() - cost_of_all < len(common_pods):
            return None
        placements = list(zip(rare_pods, rows_of_all, strict=True))
        self._allocate_all(placements, times=1)
        plan = self._place([common_pods], is_partial=False)
        assert plan is not None, "half a gang is not placed"
        return plan | {pod.uid: self.name_of(row) for pod, row in placements}

    def _allocate_at_once(self, rows: Mapping[Shape, Rows], counts_in_sets: Sequence[SetCount]) -> bool:
        """Allocate capacity on rows, and return whether it was allocated.

        Nothing is allocated unless all of it fits and the pod sets stay together.
        """
        is_allocated = self.affinity.are_together(counts_in_sets) and self.capacity.allocate_at_once(rows)
        if is_allocated:
            self._journal.record(partial(self.capacity.allocate_rows, rows))
            self._journal.apply(partial(self.affinity.add_to_sets, counts_in_sets))
        return is_allocated

    def _allocate_all(self, placements: Iterable[tuple[PodRecord, int]], times: int) -> None:
        """Allocate capacity for pods on rows.

        The pods of a shape are allocated together. Pods with related (anti-)affinity or host ports are
        allocated one by one.
        """
        rows_by_shape: dict[Shape, list[int]] = {}
        set_placements: list[tuple[PodRecord, int]] = []
        for pod, row in placements:
            if self.affinity.is_related(pod):
                self._allocate_one(pod, row, times)
                continue
            if pod.pod_sets:
                set_placements.append((pod, row))
            rows_by_shape.setdefault(pod.shape, []).append(row)
        if set_placements:
            set_counts = [(sets, self.name_of(row), n) for sets, row, n in counts_in_sets_of(set_placements)]
            self._journal.apply(partial(self.affinity.add_to_sets, set_counts), times)
        row_arrays = {shape: np.array(shape_rows) for shape, shape_rows in rows_by_shape.items()}
        if row_arrays:
            self.capacity.allocate_rows(row_arrays, times)
            self._journal.record(partial(self.capacity.allocate_rows, row_arrays), times)

    def _allocate_one(self, pod: PodRecord, row: int, times: int) -> None:
        """Allocate capacity for one pod on a row, and count the pod there if constraints concern it."""
        self._journal.apply(partial(self.capacity.allocate, pod.shape, row), times)
        if self.affinity.is_counted(pod):
            self._journal.apply(partial(self.affinity.add, pod, self.name_of(row)), times)

    def name_of(self, row: int) -> str:
        """Return the name of the node of a row."""
        node = self.nodes.nodes[row]
        assert node is not None
        return node.name


def with_refusing_zones(refusals: Mapping[Shape, Iterable[int]], nodes: NodeTable) -> dict[Shape, set[int]]:
    """Return the rows that refuse each shape. If several nodes of a zone refuse it, all rows of the zone do.

    If a zone is down, or does not have the volume of a pod, the scheduler refuses every node of the zone.
    Each refusal takes seconds. Until the scheduler had refused all nodes of the zone, the member would hold
    its place in the window of members that are tried. In a cluster of one zone, only the refusing nodes
    themselves count.
    """
    refusing_rows: dict[Shape, set[int]] = {}
    for shape, shape_rows in refusals.items():
        rows = refusing_rows[shape] = set(shape_rows)
        zones = nodes.domains(ZONE)
        if len(rows) >= _MIN_REFUSING_NODES and zones.max(initial=-1) >= 1:
            zone_numbers, node_counts = np.unique(zones[list(rows)], return_counts=True)
            refusing_zones = zone_numbers[(node_counts >= _MIN_REFUSING_NODES) & (zone_numbers >= 0)]
            rows |= set(np.flatnonzero(np.isin(zones, refusing_zones)).tolist())
    return refusing_rows
