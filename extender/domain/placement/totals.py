"""Totals over all nodes: the number of pods of each shape that fit, and the free amounts.

Each cycle reuses the totals of the previous cycle and updates them for each changed row. There are no totals
for a shape that the scheduler refuses on some node.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np

from extender.domain.model.resources import three_digits
from extender.domain.model.shapes import Shape
from extender.domain.snapshot.nodes import AmountRows, NodeTable, Rows

MAX_ROWS = 64  # up to this number of rows are corrected one by one; otherwise all rows are counted again
_MAX_COUNT = np.iinfo(np.int64).max
NODES_TOPIC = "places"  # topic of all reads of single nodes
NodesKey = frozenset[object]  # keys of NodeTests; equal for shapes that suit the same nodes


class FreeAmount(NamedTuple):
    """Topic of a read: free amount of a resource on all nodes that suit at least one of several shapes.

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
        self.changed_topics: Sequence[Hashable] | None = None
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
        if len(rows) > min(MAX_ROWS, len(capacity)):
            return None
        totals, table = Totals(capacity, (), self._table.nodes), self._table.with_all(self.pods)
        totals._table, totals.is_fresh = table, False
        before, after = self.capacity[rows], capacity[rows]
        totals.pods = dict(self.pods)
        changes = table.count(rows, after) - table.count(rows, before) if len(rows) else np.zeros(0, np.int64)
        indices = np.flatnonzero(changes).tolist()
        changed_shapes = [shape for n in indices if (shape := table.shapes[n]) in self.pods]
        totals.pods.update((it, self.pods[it] + int(changes[table.number[it]])) for it in changed_shapes)
        totals.free_sums = dict(self.free_sums)
        for key, (shapes, amounts) in self.free_sums.items() if len(rows) else ():
            differences = np.maximum(after, 0) - np.maximum(before, 0)
            totals.free_sums[key] = shapes, table.add(amounts, shapes, rows, differences)
        place_topics = (NODES_TOPIC,) if len(rows) else ()
        totals.changed_topics = (*changed_shapes, *totals._changed_amounts(self), *place_topics)
        return totals

    def _changed_amounts(self, previous_totals: "Totals") -> Iterator[Hashable]:
        """Yield the free amounts whose three digits, which messages show, differ from `previous_totals`."""
        for key, (_, amounts) in self.free_sums.items():
            if amounts is not (old_amounts := previous_totals.free_sums[key][1]):
                for name, amount in amounts.items():
                    if three_digits(name, amount) != three_digits(name, old_amounts[name]):
                        yield FreeAmount(key, name)

    def with_topics(self, topics: Set[Hashable]) -> "Totals":
        """Return the totals for these topics only."""
        totals, keys = Totals(self.capacity, self._table.dimensions, self._table.nodes), _amount_keys(topics)
        totals.pods = {shape: total for shape, total in self.pods.items() if shape in topics}
        totals.free_sums = {key: sums for key, sums in self.free_sums.items() if key in keys}
        return totals

    def covers(self, topics: Iterable[Hashable]) -> bool:
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
        new_table = _ShapeTable(tuple(new_shapes), self.dimensions, self.nodes)
        joint_table = _ShapeTable((), self.dimensions, self.nodes)
        joint_table.shapes = self.shapes + new_table.shapes
        joint_table.number = {shape: number for number, shape in enumerate(joint_table.shapes)}
        joint_table._requests = np.concatenate([self._requests, new_table._requests])
        joint_table._is_offered = np.concatenate([self._is_offered, new_table._is_offered])
        joint_table._kinds = np.concatenate([self._kinds, new_table._kinds + len(self._examples)])
        joint_table._examples = self._examples + new_table._examples
        return joint_table

    def count(self, rows: Rows, free_amounts: AmountRows) -> Rows:
        """Return how many pods of each shape fit on `rows`, which have the free amounts `free_amounts`."""
        requests, sums = self._requests, np.zeros(len(self.shapes), dtype=np.int64)
        masks = [self.nodes.suitable_rows(shape) for shape in self._examples]
        for position, row in enumerate(rows.tolist()):
            quotients = np.where(requests > 0, free_amounts[position] // np.maximum(requests, 1), _MAX_COUNT)
            fitting_counts = quotients.min(axis=1, initial=_MAX_COUNT)
            is_suitable = np.array([mask[row] for mask in masks], np.bool_)[self._kinds]
            sums += np.where(self._is_offered & is_suitable, np.maximum(fitting_counts, 0), 0)
        return sums

    def add(
        self, sums: Mapping[str, int], shapes: Sequence[Shape], rows: Rows, differences: AmountRows
    ) -> Mapping[str, int]:
        """Return `sums`, the free amounts on the nodes that suit one of `shapes`, after `rows` have changed.

        `differences` has the change of the amounts on each of the rows.
        """
        is_suitable = np.logical_or.reduce([self.nodes.suitable_rows(shape)[rows] for shape in shapes])
        change = differences[is_suitable].sum(axis=0)
        if not change.any():
            return sums
        return {name: n + int(change[self._columns[name]]) for name, n in sums.items()}
