"""Backfill: other groups may start on nodes reserved for a group if they end before its start.

A cycle forecasts when groups end, and where the group finds capacity then. The reserved capacity of those
nodes is withheld from all other groups, and available again while a group is evaluated that may use it.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from itertools import chain
from math import inf, nextafter

import msgspec
import numpy as np
from msgspec.structs import replace

from extender.domain.model.reasons import Reason
from extender.domain.model.records import GroupKey, Uid
from extender.domain.model.resources import Resources
from extender.domain.model.shapes import Shape
from extender.domain.placement.capacity import CapacityCounts
from extender.domain.placement.departures import Departures, RunTimes, earliest, held_by, nodes_of
from extender.domain.placement.planner import Planner, rows_of
from extender.domain.scheduling.budget import Budget
from extender.domain.scheduling.cycle import Cycle
from extender.domain.scheduling.headroom import (
    HeadroomForecast,
    Need,
    left_for,
    reserve,
    short_levels,
    suffices,
)
from extender.domain.scheduling.order import Rank, is_ahead
from extender.domain.snapshot.group_info import GroupInfo, Reservation
from extender.domain.snapshot.nodes import AmountRows, Rows
from extender.domain.snapshot.wholeness import Missing, Signature, missing

FAR = 6.0  # assumed run time of groups without a known one, in reserved periods
GivenBackCounts = dict[frozenset[GroupKey], tuple[CapacityCounts, CapacityCounts]]
"""Counts before and after reservations gave back their capacity, by the groups of these reservations."""


class Forecast:
    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self.times = RunTimes(cycle.snapshot)
        self.has_searched = False  # whether this cycle has searched nodes, which it does only once
        self._reserved: AmountRows | None = None  # future capacity that is reserved, by row
        self.headroom = HeadroomForecast(cycle, self.times)

    def find(self, group: GroupInfo, planner: Planner, stay: float) -> Reservation | None:
        """Return a reservation for the earliest start of a group, that keeps to its nodes for `stay` seconds.

        None if the group would not fit in `planner` even once all running groups have ended.
        """
        self.has_searched = True
        snapshot, now = self._cycle.snapshot, self._cycle.snapshot.now
        wanted = self._cycle.budget.flavors.settled_members(group)

        def has_headroom_at(instant: float) -> bool:
            return self.headroom.has_headroom(group, wanted, instant)

        found = earliest(planner, self._departures, wanted, now, has_headroom_at)
        if found is None:
            return None
        at, nodes = found
        known = at if at is None or not self.headroom.is_guess(group, wanted, at) else None
        below = short_levels(self._cycle.budget, group, wanted)
        expected = snapshot.timestamp(known)
        requests = missing(group).requests
        return Reservation(now, nodes, requests, known, known, now + stay, expected, below)

    def rescheduled(self, reservation: Reservation, group: GroupInfo) -> Reservation | None:
        """Return the reservation with the time at which its nodes and headroom become free; None: never."""
        wanted = self._cycle.budget.flavors.settled_members(group)
        if (rows_and_needs := self._reserved_requests(reservation, wanted)) is None:
            return None
        rows, needs = rows_and_needs
        departures = self._departures_from(reservation)

        def is_free(instant: float) -> bool:
            has_capacity = bool((self._free_after(departures, instant, rows) >= needs).all())
            return has_capacity and self.headroom.has_headroom(group, wanted, instant)

        instants = sorted(
            {self._cycle.snapshot.now, *departures.instants, *self.headroom.instants(group, wanted)}
        )
        first = bisect_left(instants, True, key=is_free)
        if first == len(instants):
            return None
        at, nodes = instants[first], frozenset(reservation.nodes.values())
        is_guess = departures.is_guess(nodes, at) or self.headroom.is_guess(group, wanted, at)
        known = None if is_guess else at
        return replace(reservation, starts_at=known, expected=self._cycle.snapshot.timestamp(known))

    def still_fits(self, reservation: Reservation, group: GroupInfo) -> bool:
        """Return whether the members still fit on the reserved nodes, with headroom, at the start."""
        wanted = self._cycle.budget.flavors.settled_members(group)
        if (rows_and_needs := self._reserved_requests(reservation, wanted)) is None:
            return False
        rows, needs = rows_and_needs
        has_capacity = bool((self.free_at_start(reservation, rows) >= needs).all())
        return has_capacity and self.headroom.has_headroom(group, wanted, start_of(reservation))

    def _reserved_requests(self, reservation: Reservation, wanted: Missing) -> tuple[Rows, AmountRows] | None:
        """Return the reserved rows, and what the members need there.

        None unless the nodes are for exactly these members, exist and suit.
        """
        is_for_them = reservation.nodes.keys() == {pod.uid for pod in wanted.members}
        if not is_for_them or not set(reservation.nodes.values()) <= self._cycle.snapshot.nodes.row.keys():
            return None
        rows, capacity = self.rows(reservation, wanted), self._cycle.budget.planner.capacity
        suit = all(capacity.are_suitable(shape, of_shape) for shape, of_shape in rows.items())
        return capacity.requests_on(rows) if suit else None

    def rows(self, reservation: Reservation, wanted: Missing) -> dict[Shape, Rows]:
        """Return the rows of the reserved nodes by shape, one for each of the members."""
        placed = ((pod, reservation.nodes[pod.uid]) for pod in wanted.members)
        return rows_of(placed, self._cycle.snapshot.nodes)

    def free_at_start(self, reservation: Reservation, rows: Rows) -> AmountRows:
        """Return the free amounts on the reserved `rows` at the expected start of the group.

        Without a known time, that is once all groups that run there have ended.
        """
        return self._free_after(self._departures_from(reservation), start_of(reservation), rows)

    def _free_after(self, departures: Departures, instant: float, rows: Rows) -> AmountRows:
        capacity = self._cycle.budget.planner.capacity
        free = np.asarray(capacity.free[rows] + departures.freed_on(rows, capacity, instant))
        return free if self._reserved is None else free - self._reserved[rows]

    def reserve(self, rows: Rows, amounts: AmountRows) -> None:
        """Reserve future capacity for one group: the forecasts of later reservations lack it."""
        if self._reserved is None:
            self._reserved = np.zeros_like(self._cycle.budget.planner.capacity.free)
        self._reserved[rows] += amounts

    def _departures_from(self, reservation: Reservation) -> Departures:
        """Return the departures of groups that run on the reserved nodes; other nodes do not matter."""
        nodes, (reserved, departures) = set(reservation.nodes.values()), self._departures_from_reserved_nodes
        if nodes <= reserved:
            return departures
        return Departures(self._holders_on(nodes), self.times, self._cycle.snapshot.nodes)

    @cached_property
    def _departures_from_reserved_nodes(self) -> tuple[Set[str], Departures]:
        """Return the nodes of all reservations with which the cycle began, and the departures from them."""
        reservations = (group.start.reservation for group in self._cycle.snapshot.groups.values())
        nodes = set(chain.from_iterable(each.nodes.values() for each in reservations if each))
        return nodes, Departures(self._holders_on(nodes), self.times, self._cycle.snapshot.nodes)

    @cached_property
    def _departures(self) -> Departures:
        return Departures(self._holders, self.times, self._cycle.snapshot.nodes)

    def _holders_on(self, nodes: Iterable[str]) -> Iterable[GroupInfo]:
        return dict.fromkeys(chain.from_iterable(self._by_node.get(node, ()) for node in nodes))

    @cached_property
    def _holders(self) -> list[GroupInfo]:
        return [group for group in self._cycle.snapshot.groups.values() if nodes_of(group)]

    @cached_property
    def _by_node(self) -> dict[str, list[GroupInfo]]:
        holders: dict[str, list[GroupInfo]] = {}
        for group in self._holders:
            for node in nodes_of(group):
                holders.setdefault(node, []).append(group)
        return holders

    def held_on(self, reservation: Reservation, queue: str) -> Resources:
        """Return what a queue's groups hold on the reserved nodes, including amounts of flavors."""
        nodes = frozenset(reservation.nodes.values())
        groups = (group for group in self._holders_on(reservation.node_names) if group.queue == queue)
        held = chain.from_iterable(held_by(group).pods for group in groups)
        return self._cycle.budget.flavors.requests((pod, node) for pod, node in held if node in nodes)


def start_of(reservation: Reservation) -> float:
    return inf if reservation.starts_at is None else reservation.starts_at


class ReservedCapacity(msgspec.Struct, eq=False):
    """Capacity that is reserved for one group."""

    group: GroupInfo
    reservation: Reservation
    rows: Rows
    needs: AmountRows  # amounts that the group will need on these rows
    amounts: AmountRows  # amounts that others cannot use there now
    headroom: Need  # headroom that the group will need
    binds: bool  # whether it binds all queues, or only those above their shares


class Backfill:
    """Reserved capacity of a cycle, and the groups that may use it."""

    def __init__(
        self, cycle: Cycle, rank: Callable[[GroupInfo], Rank], reserved: dict[GroupKey, ReservedCapacity]
    ) -> None:
        self._cycle, self._rank, self._reserved = cycle, rank, reserved
        self._reported: tuple[tuple[GroupKey, ...], str] = (), ""  # groups with reservations, and their text
        self._fits_without: dict[Signature, bool] = {}
        self._given_back: GivenBackCounts = {}
        self._free: tuple[CapacityCounts, Planner] | None = None  # capacity without reservations

    @cached_property
    def forecast(self) -> Forecast:
        return Forecast(self._cycle)

    def reserve(self, group: GroupInfo, reservation: Reservation, binds: bool = True) -> None:
        """Reserve the amounts that the group will need at its start; the rest stays available.

        Free amounts are reserved from now on if that time has come, or is unknown. But no node stays idle for
        a group without a known time that lacks headroom.
        """
        cycle, forecast, planner = self._cycle, self.forecast, self._cycle.budget.planner
        wanted, start = cycle.budget.flavors.settled_members(group), reservation.starts_at
        rows, needs = planner.capacity.requests_on(forecast.rows(reservation, wanted))
        free = np.maximum(planner.capacity.free[rows], 0)
        is_known = start is not None and not cycle.is_due(start)
        free_at_start = forecast.free_at_start(reservation, rows) if is_known else free
        reserved = np.where(needs > 0, np.maximum(free - np.maximum(free_at_start - needs, 0), 0), 0)
        if start is None and not suffices(cycle.budget, group, wanted):
            reserved = np.zeros_like(reserved)
        planner.allocate_amounts(rows, reserved)
        forecast.reserve(rows, needs - reserved)
        headroom = forecast.headroom.reserve(group, wanted, start)
        self._reserved[group.key] = ReservedCapacity(
            group, reservation, rows, needs, reserved, headroom, binds
        )

    def end(self, group: GroupInfo) -> None:
        """End the reservation of a group that starts: its unused rest is free."""
        if (reserved := self._reserved.pop(group.key, None)) is not None:
            self._cycle.budget.planner.allocate_amounts(reserved.rows, reserved.amounts, times=-1)
            reserve(self._cycle.budget, reserved.headroom.reserved, times=-1)

    def may_pass(self, group: GroupInfo, lends: bool) -> list[ReservedCapacity]:
        """Return the reservations that a group may pass.

        A group may pass a reservation if it ends before the reserved start; if only it, and not the
        reservation, is within its share; or if it is ahead in the order and the start is not guaranteed.
        `lends`: whether the group is above its share.
        """
        passed: list[ReservedCapacity] = []
        for reserved in self._reserved.values():
            if self._ends_before(group, reserved):
                passed.append(reserved)
            elif reserved.group.queue != group.queue:
                if not (lends or reserved.binds) or self._has_turn_before(group, reserved):
                    passed.append(reserved)
            elif not reserved.reservation.is_promised and self._is_ahead(group, reserved.group):
                passed.append(reserved)
        return passed

    def _is_ahead(self, group: GroupInfo, other: GroupInfo) -> bool:
        return self._rank(group) < self._rank(other)

    def _ends_before(self, group: GroupInfo, reserved: ReservedCapacity) -> bool:
        """Return whether a group that starts now ends before the start of the reservation."""
        cycle, now, until = self._cycle, self._cycle.snapshot.now, reserved.reservation.passable_until
        seconds = self.forecast.times.run_time_of(group)
        end = now + (FAR * cycle.limits.capacity_reserved if seconds is None else seconds)
        if until is None or end > until:
            return False
        cycle.request_cycle_at(nextafter(now + until - end, inf))
        return True

    def use_reserved(self, group: GroupInfo, plan: Mapping[Uid, str]) -> None:
        """Let a group that starts use reserved capacity and headroom before unreserved capacity.

        Only reservations that begin after the end of the group give capacity to it.
        """
        passed = [reserved for reserved in self._reserved.values() if self._ends_before(group, reserved)]
        if passed:
            budget = self._cycle.budget
            budget.free_plan(group, plan)
            budget.running.add(group, -len(plan))
            with self.given_back(passed):
                budget.reserve(group, plan)
                budget.running.add(group, len(plan))

    def _has_turn_before(self, group: GroupInfo, reserved: ReservedCapacity) -> bool:
        """Return whether the group's queue has its turn before the queue of a reservation without a promise.

        Otherwise reservations would, over time, give their queue more than its part.
        """
        shares, queues = self._cycle.budget.shares, self._cycle.snapshot.queues
        return not reserved.reservation.is_promised and is_ahead(
            shares, queues, group.queue, reserved.group.queue
        )

    def given_back(self, reserved_capacities: Collection[ReservedCapacity]) -> AbstractContextManager[None]:
        return _given_back(self._cycle.budget, reserved_capacities, self._given_back)

    def blocked_by(self, group: GroupInfo, wanted: Missing, reason: Reason | None) -> str:
        """Return the owners of reservations that keep members from starting, as text.

        Empty if the members would lack capacity or headroom even without the reservations.
        """
        at_ceiling = reason is Reason.QUEUE_CEILING
        if not (self._has_headroom(group, wanted) if at_ceiling else self._has_capacity(wanted)):
            return ""
        if self._reported[0] != (owners := tuple(self._reserved)):
            holders = (
                f"{reserved.group.display_name}: {reserved.reservation.text}"
                for reserved in self._reserved.values()
            )
            self._reported = owners, "; ".join(holders)
        return self._reported[1]

    def _has_headroom(self, group: GroupInfo, wanted: Missing) -> bool:
        """Return whether members would have headroom without reservations."""
        checkpoint = self._cycle.journal.checkpoint()
        for reserved in self._reserved.values():
            reserve(self._cycle.budget, reserved.headroom.reserved, times=-1)
        budget = self._cycle.budget
        is_within = (
            not budget.shares.above_ceiling(group.queue, requests)
            for requests in budget.flavors.requests_by_assignment(group)
        )
        has_some = suffices(budget, group, wanted) and any(is_within)
        self._cycle.journal.roll_back(checkpoint)
        return has_some

    def _has_capacity(self, wanted: Missing) -> bool:
        """Return whether members would fit without reservations."""
        planner, known = self._cycle.budget.planner, self._fits_without
        is_interdependent = planner.affinity.any_interdependent(wanted)
        if not is_interdependent and known.get(wanted.signature) is False:
            return False  # capacity only shrinks in a cycle
        now = planner.capacity.known
        if self._free is None or not self._free[0].belongs_with(now):  # computed again after allocations
            self._fits_without = known = {signature: fits for signature, fits in known.items() if not fits}
            self._free = now, planner.clone()
            for reserved in self._reserved.values():
                self._free[1].allocate_amounts(reserved.rows, reserved.amounts, times=-1)
        if is_interdependent or wanted.signature not in known:
            known[wanted.signature] = self._free[1].could_place(wanted)
        return known[wanted.signature]


@contextmanager
def _given_back(
    budget: Budget, reserved_capacities: Collection[ReservedCapacity], known: GivenBackCounts
) -> Iterator[None]:
    """Free reserved capacity during the block; capacity that the block allocates is no longer reserved.

    `known`: cached counts outside and inside such blocks, by the groups of the capacity.
    """
    planner, groups = budget.planner, frozenset(reserved.group.key for reserved in reserved_capacities)
    capacity, counts_outside = planner.capacity, planner.capacity.known
    for reserved in reserved_capacities:
        planner.allocate_amounts(reserved.rows, reserved.amounts, times=-1)
        reserve(budget, reserved.headroom.reserved, times=-1)
    if groups in known:
        known_outside, known_inside = known[groups]
        if known_outside.belongs_with(counts_outside):
            capacity.restore(known_inside)
    counts_inside = capacity.known
    before = [(capacity.free[each.rows], left_for(budget, each.group)) for each in reserved_capacities]
    try:
        yield
        for reserved, (free, headroom) in zip(reserved_capacities, before, strict=True):
            used = np.maximum(free - capacity.free[reserved.rows], 0)
            reserved.amounts = np.maximum(reserved.amounts - used, 0)
            reserved.headroom = reserved.headroom.after(headroom, left_for(budget, reserved.group))
    finally:
        is_as_before = capacity.known.belongs_with(counts_inside)
        for reserved in reserved_capacities:
            planner.allocate_amounts(reserved.rows, reserved.amounts)
            reserve(budget, reserved.headroom.reserved)
        if is_as_before:
            capacity.restore(counts_outside)
            known[groups] = counts_outside, counts_inside
