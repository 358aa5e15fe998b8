"""Nodes in numbered rows, and the rows of nodes that suit a shape of pods.

A NodeTable is immutable. When nodes change, `with_changes` makes a new table that keeps the results of the
old table; the results of a shape are updated on the next request. Thus a node event costs only the changed
rows, and a new shape costs only a look-up of its labels.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from copy import copy
from functools import partial, reduce
from itertools import islice
from math import inf
from typing import TypeVar
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
import numpy.typing as npt

from extender.api.objects.cluster import Taint
from extender.api.objects.pods import LabelSelector, NodeSelectorTerm, Requirement
from extender.api.units import is_count
from extender.domain.model.resources import Resources
from extender.domain.model.selectors import Labels, NodePart, as_number
from extender.domain.model.shapes import NodeTest, Shape
from extender.domain.queues.flavors import PoolRows, Pools

AmountRows = npt.NDArray[np.int64]  # amounts with one row per node and one column per resource
Mask = npt.NDArray[np.bool_]  # one truth value per row
Rows = npt.NDArray[np.int64]  # row numbers, or an array with one number per row
_MAX_BYTES = 64 * 2**20  # limit for cached masks; the least recently used masks are dropped
_NO_ROWS: Rows = np.zeros(0, np.int64)
_MAX_PATCHED_ROWS = 64  # limit of changed rows that are patched one by one
_MAX_ANSWERS = 16384
K = TypeVar("K")
_PREFIX = "field:"  # prefix of field names in the index; label keys have no ":"


def column_sums(amounts: AmountRows) -> list[int]:
    """Return the sum of each column.

    Summing the columns one by one is ten times as fast as `sum(axis=0)`.
    """
    return [int(column.sum()) for column in amounts.T]


class NodeRecord(msgspec.Struct, frozen=True, gc=False):
    """Record of a node."""

    name: str
    labels: Labels
    taints: tuple[Taint, ...]  # including the taint of a cordoned node
    allocatable: Resources  # amounts are rounded down


class NodeIndex:
    """Index of node rows by label, field and taint. An index never changes."""

    def __init__(self, nodes: Sequence[NodeRecord | None] = ()) -> None:
        self._size = len(nodes)
        rows_by_label: defaultdict[str, defaultdict[str, list[int]]] = defaultdict(partial(defaultdict, list))
        rows_by_taints: defaultdict[tuple[Taint, ...], list[int]] = defaultdict(list)
        for row, node in enumerate(nodes):
            if node is not None:
                rows_by_taints[node.taints].append(row)
                for key, value in _labels_of(node).items():
                    rows_by_label[key][value].append(row)
        self._by_label: dict[str, dict[str, Rows]] = {key: {} for key in rows_by_label}
        for key, rows_by_value in rows_by_label.items():
            for value, rows in rows_by_value.items():
                self._by_label[key][value] = np.array(rows, np.int64)
        self._by_taints = {taints: np.array(rows, np.int64) for taints, rows in rows_by_taints.items()}
        self._domains: dict[str, Rows] = {}
        self._numbers: dict[str, tuple[Rows, Rows]] = {}  # by label: numeric rows, and their numbers

    def with_changes(
        self, old: Sequence[NodeRecord | None], new: Sequence[NodeRecord | None], rows: Iterable[int]
    ) -> "NodeIndex":
        """Return the index after some nodes changed.

        Args:
            old: The nodes of this index.
            new: The nodes of the new index.
            rows: The rows in which the nodes differ.
        """
        new_index = copy(self)
        new_index._by_label, new_index._by_taints = dict(self._by_label), dict(self._by_taints)
        changed_keys: set[str] = set()
        for row in rows:
            old_node, new_node = old[row], new[row]
            taints = old_node.taints if old_node else None
            _move_row(new_index._by_taints, row, taints, new_node.taints if new_node else None)
            old_labels, new_labels = _labels_of(old_node), _labels_of(new_node)
            for key in {key for key, _ in old_labels.items() ^ new_labels.items()}:
                if key not in changed_keys:
                    new_index._by_label[key] = dict(self._by_label.get(key, {}))
                    changed_keys.add(key)
                _move_row(new_index._by_label[key], row, old_labels.get(key), new_labels.get(key))
        for key in [key for key in changed_keys if not new_index._by_label[key]]:
            del new_index._by_label[key]
        new_index._domains = {key: rows for key, rows in self._domains.items() if key not in changed_keys}
        new_index._numbers = {key: pairs for key, pairs in self._numbers.items() if key not in changed_keys}
        return new_index

    def mask(self, test: NodeTest) -> Mask:
        """Return a mask of the rows whose nodes pass a test."""
        mask = np.zeros(self._size, np.bool_)
        for taints, rows in self._by_taints.items():
            mask[rows] = test.tolerates(taints)
        for key, value in test.labels:
            mask &= self._rows_with_label(key, [value])
        if (part := test.part) is not None:
            mask &= self.part(part)
        if (terms := test.terms) is not None:
            mask &= reduce(np.logical_or, map(self.rows_of_term, terms), np.zeros_like(mask))
        return mask

    def has_value(self, key: str, value: str) -> bool:
        """Return whether any node has the label."""
        return value in self._by_label.get(key, ())

    def has_label(self, key: str) -> bool:
        """Return whether any node has a label with this key."""
        return key in self._by_label

    def domains(self, key: str) -> Rows:
        """Return for each row a number that stands for the node's value of a label; -1 without the label."""
        if key not in self._domains:
            codes = np.full(self._size, -1, dtype=np.int64)
            if (rows_by_value := self._by_label.get(key)) is None:
                return codes  # without a cache entry: pods may name any key
            rows = np.concatenate([*rows_by_value.values()])
            codes[rows] = np.repeat(np.arange(len(rows_by_value)), [*map(len, rows_by_value.values())])
            self._domains[key] = codes
        return self._domains[key]

    def _rows_with_label(self, key: str, values: Iterable[str]) -> Mask:
        """Return a mask of the rows whose label has one of these values."""
        mask, rows_by_value = np.zeros(self._size, np.bool_), self._by_label.get(key, {})
        if rows := [rows_by_value[value] for value in values if value in rows_by_value]:
            mask[np.concatenate(rows)] = True
        return mask

    def part(self, part: NodePart) -> Mask:
        """Return a mask of the rows in a part of the nodes.

        If the part has no labels, the mask includes the rows of deleted nodes.
        """

        def match_labels(pairs: Iterable[tuple[str, str]]) -> Mask:
            mask = np.ones(self._size, np.bool_)
            for key, value in pairs:
                mask &= self._rows_with_label(key, [value])
            return mask

        mask = match_labels(part.labels)
        for pairs in part.earlier_parts:
            mask = mask & ~match_labels(pairs)
        return mask

    def rows_of_term(self, term: NodeSelectorTerm) -> Mask:
        """Return a mask of the rows that meet a node selector term. An empty term admits no node."""
        parts = [self._rows_with_requirement(part.key, part) for part in term.match_expressions or ()]
        parts += [self._rows_with_requirement(_PREFIX + part.key, part) for part in term.match_fields or ()]
        return reduce(np.logical_and, parts) if parts else np.zeros(self._size, np.bool_)

    def _rows_with_requirement(self, key: str, requirement: Requirement) -> Mask:
        """Return a mask of the rows whose labels or fields meet a requirement."""
        values = requirement.values or []
        match requirement.operator:
            case "In":
                return self._rows_with_label(key, values)
            case "NotIn":
                return ~self._rows_with_label(key, values)
            case "Exists":
                return self.domains(key) >= 0
            case "DoesNotExist":
                return self.domains(key) < 0
            case "Gt" | "Lt" as comparison if values and (limit := as_number(values[0])) is not None:
                mask = np.zeros(self._size, np.bool_)
                if (rows_by_value := self._by_label.get(key)) is None:
                    return mask  # without a cache entry: pods may name any key
                if key not in self._numbers:
                    parsed = ((as_number(value), rows.tolist()) for value, rows in rows_by_value.items())
                    cells = [(row, number) for number, rows in parsed if number is not None for row in rows]
                    pairs = np.array(cells, np.int64).reshape(-1, 2)
                    self._numbers[key] = pairs[:, 0], pairs[:, 1]
                rows, numbers = self._numbers[key]
                mask[rows[numbers > limit if comparison == "Gt" else numbers < limit]] = True
                return mask
        return np.zeros(self._size, np.bool_)


def _labels_of(node: NodeRecord | None) -> Mapping[str, str]:
    """Return a node's labels, and the fields that node selector terms may name."""
    return {} if node is None else {**node.labels, f"{_PREFIX}metadata.name": node.name}


def _move_row(rows: dict[K, Rows], row: int, old_key: K | None, new_key: K | None) -> None:
    """Move a row from the entry of the old key to the entry of the new key; None means no key."""
    if old_key == new_key:
        return
    if old_key is not None:
        rows[old_key] = rows[old_key][rows[old_key] != row]
        if not len(rows[old_key]):
            del rows[old_key]
    if new_key is not None:
        rows[new_key] = np.append(rows.get(new_key, np.zeros(0, np.int64)), row)


Levels = tuple[str, ...]  # node labels; the level with the largest domains comes first


class Topologies:
    """Topologies of a cluster: the levels at which nodes are close to each other. Immutable.

    A level is a node label, such as the label for racks. The domain of a node consists of all nodes with
    equal values of this label and of the labels of all larger levels. So rack 1 of one block is not rack 1 of
    another.

    Attributes:
        level_lists: The levels of each topology. If several topologies have a level, the first topology
            counts for it.
    """

    def __init__(self, topologies: Iterable[Levels] = ()) -> None:
        self.level_lists = tuple(topologies)
        self._levels_by_level: dict[str, Levels] = {}
        for levels in self.level_lists:
            for level in levels:
                self._levels_by_level.setdefault(level, levels)
        tiers = [tier for level in self._levels_by_level if (tier := _tier_of(level)) is not None]
        self._largest_tier = max(tiers, default=inf)

    @property
    def levels(self) -> Sequence[str]:
        """Return the levels of all topologies."""
        return tuple(self._levels_by_level)

    def levels_with(self, level: str) -> Levels:
        """Return the levels of the topology that contains `level`.

        If no topology contains `level`, the result is this level alone.
        """
        return self._levels_by_level.get(level, (level,))

    def levels_down_to(self, level: str) -> Levels:
        """Return `level` and the larger levels of its topology.

        An empty result means that the level is a tier above all HyperNodes. Its domain is the whole cluster.
        """
        tier = None if level in self._levels_by_level else _tier_of(level)
        if tier is not None and tier > self._largest_tier:
            return ()
        levels = self.levels_with(level)
        return levels[: levels.index(level) + 1]

    def domains_of(self, labels: Labels) -> dict[str, str]:
        """Return the names of the domains of a node with these labels, by level."""
        return {level: labels[level] for level in self._levels_by_level if level in labels}


class NodeTable:
    """Table of nodes with names, labels and taints by row.

    The row of a deleted node is None, and suits no pod.
    """

    def __init__(self, nodes: Sequence[NodeRecord | None] = (), topologies: Topologies | None = None) -> None:
        self.nodes = tuple(nodes)
        self.topologies = topologies or Topologies()
        self._level_domains: dict[str, Rows] = {}
        self._nested_domains: dict[tuple[str, str], tuple[Rows, Rows]] = {}
        self._path_orders: dict[str, tuple[Rows, Rows]] = {}
        self.row_of = {node.name: row for row, node in enumerate(self.nodes) if node}
        self._index: NodeIndex | None = None  # made on first use
        self._age = 0  # number of earlier tables with the same rows, but other labels or taints
        self._change_ages: Rows = np.zeros(len(self.nodes), np.int64)  # age of the last change, by row
        self._masks: dict[bytes, tuple[int, Mask]] = {}  # masks with the age of their table
        # How many pods of a shape fit on all nodes if these are empty. Callers add results.
        self.cached_totals: MutableMapping[Shape, int] = WeakKeyDictionary()
        self._fits_when_empty: dict[frozenset[object], bool] = {}
        self._pool_rows: PoolRows | None = None

    def with_changes(self, nodes: Sequence[NodeRecord | None], rows: Iterable[int]) -> "NodeTable":
        """Return the table of `nodes`, which differ from the nodes of this table only in `rows`."""
        table = NodeTable(nodes, self.topologies)
        if len(table.nodes) != len(self.nodes):
            return table
        old, new = self.nodes, table.nodes
        changes = [row for row in rows if not _suit_same_shapes(old[row], new[row])]
        table._age, table._change_ages, table._masks = self._age, self._change_ages, dict(self._masks)
        table._index, table._pool_rows = self._index, None if changes else self._pool_rows
        if changes:
            table._age += 1
            table._change_ages = self._change_ages.copy()
            table._change_ages[changes] = table._age
            is_patched = self._index is not None and len(changes) <= _MAX_PATCHED_ROWS
            table._index = self._index.with_changes(old, new, changes) if self._index and is_patched else None
        return table

    def with_topologies(self, topologies: Topologies) -> "NodeTable":
        """Return a table of the same nodes with other topologies."""
        table = NodeTable(self.nodes, topologies)
        table._age, table._change_ages, table._masks = self._age, self._change_ages, dict(self._masks)
        table._index, table._pool_rows = self._index, self._pool_rows
        return table

    def suitable_rows(self, shape: Shape) -> Mask:
        """Return a mask of the rows whose labels and taints admit `shape`.

        Several threads use this method at the same time.
        """
        test = shape.suits
        entry = self._masks.pop(test.key, None)
        if entry is None or entry[0] != self._age:
            changed_rows = np.flatnonzero(self._change_ages > entry[0]) if entry is not None else _NO_ROWS
            if entry is not None and len(changed_rows) <= _MAX_PATCHED_ROWS and not test.is_large:
                mask = entry[1].copy()
                for row in changed_rows:
                    node = self.nodes[row]
                    mask[row] = node is not None and test(node.name, node.labels, node.taints)
            else:
                self._index = self._index or NodeIndex(self.nodes)
                mask = self._index.mask(test)
            entry = self._age, mask
            max_masks = _MAX_BYTES // (len(self.nodes) + 1)
            for old_key in tuple(self._masks)[: max_masks // 8 + 1] if len(self._masks) >= max_masks else ():
                self._masks.pop(old_key, None)
        self._masks[test.key] = entry  # the most recently used mask comes last
        return entry[1]

    def fits_when_empty(self) -> dict[frozenset[object], bool]:
        """Return the cached answers to whether gangs fit on empty nodes.

        A key is the count of a gang's pods by shape. Callers add answers. If there are more answers
        than the limit, the oldest are dropped.
        """
        for key in tuple(islice(self._fits_when_empty, max(len(self._fits_when_empty) - _MAX_ANSWERS, 0))):
            del self._fits_when_empty[key]
        return self._fits_when_empty

    def pool_rows(self, pools: Pools) -> PoolRows:
        """Return the rows of each pool. The result is the same object until a pool or its rows change."""
        entry = self._pool_rows
        if entry is None or entry.pools is not pools:
            self._index = self._index or (NodeIndex(self.nodes) if pools.all_pools else None)
            entry = self._pool_rows = PoolRows(pools, (self._index or NodeIndex()).part)
        return entry

    def selected_rows(self, selector: LabelSelector) -> Mask:
        """Return a mask of the rows that a selector selects; an empty selector selects no node."""
        self._index = self._index or NodeIndex(self.nodes)
        labels = [Requirement(key, "In", [value]) for key, value in (selector.match_labels or {}).items()]
        return self._index.rows_of_term(NodeSelectorTerm([*labels, *(selector.match_expressions or ())]))

    def has_value(self, key: str, value: str) -> bool:
        """Return whether any node has the label."""
        self._index = self._index or NodeIndex(self.nodes)
        return self._index.has_value(key, value)

    def has_label(self, key: str) -> bool:
        """Return whether any node has a label with this key."""
        self._index = self._index or NodeIndex(self.nodes)
        return self._index.has_label(key)

    def domains(self, topology_key: str) -> Rows:
        """Return for each row a number that stands for the node's value of a label; -1 without the label."""
        self._index = self._index or NodeIndex(self.nodes)
        return self._index.domains(topology_key)

    def domains_of_level(self, level: str) -> Rows:
        """Return for each row a number that stands for its domain of a level; -1 where a label is missing."""
        labels = self.topologies.levels_down_to(level)
        if len(labels) == 1:
            return self.domains(level)
        if level not in self._level_domains:
            domains = map(self.domains, labels) if labels else [np.zeros(len(self.nodes), np.int64)]
            self._level_domains[level] = reduce(_joint_domains, domains)
        return self._level_domains[level]

    def nested_domains(self, level: str, inner_level: str) -> tuple[Rows, Rows]:
        """Return the domains of `inner_level`, split where they cross the borders of domains of `level`.

        Returns:
            The domain of `level` that contains each split domain, and the split domain of each row; -1: none.
        """
        if (level, inner_level) not in self._nested_domains:
            outer_rows = self.domains_of_level(level)
            numbers = _joint_domains(outer_rows, self.domains_of_level(inner_level))
            outer_by_number = np.full(numbers.max(initial=-1) + 1, -1, np.int64)
            outer_by_number[numbers[numbers >= 0]] = outer_rows[numbers >= 0]
            self._nested_domains[level, inner_level] = outer_by_number, numbers
        return self._nested_domains[level, inner_level]

    def path_order(self, level: str) -> tuple[Rows, Rows]:
        """Return the rows ordered by the domains of their nodes, and the rank of each row.

        The order begins with the largest level of a topology.
        """
        if level not in self._path_orders:
            levels = [self.domains(label) for label in self.topologies.levels_with(level)]
            sorted_rows = np.lexsort((np.arange(len(self.nodes)), *levels[::-1]))
            ranks = np.zeros(len(self.nodes), np.int64)
            ranks[sorted_rows] = np.arange(len(self.nodes))
            self._path_orders[level] = sorted_rows, ranks
        return self._path_orders[level]


def _tier_of(level: str) -> int | None:
    """Return the tier number of a level of HyperNodes; None if the level is another node label."""
    number = level.removeprefix("tier:")
    return int(number) if number != level and is_count(number) else None


def _joint_domains(outer_rows: Rows, inner_rows: Rows) -> Rows:
    """Return for each row a number that stands for its pair of domains; -1 where one domain is missing."""
    has_both = (outer_rows >= 0) & (inner_rows >= 0)
    pairs = outer_rows[has_both] * (inner_rows.max(initial=-1) + 1) + inner_rows[has_both]
    numbers = np.full(len(outer_rows), -1, np.int64)
    numbers[has_both] = np.unique(pairs, return_inverse=True)[1]
    return numbers


def _suit_same_shapes(old: NodeRecord | None, new: NodeRecord | None) -> bool:
    """Return whether both nodes suit the same shapes of pods."""
    if old is None or new is None:
        return old is new
    return (old.name, old.labels, old.taints) == (new.name, new.labels, new.taints)
