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

_NEARER = 1e-9  # part of a share per level; among equal shares, the distance of queues decides


class Lending:
    """Capacity that groups within their queues' shares claim.

    It is reserved while other free capacity is lent.
    """

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._claimants: list[tuple[GroupInfo, Missing]] = []  # groups that lack capacity, and their members
        self._claiming: set[EquivalenceClass] = set()  # classes whose first claimant is recorded
        self._reserved: list[tuple[GroupKey, Holding]] = []  # claimants, and their reserved capacity
        self._at_ceiling: list[tuple[GroupInfo, Missing]] = []  # claimants that lack headroom
        self._headroom: dict[int, dict[str, int]] = {}  # reserved headroom by node of the queue tree
        self.has_begun = False
        self._unclaimed: tuple[CapacityCounts, Planner] | None = None  # cached, with its counts

    def record_claim(self, group: GroupInfo, wanted: Missing, reason: Reason | None) -> bool:
        """Record the claim of a group, and return whether the group claims capacity or headroom now.

        A group within its share claims the members `wanted` if it waits for `reason`, unless its claim is
        lent.
        """
        shares, is_at_ceiling = self._cycle.budget.shares, reason is Reason.QUEUE_CEILING
        if self.has_begun or not (is_at_ceiling or reason in CAPACITY_REASONS):
            return False
        if is_at_ceiling and (
            shares.is_above_share(group.queue, wanted.requests)
            or not shares.above_ceiling(group.queue, wanted.requests)
        ):
            return False
        if self.is_claim_lent(group) or not self._cycle.fits_empty_cluster(wanted, keeps_refusals=True):
            return False
        class_ = self._cycle.reads.class_of.get(group.key, group.key)
        if class_ not in self._claiming:
            self._claiming.add(class_)
            (self._at_ceiling if is_at_ceiling else self._claimants).append((group, wanted))
            if shares.is_above_share(group.queue, wanted.requests):
                self.reserve(group, wanted)  # otherwise smaller groups would use up the capacity
        return True

    def is_claim_lent(self, group: GroupInfo) -> bool:
        """Return whether the capacity that a group claims is lent at present.

        Reserved and lent periods alternate.
        """
        since, period = group.start.claims_since, self._cycle.limits.capacity_reserved
        if since is None:
            return False
        periods = int((self._cycle.snapshot.now - since) // period)
        self._cycle.is_due(since + (periods + 1) * period)
        return bool(periods % 2)

    def begin(self) -> None:
        """Begin to lend. The free capacity and headroom that claimants could use now are reserved before."""
        if self.has_begun:
            return
        self.has_begun = True
        reserved_groups = {key for key, _ in self._reserved}
        for group, wanted in self._claimants:
            if group.key not in reserved_groups:
                with Guard(self._cycle, group):
                    self.reserve(group, wanted)
        shares = self._cycle.budget.shares
        for group, wanted in self._at_ceiling:
            with Guard(self._cycle, group):
                for node, needed, free in shares.headroom(group.queue, wanted.requests):
                    reserved = {name: min(amount, max(free[name], 0)) for name, amount in needed.items()}
                    shares.reserve({node: reserved})
                    add(self._headroom.setdefault(node, {}), reserved)

    def reserve(self, group: GroupInfo, wanted: Missing) -> None:
        """Reserve the free capacity that a claimant could use now."""
        planner = self._cycle.budget.planner
        has_capacity = any(planner.capacity.total(shape) for shape in wanted.shapes)
        if plan := planner.place(wanted.members, partly=True) if has_capacity else None:
            planned_pods = ((pod, plan[pod.uid]) for pod in wanted.members if pod.uid in plan)
            self._reserved.append((group.key, Holding(planned_pods, ())))

    def free_headroom(self) -> None:
        """Free the headroom that is reserved for claimants."""
        self._cycle.budget.shares.reserve(self._headroom, times=-1)

    def suspend(self) -> None:
        """Suspend lending, and free the capacity and headroom that are reserved for claimants."""
        for _, holding in self._reserved:
            self._cycle.budget.planner.free_holding(holding)
        self.free_headroom()
        self._reserved, self._headroom, self.has_begun = [], {}, False

    def reserved_for(self, group: GroupInfo) -> dict[Uid, str]:
        """Return the nodes on which capacity is reserved for members of a group."""
        return next((holding.plan for key, holding in self._reserved if key == group.key), {})

    @property
    def reserves_any(self) -> bool:
        """Return whether capacity or headroom is reserved for any claimant."""
        return bool(self._reserved) or any(
            map(any, (reserved.values() for reserved in self._headroom.values()))
        )

    @property
    def claims(self) -> frozenset[Shape]:
        """Return the shapes of the members for which claimants lack capacity."""
        return frozenset(shape for _, wanted in self._claimants for shape in wanted.shapes)

    def text(self) -> str:
        """Return the queues whose groups claim capacity, as text."""
        queues = ", ".join(sorted({group.queue for group, _ in self._claimants}))
        return f"groups in {queues} have a claim on the capacity"

    def headroom_claims_text(self, group: GroupInfo, wanted: Missing) -> str:
        """Return the queues whose groups claim the headroom that members need, as text for users.

        The text is empty if the headroom would not suffice without these claims, either.
        """
        if not self._headroom:
            return ""
        shares, journal = self._cycle.budget.shares, self._cycle.journal
        checkpoint = journal.checkpoint()
        self.free_headroom()
        has_some = not shares.above_ceiling(group.queue, wanted.requests)
        journal.roll_back(checkpoint)
        queues = ", ".join(sorted({group.queue for group, _ in self._at_ceiling}))
        return f"groups in {queues} have a claim on the headroom below the ceiling" if has_some else ""

    def withholds_capacity_from(self, pod: PodRecord) -> bool:
        """Return whether a pod that did not fit would fit without the capacity reserved for claimants."""
        unclaimed = self.unclaimed
        return unclaimed is not None and unclaimed.could_place(Missing((pod,)))

    @property
    def unclaimed(self) -> Planner | None:
        """Return the free capacity as if claimants had reserved none; None if they have reserved none."""
        if not self._reserved:
            return None
        planner = self._cycle.budget.planner
        now = planner.capacity.cached_counts
        if self._unclaimed is None or not self._unclaimed[0].belongs_with(now):
            self._unclaimed = now, planner.clone()
            for _, holding in self._reserved:
                self._unclaimed[1].free_holding(holding)
        return self._unclaimed[1]


class VictimShares:
    """Shares of the cycle, for a search for victims of `group`.

    Attributes:
        scarce: The resources that the group lacks. If free capacity is only fragmented, a queue may lose pods
            if it exceeds its share of any requested resource.
        assignment: The assigned flavors. Only allocations on the nodes of these flavors are compared.
        from_others: Whether other queues lose capacity, so that the group's queue must stay within its share.
    """

    def __init__(
        self,
        cycle: Cycle,
        group: GroupInfo,
        assignment: FlavorAssignment,
        scarce: Iterable[str],
        from_others: bool,
        price: Price,
    ) -> None:
        self._queues = cycle.snapshot.queues
        self._shares = cycle.budget.shares
        self._flavors = cycle.budget.flavors
        self._own, self._requests, self._counted_as = group.queue, assignment.requests, assignment.counted_as
        self._scarce = {each for name in scarce for each in assignment.counted_as.get(name, (name,))}
        self._from_others, self._price = from_others, price
        self._cached: dict[str, float] = {}  # cached shares, until the queue loses capacity

    def lost_amounts(self, pick: Pick) -> Resources:
        return self._flavors.requests(((pod, pod.node) for pod in pick.pods), pick.requests)

    def may_lose(self, queue: str, amounts: Resources) -> bool:
        """Return whether a queue may lose `amounts`, and so may the queues above it that lose them, too.

        Queues that are also above the group's queue lose nothing. Each other queue must exceed its deserved
        share of a scarce resource before the loss, and keep its guarantee after the loss. The loss may go
        below the share. Otherwise one large gang would keep all its capacity. In its own queue, a group may
        always replace other groups.
        """
        if queue == self._own:
            return True
        if queue not in self._queues:
            return False
        losses = {name: n for name, n in amounts.items() if n > 0 and name != PODS}
        for held, deserved, reserved in self._shares.levels(queue, self._own):
            exceeded = {name for name in losses if held.get(name, 0) > deserved.get(name, 0.0) + EPSILON}
            exceeded -= self._counted_as.keys()
            if not (exceeded & self._scarce if self._scarce & losses.keys() else exceeded):
                return False
            if any(held.get(name, 0) - n < reserved[name] for name, n in losses.items() if name in reserved):
                return False
        return True

    def lose(self, queue: str, amounts: Resources, times: int = 1) -> None:
        if queue:
            self._shares.add(queue, amounts, -times)
            self._cached.pop(queue, None)

    def share(self, queue: str) -> float:
        """Return the share of a queue. Among equal shares, the share of the nearest queue is the largest."""
        if not queue:
            return 0.0
        if queue not in self._cached:
            levels = sum(1 for _ in self._shares.levels(queue, self._own))
            self._cached[queue] = self._shares.share_of_own_groups(queue) - _NEARER * levels
        return self._cached[queue]

    def loss_of(self, picks: Sequence[Pick]) -> Loss:
        return self._price.loss(picks)

    def suffices(self) -> bool:
        if self._shares.above_ceiling(self._own, self._requests):
            return False
        return not self._from_others or not self._shares.is_above_share(self._own, self._requests)
