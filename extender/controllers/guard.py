"""One object that makes its part of Muster raise costs its own turn, not that of the others.

It is counted, logged once until it has gone well again, and tried again by its caller.
"""

from collections.abc import Callable, Hashable

from extender.telemetry import metrics
from extender.telemetry.logs import logger

log = logger(__name__)

_REMEMBERED = 1000  # objects that raised; of more, each fault is logged


class Guard:
    """`part` is the name of what is guarded, one of a few that are known beforehand: a label of a metric."""

    def __init__(self, part: str) -> None:
        self._part = part
        self._faulty: set[Hashable] = set()

    def run(self, key: Hashable, act: Callable[[], object]) -> bool:
        """Whether `act` went through. Raises nothing."""
        try:
            act()
        except Exception:
            self.note(key)
            return False
        self.forget(key)
        return True

    def note(self, key: Hashable) -> None:
        """Called where an exception is handled: it is `key` that raised it."""
        metrics.faults.labels(self._part).inc()
        if key in self._faulty:
            return
        if len(self._faulty) < _REMEMBERED:
            self._faulty.add(key)
        log.exception("an object could not be reconciled", part=self._part, object=str(key)[:200])

    def forget(self, key: Hashable) -> None:
        self._faulty.discard(key)
