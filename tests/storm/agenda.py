"""Agenda of the storm, by time: faults that follow on others, and their repairs."""

import heapq
import time
from collections.abc import Callable
from itertools import count

AGAIN = 0.5  # seconds until what could not be done is tried again
Action = Callable[[], object]


class Agenda:
    """An action that says False, or raises one of `trouble`, is not done yet. `reported` gets mended ones."""

    def __init__(self, trouble: tuple[type[Exception], ...], report: Callable[[str], object]) -> None:
        self._trouble = trouble
        self._report = report
        self._entries: list[tuple[float, int, str, Action]] = []
        self._numbers = count()

    def __repr__(self) -> str:
        return f"{[title for _, _, title, _ in self._entries]}"

    def __len__(self) -> int:
        return len(self._entries)

    def mend(self, seconds: float, title: str, action: Action) -> None:
        """Add a repair that must happen, at the latest when the storm ends."""
        self._push(time.monotonic() + seconds, title, action)

    def strike(self, seconds: float, action: Action) -> None:
        """Add a fault that is dropped when the storm ends before."""
        self._push(time.monotonic() + seconds, "", action)

    def run(self, now: float) -> None:
        """Run everything that is due."""
        while self._entries and self._entries[0][0] <= now:
            _, _, title, action = heapq.heappop(self._entries)
            if not self._succeeds(action):
                self._push(now + AGAIN, title, action)
            elif title:
                self._report(title)

    def hurry(self) -> None:
        """Make all repairs due now, and drop the faults."""
        self._entries = [(0.0, number, title, action) for _, number, title, action in self._entries if title]
        heapq.heapify(self._entries)

    def _push(self, at: float, title: str, action: Action) -> None:
        heapq.heappush(self._entries, (at, next(self._numbers), title, action))

    def _succeeds(self, action: Action) -> bool:
        try:
            return action() is not False
        except self._trouble:
            return False
