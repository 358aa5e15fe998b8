"""How long to wait before trying again: doubling, capped, and with jitter so that clients do not retry in
step."""

import random
from collections.abc import Callable


class Backoff:
    """Delays of 0.5, 1, 2 … 30 s, each shortened at random by up to half, until `reset`."""

    def __init__(
        self, first: float = 0.5, cap: float = 30.0, jitter: Callable[[], float] = random.random
    ) -> None:
        self._first = first
        self._cap = cap
        self._jitter = jitter
        self._next = first

    def delay(self) -> float:
        """The next delay; each is double the one before."""
        delay, self._next = self._next, min(self._next * 2, self._cap)
        return delay * (1 - self._jitter() / 2)

    def reset(self) -> None:
        self._next = self._first
