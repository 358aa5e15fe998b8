"""Pods of schedulerName `volcano` are left alone while Volcano's own scheduler is at work.

It is at work while it renews its Lease. Its pods are then no pods of ours: their groups are not judged or
reported, calls for them are refused, and our gate is taken off, since nobody else would. What they hold on
nodes counts as anybody's. When the Lease lapses they are ours again.
"""

import threading
from datetime import UTC, datetime

from extender.api.objects import LeaseSpec
from extender.controllers.actor import Actor
from extender.domain.decisions import Decisions
from extender.domain.records import PodRecord, Uid
from extender.kube.errors import ApiError, Forbidden, NotFound
from extender.telemetry import metrics
from extender.telemetry.logs import logger

log = logger(__name__)

VOLCANO = "volcano"
_NAMESPACE, _NAME = "volcano-system", "volcano"
_PERIOD = 5.0
_DURATION = 15.0  # of a Lease that does not say
_FRESH = (
    60.0  # seconds by the clock on the wall that the renewal of a Lease seen for the first time may be old
)
_GATES_EVERY = 1.0
_PATIENCE = 1.0  # seconds that the start waits for the first look


class Yielder(Actor):
    """`start` begins to look at the Lease; before the first look the pods are left alone. It waits a moment
    for that look, so that pods read after it are whose they are."""

    def prepare(self) -> None:
        self._stopping = threading.Event()
        self._looked = threading.Event()
        self._seen: LeaseSpec | None = None
        self._until = 0.0
        self._looks = False
        self._yields = False
        self._gates_at = 0.0
        self._asked: set[Uid] = set()

    def start(self) -> None:
        self._looks = True
        self._leave(True)
        threading.Thread(target=self._run, name="volcano", daemon=True).start()
        self._looked.wait(_PATIENCE)

    def stop(self) -> None:
        self._stopping.set()

    def words(self) -> str:
        """For people, in one line."""
        if not self._looks:
            return f"not looked for, since {VOLCANO} is not among --scheduler-name"
        if not self._yields:
            return "no scheduler of Volcano is at work"
        holder = (self._seen.holder_identity if self._seen else None) or "not known yet"
        return f"pods of schedulerName {VOLCANO} are left to its own scheduler ({holder})"

    def look(self, _: Decisions) -> None:
        """Take our gate off pods that are left alone."""
        if not self._yields or not self._leads() or self._clock() < self._gates_at:
            return
        self._gates_at = self._clock() + _GATES_EVERY
        for pod in self._ledger.left_gated():
            if pod.uid not in self._asked:
                self._open(pod)

    def look_at_lease(self) -> None:
        asked = self._clock()
        try:
            self._judge(self._cluster.lease(_NAMESPACE, _NAME, timeout=_PERIOD).spec, asked)
        except (NotFound, Forbidden) as fault:
            self._seen, self._until = None, asked
            if isinstance(fault, Forbidden):
                log.warning("whether Volcano is at work cannot be read", error=str(fault))
        except ApiError as fault:
            log.debug("the Lease of Volcano could not be read", error=str(fault))
            return
        self._leave(self._clock() < self._until)

    def _run(self) -> None:
        self.look_at_lease()
        self._looked.set()
        while not self._stopping.wait(_PERIOD):
            self.look_at_lease()

    def _judge(self, lease: LeaseSpec, asked: float) -> None:
        """A Lease lives while it changes; one that is new to us lives if it was renewed lately."""
        if not lease.holder_identity:
            self._until = asked
        elif lease != self._seen and (self._seen is not None or _is_fresh(lease)):
            self._until = asked + (lease.lease_duration_seconds or _DURATION)
        self._seen = lease

    def _leave(self, yields: bool) -> None:
        if yields is self._yields:
            return
        self._yields = yields
        self._asked.clear()
        self._ledger.leave(frozenset({VOLCANO} if yields else ()))
        if self._seen is not None or not yields:
            log.info("pods of Volcano are left to it" if yields else "pods of Volcano are ours")

    def _open(self, pod: PodRecord) -> None:
        self._asked.add(pod.uid)

        def open_gate() -> None:
            self._cluster.open_gate(pod.namespace, pod.name, pod.uid)
            metrics.gates_opened.inc()

        def ended(fault: ApiError | None) -> None:
            if fault is not None:
                self._asked.discard(pod.uid)

        self._writers.submit(("release", pod.uid), open_gate, ended)


def _is_fresh(lease: LeaseSpec) -> bool:
    try:
        renewed = datetime.fromisoformat(lease.renew_time or "")
    except ValueError:
        return True
    return (datetime.now(UTC) - renewed).total_seconds() < _FRESH
