"""Work queue of due keys, as in Kubernetes controllers: each key once, however often its object changed.

A failed key is due again after a growing pause. Keys have lanes, the most urgent first. The queue never holds
more keys than objects exist, because its owner forgets the keys of deleted objects.
"""

import heapq
import threading
from collections.abc import Callable, Hashable
from itertools import count
from typing import Generic, NamedTuple, TypeVar

_FIRST = 0.5  # seconds of pause after the first failure
LONGEST = 30.0  # seconds of pause at most, by default

K = TypeVar("K", bound=Hashable)


class _Place(NamedTuple):
    """Place of a key; within a lane, the earlier one comes first."""

    at: float  # when it is due: monotonic, in seconds
    lane: int
    serial: int  # decides between keys that are due at the same time


class WorkQueue(Generic[K]):
    """Work queue, safe in any thread. `clock` is monotonic, in seconds; lane 0 is the most urgent."""

    def __init__(self, clock: Callable[[], float], lanes: int = 1, first: float = _FIRST) -> None:
        self._clock = clock
        self._first = first
        self._lock = threading.Lock()
        self._places: dict[K, _Place] = {}
        self._lanes: list[list[tuple[_Place, K]]] = [[] for _ in range(lanes)]
        self._failures: dict[K, int] = {}
        self._serial = count()

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: K) -> bool:
        return key in self._places

    def add(self, key: K, after: float = 0.0, lane: int = 0) -> None:
        """Make `key` due in `after` seconds; of two, the earlier time and the more urgent lane count."""
        with self._lock:
            at, before = self._clock() + after, self._places.get(key)
            if before is None:
                self._put(key, at, lane)
            elif at < before.at or lane < before.lane:
                self._put(key, min(at, before.at), min(lane, before.lane))

    def move(self, key: K, after: float, lane: int = 0) -> None:
        """Make `key` due in `after` seconds in this lane, wherever it was."""
        with self._lock:
            self._put(key, self._clock() + after, lane)

    def retry(self, key: K, longest: float = LONGEST) -> None:
        """Add `key` again after a failure, with exponential backoff up to `longest`."""
        with self._lock:
            failures = self._failures.get(key, 0)
            self._failures[key] = failures + 1
        self.add(key, min(longest, self._first * 2.0 ** min(failures, 30)))

    def reset_backoff(self, key: K) -> None:
        """Forget the failures of `key`: it succeeded."""
        with self._lock:
            self._failures.pop(key, None)

    def get(self, least_urgent: int | None = None) -> K | None:
        """Return the key that has been due longest in the most urgent lane; None: no key is due.

        Lanes beyond `least_urgent` are left out.
        """
        with self._lock:
            now = self._clock()
            for lane in self._lanes[: None if least_urgent is None else least_urgent + 1]:
                while lane and lane[0][0].at <= now:
                    place, key = heapq.heappop(lane)
                    if self._places.get(key) is place:
                        del self._places[key]
                        return key
        return None

    def forget(self, key: K) -> None:
        with self._lock:
            self._places.pop(key, None)
            self._failures.pop(key, None)

    def clear(self) -> None:
        with self._lock:
            self._places.clear()
            self._failures.clear()
            for lane in self._lanes:
                lane.clear()

    def _put(self, key: K, at: float, lane: int) -> None:
        place = self._places[key] = _Place(at, lane, next(self._serial))
        heap = self._lanes[lane]
        if len(heap) > 2 * len(self._places) + 64:  # most entries are outdated
            heap[:] = [entry for entry in heap if self._places.get(entry[1]) is entry[0]]
            heapq.heapify(heap)
        heapq.heappush(heap, (place, key))
