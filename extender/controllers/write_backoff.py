"""Growing pauses between writes of the same value.

If another controller overwrites a value, it is corrected at once. But a controller that keeps overwriting it
writes the same field, as Volcano's scheduler does on every PodGroup that it sees; without pauses, both would
write it once a second, endlessly.
"""

from collections.abc import Callable, Hashable
from typing import NamedTuple

_LONGEST = 30.0  # seconds between two writes
_FORGOTTEN = 120.0  # seconds without a write after which the next one counts as the first


class _Written(NamedTuple):
    what: Hashable
    times: int  # how often it was written again
    until: float  # when it may be written again


class WriteBackoff:
    """`clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._written: dict[Hashable, _Written] = {}

    def pause(self, of: Hashable, what: Hashable) -> float:
        """The seconds until `what` may be written to the object `of`; 0: now, and it then counts as written.
        Anything other than what was written last may be written at once."""
        now = self._clock()
        before = self._written.get(of)
        if before is None or before.what != what or now > before.until + _FORGOTTEN:
            self._written[of] = _Written(what, 0, now)
            return 0.0
        if now < before.until:
            return before.until - now
        pause = min(_LONGEST, 2.0**before.times)
        self._written[of] = _Written(what, before.times + 1, now + pause)
        return 0.0

    def forget(self, of: Hashable) -> None:
        self._written.pop(of, None)

    def clear(self) -> None:
        self._written.clear()
