"""Work queue of due keys, as in Kubernetes controllers: each key once, however often its object changed.

A failed key is due again after a growing pause. Each key has a lane; keys of the most urgent lane come first.
The controller forgets the keys of deleted objects, so the queue has at most one key per existing object.
"""

import heapq
import threading
from collections.abc import Callable, Hashable
from itertools import count
from typing import Generic, NamedTuple, TypeVar

_FIRST_PAUSE = 0.5  # pause after the first failure, in seconds
LONGEST = 30.0  # longest pause by default, in seconds

K = TypeVar("K", bound=Hashable)


class _Entry(NamedTuple):
    """Entry of a key. Within a lane, entries are ordered by these fields."""

    at: float  # monotonic time, in seconds, when the key is due
    lane: int
    serial: int  # order of keys that are due at the same time


class WorkQueue(Generic[K]):
    """Work queue that is safe to use from any thread.

    `clock` is monotonic, in seconds. Lane 0 is the most urgent lane. `first` is the pause after a first
    failure.
    """

    def __init__(self, clock: Callable[[], float], lanes: int = 1, first: float = _FIRST_PAUSE) -> None:
        self._clock = clock
        self._first_pause = first
        self._lock = threading.Lock()
        self._entries: dict[K, _Entry] = {}
        self._lanes: list[list[tuple[_Entry, K]]] = [[] for _ in range(lanes)]
        self._failures: dict[K, int] = {}
        self._serial = count()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def add(self, key: K, after: float = 0.0, lane: int = 0) -> None:
        """Make `key` due in `after` seconds.

        If the key is in the queue already, the earlier time and the more urgent lane count.
        """
        with self._lock:
            at, before = self._clock() + after, self._entries.get(key)
            if before is None:
                self._put(key, at, lane)
            elif at < before.at or lane < before.lane:
                self._put(key, min(at, before.at), min(lane, before.lane))

    def move(self, key: K, after: float, lane: int = 0) -> None:
        """Make `key` due in `after` seconds in this lane, whatever its time and lane were."""
        with self._lock:
            self._put(key, self._clock() + after, lane)

    def retry(self, key: K, longest: float = LONGEST) -> None:
        """Add `key` again after a failure, with a pause that doubles with each failure, up to `longest`."""
        with self._lock:
            failures = self._failures.get(key, 0)
            self._failures[key] = failures + 1
        self.add(key, min(longest, self._first_pause * 2.0 ** min(failures, 30)))

    def reset_backoff(self, key: K) -> None:
        """Forget the failures of `key`, because it has succeeded."""
        with self._lock:
            self._failures.pop(key, None)

    def get(self, least_urgent: int | None = None) -> K | None:
        """Return the key that has been due longest in the most urgent lane; None if no key is due.

        Lanes beyond `least_urgent` are left out.
        """
        with self._lock:
            now = self._clock()
            for lane in self._lanes[: None if least_urgent is None else least_urgent + 1]:
                while lane and lane[0][0].at <= now:
                    entry, key = heapq.heappop(lane)
                    if self._entries.get(key) is entry:
                        del self._entries[key]
                        return key
        return None

    def forget(self, key: K) -> None:
        with self._lock:
            self._entries.pop(key, None)
            self._failures.pop(key, None)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._failures.clear()
            for lane in self._lanes:
                lane.clear()

    def _put(self, key: K, at: float, lane: int) -> None:
        """Put a key into a lane. Its older entry stays in the heap, where it is ignored."""
        new_entry = self._entries[key] = _Entry(at, lane, next(self._serial))
        heap = self._lanes[lane]
        if len(heap) > 2 * len(self._entries) + 64:  # most entries are outdated
            heap[:] = [entry for entry in heap if self._entries.get(entry[1]) is entry[0]]
            heapq.heapify(heap)
        heapq.heappush(heap, (new_entry, key))
