"""Look-ups of objects of one kind at the API server by name, however many reviews ask at the same time.

A tenant may write thousands of groups for a queue that does not exist, and each is looked up before it is
refused. A cached answer would refuse a group whose queue was created a moment ago, so each review gets a
look-up that began after the review asked. But reviews share a look-up that has not begun yet, one name is
looked up at most ten times a second, and only a few names at the same time. A flood for one name waits for
that; reviews for other names do not.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from threading import BoundedSemaphore, Lock
from typing import Generic, TypeVar

from cachetools import TTLCache

from extender.kube.errors import ApiError, NotFound
from extender.webhooks.reviews import NotKnown

PACE = 0.1  # seconds between two look-ups of one name
AT_ONCE = 8  # look-ups at the same time
_MOST = 4096  # names whose last look-up is remembered

T = TypeVar("T")


class LookUps(Generic[T]):
    """`read`: one object by name, within seconds; raises ApiError."""

    def __init__(
        self,
        read: Callable[[str, float], T],
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._read = read
        self._clock = clock
        self._pause = pause
        self._due: dict[str, Future[T | None]] = {}  # look-ups that have not begun
        self._begun: TTLCache[str, float] = TTLCache(_MOST, PACE, clock)
        self._slots = BoundedSemaphore(AT_ONCE)
        self._lock = Lock()

    def find(self, name: str, timeout: float) -> T | None:
        """An object as the API server has it now; None if there is none. Raises NotKnown."""
        with self._lock:
            shared = self._due.get(name)
            look = self._due[name] = shared or Future()
        if shared is None:
            self._take(name, look, self._clock() + timeout)
        try:
            return look.result(timeout)
        except TimeoutError as fault:
            raise NotKnown("it did not answer in time") from fault

    def _take(self, name: str, look: Future[T | None], deadline: float) -> None:
        self._pause(self._rest(name))
        has_slot = self._slots.acquire(timeout=max(0.0, deadline - self._clock()))
        with self._lock:
            del self._due[name]
            self._begun[name] = self._clock()
        try:
            look.set_result(self._ask(name, deadline - self._clock()))
        except Exception as fault:
            look.set_exception(fault)
        finally:
            if has_slot:
                self._slots.release()

    def _rest(self, name: str) -> float:
        with self._lock:
            return max(0.0, self._begun.get(name, -PACE) + PACE - self._clock())

    def _ask(self, name: str, timeout: float) -> T | None:
        if timeout <= 0:
            raise NotKnown("too many names are being looked up")
        try:
            return self._read(name, timeout)
        except NotFound:
            return None
        except ApiError as fault:
            raise NotKnown(str(fault)) from fault
