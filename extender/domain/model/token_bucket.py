"""A budget in time: so many at once, and so many a second on average."""

from collections.abc import Callable


class TokenBucket:
    """Full at first. `clock` is monotonic, in seconds. Whoever uses it from several threads guards it."""

    def __init__(self, at_once: int, per_second: float, clock: Callable[[], float]) -> None:
        self._at_once = at_once
        self._per_second = per_second
        self._clock = clock
        self._left = float(at_once)
        self._filled = clock()

    def take(self, wanted: int = 1) -> int:
        """How many of `wanted` may pass now; they are taken out."""
        now = self._clock()
        self._left = min(self._left + (now - self._filled) * self._per_second, self._at_once)
        self._filled = now
        taken = min(wanted, int(self._left))
        self._left -= taken
        return taken
