"""Deserved shares: the capacity of a cluster, divided over the tree of queues in each cycle.

After a change, only the affected levels of the tree are divided again. First, requests, guarantees and
participation are summed up from the leaves to root. Then each level, from root down, divides the deserved
share of its parent. The ceiling of a queue is the ceiling of its parent without the amounts reserved for its
siblings.

A level is divided by weighted max-min fairness ("water filling"), separately for each resource. A queue's
share rises in proportion to its weight, up to the queue's request or ceiling. The share is at least the
queue's guarantee, even above its request. Deserved amounts in specs are served first. If there is less than
their sum, each queue gets the same part of its amount.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import compress
from operator import is_not

import msgspec
import numpy as np

from extender.domain.model.resources import Resources, add, larger_amounts
from extender.domain.model.shared_maps import changed_keys, have_same_keys
from extender.domain.queues.share_tree import (
    EPSILON,
    TOP,
    Mask,
    Nodes,
    Portion,
    PortionRows,
    QueueDemand,
    ShareTree,
    Specified,
    dimensions_of,
    put_row,
    sums_by_parent,
)

_MAX_ITERATIONS = 200  # each iteration settles at least one queue; a few iterations settle thousands

Demands = Mapping[str, QueueDemand]


class Share(msgspec.Struct, frozen=True):
    """Result of the division for one queue, by resource."""

    deserved: dict[str, float]  # deserved amounts without zeros
    ceiling: dict[str, float]  # most that the queue may hold at any time; inf: no limit


class Division:
    """Division of the cluster over the tree of queues, frozen once it is made.

    Rows are nodes of the tree, and columns are resources.
    """

    def __init__(self, tree: ShareTree, names: Sequence[str], total: Resources, demands: Demands) -> None:
        self.tree = tree
        self.names = names
        self.total = total
        self.demands = demands
        self.specs = Specified.empty(len(tree), len(names))
        self.takes_part: Mask = np.zeros(len(tree), dtype=np.bool_)
        self.requests: PortionRows = np.zeros((len(tree), len(names)))
        self.reserved: PortionRows = np.zeros_like(self.requests)
        self.deserved: PortionRows = np.zeros_like(self.requests)
        self.ceilings: PortionRows = np.zeros_like(self.requests)
        self.potential: PortionRows = np.zeros_like(self.requests)  # ceilings without borrowing limits
        self._cached_shares: list[Share | None] = [None] * len(tree)

    @classmethod
    def divide(cls, total: Resources, demands: Demands, earlier: "Division | None" = None) -> "Division":
        """Return the division of the cluster.

        An earlier division (`earlier`) only saves work: the result is the same without it.
        """
        changed_names = _changed_queues(earlier, total, demands) if earlier is not None else None
        if earlier is None or changed_names is None:
            tree = ShareTree({name: demand.parent for name, demand in demands.items()})
            division = cls(tree, dimensions_of(total, demands.values()), total, demands)
            division._compute(demands)
            return division
        if not changed_names:
            return earlier
        later = cls(earlier.tree, earlier.names, total, demands)
        later.specs = earlier.specs.copy()
        for name in ("takes_part", "requests", "reserved", "deserved", "ceilings", "potential"):
            setattr(later, name, getattr(earlier, name).copy())
        later._compute(changed_names)
        is_unchanged = later.takes_part == earlier.takes_part
        is_unchanged &= np.all(later.deserved == earlier.deserved, axis=1)
        is_unchanged &= np.all(later.ceilings == earlier.ceilings, axis=1)
        shares = zip(earlier._cached_shares, is_unchanged.tolist(), strict=True)
        later._cached_shares = [share if is_same else None for share, is_same in shares]
        return later

    def share(self, node: int) -> Share | None:
        """Return the share of a node; None for a queue that does not take part in the division."""
        if self._cached_shares[node] is None and self.takes_part[node]:
            deserved, ceilings = self.deserved[node].tolist(), self.ceilings[node].tolist()
            amounts = {name: amount for name, amount in zip(self.names, deserved, strict=True) if amount}
            self._cached_shares[node] = Share(amounts, dict(zip(self.names, ceilings, strict=True)))
        return self._cached_shares[node]

    def own_limits(self, node: int) -> dict[str, float]:
        """Return the limits of a node by its own spec; inf means no limit."""
        return dict(zip(self.names, self.specs.effective_limits(node).tolist(), strict=True))

    @cached_property
    def nominal(self) -> PortionRows:
        """Return the deserved amounts in the spec of each node, or else the sum over the node's children."""
        amounts = self.specs.nominal.copy()
        for level in reversed(self.tree.levels):
            nodes = [node for node in level.tolist() if self.tree.has_children(node)]
            empty = level[:0]
            rows, parent_index = self.tree.children(np.array(nodes, np.intp)) if nodes else (empty, empty)
            child_sums = sums_by_parent(amounts[rows], parent_index, len(nodes))
            amounts[nodes] = np.where(amounts[nodes] > 0, amounts[nodes], child_sums)
        return amounts

    @cached_property
    def parts_of_cluster(self) -> Portion:
        """Return the part of the cluster that each node would deserve if requests were unlimited.

        The part follows from the deserved amounts in specs, in the dominant resource. Queues without such
        amounts divide the rest of their parent's part by weight. Unlike the deserved share, the part does not
        depend on the node's request.
        """
        parts = np.zeros(len(self.tree))
        parts[TOP] = 1.0
        total = np.array([float(self.total.get(name, 0)) for name in self.names])
        ratios = np.divide(self.nominal, total, out=np.zeros_like(self.nominal), where=total > 0)
        nominal_parts = np.minimum(ratios.max(axis=1, initial=0.0), 1.0)
        for level in self.tree.levels:
            inner_nodes = [node for node in level.tolist() if self.tree.has_children(node)]
            if not inner_nodes:
                continue
            parents = np.array(inner_nodes, dtype=np.intp)
            rows, parent_index = self.tree.children(parents)
            own_parts = nominal_parts[rows] * self.takes_part[rows]
            weights = np.where(self.takes_part[rows] & (own_parts <= 0), self.specs.weights[rows], 0.0)
            remaining = np.maximum(parts[parents] - np.bincount(parent_index, own_parts, len(parents)), 0.0)
            sums = np.maximum(np.bincount(parent_index, weights, len(parents)), 1.0)
            parts[rows] = np.where(own_parts > 0, own_parts, (remaining / sums)[parent_index] * weights)
        return parts

    def available_guarantees(self) -> dict[str, Resources]:
        """Return the available amounts of guarantees that the cluster cannot fully provide, by queue.

        If a resource is short, all queues below a parent get the same part of their reserved amounts.
        """
        supply: PortionRows = self.reserved.copy()
        supply[TOP] = np.minimum(self.reserved[TOP], self.ceilings[TOP])
        if np.array_equal(supply, self.reserved):
            return {}
        for level in self.tree.levels:
            parents = np.array([n for n in level.tolist() if self.tree.has_children(n)], dtype=np.intp)
            if not len(parents):
                continue
            rows, parent_index = self.tree.children(parents)
            sums = sums_by_parent(self.reserved[rows], parent_index, len(parents))
            parts = np.divide(supply[parents], sums, out=np.ones_like(sums), where=sums > supply[parents])
            supply[rows] *= parts[parent_index]
        results: dict[str, Resources] = {}
        for node in np.flatnonzero(np.any(self.specs.reserved > supply + EPSILON, axis=1)).tolist():
            amounts = zip(self.names, self.specs.reserved[node].tolist(), supply[node].tolist(), strict=True)
            results[self.tree.queues[node]] = {name: int(n) for name, own, n in amounts if own > n + EPSILON}
        return results

    def is_comparable_with(self, other: "Division") -> bool:
        """Return whether both divisions divide the same amounts in the same tree."""
        return self.tree is other.tree and self.total == other.total and self.names == other.names

    def nodes_changed_since(self, other: "Division") -> set[int]:
        """Return the nodes whose shares or limits differ between this and another, comparable division."""
        if self is other:
            return set()
        is_changed = self.takes_part != other.takes_part
        for name in ("reserved", "deserved", "ceilings", "potential"):
            is_changed |= (getattr(self, name) != getattr(other, name)).any(axis=1)
        limits = self.specs.effective_limits(slice(None))
        is_changed |= (limits != other.specs.effective_limits(slice(None))).any(axis=1)
        return set(np.flatnonzero(is_changed).tolist())

    def _compute(self, queues: Sequence[str] | Demands) -> None:
        """Compute all rows.

        Args:
            queues: The queues whose demands are not yet in the rows.
        """
        dirty: Mask = np.zeros(len(self.tree), dtype=np.bool_)
        for name in queues:
            node, leaf = self.tree.node_by_queue[name], self.tree.leaves[name]
            self.specs.write_demand(node, leaf, self.demands[name], self.names)
            dirty[[node, leaf]] = True
        # Sums go from the leaves up. A child requests at least its reserved amounts, and at most its limit.
        specified = self.specs
        for level in reversed(self.tree.levels):
            nodes = level[dirty[level]]
            is_inner = np.array([self.tree.has_children(node) for node in nodes.tolist()], dtype=np.bool_)
            leaves, parents = nodes[~is_inner], nodes[is_inner]
            self.requests[leaves] = specified.requests[leaves]
            self.takes_part[leaves] = specified.has_groups[leaves]
            self.reserved[leaves] = specified.reserved[leaves]
            if len(parents):
                rows, parent_index = self.tree.children(parents)
                minima = self.reserved[rows]
                requests = np.maximum(np.minimum(self.requests[rows], specified.limits[rows]), minima)
                requests = np.where(self.takes_part[rows][:, None], requests, minima)
                self.requests[parents] = sums_by_parent(requests, parent_index, len(parents))
                self.takes_part[parents] = np.bincount(parent_index, self.takes_part[rows], len(parents)) > 0
                sums = sums_by_parent(minima, parent_index, len(parents))
                self.reserved[parents] = np.maximum(specified.reserved[parents], sums)
            if level[0] != TOP:
                dirty[[self.tree.parents[node] for node in nodes.tolist()]] = True
        self._divide(dirty)

    def _divide(self, dirty: Mask) -> None:
        """Divide the cluster from root down, below each node that is `dirty` or whose own share changed."""
        put_row(self.ceilings, TOP, self.total, self.names)
        self.ceilings[TOP] = np.minimum(self.ceilings[TOP], self.specs.effective_limits(TOP))
        self.potential[TOP] = self.ceilings[TOP]
        root_request = np.minimum(self.requests[TOP], self.ceilings[TOP])
        self.deserved[TOP] = np.maximum(root_request, self.reserved[TOP])
        for level in self.tree.levels:
            inner_nodes = [node for node in level[dirty[level]].tolist() if self.tree.has_children(node)]
            if not inner_nodes:
                continue
            parents = np.array(inner_nodes, dtype=np.intp)
            rows, parent_index = self.tree.children(parents)
            specified, reserved, takes_part = self.specs, self.reserved[rows], self.takes_part[rows]
            child_limits = self._limits_of_children(self.ceilings[parents], rows, parent_index)
            upper_limits = np.minimum(np.minimum(child_limits, specified.limits[rows]), self.requests[rows])
            weights, nominal = specified.weights[rows], specified.nominal[rows]
            siblings = Siblings(parent_index, weights, self.requests[rows], upper_limits, reserved, nominal)
            # Root divides its ceiling, other parents their share, each without reservations of absent queues.
            capacity = np.where((parents == TOP)[:, None], self.ceilings[TOP], self.deserved[parents])
            unused = sums_by_parent(np.where(takes_part[:, None], 0.0, reserved), parent_index, len(parents))
            shares = np.zeros_like(upper_limits)
            shares[takes_part] = divide_level(np.maximum(capacity - unused, 0.0), siblings.select(takes_part))
            ceilings = np.minimum(child_limits, shares + specified.borrowing_limits[rows])
            potential = self._limits_of_children(self.potential[parents], rows, parent_index)
            results = ((self.deserved, shares), (self.ceilings, ceilings), (self.potential, potential))
            for old_rows, new_rows in results:
                dirty[rows] |= np.any(old_rows[rows] != new_rows, axis=1)
                old_rows[rows] = new_rows

    def _limits_of_children(self, limits: PortionRows, rows: Nodes, parent_index: Nodes) -> PortionRows:
        """Return the ceilings of children, given the ceilings of their parents.

        A child's ceiling is the part of the parent's ceiling that is not reserved for siblings, within the
        child's own limits.
        """
        reserved = self.reserved[rows]
        free_amounts = np.maximum(limits - sums_by_parent(reserved, parent_index, len(limits)), 0.0)
        own_limits = self.specs.effective_limits(rows)
        ceilings: PortionRows = np.minimum(free_amounts[parent_index] + reserved, own_limits)
        return ceilings


def _changed_queues(old_division: Division, total: Resources, demands: Demands) -> list[str] | None:
    """Return the queues whose demands changed; None if the tree, the resources or the cluster changed."""
    old_demands = old_division.demands
    if total != old_division.total or not have_same_keys(demands, old_demands):
        return None
    names = changed_keys(demands, old_demands)
    changed_names = [name for name in names if demands[name] != old_demands[name]]
    pairs = ((demands[name], old_demands[name]) for name in changed_names)
    has_other_rows = any(
        new.parent != old.parent or new.guarantee.keys() != old.guarantee.keys() for new, old in pairs
    )
    return None if has_other_rows else changed_names


class Siblings(msgspec.Struct, eq=False):
    """Queues that divide amounts among each other, with one row each.

    The queues of one parent are adjacent.
    """

    parent_index: Nodes  # position of the queue's parent among the parents
    weights: Portion
    requests: PortionRows
    upper_bounds: PortionRows  # requests, limited to the ceilings
    guarantees: PortionRows
    nominal: PortionRows

    def select(self, rows: Mask) -> "Siblings":
        return Siblings(*(getattr(self, name)[rows] for name in self.__struct_fields__))


def divide_level(capacity: PortionRows, siblings: Siblings) -> PortionRows:
    """Return the share of each sibling in the amounts of its parent.

    Args:
        capacity: The amounts to divide, with one row per parent.
        siblings: The queues of a level.
    """
    # Deserved amounts in specs come first, limited to request and ceiling. If their sum is too large, each
    # queue gets the same part of its amount.
    parent_index, wishes = siblings.parent_index, np.minimum(siblings.nominal, siblings.requests)
    bounds = np.minimum(wishes, siblings.upper_bounds)
    first_shares = _fill(capacity, parent_index, np.zeros_like(bounds), wishes, siblings.guarantees, bounds)
    start, speed = np.minimum(first_shares, bounds), siblings.weights[:, None]
    return _fill(capacity, parent_index, start, speed, first_shares, siblings.upper_bounds)


def _fill(
    capacity: PortionRows,
    parent_index: Nodes,
    start: PortionRows,
    speed: PortionRows,
    lower_bounds: PortionRows,
    upper_bounds: PortionRows,
) -> PortionRows:
    """Return `start + level * speed` for each sibling, within its lower and upper bound.

    All siblings have the same level: the level at which they together use the capacity, as far as the bounds
    allow. If the bounds contradict each other, the lower bound applies.
    """
    upper_bounds = np.maximum(upper_bounds, lower_bounds)
    shares, is_free = lower_bounds.copy(), upper_bounds > lower_bounds
    for _ in range(_MAX_ITERATIONS):
        if not is_free.any():
            break
        speeds = sums_by_parent(np.where(is_free, speed, 0.0), parent_index, len(capacity))
        remaining = capacity - sums_by_parent(np.where(is_free, start, shares), parent_index, len(capacity))
        level = np.divide(remaining, speeds, out=np.zeros_like(remaining), where=speeds > 0)
        unbounded_shares = start + level[parent_index] * speed
        shares = np.where(is_free, np.clip(unbounded_shares, lower_bounds, upper_bounds), shares)
        # If lower bounds add more than upper bounds remove, the level can only fall, and siblings at their
        # lower bound stay there. Otherwise the level can only rise.
        additions = np.where(is_free, shares - unbounded_shares, 0.0)
        balance = sums_by_parent(additions, parent_index, len(capacity))[parent_index]
        is_free &= (balance != 0) & (np.sign(additions) != np.sign(balance))
    return shares


class Holdings:
    """Allocations of queues, summed up the tree, by node.

    Amounts that are reserved for a queue count at its parent even if they are unused, so that other queues do
    not use them. As with Kueue's local quota, a queue uses the capacity of its parent only beyond its own
    reservation. The sums of a node are replaced and never changed, so a copy is cheap.
    """

    def __init__(self, division: Division, own_amounts: Mapping[str, Resources]) -> None:
        """Sum allocations up the tree.

        Args:
            division: The division of the cluster.
            own_amounts: The allocation of each queue's own groups.
        """
        self._division = division
        self.own_amounts = own_amounts
        self._reserved_amounts: dict[int, Resources] = {}
        self._sums = sum_up(division.tree, own_amounts)
        self._claims = self._sums
        if division.reserved.any():
            self._claims = sum_up(division.tree, own_amounts, self.reserved)

    def for_division(self, division: Division, own_amounts: Mapping[str, Resources]) -> "Holdings":
        """Return the holdings under a later division.

        If the tree and the reserved amounts are the same, only changed queues are counted again.
        """
        is_comparable = division.tree is self._division.tree and bool(
            (division.reserved == self._division.reserved).all()
        )
        if not is_comparable or not have_same_keys(own_amounts, self.own_amounts):
            return Holdings(division, own_amounts)
        holdings = self.copy()
        holdings._division, holdings.own_amounts = division, own_amounts
        for queue in changed_keys(own_amounts, self.own_amounts):
            if own_amounts[queue] != self.own_amounts[queue]:
                holdings.add(queue, self.own_amounts[queue], factor=-1)
                holdings.add(queue, own_amounts[queue])
        return holdings

    def copy(self) -> "Holdings":
        """Return a copy that can be changed independently."""
        holdings = object.__new__(Holdings)
        holdings.__dict__.update(self.__dict__)
        holdings._sums = list(self._sums)
        holdings._claims = list(self._claims) if self._claims is not self._sums else holdings._sums
        return holdings

    def nodes_changed_since(self, other: "Holdings") -> set[int]:
        """Return the nodes whose held or reserved amounts differ between these and other holdings."""
        sums = [(self._sums, other._sums)]
        if self._claims is not self._sums or other._claims is not other._sums:
            sums.append((self._claims, other._claims))
        return {
            node
            for new, old in sums
            for node in compress(range(len(new)), map(is_not, new, old))
            if new[node] != old[node]
        }

    def held(self, node: int) -> Resources:
        """Return the amounts that the queue and the queues below it hold."""
        return self._sums[node]

    def held_or_reserved(self, node: int) -> Resources:
        """Return the held amounts, in which each queue below the node counts at least its reservation."""
        return self._claims[node]

    def beyond_reservation(self, node: int, amounts: Resources) -> Resources:
        """Return the part of `amounts` that exceeds a node's reservation.

        The node's parent has to provide this part.
        """
        reserved_amounts, claimed_amounts = self.reserved(node), self._claims[node]
        if not reserved_amounts:
            return amounts
        return {
            name: max(claimed_amounts.get(name, 0) + amount, reserved_amounts.get(name, 0))
            - max(claimed_amounts.get(name, 0), reserved_amounts.get(name, 0))
            for name, amount in amounts.items()
        }

    def reserved(self, node: int) -> Resources:
        """Return the amounts that queues outside the node may never hold."""
        if node not in self._reserved_amounts:
            amounts = zip(self._division.names, self._division.reserved[node].tolist(), strict=True)
            self._reserved_amounts[node] = {name: int(amount) for name, amount in amounts if amount}
        return self._reserved_amounts[node]

    def unused(self, node: int, name: str) -> int:
        """Return the amount of a resource that is reserved for a node, and that the node does not use."""
        return max(self.reserved(node).get(name, 0) - self._claims[node].get(name, 0), 0)

    def add(self, queue: str, requests: Resources, factor: int = 1) -> None:
        """Add `factor` times the requests to the allocation of a queue. A negative factor subtracts."""
        path = self._division.tree.path(queue)
        amounts: Resources = {name: amount * factor for name, amount in requests.items()}
        for node in path:
            self._sums[node] = _sum(self._sums[node], amounts)
        if self._claims is self._sums:
            return
        for node in path:
            outer_amounts = self.beyond_reservation(node, amounts)
            self._claims[node] = _sum(self._claims[node], amounts)
            amounts = outer_amounts


def sum_up(
    tree: ShareTree, holdings: Mapping[str, Resources], reserved_at: Callable[[int], Resources] = lambda _: {}
) -> list[Resources]:
    """Return by node the sum of amounts over a queue and the queues below it.

    Args:
        tree: The tree of queues.
        holdings: The amounts of each queue's own groups.
        reserved_at: Returns the amounts of a node that count at its parent even if they are unused.
    """
    sums: list[dict[str, int]] = [{} for _ in tree.queues]
    for queue, amounts in holdings.items():
        sums[tree.leaves[queue]].update(amounts)
    for node in range(len(tree) - 1, TOP, -1):  # children have higher numbers
        minima = reserved_at(node)
        add(sums[tree.parents[node]], larger_amounts(sums[node], minima) if minima else sums[node])
    return list(sums)


def _sum(amounts: Resources, other_amounts: Resources) -> Resources:
    """Return the sum of amounts, without zeros."""
    sums = dict(amounts)
    add(sums, other_amounts)
    return {name: amount for name, amount in sums.items() if amount}
