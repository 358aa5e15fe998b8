"""Capacity of nodes and its free part, with a row per node and a column per offered resource."""

import itertools
from collections import Counter
from collections.abc import Iterable
from typing import Protocol
from weakref import WeakKeyDictionary

import numpy as np

from extender.domain.ledger.affinity import HostPorts, Terms
from extender.domain.model.records import PodRecord
from extender.domain.model.resources import CPU, MEMORY, PODS, Resources, add_times
from extender.domain.model.selectors import Labels
from extender.domain.model.shapes import Shape
from extender.domain.snapshot.nodes import AmountRows, Mask, NodeRecord, NodeTable, Rows, Topologies
from extender.domain.snapshot.snapshot import Occupancy


class NodeSums:
    """Sums of the claims on one node, by resource and without zeros.

    Python's integers have no limit, so removing a claim subtracts exactly what the claim added. The arrays
    for decide() are made from these sums, and are limited to 64 bits.

    Attributes:
        fixed: The amounts of fixed claims.
        planned: The amounts of planned claims.
        reserved: The amounts that are being reclaimed for groups.
    """

    __slots__ = ("fixed", "planned", "reserved")

    def __init__(self) -> None:
        self.fixed: dict[str, int] = {}
        self.planned: dict[str, int] = {}
        self.reserved: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self.fixed or self.planned or self.reserved)

    def claimed(self, name: str) -> int:
        """Return the amount of a resource in fixed and planned claims."""
        return self.fixed.get(name, 0) + self.planned.get(name, 0)


_PERMANENT_NAMES = (CPU, MEMORY, PODS)
_MIN_AMOUNT = -(2**60)  # lower limit of free amounts, far below any real shortage, and safe in 64 bits


class ResourceColumns:
    """Arrays over all nodes, with a row per node and a column per offered resource. Vacant rows are zero.

    Pods never add columns.

    Attributes:
        names: The resources of the columns.
        allocatable: The allocatable amounts of nodes.
        capacity: The allocatable amounts without fixed claims.
        free: The allocatable amounts without all claims.
    """

    def __init__(self) -> None:
        self.names: tuple[str, ...] = _PERMANENT_NAMES
        self.allocatable: AmountRows = np.zeros((0, len(_PERMANENT_NAMES)), dtype=np.int64)
        self.capacity: AmountRows = self.allocatable.copy()
        self.free: AmountRows = self.allocatable.copy()
        self._column_by_name = {name: column for column, name in enumerate(self.names)}
        # Number of nodes that offer a resource, plus one for resources that always have a column.
        self._node_counts: Counter[str] = Counter(_PERMANENT_NAMES)

    def clear(self, row: int) -> None:
        """Set the amounts of a row to zero."""
        for matrix in (self.allocatable, self.capacity, self.free):
            matrix[row] = 0

    def update_names(self, old: Iterable[str], new_names: Iterable[str]) -> bool:
        """Record the names of the resources that a node offered before and offers now.

        Return whether columns changed. New columns are zero.
        """
        new_names, old = tuple(new_names), tuple(old)  # a Counter would add the amounts of a mapping
        self._node_counts.update(new_names)
        self._node_counts.subtract(old)
        if len(self._node_counts) == len(self.names) and all(self._node_counts[name] for name in old):
            return False
        self._node_counts = +self._node_counts
        old_names = [name for name in self.names if name in self._node_counts]
        new = [name for name in self._node_counts if name not in self._column_by_name]
        self.rebuild(len(self.capacity), (*old_names, *new))
        return True

    def write(self, row: int, name: str, offers: int, fixed_amount: int, planned_amount: int) -> None:
        """Set the allocatable and claimed amounts of a node. Names without a column are ignored."""
        column = self._column_by_name.get(name)
        if column is not None:
            self.allocatable[row, column] = offers
            self.capacity[row, column] = max(offers - fixed_amount, _MIN_AMOUNT)
            self.free[row, column] = max(offers - fixed_amount - planned_amount, _MIN_AMOUNT)

    def columns_of(self, requests: Resources) -> tuple[Rows, AmountRows] | None:
        """Return the columns and the amounts of a request.

        None means that a resource has no column, so that the request fits on no node.
        """
        columns = [self._column_by_name.get(name) for name in requests]
        if None in columns:
            return None
        return np.array(columns, dtype=np.int64), np.array(list(requests.values()), dtype=np.int64)

    def rebuild(self, row_count: int, names: tuple[str, ...]) -> None:
        """Set the number of rows and the names of the columns.

        Known amounts stay, and new amounts are zero.
        """
        old_columns = [self._column_by_name[name] for name in names if name in self._column_by_name]
        for name in ("allocatable", "capacity", "free"):  # old columns come first, new ones are zero
            matrix, new_matrix = getattr(self, name), np.zeros((row_count, len(names)), dtype=np.int64)
            new_matrix[: len(matrix), : len(old_columns)] = matrix[:, old_columns]
            setattr(self, name, new_matrix)
        self.names = names
        self._column_by_name = {name: column for column, name in enumerate(names)}


_NO_SUMS = NodeSums()


class CountedClaim(Protocol):
    """Facts about a claim that the capacity of nodes counts."""

    @property
    def pod(self) -> PodRecord: ...
    @property
    def node(self) -> str: ...
    @property
    def is_fixed(self) -> bool: ...


class NodeCapacity:
    """Capacity of nodes, and its free part. An event costs one row.

    Unknown nodes have sums, too, so that claims on them count as soon as the node appears.
    """

    def __init__(self) -> None:
        self._columns = ResourceColumns()
        self._stale_rows: set[int] = set()  # rows to update from their nodes and sums
        self.epochs: dict[str, int] = {}  # by node: counter of its changes and of bound pods that left
        self._epochs = itertools.count(1)
        self._sums: dict[str, NodeSums] = {}  # sums of claims by node
        self._unavailable_amounts: dict[str, Resources] = {}  # offered amounts that no pod can get, by node
        self._nodes: list[NodeRecord | None] = []  # nodes by row; None for a vacant row
        self._row_by_node: dict[str, int] = {}  # row of each node
        self._vacant_rows: list[int] = []  # vacant rows
        self._changed_rows: set[int] = set()  # rows that changed since the last table
        self._table = NodeTable()
        self._request_columns: WeakKeyDictionary[Shape, tuple[Rows, AmountRows] | None] = WeakKeyDictionary()
        self._ports = HostPorts()
        self.terms = Terms()

    def set_node(self, node: NodeRecord) -> bool:
        """Record a node. Return whether it has changed."""
        row = self._row_by_node.get(node.name)
        old_node = self._nodes[row] if row is not None else None
        if old_node == node:
            return False
        if row is None:
            if not self._vacant_rows:
                self._vacant_rows = list(range(len(self._nodes) * 2 + 15, len(self._nodes) - 1, -1))
                self._nodes += [None] * len(self._vacant_rows)
                self._columns.rebuild(len(self._nodes), self._columns.names)
            row = self._row_by_node[node.name] = self._vacant_rows.pop()
        self._nodes[row] = node
        self._record_offer(old_node, node)
        self._stale_rows.add(row)
        self._record_change(row, node.name)
        return True

    def drop_node(self, name: str) -> None:
        """Remove a node. Its row becomes vacant."""
        row = self._row_by_node.pop(name, None)
        if row is None:
            return
        old_node, self._nodes[row] = self._nodes[row], None
        self._vacant_rows.append(row)
        self._stale_rows.discard(row)
        self._columns.clear(row)
        self._record_offer(old_node, None)
        self._record_change(row, name)
        self.epochs.pop(name, None)

    @property
    def columns(self) -> ResourceColumns:
        """Return the columns, after an update of all changed rows.

        Rows are updated only when they are read, because the claims of a gang change the same nodes one by
        one.
        """
        for row in self._stale_rows:
            self._write_row(row)
        self._stale_rows.clear()
        return self._columns

    def table(self) -> NodeTable:
        """Return the table of all nodes."""
        if self._changed_rows:
            self._table = self._table.with_changes(self._nodes, self._changed_rows)
            self._changed_rows = set()
        return self._table

    def set_topologies(self, topologies: Topologies) -> None:
        self._table = self.table().with_topologies(topologies)

    def has_node(self, node: str) -> bool:
        return node in self._row_by_node

    def row(self, node: str) -> int | None:
        return self._row_by_node.get(node)

    def node(self, name: str) -> NodeRecord | None:
        row = self._row_by_node.get(name)
        return self._nodes[row] if row is not None else None

    def labels(self, node: str) -> Labels | None:
        record = self.node(node)
        return record.labels if record is not None else None

    def domain(self, node: str, level: str) -> tuple[str | None, ...]:
        """Return the domain of a level that contains a node."""
        labels = self.labels(node) or {}
        return tuple(map(labels.get, self._table.topologies.levels_down_to(level)))

    def add(self, claim: CountedClaim, sign: int) -> None:
        """Add a claim to its node, or remove it (`sign` is -1).

        No pod can make this method raise an error.
        """
        shape, node, is_fixed = claim.pod.shape, claim.node, claim.is_fixed
        self._add_to_sums(node, "fixed" if is_fixed else "planned", shape.requests, sign)
        if shape.constraints.ports:
            self._ports.add(node, shape.constraints.ports, is_fixed, sign)
        if is_fixed:
            self.terms.add(claim.pod, node, sign)

    def reserve(self, node: str, amounts: Resources, times: int = 1) -> None:
        """Reserve reclaimed capacity on a node, or free it (`times` is -1)."""
        self._add_to_sums(node, "reserved", amounts, times)

    def set_unavailable(self, node: str, amounts: Resources) -> None:
        """Record the offered amounts that no pod can get on a node, besides the claims of pods."""
        self._add_to_sums(node, "fixed", self._unavailable_amounts.pop(node, {}), times=-1)
        if amounts:
            self._unavailable_amounts[node] = amounts
            self._add_to_sums(node, "fixed", amounts, times=1)

    def forget_refusals(self, node: str) -> None:
        """Forget the scheduler's refusals on a node, because pods may fit there now."""
        if node in self._row_by_node:
            self.epochs[node] = next(self._epochs)

    def fits(self, pod: PodRecord, node: str, claim: CountedClaim | None = None) -> bool:
        """Return whether a pod fits on a node beside all other claims. Planned claims count, too.

        Args:
            pod: The pod.
            node: The node.
            claim: The claim of the pod, if it has one.
        """
        if node not in self._row_by_node:
            return False
        idle, own_shape = self.idle(node), claim.pod.shape if claim and claim.node == node else None
        reserved_amounts = self._sums.get(node, _NO_SUMS).reserved  # a planned claim there already counts it
        credit = own_shape.requests if own_shape else {name: -n for name, n in reserved_amounts.items()}
        if any(n > idle.get(name, 0) + credit.get(name, 0) for name, n in pod.shape.requests.items()):
            return False
        own_ports = own_shape.constraints.ports if own_shape is not None else ()
        return not self._ports.conflicts(node, pod.shape.constraints.ports, own_ports)

    def rows_that_fit(self, pod: PodRecord, claim: CountedClaim | None = None) -> Mask:
        """Return a mask of the rows where a pod fits beside all other claims, by amounts only."""
        shape = pod.shape
        if shape not in self._request_columns:
            self._request_columns[shape] = self.columns.columns_of(shape.requests)
        columns_and_amounts = self._request_columns[shape]
        if columns_and_amounts is None:
            return np.zeros(len(self._nodes), dtype=np.bool_)
        columns, amounts = columns_and_amounts
        fits: Mask = np.all(self.columns.free[:, columns] >= amounts, axis=1)
        if claim is not None and (row := self._row_by_node.get(claim.node)) is not None:
            fits[row] = self.fits(pod, claim.node, claim)
        return fits

    def idle(self, node: str) -> dict[str, int]:
        """Return a node's amounts without all claims. An amount is negative if the node is overcommitted."""
        sums = self._sums.get(node, _NO_SUMS)
        return {name: offers - sums.claimed(name) for name, offers in self._allocatable_of(node).items()}

    def fullness(self, pod: PodRecord, node: str, claim: CountedClaim | None = None) -> float:
        """Return the used part of the scarcest resource of a node with the pod on it, from 0 to 1."""
        offers, sums = self._allocatable_of(node), self._sums.get(node, _NO_SUMS)
        times = 0 if claim is not None and claim.node == node else 1
        requests = pod.shape.requests.items()
        parts = ((sums.claimed(name) + times * n) / offers[name] for name, n in requests if offers.get(name))
        return min(max(parts, default=0.0), 1.0)

    def is_overcommitted(self, node: str, pod: PodRecord) -> bool:
        """Return whether fixed claims exceed the node's amount of any resource that the pod requests.

        Other shortages, such as a device that vanished under running pods, do not concern the pod.
        """
        if node not in self._row_by_node:
            return True
        offers, sums = self._allocatable_of(node), self._sums.get(node, _NO_SUMS)
        return any(sums.fixed.get(name, 0) > offers.get(name, 0) for name in pod.shape.requests)

    def is_suitable(self, pod: PodRecord, node: str) -> bool:
        """Return whether the labels and taints of a node suit a pod."""
        row = self._row_by_node.get(node)
        return row is not None and bool(self.table().suitable_rows(pod.shape)[row])

    def occupancy(self) -> Occupancy:
        """Return a copy of the occupancy: host ports and terms in use, which concern few nodes."""
        terms = self.terms
        selected, carriers = terms.selected_counts(), terms.anti_affinity_nodes()
        return Occupancy(self._ports.fixed_ports(), selected, carriers, terms.index(), terms.namespace_count)

    def follow_terms(self, pod: PodRecord, old_record: PodRecord | None = None) -> None:
        """Begin to count the pods that the terms of `pod` select.

        If `pod` has another scheduler, only terms that keep member pods away count.
        """
        if pod.group:
            self.terms.follow(pod)
            return
        if old_record is not None and (old_record.group or not pod.holds_capacity):
            self.terms.unfollow(pod.uid)
        if pod.holds_capacity:
            self.terms.follow_other(pod)

    def _add_to_sums(self, node: str, field: str, amounts: Resources, times: int) -> None:
        """Add amounts to one field of a node's sums, or subtract them (`times` is -1)."""
        sums = self._sums.get(node)
        if sums is None:
            sums = self._sums[node] = NodeSums()
        add_times(getattr(sums, field), amounts, times)
        if times < 0 and not sums:
            del self._sums[node]
        if (row := self._row_by_node.get(node)) is not None:
            self._stale_rows.add(row)

    def _record_offer(self, old: NodeRecord | None, new: NodeRecord | None) -> None:
        """Record the resources that a node offers. If columns change, all rows are computed again."""
        if self._columns.update_names(old.allocatable if old else (), new.allocatable if new else ()):
            self._request_columns.clear()
            self._stale_rows.update(self._row_by_node.values())

    def _write_row(self, row: int) -> None:
        """Update a row from its node and the node's sums."""
        node = self._nodes[row]
        assert node is not None
        sums = self._sums.get(node.name, _NO_SUMS)
        for name in self._columns.names:
            offers, fixed_amount = node.allocatable.get(name, 0), sums.fixed.get(name, 0)
            planned_amount = sums.planned.get(name, 0) + sums.reserved.get(name, 0)
            self._columns.write(row, name, offers, fixed_amount, planned_amount)

    def _record_change(self, row: int, name: str) -> None:
        """Record that a row has changed, which also ends refusals on the node."""
        self._changed_rows.add(row)
        self.forget_refusals(name)

    def _allocatable_of(self, node: str) -> Resources:
        record = self.node(node)
        return record.allocatable if record is not None else {}
