"""Pods of schedulerName `volcano` are left alone while Volcano's own scheduler is at work.

They are then not ours: their groups are not judged or reported, calls for them are refused, and our gate is
removed, since nothing else would remove it. What they hold on nodes counts like that of any other pod. Once
the scheduler has ended, they are ours again if `volcano` is one of our scheduler names. Even if it is not,
groups without members and the numbers of queues are left to Volcano meanwhile.
"""

import threading
import time
from collections.abc import Iterator
from functools import partial

from extender.api.objects.pods import Pod
from extender.controllers.controller import Controller, ControllerContext
from extender.domain.coexistence.volcano_scheduler import LEASE, VolcanoScheduler
from extender.domain.decisions.decisions import Decisions
from extender.domain.model.records import PodRecord, Uid
from extender.kube.errors import ApiError, Forbidden, NotFound
from extender.kube.polling import Poller
from extender.telemetry import metrics
from extender.telemetry.logs import logger

log = logger(__name__)

VOLCANO = "volcano"
_PERIOD = 5.0  # seconds between two looks at the Lease
_GATES_EVERY = 1.0  # seconds between two searches for gates
_AGAIN = 30.0  # seconds after which a gate that is still there is removed again
_PATIENCE = 1.0  # seconds that the start waits for the first look


class VolcanoCoexistence(Controller[Uid]):
    """Also gets pods from the feed: those of Volcano's scheduler are in `namespace`.

    `start` begins to look at the Lease; until the first look, the pods are left alone. It waits a moment for
    that look, so that it is known whose the pods are before they are read."""

    def __init__(self, context: ControllerContext, namespace: str) -> None:
        self._volcano = VolcanoScheduler(namespace, context.clock)
        super().__init__(context)

    name = "volcano-coexistence"

    def prepare(self) -> None:
        self._lock = threading.Lock()  # pods and the Lease are seen by different threads
        self._poller = Poller("volcano", _PERIOD, self.look_at_lease)
        self._known = False  # whether a look has succeeded
        self._yields = False
        self._gates_at = 0.0

    def start(self) -> None:
        with self._lock:
            self._leave(True)
        self._poller.start(_PATIENCE)

    def stop(self) -> None:
        self._poller.stop()

    def text(self) -> str:
        """One line for people."""
        if not self._yields:
            return "no scheduler of Volcano is at work"
        return f"pods of schedulerName {VOLCANO} are left to its own scheduler ({self._volcano.name})"

    # ---- watching Volcano

    def see_pod(self, pod: Pod) -> None:
        if pod.metadata.namespace == self._volcano.namespace:
            with self._lock:
                self._volcano.see_pod(pod)
                self._settle()

    def forget_pod(self, uid: Uid, namespace: str) -> None:
        if namespace == self._volcano.namespace:
            with self._lock:
                self._volcano.forget_pod(uid)
                self._settle()

    def look_at_lease(self) -> None:
        asked = self._clock()
        try:
            spec = self._cluster.lease(self._volcano.namespace, LEASE, timeout=_PERIOD).spec
        except (NotFound, Forbidden) as fault:
            spec = None
            if isinstance(fault, Forbidden):
                log.warning("cannot check whether Volcano is running", error=str(fault))
        except ApiError as fault:
            log.debug("the Lease of Volcano could not be read", error=str(fault))
            return
        with self._lock:
            self._volcano.see_lease(spec, asked, time.time()) if spec else self._volcano.miss_lease(asked)
            self._known = True
            self._settle()

    def _settle(self) -> None:
        if self._known:
            self._leave(self._volcano.is_at_work)

    def _leave(self, yields: bool) -> None:
        if yields is self._yields:
            return
        self._yields = yields
        self._ledger.leave(frozenset({VOLCANO} if yields else ()))
        if self._known:
            log.info(
                "Volcano's pods are left to Volcano" if yields else "Volcano's pods are served by Muster"
            )

    # ---- gates

    def due(self, _: Decisions) -> Iterator[Uid]:
        """Pods that are left alone and have our gate, searched for at intervals."""
        if not self._yields or self._clock() < self._gates_at:
            return
        self._gates_at = self._clock() + _GATES_EVERY
        yield from (pod.uid for pod in self._ledger.left_gated() if pod.uid not in self._queue)

    def reconcile(self, uid: Uid) -> None:
        pod = self._ledger.pod(uid)
        if pod is not None and pod.gated and self._yields:
            self._queue.add(uid, _AGAIN)
            self.write(uid, partial(self._remove_gate, pod))

    def _remove_gate(self, pod: PodRecord) -> None:
        self._cluster.open_gate(pod.namespace, pod.name, pod.uid)
        metrics.gates_opened.inc()
