"""Headroom: the free part below the ceilings of a queue and of those above it, and below its limits.

A reservation also covers headroom: at each level up to root, enough for the group is left once running groups
have ended. Other groups may use the rest.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import NamedTuple

from extender.domain.model.resources import Resources
from extender.domain.placement.departures import RunEnd, RunTimes, nodes_of
from extender.domain.scheduling.budget import Budget, Scope
from extender.domain.scheduling.cycle import Cycle
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.wholeness import Missing

Level = int | Scope  # a node in the tree of queues, with its ceiling; or the scope of a limit
Amounts = Mapping[Level, Resources]


class Need(NamedTuple):
    """Headroom that one group needs at each level, and the part that is reserved for it now."""

    needed: Amounts
    reserved: Amounts

    def after(self, before: Amounts, now: Amounts) -> "Need":
        """Return the need without the reserved part that other groups used.

        `before` and `now`: the headroom that was left before and after that.
        """
        return self._replace(reserved=less(self.reserved, less(before, now)))


def reserve(budget: Budget, amounts: Amounts, times: int = 1) -> None:
    """Reserve headroom from all groups; with `times` -1, free it."""
    nodes = {level: of_level for level, of_level in amounts.items() if isinstance(level, int)}
    scopes = {level: of_level for level, of_level in amounts.items() if isinstance(level, Scope)}
    budget.shares.reserve(nodes, times)
    budget.running.reserve(scopes, times)


def suffices(budget: Budget, group: GroupInfo, wanted: Missing) -> bool:
    """Return whether ceilings and limits allow members to start."""
    if budget.running.excess(group, len(wanted.members)) is not None:
        return False
    return not budget.shares.above_ceiling(group.queue, wanted.requests)


def levels(budget: Budget, group: GroupInfo, wanted: Missing) -> Iterator[tuple[Level, Resources, Resources]]:
    """Yield what members need at each level, and the headroom left there."""
    yield from budget.shares.headroom(group.queue, wanted.requests)
    yield from budget.running.remaining(group, len(wanted.members))


def left_for(budget: Budget, group: GroupInfo) -> Amounts:
    return {level: left for level, _, left in levels(budget, group, budget.flavors.settled_members(group))}


def short_levels(budget: Budget, group: GroupInfo, wanted: Missing) -> tuple[str, ...]:
    """Return the names of the levels that have too little left."""
    return tuple(
        str(level) if isinstance(level, Scope) else f"queue {budget.shares.tree.queues[level]}"
        for level, needed, left in levels(budget, group, wanted)
        if any(amount > left[name] for name, amount in needed.items())
    )


def less(amounts: Amounts, other: Amounts) -> Amounts:
    """Return the amounts minus others, at least 0."""
    return {
        level: {name: max(n - other.get(level, {}).get(name, 0), 0) for name, n in of_level.items()}
        for level, of_level in amounts.items()
    }


class HeadroomForecast:
    """Forecast of headroom once groups have ended, and others have their reservations."""

    def __init__(self, cycle: Cycle, times: RunTimes) -> None:
        self._cycle, self._times = cycle, times
        self._reserved: list[Amounts] = []  # needs of other groups that are not reserved yet

    def has_headroom(self, group: GroupInfo, wanted: Missing, instant: float) -> bool:
        """Return whether members have headroom now or at that time."""
        with self._once_ended(group.queue, self._cycle.snapshot.now):
            if suffices(self._cycle.budget, group, wanted):
                return True
        with self._once_ended(group.queue, instant):
            return suffices(self._cycle.budget, group, wanted)

    def is_guess(self, group: GroupInfo, wanted: Missing, instant: float) -> bool:
        """Return whether the forecast depends on the end of a group without a known run time."""
        if self.has_headroom(group, wanted, self._cycle.snapshot.now):
            return False
        return any(end.at <= instant and not end.is_known for end, _ in self._ends_in_tree(group.queue))

    def instants(self, group: GroupInfo, wanted: Missing) -> set[float]:
        """Return the times at which more headroom becomes free for members that lack it now."""
        if self.has_headroom(group, wanted, self._cycle.snapshot.now):
            return set()
        return {end.at for end, _ in self._ends_in_tree(group.queue)}

    def reserve(self, group: GroupInfo, wanted: Missing, start: float | None) -> Need:
        """Reserve the headroom that the group would lack at its start if others used it until then.

        `start`: its time; None: unknown.
        """
        budget = self._cycle.budget
        by_level = {level: (needed, left) for level, needed, left in levels(budget, group, wanted)}
        at_start: Amounts = {level: left for level, (_, left) in by_level.items()}
        if by_level and start is not None and not self._cycle.is_due(start):
            with self._once_ended(group.queue, start):
                at_start = left_for(budget, group)
        reserved = {
            level: {
                name: max(max(left[name], 0) - max(at_start[level][name] - amount, 0), 0)
                for name, amount in needed.items()
            }
            for level, (needed, left) in by_level.items()
        }
        need = Need({level: needed for level, (needed, _) in by_level.items()}, reserved)
        reserve(budget, reserved)
        self._reserved.append(less(need.needed, reserved))
        return need

    @contextmanager
    def _once_ended(self, queue: str, instant: float) -> Iterator[None]:
        """Meanwhile reserve what is reserved, and count the groups that end by `instant` as ended."""
        budget, journal = self._cycle.budget, self._cycle.journal
        checkpoint = journal.checkpoint()
        try:
            for amounts in self._reserved:
                reserve(budget, amounts)
            has_time_passed = instant > self._cycle.snapshot.now
            for end, group in self._ends_in_tree(queue) if has_time_passed else ():
                if end.at > instant:
                    break
                budget.end(group)
            yield
        finally:
            journal.roll_back(checkpoint)

    def _ends_in_tree(self, queue: str) -> Iterable[tuple[RunEnd, GroupInfo]]:
        """Return the ends of the groups that count for any level of a queue."""
        tree, shares = self._cycle.budget.shares.tree, self._cycle.budget.shares
        highest = [node for node, _, _ in shares.headroom(queue, shares.state.division.total)][-1:]
        for end, group in self._ends:
            if group.queue == queue or not {*highest}.isdisjoint(tree.path(group.queue)):
                yield end, group

    @cached_property
    def _ends(self) -> list[tuple[RunEnd, GroupInfo]]:
        """Return the expected ends of all running or starting groups, the earliest first."""
        running = (group for group in self._cycle.snapshot.groups.values() if nodes_of(group))
        return sorted(((self._times.end_of(group), group) for group in running), key=lambda end: end[0].at)
