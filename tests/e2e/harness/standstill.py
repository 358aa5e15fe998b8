"""Gangs that stay at the barrier, or stay incomplete, while a test changes something.

At the barrier, Muster holds the bind calls of a gang's pods until all members have nodes.
"""

import threading
from collections.abc import Callable
from typing import Any

from tests.e2e.harness.fault_proxy import FaultProxy
from tests.e2e.harness.faults import Fault, hold_request, keep_gate_shut
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for


class Standstill:
    """Gang at the barrier: the gate of the last member is not removed before `release`.

    Muster must reach the API server through the proxy. After the constructor, Muster holds all other members
    at the barrier.
    """

    def __init__(
        self, stage: Stage, muster: Muster, proxy: FaultProxy, name: str = "a", size: int = 3, **gang: Any
    ) -> None:
        """Create the gang. `gang` has further arguments for `Stage.gang`."""
        self._released = threading.Event()
        proxy.inject(keep_gate_shut(self._released, f"{name}-{size - 1}"))
        self.pods = stage.gang(name, size, gated=True, **gang)
        *self.held, self.last = self.pods
        self.nodes = muster.wait_held(self.held)

    def release(self) -> None:
        self._released.set()


class LastCall:
    """Gang at the barrier, without gates: the bind call for the last member does not arrive before `release`.

    The scheduler must call Muster through `verbs`. If the scheduler ends before `release`, the call is
    dropped.
    """

    def __init__(
        self, stage: Stage, muster: Muster, verbs: FaultProxy, name: str = "a", size: int = 3, **gang: Any
    ) -> None:
        self._released = threading.Event()
        in_body = f'"PodName":"{name}-{size - 1}"'.encode()
        call_fault = Fault("POST", r"/bind$", in_body, before=self._released.wait, while_awaited=True)
        verbs.inject(call_fault)
        self.pods = stage.gang(name, size, **gang)
        *self.held, self.last = self.pods
        self.nodes = muster.wait_held(self.held)
        wait_for(call_fault.hit.is_set, what=f"the call for {self.last} sent")

    def release(self) -> None:
        self._released.set()


class HangingBinding:
    """Incomplete gang: two of three pods are bound, and the third binding hangs until `release`.

    By default, the binding arrives at the API server after `release`; `fault` can change this. Muster must
    reach the API server through the proxy.
    """

    def __init__(
        self, stage: Stage, proxy: FaultProxy, fault: Callable[[threading.Event], Fault] = hold_request
    ) -> None:
        self._released = threading.Event()
        injected_fault = fault(self._released)
        proxy.inject(injected_fault)
        self.pods = stage.gang("a", 3, cpu="2", gated=True)
        wait_for(
            lambda: injected_fault.hit.is_set() and len(stage.bound(self.pods)) == 2,
            what="two of three bound",
        )
        (self.hanging,) = {*self.pods} - stage.bound(self.pods).keys()

    def release(self) -> None:
        self._released.set()
