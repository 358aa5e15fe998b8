"""Threads for writes that no caller waits for, and for polling; and their pace.

Writes are keyed by their target. A newer one replaces one that has not begun, so a status that changes fast
is written once; two writes of one key never run at the same time, so the last value arrives last. A write
that failed for a transient reason waits outside the threads. Before every attempt the fence is checked: a
former leader writes nothing more, since the next leader decides again.
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
Ended = Callable[[ApiError | None], object]  # called with the last fault; None if it was written

_LONGEST = 30.0  # seconds of a delay


class Backoff:
    """Pauses of 0.5, 1, 2 … 30 s until `reset`, each up to half shorter at random to spread clients."""

    def __init__(self, first: float = 0.5, jitter: Callable[[], float] = random.random) -> None:
        self._first = first
        self._jitter = jitter
        self._next = first

    def delay(self) -> float:
        delay, self._next = self._next, min(self._next * 2, _LONGEST)
        return delay * (1 - self._jitter() / 2)

    def reset(self) -> None:
        self._next = self._first


class TokenBucket:
    """Token bucket: a burst at once, then a fixed rate.

    It starts full, with `burst` tokens, and refills at `rate` a second up to `burst`. Callers pass the time,
    in seconds, and lock the bucket.
    """

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._updated = now

    def available(self, now: float) -> float:
        self._tokens = min(self._burst, self._tokens + max(0.0, now - self._updated) * self._rate)
        self._updated = max(self._updated, now)
        return self._tokens

    def take(self, now: float, tokens: float = 1.0) -> bool:
        """Take `tokens` if all are available; return whether they were taken."""
        if self.available(now) < tokens:
            return False
        self._tokens -= tokens
        return True

    def take_up_to(self, now: float, count: int) -> int:
        """Take the available whole tokens, up to `count`; return their number."""
        taken = min(count, int(self.available(now)))
        self._tokens -= taken
        return taken


@dataclass(eq=False)
class _Write:
    key: Hashable  # target of the write
    job: WriteJob  # job of the newest submission
    ended: Ended  # callback of the newest submission
    backoff: Backoff  # the pauses between attempts
    attempts: int  # how often it is tried at most
    failures: int = 0  # how often it has failed


class Writers:
    """Pool of writers: `submit(key, job, ended)`.

    A job makes one request and lets its ApiError pass. `ended` is called once for each write after its last
    attempt, before another of its key begins; but not for a write that a newer one has replaced, nor once the
    pool is stopped.
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
        self._changed = threading.Condition()
        self._pending: dict[Hashable, _Write] = {}  # the newest of each key, queued or waiting to be retried
        self._queue: deque[_Write] = deque()
        self._retries: list[tuple[float, int, _Write]] = []  # heap by due time, then by serial number
        self._running: set[Hashable] = set()
        self._serial = count()
        self._stopped = False
        self._names = [f"{name}-{number}" for number in range(threads)]
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads, first on what has been submitted so far."""
        for name in self._names:
            self._threads.append(threading.Thread(target=self._run, name=name, daemon=True))
            self._threads[-1].start()

    @property
    def depth(self) -> int:
        """Return the number of writes that have not begun, including retries."""
        return len(self._pending)

    def submit(
        self,
        key: Hashable,
        job: WriteJob,
        ended: Ended = lambda fault: None,
        attempts: int | None = None,
        first: bool = False,
    ) -> None:
        """Run `job` soon, in place of an older job of this key that has not begun.

        Args:
            key: The key of the object.
            job: Makes the request to the API server.
            ended: Called at the end, with the fault if it failed.
            attempts: The most attempts; by default those of the pool.
            first: Run the job before all jobs that have not begun.
        """
        with self._changed:
            if waiting := self._pending.get(key):
                waiting.job, waiting.ended = job, ended
                self.outcomes["coalesced"] += 1
            elif not self._stopped:
                write = _Write(key, job, ended, self._backoff(), attempts or self._attempts)
                self._pending[key] = write
                enqueue = self._queue.appendleft if first else self._queue.append
                enqueue(write)
                self._changed.notify()

    def stop(self) -> None:
        """Begin no more writes, and give running requests a second to end."""
        with self._changed:
            self._stopped = True
            self._pending.clear()
            self._queue.clear()
            self._retries.clear()
            self._changed.notify_all()
        deadline = time.monotonic() + 1
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while write := self._take():
            outcome, fault = self._attempt(write)
            if outcome != "retried":
                try:
                    write.ended(fault)
                except Exception:
                    log.exception("handling the end of a write failed", key=write.key)
            with self._changed:
                self.outcomes[outcome] += 1
                self._running.discard(write.key)
                if outcome == "retried" and not self._stopped and write.key not in self._pending:
                    advice = fault.retry_after if isinstance(fault, Refused) else None
                    due = self._clock() + max(write.backoff.delay(), advice or 0.0)
                    self._pending[write.key] = write
                    heapq.heappush(self._retries, (due, next(self._serial), write))
                self._changed.notify()

    def _take(self) -> _Write | None:
        """Return the next write whose key is free; None once the pool is stopped."""
        with self._changed:
            while not self._stopped:
                while self._retries and self._retries[0][0] <= self._clock():
                    self._queue.append(heapq.heappop(self._retries)[2])
                for write in self._queue:
                    if write.key not in self._running:
                        self._queue.remove(write)
                        del self._pending[write.key]
                        self._running.add(write.key)
                        return write
                next_retry = self._retries[0][0] if self._retries else None
                self._changed.wait(None if next_retry is None else max(0.0, next_retry - self._clock()))
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
            is_outdated = isinstance(fault, Conflict | NotFound)  # the watch will show why
            write_log = log.debug if is_outdated else log.warning
            write_log("a write failed", key=write.key, error=str(fault), attempts=write.failures)
            return "failed", fault
        except Exception as fault:
            log.exception("a write raised an unexpected exception", key=write.key)
            return "failed", ApiError(str(fault))
        return "done", None


class Poller:
    """Poller: a thread that calls `poll` at once and then every `period` seconds, until it is stopped.

    `poll` may return other seconds until the next call. An error does not end the thread, and is logged once
    until a call succeeds.
    """

    def __init__(self, name: str, period: float, poll: Callable[[], float | None]) -> None:
        self._thread_name = name
        self._period = period
        self._poll = poll
        self._raised = False
        self._polled = threading.Event()
        self._stopping = threading.Event()

    def start(self, timeout: float = 0.0) -> None:
        """Start the thread. `timeout`: the most seconds to wait for the first call."""
        threading.Thread(target=self._run, name=self._thread_name, daemon=True).start()
        self._polled.wait(timeout)

    def stop(self) -> None:
        """Stop, without waiting for a running call of `poll`."""
        self._stopping.set()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def _run(self) -> None:
        pause: float | None = 0.0
        while not self._stopping.wait(self._period if pause is None else pause):
            try:
                pause = self._poll()
                self._raised = False
            except Exception:
                if not self._raised:
                    log.exception("a poll failed", thread=self._thread_name)
                pause, self._raised = None, True
            self._polled.set()
