"""What a group's plan holds: which of its members on which nodes."""

from collections import Counter
from collections.abc import Container, Iterable
from functools import cached_property

import numpy as np

from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.resources import Resources
from extender.domain.model.shapes import Shape, requests_of
from extender.domain.snapshot.nodes import NodeTable, Rows

PlannedPod = tuple[PodRecord, str]


class Holding:
    """`pods` with their planned nodes, and the members `unplanned`."""

    def __init__(self, pods: Iterable[PlannedPod], unplanned: Iterable[PodRecord]) -> None:
        self.pods = tuple(pods)
        self.unplanned = tuple(unplanned)
        self._rows: tuple[NodeTable | None, dict[Shape, Rows]] = (None, {})

    @cached_property
    def plan(self) -> dict[Uid, str]:
        return {pod.uid: node for pod, node in self.pods}

    @cached_property
    def requests(self) -> Resources:
        """What the planned pods ask for together."""
        return requests_of(Counter(pod.shape for pod, _ in self.pods))

    def rows(self, nodes: NodeTable) -> dict[Shape, Rows]:
        """The held rows by shape, one for each pod; -1 for a node that is gone."""
        table, rows = self._rows
        if table is not nodes:
            rows = rows_of(self.pods, nodes)
            self._rows = (nodes, rows)
        return rows

    def without(self, moved: Container[Uid]) -> "Holding":
        """The holding without the `moved` pods, whose nodes the scheduler would not use."""
        kept = [each for each in self.pods if each[0].uid not in moved]
        lost = [pod for pod, _ in self.pods if pod.uid in moved]
        return Holding(kept, [*lost, *self.unplanned])


def rows_of(pods: Iterable[PlannedPod], nodes: NodeTable) -> dict[Shape, Rows]:
    rows: dict[Shape, list[int]] = {}
    for pod, node in pods:
        rows.setdefault(pod.shape, []).append(nodes.row.get(node, -1))
    return {shape: np.array(of_shape) for shape, of_shape in rows.items()}
