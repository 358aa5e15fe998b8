"""The nodes by row, and which of them suit a shape.

A NodeTable is immutable. When labels or taints change, `with_changes` makes a new one that keeps what the old
one has computed and patches only the changed rows: a node event costs one row of each mask in use.
"""

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from extender.api.objects.cluster import Taint
from extender.domain.model.resources import Resources
from extender.domain.model.selectors import Labels
from extender.domain.model.shapes import NodeTest, Shape

AmountRows = npt.NDArray[np.int64]  # amounts: one row per node, one column per resource
Mask = npt.NDArray[np.bool_]  # one truth value per row
Rows = npt.NDArray[np.int64]  # row numbers, or one number per row
_MOST_MASKS = 512  # beyond this, most belong to shapes long gone; those in use are soon computed again
_MOST_SHAPES = 4096
_MOST_GANGS = 16384


class NodeRecord(msgspec.Struct, frozen=True, gc=False):
    """What the planner needs to know of a node."""

    name: str
    labels: Labels
    taints: tuple[Taint, ...]  # including that of a cordon
    allocatable: Resources  # rounded down


class NodeTable:
    """Names, labels and taints by row; rows of nodes that are gone hold None and suit no pod."""

    def __init__(self, nodes: Sequence[NodeRecord | None] = ()) -> None:
        self.nodes = tuple(nodes)
        self.row = {node.name: row for row, node in enumerate(self.nodes) if node}
        self._masks: dict[object, tuple[NodeTest, Mask]] = {}
        self._domains: dict[str, npt.NDArray[np.int64]] = {}
        self._most: dict[Shape, int] = {}
        self._standing_alone: dict[frozenset[tuple[Shape, int]], bool] = {}

    def with_changes(self, nodes: Sequence[NodeRecord | None], rows: Iterable[int]) -> "NodeTable":
        """The table of `nodes`, which differ from this table's only in `rows`."""
        table, changed = NodeTable(nodes), tuple(rows)
        if len(self._masks) > _MOST_MASKS:
            return table
        for key, (test, mask) in tuple(self._masks.items()):  # decide() may add to them meanwhile
            patched = np.zeros(len(table.nodes), dtype=np.bool_)
            patched[: len(mask)] = mask
            for row in changed:
                patched[row] = table._suits(test, row)
            table._masks[key] = (test, patched)
        return table

    def suitable(self, shape: Shape) -> Mask:
        """Which rows' labels and taints admit `shape`."""
        known = self._masks.get(shape.suits.key)
        if known is None:
            admits, mask = shape.suits, np.zeros(len(self.nodes), np.bool_)
            for row, node in enumerate(self.nodes):
                if node is not None and admits(node.name, node.labels, node.taints):
                    mask[row] = True
            known = self._masks[shape.suits.key] = (admits, mask)
        return known[1]

    def most(self) -> dict[Shape, int]:
        """How many pods of each shape all empty nodes hold, as far as known; callers add to it."""
        if len(self._most) > _MOST_SHAPES:
            self._most.clear()
        return self._most

    def standing_alone(self) -> dict[frozenset[tuple[Shape, int]], bool]:
        """Whether so many of these shapes fit alone, as far as known; callers add to it."""
        if len(self._standing_alone) > _MOST_GANGS:
            self._standing_alone.clear()
        return self._standing_alone

    def domains(self, topology_key: str) -> npt.NDArray[np.int64]:
        """For each row a number that stands for the node's value of a label, -1 if the node lacks it."""
        if topology_key not in self._domains:
            numbers: dict[str, int] = {}
            values = [node.labels.get(topology_key) if node else None for node in self.nodes]
            codes = [-1 if value is None else numbers.setdefault(value, len(numbers)) for value in values]
            self._domains[topology_key] = np.array(codes, dtype=np.int64)
        return self._domains[topology_key]

    def _suits(self, test: NodeTest, row: int) -> bool:
        node = self.nodes[row]
        return node is not None and test(node.name, node.labels, node.taints)
