"""Backfill: on the nodes that are reserved for a group, others may start that end before it does.

For that a round forecasts when groups end, and where a group will find room then. The room that is kept on
reserved nodes is taken out of that of all others, and given back while a group is judged that may use it.
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
from extender.domain.scheduling.headroom import HeadroomForecast, Need, lacking, left_for, reserve, suffices
from extender.domain.scheduling.order import Rank, is_ahead
from extender.domain.scheduling.round import Round
from extender.domain.snapshot.group_view import GroupView, Reservation
from extender.domain.snapshot.nodes import AmountRows, Rows
from extender.domain.snapshot.wholeness import Missing, Signature, missing

FAR = 6.0  # times as long as room is kept: in front of starts so far away, unknown run times may pass
GivenBackCounts = dict[frozenset[GroupKey], tuple[CapacityCounts, CapacityCounts]]
"""By whose room was given back: what was known of the room without it, and with it."""


class Forecast:
    def __init__(self, round_: Round) -> None:
        self._round = round_
        self.times = RunTimes(round_.snapshot)
        self.has_searched = False  # whether this round has looked for nodes; it takes long, so once is enough
        self._reserved: AmountRows | None = None  # by row, what becomes free and is reserved
        self.headroom = HeadroomForecast(round_, self.times)

    def find(self, group: GroupView, planner: Planner, stay: float) -> Reservation | None:
        """Return when and where the group would start.

        None where it would not fit in `planner` even once all running groups have ended. `stay`: for
        how many seconds it keeps to the nodes.
        """
        self.has_searched = True
        snapshot, now = self._round.snapshot, self._round.snapshot.now
        wanted = self._round.budget.flavors.settled(group)

        def is_below(moment: float) -> bool:
            return self.headroom.is_there(group, wanted, moment)

        found = earliest(planner, self._departures, wanted, now, is_below)
        if found is None:
            return None
        at, nodes = found
        known = at if at is None or not self.headroom.is_guess(group, wanted, at) else None
        below = lacking(self._round.budget, group, wanted)
        expected = snapshot.timestamp(known)
        asks = missing(group).requests
        return Reservation(now, nodes, asks, known, known, now + stay, expected, below)

    def put_off(self, reservation: Reservation, group: GroupView) -> Reservation | None:
        """Return the same nodes with the time at which they, and headroom, are expected now; None: never."""
        wanted = self._round.budget.flavors.settled(group)
        if (asked := self._asked(reservation, wanted)) is None:
            return None
        rows, needs = asked
        departures = self._departures_from(reservation)

        def is_free(moment: float) -> bool:
            has_room = bool((self._free_after(departures, moment, rows) >= needs).all())
            return has_room and self.headroom.is_there(group, wanted, moment)

        moments = sorted(
            {self._round.snapshot.now, *departures.moments, *self.headroom.moments(group, wanted)}
        )
        first = bisect_left(moments, True, key=is_free)
        if first == len(moments):
            return None
        at, nodes = moments[first], frozenset(reservation.nodes.values())
        is_guess = departures.is_guess(nodes, at) or self.headroom.is_guess(group, wanted, at)
        known = None if is_guess else at
        return replace(reservation, starts_at=known, expected=self._round.snapshot.timestamp(known))

    def is_as_expected(self, reservation: Reservation, group: GroupView) -> bool:
        """Return whether the members will still fit on the reserved nodes, with headroom, at that time."""
        wanted = self._round.budget.flavors.settled(group)
        if (asked := self._asked(reservation, wanted)) is None:
            return False
        rows, needs = asked
        has_room = bool((self.free_at_start(reservation, rows) >= needs).all())
        return has_room and self.headroom.is_there(group, wanted, start_of(reservation))

    def _asked(self, reservation: Reservation, wanted: Missing) -> tuple[Rows, AmountRows] | None:
        """Return the reserved rows, and what the members need there.

        None unless each of them, and no other pod, has a node that exists and suits.
        """
        is_for_them = reservation.nodes.keys() == {pod.uid for pod in wanted.members}
        if not is_for_them or not set(reservation.nodes.values()) <= self._round.snapshot.nodes.row.keys():
            return None
        rows, capacity = self.rows(reservation, wanted), self._round.budget.planner.capacity
        suit = all(capacity.suits(shape, of_shape) for shape, of_shape in rows.items())
        return capacity.asked_on(rows) if suit else None

    def rows(self, reservation: Reservation, wanted: Missing) -> dict[Shape, Rows]:
        """Return the reserved rows, one for each of the members."""
        placed = ((pod, reservation.nodes[pod.uid]) for pod in wanted.members)
        return rows_of(placed, self._round.snapshot.nodes)

    def free_at_start(self, reservation: Reservation, rows: Rows) -> AmountRows:
        """Return what will be free on the reserved `rows` when the group is expected to start.

        Without a known time, that is once all groups that run there have ended.
        """
        return self._free_after(self._departures_from(reservation), start_of(reservation), rows)

    def _free_after(self, departures: Departures, moment: float, rows: Rows) -> AmountRows:
        capacity = self._round.budget.planner.capacity
        free = np.asarray(capacity.left[rows] + departures.freed_on(rows, capacity, moment))
        return free if self._reserved is None else free - self._reserved[rows]

    def reserve(self, rows: Rows, amounts: AmountRows) -> None:
        """Reserve future capacity for one group, before all that have their reservation after it."""
        if self._reserved is None:
            self._reserved = np.zeros_like(self._round.budget.planner.capacity.left)
        self._reserved[rows] += amounts

    def _departures_from(self, reservation: Reservation) -> Departures:
        """Return the departures of groups that run on the reserved nodes; other nodes do not matter."""
        nodes, (reserved, departures) = set(reservation.nodes.values()), self._departures_from_reserved_nodes
        if nodes <= reserved:
            return departures
        return Departures(self._holders_on(nodes), self.times, self._round.snapshot.nodes)

    @cached_property
    def _departures_from_reserved_nodes(self) -> tuple[Set[str], Departures]:
        """Return the departures, with the nodes of all reservations with which the cycle began."""
        groups = self._round.snapshot.groups.values()
        nodes = {name for group in groups if (it := group.start.reservation) for name in it.nodes.values()}
        return nodes, Departures(self._holders_on(nodes), self.times, self._round.snapshot.nodes)

    @cached_property
    def _departures(self) -> Departures:
        return Departures(self._holders, self.times, self._round.snapshot.nodes)

    def _holders_on(self, nodes: Iterable[str]) -> Iterable[GroupView]:
        return dict.fromkeys(chain.from_iterable(self._by_node.get(node, ()) for node in nodes))

    @cached_property
    def _holders(self) -> list[GroupView]:
        return [group for group in self._round.snapshot.groups.values() if nodes_of(group)]

    @cached_property
    def _by_node(self) -> dict[str, list[GroupView]]:
        holders: dict[str, list[GroupView]] = {}
        for group in self._holders:
            for node in nodes_of(group):
                holders.setdefault(node, []).append(group)
        return holders

    def held_on(self, reservation: Reservation, queue: str) -> Resources:
        """Return what a queue's groups hold on the reserved nodes, of flavors, too."""
        nodes = frozenset(reservation.nodes.values())
        groups = (group for group in self._holders_on(reservation.node_names) if group.queue == queue)
        held = chain.from_iterable(held_by(group).pods for group in groups)
        return self._round.budget.flavors.requests((pod, node) for pod, node in held if node in nodes)


def start_of(reservation: Reservation) -> float:
    return inf if reservation.starts_at is None else reservation.starts_at


class KeptRoom(msgspec.Struct, eq=False):
    """For one group."""

    group: GroupView
    reservation: Reservation
    rows: Rows
    needs: AmountRows  # what the group will need on these rows
    kept: AmountRows  # what is taken out of the others' room there now
    headroom: Need  # the same below ceilings
    binds: bool  # all queues; else those within their shares need not wait behind it


class Backfill:
    """The room that is kept for groups in one round, and who may use it."""

    def __init__(
        self, round_: Round, rank: Callable[[GroupView], Rank], kept: dict[GroupKey, KeptRoom]
    ) -> None:
        self._round, self._rank, self._kept = round_, rank, kept
        self._told: tuple[tuple[GroupKey, ...], str] = (), ""  # of whom others were told, and what
        self._fits_without: dict[Signature, bool] = {}
        self._given_back: GivenBackCounts = {}
        self._free: tuple[CapacityCounts, Planner] | None = None  # all given back, while room is as then

    @cached_property
    def forecast(self) -> Forecast:
        return Forecast(self._round)

    def keep(self, group: GroupView, reservation: Reservation, binds: bool = True) -> None:
        """Reserve what the group will need by the time it starts; the rest is left to all.

        Of what is free already, all is reserved once that time has come, or if it is unknown. But no
        node is idle for a group that lacks headroom for an unknown time.
        """
        round_, forecast, planner = self._round, self.forecast, self._round.budget.planner
        wanted, start = round_.budget.flavors.settled(group), reservation.starts_at
        rows, needs = planner.capacity.asked_on(forecast.rows(reservation, wanted))
        left = np.maximum(planner.capacity.left[rows], 0)
        is_known = start is not None and not round_.is_due(start)
        then = forecast.free_at_start(reservation, rows) if is_known else left
        kept = np.where(needs > 0, np.maximum(left - np.maximum(then - needs, 0), 0), 0)
        if start is None and not suffices(round_.budget, group, wanted):
            kept = np.zeros_like(kept)
        planner.take_amounts(rows, kept)
        forecast.reserve(rows, needs - kept)
        headroom = forecast.headroom.keep(group, wanted, start)
        self._kept[group.key] = KeptRoom(group, reservation, rows, needs, kept, headroom, binds)

    def end(self, group: GroupView) -> None:
        """End the reservation of a group that starts: its unused rest is free."""
        if (kept := self._kept.pop(group.key, None)) is not None:
            self._round.budget.planner.take_amounts(kept.rows, kept.kept, -1)
            reserve(self._round.budget, kept.headroom.kept, -1)

    def may_pass(self, group: GroupView, is_lent: bool) -> list[KeptRoom]:
        """Return the reservations that a group may pass.

        It may because it ends before that, because it is within its share and they are not, or
        because it comes first in their queue and nothing is promised to them. `is_lent`: it is not
        within its share, either.
        """
        passed: list[KeptRoom] = []
        for room in self._kept.values():
            if self._ends_before(group, room):
                passed.append(room)
            elif room.group.queue != group.queue:
                if not (is_lent or room.binds) or self._has_turn_before(group, room):
                    passed.append(room)
            elif not room.reservation.is_promised and self._rank(group) < self._rank(room.group):
                passed.append(room)
        return passed

    def _ends_before(self, group: GroupView, room: KeptRoom) -> bool:
        """Return whether a group that starts now ends before the one for which room is kept starts."""
        round_, now, until = self._round, self._round.snapshot.now, room.reservation.passable_until
        seconds = self.forecast.times.of(group)
        end = now + (FAR * round_.limits.room_kept if seconds is None else seconds)
        if until is None or end > until:
            return False
        round_.look_again_at(nextafter(now + until - end, inf))
        return True

    def use_kept(self, group: GroupView, plan: Mapping[Uid, str]) -> None:
        """Let a group that starts use reserved capacity, and headroom, before the common rest.

        The reserved part is gone when that is needed.
        """
        if rooms := [room for room in self._kept.values() if self._ends_before(group, room)]:
            budget = self._round.budget
            budget.let_go(group, plan)
            budget.running.take(group, -len(plan))
            with self.given_back(rooms):
                budget.hold(group, plan)
                budget.running.take(group, len(plan))

    def _has_turn_before(self, group: GroupView, room: KeptRoom) -> bool:
        """Return whether the group's queue comes before one with a reservation without a promise.

        A reservation brings its queue no more than its part over time.
        """
        shares, queues = self._round.budget.shares, self._round.snapshot.queues
        return not room.reservation.is_promised and is_ahead(shares, queues, group.queue, room.group.queue)

    def given_back(self, rooms: Collection[KeptRoom]) -> AbstractContextManager[None]:
        return _given_back(self._round.budget, rooms, self._given_back)

    def holding_up(self, group: GroupView, wanted: Missing, reason: Reason | None) -> str:
        """Return the owners of reservations that keep members from starting, as text.

        It is empty where the members would not fit, or lack headroom, without the reservations
        either.
        """
        at_ceiling = reason is Reason.QUEUE_CEILING
        if not (self._has_headroom(group, wanted) if at_ceiling else self._has_room(wanted)):
            return ""
        if self._told[0] != (whose := tuple(self._kept)):
            holders = (f"{kept.group.called}: {kept.reservation.text}" for kept in self._kept.values())
            self._told = whose, "; ".join(holders)
        return self._told[1]

    def _has_headroom(self, group: GroupView, wanted: Missing) -> bool:
        """Return whether members would have headroom without reservations."""
        mark = self._round.journal.mark()
        for kept in self._kept.values():
            reserve(self._round.budget, kept.headroom.kept, -1)
        budget = self._round.budget
        is_within = (not budget.shares.above_ceiling(group.queue, it) for it in budget.flavors.asks(group))
        has_some = suffices(budget, group, wanted) and any(is_within)
        self._round.journal.roll_back(mark)
        return has_some

    def _has_room(self, wanted: Missing) -> bool:
        """Return whether members would fit without reservations."""
        planner, known = self._round.budget.planner, self._fits_without
        is_particular = planner.affinity.any_particular(wanted.members, wanted.shapes)
        if not is_particular and known.get(wanted.signature) is False:
            return False  # room only shrinks in a round: once not, never
        now = planner.capacity.known
        if self._free is None or not self._free[0].belongs_with(now):  # made anew once room was taken
            self._fits_without = known = {it: fits for it, fits in known.items() if not fits}
            self._free = now, planner.clone()
            for kept in self._kept.values():
                self._free[1].take_amounts(kept.rows, kept.kept, -1)
        if is_particular or wanted.signature not in known:
            known[wanted.signature] = self._free[1].could_place(wanted.members, wanted.shapes)
        return known[wanted.signature]


@contextmanager
def _given_back(budget: Budget, rooms: Collection[KeptRoom], known: GivenBackCounts) -> Iterator[None]:
    """Free reserved capacity for others during the block; what they take is no longer reserved after it.

    `known`: what was counted while it was free before.
    """
    planner, whose = budget.planner, frozenset(room.group.key for room in rooms)
    capacity, outside = planner.capacity, planner.capacity.known
    for room in rooms:
        planner.take_amounts(room.rows, room.kept, -1)
        reserve(budget, room.headroom.kept, -1)
    if whose in known and known[whose][0].belongs_with(outside):
        capacity.recall(known[whose][1])
    inside = capacity.known
    before = [(capacity.left[room.rows], left_for(budget, room.group)) for room in rooms]
    try:
        yield
        for room, (left, headroom) in zip(rooms, before, strict=True):
            used = np.maximum(left - capacity.left[room.rows], 0)
            room.kept = np.maximum(room.kept - used, 0)
            room.headroom = room.headroom.after(headroom, left_for(budget, room.group))
    finally:
        is_as_before = capacity.known.belongs_with(inside)
        for room in rooms:
            planner.take_amounts(room.rows, room.kept)
            reserve(budget, room.headroom.kept)
        if is_as_before:
            capacity.recall(outside)
            known[whose] = outside, inside
