"""What was taken in a round, in order, so that it can be undone."""

from collections.abc import Callable


class Journal:
    """One for all parts of a budget: a mark is cheap, and stands for all of them."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def note(self, undo: Callable[[], None]) -> None:
        """Something was taken or given back; `undo` does the opposite, and notes nothing."""
        self._undo.append(undo)

    def mark(self) -> int:
        """A moment to roll back to."""
        return len(self._undo)

    def roll_back(self, mark: int) -> None:
        """Undo all that was taken or given back since a mark."""
        while len(self._undo) > mark:
            self._undo.pop()()
