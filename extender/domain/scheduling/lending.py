"""Lending: capacity that queues use above their deserved share, and its reclaim.

Queues borrow capacity that no group claims. A group within its queue's share claims free capacity if it lacks
only capacity. It claims headroom if it lacks only headroom below a ceiling up to which other groups borrow.
The claimed amount is reserved if the whole group would fit on empty nodes. Reserved periods and lent periods
of the same length alternate, so that a group that never starts does not keep nodes idle.

Lent capacity can be reclaimed from queues above their deserved share, but never below their guarantee.
"""

from collections.abc import Iterable, Sequence

from extender.domain.model.reasons import CAPACITY_REASONS, Reason
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.resources import PODS, Resources, add
from extender.domain.model.shapes import Shape
from extender.domain.placement.capacity import CapacityCounts
from extender.domain.placement.eviction_units import Loss, Pick
from extender.domain.placement.planner import EquivalenceClass, Holding, Planner
from extender.domain.queues.share_tree import EPSILON
from extender.domain.scheduling.cycle import Cycle, Guard
from extender.domain.scheduling.flavors import FlavorAssignment
from extender.domain.scheduling.price import Price
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.wholeness import Missing

_NEARNESS = 1e-9  # part of a share per level; among equal shares, the distance of queues decides


class Lending:
    """Capacity that groups within their queues' shares claim.

    The claimed capacity is reserved while other free capacity is lent.
    """

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._claimants: list[tuple[GroupInfo, Missing]] = []  # groups that lack capacity, and their members
        self._claimed_classes: set[EquivalenceClass] = set()  # classes whose first claimant is recorded
        self._reserved_holdings: list[tuple[GroupKey, Holding]] = []  # claimants, and their reserved capacity
        self._ceiling_claimants: list[tuple[GroupInfo, Missing]] = []  # claimants that lack headroom
        self._headroom_by_node: dict[int, dict[str, int]] = {}  # reserved headroom by node of the queue tree
        self.has_begun = False
        self._cached_unclaimed: tuple[CapacityCounts, Planner] | None = None  # and its counts

    def record_claim(self, group: GroupInfo, need: Missing, reason: Reason | None) -> bool:
        """Record the claim of a group, and return whether the group claims capacity or headroom now.

        Only a group within its share claims anything, and only while its claim is not lent.

        Args:
            group: The waiting group.
            need: The members of the group that are to start.
            reason: Why the members wait. The reason decides whether the group claims capacity or headroom.
        """
        shares, is_at_ceiling = self._cycle.budget.shares, reason is Reason.QUEUE_CEILING
        if self.has_begun or not (is_at_ceiling or reason in CAPACITY_REASONS):
            return False
        if is_at_ceiling and (
            shares.is_above_share(group.queue, need.requests)
            or not shares.ceiling_excess(group.queue, need.requests)
        ):
            return False
        if self.is_claim_lent(group) or not self._cycle.fits_empty_cluster(need, keeps_refusals=True):
            return False
        class_ = self._cycle.reads.class_by_group.get(group.key, group.key)
        if class_ not in self._claimed_classes:
            self._claimed_classes.add(class_)
            (self._ceiling_claimants if is_at_ceiling else self._claimants).append((group, need))
            if shares.is_above_share(group.queue, need.requests):
                self.reserve(group, need)  # otherwise smaller groups would use up the capacity
        return True

    def is_claim_lent(self, group: GroupInfo) -> bool:
        """Return whether the capacity that a group claims is lent at present.

        Reserved and lent periods alternate.
        """
        claimed_at, period = group.start.claims_since, self._cycle.limits.capacity_reserved
        if claimed_at is None:
            return False
        period_count = int((self._cycle.snapshot.now - claimed_at) // period)
        self._cycle.is_due(claimed_at + (period_count + 1) * period)
        return bool(period_count % 2)

    def begin(self) -> None:
        """Reserve the free capacity and headroom that claimants could use now, and begin to lend the rest."""
        if self.has_begun:
            return
        self.has_begun = True
        reserved_groups = {key for key, _ in self._reserved_holdings}
        for group, need in self._claimants:
            if group.key not in reserved_groups:
                with Guard(self._cycle, group):
                    self.reserve(group, need)
        shares = self._cycle.budget.shares
        for group, need in self._ceiling_claimants:
            with Guard(self._cycle, group):
                for node, needs, free in shares.headroom(group.queue, need.requests):
                    reserves = {name: min(amount, max(free[name], 0)) for name, amount in needs.items()}
                    shares.reserve({node: reserves})
                    add(self._headroom_by_node.setdefault(node, {}), reserves)

    def reserve(self, group: GroupInfo, need: Missing) -> None:
        """Reserve the free capacity that the group could use now."""
        planner = self._cycle.budget.planner
        has_capacity = any(planner.capacity.total(shape) for shape in need.shapes)
        if plan := planner.place(need.members, is_partial=True) if has_capacity else None:
            planned_pods = ((pod, plan[pod.uid]) for pod in need.members if pod.uid in plan)
            self._reserved_holdings.append((group.key, Holding(planned_pods, ())))

    def free_headroom(self) -> None:
        """Free the headroom that is reserved for claimants."""
        self._cycle.budget.shares.reserve(self._headroom_by_node, times=-1)

    def suspend(self) -> None:
        """Suspend lending, and free the capacity and headroom that are reserved for claimants."""
        for _, holding in self._reserved_holdings:
            self._cycle.budget.planner.free_holding(holding)
        self.free_headroom()
        self._reserved_holdings, self._headroom_by_node, self.has_begun = [], {}, False

    def reserved_nodes(self, group: GroupInfo) -> dict[Uid, str]:
        """Return the nodes on which capacity is reserved for members of a group."""
        return next((holding.plan for key, holding in self._reserved_holdings if key == group.key), {})

    @property
    def reserves_any(self) -> bool:
        """Return whether capacity or headroom is reserved for any claimant."""
        return bool(self._reserved_holdings) or any(
            map(any, (amounts.values() for amounts in self._headroom_by_node.values()))
        )

    @property
    def claimed_shapes(self) -> frozenset[Shape]:
        """Return the shapes of the members for which claimants lack capacity."""
        return frozenset(shape for _, need in self._claimants for shape in need.shapes)

    def claims_text(self) -> str:
        """Return the queues whose groups claim capacity, as text."""
        queues = ", ".join(sorted({group.queue for group, _ in self._claimants}))
        return f"groups in {queues} have a claim on the capacity"

    def headroom_claims_text(self, group: GroupInfo, need: Missing) -> str:
        """Return the queues whose groups claim the headroom that members need, as text for users.

        The text is empty if the headroom would not suffice without these claims, either.
        """
        if not self._headroom_by_node:
            return ""
        shares, journal = self._cycle.budget.shares, self._cycle.journal
        checkpoint = journal.checkpoint()
        self.free_headroom()
        has_headroom = not shares.ceiling_excess(group.queue, need.requests)
        journal.roll_back(checkpoint)
        queues = ", ".join(sorted({group.queue for group, _ in self._ceiling_claimants}))
        return f"groups in {queues} have a claim on the headroom below the ceiling" if has_headroom else ""

    def withholds_capacity_from(self, pod: PodRecord) -> bool:
        """Return whether a pod that did not fit would fit without the capacity reserved for claimants."""
        unclaimed_capacity = self.unclaimed_capacity
        return unclaimed_capacity is not None and unclaimed_capacity.could_place(Missing((pod,)))

    @property
    def unclaimed_capacity(self) -> Planner | None:
        """Return the free capacity as if claimants had reserved none; None if they have reserved none."""
        if not self._reserved_holdings:
            return None
        planner = self._cycle.budget.planner
        counts = planner.capacity.cached_counts
        if self._cached_unclaimed is None or not self._cached_unclaimed[0].belongs_with(counts):
            self._cached_unclaimed = counts, planner.clone()
            for _, holding in self._reserved_holdings:
                self._cached_unclaimed[1].free_holding(holding)
        return self._cached_unclaimed[1]


class VictimShares:
    """Shares of the cycle, for a search for victims for `group`.

    Args:
        resources: The resources that the group lacks. If free capacity is only fragmented, a queue may lose
            pods if it exceeds its share of any requested resource.
        assignment: The assigned flavors. Only allocations on the nodes of these flavors are compared.
        crosses_queues: Whether other queues lose capacity, so that the group's queue must stay within its
            share.
    """

    def __init__(
        self,
        cycle: Cycle,
        group: GroupInfo,
        assignment: FlavorAssignment,
        resources: Iterable[str],
        crosses_queues: bool,
        price: Price,
    ) -> None:
        self._queues = cycle.snapshot.queues
        self._shares = cycle.budget.shares
        self._flavors = cycle.budget.flavors
        self._queue, self._requests, self._name_map = group.queue, assignment.requests, assignment.name_map
        self._scarce_names = {item for name in resources for item in assignment.name_map.get(name, (name,))}
        self._crosses_queues, self._price = crosses_queues, price
        self._cached_shares: dict[str, float] = {}  # cached shares, until the queue loses capacity

    def lost_amounts(self, pick: Pick) -> Resources:
        return self._flavors.requests(((pod, pod.node) for pod in pick.pods), pick.requests)

    def may_lose(self, queue: str, amounts: Resources) -> bool:
        """Return whether a queue may lose `amounts`.

        Each queue above `queue` loses the amounts, too, unless it is also above the queue of the group that
        needs capacity. Before the loss, each losing queue must exceed its deserved share of a lost resource,
        of a scarce one if it loses any. After the loss, it must still have its guarantee. The loss can bring
        a queue below its share, because otherwise one large gang would keep all its capacity. A group may
        always replace other groups of its own queue.
        """
        if queue == self._queue:
            return True
        if queue not in self._queues:
            return False
        losses = {name: n for name, n in amounts.items() if n > 0 and name != PODS}
        for held, deserved, reserved in self._shares.levels(queue, self._queue):
            excess = {name for name in losses if held.get(name, 0) > deserved.get(name, 0.0) + EPSILON}
            excess -= self._name_map.keys()
            if not (excess & self._scarce_names if self._scarce_names & losses.keys() else excess):
                return False
            if any(held.get(name, 0) - n < reserved[name] for name, n in losses.items() if name in reserved):
                return False
        return True

    def lose(self, queue: str, amounts: Resources, times: int = 1) -> None:
        if queue:
            self._shares.add(queue, amounts, -times)
            self._cached_shares.pop(queue, None)

    def share(self, queue: str) -> float:
        """Return the share of a queue. Among equal shares, the share of the nearest queue is the largest."""
        if not queue:
            return 0.0
        if queue not in self._cached_shares:
            level_count = sum(1 for _ in self._shares.levels(queue, self._queue))
            self._cached_shares[queue] = self._shares.share_of_own_groups(queue) - _NEARNESS * level_count
        return self._cached_shares[queue]

    def loss_of(self, picks: Sequence[Pick]) -> Loss:
        return self._price.loss(picks)

    def suffices(self) -> bool:
        if self._shares.ceiling_excess(self._queue, self._requests):
            return False
        return not self._crosses_queues or not self._shares.is_above_share(self._queue, self._requests)
