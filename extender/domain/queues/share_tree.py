"""Tree of queues for the division: numbered nodes, level by level, with the requests and limits of each node.

A queue with children has one more child: its leaf, at which the queue's own groups count. `Specified`
contains the limits and reserved amounts with which `deserved` divides.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import inf

import msgspec
import numpy as np
import numpy.typing as npt

from extender.api.keys import ROOT_QUEUE
from extender.domain.model.resources import CPU, MEMORY, Resources, show

Portion = npt.NDArray[np.float64]  # one number per resource or per node
PortionRows = npt.NDArray[np.float64]  # one row per node, one column per resource
Mask = npt.NDArray[np.bool_]
Nodes = npt.NDArray[np.intp]
TOP = 0  # node number of the root queue


class QueueDemand(msgspec.Struct, frozen=True, gc=False):
    """Demand of a queue, as far as the division needs it."""

    name: str
    weight: int  # at least 1
    request: Resources  # allocated and waiting requests of its own groups
    capability: Resources | None = None  # limit for it and all queues below; None: no limit
    guarantee: Resources = {}  # reserved amounts, even if the queue takes no part
    has_groups: bool = True  # whether the queue has groups, and so takes part in the division
    parent: str = ""  # parent queue; root if no queue has this name
    deserved: Resources | None = None  # spec.deserved, which is divided first; None: absent
    borrowing_limit: Resources | None = None  # limit above the deserved amounts; None: no limit
    lending_limit: Resources | None = None  # part of `deserved` that others may use; None: all
    oversell: float = 1.0  # factor on the capability for the allocation


def dimensions_of(total: Resources, demands: Iterable[QueueDemand]) -> list[str]:
    """Return the resources to divide: the resources of the cluster and of all guarantees.

    No queue deserves any other resource.
    """
    return sorted(set(total).union(*(demand.guarantee for demand in demands)))


def put_row(
    rows: PortionRows, row: int, amounts: Mapping[str, float], names: Sequence[str], default: float = 0.0
) -> None:
    """Write the amounts of a queue into its row. Resources without an amount get the default."""
    rows[row] = [amounts.get(name, default) for name in names] if amounts else default


def sums_by_parent(rows: PortionRows, parent_index: Nodes, parent_count: int) -> PortionRows:
    """Return the sums of the rows that have the same parent, with one row per parent."""
    columns = rows.shape[1]
    cells = (parent_index[:, None] * columns + np.arange(columns)).ravel()
    sums = np.bincount(cells, rows.ravel(), parent_count * columns)
    return sums.astype(np.float64).reshape(parent_count, columns)


class ShareTree:
    """Tree of queues with numbered nodes, breadth first.

    The nodes of one level are adjacent, and so are the children of one node. A queue is put directly below
    root if its parent is missing, or if it lies on or below a cycle of parents.
    """

    def __init__(self, parents: Mapping[str, str]) -> None:
        """Build the tree.

        Args:
            parents: The parent of each queue by name; root may be absent.
        """
        self.queues: list[str] = []  # queue of each node
        self.parents: list[int] = []  # parent of each node; root is its own parent
        self.node_by_queue: dict[str, int] = {}  # node of each queue
        self.leaves: dict[str, int] = {}  # by queue: node at which its own groups count
        self.levels: list[Nodes] = []  # nodes of each level, from root down
        self._first_child: list[int] = []  # first child of each node
        self._child_end: list[int] = []  # end of the children of each node
        self._paths: dict[str, list[int]] = {}
        children = _children_by_parent(parents)
        reached_names, queues_to_visit = {ROOT_QUEUE}, [ROOT_QUEUE]
        while queues_to_visit:
            child_names = children.get(queues_to_visit.pop(), ())
            reached_names.update(child_names)
            queues_to_visit += child_names
        unreached_names = parents.keys() - reached_names  # put directly below root
        if unreached_names:
            children = _children_by_parent({**parents, **dict.fromkeys(unreached_names, ROOT_QUEUE)})
        level = [self._add(ROOT_QUEUE, TOP)]
        while level:
            self.levels.append(np.array(level, dtype=np.intp))
            level = [child for node in level for child in self._add_children(node, children)]
        self._bounds = np.array([self._first_child, self._child_end], dtype=np.intp)  # by node: its children

    def __len__(self) -> int:
        return len(self.queues)

    def children(self, nodes: Sequence[int] | Nodes) -> tuple[Nodes, Nodes]:
        """Return the children of `nodes`, and for each child the position of its parent in `nodes`.

        All `nodes` must have children.
        """
        starts, ends = self._bounds[:, nodes]
        rows = np.concatenate([np.arange(start, stop) for start, stop in zip(starts, ends, strict=True)])
        return rows, np.repeat(np.arange(len(starts)), ends - starts)

    def has_children(self, node: int) -> bool:
        return self._child_end[node] > self._first_child[node]

    def is_extra_leaf(self, node: int) -> bool:
        """Return whether a node stands for the own groups of a queue that has other queues below it."""
        return self.node_by_queue[self.queues[node]] != node

    def path(self, queue: str) -> list[int]:
        """Return the nodes from the leaf of a queue up to root."""
        if queue not in self._paths:
            self._paths[queue] = self._path_to_root(self.leaves[queue])
        return self._paths[queue]

    def parent_of(self, queue: str) -> str:
        """Return the parent of a queue; empty for root."""
        node = self.node_by_queue[queue]
        return "" if node == TOP else self.queues[self.parents[node]]

    def ancestry(self, queue: str) -> list[str]:
        """Return a queue and the queues above it, up to root."""
        return [self.queues[node] for node in self._path_to_root(self.node_by_queue[queue])]

    def _path_to_root(self, node: int) -> list[int]:
        """Return a node and the nodes above it, up to root."""
        path = [node]
        while path[-1] != TOP:
            path.append(self.parents[path[-1]])
        return path

    def _add(self, queue: str, parent: int) -> int:
        """Add a node for a queue, and return its number. The last node of a queue is its leaf."""
        node = len(self.queues)
        self.queues.append(queue)
        self.parents.append(parent)
        self._first_child.append(0)
        self._child_end.append(0)
        self.leaves[queue] = node
        self.node_by_queue.setdefault(queue, node)
        return node

    def _add_children(self, node: int, children: Mapping[str, Sequence[str]]) -> list[int]:
        """Add a leaf for the queue's own groups, and a node for each child queue. Return the added nodes."""
        queue = self.queues[node]
        names = () if self.is_extra_leaf(node) else children.get(queue, ())
        if not names and node != TOP:
            return []
        child_nodes = [self._add(name, node) for name in (queue, *names)]
        self._first_child[node], self._child_end[node] = child_nodes[0], child_nodes[-1] + 1
        return child_nodes


def _children_by_parent(parents: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the sorted names of each queue's children.

    Queues without an existing parent are children of root.
    """
    children: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(parents):
        if name != ROOT_QUEUE:
            children[parents[name] if parents[name] in parents else ROOT_QUEUE].append(name)
    return children


Portions = Mapping[str, float]  # amounts by resource, which may be fractions

EPSILON = 0.1  # in millicores, bytes or devices: smaller differences do not count


def limits_of(demand: QueueDemand) -> Mapping[str, float]:
    """Return the limits of a queue by its own spec.

    A limit is the smaller of two amounts: the capability, and the deserved amount in the spec plus the
    borrowing limit. Resources without either have no limit. A capability of zero cpu or memory means no
    limit, too.
    """
    limits = {
        name: inf if name in (CPU, MEMORY) and amount <= 0 else float(amount)
        for name, amount in (demand.capability or {}).items()
    }
    for name, extra in (demand.borrowing_limit or {}).items():
        if name in (demand.deserved or {}):
            limits[name] = min(limits.get(name, inf), _nominal_amount(demand.deserved, name) + max(extra, 0))
    return limits


def reserved_amounts(demand: QueueDemand) -> Mapping[str, float]:
    """Return the amounts that no other queue may hold.

    These are the guarantee, and the part of the deserved amounts that may not be lent.
    """
    amounts = {name: float(max(amount, 0)) for name, amount in demand.guarantee.items()}
    for name, cap in (demand.lending_limit or {}).items():
        amounts[name] = max(amounts.get(name, 0.0), _nominal_amount(demand.deserved, name) - max(cap, 0), 0.0)
    return amounts


def _nominal_amount(deserved: Resources | None, name: str) -> float:
    """Return the deserved amount of a resource in the spec; 0 if it is absent or negative."""
    return float(max((deserved or {}).get(name, 0), 0))


class Specified(msgspec.Struct, eq=False):
    """Amounts in the specs of queues, with one row per node.

    The leaf of a queue with children has the queue's groups and requests, weight 1, and no limits.
    """

    requests: PortionRows  # allocated and waiting requests of its own groups
    has_groups: Mask  # whether the node has groups of its own
    weights: Portion  # weight in the division
    limits: PortionRows  # limits by the queue's own spec; inf: no limit
    borrowing_limits: PortionRows  # limit above the share, without a deserved amount in spec; inf: no limit
    reserved: PortionRows  # amounts that no other queue may use
    nominal: PortionRows  # deserved amounts in the spec
    oversell: Portion  # factor on the limits

    @classmethod
    def empty(cls, node_count: int, resource_count: int) -> "Specified":
        """Return the specification of nodes without requests, limits and guarantees."""
        shape = (node_count, resource_count)
        return cls(
            requests=np.zeros(shape),
            has_groups=np.zeros(node_count, dtype=np.bool_),
            weights=np.ones(node_count),
            limits=np.full(shape, inf),
            borrowing_limits=np.full(shape, inf),
            reserved=np.zeros(shape),
            nominal=np.zeros(shape),
            oversell=np.ones(node_count),
        )

    def copy(self) -> "Specified":
        return Specified(*(getattr(self, name).copy() for name in self.__struct_fields__))

    def effective_limits(self, nodes: Nodes | int | slice) -> PortionRows:
        """Return the limits by the nodes' own specs, with the oversell factor; inf means no limit."""
        factors: PortionRows = self.limits[nodes] * self.oversell[nodes][..., None]
        return factors

    def write_demand(self, node: int, leaf: int, demand: QueueDemand, names: Sequence[str]) -> None:
        """Write the spec of a queue into the rows: requests and groups at its leaf, all else at its node."""
        put_row(self.requests, leaf, demand.request, names)
        self.has_groups[leaf] = demand.has_groups
        self.weights[node] = demand.weight
        put_row(self.limits, node, limits_of(demand), names, inf)
        put_row(self.reserved, node, reserved_amounts(demand), names)
        nominal = {name: float(max(amount, 0)) for name, amount in (demand.deserved or {}).items()}
        put_row(self.nominal, node, nominal, names)
        limits = demand.borrowing_limit or {}
        borrowing = {name: float(max(amount, 0)) for name, amount in limits.items() if name not in nominal}
        put_row(self.borrowing_limits, node, borrowing, names, inf)
        self.oversell[node] = demand.oversell


def share(allocated: Resources, deserved: Portions) -> float:
    """Return the allocation divided by the deserved amount, in the dominant resource.

    A queue that deserves nothing has a share of 1 if it has an allocation, else of 0.
    """
    ratios = (allocated.get(name, 0) / amount for name, amount in deserved.items() if amount >= EPSILON)
    return max(ratios, default=1.0 if any(allocated.values()) else 0.0)


def excess(requests: Resources, allocated: Resources, limit: Portions) -> str:
    """Return a text on how `requests` on top of `allocated` exceed `limit`; empty if they do not."""
    return ", ".join(
        f"{name}: {show(name, allocated.get(name, 0))} held + {show(name, requests[name])} asked"
        f" > {show(name, limit.get(name, 0))}"
        for name in exceeded_dimensions(requests, allocated, limit)
    )


def exceeded_dimensions(
    requests: Resources, held: Resources, limit: Portions, ignored: frozenset[str] = frozenset()
) -> list[str]:
    """Return the resources in which `requests` on top of the held amounts would exceed `limit`."""
    return [
        name
        for name, amount in requests.items()
        if amount > 0 and name not in ignored and held.get(name, 0) + amount > limit.get(name, 0.0) + EPSILON
    ]
