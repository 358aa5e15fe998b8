"""The arrays over all nodes: a row for each node, a column for each resource that any node offers.

A column is added with the first node that offers a resource and removed with the last one; pods never add
one.
"""

from collections import Counter
from collections.abc import Iterable

import numpy as np

from extender.domain.model.resources import CPU, MEMORY, PODS, Resources
from extender.domain.snapshot.nodes import AmountRows, Rows

_ALWAYS = (CPU, MEMORY, PODS)
_LEAST = -(2**60)  # the lower limit of what is left: far below any real shortage, and safe in 64 bits


class ResourceColumns:
    """`names`: the columns' resources. `allocatable`: what nodes offer. `room`: what pinned claims leave of
    that. `free`: what planned claims leave of that. Vacant rows are zero."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] = _ALWAYS
        self.allocatable: AmountRows = np.zeros((0, len(_ALWAYS)), dtype=np.int64)
        self.room: AmountRows = self.allocatable.copy()
        self.free: AmountRows = self.allocatable.copy()
        self._column = {name: column for column, name in enumerate(self.names)}
        # How many nodes offer each resource, plus one for those that always have a column.
        self._offering: Counter[str] = Counter(_ALWAYS)

    def lengthen(self, rows: int) -> None:
        self._rebuild(rows, self.names)

    def clear(self, row: int) -> None:
        for matrix in (self.allocatable, self.room, self.free):
            matrix[row] = 0

    def offer(self, before: Iterable[str], now: Iterable[str]) -> list[str] | None:
        """A node that offered the resources `before` now offers `now`. Returns the new columns, which are
        zero so far; None if all columns stay as they are."""
        now, before = tuple(now), tuple(before)  # only names: a Counter would add the amounts of a mapping
        self._offering.update(now)
        self._offering.subtract(before)
        if len(self._offering) == len(self.names) and all(self._offering[name] for name in before):
            return None
        self._offering = +self._offering
        kept = [name for name in self.names if name in self._offering]
        new = [name for name in self._offering if name not in self._column]
        self._rebuild(len(self.room), (*kept, *new))
        return new

    def write(self, row: int, name: str, offers: int, pinned: int, planned: int) -> None:
        """Set what a node offers of a resource, and what claims take; names without a column are ignored."""
        column = self._column.get(name)
        if column is not None:
            self.allocatable[row, column] = offers
            self.room[row, column] = max(offers - pinned, _LEAST)
            self.free[row, column] = max(offers - pinned - planned, _LEAST)

    def of(self, asked: Resources) -> tuple[Rows, AmountRows] | None:
        """The columns and the amounts of a request; None if a resource has no column: it fits nowhere."""
        columns = [self._column.get(name) for name in asked]
        if None in columns:
            return None
        return np.array(columns, dtype=np.int64), np.array(list(asked.values()), dtype=np.int64)

    # ---- inside

    def _rebuild(self, rows: int, names: tuple[str, ...]) -> None:
        before = [self._column[name] for name in names if name in self._column]
        self.allocatable, self.room, self.free = (
            _rearranged(matrix, rows, before, len(names))
            for matrix in (self.allocatable, self.room, self.free)
        )
        self.names = names
        self._column = {name: column for column, name in enumerate(names)}


def _rearranged(matrix: AmountRows, rows: int, kept: list[int], columns: int) -> AmountRows:
    """The matrix with its `kept` columns first, and zeros where it grew."""
    grown = np.zeros((rows, columns), dtype=np.int64)
    grown[: len(matrix), : len(kept)] = matrix[:, kept]
    return grown
