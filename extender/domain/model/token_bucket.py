"""A token bucket: so many at once, then so many a second.

Time is passed in, in seconds of any clock that never goes back. Threads that share one have to lock it.
"""


class TokenBucket:
    """Full at first, with `burst` tokens; `rate` more come each second, up to `burst`."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._left = burst
        self._at = now

    def left(self, now: float) -> float:
        """The tokens that are there now."""
        self._left = min(self._burst, self._left + max(0.0, now - self._at) * self._rate)
        self._at = max(self._at, now)
        return self._left

    def take(self, now: float, tokens: float = 1.0) -> bool:
        """Take `tokens` if they are there; else none."""
        if self.left(now) < tokens:
            return False
        self._left -= tokens
        return True

    def take_up_to(self, now: float, wanted: int) -> int:
        """Take as many whole tokens of `wanted` as are there; the answer is how many."""
        taken = min(wanted, int(self.left(now)))
        self._left -= taken
        return taken
