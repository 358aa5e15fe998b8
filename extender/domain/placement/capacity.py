"""Free amounts on the rows of nodes, and the number of pods of a shape that fit on each row.

Numpy counts the pods of a shape on all rows at once. The counts remain valid until capacity is allocated, and
are then corrected on the changed rows. Each read is recorded, because the decision on a pending group is
based on these reads.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, MutableMapping
from functools import reduce
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

import numpy as np

from extender.domain.model.resources import Resources, three_digits
from extender.domain.model.shapes import Shape
from extender.domain.placement.totals import MAX_ROWS, NODES_TOPIC, FreeAmount, Totals, nodes_key
from extender.domain.snapshot.nodes import AmountRows, Mask, NodeTable, Rows

_MAX_COUNT = np.iinfo(np.int64).max
_NO_ROWS: Rows = np.zeros(0, dtype=np.int64)
_SINGLE_ROW_COST = 8  # cost of counting one row alone, relative to its cost in a count of all rows


class CapacityCounts(NamedTuple):
    """Cached counts of a capacity, valid until capacity is allocated or freed."""

    counts: dict[Shape, Rows]
    totals: MutableMapping[Shape, int]
    sums: dict[frozenset[object], tuple[tuple[Shape, ...], Mapping[str, int]]]

    def belongs_with(self, other: "CapacityCounts") -> bool:
        """Return whether no capacity was allocated or freed between these counts and `other`."""
        return self.totals is other.totals


class Capacity:
    """Free capacity on the rows of nodes.

    Args:
        dimensions: The resource of each column of `free`.
        nodes: The nodes of the rows.
        free: The free amounts, which this object owns and changes in place.
        refusing_rows: Rows where the scheduler refuses a shape.
        totals: How many pods of each shape fit on all rows together, as far as known.
        record: Called with the topic of every read.
    """

    def __init__(
        self,
        dimensions: tuple[str, ...],
        nodes: NodeTable,
        free: AmountRows,
        refusing_rows: Mapping[Shape, Iterable[int]],
        totals: MutableMapping[Shape, int] | None = None,
        record: Callable[[Hashable], None] = lambda _: None,
    ) -> None:
        self._record = record
        self.base: Totals | None = None  # totals of all nodes that count assumed pods
        self._dirty: set[int] = set()  # rows that changed since `base`, usually at most MAX_ROWS
        self.nodes = nodes
        self.free = free
        self._columns = {name: column for column, name in enumerate(dimensions)}
        sums = np.array([column.sum(dtype=np.float64) for column in free.T])  # may exceed 64-bit integers
        self._weights = 1.0 / np.maximum(sums, 1.0)
        self._refusals = {shape: set(rows) for shape, rows in refusing_rows.items()}
        self._requests: dict[Shape, tuple[Rows, AmountRows]] = {}
        self._counts: dict[Shape, Rows] = {}
        self._outdated_counts: Mapping[Shape, Rows] = {}  # counts before the last changes of rows
        self._changed_rows: set[int] = set()
        self._totals: MutableMapping[Shape, int] = {} if totals is None else totals
        self._sums: dict[frozenset[object], tuple[tuple[Shape, ...], Mapping[str, int]]] = {}

    def clone(self) -> "Capacity":
        """Return a copy that changes independently."""
        totals = dict(self._totals)
        clone = Capacity(self.dimensions, self.nodes, self.free.copy(), self._refusals, totals, self._record)
        clone.base, clone._dirty = self.base, set(self._dirty)
        return clone

    def count_assumed(self, previous_totals: Totals) -> None:
        """Take the present amounts, which count all assumed pods, as the new base of totals.

        `previous_totals` are the totals by which the pending groups were evaluated last. Without valid
        totals, nothing changes.
        """
        is_usable = previous_totals.belongs_to(self.dimensions, self.nodes) and not self.is_refused_anywhere
        if base := previous_totals.after(self.free.copy()) if is_usable else None:
            self.base, self._totals, self._sums = base, {}, {}
            self._dirty.clear()

    def cached_totals(self) -> Totals | None:
        """Return the cached totals of all nodes; None while the scheduler refuses any shape on some node."""
        if self.is_refused_anywhere:
            return None
        if self.base is not None:  # totals derived from it keep reads of inadmissible groups valid
            later_totals = self.base.after(self.free.copy()) if self._dirty else self.base
            if later_totals is not None:
                return later_totals
        totals = Totals(self.free.copy(), self.dimensions, self.nodes)
        totals.pods.update(self._totals)
        totals.free_sums.update((nodes_key(shapes), (shapes, sums)) for shapes, sums in self._sums.values())
        return totals

    @property
    def dimensions(self) -> tuple[str, ...]:
        return tuple(self._columns)

    @property
    def cached_counts(self) -> CapacityCounts:
        """Return the cached counts, to restore them once the capacity is the same again."""
        return CapacityCounts(self._counts, self._totals, self._sums)

    def restore(self, saved_counts: CapacityCounts) -> None:
        """Restore counts. The capacity must be the same again as when the counts were taken."""
        self._counts, self._totals, self._sums = saved_counts
        self._outdated_counts = {}

    def counts(self, shape: Shape) -> Rows:
        """Return how many pods of `shape` fit on each row, by amounts, labels, taints and refusals."""
        self._record(NODES_TOPIC)
        if shape not in self._counts and not self._correct_counts(shape):
            rows, fitting_counts = self._fitting(shape, self.rows_for(shape))
            self._counts[shape] = np.zeros(len(self.free), dtype=np.int64)
            self._counts[shape][rows] = fitting_counts
        return self._counts[shape]

    def _correct_counts(self, shape: Shape) -> bool:
        """Correct the counts from before the last allocations on the changed rows.

        Return whether that was possible.
        """
        if (old_counts := self._outdated_counts.get(shape)) is None:
            return False
        rows, new_counts = np.fromiter(self._changed_rows, dtype=np.int64), old_counts.copy()
        new_counts[rows] = self._count_on(shape, self.free, rows)
        self._counts[shape] = new_counts
        return True

    def capacity_for_both(
        self, shape: Shape, max_pods: int, peer: Shape, allowed_rows: Mask | None = None
    ) -> tuple[Rows, AmountRows]:
        """Return the rows with capacity for a pod of either shape, and how many of both fit together.

        The second array has an entry for each of these rows. Column n is the number of `peer` pods that fit
        next to n pods of `shape`, for n from 0 to `max_pods`. The number is -1 if n pods of `shape` do not
        fit. `allowed_rows` are the rows to consider. None means all rows.
        """
        counts, peers, (columns, amounts) = self.counts(shape), self.counts(peer), self._request(peer)
        rows = np.flatnonzero((counts + peers) if allowed_rows is None else (counts + peers) * allowed_rows)
        counts_together = np.full((len(rows), max_pods + 1), -1, dtype=np.int64)
        for n in range(max_pods + 1):
            capacity = self.free[rows]
            capacity[:, self._request(shape)[0]] -= n * self._request(shape)[1]
            others_fit = np.maximum(np.min(capacity[:, columns] // amounts, axis=1, initial=_MAX_COUNT), 0)
            counts_together[:, n] = np.where(counts[rows] >= n, np.where(peers[rows] > 0, others_fit, 0), -1)
        return rows, counts_together

    def total(self, shape: Shape) -> int:
        """Return how many pods of `shape` fit on all rows together."""
        self._record(shape)
        if shape not in self._totals:
            base, max_changes = self.base, min(MAX_ROWS, len(self.free) // _SINGLE_ROW_COST)
            count = base.pods.get(shape) if base is not None and len(self._dirty) <= max_changes else None
            if shape in self._counts or self._correct_counts(shape):
                count = None
            elif count is not None and base is not None and self._dirty:  # correct it by the changed rows
                rows = np.fromiter(self._dirty, dtype=np.int64)
                now, at_base = (self._count_on(shape, matrix, rows) for matrix in (self.free, base.capacity))
                count += int(now.sum() - at_base.sum())
            if count is None:  # the sum of the counts by node
                counts = self._counts.get(shape)
                fitting_counts = self._fitting(shape, self.rows_for(shape))[1] if counts is None else counts
                count = int(fitting_counts.sum()) if len(fitting_counts) else 0
            self._totals[shape] = count
            if self.base is not None and not self._dirty:
                self.base.pods[shape] = count
        return self._totals[shape]

    def _count_on(self, shape: Shape, matrix: AmountRows, rows: Rows) -> Rows:
        """Return how many pods of a shape fit on each of some rows of a matrix of free amounts."""
        columns, amounts = self._request(shape)
        if not len(rows) or not len(columns) or not self._offers(shape):
            return np.zeros(len(rows), dtype=np.int64)
        fitting_counts = np.min(matrix[rows[:, None], columns] // amounts, axis=1)
        return np.where(self.rows_for(shape)[rows], np.maximum(fitting_counts, 0), 0)

    def is_short_for(self, shapes: Mapping[Shape, int]) -> bool:
        """Return whether some shape's pods do not fit on the nodes, even without the pods of other shapes."""
        is_short = False
        for shape, n in shapes.items():
            is_short = is_short or n > self.total(shape)
        return is_short

    def free_amount(self, shapes: Iterable[Shape], resource: str) -> int:
        """Return the free amount of a resource on all nodes that suit any of `shapes`, to three digits.

        The other digits would change with each event on many thousands of nodes.
        """
        shapes = tuple(shapes)
        self._record(FreeAmount(nodes_key(shapes), resource))
        return three_digits(resource, self._free_sum(shapes).get(resource, 0))

    def free_sum(self, shapes: Iterable[Shape]) -> Mapping[str, int]:
        """Return the free amounts on all nodes that suit any of `shapes`."""
        self._record(NODES_TOPIC)
        return self._free_sum(tuple(shapes))

    def _free_sum(self, shapes: tuple[Shape, ...]) -> Mapping[str, int]:
        """Return the free amounts on the nodes that suit any of `shapes`, without recording a read.

        The amounts are computed once for all shapes that suit the same nodes.
        """
        key = frozenset((shape.suits.key, shape if self.refuses(shape) else None) for shape in shapes)
        if key in self._sums:
            return self._sums[key][1]
        base = self.base if not self._dirty else None
        cached_sums = base.free_sums.get(nodes_key(shapes)) if base is not None else None
        if cached_sums is None:
            suitable = np.logical_or.reduce([self.rows_for(shape) for shape in shapes])
            rows = np.maximum(self.free[suitable], 0).sum(axis=0)
            cached_sums = shapes, {name: int(rows[column]) for name, column in self._columns.items()}
            if base is not None:
                base.free_sums[nodes_key(shapes)] = cached_sums
        self._sums[key] = shapes, cached_sums[1]
        return cached_sums[1]

    def refuses(self, shape: Shape) -> bool:
        """Return whether the scheduler refuses `shape` on any node."""
        return bool(self._refusals.get(shape.on_all_nodes))

    @property
    def is_refused_anywhere(self) -> bool:
        """Return whether the scheduler refuses any shape on any node."""
        return any(self._refusals.values())

    def fits_without_refusals(self, shape: Shape, pod_count: int) -> bool:
        """Return whether `pod_count` pods of `shape` would fit if the scheduler refused no nodes."""
        self._record(NODES_TOPIC)
        _, fitting_counts = self._fitting(shape, self.nodes.suitable_rows(shape))
        return int(np.minimum(fitting_counts, pod_count).sum()) >= pod_count

    def admits(self, shape: Shape, row: int) -> bool:
        """Return whether one more pod of `shape` fits on a row.

        The check is cheap: no other row is counted.
        """
        self._record(NODES_TOPIC)
        if not self._offers(shape):
            return False
        columns, amounts = self._request(shape)
        is_suitable = self.nodes.suitable_rows(shape)[row] and row not in self._refusals.get(
            shape.on_all_nodes, ()
        )
        return bool(is_suitable and (self.free[row, columns] >= amounts).all())

    def largest_part_of(self, requests: Resources) -> float:
        """Return the largest part of the initial free capacity that `requests` need, over all resources."""
        columns = self._columns
        parts = (n * self._weights[columns[name]] for name, n in requests.items() if name in columns)
        return float(max(parts, default=0.0))

    def tightest_first(self, rows: Rows, pods: int | None = None) -> Rows:
        """Return the rows by best fit: the least free capacity first, ties in the order of rows.

        `pods` is the number of pods to place, where each row has capacity for at least one pod. Only so many
        rows are returned. None returns all rows.
        """
        free_parts = self.free.take(rows, axis=0) @ self._weights  # take() is five times as fast as indexing
        if pods == 1 and len(rows):
            return rows[[np.argmin(free_parts)]]
        return rows[np.argsort(free_parts, kind="stable")[:pods]]

    def emptiest_first(self, shape: Shape, counts: Rows, pod_count: int) -> Rows:
        """Return a row for each pod, up to the free capacity, the emptiest row first.

        Each pod gets the row that then has the most free capacity; ties are in the order of rows.

        Args:
            shape: The shape of the pods.
            counts: How many of these pods fit on each row.
            pod_count: The number of pods.
        """
        part_of_pod = float(self._request(shape)[1] @ self._weights[self._request(shape)[0]])
        rows = np.flatnonzero(counts)
        parts_by_row = zip(
            (self.free[rows] @ self._weights).tolist(), rows.tolist(), counts[rows].tolist(), strict=True
        )
        heap = [(-capacity, row, capacity, count) for capacity, row, count in parts_by_row]
        heapify(heap)
        rows_of_pods: list[int] = []
        while heap and len(rows_of_pods) < pod_count:
            _, row, capacity, count = heap[0]
            rows_of_pods.append(row)
            if count == 1:
                heappop(heap)
            else:
                heapreplace(heap, (part_of_pod - capacity, row, capacity - part_of_pod, count - 1))
        return np.array(rows_of_pods, dtype=np.int64)

    def allocate(self, shape: Shape, row: int, times: int = 1) -> None:
        """Allocate the request of one pod on a row; with `times` -1, free it."""
        columns, amounts = self._request(shape)
        self.free[row, columns] -= amounts * times
        self._dirty.add(row)
        self._invalidate([row])

    def allocate_rows(self, rows: Mapping[Shape, Rows], times: int = 1) -> None:
        """Allocate capacity for many pods. `rows` has one row number per pod, keyed by shape."""
        changed_rows: list[int] = []
        for shape, shape_rows in rows.items():
            columns, amounts = self._request(shape)
            np.subtract.at(self.free, (shape_rows[:, None], columns), amounts * times)
            changed_rows += shape_rows.tolist()
            if len(self._dirty) <= MAX_ROWS:
                self._dirty.update(shape_rows.tolist())
        self._invalidate(changed_rows)

    def allocate_amounts(self, rows: Rows, amounts: AmountRows, times: int = 1) -> None:
        """Allocate amounts without pods. `amounts` has one row for each of the `rows`, which differ."""
        self.free[rows] -= amounts * times
        if len(self._dirty) <= MAX_ROWS:
            self._dirty.update(rows.tolist())
        self._invalidate(rows.tolist())

    def requests_on(self, rows: Mapping[Shape, Rows]) -> tuple[Rows, AmountRows]:
        """Return the rows of the pods, in order and without repetition, and the requested amounts on each."""
        distinct_rows = np.unique(np.concatenate([*rows.values(), _NO_ROWS]))
        return distinct_rows, self.amounts_on(distinct_rows, rows)

    def amounts_on(self, distinct_rows: Rows, rows: Mapping[Shape, Rows]) -> AmountRows:
        """Return the requests of pods on each of `distinct_rows`.

        `rows` has one row number per pod, keyed by shape. Pods on other rows do not count.
        """
        sums = np.zeros((len(distinct_rows), self.free.shape[1]), dtype=np.int64)
        for shape, shape_rows in rows.items():
            columns, requests = self._request(shape)
            pod_counts = np.bincount(shape_rows, minlength=len(self.free))[distinct_rows]
            sums[:, columns] += pod_counts[:, None] * requests
        return sums

    def allocate_at_once(self, rows: Mapping[Shape, Rows]) -> bool:
        """Allocate capacity for all pods if all of them fit. Return whether they fit."""
        if not all(self.are_suitable(shape, shape_rows) for shape, shape_rows in rows.items()):
            return False
        self.allocate_rows(rows)
        for shape, shape_rows in rows.items():
            columns, _ = self._request(shape)
            if (self.free[shape_rows[:, None], columns] < 0).any():
                self.allocate_rows(rows, times=-1)
                return False
        return True

    def forbid(self, shape: Shape, row: int) -> None:
        """Record that the scheduler refuses `shape` on a row."""
        self._refusals.setdefault(shape.on_all_nodes, set()).add(row)
        self.base = None  # the base totals do not account for this refusal
        self._invalidate([row])

    def _offers(self, shape: Shape) -> bool:
        """Return whether some node offers each resource that `shape` requests."""
        return shape.requests.keys() <= self._columns.keys()

    def _fitting(self, shape: Shape, suitable_rows: Mask) -> tuple[Rows, Rows]:
        """Return the suitable rows where a pod of `shape` fits, and the number of such pods on each row."""
        rows = suitable_rows.nonzero()[0] if self._offers(shape) else _NO_ROWS
        request = list(zip(*self._request(shape), strict=True)) if len(rows) else []
        for column, amount in request:  # several times as fast as all columns at once
            rows = rows[self.free[rows, column] >= amount]
        if not request:
            return rows, np.zeros(len(rows), dtype=np.int64)
        quotients = (self.free[rows, column] // amount for column, amount in request)
        return rows, reduce(np.minimum, quotients)

    def rows_for(self, shape: Shape) -> Mask:
        """Return the rows that labels, taints and refusals allow for `shape`. Free amounts do not matter."""
        mask = self.nodes.suitable_rows(shape)
        refusing_rows = self._refusals.get(shape.on_all_nodes)
        if not refusing_rows:
            return mask
        mask = mask.copy()
        mask[list(refusing_rows)] = False
        return mask

    def are_suitable(self, shape: Shape, rows: Rows) -> bool:
        """Return whether labels, taints and refusals allow pods of `shape` on all of `rows`.

        The row -1 means a missing node, which is never suitable.
        """
        return self._offers(shape) and rows.min() >= 0 and bool(self.rows_for(shape)[rows].all())

    def _request(self, shape: Shape) -> tuple[Rows, AmountRows]:
        """Return the columns and the amounts of the request of a shape.

        A resource that no node offers has no column.
        """
        if shape not in self._requests:
            columns, requests = self._columns, shape.requests.items()
            amounts = {columns[name]: n for name, n in requests if n > 0 and name in columns}
            self._requests[shape] = np.fromiter(amounts, np.int64), np.fromiter(amounts.values(), np.int64)
        return self._requests[shape]

    def _invalidate(self, rows: Collection[int]) -> None:
        """Invalidate the counts of these rows.

        If many rows have changed, invalidate the counts of all rows.
        """
        if self._counts:
            self._outdated_counts, self._changed_rows = self._counts, set()
        self._changed_rows.update(rows)
        if len(self._changed_rows) > MAX_ROWS:
            self._outdated_counts, self._changed_rows = {}, set()
        self._counts, self._totals, self._sums = {}, {}, {}
