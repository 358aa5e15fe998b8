"""The watches that are open through the view, for the debug page and the metrics."""

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from extender.telemetry import metrics


class OpenWatch(NamedTuple):
    """A watch that passes through the view."""

    path: str
    client: str  # as it names itself
    since: float  # monotonic


class OpenWatches:
    """All of them."""

    def __init__(self) -> None:
        self._all: dict[int, OpenWatch] = {}
        self._numbers = itertools.count()

    @contextmanager
    def noted(self, path: str, client: str) -> Iterator[None]:
        number = next(self._numbers)
        self._all[number] = OpenWatch(path, client, time.monotonic())
        metrics.view_streams.set(len(self._all))
        try:
            yield
        finally:
            del self._all[number]
            metrics.view_streams.set(len(self._all))

    def show(self) -> list[dict[str, object]]:
        """For the debug page. Any thread."""
        now = time.monotonic()
        return [
            {"path": each.path, "client": each.client, "seconds": round(now - each.since, 1)}
            for each in sorted(self._all.copy().values())
        ]
