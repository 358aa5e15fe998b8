"""Whether an event loop still goes round: one that is blocked answers nobody, and says nothing about it."""

import time


class Pulse:
    """`patience`: seconds without a beat after which the loop counts as stuck."""

    def __init__(self, patience: float = 30.0) -> None:
        self._patience = patience
        self._last: float | None = None  # before the loop has started

    def beat(self) -> None:
        """To be called by the loop, often."""
        self._last = time.monotonic()

    def missing(self) -> str | None:
        """A check for /livez."""
        silent = time.monotonic() - self._last if self._last is not None else 0.0
        return f"its event loop has been stuck for {silent:.0f} s" if silent > self._patience else None
