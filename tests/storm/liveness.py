"""Liveness of Muster: its probe, polled as by a kubelet, except while Muster is down on purpose."""

import threading
import time
from dataclasses import dataclass, field

from tests.storm.recovery import Recovery
from tests.storm.storm_cluster import StormCluster

PERIOD = 0.2  # seconds
PATIENCE = 20.0  # a kubelet would restart it after three failures in 30 s


@dataclass
class LivenessCheck:
    """Check of the answers of the probe, in the order of their times."""

    patience: float = PATIENCE
    failures: list[tuple[float, str]] = field(default_factory=list)
    failing_since: float | None = None

    def record(self, at: float, alive: bool, excused: bool) -> None:
        """Record an answer. `excused`: a fault keeps Muster from answering."""
        if alive or excused:
            self.failing_since = None
        elif self.failing_since is None:
            self.failing_since = at
        elif at - self.failing_since > self.patience:
            self.failures.append((at, f"/livez has failed for {at - self.failing_since:.0f} s"))
            self.failing_since = None


class LivenessProber(threading.Thread):
    """Thread that polls the probe five times a second."""

    def __init__(self, storm_cluster: StormCluster, recovery: Recovery) -> None:
        super().__init__(name="liveness", daemon=True)
        self.liveness = LivenessCheck()
        self._recovery = recovery
        self._storm_cluster = storm_cluster
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(PERIOD):
            if len(self._storm_cluster.sidecars) > 1:
                self._storm_cluster.update_leader()
            part, muster = self._storm_cluster.part("muster"), self._storm_cluster.muster
            excused = part in self._storm_cluster.down
            alive = muster.live()
            self.liveness.record(time.monotonic(), alive, excused or part in self._storm_cluster.down)
            if muster.ready():
                self._recovery.answered(time.monotonic())

    def stop(self) -> None:
        self._ended.set()
        self.join()
