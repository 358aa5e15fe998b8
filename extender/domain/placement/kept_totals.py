"""How many pods of each shape all nodes had room for when a round began, kept from round to round.

An event changes one row of many thousands. The totals of the previous round are corrected by the rows that
differ, so that a shape costs a few rows and not all of them.
"""

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from extender.domain.model.shapes import Shape
from extender.domain.snapshot.nodes import AmountRows, NodeTable, Rows

FEW = 64  # the most rows that are corrected one by one; if more differ, all are counted again

Refused = Mapping[Shape, Iterable[int]]
Count = Callable[[Shape, AmountRows, Rows], int]
"""How many pods of a shape these rows of a matrix have room for."""


class KeptTotals:
    """`room` is a snapshot's, which is never changed."""

    def __init__(
        self, room: AmountRows, nodes: NodeTable, refused: Refused, before: "KeptTotals | None" = None
    ) -> None:
        self.room = room
        self.known: dict[Shape, int] = {}
        self._nodes = nodes
        self._refused = refused
        self._asked = 0  # how many totals the last round of all groups asked for
        self._before: KeptTotals | None = None
        self._rows: Rows = np.zeros(0, dtype=np.int64)
        if before is not None and before._is_comparable(room, nodes, refused):
            self._rows = np.flatnonzero((before.room != room).any(axis=1))
            self._before = before if len(self._rows) <= FEW else None

    def of(self, shape: Shape, count: Count) -> int | None:
        """The total of a shape; None if all rows must be counted."""
        if shape in self.known:
            return self.known[shape]
        if self._before is None or shape not in self._before.known:
            return None
        now, then = count(shape, self.room, self._rows), count(shape, self._before.room, self._rows)
        self.known[shape] = self._before.known[shape] + now - then
        return self.known[shape]

    def after(self, room: AmountRows, more: Mapping[Shape, int]) -> "KeptTotals":
        """The totals once the room is `room`, which holds so many `more` pods of each shape; totals of other
        shapes are forgotten."""
        later = KeptTotals(room, self._nodes, self._refused)
        later.known = {shape: self.known[shape] + n for shape, n in more.items() if shape in self.known}
        return later.without_history()

    def without_history(self) -> "KeptTotals":
        """Itself: totals that this round did not ask for are forgotten."""
        self._before, self._asked = None, len(self.known)
        return self

    def with_those_left_out(self, count: Count) -> "KeptTotals":
        """Itself, with the totals that only groups ask for which this round left out. With them stay those of
        groups that are gone: once there may be as many of these, all but this round's are forgotten."""
        if (before := self._before) is not None:
            self._asked = before._asked
            for shape in before.known if len(before.known) <= 2 * before._asked + FEW else ():
                self.of(shape, count)
        self._before = None
        return self

    def _is_comparable(self, room: AmountRows, nodes: NodeTable, refused: Refused) -> bool:
        same = self._nodes is nodes and self._refused == refused
        return same and self.room.shape == room.shape
