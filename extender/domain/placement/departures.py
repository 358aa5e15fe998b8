"""Departures: expected ends of groups, and when a gang fits because of them.

The run time of a group is the declared one, the limit of Kubernetes, or that of earlier groups of its kind.
If groups of a series run longer than declared, the others are expected to, as well. A group that has exceeded
its run time is expected to run for as long again.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import cached_property
from math import floor, inf, log2
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from extender.domain.model.records import GroupKey, Uid
from extender.domain.model.shapes import Shape
from extender.domain.placement.capacity import Capacity
from extender.domain.placement.planner import Holding, Planner
from extender.domain.snapshot.group_info import GroupInfo, computed_once, kind_of
from extender.domain.snapshot.nodes import AmountRows, NodeTable, Rows
from extender.domain.snapshot.snapshot import Snapshot
from extender.domain.snapshot.wholeness import Missing, running_since

_SHORTEST = 1.0  # seconds: the shortest run time that counts
_YOUNG = 60.0  # seconds that a group without any known run time is expected to run at first


class RunEnd(NamedTuple):
    at: float  # when a group is expected to end, on the ledger's clock
    is_known: bool  # whether it follows from more than the group's age


class RunTimes:
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._known: dict[GroupKey, float | None] = {}
        self._ends: dict[GroupKey, RunEnd] = {}

    def run_time_of(self, group: GroupInfo) -> float | None:
        """Return how many seconds a group will run from its start; None if unknown."""
        if group.key not in self._known:
            is_declared = group.spec.run_time is not None
            stretch = self._stretches.get(group.spec.series, 1.0) if is_declared else 1.0
            self._known[group.key] = self._run_time_of(group, stretch)
        return self._known[group.key]

    def _run_time_of(self, group: GroupInfo, stretch: float = 1.0) -> float | None:
        """Return the expected run time of a group in seconds; None if unknown.

        `stretch`: the ratio of real to declared run time of its series.
        """
        history, limit, spec = self._snapshot.history, group.run_limit, group.spec
        if spec.run_time is None:
            return history.usual_run_time(kind_of(group)) if limit is None else limit
        declared = max(spec.run_time, _SHORTEST) * max(history.stretch(spec.series), stretch)
        return declared if limit is None else min(declared, limit)

    def end_if_running(self, group: GroupInfo, at: float) -> float:
        """Return the expected end of a group that runs at `at`, by its declared time and by ended groups.

        The result does not depend on the present time. It is inf if unknown, or if it is before `at`.
        """
        since, seconds = running_since(group, self._snapshot.instant), self._run_time_of(group)
        if since is None or seconds is None or not since < at < since + seconds:
            return inf
        return since + seconds

    def end_of(self, group: GroupInfo) -> RunEnd:
        """Return when a group that runs, or starts, is expected to end.

        A group without a known run time is expected to run for as long again as it has run.
        """
        if group.key not in self._ends:
            since, now = self._since(group), self._snapshot.now
            end = self.expected_end(group, since, now)
            self._ends[group.key] = end if end.is_known else end._replace(at=now + max(now - since, _YOUNG))
        return self._ends[group.key]

    def expected_end(self, group: GroupInfo, since: float, now: float) -> RunEnd:
        """Return the expected end of a group that has run since `since`, as of `now`."""
        return expected_end(self.run_time_of(group), since, now)

    def _since(self, group: GroupInfo) -> float:
        since = running_since(group, self._snapshot.instant)
        return self._snapshot.now if since is None else min(since, self._snapshot.now)

    @cached_property
    def _stretches(self) -> dict[str, float]:
        """Return by series the ratio of real to declared run time of its running groups."""
        stretches: dict[str, float] = {}
        for group in self._snapshot.groups.values():
            if group.spec.run_time is not None and group.is_on_nodes:
                declared = max(group.spec.run_time, _SHORTEST)
                stretch = _total_run_time(self._snapshot.now - self._since(group), declared) / declared
                stretches[group.spec.series] = max(stretch, stretches.get(group.spec.series, 1.0))
        return stretches


def expected_end(seconds: float | None, since: float, now: float) -> RunEnd:
    """Return the expected end of a run from its start and run time; None: unknown."""
    if seconds is None:
        return RunEnd(inf, is_known=False)
    return RunEnd(since + _total_run_time(now - since, max(seconds, _SHORTEST)), is_known=True)


def _total_run_time(ran: float, expected: float) -> float:
    """Return the expected total run time of a group.

    A group that has run for the expected time is expected to run twice as long, then four times, and so
    on.
    """
    return expected if ran < expected else expected * 2.0 ** (floor(log2(ran / expected)) + 1)


class _Leaving(NamedTuple):
    """Pods of one shape, in the order in which they leave."""

    ends: npt.NDArray[np.float64]
    rows: Rows

    def until(self, instant: float) -> Rows:
        return self.rows[: int(np.searchsorted(self.ends, instant, side="right"))]


@computed_once
def held_by(group: GroupInfo) -> Holding:
    """Return the members that are on nodes, or on their way there."""
    placed = [(pod, pod.node) for pod in group.placed if pod.holds_capacity]
    planned = [(pod, group.planned[pod.uid]) for pod in group.waiting if pod.uid in group.planned]
    return Holding((*placed, *group.assumed, *planned), ())


@computed_once
def nodes_of(group: GroupInfo) -> frozenset[str]:
    """Return the nodes of members."""
    return frozenset(node for _, node in held_by(group).pods)


class Departures:
    """Capacity that becomes free as `groups` end, in that order. Other schedulers' pods never leave."""

    def __init__(self, groups: Iterable[GroupInfo], times: RunTimes, nodes: NodeTable) -> None:
        holders = [(group, times.end_of(group)) for group in groups if nodes_of(group)]
        self._guessed = [(nodes_of(group), end.at) for group, end in holders if not end.is_known]
        self.instants = sorted({end.at for _, end in holders})  # times at which groups end
        ends: dict[Shape, list[tuple[float, Rows]]] = {}
        for group, end in holders:
            for shape, rows in held_by(group).rows(nodes).items():
                ends.setdefault(shape, []).append((end.at, rows[rows >= 0]))
        self._leaving: dict[Shape, _Leaving] = {}
        for shape, of_shape in ends.items():
            of_shape.sort(key=itemgetter(0))
            instants, parts = zip(*of_shape, strict=True)
            times_of_pods = np.repeat(np.array(instants), [len(part) for part in parts])
            self._leaving[shape] = _Leaving(times_of_pods, np.concatenate(parts))

    def give_back(self, capacity: Capacity, until: float) -> None:
        """Add to `capacity` the amounts that are free by then."""
        for shape, leaving in self._leaving.items():
            if len(departed := leaving.until(until)):
                capacity.allocate_rows({shape: departed}, times=-1)

    def freed_on(self, rows: Rows, capacity: Capacity, until: float) -> AmountRows:
        """Return the amounts that are free by then on some rows of `capacity`."""
        return capacity.amounts_on(rows, {shape: left.until(until) for shape, left in self._leaving.items()})

    def is_guess(self, nodes: frozenset[str], until: float) -> bool:
        """Return whether a group without a known run time is expected to have left these nodes by then."""
        return any(at <= until and not held.isdisjoint(nodes) for held, at in self._guessed)


def earliest(
    planner: Planner, departures: Departures, wanted: Missing, now: float, is_allowed: Callable[[float], bool]
) -> tuple[float | None, dict[Uid, str]] | None:
    """Return when members will fit, and on which nodes.

    Args:
        planner: The free capacity now; it is not changed.
        departures: The expected ends of running groups.
        wanted: The members without a node.
        now: The time on the ledger's clock.
        is_allowed: Whether anything else lets them start at a time, and from then on.

    Returns:
        The time on the ledger's clock, None if it is a guess, and the nodes; None if the members do not fit
        even once all running groups have ended.
    """

    def places_at(instant: float) -> dict[Uid, str] | None:
        if not is_allowed(instant):
            return None
        future = planner.clone()
        departures.give_back(future.capacity, instant)
        return None if future.capacity.is_short_for(wanted.shapes) else future.place(wanted.members)

    instants = [now, *(instant for instant in departures.instants if instant > now)]
    if places_at(instants[-1]) is None:
        return None
    first = instants[bisect_left(instants, True, key=lambda instant: places_at(instant) is not None)]
    if (nodes := places_at(first)) is None:
        return None
    is_guess = departures.is_guess(frozenset(nodes.values()), first)
    return (None if is_guess else first), nodes
