"""A clock that stands still during outages: a frozen, dead or disconnected process keeps no deadline."""

import threading
import time
from bisect import bisect_right
from itertools import accumulate


class UndisturbedTime:
    """Counter of undisturbed seconds: called with a `time.monotonic` time.

    An outage lasts from `begin` to `end` and `grace` seconds more: a process that has come back lists all
    objects again.
    """

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._open: dict[str, float] = {}
        self._outages: list[tuple[float, float]] = []  # without overlaps, in order
        self._lost_seconds: list[float] = [0.0]  # by number n: the seconds of the first n outages
        self._lock = threading.Lock()

    def begin(self, name: str, at: float | None = None) -> None:
        with self._lock:
            self._open.setdefault(name, _now(at))

    def end(self, name: str, at: float | None = None) -> None:
        with self._lock:
            began = self._open.pop(name, None)
            if began is not None:
                self._add(began, _now(at) + self._grace)

    def __call__(self, at: float) -> float:
        with self._lock:
            open_, outages, lost_sums = dict(self._open), self._outages, self._lost_seconds
        if open_:
            outages = _merged([*outages, *((began, max(at, began)) for began in open_.values())])
            lost_sums = _sums(outages)
        ended_count = bisect_right(outages, (at, at))
        remaining_seconds = max(0.0, outages[ended_count - 1][1] - at) if ended_count else 0.0
        return at - lost_sums[ended_count] + remaining_seconds

    def _add(self, began: float, ended: float) -> None:
        self._outages = _merged([*self._outages, (began, ended)])
        self._lost_seconds = _sums(self._outages)


def _sums(outages: list[tuple[float, float]]) -> list[float]:
    return [0.0, *accumulate(ended - began for began, ended in outages)]


def _merged(outages: list[tuple[float, float]]) -> list[tuple[float, float]]:
    merged = list[tuple[float, float]]()
    for began, ended in sorted(outages):
        if merged and began <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], ended))
        else:
            merged.append((began, ended))
    return merged


def _now(at: float | None) -> float:
    return time.monotonic() if at is None else at
