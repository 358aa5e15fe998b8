"""A gang that stands still at the barrier, so that things can happen to it there."""

import threading
from typing import Any

from tests.e2e.harness.fault_proxy import FaultProxy
from tests.e2e.harness.faults import keep_gate_shut
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.stage import Stage


class Standstill:
    """All members but the last are held when this is made: the gate of the last stays shut until `let_go`.

    Muster must reach the API server through the proxy.
    """

    def __init__(
        self, stage: Stage, muster: Muster, proxy: FaultProxy, name: str = "a", size: int = 3, **gang: Any
    ) -> None:
        self._released = threading.Event()
        proxy.inject(keep_gate_shut(self._released, f"{name}-{size - 1}"))
        self.pods = stage.gang(name, size, gated=True, **gang)
        *self.held, self.last = self.pods
        self.nodes = muster.wait_held(self.held)

    def let_go(self) -> None:
        self._released.set()
