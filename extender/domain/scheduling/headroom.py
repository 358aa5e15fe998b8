"""Headroom: the unused part below the ceilings of a queue and of the queues above it, and below its limits.

A reservation also covers headroom. At each level up to root, it leaves enough headroom for its group once
running groups have ended. Other groups may use the remaining headroom.
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

Level = int | Scope  # a node of the queue tree, which has a ceiling, or the scope of a limit
Amounts = Mapping[Level, Resources]


class HeadroomNeed(NamedTuple):
    """Headroom that one group needs at each level, and the part that is reserved for it now."""

    amounts: Amounts
    reserves: Amounts

    def after(self, old_amounts: Amounts, new_amounts: Amounts) -> "HeadroomNeed":
        """Return the need after other groups have used headroom. The used part is no longer reserved.

        `old_amounts` and `new_amounts` are the remaining headroom before and after that use.
        """
        return self._replace(reserves=subtract(self.reserves, subtract(old_amounts, new_amounts)))


def reserve(budget: Budget, amounts: Amounts, times: int = 1) -> None:
    """Reserve headroom, so that no group may use it; with `times` -1, free it."""
    nodes = {level: level_amounts for level, level_amounts in amounts.items() if isinstance(level, int)}
    scopes = {level: level_amounts for level, level_amounts in amounts.items() if isinstance(level, Scope)}
    budget.shares.reserve(nodes, times)
    budget.running.reserve(scopes, times)


def has_enough_headroom(budget: Budget, group: GroupInfo, need: Missing) -> bool:
    """Return whether ceilings and limits allow members to start."""
    if budget.running.excess(group, len(need.members)) is not None:
        return False
    return not budget.shares.ceiling_excess(group.queue, need.requests)


def levels(budget: Budget, group: GroupInfo, need: Missing) -> Iterator[tuple[Level, Resources, Resources]]:
    """Yield each level, the amounts that members need there, and the remaining headroom."""
    yield from budget.shares.headroom(group.queue, need.requests)
    yield from budget.running.remaining(group, len(need.members))


def remaining_headroom(budget: Budget, group: GroupInfo) -> Amounts:
    """Return the remaining headroom of a group at each level."""
    return {level: free for level, _, free in levels(budget, group, budget.flavors.flavored_members(group))}


def full_levels(budget: Budget, group: GroupInfo, need: Missing) -> tuple[str, ...]:
    """Return the names of the levels with too little headroom."""
    return tuple(
        str(level) if isinstance(level, Scope) else f"queue {budget.shares.tree.queues[level]}"
        for level, needed_amounts, free_amounts in levels(budget, group, need)
        if any(amount > free_amounts[name] for name, amount in needed_amounts.items())
    )


def subtract(amounts: Amounts, subtrahend: Amounts) -> Amounts:
    """Return the amounts minus other amounts, but at least 0."""
    return {
        level: {name: max(n - subtrahend.get(level, {}).get(name, 0), 0) for name, n in level_amounts.items()}
        for level, level_amounts in amounts.items()
    }


class HeadroomForecast:
    """Forecast of headroom once groups have ended and other groups have got their reserved headroom."""

    def __init__(self, cycle: Cycle, run_times: RunTimes) -> None:
        self._cycle, self._times = cycle, run_times
        self._later_needs: list[Amounts] = []  # needs of other groups that are not reserved yet

    def has_headroom(self, group: GroupInfo, need: Missing, instant: float) -> bool:
        """Return whether members have headroom now or at `instant`."""
        with self._as_if_ended(group.queue, self._cycle.snapshot.now):
            if has_enough_headroom(self._cycle.budget, group, need):
                return True
        with self._as_if_ended(group.queue, instant):
            return has_enough_headroom(self._cycle.budget, group, need)

    def is_guess(self, group: GroupInfo, need: Missing, instant: float) -> bool:
        """Return whether the forecast depends on the end of a group without a known run time."""
        if self.has_headroom(group, need, self._cycle.snapshot.now):
            return False
        return any(end.at <= instant and not end.is_known for end, _ in self._ends_in_tree(group.queue))

    def instants(self, group: GroupInfo, need: Missing) -> set[float]:
        """Return the times at which more headroom becomes free for members that lack headroom now."""
        if self.has_headroom(group, need, self._cycle.snapshot.now):
            return set()
        return {end.at for end, _ in self._ends_in_tree(group.queue)}

    def reserve(self, group: GroupInfo, need: Missing, start: float | None) -> HeadroomNeed:
        """Reserve headroom for the start of a group, and return all the headroom that the group needs.

        Other groups may use headroom until the start. The method reserves only the part that the group would
        otherwise lack at its start. `start` is the time of the start. None means that the start is unknown.
        """
        budget = self._cycle.budget
        needed_and_free = {level: (needs, rest) for level, needs, rest in levels(budget, group, need)}
        start_amounts: Amounts = {level: rest for level, (_, rest) in needed_and_free.items()}
        if needed_and_free and start is not None and not self._cycle.is_due(start):
            with self._as_if_ended(group.queue, start):
                start_amounts = remaining_headroom(budget, group)
        reserves = {
            level: {
                name: max(max(rest[name], 0) - max(start_amounts[level][name] - amount, 0), 0)
                for name, amount in needs.items()
            }
            for level, (needs, rest) in needed_and_free.items()
        }
        group_need = HeadroomNeed({level: needs for level, (needs, _) in needed_and_free.items()}, reserves)
        reserve(budget, reserves)
        self._later_needs.append(subtract(group_need.amounts, reserves))
        return group_need

    @contextmanager
    def _as_if_ended(self, queue: str, instant: float) -> Iterator[None]:
        """Count the groups that end by `instant` as ended during the block.

        The headroom that other groups with a reservation will need counts as reserved.
        """
        budget, journal = self._cycle.budget, self._cycle.journal
        checkpoint = journal.checkpoint()
        try:
            for amounts in self._later_needs:
                reserve(budget, amounts)
            is_later = instant > self._cycle.snapshot.now
            for end, group in self._ends_in_tree(queue) if is_later else ():
                if end.at > instant:
                    break
                budget.remove_group(group)
            yield
        finally:
            journal.roll_back(checkpoint)

    def _ends_in_tree(self, queue: str) -> Iterable[tuple[RunEnd, GroupInfo]]:
        """Yield the ends of the groups in the queue, and of groups that share a ceiling with it."""
        tree, shares = self._cycle.budget.shares.tree, self._cycle.budget.shares
        top_node = [node for node, _, _ in shares.headroom(queue, shares.state.division.total)][-1:]
        for end, group in self._ends:
            if group.queue == queue or not {*top_node}.isdisjoint(tree.path(group.queue)):
                yield end, group

    @cached_property
    def _ends(self) -> list[tuple[RunEnd, GroupInfo]]:
        """Return the expected ends of all running or starting groups, the earliest end first."""
        groups = (group for group in self._cycle.snapshot.groups.values() if nodes_of(group))
        return sorted(((self._times.end_of(group), group) for group in groups), key=lambda end: end[0].at)
