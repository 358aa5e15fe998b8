"""The room of one decision: plans take from this working copy, and failed ones give back.

Pods of one shape are placed in bulk with numpy. Shapes with host ports or (anti-)affinity are placed one by
one, since every member changes what the next one may use.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from extender.domain.holding import Holding, rows_of
from extender.domain.nodes import Amounts, Mask, NodeTable, Rows
from extender.domain.records import PodRecord, Uid
from extender.domain.resources import Resources
from extender.domain.shapes import Shape, Term, clashing
from extender.domain.snapshot import Occupancy, Snapshot

_UNBOUNDED = np.iinfo(np.int64).max


class Space:
    """Room on rows of nodes. `room` is owned and changed in place."""

    def __init__(
        self,
        dimensions: tuple[str, ...],
        nodes: NodeTable,
        room: Amounts,
        occupancy: Occupancy,
        refused: Mapping[Shape, frozenset[int]],
        totals: dict[Shape, int] | None = None,
    ) -> None:
        self.nodes = nodes
        self.room = room
        self._columns = {name: column for column, name in enumerate(dimensions)}
        self._scale = 1.0 / np.maximum(room.sum(axis=0, dtype=np.float64), 1.0)
        self._refused = {shape: set(rows) for shape, rows in refused.items()}
        self._ports = {node: Counter(ports) for node, ports in occupancy.ports.items()}
        self._selected = {term: Counter(by_node) for term, by_node in occupancy.selected.items()}
        self._carried = {term: Counter(by_node) for term, by_node in occupancy.carried.items()}
        self._together: dict[Term, Counter[Shape]] = {}  # of the members being placed, by their affinity
        self._counts: dict[Shape, Rows] = {}
        self._totals = {} if totals is None else totals  # good until somebody takes something
        self._sums: dict[frozenset[object], dict[str, int]] = {}
        self._requests: dict[Shape, tuple[Rows, Amounts]] = {}

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Space":
        """The room beside all pinned claims."""
        return cls(
            snapshot.dimensions, snapshot.nodes, snapshot.room.copy(), snapshot.occupancy, snapshot.refused
        )

    def clone(self) -> "Space":
        occupancy = Occupancy(self._ports, self._selected, self._carried)
        refused = {shape: frozenset(rows) for shape, rows in self._refused.items()}
        return Space(tuple(self._columns), self.nodes, self.room.copy(), occupancy, refused)

    @classmethod
    def empty(cls, snapshot: Snapshot) -> "Space":
        """The room if nothing ran at all."""
        nowhere: dict[Term, dict[str, int]] = {term: {} for term in snapshot.occupancy.selected}
        nobody = Occupancy(selected=nowhere, carried=nowhere)
        nodes = snapshot.nodes
        return cls(snapshot.dimensions, nodes, snapshot.allocatable.copy(), nobody, {}, nodes.most())

    # ---- placing

    def place(self, pods: Iterable[PodRecord], partly: bool = False) -> dict[Uid, str] | None:
        """Nodes for all of `pods` at once, taken from the room; None (and nothing taken) where they do not
        all fit, unless `partly`, which places what fits. Largest shapes first, the tightest nodes first;
        where that leaves somebody out, those with the fewest nodes to choose from first."""
        pods = list(pods)
        self._together = _wanting_company(pods)
        batches = self._batches(pods)
        plan = self._place(batches, partly)
        if plan is None and len(by_choice := sorted(batches, key=self._choice)) > 1 and by_choice != batches:
            plan = self._place(by_choice, partly)
        self._together = {}
        return plan

    def _place(self, batches: list[list[PodRecord]], partly: bool) -> dict[Uid, str] | None:
        placed: list[tuple[PodRecord, int]] = []
        for batch in batches:
            rows = self._rows_for(batch)
            placed += zip(batch, rows, strict=False)
            if len(rows) < len(batch) and not partly:
                self._release(placed)
                return None
        return {pod.uid: self.name(row) for pod, row in placed}

    def could_place(self, pods: Sequence[PodRecord], shapes: Mapping[Shape, int]) -> bool:
        """Whether all of `pods`, so many of each of these shapes, would fit; takes nothing."""
        if self.is_short_for(shapes):
            return False
        if len(shapes) == 1 and not self.any_particular(pods, shapes):
            return True
        plan = self.place(pods)
        if plan is not None:
            self.give_back(pods, plan)
        return plan is not None

    def fitting(self, pods: Sequence[PodRecord]) -> frozenset[Uid]:
        """Which of `pods` would find room beside each other: as many as can be, so the smallest shapes come
        first. Takes nothing."""
        self._together = _wanting_company(pods)
        plan = self._place(self._batches(pods)[::-1], partly=True) or {}
        self._together = {}
        self.give_back(pods, plan)
        return frozenset(plan)

    def take_node(self, pod: PodRecord, node: str) -> bool:
        """Take room for `pod` on a given node, if it fits there."""
        row = self.nodes.row.get(node)
        if row is None or not self._allows(pod, row):
            return False
        self._take(pod, row)
        return True

    def take_holdings(self, holdings: Iterable[Holding]) -> bool:
        """Take what groups hold, all of it or nothing."""
        rows: dict[Shape, list[Rows]] = {}
        for holding in holdings:
            for shape, of_shape in holding.rows(self.nodes).items():
                rows.setdefault(shape, []).append(of_shape)
        return self._take_at_once({shape: np.concatenate(parts) for shape, parts in rows.items()})

    def take_nodes(self, planned: Sequence[tuple[PodRecord, str]]) -> dict[Uid, str]:
        """Take room for pods on given nodes; returns those that fit there."""
        if self._take_at_once(rows_of(planned, self.nodes)):
            return {pod.uid: node for pod, node in planned}
        return {pod.uid: node for pod, node in planned if self.take_node(pod, node)}

    def give_back(self, pods: Iterable[PodRecord], plan: Mapping[Uid, str]) -> None:
        """Undo a placing of `pods`."""
        self._release([(pod, self.nodes.row[plan[pod.uid]]) for pod in pods if pod.uid in plan])

    def forbid(self, shape: Shape, node: str) -> None:
        """The scheduler refuses `shape` on `node`."""
        row = self.nodes.row.get(node)
        if row is not None:
            self._refused.setdefault(shape, set()).add(row)
            self._forget_counts()

    def name(self, row: int) -> str:
        node = self.nodes.nodes[row]
        assert node is not None
        return node.name

    # ---- looking

    def counts(self, shape: Shape) -> Rows:
        """How many pods of `shape` each row has room for, by amounts, labels, taints and refusals."""
        if shape not in self._counts:
            self._counts[shape] = self._fits(shape, self._suitable(shape))
        return self._counts[shape]

    def total(self, shape: Shape) -> int:
        """How many pods of `shape` all rows have room for."""
        if shape not in self._totals:
            self._totals[shape] = int(self.counts(shape).sum())
        return self._totals[shape]

    def is_short_for(self, shapes: Mapping[Shape, int]) -> bool:
        """Whether so many pods of a shape are more than there is room for, wherever the others go."""
        return any(n > self.total(shape) for shape, n in shapes.items())

    def sum_for(self, shapes: Iterable[Shape]) -> dict[str, int]:
        """The room on all nodes that suit any of `shapes`."""
        shapes = tuple(shapes)
        alike = frozenset((shape.suits.key, shape if self.refuses(shape) else None) for shape in shapes)
        if alike not in self._sums:
            suitable = np.logical_or.reduce([self._suitable(shape) for shape in shapes])
            rows = np.maximum(self.room[suitable], 0).sum(axis=0)
            self._sums[alike] = {name: int(rows[column]) for name, column in self._columns.items()}
        return self._sums[alike]

    def refuses(self, shape: Shape) -> bool:
        return bool(self._refused.get(shape))

    def could_hold_but_for_refusals(self, shape: Shape, pods: int) -> bool:
        return int(np.minimum(self._fits(shape, self.nodes.suitable(shape)), pods).sum()) >= pods

    def is_particular(self, pod: PodRecord) -> bool:
        """Whether each pod like this changes where the next one may go."""
        if pod.shape.looks_at_others or not self._carried:
            return pod.shape.looks_at_others
        return any(term.matches(pod.namespace, pod.labels) for term in self._carried)

    def any_particular(self, pods: Iterable[PodRecord], shapes: Iterable[Shape]) -> bool:
        """Whether any of `pods`, which are of these shapes, is particular."""
        if not self._carried:
            return any(shape.looks_at_others for shape in shapes)
        return any(self.is_particular(pod) for pod in pods)

    # ---- inside

    def _batches(self, pods: Iterable[PodRecord]) -> list[list[PodRecord]]:
        batches: dict[Any, list[PodRecord]] = {}
        for pod in pods:
            batches.setdefault(pod.uid if self.is_particular(pod) else pod.shape, []).append(pod)
        return sorted(batches.values(), key=lambda batch: -self._size(batch[0].shape.requests))

    def _choice(self, batch: list[PodRecord]) -> int:
        """How many nodes have room for a pod like those of `batch`."""
        return int(np.count_nonzero(self.counts(batch[0].shape)))

    def _size(self, requests: Resources) -> float:
        """A request's largest part of the whole room."""
        parts = (
            n * self._scale[self._columns[name]] for name, n in requests.items() if name in self._columns
        )
        return float(max(parts, default=0.0))

    def _rows_for(self, batch: list[PodRecord]) -> list[int]:
        """Rows for as many of a batch as fit, taken."""
        pod = batch[0]
        if self.is_particular(pod):
            allowed = np.flatnonzero(self._allowed(pod))
            rows = [int(row) for row in self._tightest_first(allowed)[:1]]
        else:
            counts = self.counts(pod.shape)
            if not counts.any():
                return []
            order = self._tightest_first(np.flatnonzero(counts))
            filled = np.repeat(order, np.minimum(counts[order], len(batch)))[: len(batch)]
            rows = [int(row) for row in filled]
        self._count_all([(pod, row) for row in rows], 1)
        return rows

    def _tightest_first(self, rows: Rows) -> Rows:
        """Best fit: rows with the least room left come first, ties by row."""
        left = self.room[rows] @ self._scale
        return rows[np.argsort(left, kind="stable")]

    def _fits(self, shape: Shape, suitable: Mask) -> Rows:
        if not shape.requests.keys() <= self._columns.keys():
            return np.zeros(len(self.room), dtype=np.int64)  # no node has ever offered such a resource
        columns, asked = self._request(shape)
        left = self.room[:, columns]
        able = np.flatnonzero(suitable & (left >= asked).all(axis=1))
        fits = np.zeros(len(self.room), dtype=np.int64)
        fits[able] = np.min(left[able] // asked, axis=1, initial=_UNBOUNDED)
        return fits

    def _release(self, placed: Iterable[tuple[PodRecord, int]]) -> None:
        self._count_all(placed, -1)

    def _count_all(self, placed: Iterable[tuple[PodRecord, int]], times: int) -> None:
        """Count pods on rows: by shape at once, or one by one where others look at who stands where."""
        rows: dict[Shape, list[int]] = {}
        for pod, row in placed:
            if pod.shape.constraints.ports or self._selected:
                self._count(pod, row, times)
            else:
                rows.setdefault(pod.shape, []).append(row)
        self._take_rows({shape: np.array(of_shape) for shape, of_shape in rows.items()}, times)

    def _take(self, pod: PodRecord, row: int) -> None:
        self._count(pod, row, 1)

    def _count(self, pod: PodRecord, row: int, times: int) -> None:
        columns, asked = self._request(pod.shape)
        self.room[row, columns] -= asked * times
        self._forget_counts()
        if pod.shape.constraints.ports or self._selected:
            self._count_occupancy(pod, self.name(row), times)

    def _count_occupancy(self, pod: PodRecord, node: str, times: int) -> None:
        for port in pod.shape.constraints.ports:
            self._ports.setdefault(node, Counter())[port] += times
        for term, by_node in self._selected.items():
            if term.matches(pod.namespace, pod.labels):
                by_node[node] += times
        for term in pod.shape.constraints.anti_affinity:
            self._carried.setdefault(term, Counter())[node] += times

    def _take_at_once(self, rows: Mapping[Shape, Rows]) -> bool:
        """Take all of it, or nothing where one does not fit, or changes where others may go."""
        if not all(self._admits_all(shape, of_shape) for shape, of_shape in rows.items()):
            return False
        self._take_rows(rows, 1)
        if all(self._none_negative(shape, of_shape) for shape, of_shape in rows.items()):
            return True
        self._take_rows(rows, -1)
        return False

    def _admits_all(self, shape: Shape, rows: Rows) -> bool:
        """Whether labels, taints and refusals leave all `rows` to pods of `shape`, whoever stands there."""
        looks_at_others = shape.constraints.ports or shape.terms or self._selected or self._carried
        if looks_at_others or not shape.requests.keys() <= self._columns.keys():
            return False
        return rows.min() >= 0 and bool(self._suitable(shape)[rows].all())

    def _none_negative(self, shape: Shape, rows: Rows) -> bool:
        columns, _ = self._request(shape)
        return bool((self.room[rows[:, None], columns] >= 0).all())

    def _take_rows(self, rows: Mapping[Shape, Rows], times: int) -> None:
        for shape, of_shape in rows.items():
            columns, asked = self._request(shape)
            np.subtract.at(self.room, (of_shape[:, None], columns), asked * times)
        self._forget_counts()

    def _forget_counts(self) -> None:
        self._counts, self._totals, self._sums = {}, {}, {}

    def _request(self, shape: Shape) -> tuple[Rows, Amounts]:
        if shape not in self._requests:
            pairs = [(self._columns[name], n) for name, n in shape.requests.items() if n > 0]
            columns, asked = zip(*pairs, strict=True)
            self._requests[shape] = (np.array(columns), np.array(asked, dtype=np.int64))
        return self._requests[shape]

    def _suitable(self, shape: Shape) -> Mask:
        mask = self.nodes.suitable(shape)
        refused = self._refused.get(shape)
        if not refused:
            return mask
        mask = mask.copy()
        mask[list(refused)] = False
        return mask

    def _allowed(self, pod: PodRecord) -> Mask:
        """Where one pod may go now, with host ports and (anti-)affinity looked at."""
        allowed = self.counts(pod.shape) > 0
        if not self.is_particular(pod):
            return allowed
        ports = pod.shape.constraints.ports
        for node, taken in self._ports.items() if ports else ():
            row = self.nodes.row.get(node)
            if row is not None and clashing(ports, +taken):
                allowed[row] = False
        for term in pod.shape.constraints.anti_affinity:
            allowed &= ~self._domains_of(term, self._selected.get(term, {}))
        for term, by_node in self._carried.items():
            if term.matches(pod.namespace, pod.labels):
                allowed &= ~self._domains_of(term, by_node)
        for term in pod.shape.constraints.affinity:
            allowed &= self._beside(term, pod)
        return allowed

    def _allows(self, pod: PodRecord, row: int) -> bool:
        """The same for one row; cheap where the pod looks at no others."""
        shape = pod.shape
        if self.is_particular(pod) or not shape.requests.keys() <= self._columns.keys():
            return bool(self._allowed(pod)[row])
        columns, asked = self._request(shape)
        admits = self.nodes.suitable(shape)[row] and row not in self._refused.get(shape, ())
        return bool(admits and (self.room[row, columns] >= asked).all())

    def _beside(self, term: Term, pod: PodRecord) -> Mask:
        """Rows of the domains where a selected pod stands; the first of its kind may go to any domain."""
        by_node: Mapping[str, int] = self._selected.get(term, {})
        if not any(by_node.values()) and term.matches(pod.namespace, pod.labels):
            return self._openings(term)
        return self._domains_of(term, by_node)

    def _openings(self, term: Term) -> Mask:
        """Rows of the domains with room for all who want to be together there; all domains if none has it."""
        codes = self.nodes.domains(term.topology_key)
        labelled = codes >= 0
        roomy = labelled.copy()
        for shape, pods in self._together.get(term, {}).items():
            counts = np.minimum(self.counts(shape)[labelled], pods)
            sums = np.bincount(codes[labelled], weights=counts)
            roomy[labelled] &= sums[codes[labelled]] >= pods
        return roomy if roomy.any() else labelled

    def _domains_of(self, term: Term, by_node: Mapping[str, int]) -> Mask:
        """All rows in the same domain as one of the nodes that count."""
        codes = self.nodes.domains(term.topology_key)
        rows = [self.nodes.row[node] for node, n in by_node.items() if n > 0 and node in self.nodes.row]
        inside = np.unique(codes[rows])
        return np.isin(codes, inside[inside >= 0])


def _wanting_company(pods: Iterable[PodRecord]) -> dict[Term, Counter[Shape]]:
    """How many pods of each shape must stand in one domain, by the term that says so."""
    together: dict[Term, Counter[Shape]] = {}
    for pod in pods:
        for term in pod.shape.constraints.affinity:
            together.setdefault(term, Counter())[pod.shape] += 1
    return together
