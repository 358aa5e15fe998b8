"""Calls about pods that the view has not shown: the scheduler that makes them reads its pods elsewhere."""

from collections.abc import Callable
from typing import NamedTuple


class Detours(NamedTuple):
    """`age`: seconds since the last of them; None: there was none."""

    calls: int = 0
    age: float | None = None


class DetourCounter:
    """`clock` is monotonic, in seconds. Callers hold the ledger's lock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._count = 0
        self._last = 0.0

    def note(self) -> None:
        self._count += 1
        self._last = self._clock()

    def show(self) -> Detours:
        return Detours(self._count, self._clock() - self._last) if self._count else Detours()
