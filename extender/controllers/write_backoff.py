"""Saying the same again, ever more seldom.

Who overwrites what we wrote is put right at once. Who does so again and again is at work on the same field,
as Volcano's scheduler is on every PodGroup that it sees; then both would write it once a second, for ever.
"""

from collections.abc import Callable, Hashable
from typing import NamedTuple

_LONGEST = 30.0  # seconds between two attempts
_FORGOTTEN = 120.0  # seconds without an attempt after which the next one is a first


class _Said(NamedTuple):
    what: Hashable
    times: int
    until: float


class WriteBackoff:
    """`clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._said: dict[Hashable, _Said] = {}

    def may_write(self, of: Hashable, what: Hashable) -> bool:
        """Whether `what` may be said of something now. What was not said of it last may be said at once."""
        now = self._clock()
        said = self._said.get(of)
        if said is None or said.what != what or now > said.until + _FORGOTTEN:
            self._said[of] = _Said(what, 0, now)
            return True
        if now < said.until:
            return False
        pause = min(_LONGEST, 2.0**said.times)
        self._said[of] = _Said(what, said.times + 1, now + pause)
        return True

    def forget(self, of: Hashable) -> None:
        self._said.pop(of, None)
