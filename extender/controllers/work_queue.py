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
MAX_PAUSE = 30.0  # longest pause by default, in seconds

K = TypeVar("K", bound=Hashable)


class _Entry(NamedTuple):
    """Entry of a key. Within a lane, entries are ordered by these fields."""

    due_at: float  # monotonic time, in seconds, when the key is due
    lane: int
    serial: int  # order of keys that are due at the same time


class WorkQueue(Generic[K]):
    """Work queue that is safe to use from any thread.

    `clock` is monotonic, in seconds. Lane 0 is the most urgent lane. `first` is the pause after a
    first failure, in seconds.
    """

    def __init__(self, clock: Callable[[], float], lane_count: int = 1, first: float = _FIRST_PAUSE) -> None:
        self._clock = clock
        self._first_pause = first
        self._lock = threading.Lock()
        self._entries: dict[K, _Entry] = {}
        self._lanes: list[list[tuple[_Entry, K]]] = [[] for _ in range(lane_count)]
        self._failure_counts: dict[K, int] = {}
        self._serials = count()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def add(self, key: K, delay: float = 0.0, lane: int = 0) -> None:
        """Make `key` due in `delay` seconds.

        If the key is in the queue already, the earlier time applies, and the more urgent lane.
        """
        with self._lock:
            due_at, old_entry = self._clock() + delay, self._entries.get(key)
            if old_entry is None:
                self._put(key, due_at, lane)
            elif due_at < old_entry.due_at or lane < old_entry.lane:
                self._put(key, min(due_at, old_entry.due_at), min(lane, old_entry.lane))

    def move(self, key: K, delay: float, lane: int = 0) -> None:
        """Make `key` due in `delay` seconds in this lane, whatever its time and lane were."""
        with self._lock:
            self._put(key, self._clock() + delay, lane)

    def retry(self, key: K, max_pause: float = MAX_PAUSE) -> None:
        """Add `key` again after a failure, with a pause that doubles with each failure, up to `max_pause`."""
        with self._lock:
            failure_count = self._failure_counts.get(key, 0)
            self._failure_counts[key] = failure_count + 1
        self.add(key, min(max_pause, self._first_pause * 2.0 ** min(failure_count, 30)))

    def reset_backoff(self, key: K) -> None:
        """Forget the failures of `key`, because it has succeeded."""
        with self._lock:
            self._failure_counts.pop(key, None)

    def get(self, last_lane: int | None = None) -> K | None:
        """Return the key that has been due longest in the most urgent lane; None if no key is due.

        Lanes that are less urgent than `last_lane` are left out.
        """
        with self._lock:
            now = self._clock()
            for lane in self._lanes[: None if last_lane is None else last_lane + 1]:
                while lane and lane[0][0].due_at <= now:
                    entry, key = heapq.heappop(lane)
                    if self._entries.get(key) is entry:
                        del self._entries[key]
                        return key
        return None

    def forget(self, key: K) -> None:
        with self._lock:
            self._entries.pop(key, None)
            self._failure_counts.pop(key, None)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._failure_counts.clear()
            for lane in self._lanes:
                lane.clear()

    def _put(self, key: K, due_at: float, lane: int) -> None:
        """Put a key into a lane. Its older entry stays in the heap, where it is ignored."""
        new_entry = self._entries[key] = _Entry(due_at, lane, next(self._serials))
        heap = self._lanes[lane]
        if len(heap) > 2 * len(self._entries) + 64:  # most entries are outdated
            heap[:] = [entry for entry in heap if self._entries.get(entry[1]) is entry[0]]
            heapq.heapify(heap)
        heapq.heappush(heap, (new_entry, key))
