"""Planner: places all members of a group at once on real nodes, in a working copy of the capacity.

Pods of one shape are placed in bulk. Pods with constraints on other pods, or selected by such a constraint,
are placed in batches of pods with equal shape and equal selecting terms.
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
from extender.domain.placement.affinity import AffinityCounts, InSets
from extender.domain.placement.capacity import Capacity
from extender.domain.placement.domains import DomainSearch, Tools, by_index
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.nodes import AmountRows, Mask, NodeTable, Rows
from extender.domain.snapshot.snapshot import Occupancy, Snapshot
from extender.domain.snapshot.wholeness import Missing

ZONE = "topology.kubernetes.io/zone"
_REFUSING_NODES = 3  # with so many refusing nodes, their whole zone counts as refusing the shape
_MOST_EXHAUSTIVE = 16  # pods of the rarer shape, or rows: up to this number, all choices are tried
_IMPOSSIBLE = 2**40  # cost of a placement that does not fit: more pods than any cluster has
_MOST_ONE_BY_ONE = 6  # most pods whose nodes are searched one by one
_MOST_TRIES, _MOST_EFFORT = 100, 5e4  # tries, and affinity look-ups, in one bounded search for a gang
PlannedPod = tuple[PodRecord, str]


# Allocations from the budget of a cycle, which can be undone, and reads of the budget. The decision on a
# pending group stays valid until one of the answers that it was based on would differ.

EquivalenceClass = Hashable  # key of groups with equal decisions: the reads for one of them count for all
Topic = Hashable  # subject of a read: a shape, or a part of the budget and a queue


class Question(NamedTuple):
    """Question to a part of the budget, which can be asked again in a later cycle."""

    part: type
    ask: Callable[..., object]
    about: tuple[Any, ...]
    answer: object

    def has_same_answer(self, part: object) -> bool:
        return self.ask(part, *self.about) == self.answer


Read = Mapping[Topic, Sequence[Question]]  # by topic; without questions, each change of the topic matters


class Reads:
    def __init__(self) -> None:
        self.by_class: dict[EquivalenceClass, dict[Topic, list[Question]]] = {}
        self.class_of: dict[GroupKey, EquivalenceClass] = {}  # a unique group is a class of its own
        self.now: dict[Topic, list[Question]] | None = None  # reads for the evaluated group, if any

    def begin_group(self, group: GroupKey) -> None:
        """Attribute all reads from now on to this group."""
        class_ = self.class_of.setdefault(group, group)
        self.now = self.by_class.setdefault(class_, {})

    def set_class(self, group: GroupKey, class_: EquivalenceClass) -> None:
        """Record the equivalence class of the group under evaluation, and move its reads there."""
        own, self.class_of[group] = self.now or {}, class_
        self.now = self.by_class.setdefault(class_, {})
        if own is not self.now:
            for topic, questions in own.items():
                self.now.setdefault(topic, []).extend(questions)

    def record(self, topic: Topic, question: Question | None = None) -> None:
        if self.now is not None:
            questions = self.now.setdefault(topic, [])
            if question is not None:
                questions.append(question)

    def share_reads(self, read: Read) -> None:
        """Record the topics, without questions, of another group whose result is reused."""
        for topic, questions in read.items():
            if not questions:
                self.record(topic)


class Journal:
    """Journal of the allocations in a scheduling cycle, in order, of all parts of the budget."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self.reads = Reads()

    def apply(self, allocation: Callable[[int], None], times: int = 1) -> None:
        """Apply an allocation `times` times, and record it; the undo applies it -`times` times."""
        allocation(times)
        self.record(allocation, times)

    def record(self, allocation: Callable[[int], None], times: int = 1) -> None:
        """Record an allocation."""
        self._undo.append(partial(allocation, -times))

    def checkpoint(self) -> int:
        """Return a checkpoint to roll back to."""
        return len(self._undo)

    def roll_back(self, checkpoint: int) -> None:
        """Undo all allocations and releases since a checkpoint."""
        while len(self._undo) > checkpoint:
            self._undo.pop()()


P = ParamSpec("P")
R = TypeVar("R")
N = TypeVar("N", str, int)  # name or row of a node


def read(method: Callable[P, R]) -> Callable[P, R]:
    """Decorate a method of the budget that answers a question about a queue or a group, to record reads."""

    @wraps(method)
    def ask(*args: P.args, **kwargs: P.kwargs) -> R:
        answer = method(*args, **kwargs)
        part, about = cast(Any, args[0]), (*args[1:], *kwargs.values())
        if part.reads.now is not None:
            queue = about[0] if isinstance(about[0], str) else cast(Any, about[0]).queue
            part.reads.record((type(part), queue), Question(type(part), method, about, answer))
        return answer

    return ask


class Holding:
    """Allocation of a group's plan: `pods` with their planned nodes, and the `unplanned` members."""

    def __init__(self, pods: Iterable[PlannedPod], unplanned: Iterable[PodRecord]) -> None:
        self.pods = tuple(pods)
        self.unplanned = tuple(unplanned)
        self._rows: tuple[NodeTable | None, dict[Shape, Rows]] = (None, {})

    @cached_property
    def plan(self) -> dict[Uid, str]:
        return {pod.uid: node for pod, node in self.pods}

    @cached_property
    def in_sets(self) -> list[InSets]:
        """Return the planned pods by their sets and nodes."""
        return numbers_in_sets(self.pods)

    @cached_property
    def requests(self) -> Resources:
        """Return the joint requests of the planned pods."""
        return total_requests(pod.shape for pod, _ in self.pods)

    def rows(self, nodes: NodeTable) -> dict[Shape, Rows]:
        """Return the held rows by shape, one for each pod; -1 for a node that is gone."""
        table, rows = self._rows
        if table is not nodes:
            rows = rows_of(self.pods, nodes)
            self._rows = (nodes, rows)
        return rows

    def without_pods(self, moved: Container[Uid]) -> "Holding":
        """Return the holding without the `moved` pods, whose nodes the scheduler would not use."""
        remaining = [(pod, node) for pod, node in self.pods if pod.uid not in moved]
        lost = [pod for pod, _ in self.pods if pod.uid in moved]
        return Holding(remaining, [*lost, *self.unplanned])


def numbers_in_sets(pods: Iterable[tuple[PodRecord, N]]) -> list[tuple[tuple[TopologySet, ...], N, int]]:
    """Return the number of pods by their sets and node; pods without sets are left out."""
    found: list[tuple[tuple[TopologySet, ...], N, int]] = []
    for _, equal in groupby(pods, lambda planned: id(planned[0].pod_sets)):
        (pod, node), *others = equal
        if pod.pod_sets:
            numbers = Counter([node, *(on for _, on in others)])
            found += [(pod.pod_sets, on, n) for on, n in numbers.items()]
    return found


def rows_of(pods: Iterable[PlannedPod], nodes: NodeTable) -> dict[Shape, Rows]:
    rows: dict[Shape, list[int]] = {}
    for pod, node in pods:
        rows.setdefault(pod.shape, []).append(nodes.row.get(node, -1))
    return {shape: np.array(of_shape) for shape, of_shape in rows.items()}


class Planner:
    """Planner of one cycle: free amounts, and pods by node. Allocations are recorded in `journal`."""

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
        self._within: Mask | None = None  # the rows that count now; None: all
        self._rows_by_sets: Mapping[int, Mask] = {}  # the rows that count for pods of some sets, by identity
        self._journal = Journal() if journal is None else journal

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot, journal: Journal | None = None) -> "Planner":
        """Return the planner of the capacity without all fixed claims."""
        journal = Journal() if journal is None else journal
        refused, free = with_refusing_zones(snapshot.refused, snapshot.nodes), snapshot.capacity.copy()
        capacity = Capacity(snapshot.dimensions, snapshot.nodes, free, refused, record=journal.reads.record)
        return cls(capacity, snapshot.occupancy, journal, groups=snapshot.groups)

    @classmethod
    def empty(cls, snapshot: Snapshot, like: AffinityCounts, keeps_refusals: bool = False) -> "Planner":
        """Return the planner of the capacity if no pod ran at all.

        Args:
            snapshot: The nodes and their capacity.
            like: The affinity counts of the scheduling cycle, whose caches are reused.
            keeps_refusals: Leave out the nodes that the scheduler refuses.
        """
        nodes = snapshot.nodes
        refused = with_refusing_zones(snapshot.refused, nodes) if keeps_refusals else {}
        most = None if keeps_refusals else nodes.most
        capacity = Capacity(snapshot.dimensions, nodes, snapshot.allocatable.copy(), refused, most)
        return cls(capacity, Occupancy(terms=snapshot.occupancy.terms), like=like)

    def clone(self) -> "Planner":
        clone = Planner(self.capacity.clone(), Occupancy())
        clone.affinity = self.affinity.clone(clone.capacity.counts)
        return clone

    def place(
        self,
        pods: Iterable[PodRecord],
        partly: bool = False,
        apart: bool = False,
        together: Sequence[PodRecord] = (),
        in_sets: bool = True,
    ) -> dict[Uid, str] | None:
        """Return nodes for all of `pods` at once, and allocate their capacity.

        Largest shapes come first, on the tightest nodes. If a pod is left out, the next tries are: shapes
        with the fewest nodes first; the smallest first; for two shapes, all divisions; other domains for pods
        with constraints on other pods.

        Args:
            pods: The pods to place.
            partly: Place as many as fit if not all do.
            apart: Place each pod on the emptiest node, if all fit that way.
            together: Prefer domains with capacity for all these, where pods must share one; empty: `pods`.
            in_sets: Place each pod set in a domain.

        Returns:
            The node of each pod; None, and nothing allocated, if they do not all fit.
        """
        pods = list(pods)
        if in_sets and not partly and any(pod.pod_sets for pod in pods):
            return self._domain_search(apart, together).place(pods, self._within)
        with self.affinity.gathering(pods):
            batches = self.batches(pods)
            if apart and (plan := self._place(batches, partly, apart)) is not None:
                return plan
            plan = self._place(batches, partly)
            if plan is not None or len(batches) == 1:
                return plan
            return next((plan for plan in self._retries(batches, partly) if plan is not None), None)

    def _retries(self, batches: list[list[PodRecord]], partly: bool) -> Iterator[dict[Uid, str] | None]:
        """Yield the result of each further try, for the caller to stop at the first plan."""
        counts = self._counts
        by_choice = sorted(batches, key=lambda batch: np.count_nonzero(counts(batch[0])))
        if by_choice != batches:
            yield self._place(by_choice, partly)
        yield self._place(batches[::-1], partly)
        if len(batches) == 2:
            yield self._place_two(*batches)
        if not partly:
            yield self._search_placement(batches)

    def _domain_search(self, apart: bool = False, together: Sequence[PodRecord] = ()) -> DomainSearch:
        """Return a search for domains that places and counts pods with this planner.

        Args:
            apart: Whether pods are spread over nodes.
            together: Members that may join later.
        """

        def place(pods: Sequence[PodRecord], rows: Mask) -> dict[Uid, str] | None:
            with self.inside(rows):
                return self.place(pods, apart=apart, in_sets=False)

        def place_together(pods: Sequence[PodRecord], rows: Mapping[int, Mask]) -> dict[Uid, str] | None:
            self._rows_by_sets = rows
            try:
                return self.place(pods, apart=apart, in_sets=False)
            finally:
                self._rows_by_sets = {}

        def allocate(placed: Sequence[tuple[PodRecord, int]]) -> dict[Uid, str]:
            self._count_all(placed, times=1)
            return {pod.uid: self.name_of(row) for pod, row in placed}

        journal = self._journal
        tools = Tools(
            self.capacity.counts, place, place_together, allocate, journal.checkpoint, journal.roll_back
        )
        return DomainSearch(self.nodes, self.affinity, tools, apart, together)

    @contextmanager
    def inside(self, rows: Mask | None) -> Iterator[None]:
        """Place pods on these rows only, during the block; None: on all."""
        before, self._within = self._within, rows
        try:
            yield
        finally:
            self._within = before

    def _rows_of(self, pod: PodRecord) -> Mask | None:
        """Return the rows that count for a pod now; None: all."""
        return self._rows_by_sets.get(id(pod.pod_sets), self._within)

    def _counts(self, pod: PodRecord) -> Rows:
        counts, within = self.capacity.counts(pod.shape), self._rows_of(pod)
        return counts if within is None else counts * within

    def could_place(self, wanted: Missing) -> bool:
        """Return whether all members would fit; nothing is allocated."""
        if self.capacity.is_short_for(wanted.shapes):
            return False
        if len(wanted.shapes) == 1 and not (wanted.pod_sets or self.affinity.any_interdependent(wanted)):
            return True
        checkpoint = self._journal.checkpoint()
        try:
            return self.place(wanted.members) is not None
        finally:
            self._journal.roll_back(checkpoint)

    def domains_to_clear(self, pods: Sequence[PodRecord]) -> list[Mask]:
        """Return the rows of each domain that pods may share once others are evicted; see DomainSearch."""
        return self._domain_search().domains_to_clear(pods)

    def checkpoint(self) -> int:
        return self._journal.checkpoint()

    def roll_back(self, checkpoint: int) -> None:
        self._journal.roll_back(checkpoint)

    def largest_domain(self, pod_set: TopologySet, pods: Sequence[PodRecord]) -> tuple[str, int, bool] | None:
        """Return the domain with capacity for the most pods of a set; None: no node has its level.

        Returns:
            The value of the label, for how many of the pods there is capacity, each shape counted alone, and
            whether the domain holds other members.
        """
        return self._domain_search().largest_domain(pod_set, pods)

    def fitting(self, pods: Sequence[PodRecord]) -> frozenset[Uid]:
        """Return the pods that would fit at the same time, as many as possible; nothing is allocated.

        The smallest shapes come first.
        """
        checkpoint = self._journal.checkpoint()
        try:
            with self.affinity.gathering(pods):
                return frozenset(self._place(self.batches(pods)[::-1], partly=True) or {})
        finally:
            self._journal.roll_back(checkpoint)

    def allocate_holdings(self, holdings: Iterable[Holding]) -> bool:
        """Allocate the holdings of groups, all or nothing; return whether they fit."""
        rows: dict[Shape, list[Rows]] = {}
        in_sets: list[InSets] = []
        for holding in holdings:
            if any(self.affinity.is_related(pod) for pod, _ in holding.pods):
                return False
            in_sets += holding.in_sets
            for shape, of_shape in holding.rows(self.nodes).items():
                rows.setdefault(shape, []).append(of_shape)
        return self._allocate_at_once({shape: np.concatenate(each) for shape, each in rows.items()}, in_sets)

    def free_holding(self, holding: Holding) -> None:
        """Free the allocation of a group on existing nodes."""
        if any(self.affinity.is_related(pod) for pod, _ in holding.pods):
            self.allocate(holding.pods, times=-1)
        else:
            self._journal.apply(partial(self.capacity.allocate_rows, holding.rows(self.nodes)), times=-1)
            self._journal.apply(partial(self.affinity.count_in_sets, holding.in_sets), times=-1)

    def allocate_on_nodes(self, planned: Sequence[PlannedPod]) -> dict[Uid, str]:
        """Allocate capacity for pods on given nodes; return those that fit there."""
        are_free = not any(self.affinity.is_related(pod) for pod, _ in planned)
        if are_free and self._allocate_at_once(rows_of(planned, self.nodes), numbers_in_sets(planned)):
            return {pod.uid: node for pod, node in planned}
        where = {pod.uid: node for pod, node in planned}
        plan: dict[Uid, str] = {}
        for batch in self.batches([pod for pod, _ in planned]):
            shares_domain = batch[0].shape.constraints.affinity or batch[0].pod_sets
            at_once = 1 if shares_domain else len(batch)
            while batch:
                part, batch = batch[:at_once], batch[at_once:]
                found = self._take_part(part, where)
                plan.update(found)
                at_once = len(batch) if found else at_once  # the other pods follow the first one
        return plan

    def allocate_on_node(self, pod: PodRecord, node: str) -> bool:
        """Allocate capacity for `pod` on a given node, if it fits there."""
        return bool(self._take_part([pod], {pod.uid: node}))

    def _take_part(self, pods: Sequence[PodRecord], where: Mapping[Uid, str]) -> dict[Uid, str]:
        """Allocate the nodes `where` for pods of one batch; return the pods that fit, with their nodes."""
        placed = ((pod, self.nodes.row.get(where[pod.uid])) for pod in pods)
        rows = [(pod, row) for pod, row in placed if row is not None and self.capacity.admits(pod.shape, row)]
        if rows and self.affinity.is_interdependent(pods[0]):
            admitted = self.affinity.admit(pods[0])
            rows = [(pod, row) for pod, row in rows if admitted[row]]
            numbers = np.array([row for _, row in rows], dtype=np.int64)
            rows = [rows[at] for at in self.affinity.positions(pods[0], numbers, np.ones_like(numbers))]
        if (near := self.affinity.rows_of_sets(pods[0])) is not None:
            rows = [(pod, row) for pod, row in rows if near[row]]
        plan = {}
        for pod, row in rows:
            if self.capacity.admits(pod.shape, row):
                self._count(pod, row, times=1)
                plan[pod.uid] = where[pod.uid]
        return plan

    def allocate_amounts(self, rows: Rows, amounts: AmountRows, times: int = 1) -> None:
        """Allocate capacity for no particular pod; with `times` -1, free it."""
        self._journal.apply(partial(self.capacity.allocate_amounts, rows, amounts), times)

    def unplace(self, pods: Iterable[PodRecord], plan: Mapping[Uid, str]) -> None:
        """Free the capacity of `pods` that were placed by `plan`."""
        self.allocate(((pod, plan[pod.uid]) for pod in pods if pod.uid in plan), times=-1)

    def free(self, pods: Iterable[PodRecord]) -> None:
        """Free the capacity of pods on nodes."""
        self.allocate(((pod, pod.node) for pod in pods), times=-1)

    def allocate(self, planned: Iterable[PlannedPod], times: int = 1) -> None:
        """Allocate capacity for pods on given nodes, even if it is not free yet.

        No other group then gets that capacity when it becomes free. With `times` -1, the capacity is freed.
        """
        rows = ((pod, self.nodes.row.get(node)) for pod, node in planned)
        self._count_all([(pod, row) for pod, row in rows if row is not None], times)

    def forbid(self, shape: Shape, node: str) -> None:
        """Record that the scheduler refuses `shape` on `node`."""
        row = self.nodes.row.get(node)
        if row is not None:
            self.capacity.forbid(shape, row)

    def batches(self, pods: Collection[PodRecord]) -> list[list[PodRecord]]:
        """Return pods in batches that are placed together, the largest requests first."""
        batches: dict[Any, list[PodRecord]] = {}
        interdependent = self.affinity.interdependent(pods)
        by_sets = (self._within is None or self._rows_by_sets) and any(pod.pod_sets for pod in pods)
        for pod in pods:
            selecting = self.affinity.sets.selecting(pod) if pod.uid in interdependent else None
            kind = (pod.shape, selecting, id(pod.pod_sets)) if selecting or by_sets else pod.shape
            batches.setdefault(kind, []).append(pod)
        largest_part = self.capacity.largest_part
        return sorted(batches.values(), key=lambda batch: -largest_part(batch[0].shape.requests))

    def _place(
        self, batches: list[list[PodRecord]], partly: bool, apart: bool = False
    ) -> dict[Uid, str] | None:
        """Return the nodes of as many pods as fit, and count the pods on them.

        Args:
            batches: Pods of one shape each, in the order in which they are placed.
            partly: Whether some of the pods may be left out; otherwise the result is None then.
            apart: Whether pods are spread over nodes.
        """
        placed: list[tuple[PodRecord, int]] = []
        with self.inside(self._within):
            for batch in batches:
                if partly and batch[0].pod_sets:
                    self._within = self._domain_search().rows_for_most(batch)
                pod = batch[0]
                # Members that must share a domain follow the first member.
                leads = len(batch) > 1 and pod.shape.constraints.affinity
                for part in (batch[:1], batch[1:]) if leads else (batch,):
                    counts, within = self.capacity.counts(pod.shape), self._rows_of(pod)
                    counts = counts if within is None else counts * within
                    if apart and not self.affinity.is_interdependent(pod):
                        found = self.capacity.emptiest_first(pod.shape, counts, len(part))
                    else:
                        found = self._rows_for(part, counts, apart)
                    found = found[: len(part)]
                    if pod.pod_sets and not self.affinity.is_interdependent(pod):
                        # Neighbors by index are neighbors in the topology.
                        found = found[np.argsort(self.nodes.path_order(pod.pod_sets[-1].level)[1][found])]
                        part = by_index(part)
                    chosen = list(zip(part, found.tolist(), strict=False))
                    self._count_all(chosen, times=1)
                    placed += chosen
                    if len(chosen) < len(part) and not partly:
                        self._count_all(placed, times=-1)
                        return None
        return {pod.uid: self.name_of(row) for pod, row in placed}

    def _rows_for(
        self, pods: Sequence[PodRecord], counts: Rows, apart: bool = False, near: Mask | None = None
    ) -> Rows:
        """Return rows for pods of one batch, as many as there are pods if all fit.

        The tightest come first, or the emptiest if `apart`. Each row is filled before the next one,
        and rows that are `rows_of_sets` come first.

        Args:
            pods: The pods of one batch.
            counts: The number of such pods that fit on each row.
            apart: Prefer the emptiest rows.
            near: The rows to fill first, if any.
        """
        pod, is_interdependent = pods[0], self.affinity.is_interdependent(pods[0])
        if is_interdependent or near is not None:
            order = self._open_rows(pod)
            order = order[::-1] if apart else order
        else:
            order = self.capacity.tightest_first(np.flatnonzero(counts), len(pods))
        if near is not None:
            order = np.concatenate([order[near[order]], order[~near[order]]])
        most = np.minimum(counts[order], len(pods))
        if is_interdependent:
            return order[self.affinity.positions(pod, order, most)]
        return np.repeat(order, most)

    def _open_rows(self, pod: PodRecord) -> Rows:
        """Return the rows with capacity for a pod, the tightest first."""
        rows = self._counts(pod) > 0
        rows = rows & self.affinity.admit(pod) if self.affinity.is_interdependent(pod) else rows
        return self.capacity.tightest_first(np.flatnonzero(rows))

    def _search_placement(self, batches: Sequence[list[PodRecord]]) -> dict[Uid, str] | None:
        """Return nodes by a bounded search, if each batch fits alone.

        The first pod of a batch is tried in each domain, and the others follow it. If there are few
        pods, each is a batch of its own; if there are few nodes, each node is tried.
        """
        pods, checkpoint = list(chain.from_iterable(batches)), self._journal.checkpoint()
        shapes = Counter(pod.shape for pod in pods)
        free = self.capacity.sum_for(shapes)
        is_any_interdependent = len(batches) > 2 or self._rows_by_sets or self.affinity.interdependent(pods)
        if not is_any_interdependent or any(n > free.get(name, 0) for name, n in requests_of(shapes).items()):
            return None
        for batch in batches:
            is_alone = self._place([batch], partly=False) is not None
            self._journal.roll_back(checkpoint)
            if not is_alone:
                return None
        parts = [[pod] for pod in pods] if len(pods) <= _MOST_ONE_BY_ONE else batches
        keys = {term.topology_key for shape in shapes for term in shape.terms}
        domains = [self.nodes.domains(key) for key in sorted(keys)]
        search = partial(self._place_parts, parts, domains, tries_left=[_MOST_TRIES])
        if (plan := self.affinity.effort.within(_MOST_EFFORT, search)) is None:
            self._journal.roll_back(checkpoint)
        return plan

    def _place_parts(
        self, parts: Sequence[Sequence[PodRecord]], domains: Sequence[Rows], tries_left: list[int]
    ) -> dict[Uid, str] | None:
        """Place parts by depth-first search. `domains`: the domain of each row, for each topology key."""
        if not parts:
            return {}
        (pod, *others), checkpoint, counts = parts[0], self._journal.checkpoint(), self._counts
        rows = self._open_rows(pod).tolist()
        shared = [codes for codes in domains if len(np.unique(codes[rows])) < len(rows)]  # by several rows
        first_in = {tuple(int(codes[row]) for codes in shared): row for row in reversed(rows)}
        firsts = sorted(first_in.values(), key=rows.index)
        for row in firsts if len(rows) > _MOST_EXHAUSTIVE else dict.fromkeys([*firsts, *rows]):
            tries_left[0] -= 1
            if tries_left[0] < 0:
                return None
            found = [row]
            self._count_all([(pod, row)], times=1)
            if others:
                in_all = np.ones(len(self.nodes.nodes), dtype=np.bool_)
                near = np.all([in_all, *(codes == codes[row] for codes in shared)], axis=0)
                found += self._rows_for(others, counts(pod), near=near)[: len(others)].tolist()
                self._count_all(zip(others, found[1:], strict=False), times=1)
            if len(found) > len(others):
                later = self._place_parts(parts[1:], domains, tries_left)
                if later is not None:
                    names = map(self.name_of, found)
                    return later | {each.uid: name for each, name in zip(parts[0], names, strict=True)}
            self._journal.roll_back(checkpoint)
        return None

    def _place_two(self, *batches: list[PodRecord]) -> dict[Uid, str] | None:
        """Place pods of two shapes if possible.

        Pods of the rarer shape go to the rows where they cost the other shape the least capacity.
        """
        few, many = sorted(batches, key=len)
        most = len(few)
        first, other = few[0], many[0]
        if self._rows_of(first) is not self._rows_of(other):
            return None
        if most > _MOST_EXHAUSTIVE or any(map(self.affinity.is_interdependent, (first, other))):
            return None
        rows, fits = self.capacity.capacity_for_both(few[0].shape, most, many[0].shape, self._rows_of(first))
        costs = np.where(fits < 0, _IMPOSSIBLE, fits[:, :1] - fits)
        # In a solution, any row with k rare pods can be replaced by one of the cheapest rows for k pods.
        cheapest = np.argsort(costs, axis=0, kind="stable")[:most, 1:]
        # Cost and rows, by number of placed pods of the rarer shape.
        best: list[tuple[int, tuple[int, ...]]] = [(0, ()), *[(_IMPOSSIBLE, ())] * most]
        for at in np.unique(cheapest).tolist():
            cost, row = costs[at].tolist(), int(rows[at])
            for n in range(most, 0, -1):
                more = ((best[n - k][0] + cost[k], best[n - k][1] + (row,) * k) for k in range(1, n + 1))
                best[n] = min(best[n], *more)
        cost_of_all, on = best[most]
        if cost_of_all >= _IMPOSSIBLE or fits[:, 0].sum() - cost_of_all < len(many):
            return None
        placed = list(zip(few, on, strict=True))
        self._count_all(placed, times=1)
        plan = self._place([many], partly=False)
        assert plan is not None, "half a gang is not placed"
        return plan | {pod.uid: self.name_of(row) for pod, row in placed}

    def _allocate_at_once(self, rows: Mapping[Shape, Rows], in_sets: Sequence[InSets]) -> bool:
        taken = self.affinity.are_together(in_sets) and self.capacity.allocate_at_once(rows)
        if taken:
            self._journal.record(partial(self.capacity.allocate_rows, rows))
            self._journal.apply(partial(self.affinity.count_in_sets, in_sets))
        return taken

    def _count_all(self, placed: Iterable[tuple[PodRecord, int]], times: int) -> None:
        """Allocate pods on rows: by shape, or one by one if (anti-)affinity or host ports concern them."""
        rows: dict[Shape, list[int]] = {}
        in_sets: list[tuple[PodRecord, int]] = []
        for pod, row in placed:
            if self.affinity.is_related(pod):
                self._count(pod, row, times)
                continue
            if pod.pod_sets:
                in_sets.append((pod, row))
            rows.setdefault(pod.shape, []).append(row)
        if in_sets:
            numbers = [(sets, self.name_of(row), n) for sets, row, n in numbers_in_sets(in_sets)]
            self._journal.apply(partial(self.affinity.count_in_sets, numbers), times)
        by_shape = {shape: np.array(of_shape) for shape, of_shape in rows.items()}
        if by_shape:
            self.capacity.allocate_rows(by_shape, times)
            self._journal.record(partial(self.capacity.allocate_rows, by_shape), times)

    def _count(self, pod: PodRecord, row: int, times: int) -> None:
        self._journal.apply(partial(self.capacity.allocate, pod.shape, row), times)
        if self.affinity.is_counted(pod):
            self._journal.apply(partial(self.affinity.count, pod, self.name_of(row)), times)

    def name_of(self, row: int) -> str:
        node = self.nodes.nodes[row]
        assert node is not None
        return node.name


def with_refusing_zones(refused: Mapping[Shape, Iterable[int]], nodes: NodeTable) -> dict[Shape, set[int]]:
    """Return the rows that refuse each shape, with whole zones where several nodes refuse it.

    The scheduler refuses every node of a zone that is down, or that lacks the volume of the pod. To learn
    this node by node would take seconds for each, in which the member keeps its place in the window. In a
    cluster of one zone, only the refusing nodes themselves count.
    """
    spread: dict[Shape, set[int]] = {}
    for shape, of_shape in refused.items():
        rows = spread[shape] = set(of_shape)
        zones = nodes.domains(ZONE)
        if len(rows) >= _REFUSING_NODES and zones.max(initial=-1) >= 1:
            numbers, counts = np.unique(zones[list(rows)], return_counts=True)
            lost = numbers[(counts >= _REFUSING_NODES) & (numbers >= 0)]
            rows |= set(np.flatnonzero(np.isin(zones, lost)).tolist())
    return spread
