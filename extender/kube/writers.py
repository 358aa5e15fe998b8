"""Threads for writes that no caller waits for, threads for polling, and limits of their rates.

Each write has a key, its target. A newer write replaces a write of the same key that has not begun, so a
status that changes fast is written once. Two writes of the same key never run at the same time, so the last
value is written last. A write that waits for its next attempt blocks no thread.

Before each attempt, `may_write` is called. A replica that no longer leads writes nothing, since the next
leader decides again.
"""

import heapq
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import count

import structlog

from extender.kube.errors import ApiError, Conflict, Fenced, NotFound, Refused

log = structlog.get_logger(__name__)

WriteJob = Callable[[], object]
EndCallback = Callable[[ApiError | None], object]  # called with the last error; None after a success

_MAX_DELAY = 30.0  # longest delay in seconds


class Backoff:
    """Pauses of 0.5, 1, 2 … 30 s until `reset`. Each is up to half shorter at random, to spread clients."""

    def __init__(self, first_delay: float = 0.5, random_share: Callable[[], float] = random.random) -> None:
        self._first_delay = first_delay
        self._jitter = random_share
        self._next_delay = first_delay

    def delay(self) -> float:
        delay, self._next_delay = self._next_delay, min(self._next_delay * 2, _MAX_DELAY)
        return delay * (1 - self._jitter() / 2)

    def reset(self) -> None:
        self._next_delay = self._first_delay


class TokenBucket:
    """Token bucket, which allows a burst at once and then a fixed rate.

    The bucket starts with `burst` tokens, and gets `rate` tokens a second up to `burst`. Callers pass the
    time in seconds, and lock the bucket.
    """

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._updated_at = now

    def tokens_at(self, now: float) -> float:
        """Return the number of tokens at the time `now`."""
        self._tokens = min(self._burst, self._tokens + max(0.0, now - self._updated_at) * self._rate)
        self._updated_at = max(self._updated_at, now)
        return self._tokens

    def take(self, now: float, token_count: float = 1.0) -> bool:
        """Use `token_count` tokens if that many are available; return whether they were used."""
        if self.tokens_at(now) < token_count:
            return False
        self._tokens -= token_count
        return True

    def take_up_to(self, now: float, max_count: int) -> int:
        """Use the available whole tokens, up to `max_count`; return their number."""
        used_count = min(max_count, int(self.tokens_at(now)))
        self._tokens -= used_count
        return used_count


@dataclass(eq=False)
class _Write:
    key: Hashable  # target of the write
    job: WriteJob  # job of the newest submission
    on_end: EndCallback  # callback of the newest submission
    backoff: Backoff  # pauses between attempts
    max_attempts: int  # maximum number of attempts
    failure_count: int = 0  # number of failed attempts


class Writers:
    """Pool of threads that write: `submit(key, job, on_end)`.

    A job makes one request and lets its ApiError pass. `on_end` is called once for each write, after the
    last attempt and before the next write of the key begins. It is not called for a write that a newer
    write has replaced, nor after the pool is stopped.
    """

    def __init__(
        self,
        thread_count: int,
        name: str,
        *,
        may_write: Callable[[], bool] = lambda: True,
        max_attempts: int = 5,
        new_backoff: Callable[[], Backoff] = Backoff,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.outcome_counts: Counter[str] = Counter()  # done, failed, retried, coalesced, fenced
        self._may_write = may_write
        self._max_attempts = max_attempts
        self._new_backoff = new_backoff
        self._clock = clock
        self._condition = threading.Condition()
        self._pending_writes: dict[Hashable, _Write] = {}  # newest write of each key that has not begun
        self._queue: deque[_Write] = deque()
        self._retries: list[tuple[float, int, _Write]] = []  # heap ordered by due time, then by serial number
        self._running_keys: set[Hashable] = set()
        self._serial = count()
        self._is_stopped = False
        self._thread_names = [f"{name}-{number}" for number in range(thread_count)]
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads, which begin with the writes submitted so far."""
        for name in self._thread_names:
            self._threads.append(threading.Thread(target=self._run, name=name, daemon=True))
            self._threads[-1].start()

    @property
    def pending_count(self) -> int:
        """Return the number of writes that have not begun, including writes that wait for a retry."""
        return len(self._pending_writes)

    def submit(
        self,
        key: Hashable,
        job: WriteJob,
        on_end: EndCallback = lambda fault: None,
        max_attempts: int | None = None,
        is_urgent: bool = False,
    ) -> None:
        """Run `job` soon. It replaces an older job of this key that has not begun.

        Args:
            key: The key of the object.
            job: Makes the request to the API server.
            on_end: Called after the last attempt, with the error if the attempt failed.
            max_attempts: The maximum number of attempts; by default the number of the pool.
            is_urgent: Whether to run the job before all jobs that have not begun.
        """
        with self._condition:
            if pending_write := self._pending_writes.get(key):
                pending_write.job, pending_write.on_end = job, on_end
                self.outcome_counts["coalesced"] += 1
            elif not self._is_stopped:
                write = _Write(key, job, on_end, self._new_backoff(), max_attempts or self._max_attempts)
                self._pending_writes[key] = write
                enqueue = self._queue.appendleft if is_urgent else self._queue.append
                enqueue(write)
                self._condition.notify()

    def stop(self) -> None:
        """Begin no more writes, and wait up to a second for running requests."""
        with self._condition:
            self._is_stopped = True
            self._pending_writes.clear()
            self._queue.clear()
            self._retries.clear()
            self._condition.notify_all()
        deadline = time.monotonic() + 1
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        """Run writes until the pool is stopped."""
        while write := self._next_write():
            outcome, fault = self._attempt(write)
            if outcome != "retried":
                try:
                    write.on_end(fault)
                except Exception:
                    log.exception("handling the end of a write failed", key=write.key)
            with self._condition:
                self.outcome_counts[outcome] += 1
                self._running_keys.discard(write.key)
                if outcome == "retried" and not self._is_stopped and write.key not in self._pending_writes:
                    advised_delay = fault.retry_after if isinstance(fault, Refused) else None
                    due_at = self._clock() + max(write.backoff.delay(), advised_delay or 0.0)
                    self._pending_writes[write.key] = write
                    heapq.heappush(self._retries, (due_at, next(self._serial), write))
                self._condition.notify()

    def _next_write(self) -> _Write | None:
        """Return the next write whose key has no running write; None once the pool is stopped."""
        with self._condition:
            while not self._is_stopped:
                while self._retries and self._retries[0][0] <= self._clock():
                    self._queue.append(heapq.heappop(self._retries)[2])
                for write in self._queue:
                    if write.key not in self._running_keys:
                        self._queue.remove(write)
                        del self._pending_writes[write.key]
                        self._running_keys.add(write.key)
                        return write
                next_retry = self._retries[0][0] if self._retries else None
                self._condition.wait(None if next_retry is None else max(0.0, next_retry - self._clock()))
        return None

    def _attempt(self, write: _Write) -> tuple[str, ApiError | None]:
        """Attempt a write; return the outcome and the error."""
        try:
            if not self._may_write():
                return "fenced", Fenced()
            write.job()
        except ApiError as fault:
            write.failure_count += 1
            if fault.is_transient and write.failure_count < write.max_attempts:
                return "retried", fault
            is_outdated = isinstance(fault, Conflict | NotFound)  # the watch will show the reason
            log_failure = log.debug if is_outdated else log.warning
            log_failure("a write failed", key=write.key, error=str(fault), attempts=write.failure_count)
            return "failed", fault
        except Exception as fault:
            log.exception("a write raised an unexpected exception", key=write.key)
            return "failed", ApiError(str(fault))
        return "done", None


class Poller:
    """Thread that calls `poll` at once and then every `period` seconds, until it is stopped.

    `poll` may return a different number of seconds until the next call. An exception does not end the thread,
    and is logged only once until a call succeeds.
    """

    def __init__(self, name: str, period: float, poll: Callable[[], float | None]) -> None:
        self._thread_name = name
        self._period = period
        self._poll = poll
        self._has_failed = False
        self._first_poll_event = threading.Event()
        self._stop_event = threading.Event()

    def start(self, timeout: float = 0.0) -> None:
        """Start the thread, and wait up to `timeout` seconds for the first call."""
        threading.Thread(target=self._run, name=self._thread_name, daemon=True).start()
        self._first_poll_event.wait(timeout)

    def stop(self) -> None:
        """Stop the thread, without waiting for a running call of `poll`."""
        self._stop_event.set()

    @property
    def is_stopping(self) -> bool:
        return self._stop_event.is_set()

    def _run(self) -> None:
        """Poll until the thread is stopped."""
        pause: float | None = 0.0
        while not self._stop_event.wait(self._period if pause is None else pause):
            try:
                pause = self._poll()
                self._has_failed = False
            except Exception:
                if not self._has_failed:
                    log.exception("a poll failed", thread=self._thread_name)
                pause, self._has_failed = None, True
            self._first_poll_event.set()
