"""What nodes offer and what is left of it: one row a node, one column a resource, summed up incrementally.

`room` is what pinned claims leave, `free` what planned ones leave too. An event costs one row.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np

from extender.domain.cache.affinity_terms import Terms
from extender.domain.model.records import PodRecord
from extender.domain.model.shapes import HostPort, Shape, clashing
from extender.domain.snapshot.nodes import Amounts, Dimensions, Mask, NodeRecord, NodeTable, widened
from extender.domain.snapshot.snapshot import Occupancy


class Taker(Protocol):
    """A claim as the counting sees it."""

    @property
    def pod(self) -> PodRecord: ...
    @property
    def node(self) -> str: ...
    @property
    def pinned(self) -> bool: ...


class NodeCapacity:
    """`on_node`: the claims on a node, for when its row has to be summed up anew."""

    def __init__(self, on_node: Callable[[str], Iterable[Taker]]) -> None:
        self.dimensions = Dimensions()
        self.room: Amounts = np.zeros((0, len(self.dimensions)), dtype=np.int64)
        self.free: Amounts = self.room.copy()
        self.allocatable: Amounts = self.room.copy()
        self.epochs: dict[str, int] = {}  # by node: moves on when it changes or a bound pod leaves it
        self._on_node = on_node
        self._nodes: list[NodeRecord | None] = []
        self._row: dict[str, int] = {}
        self._vacant: list[int] = []
        self._changed_rows: set[int] = set()
        self._table = NodeTable()
        self._vectors: dict[Shape, Amounts] = {}
        self._ports: dict[str, Counter[HostPort]] = {}
        self._terms = Terms()

    # ---- nodes

    def set_node(self, node: NodeRecord) -> bool:
        """True when anything that matters changed."""
        row = self._row.get(node.name)
        if row is not None and self._nodes[row] == node:
            return False
        self._admit(node.allocatable.keys())
        row = self._new_row(node.name) if row is None else row
        self._nodes[row] = node
        self._changed_rows.add(row)
        self._recount(row)
        self.touch(node.name)
        return True

    def drop_node(self, name: str) -> None:
        row = self._row.pop(name, None)
        if row is None:
            return
        self._nodes[row] = None
        self._vacant.append(row)
        self._changed_rows.add(row)
        self._recount(row)
        self.touch(name)

    def table(self) -> NodeTable:
        if self._changed_rows:
            self._table = self._table.with_changes(self._nodes, self._changed_rows)
            self._changed_rows = set()
        return self._table

    def knows(self, node: str) -> bool:
        return node in self._row

    def row(self, node: str) -> int | None:
        return self._row.get(node)

    # ---- counting

    def count(self, claim: Taker, times: int) -> None:
        """A claim comes to its node, or leaves it with -1 times."""
        self._count_room(claim, times)
        if claim.pinned:
            self._count_ports(claim, times)
            self._terms.count(claim.pod, claim.node, times)

    def touch(self, node: str) -> None:
        """What the scheduler refused on a node may fit there now."""
        self.epochs[node] = self.epochs.get(node, 0) + 1

    # ---- asking

    def fits(self, pod: PodRecord, node: str, own: Taker | None = None) -> bool:
        """Whether `pod`, whose claim is `own`, may stand on `node` beside all others, planned ones too."""
        row = self._row.get(node)
        if row is None:
            return False
        left = self.free[row] + self._vector(own.pod.shape) if own and own.node == node else self.free[row]
        asked = self._vector(pod.shape)
        return not np.any((asked > 0) & (asked > left)) and not self._port_taken(pod, node)

    def rows_that_fit(self, pod: PodRecord, own: Taker | None = None) -> Mask:
        """For every row whether `pod` fits by amounts beside all other claims."""
        asked = self._vector(pod.shape)
        columns = np.flatnonzero(asked)
        fits: Mask = np.all(self.free[:, columns] >= asked[columns], axis=1)
        if own is not None and (row := self._row.get(own.node)) is not None:
            fits[row] = self.fits(pod, own.node, own)
        return fits

    def idle(self, node: str) -> dict[str, int]:
        """What all claims together leave on a node."""
        return self.dimensions.mapping(self.free[self._row[node]])

    def fullness(self, pod: PodRecord, node: str, own: Taker | None = None) -> float:
        """The part of the scarcest resource on a node that would be taken with `pod` on it, 0 … 1."""
        row = self._row.get(node)
        if row is None:
            return 0.0
        asked, there = self._vector(pod.shape), self.allocatable[row]
        columns = np.flatnonzero((asked > 0) & (there > 0))
        taken = asked if own is None or own.node != node else 0 * asked
        left = (self.free[row] - taken)[columns] / there[columns]
        return float(np.clip(1.0 - left, 0.0, 1.0).max(initial=0.0))

    def overcommitted(self, node: str, pod: PodRecord) -> bool:
        """Whether pinned claims take more of a node than it has, in anything that `pod` asks for. What else a
        node lacks (a device that vanished under running pods) is not of the pod's making, nor in its way."""
        row = self._row.get(node)
        return row is None or bool(np.any(self.room[row, self._vector(pod.shape) > 0] < 0))

    def suits(self, pod: PodRecord, node: str) -> bool:
        row = self._row.get(node)
        return row is not None and bool(self.table().suitable(pod.shape)[row])

    def occupancy(self) -> Occupancy:
        """A copy: of the few nodes with host ports, and of the few terms in use."""
        ports = {node: dict(taken) for node, taken in self._ports.items()}
        return Occupancy(ports, *self._terms.copies())

    def watch_terms(self, pod: PodRecord, claims: Iterable[Taker]) -> None:
        """Count from now on those of `claims` that the terms of `pod` select."""
        if pod.shape.terms:
            self._terms.watch(pod, ((claim.pod, claim.node) for claim in claims if claim.pinned))

    def unwatch_terms(self, pod: PodRecord) -> None:
        self._terms.unwatch(pod)

    def keep_only(self, used: set[Shape]) -> None:
        """Forget what was worked out for shapes that no pod has any more."""
        self._vectors = {shape: vector for shape, vector in self._vectors.items() if shape in used}

    # ---- inside

    def _new_row(self, name: str) -> int:
        if not self._vacant:
            self._vacant = list(range(len(self._nodes) * 2 + 15, len(self._nodes) - 1, -1))
            self._nodes += [None] * len(self._vacant)
            self._widen()
        self._row[name] = self._vacant.pop()
        return self._row[name]

    def _admit(self, names: Iterable[str]) -> None:
        if self.dimensions.admit(names):
            self._vectors.clear()
            self._widen()

    def _widen(self) -> None:
        size = (len(self._nodes), len(self.dimensions))
        self.room, self.free = widened(self.room, *size), widened(self.free, *size)
        self.allocatable = widened(self.allocatable, *size)

    def _recount(self, row: int) -> None:
        """Work out a row anew: its node came, went or changed what it offers."""
        node = self._nodes[row]
        self.allocatable[row] = self.dimensions.vector(node.allocatable) if node else 0
        self.room[row] = self.allocatable[row]
        self.free[row] = self.allocatable[row]
        for claim in self._on_node(node.name) if node else ():
            self._count_room(claim, 1)

    def _count_room(self, claim: Taker, times: int) -> None:
        vector = self._vector(claim.pod.shape) * times
        row = self._row.get(claim.node)
        if row is not None:
            self.free[row] -= vector
            if claim.pinned:
                self.room[row] -= vector

    def _count_ports(self, claim: Taker, times: int) -> None:
        for port in claim.pod.shape.constraints.ports:
            self._ports.setdefault(claim.node, Counter())[port] += times
        ports = self._ports.get(claim.node)
        if ports is not None and not +ports:
            del self._ports[claim.node]

    def _vector(self, shape: Shape) -> Amounts:
        vector = self._vectors.get(shape)
        if vector is None:
            self._admit(shape.requests.keys())
            vector = self._vectors[shape] = self.dimensions.vector(shape.requests)
        return vector

    def _port_taken(self, pod: PodRecord, node: str) -> bool:
        ports = pod.shape.constraints.ports
        others = (
            claim.pod.shape.constraints.ports for claim in self._on_node(node) if claim.pod.uid != pod.uid
        )
        return bool(ports) and any(clashing(ports, Counter(taken)) for taken in others)
