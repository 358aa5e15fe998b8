"""Totals over all nodes: the number of pods of each shape that fit, and the free amounts.

Totals are kept from cycle to cycle and are updated for each changed row. There are no totals for a shape that
the scheduler refuses on some node.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np

from extender.domain.model.resources import three_digits
from extender.domain.model.shapes import Shape
from extender.domain.snapshot.nodes import AmountRows, NodeTable, Rows

FEW = 64  # up to this number of rows are corrected one by one; otherwise all rows are counted again
_UNBOUNDED = np.iinfo(np.int64).max
PLACES = "places"  # topic of all reads of single nodes
NodesKey = frozenset[object]  # keys of NodeTests; equal for shapes that suit the same nodes


class FreeAmount(NamedTuple):
    """Topic of a read: free amount of a resource on all nodes that suit any of some shapes.

    The amount is rounded to three digits.
    """

    nodes_key: NodesKey
    resource: str


def nodes_key(shapes: Iterable[Shape]) -> NodesKey:
    """Return the key of these shapes. It is equal for other shapes that suit the same nodes."""
    return frozenset(shape.suits.key for shape in shapes)


class Totals:
    """Totals of one cycle. `capacity` never changes. The cycle adds totals to `pods` and `free_sums`."""

    def __init__(self, capacity: AmountRows, dimensions: Sequence[str], nodes: NodeTable) -> None:
        self.capacity = capacity
        self.pods: dict[Shape, int] = {}  # number of pods of each shape that fit
        self.free_sums: dict[NodesKey, tuple[Sequence[Shape], Mapping[str, int]]] = {}
        """Free amounts on the nodes that suit any of these shapes."""
        self.changed: Sequence[Hashable] | None = None
        """Topics whose reads differ from those of the previous totals; None if all were counted again."""
        self.is_fresh = True  # False if updated from the totals of an earlier cycle
        self._table = _ShapeTable((), dimensions, nodes)

    def belongs_to(self, dimensions: Sequence[str], nodes: NodeTable) -> bool:
        """Return whether the totals have these dimensions and nodes."""
        return self._table.nodes is nodes and self._table.dimensions == tuple(dimensions)

    def after(self, capacity: AmountRows) -> "Totals | None":
        """Return the totals of another capacity with the same dimensions and nodes.

        None means that too many rows differ, so that all rows must be counted again. The amounts are compared
        cell by cell, which is several times as fast as row by row.
        """
        rows = np.unique(np.flatnonzero(self.capacity != capacity) // max(capacity.shape[1], 1))
        if len(rows) > min(FEW, len(capacity)):
            return None
        later, table = Totals(capacity, (), self._table.nodes), self._table.with_all(self.pods)
        later._table, later.is_fresh = table, False
        before, after = self.capacity[rows], capacity[rows]
        later.pods = dict(self.pods)
        changes = table.count(rows, after) - table.count(rows, before) if len(rows) else np.zeros(0, np.int64)
        indices = np.flatnonzero(changes).tolist()
        recounted = [shape for n in indices if (shape := table.shapes[n]) in self.pods]
        later.pods.update((each, self.pods[each] + int(changes[table.number[each]])) for each in recounted)
        later.free_sums = dict(self.free_sums)
        for key, (shapes, amounts) in self.free_sums.items() if len(rows) else ():
            difference = np.maximum(after, 0) - np.maximum(before, 0)
            later.free_sums[key] = shapes, table.add(amounts, shapes, rows, difference)
        place_topics = (PLACES,) if len(rows) else ()
        later.changed = (*recounted, *later._changed_amounts(self), *place_topics)
        return later

    def _changed_amounts(self, before: "Totals") -> Iterator[Hashable]:
        """Yield the free amounts that differ from `before` in the three digits that messages show."""
        for key, (_, amounts) in self.free_sums.items():
            if amounts is not (amounts_before := before.free_sums[key][1]):
                for name, amount in amounts.items():
                    if three_digits(name, amount) != three_digits(name, amounts_before[name]):
                        yield FreeAmount(key, name)

    def with_topics(self, topics: Set[Hashable]) -> "Totals":
        """Return the totals for these topics only."""
        chosen, keys = Totals(self.capacity, self._table.dimensions, self._table.nodes), _amount_keys(topics)
        chosen.pods = {shape: total for shape, total in self.pods.items() if shape in topics}
        chosen.free_sums = {key: sums for key, sums in self.free_sums.items() if key in keys}
        return chosen

    def cover(self, topics: Iterable[Hashable]) -> bool:
        """Return whether these totals would show a change of every sum among the topics.

        A sum is missing here if it was read from a copy before all assumed members were counted.
        """
        shapes = (topic for topic in topics if isinstance(topic, Shape))
        return _amount_keys(topics) <= self.free_sums.keys() and all(shape in self.pods for shape in shapes)


def _amount_keys(topics: Iterable[Hashable]) -> Set[NodesKey]:
    """Return the keys of the free amounts among some topics."""
    return {topic.nodes_key for topic in topics if isinstance(topic, FreeAmount)}


class _ShapeTable:
    """Requests of shapes, one row per shape, so that all shapes are counted at once.

    A table never changes.
    """

    def __init__(self, shapes: Sequence[Shape], dimensions: Sequence[str], nodes: NodeTable) -> None:
        self.shapes = tuple(shapes)
        self.number = {shape: number for number, shape in enumerate(shapes)}
        self.dimensions = tuple(dimensions)
        self.nodes = nodes
        self._columns = {name: column for column, name in enumerate(dimensions)}
        self._requests = np.zeros((len(shapes), len(dimensions)), dtype=np.int64)
        self._is_offered = np.ones(len(shapes), np.bool_)
        for row, shape in enumerate(shapes):
            self._is_offered[row] = shape.requests.keys() <= self._columns.keys()
            for name, amount in shape.requests.items() if self._is_offered[row] else ():
                self._requests[row, self._columns[name]] = amount
        kinds: dict[object, int] = {}  # shapes of one kind suit the same nodes
        self._kinds = np.array([kinds.setdefault(shape.suits.key, len(kinds)) for shape in shapes], np.intp)
        self._examples = [shapes[row] for row in np.unique(self._kinds, return_index=True)[1].tolist()]

    def with_all(self, shapes: Mapping[Shape, object]) -> "_ShapeTable":
        """Return a table of the present shapes and these shapes."""
        new_shapes = shapes.keys() - self.number.keys()
        if not new_shapes:
            return self
        added = _ShapeTable(tuple(new_shapes), self.dimensions, self.nodes)
        joined = _ShapeTable((), self.dimensions, self.nodes)
        joined.shapes = self.shapes + added.shapes
        joined.number = {shape: number for number, shape in enumerate(joined.shapes)}
        joined._requests = np.concatenate([self._requests, added._requests])
        joined._is_offered = np.concatenate([self._is_offered, added._is_offered])
        joined._kinds = np.concatenate([self._kinds, added._kinds + len(self._examples)])
        joined._examples = self._examples + added._examples
        return joined

    def count(self, rows: Rows, free: AmountRows) -> Rows:
        """Return how many pods of each shape fit on `rows`, which have the free amounts `free`."""
        requests, sums = self._requests, np.zeros(len(self.shapes), dtype=np.int64)
        masks = [self.nodes.suitable_rows(shape) for shape in self._examples]
        for number, row in enumerate(rows.tolist()):
            quotients = np.where(requests > 0, free[number] // np.maximum(requests, 1), _UNBOUNDED)
            fits = quotients.min(axis=1, initial=_UNBOUNDED)
            suits = np.array([mask[row] for mask in masks], np.bool_)[self._kinds]
            sums += np.where(self._is_offered & suits, np.maximum(fits, 0), 0)
        return sums

    def add(
        self, sums: Mapping[str, int], shapes: Sequence[Shape], rows: Rows, difference: AmountRows
    ) -> Mapping[str, int]:
        """Return `sums`, the free amounts on the nodes that suit any of `shapes`, after `rows` have changed.

        `difference` has the change of the amounts on each of the rows.
        """
        suitable = np.logical_or.reduce([self.nodes.suitable_rows(shape)[rows] for shape in shapes])
        change = difference[suitable].sum(axis=0)
        if not change.any():
            return sums
        return {name: n + int(change[self._columns[name]]) for name, n in sums.items()}
