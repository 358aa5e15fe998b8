"""Upkeep of the process: metrics, a warning if the scheduler does not call, and memory.

Garbage collection: with Python's defaults, half the time of a busy cycle is spent on garbage collections, so
Muster runs fewer collections. A full collection examines each object while all threads are stopped, which
takes a quarter of a second for 10,000 groups on 5,000 nodes. Most of the objects that the watches read at
first stay in memory, so these objects are excluded.

Heaps: glibc gives each of many threads its own heap, and other heaps cannot use memory that is freed there.
50,000 requests made the process 250 MB larger; with two heaps, they made it only 50 MB larger.

Large blocks: by default, glibc raises its mmap threshold once a large block has been freed. Later blocks of
this size come from a heap, where smaller blocks prevent their return to the system. With a fixed threshold,
the largest bodies leave no memory behind (`make fuzz`).

Trimming: only the end of a heap is returned automatically. Once much memory has been freed, Muster trims the
rest (`make hostile`).
"""

import ctypes
import gc
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from extender.domain.ledger.ledger import Ledger
from extender.domain.model.records import GroupKey
from extender.domain.model.shared_maps import changed_keys
from extender.domain.queues.states import QueueState
from extender.domain.snapshot.decisions import Decisions, GroupDecision
from extender.host.feed import Feed
from extender.kube.reflector import Reflector
from extender.kube.writers import Poller, Writers
from extender.telemetry import metrics
from extender.telemetry.logs import logger

log = logger(__name__)

_UPDATE_PERIOD = 1.0  # seconds between two updates of the metrics
_WARN_AFTER = 60.0  # seconds without a call although pods wait, after which a warning is logged, repeatedly


class Gauges:
    def __init__(
        self,
        feed: Feed,
        writers: Sequence[Writers],
        ledger: Ledger,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._feed = feed
        self._writers = writers
        self._ledger = ledger
        self._clock = clock
        self._last_counts: Counter[tuple[str, str]] = Counter()  # counts at the last update
        self._groups: Mapping[GroupKey, GroupDecision] = {}  # groups at the last update
        self._verdict_counts: Counter[tuple[str, str]] = Counter()  # numbers of groups by verdict and reason
        self._next_update = clock()
        self._call_expected_since: float | None = None  # since when a call of the scheduler is expected

    def on_decisions(self, decisions: Decisions) -> None:
        """Update all metrics, at most once a second."""
        if self._clock() >= self._next_update:
            self._next_update = self._clock() + _UPDATE_PERIOD
            self.update(decisions)

    def update(self, decisions: Decisions) -> None:
        """Update all metrics."""
        metrics.write_queue_depth.set(sum(writer.pending_count for writer in self._writers))
        copies = (Counter(dict(writer.outcome_counts)) for writer in self._writers)  # writers keep counting
        for outcome, count in sum(copies, Counter()).items():
            metrics.writes.labels(outcome).inc(self._increase("writes", outcome, count))
        self._show_watches()
        metrics.view_bypasses.inc(self._increase("bypasses", "", self._ledger.shown_pods.bypasses().calls))
        self._count_verdicts(decisions.groups)
        metrics.show_groups(+self._verdict_counts)
        metrics.show_queues(queue for queue in decisions.queues.values() if queue.uid)
        states = Counter(queue.state for queue in decisions.queues.values())
        for state in QueueState:
            metrics.queues.labels(state).set(states[state])
        self._warn_without_calls()

    def _show_watches(self) -> None:
        """Update the metrics of watches. Watches of kinds with the same name, such as Job, are combined."""
        watches_by_name = defaultdict[str, list[Reflector[Any]]](list)
        for reflector in self._feed.reflectors:
            watches_by_name[reflector.resource.plural].append(reflector)
        for name, watches in watches_by_name.items():
            metrics.cache_synced.labels(name).set(all(watch.is_synced for watch in watches))
            relists = sum(watch.relist_count for watch in watches)
            bad_count = sum(watch.inventory.bad_count for watch in watches)
            metrics.relists.labels(name).inc(self._increase("relists", name, relists))
            metrics.bad_objects.labels(name).inc(self._increase("bad objects", name, bad_count))
            contact_times = [watch.last_contact_at for watch in watches if watch.last_contact_at is not None]
            if contact_times:
                metrics.cache_age.labels(name).set(self._clock() - min(contact_times))

    def _count_verdicts(self, groups: Mapping[GroupKey, GroupDecision]) -> None:
        """Count the groups whose decision has changed since the last call."""
        for key in changed_keys(groups, self._groups):
            for decision, change in ((self._groups.get(key), -1), (groups.get(key), 1)):
                if decision is not None:
                    self._verdict_counts[decision.verdict, decision.reason or ""] += change
        self._groups = groups

    def _increase(self, kind: str, name: str, count: int) -> int:
        """Return by how much a count has grown since the last call."""
        increase = count - self._last_counts[kind, name]
        self._last_counts[kind, name] = count
        return increase

    def _warn_without_calls(self) -> None:
        """Log a warning if pods wait for the scheduler, but the scheduler has never called."""
        if metrics.first_call.is_set() or not self._ledger.awaits_the_scheduler():
            self._call_expected_since = None
            return
        now = self._clock()
        self._call_expected_since = self._call_expected_since or now
        if now - self._call_expected_since > _WARN_AFTER:
            self._call_expected_since = now
            log.warning(
                "the scheduler has never called: check that it runs, that its extenders name this server, and"
                " that their urlPrefix is the address of --listen"
            )


_THRESHOLDS = (50_000, 20, 20)  # arguments of gc.set_threshold
_M_ARENA_MAX, _M_MMAP_THRESHOLD = -8, -3  # constants of malloc.h
_MMAP_THRESHOLD = 256 * 1024  # bytes from which on a block does not come from a heap
_MIN_FREED_BYTES = 8 * 2**20  # the heap is trimmed after this many bytes were freed
_CHECK_PERIOD = 10.0  # seconds between two checks; a trim blocks other threads for some milliseconds


def collect_less_often() -> None:
    gc.set_threshold(*_THRESHOLDS)


def freeze_objects_after(has_synced: Callable[[], bool]) -> Callable[[], bool]:
    """Wrap `has_synced`. Once it is true, the wrapper excludes all objects from garbage collection."""
    freeze_once = cache(gc.freeze)

    def is_ready() -> bool:
        if is_synced := has_synced():
            freeze_once()
        return is_synced

    return is_ready


def share_heaps() -> None:
    """Limit the number of heaps, and fix the threshold for large blocks."""
    with suppress(OSError, AttributeError):  # a C library other than glibc
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD)


class _Heaps(ctypes.Structure):
    """Result of `mallinfo2` in malloc.h, in bytes. Only the eighth number is used."""

    _fields_ = [(name, ctypes.c_size_t) for name in (*"abcdefg", "in_use", "i", "j")]


class FreedMemory(Poller):
    def __init__(self) -> None:
        super().__init__("memory", _CHECK_PERIOD, self.trim_heap)
        self._max_used_bytes = 0  # maximum of bytes in use since the last trim

    def trim_heap(self) -> None:
        """Return freed memory to the system once much has been freed."""
        with suppress(OSError, AttributeError):  # a C library other than glibc, or an old version
            library = ctypes.CDLL(None)
            library.mallinfo2.restype = _Heaps
            used_bytes = library.mallinfo2().in_use
            self._max_used_bytes = max(self._max_used_bytes, used_bytes)
            if used_bytes < self._max_used_bytes - _MIN_FREED_BYTES:
                library.malloc_trim(0)
                self._max_used_bytes = used_bytes
