"""A token bucket: a burst at once, then a fixed rate. Time, in seconds, is passed in; callers lock it."""


class TokenBucket:
    """Starts full, with `burst` tokens, and refills at `rate` tokens per second up to `burst`."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._left = burst
        self._at = now

    def left(self, now: float) -> float:
        self._left = min(self._burst, self._left + max(0.0, now - self._at) * self._rate)
        self._at = max(self._at, now)
        return self._left

    def take(self, now: float, tokens: float = 1.0) -> bool:
        """Take `tokens` if that many are available, otherwise none. Whether they were taken."""
        if self.left(now) < tokens:
            return False
        self._left -= tokens
        return True

    def take_up_to(self, now: float, wanted: int) -> int:
        """Take as many whole tokens as are available, up to `wanted`; returns how many."""
        taken = min(wanted, int(self.left(now)))
        self._left -= taken
        return taken
