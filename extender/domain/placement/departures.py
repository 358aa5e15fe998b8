"""Departures: the expected ends of groups, and the time at which a pending group fits after these ends.

The run time of a group is the declared time, the limit of Kubernetes, or the run time of earlier groups of
its kind. If groups of a series run longer than declared, the other groups of the series are also expected
to run longer. A group that has exceeded its run time is expected to run for as long again.
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

_MIN_RUN_SECONDS = 1.0  # seconds; shorter run times count as this long
_MIN_AGE = 60.0  # seconds that a new group without a known run time is expected to run


class RunEnd(NamedTuple):
    at: float  # expected end of a group, on the ledger's clock
    is_known: bool  # False if the end is only guessed from the group's age


class RunTimes:
    """Expected run times and ends of the groups of a snapshot, computed once for each group."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._run_times: dict[GroupKey, float | None] = {}
        self._ends: dict[GroupKey, RunEnd] = {}

    def run_time_of(self, group: GroupInfo) -> float | None:
        """Return how many seconds a group will run from its start.

        None means that the run time is unknown.
        """
        if group.key not in self._run_times:
            is_declared = group.spec.run_time is not None
            stretch = self._stretch_by_series.get(group.spec.series, 1.0) if is_declared else 1.0
            self._run_times[group.key] = self._run_time_of(group, stretch)
        return self._run_times[group.key]

    def _run_time_of(self, group: GroupInfo, stretch: float = 1.0) -> float | None:
        """Return the expected run time of a group in seconds. None means that the run time is unknown.

        `stretch` is the ratio of real to declared run time of its series.
        """
        history, limit_seconds, spec = self._snapshot.history, group.run_limit, group.spec
        if spec.run_time is None:
            return history.usual_run_time(kind_of(group)) if limit_seconds is None else limit_seconds
        declared_seconds = max(spec.run_time, _MIN_RUN_SECONDS) * max(history.stretch(spec.series), stretch)
        return declared_seconds if limit_seconds is None else min(declared_seconds, limit_seconds)

    def end_if_running(self, group: GroupInfo, when: float) -> float:
        """Return the expected end of a group that runs at the time `when`.

        The end follows from the declared run time and from ended groups, and does not depend on the present
        time. An unknown end is infinite. The result is also infinite if the group does not run at the time
        `when`.
        """
        start, seconds = running_since(group, self._snapshot.instant), self._run_time_of(group)
        if start is None or seconds is None or not start < when < start + seconds:
            return inf
        return start + seconds

    def end_of(self, group: GroupInfo) -> RunEnd:
        """Return the expected end of a group that runs or starts.

        A group without a known run time is expected to run for as long again as it has run.
        """
        if group.key not in self._ends:
            start, now = self._started_at(group), self._snapshot.now
            end = self.expected_end(group, start, now)
            self._ends[group.key] = end if end.is_known else end._replace(at=now + max(now - start, _MIN_AGE))
        return self._ends[group.key]

    def expected_end(self, group: GroupInfo, start: float, now: float) -> RunEnd:
        """Return the expected end, as of `now`, of a group that started at `start`."""
        return expected_end(self.run_time_of(group), start, now)

    def _started_at(self, group: GroupInfo) -> float:
        """Return when a group started, but no later than now.

        A group that does not run counts as starting now.
        """
        start = running_since(group, self._snapshot.instant)
        return self._snapshot.now if start is None else min(start, self._snapshot.now)

    @cached_property
    def _stretch_by_series(self) -> dict[str, float]:
        """Return the ratio of real to declared run time by series, for running groups.

        The largest ratio of a series counts; it is at least 1.
        """
        stretches: dict[str, float] = {}
        for group in self._snapshot.groups.values():
            if group.spec.run_time is not None and group.is_on_nodes:
                seconds = max(group.spec.run_time, _MIN_RUN_SECONDS)
                stretch = _total_run_time(self._snapshot.now - self._started_at(group), seconds) / seconds
                stretches[group.spec.series] = max(stretch, stretches.get(group.spec.series, 1.0))
        return stretches


def expected_end(seconds: float | None, start: float, now: float) -> RunEnd:
    """Return the expected end of a run from its start and its run time. None means an unknown run time."""
    if seconds is None:
        return RunEnd(inf, is_known=False)
    return RunEnd(start + _total_run_time(now - start, max(seconds, _MIN_RUN_SECONDS)), is_known=True)


def _total_run_time(run_seconds: float, run_time: float) -> float:
    """Return the expected total run time of a group that has run for `run_seconds` seconds.

    A group that has run for the expected time is expected to run twice as long, then four times, and so on.
    """
    return run_time if run_seconds < run_time else run_time * 2.0 ** (floor(log2(run_seconds / run_time)) + 1)


class _LeavingPods(NamedTuple):
    """Rows of the pods of one shape, in the order in which the pods leave."""

    ends: npt.NDArray[np.float64]
    rows: Rows

    def until(self, instant: float) -> Rows:
        """Return the rows of the pods that have left by an instant."""
        return self.rows[: int(np.searchsorted(self.ends, instant, side="right"))]


@computed_once
def holding_of(group: GroupInfo) -> Holding:
    """Return the members on nodes, and the members that are planned for nodes."""
    placed_pods = [(pod, pod.node) for pod in group.placed_pods if pod.holds_capacity]
    nodes = group.planned_nodes
    planned_pods = [(pod, nodes[pod.uid]) for pod in group.waiting_pods if pod.uid in nodes]
    return Holding((*placed_pods, *group.assumed_pods, *planned_pods), ())


@computed_once
def nodes_of(group: GroupInfo) -> frozenset[str]:
    """Return the nodes of the members of a group, including planned nodes."""
    return frozenset(node for _, node in holding_of(group).pods)


class Departures:
    """Capacity that becomes free as `groups` end. Pods of other schedulers are expected to stay."""

    def __init__(self, groups: Iterable[GroupInfo], run_times: RunTimes, nodes: NodeTable) -> None:
        ends_of_groups = [(group, run_times.end_of(group)) for group in groups if nodes_of(group)]
        self._guesses = [(nodes_of(group), end.at) for group, end in ends_of_groups if not end.is_known]
        self.instants = sorted({end.at for _, end in ends_of_groups})  # times at which groups end, in order
        ends_by_shape: dict[Shape, list[tuple[float, Rows]]] = {}
        for group, end in ends_of_groups:
            for shape, rows in holding_of(group).rows(nodes).items():
                ends_by_shape.setdefault(shape, []).append((end.at, rows[rows >= 0]))
        self._leavers: dict[Shape, _LeavingPods] = {}
        for shape, ends_and_rows in ends_by_shape.items():
            ends_and_rows.sort(key=itemgetter(0))
            instants, row_arrays = zip(*ends_and_rows, strict=True)
            end_by_pod = np.repeat(np.array(instants), [len(shape_rows) for shape_rows in row_arrays])
            self._leavers[shape] = _LeavingPods(end_by_pod, np.concatenate(row_arrays))

    def free_capacity(self, capacity: Capacity, instant: float) -> None:
        """Add to `capacity` the amounts that become free until a time."""
        for shape, leaving_pods in self._leavers.items():
            if len(freed_rows := leaving_pods.until(instant)):
                capacity.allocate_rows({shape: freed_rows}, times=-1)

    def amounts_freed_on(self, rows: Rows, capacity: Capacity, time: float) -> AmountRows:
        """Return the amounts that become free until a time on some rows of `capacity`."""
        return capacity.amounts_on(rows, {shape: pods.until(time) for shape, pods in self._leavers.items()})

    def is_guess(self, nodes: frozenset[str], instant: float) -> bool:
        """Return whether a group that leaves one of these nodes until a time has no known run time."""
        return any(end <= instant and not used.isdisjoint(nodes) for used, end in self._guesses)


def earliest_start(
    planner: Planner, departures: Departures, need: Missing, now: float, is_allowed: Callable[[float], bool]
) -> tuple[float | None, dict[Uid, str]] | None:
    """Return when the members of a group will fit, and on which nodes.

    Args:
        planner: The free capacity now, which the function does not change.
        departures: The expected ends of running groups.
        need: The members without a node.
        now: The present time on the ledger's clock.
        is_allowed: Whether all other conditions let the members start at a time, and from then on.

    Returns:
        The time on the ledger's clock, and the nodes. The time is None if it is only a guess. The result is
        None if the members do not fit even once all running groups have ended.
    """

    def nodes_at(instant: float) -> dict[Uid, str] | None:
        if not is_allowed(instant):
            return None
        clone = planner.clone()
        departures.free_capacity(clone.capacity, instant)
        return None if clone.capacity.is_short_for(need.shapes) else clone.place(need.members)

    instants = [now, *(instant for instant in departures.instants if instant > now)]
    if nodes_at(instants[-1]) is None:
        return None
    start = instants[bisect_left(instants, True, key=lambda instant: nodes_at(instant) is not None)]
    if (nodes := nodes_at(start)) is None:
        return None
    is_guess = departures.is_guess(frozenset(nodes.values()), start)
    return (None if is_guess else start), nodes
