"""A thread that looks at something every so many seconds, until it is told to stop.

A look that raises is logged once until one goes well again, and ends nothing.
"""

import threading
from collections.abc import Callable

import structlog

log = structlog.get_logger(__name__)


class Poller:
    """`look` is called at once and then every `period` seconds, by one thread. A look that returns a number
    is followed by the next after that many seconds instead."""

    def __init__(self, name: str, period: float, look: Callable[[], float | None]) -> None:
        self._name = name
        self._period = period
        self._look = look
        self._raised = False
        self._stopping = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def stop(self) -> None:
        """Without waiting for a look that is under way."""
        self._stopping.set()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def _run(self) -> None:
        pause: float | None = 0.0
        while not self._stopping.wait(self._period if pause is None else pause):
            pause = self._guarded()

    def _guarded(self) -> float | None:
        try:
            pause = self._look()
        except Exception:
            if not self._raised:
                log.exception("a poll failed", thread=self._name)
            self._raised = True
            return None
        self._raised = False
        return pause
