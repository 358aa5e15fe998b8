"""The room that falls free as groups end, in the order in which they are expected to."""

from collections.abc import Iterable
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from extender.domain.model.shapes import Shape
from extender.domain.placement.capacity import Capacity
from extender.domain.reservation.run_times import RunEnd, RunTimes
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.nodes import AmountRows, NodeTable, Rows

_Held = tuple[tuple[Shape, str], ...]


class _Leaving(NamedTuple):
    """Pods of one shape, first those that leave first."""

    ends: npt.NDArray[np.float64]
    rows: Rows


def held_by(group: GroupView) -> _Held:
    """The shapes and nodes of members that are on nodes, or on their way there."""
    return group.once(_held_by)


def _held_by(group: GroupView) -> _Held:
    placed = [(pod.shape, pod.node) for pod in group.placed if pod.holds_room]
    pinned = [(pod.shape, node) for pod, node in group.pinned]
    planned = [(pod.shape, group.planned[pod.uid]) for pod in group.waiting if pod.uid in group.planned]
    return (*placed, *pinned, *planned)


def nodes_of(group: GroupView) -> frozenset[str]:
    """Where these members are."""
    return group.once(_nodes_of)


def _nodes_of(group: GroupView) -> frozenset[str]:
    return frozenset(node for _, node in held_by(group))


class Departures:
    """Pods of others never leave, as far as this is concerned."""

    def __init__(self, groups: Iterable[GroupView], times: RunTimes, nodes: NodeTable) -> None:
        holders = [(group, times.end_of(group)) for group in groups if held_by(group)]
        self._guessed = [(nodes_of(group), end.at) for group, end in holders if not end.is_known]
        self.moments = sorted({end.at for _, end in holders})
        """When any of them ends."""
        self._leaving = _in_order(holders, nodes)

    def give_back(self, capacity: Capacity, until: float) -> None:
        """Add to `capacity` what has fallen free by then."""
        for shape, leaving in self._leaving.items():
            gone = int(np.searchsorted(leaving.ends, until, side="right"))
            if gone:
                capacity.take_rows({shape: leaving.rows[:gone]}, -1)

    def freed_on(self, rows: Rows, capacity: Capacity, until: float) -> AmountRows:
        """What has fallen free by then on some rows of `capacity`."""
        gone = {
            shape: leaving.rows[: int(np.searchsorted(leaving.ends, until, side="right"))]
            for shape, leaving in self._leaving.items()
        }
        return capacity.amounts_on(rows, gone)

    def is_guess(self, nodes: frozenset[str], until: float) -> bool:
        """Whether any group is expected to have left these nodes by then, of which nothing is known but its
        age."""
        return any(at <= until and not held.isdisjoint(nodes) for held, at in self._guessed)


def _in_order(holders: Iterable[tuple[GroupView, RunEnd]], nodes: NodeTable) -> dict[Shape, _Leaving]:
    ends: dict[Shape, list[tuple[float, Rows]]] = {}
    for group, end in holders:
        for shape, rows in group.once(_HeldRows).on(nodes).items():
            ends.setdefault(shape, []).append((end.at, rows))
    return {shape: _leaving(of_shape) for shape, of_shape in ends.items()}


def _leaving(ends: list[tuple[float, Rows]]) -> _Leaving:
    ends.sort(key=itemgetter(0))
    moments, rows = zip(*ends, strict=True)
    return _Leaving(np.repeat(np.array(moments), [len(each) for each in rows]), np.concatenate(rows))


class _HeldRows:
    """The rows that a group's members hold, by shape, while the nodes are the same."""

    def __init__(self, group: GroupView) -> None:
        self._held = held_by(group)
        self._known: tuple[NodeTable | None, dict[Shape, Rows]] = (None, {})

    def on(self, nodes: NodeTable) -> dict[Shape, Rows]:
        if self._known[0] is not nodes:
            rows: dict[Shape, list[int]] = {}
            for shape, node in self._held:
                if (row := nodes.row.get(node)) is not None:
                    rows.setdefault(shape, []).append(row)
            self._known = nodes, {shape: np.array(of_shape) for shape, of_shape in rows.items()}
        return self._known[1]
