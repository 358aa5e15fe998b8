"""Threads for writes that no caller waits for, threads for polling, and limits of their rates.

Each write has a key, its target. A newer write replaces a write of the same key that has not begun, so a
status that changes fast is written once. Two writes of the same key never run at the same time, so the last
value is written last. A write that failed for a transient reason does not block a thread while it waits.

Each attempt first checks the fence: a replica that no longer leads writes nothing, since the next leader
decides again.
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
Ended = Callable[[ApiError | None], object]  # called with the last error; None after a success

_MAX_DELAY = 30.0  # longest delay in seconds


class Backoff:
    """Pauses of 0.5, 1, 2 … 30 s until `reset`. Each is up to half shorter at random, to spread clients."""

    def __init__(self, first: float = 0.5, jitter: Callable[[], float] = random.random) -> None:
        self._first = first
        self._jitter = jitter
        self._next_delay = first

    def delay(self) -> float:
        delay, self._next_delay = self._next_delay, min(self._next_delay * 2, _MAX_DELAY)
        return delay * (1 - self._jitter() / 2)

    def reset(self) -> None:
        self._next_delay = self._first


class TokenBucket:
    """Token bucket, which allows a burst at once and then a fixed rate.

    The bucket starts with `burst` tokens, and gets `rate` tokens a second up to `burst`. Callers pass the
    time in seconds, and lock the bucket.
    """

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._updated = now

    def available(self, now: float) -> float:
        """Return the number of tokens at the time `now`."""
        self._tokens = min(self._burst, self._tokens + max(0.0, now - self._updated) * self._rate)
        self._updated = max(self._updated, now)
        return self._tokens

    def take(self, now: float, tokens: float = 1.0) -> bool:
        """Use `tokens` if that many are available; return whether they were used."""
        if self.available(now) < tokens:
            return False
        self._tokens -= tokens
        return True

    def take_up_to(self, now: float, count: int) -> int:
        """Use the available whole tokens, up to `count`; return their number."""
        used = min(count, int(self.available(now)))
        self._tokens -= used
        return used


@dataclass(eq=False)
class _Write:
    key: Hashable  # target of the write
    job: WriteJob  # job of the newest submission
    ended: Ended  # callback of the newest submission
    backoff: Backoff  # pauses between attempts
    attempts: int  # maximum number of attempts
    failures: int = 0  # number of failed attempts


class Writers:
    """Pool of threads that write: `submit(key, job, ended)`.

    A job makes one request and lets its ApiError pass. `ended` is called once for each write, after the last
    attempt and before the next write of the key begins. It is not called for a write that a newer write has
    replaced, nor after the pool is stopped.
    """

    def __init__(
        self,
        threads: int,
        name: str,
        *,
        fence: Callable[[], bool] = lambda: True,
        attempts: int = 5,
        backoff: Callable[[], Backoff] = Backoff,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.outcomes: Counter[str] = Counter()  # done, failed, retried, coalesced, fenced
        self._fence = fence
        self._attempts = attempts
        self._backoff = backoff
        self._clock = clock
        self._condition = threading.Condition()
        self._pending: dict[Hashable, _Write] = {}  # newest write of each key that has not begun
        self._queue: deque[_Write] = deque()
        self._retries: list[tuple[float, int, _Write]] = []  # heap ordered by due time, then by serial number
        self._running_keys: set[Hashable] = set()
        self._serial = count()
        self._is_stopped = False
        self._names = [f"{name}-{number}" for number in range(threads)]
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads, which begin with the writes submitted so far."""
        for name in self._names:
            self._threads.append(threading.Thread(target=self._run, name=name, daemon=True))
            self._threads[-1].start()

    @property
    def depth(self) -> int:
        """Return the number of writes that have not begun, including writes that wait for a retry."""
        return len(self._pending)

    def submit(
        self,
        key: Hashable,
        job: WriteJob,
        ended: Ended = lambda fault: None,
        attempts: int | None = None,
        first: bool = False,
    ) -> None:
        """Run `job` soon. It replaces an older job of this key that has not begun.

        Args:
            key: The key of the object.
            job: Makes the request to the API server.
            ended: Called after the last attempt, with the error if the attempt failed.
            attempts: The maximum number of attempts; by default the number of the pool.
            first: Whether to run the job before all jobs that have not begun.
        """
        with self._condition:
            if waiting := self._pending.get(key):
                waiting.job, waiting.ended = job, ended
                self.outcomes["coalesced"] += 1
            elif not self._is_stopped:
                write = _Write(key, job, ended, self._backoff(), attempts or self._attempts)
                self._pending[key] = write
                enqueue = self._queue.appendleft if first else self._queue.append
                enqueue(write)
                self._condition.notify()

    def stop(self) -> None:
        """Begin no more writes, and wait up to a second for running requests."""
        with self._condition:
            self._is_stopped = True
            self._pending.clear()
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
                    write.ended(fault)
                except Exception:
                    log.exception("handling the end of a write failed", key=write.key)
            with self._condition:
                self.outcomes[outcome] += 1
                self._running_keys.discard(write.key)
                if outcome == "retried" and not self._is_stopped and write.key not in self._pending:
                    advice = fault.retry_after if isinstance(fault, Refused) else None
                    due_at = self._clock() + max(write.backoff.delay(), advice or 0.0)
                    self._pending[write.key] = write
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
                        del self._pending[write.key]
                        self._running_keys.add(write.key)
                        return write
                next_retry = self._retries[0][0] if self._retries else None
                self._condition.wait(None if next_retry is None else max(0.0, next_retry - self._clock()))
        return None

    def _attempt(self, write: _Write) -> tuple[str, ApiError | None]:
        """Attempt a write; return the outcome and the error."""
        try:
            if not self._fence():
                return "fenced", Fenced()
            write.job()
        except ApiError as fault:
            write.failures += 1
            if fault.transient and write.failures < write.attempts:
                return "retried", fault
            is_outdated = isinstance(fault, Conflict | NotFound)  # the watch will show the reason
            write_log = log.debug if is_outdated else log.warning
            write_log("a write failed", key=write.key, error=str(fault), attempts=write.failures)
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
        self._first_poll_done = threading.Event()
        self._stopping = threading.Event()

    def start(self, timeout: float = 0.0) -> None:
        """Start the thread, and wait up to `timeout` seconds for the first call."""
        threading.Thread(target=self._run, name=self._thread_name, daemon=True).start()
        self._first_poll_done.wait(timeout)

    def stop(self) -> None:
        """Stop the thread, without waiting for a running call of `poll`."""
        self._stopping.set()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def _run(self) -> None:
        """Poll until the thread is stopped."""
        pause: float | None = 0.0
        while not self._stopping.wait(self._period if pause is None else pause):
            try:
                pause = self._poll()
                self._has_failed = False
            except Exception:
                if not self._has_failed:
                    log.exception("a poll failed", thread=self._thread_name)
                pause, self._has_failed = None, True
            self._first_poll_done.set()
