"""Shares of a cycle: the current allocation of each queue, its deserved share, and its ceiling.

The amounts of a queue include the amounts of all queues below it. The queue's own groups count at its *seat*,
a node below the queue in the tree. A group is compared with the share of the seat, and with all ceilings from
the seat up.
"""

from collections.abc import Iterator, Mapping, Set
from functools import partial
from math import inf
from typing import NamedTuple

from msgspec.structs import replace

from extender.domain.model.resources import PODS, Resources, add, counts_in_queues, resource_of, show, total
from extender.domain.model.shared_maps import changed_keys, have_same_keys, with_changes
from extender.domain.placement.planner import Journal, recorded_read
from extender.domain.queues.deserved import Demands, Division, Holdings
from extender.domain.queues.flavors import Pool, PoolRows
from extender.domain.queues.share_tree import EPSILON, TOP, Portions, QueueDemand, exceeded_dimensions, share
from extender.domain.queues.tree import QueueInfo
from extender.domain.snapshot.nodes import column_sums
from extender.domain.snapshot.snapshot import Snapshot

_MAX_COUNT = 10**9
_MIN_CLUSTER_PART = 1e-6  # minimal part of the cluster, for divisions
_MAX_EXCESS_PART = 0.25  # maximum excess of a queue over its share, as a part of the share
_MAX_NAMES = 4  # number of names in one sentence
_NOT_SHARED = frozenset({PODS})  # shares do not limit the number of pods
_NOTHING: Portions = {}


class ShareState(NamedTuple):
    """Deserved amounts, ceilings and allocations of all queues."""

    division: Division
    holdings: Holdings
    snapshot: Snapshot  # the snapshot that these amounts follow from
    specified_division: Division  # division with the specified guarantees, which may exceed the cluster
    reduced_guarantees: Mapping[str, Resources]  # available parts of guarantees that cannot be met

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot, old_state: "ShareState | None") -> "ShareState":
        """Return the state of the shares at the start of a cycle.

        The state of an earlier cycle (`old_state`) only saves work: its unchanged parts are reused.
        """
        queues, total, oversell = snapshot.queues, total_of(snapshot), snapshot.limits.oversell
        rows_of_pools = _pool_rows_of(snapshot)
        known_queues: Mapping[str, QueueInfo] = {}
        known_demands: Demands = {}
        known_own: Mapping[str, Resources] = {}
        if (
            old_state is not None
            and _pool_rows_of(old_state.snapshot) is rows_of_pools
            and old_state.snapshot.limits == snapshot.limits
            and have_same_keys(queues, old_state.snapshot.queues)
        ):
            known_queues, known_demands = old_state.snapshot.queues, old_state.specified_division.demands
            known_own = old_state.holdings.own_amounts
        changed_demands: dict[str, QueueDemand] = {}
        changed_own: dict[str, Resources] = {}
        for name in changed_keys(queues, known_queues):
            queue = queues[name]
            changed_demands[name], changed_own[name] = _demand(queue, oversell), queue.allocated
            if rows_of_pools is not None:
                changed_demands[name] = _with_flavors(changed_demands[name], queue, rows_of_pools)
                changed_own[name] = {**queue.allocated, **snapshot.pools.rename(queue.amounts_by_pool)}
        demands, amounts = with_changes(known_demands, changed_demands), with_changes(known_own, changed_own)
        division = specified_division = Division.divide(
            total, demands, None if old_state is None else old_state.specified_division
        )
        if guarantees := specified_division.available_guarantees():
            new_demands = {name: _lower_guarantee(demands[name], part) for name, part in guarantees.items()}
            division = Division.divide(total, with_changes(demands, new_demands), specified_division)
        previous = old_state.holdings if old_state is not None else None
        holdings = previous.for_division(division, amounts) if previous else Holdings(division, amounts)
        return cls(division, holdings, snapshot, specified_division, guarantees)

    @property
    def pool_rows(self) -> PoolRows:
        return self.snapshot.nodes.pool_rows(self.snapshot.pools)

    def queues_changed_since(self, previous: "ShareState") -> Iterator[str]:
        """Yield the queues whose deserved share, ceiling or usage has changed.

        All queues below a changed queue are yielded, too, even if their own amounts are the same.
        """
        tree, changed_nodes = self.division.tree, self.nodes_changed_since(previous)
        for queue in tree.leaves if changed_nodes or changed_nodes is None else ():
            if changed_nodes is None or not changed_nodes.isdisjoint(tree.path(queue)):
                yield queue

    def nodes_changed_since(self, previous: "ShareState") -> Set[int] | None:
        """Return the nodes of the queue tree whose state has changed.

        None means that the trees cannot be compared.
        """
        if (
            not self.division.is_comparable_with(previous.division)
            or self.oversold_resources() != previous.oversold_resources()
        ):
            return None
        return self.division.nodes_changed_since(previous.division) | self.holdings.nodes_changed_since(
            previous.holdings
        )

    def oversold_resources(self) -> Set[str]:
        """Return the resources of which more is guaranteed to queues than exists."""
        return {name for amounts in self.reduced_guarantees.values() for name in amounts}

    def deserved_at(self, node: int) -> Portions:
        """Return the deserved amounts of a node, which include at least its reserved amounts."""
        node_share = self.division.share(node)
        return node_share.deserved if node_share else _NOTHING

    def ceiling_at(self, node: int) -> Portions:
        """Return the ceilings of a node as the division computed them."""
        node_share = self.division.share(node)
        return node_share.ceiling if node_share else _NOTHING


class QueueShares:
    """Shares of all queues, with the allocations of a cycle."""

    def __init__(
        self, snapshot: Snapshot, previous_state: ShareState | None = None, journal: Journal | None = None
    ) -> None:
        """Begin a cycle.

        Args:
            snapshot: The state to decide on.
            previous_state: The shares of an earlier cycle, whose unchanged parts are reused.
            journal: The journal in which changes are recorded.
        """
        self.at_start = ShareState.from_snapshot(snapshot, previous_state)
        self._division, self._holdings = self.at_start.division, self.at_start.holdings.copy()
        self.tree = self._division.tree
        self.state = self.at_start._replace(holdings=self._holdings)
        self._oversold_resources = self.at_start.oversold_resources()
        self._ceilings: dict[int, Portions] = {}
        self._recent_usage: dict[int, float] = {}
        # By queue and resource: the smallest slack of the ceilings on the path to root. Allocations clear it.
        self._slacks: dict[str, dict[str, float]] = {}
        self._reserved_by_node: dict[int, dict[str, int]] = {}  # reserved headroom by node of the tree
        self._journal = Journal() if journal is None else journal
        self.reads = self._journal.reads

    def add(self, queue: str, requests: Resources, times: int = 1) -> None:
        """Add `requests` to the allocation of a queue; with `times` -1, subtract them."""
        self._holdings.add(queue, requests, times)
        self._slacks.clear()
        self._journal.record(partial(self._add, queue, requests), times)

    def _add(self, queue: str, requests: Resources, times: int) -> None:
        self._holdings.add(queue, requests, times)
        self._slacks.clear()

    def reserve(self, headroom: Mapping[int, Resources], times: int = 1) -> None:
        """Reserve headroom below the ceilings of nodes, which no group may use; with `times` -1, free it."""
        self._journal.apply(partial(self._reserve, headroom), times)

    def _reserve(self, headroom: Mapping[int, Resources], times: int) -> None:
        for node, amounts in headroom.items():
            add(self._reserved_by_node.setdefault(node, {}), amounts, times)
        self._slacks.clear()

    def relative_share(self, node: int) -> float:
        """Return allocated/deserved of a queue in the dominant resource."""
        node_share = self._division.share(node)
        return share(self._holdings.held(node), node_share.deserved) if node_share else 0.0

    def recent_usage(self, node: int) -> float:
        """Return the decayed usage of a queue and the queues below it.

        The usage is divided by the part of the cluster that the queue is due by its weight.
        """
        if node not in self._recent_usage:
            cluster_part = max(float(self._division.parts_of_cluster[node]), _MIN_CLUSTER_PART)
            self._recent_usage[node] = self._used_part(node) / cluster_part
        return self._recent_usage[node]

    def _used_part(self, node: int) -> float:
        """Return the recent usage of a node of the queue tree as a part of the cluster."""
        queue = self.tree.queues[node]
        if not self.tree.has_children(node):
            return self.at_start.snapshot.past_usage.part_by_queue.get(queue, 0.0)
        return sum(map(self._used_part, self.tree.children([node])[0].tolist()))

    def borrowed_amounts(self, node: int) -> Resources:
        """Return the amounts that a queue held above its deserved amounts when the cycle began."""
        held_amounts, deserved = self.at_start.holdings.held(node), self.state.deserved_at(node)
        excess = {name: amount - deserved.get(name, 0.0) for name, amount in held_amounts.items()}
        return {name: int(n) for name, n in excess.items() if n >= 1 and name not in _NOT_SHARED}

    @recorded_read
    def is_above_share(self, queue: str, requests: Resources) -> bool:
        """Return whether the queue would hold more than its deserved share with `requests`."""
        leaf = self.tree.leaves[queue]
        held_amounts, deserved = self._holdings.held(leaf), self.state.deserved_at(leaf)
        return bool(exceeded_dimensions(self._offered_part(requests), held_amounts, deserved, _NOT_SHARED))

    def needs_borrowing(self, queue: str, requests: Resources) -> bool:
        """Return whether `requests` is beyond the share of a queue and is not deserved over time, either."""
        return self.is_above_share(queue, requests) and not self._is_deserved_over_time(queue, requests)

    @recorded_read
    def _is_deserved_over_time(self, queue: str, requests: Resources) -> bool:
        """Return whether a queue below its share may exceed the share by one indivisible request.

        The excess of the request is compared with recent usage, relative to what is due to each queue by its
        weight. The queue may exceed its share if the recent usage of a sibling is ahead of the queue's own
        usage by at least the excess. The request then adds to the queue's usage, so the siblings catch up.

        An excess beyond `_MAX_EXCESS_PART` is not allowed. Such a request would withhold capacity from other
        groups until all of it is free, and could not be distinguished from borrowing.
        """
        leaf = self.tree.leaves[queue]
        usage, deserved = self._holdings.held(leaf), self.state.deserved_at(leaf)
        excesses = exceeded_dimensions(self._offered_part(requests), usage, deserved, _NOT_SHARED)
        if not excesses or any(usage.get(name, 0) >= deserved.get(name, 0.0) - EPSILON for name in excesses):
            return False
        excess = max((usage.get(name, 0) + requests[name]) / deserved[name] for name in excesses) - 1.0
        return excess <= _MAX_EXCESS_PART and any(
            ahead >= excess for ahead in self._usage_ahead_of_siblings(queue)
        )

    def may_keep_excess(self, queue: str, claimant: str) -> bool:
        """Return whether a queue may keep its allocation beyond its share when `claimant` wants it.

        The queue may keep it if its recent usage is ahead of the claimant's usage by no more than the excess.
        The excess is a part of the share, and must be at most `_MAX_EXCESS_PART`. If neither queue has used
        anything recently, or if one of the queues is below the other, the queue may not keep its excess.
        """
        leaf, claimant_path = self.tree.leaves[queue], set(self.tree.path(claimant))
        held_amounts, deserved = self._holdings.held(leaf), self.state.deserved_at(leaf)
        excess = share(held_amounts, deserved) - 1.0
        nodes, other_path = self.tree.path(queue), self.tree.path(claimant)
        common = next(node for node in nodes if node in claimant_path)
        if common in (nodes[0], other_path[0]):  # a queue and a queue below it do not alternate
            return False
        own_branch, other_branch = nodes[nodes.index(common) - 1], other_path[other_path.index(common) - 1]
        has_used_any = self.recent_usage(own_branch) > 0.0 or self.recent_usage(other_branch) > 0.0
        is_within_excess = self.recent_usage(own_branch) - self.recent_usage(other_branch) <= excess
        return excess <= _MAX_EXCESS_PART and has_used_any and is_within_excess

    def _usage_ahead_of_siblings(self, queue: str) -> Iterator[float]:
        """Yield for each level by how much the recent usage of any sibling exceeds the usage of the node."""
        for node in self.tree.path(queue)[:-1]:
            siblings = self.tree.children([self.tree.parents[node]])[0].tolist()
            yield max(map(self.recent_usage, siblings)) - self.recent_usage(node)

    def share_excess_text(self, queue: str, requests: Resources) -> str:
        """Return how `requests` exceeds the share of a queue, such as `cpu 32 > 24`; empty if it does not.

        `requests` is added to the amounts that the queue held when the cycle began.
        """
        leaf = self.tree.leaves[queue]
        held, deserved = self.at_start.holdings.held(leaf), self.state.deserved_at(leaf)
        excesses = exceeded_dimensions(self._offered_part(requests), held, deserved, _NOT_SHARED)[:_MAX_NAMES]
        sums = ((name, held.get(name, 0) + requests[name], deserved.get(name, 0)) for name in excesses)
        return ", ".join(f"{name} {show(name, n)} > {show(name, max_amount)}" for name, n, max_amount in sums)

    def headroom_within_share(self, queue: str, requests: Resources) -> int:
        """Return how many more times a queue may hold `requests` within its deserved amounts."""
        compared_requests = {name: amount for name, amount in requests.items() if name not in _NOT_SHARED}
        return self.headroom_at(self.tree.leaves[queue], compared_requests, 1.0)

    def _offered_part(self, requests: Resources) -> Resources:
        """Return a request without the resources that no node offers.

        Shares do not concern these resources.
        """
        return {name: amount for name, amount in requests.items() if name in self._division.total}

    def headroom_at(self, node: int, requests: Resources, share: float, slack: float = EPSILON) -> int:
        """Return how many more times a node may hold `requests`, up to `share` times its deserved amounts.

        With a negative `slack`, the allocation stays below that limit.
        """
        deserved, holdings = self.state.deserved_at(node), self._holdings.held(node)
        fitting_times = (
            ((deserved[name] * share if name in deserved else 0.0) - holdings.get(name, 0) + slack) / amount
            for name, amount in self._offered_part(requests).items()
        )
        return int(min(max(min(fitting_times, default=inf), 0.0), _MAX_COUNT))

    @recorded_read
    def steps_to_lender(self, queue: str, requests: Resources) -> int:
        """Return the number of steps in the tree from a queue's own groups up to the nearest lender.

        A lender is a node that has enough of its specified amounts left for `requests`. The allocations of
        the queues below the node count. If there is no lender, root counts as the lender.
        """
        path, names = self.tree.path(queue), self._division.names
        columns = [(names.index(name), name, amount) for name, amount in requests.items() if name in names]
        for step_count, node in enumerate(path if columns else ()):
            held_amounts, nominal = self._holdings.held(node), self._division.nominal[node]
            if all(held_amounts.get(name, 0) + n <= nominal[column] + EPSILON for column, name, n in columns):
                return step_count
        return len(path)

    @recorded_read
    def headroom_below_ceiling(self, queue: str, requests: Resources) -> int:
        """Return how many more times the queue may hold `requests`.

        The queue must stay within its own ceilings and the ceilings of the queues above it.
        """
        max_times = float(_MAX_COUNT)
        for name, amount in self._offered_part(requests).items():
            # Unused reserved amounts below the nodes so far. The allocation of the next node includes them.
            unused_amount = 0
            for node in self.tree.path(queue):
                limit = self._limit(node, name)
                free_amount = max(limit - self._counted_amounts(node).get(name, 0), 0.0) + unused_amount
                if self._has_unused_reserve(node):
                    free_amount = min(free_amount, max(limit - self._holdings.held(node).get(name, 0), 0.0))
                max_times = min(max_times, (free_amount + EPSILON) / amount)
                unused_amount += self._holdings.unused(node, name)
        return int(max_times)

    def headroom(self, queue: str, requests: Resources) -> Iterator[tuple[int, Resources, Resources]]:
        """Yield the headroom below the ceilings of a queue and the queues above it, except root.

        Yields:
            The node of the ceiling, the part of `requests` that counts there, and the free amounts.
        """
        node_requests = self._offered_part(requests)
        for node in self.tree.path(queue):
            held_amounts = self._counted_amounts(node)
            limits = {name: self._limit(node, name) for name in node_requests} if node != TOP else {}
            free_amounts = {name: int(n - held_amounts.get(name, 0)) for name, n in limits.items() if n < inf}
            if free_amounts:
                yield node, {name: node_requests[name] for name in free_amounts}, free_amounts
            node_requests = self._holdings.beyond_reservation(node, node_requests)

    @recorded_read
    def never_fits(self, queue: str, requests: Resources) -> bool:
        """Return whether `requests` exceeds the ceiling even if no queue held anything.

        Amounts that are reserved for guarantees beyond the cluster count as available, since more nodes or
        lower guarantees may free them.
        """
        leaf = self.tree.leaves[queue]
        potential = dict(zip(self._division.names, self._division.potential[leaf].tolist(), strict=True))
        for name in self._oversold_resources:
            limits = (self._division.own_limits(node).get(name, inf) for node in self.tree.path(queue))
            potential[name] = min(self._division.total.get(name, 0), *limits)
        return bool(exceeded_dimensions(self._offered_part(requests), {}, potential))

    @recorded_read
    def ceiling_excess(self, queue: str, requests: Resources) -> str:
        """Return how `requests` would exceed a ceiling of the queue or of a queue above it, as text.

        The text is empty if no ceiling would be exceeded.
        """
        slack = self._slacks.get(queue)
        if slack is None:
            slack = self._slacks[queue] = dict.fromkeys(self._division.total, inf)
            for node in self.tree.path(queue):
                held_amounts = self._counted_amounts(node)
                for name in slack:
                    slack[name] = min(slack[name], self._limit(node, name) - held_amounts.get(name, 0))
        if all(amount <= slack.get(name, inf) for name, amount in requests.items()):
            return ""
        added_requests = requests = self._offered_part(requests)
        for node in self.tree.path(queue):
            if messages := self._excess_messages(node, added_requests, requests):
                name = self.tree.queues[node]
                return ("" if name == queue else f"in queue {name} above it, ") + ", ".join(messages)
            added_requests = self._holdings.beyond_reservation(node, added_requests)
        return ""

    def _excess_messages(self, node: int, part: Resources, requests: Resources) -> list[str]:
        """Return a message for each resource of which a node has too little headroom for `part`.

        If `part` fits, return the messages for all of `requests` instead, provided that unused amounts are
        reserved below the node. Other groups may start earlier, and then hold these reserved amounts.
        """
        limits = {name: self._limit(node, name) for name in requests}
        if excesses := exceeded_dimensions(part, self._counted_amounts(node), limits):
            reserve = self._unused_reserve
            return [self._excess_message(node, name, part[name], reserve(node, name)) for name in excesses]
        if not self._has_unused_reserve(node):
            return []
        excesses = exceeded_dimensions(requests, self._holdings.held(node), limits)
        return [self._excess_message(node, name, requests[name]) for name in excesses]

    def _has_unused_reserve(self, node: int) -> bool:
        """Return whether unused amounts are reserved below a node. Root (the free capacity) never counts."""
        return node != TOP and self._holdings.held_or_reserved(node) is not self._holdings.held(node)

    def _counted_amounts(self, node: int) -> Resources:
        """Return the amounts that count towards the ceiling of a node: allocations and reservations."""
        amounts = self._holdings.held_or_reserved(node)
        return total([amounts, self._reserved_by_node[node]]) if node in self._reserved_by_node else amounts

    def _limit(self, node: int, name: str) -> float:
        """Return the ceiling of a node for a resource. Guarantees of queues also limit root."""
        if node == TOP and self._unused_reserve(TOP, name):
            return self._division.total[name]
        # Unlike a queue's own limit, the sum of all nodes is no ceiling: nodes with pods may be gone.
        if node not in self._ceilings:
            node_share = self._division.share(node)
            ceilings, limits = node_share.ceiling if node_share else _NOTHING, self._division.own_limits(node)
            self._ceilings[node] = {
                name: limit if (limit := ceilings.get(name, inf)) < allocatable else limits.get(name, inf)
                for name, allocatable in self._division.total.items()
            }
        return self._ceilings[node][name]

    def _unused_reserve(self, node: int, name: str) -> int:
        """Return the unused amount that is reserved for queues below a node."""
        return self._holdings.held_or_reserved(node).get(name, 0) - self._holdings.held(node).get(name, 0)

    def _excess_message(self, node: int, name: str, added_amount: int, guarantee: int = 0) -> str:
        """Return the message for a node of the queue tree whose ceiling would be exceeded.

        Args:
            node: The node.
            name: The resource.
            added_amount: The amount that is requested.
            guarantee: The amount that is reserved for guarantees of other queues.
        """
        held_amount, limit = self._holdings.held(node).get(name, 0), self._limit(node, name)
        reserved_text = f" + {show(name, guarantee)} reserved for other queues" if guarantee > 0 else ""
        if reserved_amount := self._reserved_by_node.get(node, {}).get(name, 0):
            reserved_text += f" + {show(name, reserved_amount)} reserved"
        request_text = f"{show(name, added_amount)} asked > {show(name, limit)}"
        text = f"{resource_of(name)}: {show(name, held_amount)} held{reserved_text} + {request_text}"
        if name in self._oversold_resources and limit < self._division.own_limits(node).get(name, inf):
            return f"{text} (queues are guaranteed more than nodes offer)"
        demand = self._division.demands.get(self.tree.queues[node])
        if demand is None or self.tree.is_extra_leaf(node) or name not in (demand.borrowing_limit or {}):
            return text
        # If the ceiling is the deserved amount plus the borrowing limit, name both parts.
        deserved_amount = (demand.deserved or {}).get(name, self.state.deserved_at(node).get(name, 0.0))
        max_loan = (demand.borrowing_limit or {})[name]
        if abs(deserved_amount + max_loan - limit) > 1:
            return text
        return f"{text} ({show(name, deserved_amount)} deserved + {show(name, max_loan)} borrowed at most)"

    def share_of_own_groups(self, queue: str) -> float:
        """Return allocated/deserved of the queue's own groups in the dominant resource.

        The result is infinite if these groups hold a resource of which the queue deserves nothing.
        """
        if queue not in self.tree.leaves:
            return 0.0
        leaf = self.tree.leaves[queue]
        usage, deserved = self._holdings.held(leaf), self.state.deserved_at(leaf)
        parts = ((n, deserved.get(name, 0.0)) for name, n in usage.items() if n and name not in _NOT_SHARED)
        return max((n / share if share >= EPSILON else inf for n, share in parts), default=0.0)

    def exceeds_share(self, queue: str) -> bool:
        """Return whether the queue's own groups hold more than they deserve.

        The number of pods does not count.
        """
        if (leaf := self.tree.leaves.get(queue)) is None:
            return False
        held_amounts, deserved = self._holdings.held(leaf), self.state.deserved_at(leaf)
        return bool(exceeded_dimensions(held_amounts, {}, deserved, _NOT_SHARED))

    def is_below_share_without(self, queue: str, amounts: Resources) -> bool:
        """Return whether a queue without `amounts` would be below its deserved amount of each resource.

        Resources that it does not hold do not count.
        """
        leaf = self.tree.leaves[queue]
        usage, deserved = self._holdings.held(leaf), self.state.deserved_at(leaf)
        remaining = ((name, n - amounts.get(name, 0)) for name, n in usage.items() if name not in _NOT_SHARED)
        return all(n < deserved.get(name, 0.0) - EPSILON for name, n in remaining if n)

    def levels(self, queue: str, other_queue: str = "") -> Iterator[tuple[Resources, Portions, Resources]]:
        """Yield the allocation, the deserved and the reserved amounts of a queue and of each queue above it.

        Queues that are also above `other_queue` are left out: if the queue loses amounts to `other_queue`,
        their own amounts stay the same.
        """
        common_nodes = set(self.tree.path(other_queue)) if other_queue in self.tree.leaves else {TOP}
        for node in self.tree.path(queue):
            if node in common_nodes:
                return
            yield self._holdings.held(node), self.state.deserved_at(node), self._holdings.reserved(node)


def total_of(snapshot: Snapshot) -> Resources:
    """Return the allocatable amounts of all nodes, and of the nodes of each flavor."""
    amounts = zip(snapshot.dimensions, column_sums(snapshot.allocatable), strict=True)
    total = {name: amount for name, amount in amounts if counts_in_queues(name)}
    if snapshot.pools.all_pools:
        rows_of_pools = snapshot.nodes.pool_rows(snapshot.pools)
        total |= rows_of_pools.totals_by_pool(snapshot.dimensions, snapshot.allocatable)
    return total


def _pool_rows_of(snapshot: Snapshot) -> PoolRows | None:
    """Return the rows of the flavors' pools; None if there are no pools."""
    return snapshot.nodes.pool_rows(snapshot.pools) if snapshot.pools.all_pools else None


def _lower_guarantee(demand: QueueDemand, part: Resources) -> QueueDemand:
    """Return a demand with a lower guarantee. `part` has the amounts that are available for the guarantee."""
    lending_limit = {name: limit for name, limit in (demand.lending_limit or {}).items() if name not in part}
    return replace(demand, guarantee={**demand.guarantee, **part}, lending_limit=lending_limit or None)


def _demand(queue: QueueInfo, oversell: float) -> QueueDemand:
    """Return the demand of a queue.

    A queue that does not exist has no groups in the division. The groups of a queue with a fault cannot
    start, so the queue requests only what it holds.
    """
    record = queue.record
    return QueueDemand(
        name=record.name,
        weight=record.weight,
        request=queue.allocated if queue.fault else queue.requested,
        capability=record.capability,
        guarantee=record.guarantee,
        has_groups=queue.exists and queue.group_count > 0,
        parent=record.parent,
        deserved=record.deserved,
        borrowing_limit=record.borrowing_limit,
        lending_limit=record.lending_limit,
        oversell=oversell if record.oversell is None else record.oversell,
    )


def _with_flavors(demand: QueueDemand, queue: QueueInfo, pool_rows: PoolRows) -> QueueDemand:
    """Return the demand with the amounts of flavors that the queue specifies and requests.

    Waiting groups request each flavor that they may use. If the queue specifies no deserved or guaranteed
    amount of a resource, the sum over its flavors counts.
    """
    specified: dict[str, dict[str, int]] = {}
    flavor_sums: dict[str, dict[str, int]] = {}
    for flavor in (flavor for flavor in queue.record.flavors if not flavor.is_missing):
        pool = pool_rows.pools.by_nodes.get(flavor.nodes, Pool("", flavor.nodes))
        for field, amounts in flavor.amounts.items():
            specified.setdefault(field, {}).update(pool.rename(amounts))
            add(flavor_sums.setdefault(field, {}), amounts)
    flavor_requests = dict(pool_rows.pools.rename(queue.amounts_by_pool))
    waiting_requests = {name: n - queue.allocated.get(name, 0) for name, n in demand.request.items()}
    add(flavor_requests, pool_rows.max_requests(queue.flavors, waiting_requests))
    deserved = {**flavor_sums.get("deserved", {}), **(demand.deserved or {})}
    return replace(
        demand,
        request={**demand.request, **flavor_requests},
        capability={**(demand.capability or {}), **specified.get("capability", {})},
        deserved={**deserved, **specified.get("deserved", {})},
        guarantee={**flavor_sums.get("guarantee", {}), **demand.guarantee, **specified.get("guarantee", {})},
        borrowing_limit={**(demand.borrowing_limit or {}), **specified.get("borrowing_limit", {})},
        lending_limit={**(demand.lending_limit or {}), **specified.get("lending_limit", {})},
    )
