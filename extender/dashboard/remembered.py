"""Answers that take a question to the API server."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock
from typing import Generic, TypeVar

from cachetools import TLRUCache

from extender.dashboard.source import Unsure
from extender.kube.errors import ApiError

_PATIENCE = 10.0  # seconds for a question that another thread asked

K = TypeVar("K")
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """Each is kept for `lasts` seconds from when it was asked for, and no more than `most` of them. Threads
    that want the same at the same time share one question; what fails is not kept."""

    def __init__(
        self, most: int, lasts: Callable[[V], float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._kept: TLRUCache[K, tuple[V, float]] = TLRUCache(
            most, lambda key, value, now: value[1] + lasts(value[0]), clock
        )
        self._asked: dict[K, Future[V]] = {}
        self._lock = Lock()

    def known(self, key: K) -> V | None:
        """Without a question."""
        with self._lock:
            kept = self._kept.get(key)
        return kept[0] if kept else None

    def get(self, key: K, ask: Callable[[], V]) -> V:
        """Raises Unsure where `ask` raises ApiError, and whatever else it raises."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                return kept[0]
            shared = self._asked.get(key)
            answer = self._asked[key] = shared or Future()
        if shared is None:
            self._settle(key, answer, ask)
        try:
            return answer.result(_PATIENCE)
        except TimeoutError as fault:
            raise Unsure("the API server does not answer") from fault

    def _settle(self, key: K, answer: Future[V], ask: Callable[[], V]) -> None:
        began = self._clock()
        try:
            found = ask()
        except ApiError as fault:
            self._end(key)
            unsure = Unsure(f"the API server could not be asked: {fault}")
            unsure.__cause__ = fault
            answer.set_exception(unsure)
        except BaseException as fault:
            self._end(key)
            answer.set_exception(fault)
        else:
            with self._lock:
                self._kept[key] = (found, began)
            self._end(key)
            answer.set_result(found)

    def _end(self, key: K) -> None:
        with self._lock:
            del self._asked[key]
