"""Free amounts on the rows of nodes, and how many pods of a shape they hold.

Counts are computed for all rows at once with numpy, and kept until capacity is allocated; then they are
corrected on the changed rows. Reads are recorded: the decision on a pending group is based on them.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, MutableMapping
from functools import reduce
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

import numpy as np

from extender.domain.model.resources import Resources, three_digits
from extender.domain.model.shapes import Shape
from extender.domain.placement.totals import FEW, PLACES, FreeAmount, Totals, similar
from extender.domain.snapshot.nodes import AmountRows, Mask, NodeTable, Rows

_UNBOUNDED = np.iinfo(np.int64).max
_NO_ROWS: Rows = np.zeros(0, dtype=np.int64)
_COST_OF_ONE = 8  # cost of counting one row alone, relative to counting it together with all rows


class CapacityCounts(NamedTuple):
    """Counts of a capacity; valid until capacity is allocated."""

    counts: dict[Shape, Rows]
    totals: MutableMapping[Shape, int]
    sums: dict[frozenset[object], tuple[tuple[Shape, ...], Mapping[str, int]]]

    def belongs_with(self, other: "CapacityCounts") -> bool:
        """Return whether no capacity was allocated or freed between these counts and `other`."""
        return self.totals is other.totals


class Capacity:
    """Free capacity on the rows of nodes.

    Args:
        left: Free amounts, owned and changed in place.
        refused: Rows where the scheduler refuses a shape.
        totals: How many pods of each shape fit, as far as known.
        record: Called with the topic of every read.
    """

    def __init__(
        self,
        dimensions: tuple[str, ...],
        nodes: NodeTable,
        free: AmountRows,
        refused: Mapping[Shape, Iterable[int]],
        totals: MutableMapping[Shape, int] | None = None,
        record: Callable[[Hashable], None] = lambda _: None,
    ) -> None:
        self._record = record
        self.base: Totals | None = None  # totals of all nodes, with assumed pods
        self._taken: set[int] = set()  # rows allocated or released since `base`, usually at most FEW
        self.nodes = nodes
        self.free = free
        self._columns = {name: column for column, name in enumerate(dimensions)}
        sums = np.array([column.sum(dtype=np.float64) for column in free.T])  # in 64 bits they might not fit
        self._scale = 1.0 / np.maximum(sums, 1.0)
        self._refused = {shape: set(rows) for shape, rows in refused.items()}
        self._requests: dict[Shape, tuple[Rows, AmountRows]] = {}
        self._counts: dict[Shape, Rows] = {}
        self._counted: Mapping[Shape, Rows] = {}  # counts before allocations and releases on `_taken` rows
        self._changed: set[int] = set()
        # `_totals` and `_sums` are valid until the next allocation.
        self._totals: MutableMapping[Shape, int] = {} if totals is None else totals
        self._sums: dict[frozenset[object], tuple[tuple[Shape, ...], Mapping[str, int]]] = {}

    def clone(self) -> "Capacity":
        totals = dict(self._totals)
        later = Capacity(self.dimensions, self.nodes, self.free.copy(), self._refused, totals, self._record)
        later.base, later._taken = self.base, set(self._taken)
        return later

    def count_assumed(self, before: Totals) -> None:
        """Count all members that are on their way.

        `before` are the totals by which the pending groups were evaluated last.
        """
        is_usable = before.belongs_to(self.dimensions, self.nodes) and not self.is_refused_anywhere
        if base := before.after(self.free.copy()) if is_usable else None:
            self.base, self._totals, self._sums = base, {}, {}
            self._taken.clear()

    def all_known(self) -> Totals | None:
        """Return the cached totals of all nodes; None while the scheduler refuses any shape on some node."""
        if self.is_refused_anywhere:
            return None
        if self.base is not None:  # so that reads of inadmissible groups stay valid
            later = self.base.after(self.free.copy()) if self._taken else self.base
            if later is not None:
                return later
        known = Totals(self.free.copy(), self.dimensions, self.nodes)
        known.pods.update(self._totals)
        known.free_sums.update((similar(shapes), (shapes, sums)) for shapes, sums in self._sums.values())
        return known

    @property
    def dimensions(self) -> tuple[str, ...]:
        return tuple(self._columns)

    @property
    def known(self) -> CapacityCounts:
        return CapacityCounts(self._counts, self._totals, self._sums)

    def restore(self, known: CapacityCounts) -> None:
        """Restore counts, once the capacity is again as it was then."""
        self._counts, self._totals, self._sums = known
        self._counted = {}

    def counts(self, shape: Shape) -> Rows:
        """Return how many pods of `shape` each row has capacity for: amounts, labels, taints and refusals."""
        self._record(PLACES)
        if shape not in self._counts and not self._is_corrected(shape):
            rows, fits = self._fits(shape, self.suitable(shape))
            self._counts[shape] = np.zeros(len(self.free), dtype=np.int64)
            self._counts[shape][rows] = fits
        return self._counts[shape]

    def _is_corrected(self, shape: Shape) -> bool:
        """Correct the counts from those before the last allocations; return whether that was possible."""
        if (before := self._counted.get(shape)) is None:
            return False
        rows, now = np.fromiter(self._changed, dtype=np.int64), before.copy()
        now[rows] = self._counts_on(shape, self.free, rows)
        self._counts[shape] = now
        return True

    def capacity_for_both(
        self, shape: Shape, pods: int, other: Shape, within: Mask | None = None
    ) -> tuple[Rows, AmountRows]:
        """Return the rows with capacity for a pod of either shape, and how many of both fit together.

        Each row of the second array has the number of `other` pods that fit next to 0, 1, … `pods` of the
        first shape; -1 where the latter do not fit. `within`: the rows that count, if not all.
        """
        counts, others, (columns, amounts) = self.counts(shape), self.counts(other), self._request(other)
        rows = np.flatnonzero((counts + others) if within is None else (counts + others) * within)
        fits = np.full((len(rows), pods + 1), -1, dtype=np.int64)
        for n in range(pods + 1):
            capacity = self.free[rows]
            capacity[:, self._request(shape)[0]] -= n * self._request(shape)[1]
            next_to = np.maximum(np.min(capacity[:, columns] // amounts, axis=1, initial=_UNBOUNDED), 0)
            fits[:, n] = np.where(counts[rows] >= n, np.where(others[rows] > 0, next_to, 0), -1)
        return rows, fits

    def total(self, shape: Shape) -> int:
        """Return how many pods of `shape` all rows have capacity for."""
        self._record(shape)
        if shape not in self._totals:
            base, most_changes = self.base, min(FEW, len(self.free) // _COST_OF_ONE)
            known = base.pods.get(shape) if base is not None and len(self._taken) <= most_changes else None
            if shape in self._counts or self._is_corrected(shape):
                known = None
            elif known is not None and base is not None and self._taken:  # corrected by the changed rows
                rows = np.fromiter(self._taken, dtype=np.int64)
                now, then = (self._counts_on(shape, matrix, rows) for matrix in (self.free, base.capacity))
                known += int(now.sum() - then.sum())
            if known is None:  # not cached: an array has an entry for each node
                counts = self._counts.get(shape)
                fits = self._fits(shape, self.suitable(shape))[1] if counts is None else counts
                known = int(fits.sum()) if len(fits) else 0
            self._totals[shape] = known
            if self.base is not None and not self._taken:
                self.base.pods[shape] = known
        return self._totals[shape]

    def _counts_on(self, shape: Shape, matrix: AmountRows, rows: Rows) -> Rows:
        """Return how many pods of a shape some rows of a matrix have capacity for, each."""
        columns, amounts = self._request(shape)
        if not len(rows) or not len(columns) or not self._offers(shape):
            return np.zeros(len(rows), dtype=np.int64)
        fits = np.min(matrix[rows[:, None], columns] // amounts, axis=1)
        return np.where(self.suitable(shape)[rows], np.maximum(fits, 0), 0)

    def is_short_for(self, shapes: Mapping[Shape, int]) -> bool:
        """Return whether the nodes lack capacity for any shape's pods, even without other shapes."""
        is_short = False
        for shape, n in shapes.items():
            is_short = is_short or n > self.total(shape)
        return is_short

    def left_for(self, shapes: Iterable[Shape], resource: str) -> int:
        """Return the free amount of a resource on all nodes that suit any of `shapes`, to three digits.

        On many thousands of nodes each event changes the other digits.
        """
        shapes = tuple(shapes)
        self._record(FreeAmount(similar(shapes), resource))
        return three_digits(resource, self._sum_for(shapes).get(resource, 0))

    def sum_for(self, shapes: Iterable[Shape]) -> Mapping[str, int]:
        """Return the free amounts on all nodes that suit any of `shapes`."""
        self._record(PLACES)
        return self._sum_for(tuple(shapes))

    def _sum_for(self, shapes: tuple[Shape, ...]) -> Mapping[str, int]:
        """Return the free amounts on the nodes that suit any of `shapes`, computed once for equal nodes."""
        key = frozenset((shape.suits.key, shape if self.refuses(shape) else None) for shape in shapes)
        if key in self._sums:
            return self._sums[key][1]
        base = self.base if not self._taken else None
        known = base.free_sums.get(similar(shapes)) if base is not None else None
        if known is None:
            suitable = np.logical_or.reduce([self.suitable(shape) for shape in shapes])
            rows = np.maximum(self.free[suitable], 0).sum(axis=0)
            known = shapes, {name: int(rows[column]) for name, column in self._columns.items()}
            if base is not None:
                base.free_sums[similar(shapes)] = known
        self._sums[key] = shapes, known[1]
        return known[1]

    def refuses(self, shape: Shape) -> bool:
        """Return whether the scheduler refuses `shape` anywhere."""
        return bool(self._refused.get(shape.on_all_nodes))

    @property
    def is_refused_anywhere(self) -> bool:
        """Return whether the scheduler refuses any shape."""
        return any(self._refused.values())

    def could_hold_but_for_refusals(self, shape: Shape, pods: int) -> bool:
        self._record(PLACES)
        _, fits = self._fits(shape, self.nodes.suitable(shape))
        return int(np.minimum(fits, pods).sum()) >= pods

    def admits(self, shape: Shape, row: int) -> bool:
        """Return whether one more pod of `shape` fits on a row; cheap, since no other rows are counted."""
        self._record(PLACES)
        if not self._offers(shape):
            return False
        columns, amounts = self._request(shape)
        admits = self.nodes.suitable(shape)[row] and row not in self._refused.get(shape.on_all_nodes, ())
        return bool(admits and (self.free[row, columns] >= amounts).all())

    def largest_part(self, requests: Resources) -> float:
        """Return the largest part, over all resources, of the initial capacity that a request would take."""
        column = self._columns
        parts = (n * self._scale[column[name]] for name, n in requests.items() if name in column)
        return float(max(parts, default=0.0))

    def tightest_first(self, rows: Rows, pods: int | None = None) -> Rows:
        """Return the rows by best fit: the least free capacity first; ties in the order of rows.

        `pods` is how many pods the order is for, where each row has capacity for one.
        """
        free = self.free.take(rows, axis=0) @ self._scale  # five times as fast as by indexing
        if pods == 1 and len(rows):
            return rows[[np.argmin(free)]]
        return rows[np.argsort(free, kind="stable")[:pods]]

    def emptiest_first(self, shape: Shape, counts: Rows, pods: int) -> Rows:
        """Return a row for each pod, up to the free capacity, the emptiest row first.

        Each pod gets the row with the most free capacity after those before it; ties in the order of
        rows. `counts`: how many pods each row may take.
        """
        part = float(self._request(shape)[1] @ self._scale[self._request(shape)[0]])
        rows = np.flatnonzero(counts)
        free = zip(
            (self.free[rows] @ self._scale).tolist(), rows.tolist(), counts[rows].tolist(), strict=True
        )
        heap = [(-capacity, row, capacity, count) for capacity, row, count in free]
        heapify(heap)
        found: list[int] = []
        while heap and len(found) < pods:
            _, row, capacity, count = heap[0]
            found.append(row)
            if count == 1:
                heappop(heap)
            else:
                heapreplace(heap, (part - capacity, row, capacity - part, count - 1))
        return np.array(found, dtype=np.int64)

    def allocate(self, shape: Shape, row: int, times: int = 1) -> None:
        """Allocate the request of one pod; with `times` -1, free it."""
        columns, amounts = self._request(shape)
        self.free[row, columns] -= amounts * times
        self._taken.add(row)
        self._invalidate([row])

    def allocate_rows(self, rows: Mapping[Shape, Rows], times: int = 1) -> None:
        """Allocate capacity for many pods: for each shape, one row number per pod."""
        changed: list[int] = []
        for shape, of_shape in rows.items():
            columns, amounts = self._request(shape)
            np.subtract.at(self.free, (of_shape[:, None], columns), amounts * times)
            changed += of_shape.tolist()
            if len(self._taken) <= FEW:
                self._taken.update(of_shape.tolist())
        self._invalidate(changed)

    def allocate_amounts(self, rows: Rows, amounts: AmountRows, times: int = 1) -> None:
        """Allocate amounts without pods: one row of `amounts` for each of the distinct `rows`."""
        self.free[rows] -= amounts * times
        if len(self._taken) <= FEW:
            self._taken.update(rows.tolist())
        self._invalidate(rows.tolist())

    def requests_on(self, rows: Mapping[Shape, Rows]) -> tuple[Rows, AmountRows]:
        """Return the requests of pods on their rows: these rows in order, and a row of amounts for each."""
        on = np.unique(np.concatenate([*rows.values(), _NO_ROWS]))
        return on, self.amounts_on(on, rows)

    def amounts_on(self, on: Rows, rows: Mapping[Shape, Rows]) -> AmountRows:
        """Return the requests of pods on the rows `on`, which differ: a row of amounts for each.

        `rows` has for each shape one row number per pod; rows that are not in `on` do not count.
        """
        sums = np.zeros((len(on), self.free.shape[1]), dtype=np.int64)
        for shape, of_shape in rows.items():
            columns, requests = self._request(shape)
            pods = np.bincount(of_shape, minlength=len(self.free))[on]
            sums[:, columns] += pods[:, None] * requests
        return sums

    def allocate_at_once(self, rows: Mapping[Shape, Rows]) -> bool:
        """Allocate all or nothing; return whether it fitted."""
        if not all(self.are_suitable(shape, of_shape) for shape, of_shape in rows.items()):
            return False
        self.allocate_rows(rows)
        for shape, of_shape in rows.items():
            columns, _ = self._request(shape)
            if (self.free[of_shape[:, None], columns] < 0).any():
                self.allocate_rows(rows, times=-1)
                return False
        return True

    def forbid(self, shape: Shape, row: int) -> None:
        """Record that the scheduler refuses `shape` on a row."""
        self._refused.setdefault(shape.on_all_nodes, set()).add(row)
        self.base = None  # its totals do not account for this refusal
        self._invalidate([row])

    def _offers(self, shape: Shape) -> bool:
        """Return whether every resource that `shape` requests is offered by some node."""
        return shape.requests.keys() <= self._columns.keys()

    def _fits(self, shape: Shape, suitable: Mask) -> tuple[Rows, Rows]:
        """Return the suitable rows with capacity for a pod of `shape`, and how many each has capacity for."""
        rows = suitable.nonzero()[0] if self._offers(shape) else _NO_ROWS
        request = list(zip(*self._request(shape), strict=True)) if len(rows) else []
        for column, amount in request:  # column by column is several times as fast as all at once
            rows = rows[self.free[rows, column] >= amount]
        if not request:
            return rows, np.zeros(len(rows), dtype=np.int64)
        quotients = (self.free[rows, column] // amount for column, amount in request)
        return rows, reduce(np.minimum, quotients)

    def suitable(self, shape: Shape) -> Mask:
        """Return the rows that labels, taints and refusals allow for `shape`, whatever capacity they have."""
        mask = self.nodes.suitable(shape)
        refused = self._refused.get(shape.on_all_nodes)
        if not refused:
            return mask
        mask = mask.copy()
        mask[list(refused)] = False
        return mask

    def are_suitable(self, shape: Shape, rows: Rows) -> bool:
        """Return whether labels, taints and refusals allow pods of `shape` on all of `rows`.

        The row -1 stands for a missing node, which is never suitable.
        """
        return self._offers(shape) and rows.min() >= 0 and bool(self.suitable(shape)[rows].all())

    def _request(self, shape: Shape) -> tuple[Rows, AmountRows]:
        """Return the columns of a shape's request, and the amounts.

        A resource without a node has no column.
        """
        if shape not in self._requests:
            column, requests = self._columns, shape.requests.items()
            known = {column[name]: n for name, n in requests if n > 0 and name in column}
            self._requests[shape] = np.fromiter(known, np.int64), np.fromiter(known.values(), np.int64)
        return self._requests[shape]

    def _invalidate(self, rows: Collection[int]) -> None:
        """Invalidate the counts of these rows; of all rows if they are many."""
        if self._counts:
            self._counted, self._changed = self._counts, set()
        self._changed.update(rows)
        if len(self._changed) > FEW:
            self._counted, self._changed = {}, set()
        self._counts, self._totals, self._sums = {}, {}, {}
