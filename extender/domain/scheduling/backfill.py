"""Backfill: other groups may start on nodes that are reserved for a group if they end before its start.

A cycle forecasts when groups end, and on which nodes the group then finds capacity. The reserved capacity of
these nodes is withheld from all other groups. During the evaluation of a group that may use this capacity,
the capacity is available.
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
from extender.domain.placement.departures import Departures, RunTimes, earliest_start, holding_of, nodes_of
from extender.domain.placement.planner import Planner, rows_of
from extender.domain.scheduling.budget import Budget
from extender.domain.scheduling.cycle import Cycle
from extender.domain.scheduling.headroom import (
    HeadroomForecast,
    HeadroomNeed,
    full_levels,
    has_enough_headroom,
    remaining_headroom,
    reserve,
)
from extender.domain.scheduling.order import Rank, is_ahead
from extender.domain.snapshot.group_info import GroupInfo, Reservation
from extender.domain.snapshot.nodes import AmountRows, Rows
from extender.domain.snapshot.wholeness import Missing, Signature, missing

FAR_PERIODS = 6.0  # assumed run time of groups without a known run time, in reserved periods
CachedCounts = dict[frozenset[GroupKey], tuple[CapacityCounts, CapacityCounts]]
"""Counts outside and inside a block in which reserved capacity is usable, by the groups that reserve it."""


class Forecast:
    """Forecast of the capacity and headroom that become free as groups end."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self.run_times = RunTimes(cycle.snapshot)
        self.has_searched = False  # a cycle searches nodes only once
        self._reserved_amounts: AmountRows | None = None  # reserved future capacity by row
        self.headroom = HeadroomForecast(cycle, self.run_times)

    def search(self, group: GroupInfo, planner: Planner, seconds: float) -> Reservation | None:
        """Return a reservation for the earliest start of a group. It stays on its nodes for `seconds`.

        None means that the group would not fit in `planner` even once all running groups have ended.
        """
        self.has_searched = True
        snapshot, now = self._cycle.snapshot, self._cycle.snapshot.now
        need = self._cycle.budget.flavors.flavored_members(group)

        def has_headroom_at(instant: float) -> bool:
            return self.headroom.has_headroom(group, need, instant)

        start_and_nodes = earliest_start(planner, self._departures, need, now, has_headroom_at)
        if start_and_nodes is None:
            return None
        start, nodes = start_and_nodes
        known_start = start if start is None or not self.headroom.is_guess(group, need, start) else None
        names = full_levels(self._cycle.budget, group, need)
        expected = snapshot.timestamp(known_start)
        requests = missing(group).requests
        return Reservation(now, nodes, requests, known_start, known_start, now + seconds, expected, names)

    def with_new_start(self, reservation: Reservation, group: GroupInfo) -> Reservation | None:
        """Return the reservation with the time at which its nodes and headroom become free.

        None means that they never become free.
        """
        need = self._cycle.budget.flavors.flavored_members(group)
        if (rows_and_needs := self._rows_and_needs(reservation, need)) is None:
            return None
        rows, needs = rows_and_needs
        departures = self._departures_from(reservation)

        def is_free(instant: float) -> bool:
            has_capacity = bool((self._free_after(departures, instant, rows) >= needs).all())
            return has_capacity and self.headroom.has_headroom(group, need, instant)

        times = sorted({self._cycle.snapshot.now, *departures.instants, *self.headroom.instants(group, need)})
        first_index = bisect_left(times, True, key=is_free)
        if first_index == len(times):
            return None
        freed_at, nodes = times[first_index], frozenset(reservation.nodes.values())
        is_guess = departures.is_guess(nodes, freed_at) or self.headroom.is_guess(group, need, freed_at)
        start = None if is_guess else freed_at
        return replace(reservation, starts_at=start, expected=self._cycle.snapshot.timestamp(start))

    def still_fits(self, reservation: Reservation, group: GroupInfo) -> bool:
        """Return whether the members fit on the reserved nodes and within headroom at the reserved start."""
        need = self._cycle.budget.flavors.flavored_members(group)
        if (rows_and_needs := self._rows_and_needs(reservation, need)) is None:
            return False
        rows, needs = rows_and_needs
        has_capacity = bool((self.free_at_start(reservation, rows) >= needs).all())
        return has_capacity and self.headroom.has_headroom(group, need, start_of(reservation))

    def _rows_and_needs(self, reservation: Reservation, need: Missing) -> tuple[Rows, AmountRows] | None:
        """Return the reserved rows, and the amounts that the members need there.

        None means that the reservation is for other members, or that a reserved node does not exist or does
        not suit its member.
        """
        is_current = reservation.nodes.keys() == {pod.uid for pod in need.members}
        if not is_current or not set(reservation.nodes.values()) <= self._cycle.snapshot.nodes.row_of.keys():
            return None
        rows, capacity = self.rows(reservation, need), self._cycle.budget.planner.capacity
        are_suitable = all(capacity.are_suitable(shape, shape_rows) for shape, shape_rows in rows.items())
        return capacity.requests_on(rows) if are_suitable else None

    def rows(self, reservation: Reservation, need: Missing) -> dict[Shape, Rows]:
        """Return the rows of the reserved nodes by shape, one row for each member."""
        placements = ((pod, reservation.nodes[pod.uid]) for pod in need.members)
        return rows_of(placements, self._cycle.snapshot.nodes)

    def free_at_start(self, reservation: Reservation, rows: Rows) -> AmountRows:
        """Return the free amounts on the reserved `rows` at the expected start of the group.

        If the expected start is unknown, all groups that run on these rows count as ended.
        """
        return self._free_after(self._departures_from(reservation), start_of(reservation), rows)

    def _free_after(self, departures: Departures, instant: float, rows: Rows) -> AmountRows:
        """Return the free amounts on rows at an instant, without amounts reserved for other groups."""
        capacity = self._cycle.budget.planner.capacity
        free_amounts = np.asarray(capacity.free[rows] + departures.amounts_freed_on(rows, capacity, instant))
        return free_amounts if self._reserved_amounts is None else free_amounts - self._reserved_amounts[rows]

    def reserve(self, rows: Rows, amounts: AmountRows) -> None:
        """Reserve future capacity for one group, so that forecasts for later reservations do not count it."""
        if self._reserved_amounts is None:
            self._reserved_amounts = np.zeros_like(self._cycle.budget.planner.capacity.free)
        self._reserved_amounts[rows] += amounts

    def _departures_from(self, reservation: Reservation) -> Departures:
        """Return the departures of groups that run on the reserved nodes."""
        nodes, (reserved, departures) = set(reservation.nodes.values()), self._departures_from_reserved_nodes
        if nodes <= reserved:
            return departures
        return Departures(self._holders_on(nodes), self.run_times, self._cycle.snapshot.nodes)

    @cached_property
    def _departures_from_reserved_nodes(self) -> tuple[Set[str], Departures]:
        """Return the nodes of all reservations at the start of the cycle, and the departures from them."""
        reservations = (group.start.reservation for group in self._cycle.snapshot.groups.values())
        nodes = set(chain.from_iterable(item.nodes.values() for item in reservations if item))
        return nodes, Departures(self._holders_on(nodes), self.run_times, self._cycle.snapshot.nodes)

    @cached_property
    def _departures(self) -> Departures:
        return Departures(self._holders, self.run_times, self._cycle.snapshot.nodes)

    def _holders_on(self, nodes: Iterable[str]) -> Iterable[GroupInfo]:
        """Return the groups with members on these nodes."""
        return dict.fromkeys(chain.from_iterable(self._holders_by_node.get(node, ()) for node in nodes))

    @cached_property
    def _holders(self) -> list[GroupInfo]:
        """Return the groups with members on nodes."""
        return [group for group in self._cycle.snapshot.groups.values() if nodes_of(group)]

    @cached_property
    def _holders_by_node(self) -> dict[str, list[GroupInfo]]:
        holders_by_node: dict[str, list[GroupInfo]] = {}
        for group in self._holders:
            for node in nodes_of(group):
                holders_by_node.setdefault(node, []).append(group)
        return holders_by_node

    def usage(self, reservation: Reservation, queue: str) -> Resources:
        """Return the amounts that a queue's groups hold on the reserved nodes, with amounts of flavors."""
        nodes = frozenset(reservation.nodes.values())
        groups = (group for group in self._holders_on(reservation.node_names) if group.queue == queue)
        holdings = chain.from_iterable(holding_of(group).pods for group in groups)
        return self._cycle.budget.flavors.requests((pod, node) for pod, node in holdings if node in nodes)


def start_of(reservation: Reservation) -> float:
    """Return the expected start of a reservation; infinite if it is unknown."""
    return inf if reservation.starts_at is None else reservation.starts_at


class ReservedCapacity(msgspec.Struct, eq=False):
    """Capacity that is reserved for one group."""

    group: GroupInfo
    reservation: Reservation
    rows: Rows
    needs: AmountRows  # amounts that the group will need on these rows
    withheld: AmountRows  # amounts there that other groups cannot use now
    headroom: HeadroomNeed  # headroom that the group will need
    binds_all: bool  # whether it binds all other groups, or only groups above their queue's share


class Backfill:
    """Reserved capacity of a cycle, and the rules by which other groups may use it."""

    def __init__(
        self, cycle: Cycle, rank: Callable[[GroupInfo], Rank], capacities: dict[GroupKey, ReservedCapacity]
    ) -> None:
        self._cycle, self._rank, self._reserves = cycle, rank, capacities
        self._owners_text: tuple[tuple[GroupKey, ...], str] = (), ""  # reserving groups, and a text on them
        self._known_fits: dict[Signature, bool] = {}
        self._cached_counts: CachedCounts = {}
        self._free: tuple[CapacityCounts, Planner] | None = None  # free capacity if nothing were reserved

    @cached_property
    def forecast(self) -> Forecast:
        return Forecast(self._cycle)

    def reserve(self, group: GroupInfo, reservation: Reservation, binds_all: bool = True) -> None:
        """Reserve the amounts that the group will need at its start. The remaining amounts stay available.

        If the start is due or unknown, all free amounts that the group needs are withheld now. However, no
        node remains idle for a group that lacks headroom and whose start is unknown.
        """
        cycle, forecast, planner = self._cycle, self.forecast, self._cycle.budget.planner
        need, start = cycle.budget.flavors.flavored_members(group), reservation.starts_at
        rows, needs = planner.capacity.requests_on(forecast.rows(reservation, need))
        free_amounts = np.maximum(planner.capacity.free[rows], 0)
        is_known = start is not None and not cycle.is_due(start)
        free_at_start = forecast.free_at_start(reservation, rows) if is_known else free_amounts
        withheld = np.where(needs > 0, np.maximum(free_amounts - np.maximum(free_at_start - needs, 0), 0), 0)
        if start is None and not has_enough_headroom(cycle.budget, group, need):
            withheld = np.zeros_like(withheld)
        planner.allocate_amounts(rows, withheld)
        forecast.reserve(rows, needs - withheld)
        headroom = forecast.headroom.reserve(group, need, start)
        self._reserves[group.key] = ReservedCapacity(
            group, reservation, rows, needs, withheld, headroom, binds_all
        )

    def end_reservation(self, group: GroupInfo) -> None:
        """End the reservation of a group that starts. Its unused capacity becomes free."""
        if (capacity := self._reserves.pop(group.key, None)) is not None:
            self._cycle.budget.planner.allocate_amounts(capacity.rows, capacity.withheld, times=-1)
            reserve(self._cycle.budget, capacity.headroom.reserves, times=-1)

    def passable_capacities(self, group: GroupInfo, is_above_share: bool) -> list[ReservedCapacity]:
        """Return the reserved capacity that a group may use.

        A group may pass a reservation, and use its capacity, in these cases:

        - The group ends before the reserved start.
        - The group is in another queue and within the share of that queue, and the reservation binds only
          groups above their queue's share.
        - The group is in another queue that has its turn before the queue of the reservation.
        - The group is ahead in the same queue, and the reserved start is not guaranteed.

        `is_above_share` is whether the group is above its queue's share.
        """
        passable_capacities: list[ReservedCapacity] = []
        for capacity in self._reserves.values():
            if self._ends_before(group, capacity):
                passable_capacities.append(capacity)
            elif capacity.group.queue != group.queue:
                if not (is_above_share or capacity.binds_all) or self._has_turn_before(group, capacity):
                    passable_capacities.append(capacity)
            elif not capacity.reservation.is_promised and self._is_ahead(group, capacity.group):
                passable_capacities.append(capacity)
        return passable_capacities

    def _is_ahead(self, group: GroupInfo, other_group: GroupInfo) -> bool:
        return self._rank(group) < self._rank(other_group)

    def _ends_before(self, group: GroupInfo, capacity: ReservedCapacity) -> bool:
        """Return whether a group that starts now would end before the start of the reservation."""
        cycle, now, latest_end = self._cycle, self._cycle.snapshot.now, capacity.reservation.passable_until
        seconds = self.forecast.run_times.run_time_of(group)
        end = now + (FAR_PERIODS * cycle.limits.capacity_reserved if seconds is None else seconds)
        if latest_end is None or end > latest_end:
            return False
        cycle.request_cycle_at(nextafter(now + latest_end - end, inf))
        return True

    def use_reserved(self, group: GroupInfo, plan: Mapping[Uid, str]) -> None:
        """Let a starting group use reserved capacity and headroom before unreserved capacity.

        The group may use only the capacity of reservations that start after the group ends.
        """
        capacities = [capacity for capacity in self._reserves.values() if self._ends_before(group, capacity)]
        if capacities:
            budget = self._cycle.budget
            budget.free_plan(group, plan)
            budget.running.add(group, -len(plan))
            with self.make_usable(capacities):
                budget.reserve(group, plan)
                budget.running.add(group, len(plan))

    def _has_turn_before(self, group: GroupInfo, capacity: ReservedCapacity) -> bool:
        """Return whether the group's queue has its turn before the queue of a reservation.

        The result is False if the reserved start is guaranteed. Otherwise, the reservation gives way to the
        queue that has its turn. If it did not, it would give its own queue more than its share over time.
        """
        shares, queues = self._cycle.budget.shares, self._cycle.snapshot.queues
        return not capacity.reservation.is_promised and is_ahead(
            shares, queues, group.queue, capacity.group.queue
        )

    def make_usable(self, capacities: Collection[ReservedCapacity]) -> AbstractContextManager[None]:
        """Make reserved capacity usable during the block."""
        return _make_usable(self._cycle.budget, capacities, self._cached_counts)

    def blockers_text(self, group: GroupInfo, need: Missing, reason: Reason | None) -> str:
        """Return the groups whose reservations prevent members from starting, as text.

        The text is empty if the members would lack capacity or headroom even without the reservations.
        """
        is_at_ceiling = reason is Reason.QUEUE_CEILING
        if not (self._has_headroom(group, need) if is_at_ceiling else self._has_capacity(need)):
            return ""
        if self._owners_text[0] != (owners := tuple(self._reserves)):
            holder_texts = (
                f"{capacity.group.display_name}: {capacity.reservation.text}"
                for capacity in self._reserves.values()
            )
            self._owners_text = owners, "; ".join(holder_texts)
        return self._owners_text[1]

    def _has_headroom(self, group: GroupInfo, need: Missing) -> bool:
        """Return whether members would have headroom if nothing were reserved."""
        checkpoint = self._cycle.journal.checkpoint()
        for capacity in self._reserves.values():
            reserve(self._cycle.budget, capacity.headroom.reserves, times=-1)
        budget = self._cycle.budget
        is_within = (
            not budget.shares.ceiling_excess(group.queue, requests)
            for requests in budget.flavors.requests_by_assignment(group)
        )
        has_headroom = has_enough_headroom(budget, group, need) and any(is_within)
        self._cycle.journal.roll_back(checkpoint)
        return has_headroom

    def _has_capacity(self, need: Missing) -> bool:
        """Return whether members would fit if nothing were reserved."""
        planner, results = self._cycle.budget.planner, self._known_fits
        is_interdependent = planner.affinity.is_any_interdependent(need)
        if not is_interdependent and results.get(need.signature) is False:
            return False  # in a cycle, capacity never grows
        counts = planner.capacity.cached_counts
        if self._free is None or not self._free[0].belongs_with(counts):  # compute it again after allocations
            self._known_fits = results = {signature: fits for signature, fits in results.items() if not fits}
            self._free = counts, planner.clone()
            for capacity in self._reserves.values():
                self._free[1].allocate_amounts(capacity.rows, capacity.withheld, times=-1)
        if is_interdependent or need.signature not in results:
            results[need.signature] = self._free[1].could_place(need)
        return results[need.signature]


@contextmanager
def _make_usable(
    budget: Budget, capacities: Collection[ReservedCapacity], cached_counts: CachedCounts
) -> Iterator[None]:
    """Free reserved capacity during the block. Capacity that the block allocates is no longer reserved.

    `cached_counts` has the counts outside and inside such blocks, by the groups that reserve the capacity.
    """
    planner, groups = budget.planner, frozenset(reserved.group.key for reserved in capacities)
    capacity, counts_outside = planner.capacity, planner.capacity.cached_counts
    for reserved in capacities:
        planner.allocate_amounts(reserved.rows, reserved.withheld, times=-1)
        reserve(budget, reserved.headroom.reserves, times=-1)
    if groups in cached_counts:
        known_outside, known_inside = cached_counts[groups]
        if known_outside.belongs_with(counts_outside):
            capacity.restore(known_inside)
    counts_inside = capacity.cached_counts
    old_amounts = [(capacity.free[item.rows], remaining_headroom(budget, item.group)) for item in capacities]
    try:
        yield
        for reserved, (free_before, headroom) in zip(capacities, old_amounts, strict=True):
            used_amounts = np.maximum(free_before - capacity.free[reserved.rows], 0)
            reserved.withheld = np.maximum(reserved.withheld - used_amounts, 0)
            reserved.headroom = reserved.headroom.after(headroom, remaining_headroom(budget, reserved.group))
    finally:
        are_counts_unchanged = capacity.cached_counts.belongs_with(counts_inside)
        for reserved in capacities:
            planner.allocate_amounts(reserved.rows, reserved.withheld)
            reserve(budget, reserved.headroom.reserves)
        if are_counts_unchanged:
            capacity.restore(counts_outside)
            cached_counts[groups] = counts_outside, counts_inside
