"""What a round expects of later: when groups end, and where a group will find room then."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain
from math import inf

import numpy as np
from msgspec.structs import replace

from extender.domain.lifecycle.quorum import Missing, missing
from extender.domain.model.reservation import Reservation
from extender.domain.model.resources import Resources
from extender.domain.model.shapes import Shape, requests_of
from extender.domain.placement.holding import rows_of
from extender.domain.placement.planner import Planner
from extender.domain.reservation.departures import Departures, held_by, nodes_of
from extender.domain.reservation.earliest import earliest
from extender.domain.reservation.run_times import RunTimes
from extender.domain.scheduling.round import Round
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.nodes import AmountRows, Rows


class Foresight:
    def __init__(self, round_: Round) -> None:
        self._round = round_
        self.times = RunTimes(round_.snapshot)
        self.has_searched = False
        """Whether this round has looked for nodes: once in a round is enough, since that takes its time."""

    def find(self, group: GroupView, planner: Planner, stay: float) -> Reservation | None:
        """When and where the group would start. None where it would find no room in `planner` even once all
        groups that run have ended. `stay`: for how many seconds it keeps to the nodes."""
        self.has_searched = True
        wanted, snapshot = missing(group), self._round.snapshot
        found = earliest(planner, self._departures, wanted, snapshot.now)
        if found is None:
            return None
        now, at = snapshot.now, found.at
        return Reservation(now, dict(found.nodes), wanted.requests, at, at, now + stay, self.timestamp(at))

    def put_off(self, reservation: Reservation, wanted: Missing) -> Reservation | None:
        """The same nodes with the moment at which they are expected to be free by now; None where they will
        not be."""
        if not self._is_possible(reservation, wanted):
            return None
        on, needs = self._round.budget.planner.capacity.asked_on(self.rows(reservation, wanted))
        departures = self._departures_from(reservation)

        def is_free(moment: float) -> bool:
            return bool((self._free_after(departures, moment, on) >= needs).all())

        first = bisect_left(departures.moments, True, key=is_free)
        if first == len(departures.moments):
            return None
        at = departures.moments[first]
        nodes = frozenset(reservation.nodes.values())
        known = None if departures.is_guess(nodes, at) else at
        return replace(reservation, starts_at=known, expected=self.timestamp(known))

    def is_as_expected(self, reservation: Reservation, wanted: Missing) -> bool:
        """Whether the members will still find room on the reserved nodes at the expected moment."""
        if not self._is_possible(reservation, wanted):
            return False
        on, needs = self._round.budget.planner.capacity.asked_on(self.rows(reservation, wanted))
        return bool((self.free_at_start(reservation, on) >= needs).all())

    def _is_possible(self, reservation: Reservation, wanted: Missing) -> bool:
        if not self.names_all(reservation, wanted):
            return False
        rows, capacity = self.rows(reservation, wanted), self._round.budget.planner.capacity
        return all(capacity.suits(shape, of_shape) for shape, of_shape in rows.items())

    def names_all(self, reservation: Reservation, wanted: Missing) -> bool:
        """Whether the reservation has a node, which exists, for each of the members and no others."""
        there = self._round.snapshot.nodes.row.keys()
        named = reservation.nodes.keys() == {pod.uid for pod in wanted.members}
        return named and set(reservation.nodes.values()) <= there

    def rows(self, reservation: Reservation, wanted: Missing) -> dict[Shape, Rows]:
        """The reserved rows, one for each of the members."""
        placed = ((pod, reservation.nodes[pod.uid]) for pod in wanted.members)
        return rows_of(placed, self._round.snapshot.nodes)

    def free_at_start(self, reservation: Reservation, rows: Rows) -> AmountRows:
        """What will be free on the reserved `rows` when the group is expected to start; once all groups that
        run there have ended, where nobody knows when that is."""
        until = inf if reservation.starts_at is None else reservation.starts_at
        return self._free_after(self._departures_from(reservation), until, rows)

    def _free_after(self, departures: Departures, moment: float, rows: Rows) -> AmountRows:
        capacity = self._round.budget.planner.capacity
        return np.asarray(capacity.left[rows] + departures.freed_on(rows, capacity, moment))

    def _departures_from(self, reservation: Reservation) -> Departures:
        """Those of groups that run on the reserved nodes; what leaves other nodes does not matter."""
        nodes = set(reservation.nodes.values())
        if nodes <= self._reserved_nodes:
            return self._departures_from_reserved_nodes
        return Departures(self._holders_on(nodes), self.times, self._round.snapshot.nodes)

    @cached_property
    def _reserved_nodes(self) -> frozenset[str]:
        """Those of all reservations with which the round began."""
        reservations = (group.start.reservation for group in self._round.snapshot.groups.values())
        nodes = (each.nodes.values() for each in reservations if each is not None)
        return frozenset(chain.from_iterable(nodes))

    @cached_property
    def _departures_from_reserved_nodes(self) -> Departures:
        holders = self._holders_on(self._reserved_nodes)
        return Departures(holders, self.times, self._round.snapshot.nodes)

    def _holders_on(self, nodes: Iterable[str]) -> Iterable[GroupView]:
        return dict.fromkeys(chain.from_iterable(self._by_node.get(node, ()) for node in nodes))

    @cached_property
    def _by_node(self) -> dict[str, list[GroupView]]:
        holders: dict[str, list[GroupView]] = {}
        for group in self._holders:
            for node in nodes_of(group):
                holders.setdefault(node, []).append(group)
        return holders

    def held_on(self, reservation: Reservation, queue: str) -> Resources:
        """What a queue's groups hold on the reserved nodes."""
        nodes = frozenset(reservation.nodes.values())
        shapes = (
            shape
            for group in self._holders_on(reservation.node_names)
            if group.queue == queue
            for shape, node in held_by(group)
            if node in nodes
        )
        return requests_of(Counter(shapes))

    @cached_property
    def _holders(self) -> list[GroupView]:
        return [group for group in self._round.snapshot.groups.values() if nodes_of(group)]

    @cached_property
    def _departures(self) -> Departures:
        return Departures(self._holders, self.times, self._round.snapshot.nodes)

    def timestamp(self, moment: float | None) -> str:
        """For people; empty for a moment that is not known, or beyond all calendars."""
        try:
            seconds = self._round.snapshot.epoch + (inf if moment is None else moment)
            return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        except (OverflowError, ValueError, OSError):
            return ""
