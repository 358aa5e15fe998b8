"""Whether decisions take effect: whether this replica leads, and when the scheduler last asked."""

from collections.abc import Callable

from extender.domain.snapshot.attention import Attention


class Attendance:
    """`pause`: seconds of silence after which the scheduler counts as having started to ask again."""

    def __init__(self, pause: float, clock: Callable[[], float]) -> None:
        self._pause = pause
        self._clock = clock
        self.attention = Attention()

    def note_asked(self) -> bool:
        """The scheduler asks about a pod or reports on one, so it is running. True if it had paused
        before."""
        before, now = self.attention, self._clock()
        self.attention = before.asked(now, self._pause)
        return self.attention.asked_since != before.asked_since

    def set_leading(self, leading: bool) -> bool:
        """Set whether decisions take effect; True if that is a change."""
        before = self.attention
        self.attention = before.led(self._clock(), leading)
        return self.attention is not before
