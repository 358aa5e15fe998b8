"""What the plan of a group holds: which of its members on which nodes, and how long the scheduler was silent.

Worked out once for each view of a group, since most groups on their way are the same from round to round.
"""

from collections import Counter
from collections.abc import Container, Iterable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from extender.domain.lifecycle.quorum import missing
from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.resources import Resources
from extender.domain.model.shapes import Shape, requests_of
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.nodes import NodeTable, Rows

Planned = tuple[PodRecord, str]


class Silence(NamedTuple):
    """Since when the scheduler has not used a planned node, and what it said of the pod meanwhile."""

    since: float
    refused: bool  # it refused the pod since
    known: bool  # it refused the pod before: another refusal in the same words would not be seen


class Holding:
    """`pods` with their planned nodes, the members `unplanned`, and the oldest silence of each kind."""

    def __init__(
        self, pods: Iterable[Planned], unplanned: Iterable[PodRecord], silences: Iterable[Silence] = ()
    ) -> None:
        self.pods = tuple(pods)
        self.unplanned = tuple(unplanned)
        self.silences = tuple({silence[1:]: silence for silence in sorted(silences, reverse=True)}.values())
        self._rows: tuple[NodeTable | None, dict[Shape, Rows]] = (None, {})

    @cached_property
    def plan(self) -> dict[Uid, str]:
        return {pod.uid: node for pod, node in self.pods}

    @cached_property
    def requests(self) -> Resources:
        """What the planned pods ask for together."""
        return requests_of(Counter(pod.shape for pod, _ in self.pods))

    def rows(self, nodes: NodeTable) -> dict[Shape, Rows]:
        """By shape the rows that are held, one for each pod; -1 for a node that is gone."""
        table, rows = self._rows
        if table is not nodes:
            rows = rows_of(self.pods, nodes)
            self._rows = (nodes, rows)
        return rows

    def without(self, moved: Container[Uid]) -> "Holding":
        """The rest, where the scheduler would not use some of the nodes."""
        kept = [each for each in self.pods if each[0].uid not in moved]
        lost = [pod for pod, _ in self.pods if pod.uid in moved]
        return Holding(kept, [*lost, *self.unplanned])


def rows_of(pods: Iterable[Planned], nodes: NodeTable) -> dict[Shape, Rows]:
    rows: dict[Shape, list[int]] = {}
    for pod, node in pods:
        rows.setdefault(pod.shape, []).append(nodes.row.get(node, -1))
    return {shape: np.array(of_shape) for shape, of_shape in rows.items()}


def holding(group: GroupView) -> Holding:
    """The same object as long as the view is: it is worked out once."""
    return group.once(_holding)


def _holding(group: GroupView) -> Holding:
    """Of a group that stands, everybody who waits; else those who must still start."""
    pinned = {pod.uid for pod, _ in group.pinned}
    members = group.waiting if group.stands else missing(group).members
    loose = [pod for pod in members if pod.uid not in pinned]
    pods = [(pod, group.planned[pod.uid]) for pod in loose if pod.uid in group.planned]
    silences = [silence for pod, _ in pods if (silence := silence_of(group, pod)) is not None]
    return Holding(pods, [pod for pod in loose if pod.uid not in group.planned], silences)


def silence_of(group: GroupView, pod: PodRecord) -> Silence | None:
    """Since when the scheduler could have used a member's planned node; None: it could not yet."""
    since, refusal = group.expected_since.get(pod.uid), group.refusals.get(pod.uid)
    if since is None:
        return None
    known = bool(pod.unschedulable)
    if refusal is not None and refusal.at >= since:
        return Silence(refusal.at, refused=True, known=known)
    return Silence(since, refused=False, known=known)
