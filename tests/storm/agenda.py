"""Agenda of the storm: repairs, and faults that follow other faults, in the order of their times."""

import heapq
import time
from collections.abc import Callable
from itertools import count

RETRY_SECONDS = 0.5  # seconds until a failed action is tried again
Action = Callable[[], object]


class Agenda:
    """Actions with their times. An action that returns False or raises one of `errors` is tried again.

    `report` is called with the title of each repair that is done.
    """

    def __init__(self, errors: tuple[type[Exception], ...], report: Callable[[str], object]) -> None:
        self._errors = errors
        self._report = report
        self._entries: list[tuple[float, int, str, Action]] = []
        self._numbers = count()

    def __repr__(self) -> str:
        return f"{[title for _, _, title, _ in self._entries]}"

    def __len__(self) -> int:
        return len(self._entries)

    def add_repair(self, seconds: float, title: str, action: Action) -> None:
        """Add a repair, which is done at the end of the storm at the latest."""
        self._push(time.monotonic() + seconds, title, action)

    def add_fault(self, seconds: float, action: Action) -> None:
        """Add a fault, which is dropped if the storm ends before its time."""
        self._push(time.monotonic() + seconds, "", action)

    def run(self, now: float) -> None:
        """Run all actions that are due."""
        while self._entries and self._entries[0][0] <= now:
            _, _, title, action = heapq.heappop(self._entries)
            if not self._succeeds(action):
                self._push(now + RETRY_SECONDS, title, action)
            elif title:
                self._report(title)

    def repair_now(self) -> None:
        """Make all repairs due now, and drop the faults."""
        self._entries = [(0.0, number, title, action) for _, number, title, action in self._entries if title]
        heapq.heapify(self._entries)

    def _push(self, at: float, title: str, action: Action) -> None:
        heapq.heappush(self._entries, (at, next(self._numbers), title, action))

    def _succeeds(self, action: Action) -> bool:
        try:
            return action() is not False
        except self._errors:
            return False
