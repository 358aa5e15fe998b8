"""Tree of queues for the division: numbered nodes, level by level, with the requests and limits of each.

The own groups of a queue with children count as one more child, its seat. `Specified` has the limits and
reserved amounts from which `deserved` divides.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import inf

import msgspec
import numpy as np
import numpy.typing as npt

from extender.api.keys import ROOT_QUEUE
from extender.domain.model.resources import CPU, MEMORY, Resources, show

Portion = npt.NDArray[np.float64]  # one number per resource
PortionRows = npt.NDArray[np.float64]  # one row per queue
Mask = npt.NDArray[np.bool_]
Nodes = npt.NDArray[np.intp]
TOP = 0  # the node of root


class QueueDemand(msgspec.Struct, frozen=True, gc=False):
    """Demand of a queue, as far as the division uses it."""

    name: str
    weight: int  # at least 1
    request: Resources  # allocated and waiting requests of its own groups
    capability: Resources | None = None  # the most that it and those below it may hold; None: it names none
    guarantee: Resources = {}  # reserved for it even if it takes no part
    groups: bool = True  # whether it has groups, and so takes part
    parent: str = ""  # the queue above it; root where there is none of that name
    deserved: Resources | None = None  # specified deserved amounts, divided first; None: none
    borrowing_limit: Resources | None = None  # the most above what it deserves; None: no limit
    lending_limit: Resources | None = None  # the most of `deserved` that others may use; None: all
    oversell: float = 1.0  # factor of the capability that may be allocated


def dimensions_of(total: Resources, demands: Iterable[QueueDemand]) -> list[str]:
    """Return the resources to divide: those of the cluster and of guarantees. No queue deserves any other."""
    return sorted(set(total).union(*(demand.guarantee for demand in demands)))


def put_row(
    rows: PortionRows, row: int, amounts: Mapping[str, float], names: Sequence[str], otherwise: float = 0.0
) -> None:
    """Write the amounts of a queue into its row; `otherwise` stands for absent ones."""
    rows[row] = [amounts.get(name, otherwise) for name in names] if amounts else otherwise


def sums_by_parent(rows: PortionRows, parent_index: Nodes, parents: int) -> PortionRows:
    """Return the sum of the rows of each parent."""
    columns = rows.shape[1]
    cells = (parent_index[:, None] * columns + np.arange(columns)).ravel()
    sums = np.bincount(cells, rows.ravel(), parents * columns)
    return sums.astype(np.float64).reshape(parents, columns)


class ShareTree:
    """Tree of queues with numbered nodes, breadth first.

    The nodes of one level, and the children of one node, are next to each other. A queue whose parent is
    missing, or that lies on or below a cycle, is put directly below root.
    """

    def __init__(self, parents: Mapping[str, str]) -> None:
        """Build the tree. `parents`: the name of the queue above each; root may be absent."""
        self.queues: list[str] = []  # the queue of each node
        self.parents: list[int] = []  # the node above each; that of root is itself
        self.node: dict[str, int] = {}  # the node of a queue
        self.leaf: dict[str, int] = {}  # the node at which a queue's own groups count
        self.levels: list[Nodes] = []  # the nodes of each level, from root on
        self._first: list[int] = []
        self._end: list[int] = []
        self._paths: dict[str, list[int]] = {}
        # By name; every queue is reached from root.
        below = _grouped(parents)
        reached, unvisited = {ROOT_QUEUE}, [ROOT_QUEUE]
        while unvisited:
            more = below.get(unvisited.pop(), ())
            reached.update(more)
            unvisited += more
        lost = parents.keys() - reached
        if lost:
            below = _grouped({**parents, **dict.fromkeys(lost, ROOT_QUEUE)})
        level = [self._add(ROOT_QUEUE, TOP)]
        while level:
            self.levels.append(np.array(level, dtype=np.intp))
            level = [child for node in level for child in self._add_children(node, below)]
        self._bounds = np.array([self._first, self._end], dtype=np.intp)  # first and last child of each node

    def __len__(self) -> int:
        return len(self.queues)

    def children(self, nodes: Sequence[int] | Nodes) -> tuple[Nodes, Nodes]:
        """Return the children of `nodes`, which all have some, and the position of each one's parent."""
        first, end = self._bounds[:, nodes]
        rows = np.concatenate([np.arange(one, other) for one, other in zip(first, end, strict=True)])
        return rows, np.repeat(np.arange(len(first)), end - first)

    def has_children(self, node: int) -> bool:
        return self._end[node] > self._first[node]

    def is_extra_leaf(self, node: int) -> bool:
        """Return whether a node stands for the own groups of a queue that has others below it."""
        return self.node[self.queues[node]] != node

    def path(self, queue: str) -> list[int]:
        """Return the rows from the seat of a queue up to root."""
        if queue not in self._paths:
            self._paths[queue] = self._up(self.leaf[queue])
        return self._paths[queue]

    def parent_of(self, queue: str) -> str:
        """Return the queue above; empty for root."""
        node = self.node[queue]
        return "" if node == TOP else self.queues[self.parents[node]]

    def ancestry(self, queue: str) -> list[str]:
        """Return a queue and those above it, root included."""
        return [self.queues[node] for node in self._up(self.node[queue])]

    def _up(self, node: int) -> list[int]:
        path = [node]
        while path[-1] != TOP:
            path.append(self.parents[path[-1]])
        return path

    def _add(self, queue: str, parent: int) -> int:
        """Add a node of a queue; return its number. The last one of a queue is its leaf."""
        node = len(self.queues)
        self.queues.append(queue)
        self.parents.append(parent)
        self._first.append(0)
        self._end.append(0)
        self.leaf[queue] = node
        self.node.setdefault(queue, node)
        return node

    def _add_children(self, node: int, below: Mapping[str, Sequence[str]]) -> list[int]:
        """Add a leaf for the queue's own groups, and a node for each child; return these nodes."""
        queue = self.queues[node]
        names = () if self.is_extra_leaf(node) else below.get(queue, ())
        if not names and node != TOP:
            return []
        added = [self._add(name, node) for name in (queue, *names)]
        self._first[node], self._end[node] = added[0], added[-1] + 1
        return added


def _grouped(parents: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the names of each queue's children, in order; queues without an existing parent are root's."""
    children: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(parents):
        if name != ROOT_QUEUE:
            children[parents[name] if parents[name] in parents else ROOT_QUEUE].append(name)
    return children


Portions = Mapping[str, float]  # amounts by resource; not whole numbers, since a division makes fractions

EPSILON = 0.1  # millicores, bytes or devices: smaller differences do not count


def limits_of(demand: QueueDemand) -> Mapping[str, float]:
    """Return the limits of a queue by its specification alone.

    The limits are its capability (cpu and memory of zero are no limit), and its specified deserved amounts
    plus its borrowing limit. A resource that is not listed is unlimited.
    """
    limits = {
        name: inf if name in (CPU, MEMORY) and amount <= 0 else float(amount)
        for name, amount in (demand.capability or {}).items()
    }
    for name, more in (demand.borrowing_limit or {}).items():
        if name in (demand.deserved or {}):
            limits[name] = min(limits.get(name, inf), _named_amount(demand.deserved, name) + max(more, 0))
    return limits


def reserved_for(demand: QueueDemand) -> Mapping[str, float]:
    """Return the amounts that no other queue may hold: the guarantee, and unlent deserved amounts."""
    reserved = {name: float(max(amount, 0)) for name, amount in demand.guarantee.items()}
    for name, lent in (demand.lending_limit or {}).items():
        reserved[name] = max(
            reserved.get(name, 0.0), _named_amount(demand.deserved, name) - max(lent, 0), 0.0
        )
    return reserved


def _named_amount(deserved: Resources | None, name: str) -> float:
    return float(max((deserved or {}).get(name, 0), 0))


class Specified(msgspec.Struct, eq=False):
    """Specifications of nodes as rows. A seat has its queue's groups and request, and weight 1."""

    requests: PortionRows  # allocated and waiting requests of its own groups
    groups: Mask  # whether it has groups of its own
    weights: Portion  # its weight in the division
    limits: PortionRows  # limits by its own specification; inf: no limit
    borrowing: PortionRows  # limit above its share, if it has no specified deserved amount; inf: no limit
    reserved: PortionRows  # amounts that no other queue may use
    nominal: PortionRows  # specified deserved amounts
    oversell: Portion  # factor on its limits

    @classmethod
    def empty(cls, nodes: int, resources: int) -> "Specified":
        """Return the specification of nodes without requests, limits and guarantees."""
        shape = (nodes, resources)
        return cls(
            requests=np.zeros(shape),
            groups=np.zeros(nodes, dtype=np.bool_),
            weights=np.ones(nodes),
            limits=np.full(shape, inf),
            borrowing=np.full(shape, inf),
            reserved=np.zeros(shape),
            nominal=np.zeros(shape),
            oversell=np.ones(nodes),
        )

    def copy(self) -> "Specified":
        return Specified(*(getattr(self, name).copy() for name in self.__struct_fields__))

    def effective_limits(self, nodes: Nodes | int | slice) -> PortionRows:
        """Return the limits by their own specification, with what may be oversold; inf: no limit."""
        factors: PortionRows = self.limits[nodes] * self.oversell[nodes][..., None]
        return factors

    def set(self, node: int, leaf: int, demand: QueueDemand, names: Sequence[str]) -> None:
        """Set the specification of a queue: what it requests at its leaf, the rest at its node."""
        put_row(self.requests, leaf, demand.request, names)
        self.groups[leaf] = demand.groups
        self.weights[node] = demand.weight
        put_row(self.limits, node, limits_of(demand), names, inf)
        put_row(self.reserved, node, reserved_for(demand), names)
        nominal = {name: float(max(amount, 0)) for name, amount in (demand.deserved or {}).items()}
        put_row(self.nominal, node, nominal, names)
        limits = demand.borrowing_limit or {}
        borrowing = {name: float(max(more, 0)) for name, more in limits.items() if name not in nominal}
        put_row(self.borrowing, node, borrowing, names, inf)
        self.oversell[node] = demand.oversell


def share(allocated: Resources, deserved: Portions) -> float:
    """Return allocated/deserved in the dominant resource.

    A queue that deserves nothing has a share of 1, or of 0 if it has no allocation.
    """
    ratios = (allocated.get(name, 0) / due for name, due in deserved.items() if due >= EPSILON)
    return max(ratios, default=1.0 if any(allocated.values()) else 0.0)


def excess(requests: Resources, allocated: Resources, limit: Portions) -> str:
    """Return a sentence on how `requests` on top of `allocated` exceeds `limit`; empty when it does not."""
    return ", ".join(
        f"{name}: {show(name, allocated.get(name, 0))} held + {show(name, requests[name])} asked"
        f" > {show(name, limit.get(name, 0))}"
        for name in exceeded_dimensions(requests, allocated, limit)
    )


def exceeded_dimensions(
    requests: Resources, held: Resources, limit: Portions, ignored: frozenset[str] = frozenset()
) -> list[str]:
    """Return the requested dimensions in which `limit` would be exceeded."""
    return [
        name
        for name, amount in requests.items()
        if amount > 0 and name not in ignored and held.get(name, 0) + amount > limit.get(name, 0.0) + EPSILON
    ]
