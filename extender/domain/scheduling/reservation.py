"""Reservations of a round: nodes are kept for groups that have waited too long."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from math import floor, inf, log2
from typing import NamedTuple

from msgspec.structs import replace

from extender.domain.model.reasons import LACKS_ROOM, Reason
from extender.domain.model.records import GroupKey
from extender.domain.model.resources import add
from extender.domain.placement.capacity import CapacityCounts
from extender.domain.placement.planner import Planner
from extender.domain.scheduling.backfill import Foresight, GivenBackCounts, KeptRoom, given_back, keep
from extender.domain.scheduling.round import Round
from extender.domain.snapshot.decisions import GroupDecision
from extender.domain.snapshot.group_view import GroupView, Reservation
from extender.domain.snapshot.quorum import Missing, Signature, missing, ready_since

# ---- Turns of a reservation that cannot say when its group starts: its room is kept for a while, then
# lent for as long; and each time for twice as long as before.
#
# Services that never end would keep the rest of their nodes idle otherwise, and without growing turns a
# stream of groups that run longer than one turn would keep the reserved group waiting without end.


class RoomTurn(NamedTuple):
    """It ends at `until`, a moment on the ledger's clock."""

    is_kept: bool
    until: float


def turn_at(now: float, since: float, first: float) -> RoomTurn:
    """`since`: when turns begin; the room is kept until then. `first`: the seconds of the first one."""
    if now < since:
        return RoomTurn(True, since)
    number = floor(log2((now - since) / first / 2.0 + 1.0))
    begin, length = since + 2.0 * first * (2.0**number - 1.0), first * 2.0**number
    return RoomTurn(True, begin + length) if now < begin + length else RoomTurn(False, begin + 2.0 * length)


# ---- Reservations of a round: nodes are kept for groups that have waited too long, and who may start
# in front.
#
# A reservation names nodes, and the moment at which they are expected to be free. On these nodes the
# group's room is taken out of that of all others; groups that end before that moment may pass, and the
# room that the group will not need is everybody's. For those who pass, the moment is never put off:
# were their run times lies, the reserved group would wait without end.
#
# Where nobody knows when the group starts, and once the promised moment has passed, its room is kept
# and lent by turns: services that never end must not keep the rest of their nodes idle.
#
# A group that would bring its queue above its share reserves nothing against groups of other queues
# that are within theirs.

_SHORTEST_STAY = 60.0  # seconds on the first nodes; twice as long on the next ones, and so on
_FAR = 6.0  # times as long as room is kept: in front of starts so far away, unknown run times may pass
_AGAIN = 1.0  # seconds until nodes are looked for again, where a round has looked for others already
_MAY_RESERVE = (*LACKS_ROOM, Reason.RESERVED)
InForce = Mapping[GroupKey, tuple[Reservation, bytes, bool]]
"""By group its reservation, the amounts that are kept for it, and whether it is above its queue's share."""
_KEEPS = (*_MAY_RESERVE, Reason.QUEUE_SHARE, Reason.WINDOW_FULL)


class Reserving:
    def __init__(self, round_: Round) -> None:
        self._round = round_
        self._foresight = Foresight(round_)
        self._reserved: dict[GroupKey, tuple[GroupView, Reservation]] = {}
        self._is_lent = False
        self._above_share: set[GroupKey] = set()
        self._kept: dict[GroupKey, KeptRoom] = {}
        self._holders = ""  # of these, for people; empty until it is asked for
        self._lacking: defaultdict[str, list[GroupView]] = defaultdict(list)  # room, by queue
        self._fits_without: dict[Signature, bool] = {}
        self._given_back: GivenBackCounts = {}
        self._free: tuple[CapacityCounts, Planner] | None = (
            None  # without reservations, while room is as then
        )
        self.mattered = False
        """Whether a reservation, or that none could be made, was part of what has been decided."""
        self.longest_waiting: list[GroupView] = []
        """By queue the group that is asked first whether it gets a reservation, once all are judged."""
        self.same_until = inf
        """Until when each group may pass the same reservations as now."""

    # ---- the reservations there are

    def begin(self, waiting: Iterable[GroupView]) -> None:
        """Keep the room of those of `waiting` that have a reservation."""
        holders = [_as_reserved(group) for group in waiting if group.start.reservation is not None]
        self.mattered = bool(holders)
        for group in sorted(holders, key=_oldest_first)[: self._round.limits.reservations]:
            reservation = self._round.judge(self._renewed, group)
            if reservation is None:
                continue
            reservation = self._in_turn(reservation)
            self._reserved[group.key] = group, reservation
            if reservation.lent_until:
                continue
            kept = self._round.judge(keep, group, self._foresight, reservation)
            if kept is not None:
                self._kept[group.key], self._holders = kept, ""
                self._note_share(kept)

    def _in_turn(self, reservation: Reservation) -> Reservation:
        """It is kept or lent now, where nobody knows when the group starts, or that moment has passed."""
        promised = reservation.passable_until
        since = reservation.since if promised is None else promised
        turn = turn_at(self._round.snapshot.now, since, self._round.limits.room_kept)
        self._round.is_due(turn.until)
        lent_until = "" if turn.is_kept else self._foresight.timestamp(turn.until)
        return replace(reservation, lent_until=lent_until)

    def _note_share(self, kept: KeptRoom) -> None:
        """What its queue holds on the reserved nodes will be gone by then."""
        group, more = kept.group, dict(kept.reservation.asks)
        add(more, self._foresight.held_on(kept.reservation, group.queue), -1)
        if self._round.budget.shares.is_above_share(group.queue, more):
            self._above_share.add(group.key)

    def lend(self) -> None:
        """From now on only groups above their share are judged."""
        self._is_lent = True

    def _renewed(self, round_: Round, group: GroupView) -> Reservation | None:
        """The reservation as it is by now; None where it ends."""
        wanted, before = missing(group), group.start.reservation
        if before is None or round_.budget.shares.above_ceiling(group.queue, wanted.requests):
            return None
        if self._foresight.is_as_expected(before, wanted):
            return before
        put_off = self._foresight.put_off(before, wanted)
        if put_off is not None and (round_.snapshot.now < before.stays_until or self._must_wait()):
            return _no_later(put_off, before)
        if put_off is None and self._must_wait():
            return None
        stay = 2.0 * (before.stays_until - before.since)
        found = self._foresight.find(group, self._room_besides(), stay)
        return None if found is None else replace(_no_later(found, before), since=before.since)

    def _must_wait(self) -> bool:
        """Whether nodes were looked for in this round already."""
        if self._foresight.has_searched:
            self._round.look_again_at(self._round.snapshot.now + _AGAIN)
        return self._foresight.has_searched

    def _room_besides(self) -> Planner:
        """The room for one more reservation: all that the others need is gone for good."""
        planner = self._round.budget.planner.clone()
        for kept in self._kept.values():
            planner.take_amounts(kept.rows, kept.needs - kept.kept)
        return planner

    @property
    def in_force(self) -> InForce:
        return {key: self._in_force(key, each) for key, (_, each) in self._reserved.items()}

    def _in_force(self, key: GroupKey, reservation: Reservation) -> tuple[Reservation, bytes, bool]:
        kept = self._kept[key].kept.tobytes() if key in self._kept else b""
        return reservation, kept, key in self._above_share

    # ---- who may use the kept room

    def of(self, group: GroupView) -> list[KeptRoom]:
        """The room that is kept for a group itself."""
        return [self._kept[group.key]] if group.key in self._kept else []

    def has_one(self, group: GroupView) -> bool:
        return group.key in self._reserved

    def passed_by(self, group: GroupView) -> list[KeptRoom]:
        """The reservations in front of which a group may start: since it ends before that, or because it is
        within its share and they are not."""
        if not self._kept:
            return []
        seconds = self._foresight.times.of(group)
        now, unknown = self._round.snapshot.now, _FAR * self._round.limits.room_kept
        end = now + (unknown if seconds is None else seconds)
        return [kept for kept in self._kept.values() if self._passes(group, end, kept)]

    def _passes(self, group: GroupView, end: float, kept: KeptRoom) -> bool:
        until = kept.reservation.passable_until
        if until is not None and end <= until:
            self.same_until = min(self.same_until, self._round.snapshot.now + until - end)
            return True
        is_free = not self._is_lent and kept.group.key in self._above_share
        return is_free and kept.group.queue != group.queue

    def given_back(self, them: Collection[KeptRoom]) -> AbstractContextManager[None]:
        return given_back(self._round.budget.planner, them, self._given_back)

    def end(self, group: GroupView) -> None:
        """The group starts: what is kept for it and not used is free."""
        self._reserved.pop(group.key, None)
        kept, self._holders = self._kept.pop(group.key, None), ""
        if kept is not None:
            self._round.budget.planner.take_amounts(kept.rows, kept.kept, -1)

    def holding_up(self, wanted: Missing) -> str:
        """Whose reservations keep members from starting, as text; empty where they would find no room without
        them either."""
        if not self._kept or not self._would_fit(wanted):
            return ""
        if not self._holders:
            holders = (f"{kept.group.key}: {kept.reservation.text}" for kept in self._kept.values())
            self._holders = "; ".join(holders)
        return self._holders

    def _would_fit(self, wanted: Missing) -> bool:
        """Room only shrinks in a round, so what does not fit once does not fit later."""
        known = self._fits_without.get(wanted.signature)
        if known is None or self._round.budget.planner.affinity.any_particular(wanted.members, wanted.shapes):
            known = self._without_reservations().could_place(wanted.members, wanted.shapes)
            self._fits_without[wanted.signature] = known
        return known

    def _without_reservations(self) -> Planner:
        """The room with all that is kept given back; made anew once room was taken."""
        planner = self._round.budget.planner
        now = planner.capacity.known
        if self._free is None or not self._free[0].belongs_with(now):
            free = planner.clone()
            for kept in self._kept.values():
                free.take_amounts(kept.rows, kept.kept, -1)
            self._free = now, free
        return self._free[1]

    # ---- new ones

    def note(self, group: GroupView, decision: GroupDecision) -> GroupDecision:
        """The decision on a group that waits, with its reservation if it has one. Those that might get one
        are noted."""
        if group.key in self._reserved and decision.reason in _KEEPS:
            reservation = self._reserved[group.key][1]
            detail = "; ".join(filter(None, (decision.detail, reservation.text)))
            return replace(decision, detail=detail, reservation=reservation)
        if decision.reason in _MAY_RESERVE:
            self._lacking[group.queue].append(group)
        return decision

    def _has_waited(self, round_: Round, group: GroupView) -> bool:
        """Whether it has waited for longer than its queue lets a group wait."""
        patience = round_.snapshot.queues[group.queue].record.reserve_after
        return round_.is_due(round_.snapshot.moment(ready_since(group)) + patience)

    def make(self) -> None:
        """At the end of a round one more reservation is made, which counts from the next one on."""
        served = {group.queue for group, _ in self._reserved.values()}
        self.longest_waiting = [min(each, key=_longest_wait_first) for each in self._lacking.values()]
        waited = [group for group in self.longest_waiting if self._round.judge(self._has_waited, group)]
        due = [group for group in waited if group.queue not in served]
        if not due or len(self._reserved) >= self._round.limits.reservations:
            return
        self.mattered = True
        if self._must_wait():
            return
        for group in sorted(due, key=_longest_wait_first):
            reservation = self._round.judge(self._made, group)
            if reservation is not None:
                decision = self._round.decided[group.key]
                self._round.settle(replace(decision, reservation=reservation))
                return

    def _made(self, round_: Round, group: GroupView) -> Reservation | None:
        if not round_.could_stand_alone(missing(group)):
            return None
        patience = round_.snapshot.queues[group.queue].record.reserve_after
        return self._foresight.find(group, self._room_besides(), max(patience, _SHORTEST_STAY))


def _no_later(now: Reservation, before: Reservation) -> Reservation:
    """Those who pass put nothing off."""
    moments = [each.passable_until for each in (before, now) if each.passable_until is not None]
    if now.starts_at is not None:
        moments.append(now.starts_at)
    return replace(now, passable_until=min(moments, default=None))


def _as_reserved(group: GroupView) -> GroupView:
    """With as many members as nodes were found for: a job that may start with fewer, and fits only so."""
    found = len(group.start.reservation.nodes) if group.start.reservation else 0
    is_smaller = 0 < group.least <= found < group.min_member
    return replace(group, min_member=found) if is_smaller else group


def _longest_wait_first(group: GroupView) -> tuple[str, GroupKey]:
    return (ready_since(group), group.key)


def _oldest_first(group: GroupView) -> tuple[float, GroupKey]:
    reservation = group.start.reservation
    return (reservation.since if reservation else 0.0, group.key)
