"""The planner: all members at once on real nodes. Plans take from a working copy, and failed ones give back.

Pods of one shape are placed in bulk. Those that look at others, or that others look at, are placed one by
one, since every member changes what the next one may use.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.shapes import Shape, Term
from extender.domain.placement.affinity import Neighbours
from extender.domain.placement.capacity import Room
from extender.domain.placement.holding import Holding, rows_of
from extender.domain.snapshot.nodes import Mask, Rows
from extender.domain.snapshot.snapshot import Occupancy, Snapshot


class Space:
    """The room of one decision: amounts, and who stands where."""

    def __init__(self, room: Room, occupancy: Occupancy) -> None:
        self.room = room
        self.nodes = room.nodes
        self.neighbours = Neighbours(occupancy, room.nodes, room.counts)

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Space":
        """The room beside all pinned claims."""
        room = Room(snapshot.dimensions, snapshot.nodes, snapshot.room.copy(), snapshot.refused)
        return cls(room, snapshot.occupancy)

    @classmethod
    def empty(cls, snapshot: Snapshot) -> "Space":
        """The room if nothing ran at all."""
        nowhere: dict[Term, dict[str, int]] = {term: {} for term in snapshot.occupancy.selected}
        nobody = Occupancy(selected=nowhere, carried=nowhere)
        nodes = snapshot.nodes
        return cls(Room(snapshot.dimensions, nodes, snapshot.allocatable.copy(), {}, nodes.most()), nobody)

    def clone(self) -> "Space":
        return Space(self.room.clone(), self.neighbours.occupancy())

    # ---- placing

    def place(self, pods: Iterable[PodRecord], partly: bool = False) -> dict[Uid, str] | None:
        """Nodes for all of `pods` at once, taken from the room; None (and nothing taken) where they do not
        all fit, unless `partly`, which places what fits. Largest shapes first, the tightest nodes first;
        where that leaves somebody out, those with the fewest nodes to choose from first."""
        pods = list(pods)
        batches = self._batches(pods)
        with self.neighbours.gathering(pods):
            plan = self._place(batches, partly)
            if plan is None and (by_choice := sorted(batches, key=self._choice)) != batches:
                plan = self._place(by_choice, partly)
        return plan

    def could_place(self, pods: Sequence[PodRecord], shapes: Mapping[Shape, int]) -> bool:
        """Whether all of `pods`, so many of each of these shapes, would fit; takes nothing."""
        if self.room.is_short_for(shapes):
            return False
        if len(shapes) == 1 and not self.neighbours.any_particular(pods, shapes):
            return True
        plan = self.place(pods)
        if plan is not None:
            self.give_back(pods, plan)
        return plan is not None

    def fitting(self, pods: Sequence[PodRecord]) -> frozenset[Uid]:
        """Which of `pods` would find room beside each other: as many as can be, so the smallest shapes come
        first. Takes nothing."""
        with self.neighbours.gathering(pods):
            plan = self._place(self._batches(pods)[::-1], partly=True) or {}
        self.give_back(pods, plan)
        return frozenset(plan)

    def take_holdings(self, holdings: Iterable[Holding]) -> bool:
        """Take what groups hold, all of it or nothing."""
        rows: dict[Shape, list[Rows]] = {}
        for holding in holdings:
            for shape, of_shape in holding.rows(self.nodes).items():
                rows.setdefault(shape, []).append(of_shape)
        return self._take_at_once({shape: np.concatenate(parts) for shape, parts in rows.items()})

    def take_nodes(self, planned: Sequence[tuple[PodRecord, str]]) -> dict[Uid, str]:
        """Take room for pods on given nodes; returns those that fit there."""
        if self._take_at_once(rows_of(planned, self.nodes)):
            return {pod.uid: node for pod, node in planned}
        return {pod.uid: node for pod, node in planned if self.take_node(pod, node)}

    def take_node(self, pod: PodRecord, node: str) -> bool:
        """Take room for `pod` on a given node, if it fits there."""
        row = self.nodes.row.get(node)
        if row is None or not self._allows(pod, row):
            return False
        self._count(pod, row, 1)
        return True

    def give_back(self, pods: Iterable[PodRecord], plan: Mapping[Uid, str]) -> None:
        """Undo a placing of `pods`."""
        self._count_all([(pod, self.nodes.row[plan[pod.uid]]) for pod in pods if pod.uid in plan], -1)

    def forbid(self, shape: Shape, node: str) -> None:
        """The scheduler refuses `shape` on `node`."""
        row = self.nodes.row.get(node)
        if row is not None:
            self.room.forbid(shape, row)

    # ---- inside

    def _batches(self, pods: Iterable[PodRecord]) -> list[list[PodRecord]]:
        """What can be placed in one go, the largest first."""
        batches: dict[Any, list[PodRecord]] = {}
        for pod in pods:
            alike = pod.uid if self.neighbours.is_particular(pod) else pod.shape
            batches.setdefault(alike, []).append(pod)
        return sorted(batches.values(), key=lambda batch: -self.room.largest_part(batch[0].shape.requests))

    def _choice(self, batch: list[PodRecord]) -> int:
        """How many nodes have room for a pod like those of `batch`."""
        return int(np.count_nonzero(self.room.counts(batch[0].shape)))

    def _place(self, batches: list[list[PodRecord]], partly: bool) -> dict[Uid, str] | None:
        placed: list[tuple[PodRecord, int]] = []
        for batch in batches:
            rows = self._rows_for(batch)
            placed += zip(batch, rows, strict=False)
            if len(rows) < len(batch) and not partly:
                self._count_all(placed, -1)
                return None
        return {pod.uid: self._name(row) for pod, row in placed}

    def _rows_for(self, batch: list[PodRecord]) -> list[int]:
        """Rows for as many of a batch as fit, taken."""
        pod = batch[0]
        if self.neighbours.is_particular(pod):
            found = self.room.tightest_first(np.flatnonzero(self._allowed(pod)))[:1]
        else:
            found = self._fill(pod.shape, len(batch))
        rows: list[int] = found.tolist()
        self._count_all([(pod, row) for row in rows], 1)
        return rows

    def _fill(self, shape: Shape, pods: int) -> Rows:
        """A row for each of so many pods, one row after the other."""
        counts = self.room.counts(shape)
        order = self.room.tightest_first(np.flatnonzero(counts))
        return np.repeat(order, np.minimum(counts[order], pods))[:pods]

    def _allowed(self, pod: PodRecord) -> Mask:
        """Where one pod may go now."""
        return (self.room.counts(pod.shape) > 0) & self.neighbours.admit(pod)

    def _allows(self, pod: PodRecord, row: int) -> bool:
        """The same for one row; cheap where nobody looks at others."""
        if not self.room.admits(pod.shape, row):
            return False
        return not self.neighbours.is_particular(pod) or bool(self.neighbours.admit(pod)[row])

    def _take_at_once(self, rows: Mapping[Shape, Rows]) -> bool:
        """Take all of it; or nothing where one does not fit, or changes where others may go."""
        return self.neighbours.leaves_alone(rows) and self.room.take_at_once(rows)

    def _count_all(self, placed: Iterable[tuple[PodRecord, int]], times: int) -> None:
        """Count pods on rows: by shape at once, or one by one where others look at who stands where."""
        rows: dict[Shape, list[int]] = {}
        for pod, row in placed:
            if self.neighbours.minds(pod.shape):
                self._count(pod, row, times)
            else:
                rows.setdefault(pod.shape, []).append(row)
        self.room.take_rows({shape: np.array(of_shape) for shape, of_shape in rows.items()}, times)

    def _count(self, pod: PodRecord, row: int, times: int) -> None:
        self.room.take(pod.shape, row, times)
        if self.neighbours.minds(pod.shape):
            self.neighbours.count(pod, self._name(row), times)

    def _name(self, row: int) -> str:
        node = self.nodes.nodes[row]
        assert node is not None
        return node.name
