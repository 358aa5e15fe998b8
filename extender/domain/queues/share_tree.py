"""The tree of queues as the division walks it: numbered nodes, level by level, and what each queue asks for.

The own groups of a queue that has others below it count as one more child of it, its seat.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from extender.api.keys import ROOT_QUEUE
from extender.domain.model.resources import Resources

Portion = npt.NDArray[np.float64]  # one number per resource
PortionRows = npt.NDArray[np.float64]  # one row per queue
Mask = npt.NDArray[np.bool_]
Nodes = npt.NDArray[np.intp]
TOP = 0  # the node of root


class QueueDemand(msgspec.Struct, frozen=True, gc=False):
    """What the division needs to know of a queue."""

    name: str
    weight: int  # at least 1
    request: Resources  # what its own groups hold and wait for
    capability: Resources | None = None  # the most that it and those below it may hold; None: it names none
    guarantee: Resources = {}  # kept for it even if it does not take part
    groups: bool = True  # whether it has groups, and so takes part
    parent: str = ""  # the queue above it; root where there is none of that name
    deserved: Resources | None = None  # what it deserves before the rest is divided; None: it names nothing
    borrowing_limit: Resources | None = None  # the most above what it deserves; None: no limit
    lending_limit: Resources | None = None  # the most of `deserved` that others may use; None: all
    oversell: float = 1.0  # so many times its capability may be held


def dimensions_of(total: Resources, demands: Iterable[QueueDemand]) -> list[str]:
    """The resources to be divided: those of the cluster and of guarantees. No queue deserves any other."""
    return sorted(set(total).union(*(demand.guarantee for demand in demands)))


def put_row(
    rows: PortionRows, row: int, amounts: Mapping[str, float], names: Sequence[str], otherwise: float = 0.0
) -> None:
    """Write the amounts of a queue into its row; `otherwise` for those that it does not name."""
    rows[row] = [amounts.get(name, otherwise) for name in names] if amounts else otherwise


def sums_by_parent(rows: PortionRows, of: Nodes, parents: int) -> PortionRows:
    """The sum of the rows of each parent."""
    columns = rows.shape[1]
    cells = (of[:, None] * columns + np.arange(columns)).ravel()
    sums = np.bincount(cells, rows.ravel(), parents * columns)
    return sums.astype(np.float64).reshape(parents, columns)


class ShareTree:
    """Nodes are numbered breadth first, so that those of one level, and the children of one node, are next to
    each other. A queue whose parent is missing, or that lies on or below a cycle, is put directly below root.
    """

    def __init__(self, parents: Mapping[str, str]) -> None:
        """`parents`: the name of the queue above each; root need not be among them."""
        self.queues: list[str] = []  # the queue of each node
        self.parents: list[int] = []  # the node above each; that of root is itself
        self.node: dict[str, int] = {}  # the node of a queue
        self.seat: dict[str, int] = {}  # the node at which a queue's own groups count
        self.levels: list[Nodes] = []  # the nodes of each level, from root on
        self._first: list[int] = []
        self._end: list[int] = []
        self._paths: dict[str, list[int]] = {}
        # By name; every queue is reached from root.
        below = _grouped(parents)
        reached, left = {ROOT_QUEUE}, [ROOT_QUEUE]
        while left:
            more = below.get(left.pop(), ())
            reached.update(more)
            left += more
        lost = parents.keys() - reached
        if lost:
            below = _grouped({**parents, **dict.fromkeys(lost, ROOT_QUEUE)})
        level = [self._add(ROOT_QUEUE, TOP)]
        while level:
            self.levels.append(np.array(level, dtype=np.intp))
            level = [child for node in level for child in self._add_children(node, below)]

    def __len__(self) -> int:
        return len(self.queues)

    def children(self, nodes: Sequence[int] | Nodes) -> tuple[Nodes, Nodes]:
        """The children of `nodes`, which all have some, and the position of each one's parent."""
        first, end = np.asarray(self._first)[nodes], np.asarray(self._end)[nodes]
        rows = np.concatenate([np.arange(one, other) for one, other in zip(first, end, strict=True)])
        return rows, np.repeat(np.arange(len(first)), end - first)

    def has_children(self, node: int) -> bool:
        return self._end[node] > self._first[node]

    def is_seat(self, node: int) -> bool:
        """Whether a node stands for the own groups of a queue that has others below it."""
        return self.node[self.queues[node]] != node

    def path(self, queue: str) -> list[int]:
        """From the seat of a queue up to root."""
        if queue not in self._paths:
            self._paths[queue] = self._up(self.seat[queue])
        return self._paths[queue]

    def parent_of(self, queue: str) -> str:
        """The queue above; empty for root."""
        node = self.node[queue]
        return "" if node == TOP else self.queues[self.parents[node]]

    def ancestry(self, queue: str) -> list[str]:
        """A queue and those above it, root included."""
        return [self.queues[node] for node in self._up(self.node[queue])]

    def _up(self, node: int) -> list[int]:
        path = [node]
        while path[-1] != TOP:
            path.append(self.parents[path[-1]])
        return path

    def _add(self, queue: str, parent: int) -> int:
        node = len(self.queues)
        self.queues.append(queue)
        self.parents.append(parent)
        self._first.append(0)
        self._end.append(0)
        self.seat[queue] = node
        self.node.setdefault(queue, node)
        return node

    def _add_children(self, node: int, below: Mapping[str, Sequence[str]]) -> list[int]:
        queue = self.queues[node]
        names = () if self.is_seat(node) else below.get(queue, ())
        if not names and node != TOP:
            return []
        added = [self._add(name, node) for name in (queue, *names)]
        self._first[node], self._end[node] = added[0], added[-1] + 1
        return added


def _grouped(parents: Mapping[str, str]) -> dict[str, list[str]]:
    below: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(parents):
        if name != ROOT_QUEUE:
            below[parents[name] if parents[name] in parents else ROOT_QUEUE].append(name)
    return below
