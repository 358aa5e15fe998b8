"""Liveness of Muster while it should live: its probe, asked as a kubelet asks, and its process."""

import threading
import time
from dataclasses import dataclass, field

from tests.storm.arena import Arena
from tests.storm.recovery import Recovery

PERIOD = 0.2
PATIENCE = 20.0  # a kubelet would restart it after three failures in 30 s


@dataclass
class Pulse:
    """Checks the answers in the order of their times."""

    patience: float = PATIENCE
    found: list[tuple[float, str]] = field(default_factory=list)
    failing_since: float | None = None

    def record(self, at: float, alive: bool, excused: bool) -> None:
        """Record a probe; `excused` while it is killed, frozen or not up yet."""
        if alive or excused:
            self.failing_since = None
        elif self.failing_since is None:
            self.failing_since = at
        elif at - self.failing_since > self.patience:
            self.found.append((at, f"/livez has failed for {at - self.failing_since:.0f} s"))
            self.failing_since = None


class Watcher(threading.Thread):
    """Asks five times a second until it is stopped."""

    def __init__(self, arena: Arena, recovery: Recovery) -> None:
        super().__init__(name="pulse", daemon=True)
        self.pulse = Pulse()
        self._recovery = recovery
        self._arena = arena
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(PERIOD):
            if len(self._arena.sidecars) > 1:
                self._arena.look()
            part, muster = self._arena.part("muster"), self._arena.muster
            excused = part in self._arena.down
            alive = muster.live()
            self.pulse.record(time.monotonic(), alive, excused or part in self._arena.down)
            if muster.ready():
                self._recovery.answered(time.monotonic())

    def stop(self) -> None:
        self._ended.set()
        self.join()
