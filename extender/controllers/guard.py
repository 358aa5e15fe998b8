"""An object that makes a part of Muster raise costs only its own turn.

The fault is counted, logged once until the object succeeds again, and the caller tries the object again.
"""

from collections.abc import Callable, Hashable

from extender.telemetry import metrics
from extender.telemetry.logs import logger

log = logger(__name__)

_REMEMBERED = 1000  # objects that raised; for further ones, every fault is logged


class Guard:
    """`part` is the name of the guarded part, one of a few known beforehand, since it is a label of a
    metric."""

    def __init__(self, part: str) -> None:
        self._part = part
        self._faulty: set[Hashable] = set()

    def run(self, key: Hashable, act: Callable[[], object]) -> bool:
        """Call `act`; whether it succeeded. Raises nothing."""
        try:
            act()
        except Exception:
            self.note(key)
            return False
        self.forget(key)
        return True

    def note(self, key: Hashable) -> None:
        """Note that `key` raised an exception; called while that is handled."""
        metrics.faults.labels(self._part).inc()
        if key in self._faulty:
            return
        if len(self._faulty) < _REMEMBERED:
            self._faulty.add(key)
        log.exception("an object could not be reconciled", part=self._part, object=str(key)[:200])

    def forget(self, key: Hashable) -> None:
        self._faulty.discard(key)
