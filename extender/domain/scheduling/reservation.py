"""Reservations: nodes are reserved for groups that have waited too long.

A reservation names nodes, and the time at which they are expected to be free. On these nodes the group's
capacity is withheld from all others. Groups that end before that time may start (backfill), and the capacity
that the group will not need is free for all. The time is never delayed for backfilled groups: otherwise too
short run times would delay the group again and again.

If the start time is unknown, and once a guaranteed time has passed, the capacity is reserved for a while,
then lent for as long, and each time for twice as long as before. Otherwise services without an end would keep
the rest of their nodes idle, or groups that run longer than one turn would always come first.

A group that would exceed its queue's share reserves nothing against groups of other queues that are within
theirs. For a group within its share, a known and near start is guaranteed: until then it binds all groups,
however shares change. No other time is published.

All reservations together are limited to a part of the cluster; if that is less than one needs, there is one.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from itertools import chain
from math import floor, log2
from typing import NamedTuple

from msgspec.structs import replace

from extender.domain.model.reasons import LACKS_CAPACITY, Reason
from extender.domain.model.records import GroupKey, Uid
from extender.domain.model.resources import Resources, add
from extender.domain.placement.planner import EquivalenceClass, Planner
from extender.domain.scheduling.backfill import FAR, Backfill, ReservedCapacity, start_of
from extender.domain.scheduling.consolidation import reserved_homes
from extender.domain.scheduling.cycle import Cycle, Guard
from extender.domain.scheduling.headroom import Amounts, less, reserve
from extender.domain.scheduling.order import Rank, Strategies
from extender.domain.scheduling.shares import total_of
from extender.domain.snapshot.decisions import GroupDecision
from extender.domain.snapshot.group_info import GroupInfo, Reservation
from extender.domain.snapshot.wholeness import Missing, missing, ready_since

_SHORTEST_STAY = 60.0  # seconds on the first nodes; doubled for each further choice of nodes
_AGAIN = 1.0  # seconds until the next search, if a cycle has searched for other groups
_LATE = 60.0  # seconds after the guaranteed time in which running groups may still end
_MOST = 32  # reservations, however large the cluster: each group is compared with all of them
_SEARCHES = 4  # searches without a result in one cycle
_IN_TURN = _SEARCHES // 2  # searches for changing groups, in turn
RESERVED_FROM_OTHERS = (*LACKS_CAPACITY, Reason.QUEUE_CEILING)  # reasons of groups that may get a reservation
_MAY_RESERVE = (*RESERVED_FROM_OTHERS, Reason.RESERVED)
_KEEPS = (*_MAY_RESERVE, Reason.QUEUE_SHARE, Reason.WINDOW_FULL)
RESERVED = "reserved"  # topic of reads of reservations
InForce = Mapping[GroupKey, tuple[Reservation, tuple[bytes, Amounts, bool, Rank | None] | None]]
"""Reservations by group. Unless its capacity is lent, each comes with the reserved amounts of nodes and the
reserved headroom, whether it binds all queues and, without a promise, the place of the group in its queue."""


class Reservations:
    def __init__(self, cycle: Cycle, strategies: Strategies) -> None:
        self._cycle, self._rank = cycle, strategies.rank
        self._reserved: dict[GroupKey, tuple[GroupInfo, Reservation]] = {}
        self._withheld: dict[GroupKey, ReservedCapacity] = {}
        self.lends = False  # whether groups above their share are evaluated now
        self._lacking: defaultdict[EquivalenceClass, list[GroupInfo]] = defaultdict(list)  # capacity
        self.first_due: Mapping[EquivalenceClass, GroupInfo] = {}  # the first group of each class
        self.due: list[GroupInfo] = []  # groups that might get a reservation now, in order
        self.first_in_turn: GroupInfo | None = None  # the group that alone may get the next reservation

    @cached_property
    def _backfill(self) -> Backfill:
        return Backfill(self._cycle, self._rank, self._withheld)

    def keep_for_moved(self) -> None:
        """Reserve the capacity for replacements of moved members until they run there."""
        self._withheld.update(reserved_homes(self._cycle))

    def begin(self, waiting: Iterable[GroupInfo]) -> None:
        """Reserve the capacity for those of `waiting` that have a reservation."""
        cycle = self._cycle
        others = (group for group in waiting if group.key not in self._withheld)  # without moved members
        known = ((group.start.reservation, _with_reserved_plan(group)) for group in others)
        holders = [(before, group) for before, group in known if before is not None]
        holders.sort(key=lambda holder: (not holder[0].is_promised, holder[0].since, start_of(holder[0])))
        for before, group in holders:
            with Guard(cycle, group):
                if not self._has_place_for(before.asks) or (found := self._renewed(group)) is None:
                    continue
                reservation = self._promised(group, found)
                # The capacity is reserved and lent in turns, from the guaranteed time on if that is known.
                promised = reservation.passable_until
                since = reservation.since if promised is None else promised
                turn = turn_at(cycle.snapshot.now, since, cycle.limits.capacity_reserved)
                cycle.is_due(turn.until)
                lent_until = "" if turn.is_reserved else cycle.snapshot.timestamp(turn.until)
                reservation = replace(reservation, lent_until=lent_until)
                self._reserved[group.key] = group, reservation
                if turn.is_reserved:
                    binds = reservation.is_promised or not self._brings_above_share(group, reservation)
                    self._backfill.reserve(group, reservation, binds)

    def _has_place_for(self, asks: Resources) -> bool:
        """Return whether all reservations, with one that `asks` for more, stay within their limit."""
        limit, together = self._cycle.limits.reservations, dict(asks)
        if limit <= 0.0:
            return False
        if not self._reserved:
            return True
        for _, reservation in self._reserved.values():
            add(together, reservation.asks)
        totals = total_of(self._cycle.snapshot).items()
        fits = all(together.get(name, 0) <= limit * amount for name, amount in totals)
        return fits and len(self._reserved) < _MOST

    def _promised(self, group: GroupInfo, reservation: Reservation) -> Reservation:
        """Return the reservation with the guarantee of its start as of now: begun, continued or ended.

        A guarantee ranks behind earlier ones, and ends some time after the guaranteed start.
        """
        cycle, instant = self._cycle, reservation.passable_until
        if instant is None or (reservation.is_promised and not cycle.is_due(instant + _LATE)):
            return reservation
        is_near = cycle.is_due(instant - FAR * cycle.limits.capacity_reserved) and not reservation.is_delayed
        is_near = is_near and not cycle.budget.flavors.may_choose(group)  # its flavor may be missing
        is_promised = is_near and not (cycle.is_due(instant) or self._brings_above_share(group, reservation))
        since = cycle.snapshot.now if is_promised else reservation.since
        return replace(reservation, is_promised=is_promised, since=since)

    def _brings_above_share(self, group: GroupInfo, reservation: Reservation) -> bool:
        """Return whether the group would bring its queue above its share.

        The allocation of the queue on the reserved nodes does not count: its pods end before the start.
        """
        shares, held = self._cycle.budget.shares, self._backfill.forecast.held_on(reservation, group.queue)
        shares.add(group.queue, held, times=-1)
        requests = {**self._cycle.budget.flavors.settled_members(group).requests, **reservation.asks}
        is_above = shares.is_above_share(group.queue, requests)
        shares.add(group.queue, held)
        return is_above

    def _renewed(self, group: GroupInfo) -> Reservation | None:
        """Return the current reservation; None where it ends."""
        cycle, before = self._cycle, group.start.reservation
        wanted = cycle.budget.flavors.settled_members(group)
        if before is None or cycle.budget.shares.is_never_below_ceiling(group.queue, wanted.requests):
            return None
        if self._backfill.forecast.still_fits(before, group):
            return before
        rescheduled = self._backfill.forecast.rescheduled(before, group)
        if rescheduled is not None and (cycle.snapshot.now < before.stays_until or self._has_searched()):
            return _no_later(rescheduled, before)
        if rescheduled is None and self._has_searched():
            return None
        stay = max(2.0 * (before.stays_until - before.since), _SHORTEST_STAY)
        found = self._backfill.forecast.find(group, self.unreserved_capacity(), stay)
        if found is None:
            return None
        return replace(_no_later(found, before), since=before.since, is_promised=before.is_promised)

    def _has_searched(self) -> bool:
        """Return whether this cycle has searched nodes already; then the next search is in a later cycle."""
        if self._backfill.forecast.has_searched:
            self._cycle.request_cycle_at(self._cycle.snapshot.now + _AGAIN)
        return self._backfill.forecast.has_searched

    def unreserved_capacity(self, only_promised: bool = False) -> Planner:
        """Return the free capacity without all that reservations need, also what is not free yet.

        With `only_promised`, what reservations without a guaranteed start need later counts as free.
        """
        planner = self._cycle.budget.planner.clone()
        for reserved in self._withheld.values():
            if reserved.reservation.is_promised or not only_promised:
                planner.allocate_amounts(reserved.rows, reserved.needs - reserved.amounts)
        return planner

    def give_back_own(self, group: GroupInfo, planner: Planner) -> None:
        """Free the group's own part of the capacity of groups with a guaranteed start."""
        for reserved in self.reserved_for(group):
            freed = reserved.needs if reserved.reservation.is_promised else reserved.amounts
            planner.allocate_amounts(reserved.rows, freed, times=-1)

    def reserve_promised_headroom(self) -> None:
        """Reserve the headroom of groups with a guaranteed start, also amounts that others still hold."""
        for reserved in self._withheld.values():
            if reserved.reservation.is_promised:
                reserve(self._cycle.budget, less(reserved.headroom.needed, reserved.headroom.reserved))

    def give_back_own_headroom(self, group: GroupInfo) -> None:
        """Free the group's own part of the headroom of groups with a guaranteed start."""
        for reserved in self.reserved_for(group):
            need = reserved.headroom
            freed = need.needed if reserved.reservation.is_promised else need.reserved
            reserve(self._cycle.budget, freed, times=-1)

    def is_limited(self, group: GroupInfo) -> bool:
        """Return whether limits on running groups and pods keep a group back, except its own reservation."""
        checkpoint = self._cycle.journal.checkpoint()
        for reserved in self.reserved_for(group):
            reserve(self._cycle.budget, reserved.headroom.reserved, times=-1)
        is_limited = self._cycle.budget.running.excess(group, len(missing(group).members)) is not None
        self._cycle.journal.roll_back(checkpoint)
        return is_limited

    def give_headroom_back(self) -> None:
        """Free all reserved headroom; the journal undoes it."""
        for reserved in self._withheld.values():
            reserve(self._cycle.budget, reserved.headroom.reserved, times=-1)

    @property
    def in_force(self) -> InForce:
        """Return what each reservation takes from other groups; also those that take nothing yet."""
        reserved = {}
        for key, capacity in self._withheld.items():
            place = None if capacity.reservation.is_promised else self._rank(capacity.group)
            reserved[key] = capacity.amounts.tobytes(), capacity.headroom.reserved, capacity.binds, place
        moved = {key: (capacity.reservation, reserved[key]) for key, capacity in self._withheld.items()}
        return moved | {
            key: (reservation, reserved.get(key)) for key, (_, reservation) in self._reserved.items()
        }

    # Backfill: groups that may use the reserved capacity.

    def has_reservation(self, group: GroupInfo) -> bool:
        return group.key in self._reserved

    def reserved_for(self, group: GroupInfo) -> list[ReservedCapacity]:
        """Return the capacity that is reserved for a group itself."""
        return [self._withheld[group.key]] if group.key in self._withheld else []

    def is_promised(self, group: GroupInfo) -> bool:
        """Return whether the start of the group is guaranteed: no other group may delay it."""
        return any(reserved.reservation.is_promised for reserved in self.reserved_for(group))

    def may_backfill(self, group: GroupInfo) -> list[ReservedCapacity]:
        """Return the reservations that a group may pass."""
        self._cycle.reads.record(RESERVED)
        return self._backfill.may_pass(group, self.lends) if self._withheld else []

    def blocked_by(self, group: GroupInfo, wanted: Missing, reason: Reason | None) -> str:
        """Return the owners of reservations that keep members from starting, as text; empty where none do."""
        self._cycle.reads.record(RESERVED)
        return self._backfill.blocked_by(group, wanted, reason) if self._withheld else ""

    def own_capacity(self, group: GroupInfo) -> AbstractContextManager[None]:
        """Make the capacity that is reserved for a group available to it during the block."""
        own = self.reserved_for(group)
        return self.given_back(own) if own else nullcontext()

    def given_back(self, reserved: Collection[ReservedCapacity]) -> AbstractContextManager[None]:
        return self._backfill.given_back(reserved)

    def use_reserved(self, group: GroupInfo, plan: Mapping[Uid, str]) -> None:
        """Let a group that starts use capacity first that is reserved for groups starting after its end."""
        if self._withheld:
            self._backfill.use_reserved(group, plan)

    def end(self, group: GroupInfo) -> None:
        """End the reservation of a group that starts: its unused rest is free."""
        self._reserved.pop(group.key, None)
        self._backfill.end(group)

    def record(self, group: GroupInfo, decision: GroupDecision) -> GroupDecision:
        """Return the decision on a pending group, with its reservation if it has one.

        Groups that might get one are recorded.
        """
        if group.key in self._reserved and decision.reason in _KEEPS:
            _, reservation = self._reserved[group.key]
            detail = "; ".join(filter(None, (decision.detail, reservation.text)))
            return replace(decision, detail=detail, reservation=reservation)
        is_at_ceiling = decision.reason is Reason.QUEUE_CEILING
        is_flavor_open = is_at_ceiling and self._cycle.budget.flavors.may_choose(group)
        if decision.reason in _MAY_RESERVE and not is_flavor_open and self._is_due(group):
            self._lacking[self._class_of(group)].append(group)
        return decision

    def _class_of(self, group: GroupInfo) -> EquivalenceClass:
        """Return the equivalence class of a group: either all groups of a class find nodes, or none does."""
        wanted, budget = missing(group), self._cycle.budget
        if budget.planner.affinity.any_interdependent(wanted):
            return group.key
        return group.queue, wanted.signature, budget.running.class_key(group)

    @property
    def candidates(self) -> Set[tuple[EquivalenceClass, GroupKey]]:
        """Return the groups that might get a reservation, with their class."""
        return {(class_, group.key) for class_, line in self._lacking.items() for group in line}

    def make(self) -> None:
        """Make more reservations at the end of a cycle; they reserve nothing before the next cycle.

        Candidates are the first groups of the queues, the group with the longest wait first. A group
        that cannot get a reservation does not block others, unless the limit of all reservations is too
        low for it.
        """
        self.first_due = {class_: min(line, key=self._rank) for class_, line in self._lacking.items()}
        served = {group.queue for group, _ in self._reserved.values()}
        lines: defaultdict[str, list[GroupInfo]] = defaultdict(list)
        for group in sorted(self.first_due.values(), key=self._rank):
            with Guard(self._cycle, group):
                if group.queue not in served and self._cycle.fits_empty_cluster(missing(group)):
                    lines[group.queue].append(group)
        in_order = sorted(lines.values(), key=lambda line: longest_wait(line[0]))
        self.due = list(chain.from_iterable(in_order))
        if self.due and not self._has_place_for(missing(self.due[0]).requests):
            self.first_in_turn, self.due = self.due[0], self.due[:1]
        elif self.due and not self._has_searched():
            self._search(self._in_turn(self.due))

    def _is_due(self, group: GroupInfo) -> bool:
        """Return whether a group has waited for `reserveAfter` of its queue; False without a timestamp."""
        since = ready_since(group)
        return bool(since) and self._cycle.is_due(self._cycle.snapshot.instant(since) + self._patience(group))

    def _patience(self, group: GroupInfo) -> float:
        return self._cycle.snapshot.queues[group.queue].record.reserve_after

    def _in_turn(self, due: Sequence[GroupInfo]) -> Sequence[GroupInfo]:
        """Return the groups to search for now: always the first ones, and some of the others in turn."""
        if len(due) <= _SEARCHES:
            return due
        first, rest = due[:_IN_TURN], due[_IN_TURN:]
        now, changed_at = int(self._cycle.snapshot.now), int(self._cycle.snapshot.changed_at)
        if (now - changed_at) * _IN_TURN < len(rest):
            self._cycle.request_cycle_at(now + 1.0)
        turn = now * _IN_TURN % len(rest)
        return (*first, *(*rest[turn:], *rest[:turn])[:_IN_TURN])

    def _search(self, groups: Iterable[GroupInfo]) -> None:
        """Make a reservation for each group that can get one."""
        checkpoint, made_for = self._cycle.journal.checkpoint(), dict[str, GroupKey]()  # by queue
        for group in groups:
            with Guard(self._cycle, group):
                if group.queue in made_for:
                    continue
                if not self._has_place_for(missing(group).requests):
                    break
                stay = max(self._patience(group), _SHORTEST_STAY)
                found = self._backfill.forecast.find(group, self.unreserved_capacity(), stay)
                if found is not None:
                    reservation = self._promised(group, found)
                    self._cycle.record(replace(self._cycle.decided[group.key], reservation=reservation))
                    made_for[group.queue] = group.key
                    self._reserved[group.key] = group, reservation
                    self._backfill.reserve(group, reservation)
        self._cycle.journal.roll_back(checkpoint)
        for key in made_for.values():
            self._withheld.pop(key, None)
            self._reserved.pop(key, None)


def _no_later(now: Reservation, before: Reservation) -> Reservation:
    """Return the reservation, passable no longer than before: passing groups must not delay it."""
    instants = before.passable_until, now.passable_until, now.starts_at
    return replace(now, passable_until=min((at for at in instants if at is not None), default=None))


def _with_reserved_plan(group: GroupInfo) -> GroupInfo:
    """Return the group; a job whose reservation covers only a partial start, with so many members."""
    found = len(group.start.reservation.nodes) if group.start.reservation else 0
    is_smaller = 0 < group.job.least <= found < group.min_member
    return replace(group, min_member=found) if is_smaller else group


def longest_wait(group: GroupInfo) -> tuple[str, GroupKey]:
    """Sort key: the longest wait first."""
    return (ready_since(group), group.key)


class CapacityTurn(NamedTuple):
    """Period in which capacity is reserved or lent, until a time on the ledger's clock."""

    is_reserved: bool
    until: float


def turn_at(now: float, since: float, first: float) -> CapacityTurn:
    """Return the turn at this instant. `since`: the begin of the turns; `first`: seconds of the first one."""
    if now < since:
        return CapacityTurn(True, since)
    number = floor(log2((now - since) / first / 2.0 + 1.0))
    begin, length = since + 2.0 * first * (2.0**number - 1.0), first * 2.0**number
    is_reserved = now < begin + length
    return CapacityTurn(is_reserved, begin + (1.0 if is_reserved else 2.0) * length)
