"""Reservations: nodes are reserved for groups that have waited too long.

A reservation has nodes, and the time at which they are expected to be free. On these nodes, the capacity that
the group needs is withheld from all other groups. Groups that end before that time may start (backfill), and
all groups may use the capacity that the group does not need. Backfilled groups never delay the time.
Otherwise, groups that run longer than declared would delay the group again and again.

If the start time is unknown, or once a guaranteed time has passed, the capacity is reserved for one period
and then lent for a period of the same length. Each later pair of periods is twice as long as the pair before.
Without lent periods, the rest of a node with a service without an end would remain idle. If the periods did
not grow, groups that run longer than one period would always come first.

If a group would bring its queue above the queue's share, its reservation does not bind groups of other queues
that are within their share. If a group stays within its queue's share, and its start time is known and near,
this time is guaranteed. Until then, the reservation binds all groups, even if shares change. Only guaranteed
times are published.

All reservations together are limited to a part of the cluster. If one reservation needs more, it is the only
one.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from itertools import chain
from math import floor, log2
from typing import NamedTuple

from msgspec.structs import replace

from extender.domain.model.reasons import CAPACITY_REASONS, Reason
from extender.domain.model.records import GroupKey, Uid
from extender.domain.model.resources import Resources, add
from extender.domain.placement.planner import EquivalenceClass, Planner
from extender.domain.scheduling.backfill import FAR_PERIODS, Backfill, ReservedCapacity, start_of
from extender.domain.scheduling.consolidation import reserve_homes
from extender.domain.scheduling.cycle import Cycle, Guard
from extender.domain.scheduling.headroom import Amounts, reserve, subtract
from extender.domain.scheduling.order import Rank, Strategies
from extender.domain.scheduling.shares import total_of
from extender.domain.snapshot.decisions import GroupDecision
from extender.domain.snapshot.group_info import GroupInfo, Reservation
from extender.domain.snapshot.wholeness import Missing, missing, ready_since

_MIN_STAY_SECONDS = 60.0  # seconds until other nodes may be chosen; doubled with each choice
_SEARCH_SECONDS = 1.0  # seconds until the next search if a cycle has already searched
_GRACE_SECONDS = 60.0  # seconds after a guaranteed time in which running groups may still end
_MAX_RESERVATIONS = 32  # maximum number of reservations; each group is compared with all of them
_MAX_SEARCHES = 4  # number of searches without a result in one cycle
_TURN_COUNT = _MAX_SEARCHES // 2  # number of searches for groups that take turns
RESERVABLE_REASONS = (*CAPACITY_REASONS, Reason.QUEUE_CEILING)  # reasons that allow a reservation
_RESERVING_REASONS = (*RESERVABLE_REASONS, Reason.RESERVED)
_KEEPING_REASONS = (*_RESERVING_REASONS, Reason.QUEUE_SHARE, Reason.WINDOW_FULL)
RESERVATION_TOPIC = "reserved"  # topic of reads of reservations
WithheldByGroup = Mapping[GroupKey, tuple[Reservation, tuple[bytes, Amounts, bool, Rank | None] | None]]
"""Reservations by group. Unless its capacity is lent, each comes with the reserved amounts of nodes and the
reserved headroom, whether it binds all queues and, without a promise, the place of the group in its queue."""


class Reservations:
    """Reservations of a cycle."""

    def __init__(self, cycle: Cycle, strategies: Strategies) -> None:
        self._cycle, self._rank = cycle, strategies.rank
        self._holders: dict[GroupKey, tuple[GroupInfo, Reservation]] = {}
        self._capacities: dict[GroupKey, ReservedCapacity] = {}
        self.is_lending = False  # whether the cycle now evaluates groups above their share
        self._lines: defaultdict[EquivalenceClass, list[GroupInfo]] = defaultdict(list)
        self.first_by_class: Mapping[EquivalenceClass, GroupInfo] = {}  # first eligible group of each class
        self.eligible_groups: list[GroupInfo] = []  # groups that may get a reservation now, in order
        self.next_group: GroupInfo | None = None  # group that must get the next reservation

    @cached_property
    def _backfill(self) -> Backfill:
        return Backfill(self._cycle, self._rank, self._capacities)

    def reserve_for_moved(self) -> None:
        """Reserve the capacity for replacements of moved pods until they run there."""
        self._capacities.update(reserve_homes(self._cycle))

    def begin(self, waiting_groups: Iterable[GroupInfo]) -> None:
        """Reserve the capacity for each of the `waiting_groups` that has a reservation."""
        cycle = self._cycle
        groups = (group for group in waiting_groups if group.key not in self._capacities)  # no moved groups
        reservations = ((group.start.reservation, _with_reserved_plan(group)) for group in groups)
        holders = [(old, group) for old, group in reservations if old is not None]
        holders.sort(key=lambda holder: (not holder[0].is_promised, holder[0].since, start_of(holder[0])))
        for old, group in holders:
            with Guard(cycle, group):
                if not self._is_within_limit(old.requests) or (new := self._renew(group)) is None:
                    continue
                reservation = self._with_guarantee(group, new)
                # Reserved and lent periods alternate. If there is a guaranteed time, they begin at that time.
                promised_at = reservation.passable_until
                begins_at = reservation.since if promised_at is None else promised_at
                turn = turn_at(cycle.snapshot.now, begins_at, cycle.limits.capacity_reserved)
                cycle.is_due(turn.ends_at)
                lent_until = "" if turn.is_reserved else cycle.snapshot.timestamp(turn.ends_at)
                reservation = replace(reservation, lent_until=lent_until)
                self._holders[group.key] = group, reservation
                if turn.is_reserved:
                    binds_all = reservation.is_promised or not self._brings_above_share(group, reservation)
                    self._backfill.reserve(group, reservation, binds_all)

    def _is_within_limit(self, requests: Resources) -> bool:
        """Return whether all reservations, with one more for `requests`, are within their limit."""
        limit, sums = self._cycle.limits.max_reserved_part, dict(requests)
        if limit <= 0.0:
            return False
        if not self._holders:
            return True
        for _, reservation in self._holders.values():
            add(sums, reservation.requests)
        totals = total_of(self._cycle.snapshot).items()
        is_within = all(sums.get(name, 0) <= limit * amount for name, amount in totals)
        return is_within and len(self._holders) < _MAX_RESERVATIONS

    def _with_guarantee(self, group: GroupInfo, reservation: Reservation) -> Reservation:
        """Return the reservation with an updated guarantee of its start, which may have begun or ended.

        A new guarantee ranks behind earlier guarantees. It ends `_GRACE_SECONDS` after the guaranteed start.
        """
        cycle, start = self._cycle, reservation.passable_until
        if start is None or (reservation.is_promised and not cycle.is_due(start + _GRACE_SECONDS)):
            return reservation
        is_near = (
            cycle.is_due(start - FAR_PERIODS * cycle.limits.capacity_reserved) and not reservation.is_delayed
        )
        is_near = is_near and not cycle.budget.flavors.has_choice(group)  # the start may use another flavor
        is_promised = is_near and not (cycle.is_due(start) or self._brings_above_share(group, reservation))
        guaranteed_since = cycle.snapshot.now if is_promised else reservation.since
        return replace(reservation, is_promised=is_promised, since=guaranteed_since)

    def _brings_above_share(self, group: GroupInfo, reservation: Reservation) -> bool:
        """Return whether the group would bring its queue above its share.

        The queue's own pods on the reserved nodes do not count, since they end before the group starts.
        """
        shares, usage = self._cycle.budget.shares, self._backfill.forecast.usage(reservation, group.queue)
        shares.add(group.queue, usage, times=-1)
        requests = {**self._cycle.budget.flavors.flavored_members(group).requests, **reservation.requests}
        exceeds_share = shares.is_above_share(group.queue, requests)
        shares.add(group.queue, usage)
        return exceeds_share

    def _renew(self, group: GroupInfo) -> Reservation | None:
        """Return the present reservation of a group, if necessary on other nodes. None means that it ends."""
        cycle, old = self._cycle, group.start.reservation
        need = cycle.budget.flavors.flavored_members(group)
        if old is None or cycle.budget.shares.never_fits(group.queue, need.requests):
            return None
        if self._backfill.forecast.still_fits(old, group):
            return old
        new_reservation = self._backfill.forecast.with_new_start(old, group)
        if new_reservation is not None and (cycle.snapshot.now < old.stays_until or self._postpone_search()):
            return _passable_no_later(new_reservation, old)
        if new_reservation is None and self._postpone_search():
            return None
        stay_seconds = max(2.0 * (old.stays_until - old.since), _MIN_STAY_SECONDS)
        new = self._backfill.forecast.search(group, self.unreserved_capacity(), stay_seconds)
        if new is None:
            return None
        return replace(_passable_no_later(new, old), since=old.since, is_promised=old.is_promised)

    def _postpone_search(self) -> bool:
        """Return whether this cycle has searched nodes already.

        If so, request a cycle for the next search.
        """
        if self._backfill.forecast.has_searched:
            self._cycle.request_cycle_at(self._cycle.snapshot.now + _SEARCH_SECONDS)
        return self._backfill.forecast.has_searched

    def unreserved_capacity(self, only_promised: bool = False) -> Planner:
        """Return the free capacity without all amounts that reservations need now or later.

        With `only_promised`, later needs of reservations without a guaranteed start count as free.
        """
        planner = self._cycle.budget.planner.clone()
        for capacity in self._capacities.values():
            if capacity.reservation.is_promised or not only_promised:
                planner.allocate_amounts(capacity.rows, capacity.needs - capacity.withheld)
        return planner

    def free_own_capacity(self, group: GroupInfo, planner: Planner) -> None:
        """Free the group's own reserved capacity in `planner`."""
        for capacity in self.own_capacities(group):
            freed_amounts = capacity.needs if capacity.reservation.is_promised else capacity.withheld
            planner.allocate_amounts(capacity.rows, freed_amounts, times=-1)

    def reserve_promised_headroom(self) -> None:
        """Reserve the headroom of groups with a guaranteed start, even if other groups still hold it."""
        for capacity in self._capacities.values():
            if capacity.reservation.is_promised:
                reserve(self._cycle.budget, subtract(capacity.headroom.amounts, capacity.headroom.reserves))

    def free_own_headroom(self, group: GroupInfo) -> None:
        """Free the group's own reserved headroom."""
        for capacity in self.own_capacities(group):
            headroom = capacity.headroom
            freed_amounts = headroom.amounts if capacity.reservation.is_promised else headroom.reserves
            reserve(self._cycle.budget, freed_amounts, times=-1)

    def is_limited(self, group: GroupInfo) -> bool:
        """Return whether limits on running groups and pods prevent a group's start.

        Headroom that is reserved for the group itself counts as free.
        """
        checkpoint = self._cycle.journal.checkpoint()
        for capacity in self.own_capacities(group):
            reserve(self._cycle.budget, capacity.headroom.reserves, times=-1)
        is_limited = self._cycle.budget.running.excess(group, len(missing(group).members)) is not None
        self._cycle.journal.roll_back(checkpoint)
        return is_limited

    def free_all_headroom(self) -> None:
        """Free all reserved headroom. The journal can undo this."""
        for capacity in self._capacities.values():
            reserve(self._cycle.budget, capacity.headroom.reserves, times=-1)

    @property
    def withheld_by_group(self) -> WithheldByGroup:
        """Return each reservation, with the capacity that it withholds from other groups, if any."""
        terms = {}
        for key, capacity in self._capacities.items():
            rank = None if capacity.reservation.is_promised else self._rank(capacity.group)
            terms[key] = capacity.withheld.tobytes(), capacity.headroom.reserves, capacity.binds_all, rank
        reservations = {key: (capacity.reservation, terms[key]) for key, capacity in self._capacities.items()}
        return reservations | {key: (each, terms.get(key)) for key, (_, each) in self._holders.items()}

    def has_reservation(self, group: GroupInfo) -> bool:
        return group.key in self._holders

    def own_capacities(self, group: GroupInfo) -> list[ReservedCapacity]:
        """Return the capacity that is reserved for a group itself."""
        return [self._capacities[group.key]] if group.key in self._capacities else []

    def is_promised(self, group: GroupInfo) -> bool:
        """Return whether the start of the group is guaranteed, so that no other group may delay it."""
        return any(capacity.reservation.is_promised for capacity in self.own_capacities(group))

    def passable_capacities(self, group: GroupInfo) -> list[ReservedCapacity]:
        """Return the reserved capacity that a group may use, though it is reserved for other groups."""
        self._cycle.reads.record(RESERVATION_TOPIC)
        return self._backfill.passable_capacities(group, self.is_lending) if self._capacities else []

    def blockers_text(self, group: GroupInfo, need: Missing, reason: Reason | None) -> str:
        """Return the owners of reservations that prevent members from starting, as text.

        The text is empty if there are none.
        """
        self._cycle.reads.record(RESERVATION_TOPIC)
        return self._backfill.blockers_text(group, need, reason) if self._capacities else ""

    def use_own_capacity(self, group: GroupInfo) -> AbstractContextManager[None]:
        """Make the capacity that is reserved for a group usable for it during the block."""
        capacities = self.own_capacities(group)
        return self.make_usable(capacities) if capacities else nullcontext()

    def make_usable(self, capacities: Collection[ReservedCapacity]) -> AbstractContextManager[None]:
        """Make reserved capacity usable during the block."""
        return self._backfill.make_usable(capacities)

    def use_reserved(self, group: GroupInfo, plan: Mapping[Uid, str]) -> None:
        """Let a starting group first use capacity that is reserved for groups that start after it ends."""
        if self._capacities:
            self._backfill.use_reserved(group, plan)

    def end(self, group: GroupInfo) -> None:
        """End the reservation of a group that starts. Its unused capacity becomes free."""
        self._holders.pop(group.key, None)
        self._backfill.end_reservation(group)

    def with_reservation(self, group: GroupInfo, decision: GroupDecision) -> GroupDecision:
        """Return the decision on a pending group, with its reservation if it has one.

        If it has none, but might get one, the group is recorded as a candidate.
        """
        if group.key in self._holders and decision.reason in _KEEPING_REASONS:
            _, reservation = self._holders[group.key]
            detail = "; ".join(filter(None, (decision.detail, reservation.text)))
            return replace(decision, detail=detail, reservation=reservation)
        is_at_ceiling = decision.reason is Reason.QUEUE_CEILING
        has_other_flavor = is_at_ceiling and self._cycle.budget.flavors.has_choice(group)
        if decision.reason in _RESERVING_REASONS and not has_other_flavor and self._has_waited_enough(group):
            self._lines[self._class_of(group)].append(group)
        return decision

    def _class_of(self, group: GroupInfo) -> EquivalenceClass:
        """Return the equivalence class of a group.

        Either all groups of a class find nodes, or none of them does.
        """
        need, budget = missing(group), self._cycle.budget
        if budget.planner.affinity.is_any_interdependent(need):
            return group.key
        return group.queue, need.signature, budget.running.class_key(group)

    @property
    def candidates(self) -> Set[tuple[EquivalenceClass, GroupKey]]:
        """Return the groups that might get a reservation, with their class."""
        return {(class_, group.key) for class_, line in self._lines.items() for group in line}

    def make_reservations(self) -> None:
        """Make more reservations at the end of a cycle. These reserve nothing before the next cycle.

        Candidates are the first groups of the equivalence classes. The queue whose first candidate has waited
        longest comes first. The first candidate blocks the others only if it exceeds the limit of all
        reservations.
        """
        self.first_by_class = {class_: min(line, key=self._rank) for class_, line in self._lines.items()}
        reserving_queues = {group.queue for group, _ in self._holders.values()}
        lines: defaultdict[str, list[GroupInfo]] = defaultdict(list)
        for group in sorted(self.first_by_class.values(), key=self._rank):
            with Guard(self._cycle, group):
                if group.queue not in reserving_queues and self._cycle.fits_empty_cluster(missing(group)):
                    lines[group.queue].append(group)
        ordered_lines = sorted(lines.values(), key=lambda line: longest_wait_key(line[0]))
        self.eligible_groups = list(chain.from_iterable(ordered_lines))
        if self.eligible_groups and not self._is_within_limit(missing(self.eligible_groups[0]).requests):
            self.next_group, self.eligible_groups = self.eligible_groups[0], self.eligible_groups[:1]
        elif self.eligible_groups and not self._postpone_search():
            self._search(self._groups_to_search(self.eligible_groups))

    def _has_waited_enough(self, group: GroupInfo) -> bool:
        """Return whether a group has waited for `reserveAfter` of its queue; False without a timestamp."""
        begin = ready_since(group)
        return bool(begin) and self._cycle.is_due(self._cycle.snapshot.instant(begin) + self._patience(group))

    def _patience(self, group: GroupInfo) -> float:
        """Return how many seconds a group waits before it may get a reservation."""
        return self._cycle.snapshot.queues[group.queue].record.reserve_after

    def _groups_to_search(self, groups: Sequence[GroupInfo]) -> Sequence[GroupInfo]:
        """Return the groups to search for now: always the first groups, and some of the others in turn."""
        if len(groups) <= _MAX_SEARCHES:
            return groups
        first_groups, other_groups = groups[:_TURN_COUNT], groups[_TURN_COUNT:]
        now, changed_at = int(self._cycle.snapshot.now), int(self._cycle.snapshot.changed_at)
        if (now - changed_at) * _TURN_COUNT < len(other_groups):
            self._cycle.request_cycle_at(now + 1.0)
        turn_index = now * _TURN_COUNT % len(other_groups)
        return (*first_groups, *(*other_groups[turn_index:], *other_groups[:turn_index])[:_TURN_COUNT])

    def _search(self, groups: Iterable[GroupInfo]) -> None:
        """Make a reservation for each group for which nodes are found, one for each queue."""
        checkpoint, key_by_queue = self._cycle.journal.checkpoint(), dict[str, GroupKey]()
        for group in groups:
            with Guard(self._cycle, group):
                if group.queue in key_by_queue:
                    continue
                if not self._is_within_limit(missing(group).requests):
                    break
                stay_seconds = max(self._patience(group), _MIN_STAY_SECONDS)
                found = self._backfill.forecast.search(group, self.unreserved_capacity(), stay_seconds)
                if found is not None:
                    reservation = self._with_guarantee(group, found)
                    self._cycle.record(replace(self._cycle.decisions[group.key], reservation=reservation))
                    key_by_queue[group.queue] = group.key
                    self._holders[group.key] = group, reservation
                    self._backfill.reserve(group, reservation)
        self._cycle.journal.roll_back(checkpoint)
        for key in key_by_queue.values():
            self._capacities.pop(key, None)
            self._holders.pop(key, None)


def _passable_no_later(new: Reservation, old: Reservation) -> Reservation:
    """Return `new`, passable no longer than `old`: groups that pass a reservation must not delay it."""
    instants = old.passable_until, new.passable_until, new.starts_at
    return replace(new, passable_until=min((at for at in instants if at is not None), default=None))


def _with_reserved_plan(group: GroupInfo) -> GroupInfo:
    """Return the group. For a reserved partial start, it needs only as many members as it has nodes."""
    node_count = len(group.start.reservation.nodes) if group.start.reservation else 0
    is_smaller = 0 < group.job.min_partial_size <= node_count < group.min_member
    return replace(group, min_member=node_count) if is_smaller else group


def longest_wait_key(group: GroupInfo) -> tuple[str, GroupKey]:
    """Return a sort key that puts the longest wait first."""
    return (ready_since(group), group.key)


class CapacityTurn(NamedTuple):
    """Period in which capacity is reserved or lent, until a time on the ledger's clock."""

    is_reserved: bool
    ends_at: float


def turn_at(now: float, first_begin: float, first_seconds: float) -> CapacityTurn:
    """Return the period at this instant.

    Args:
        now: The instant.
        first_begin: The start of the first period.
        first_seconds: The length of the first period in seconds.
    """
    if now < first_begin:
        return CapacityTurn(True, first_begin)
    doublings = floor(log2((now - first_begin) / first_seconds / 2.0 + 1.0))
    begin, length = first_begin + 2.0 * first_seconds * (2.0**doublings - 1.0), first_seconds * 2.0**doublings
    is_reserved = now < begin + length
    return CapacityTurn(is_reserved, begin + (1.0 if is_reserved else 2.0) * length)
