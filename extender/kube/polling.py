"""A thread that looks at something at intervals, until it is stopped.

A look that raises does not end the thread, and is logged once until a look succeeds again.
"""

import threading
from collections.abc import Callable

import structlog

log = structlog.get_logger(__name__)


class Poller:
    """`look` is called at once and then every `period` seconds, by one thread. If it returns a number, the
    next call follows after that many seconds instead."""

    def __init__(self, name: str, period: float, look: Callable[[], float | None]) -> None:
        self._name = name
        self._period = period
        self._look = look
        self._raised = False
        self._looked = threading.Event()
        self._stopping = threading.Event()

    def start(self, patience: float = 0.0) -> None:
        """`patience`: how many seconds to wait for the first look, at most."""
        threading.Thread(target=self._run, name=self._name, daemon=True).start()
        self._looked.wait(patience)

    def stop(self) -> None:
        """Stop, without waiting for a look that is under way."""
        self._stopping.set()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def _run(self) -> None:
        pause: float | None = 0.0
        while not self._stopping.wait(self._period if pause is None else pause):
            pause = self._guarded()
            self._looked.set()

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
