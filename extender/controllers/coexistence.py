"""What else is at work in the cluster, looked up at intervals: Volcano's own scheduler, Kueue, and the
policy that lets only Muster write its marks.
"""

import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial

from extender.api.keys import ENDED_PHASES
from extender.api.objects.cluster import LeaseSpec
from extender.api.objects.pods import Pod
from extender.controllers.controller import Controller, ControllerContext
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.records import PodRecord, Uid
from extender.domain.snapshot.decisions import Decisions
from extender.kube.calls import ApiClient
from extender.kube.errors import ApiError, Forbidden, NotFound
from extender.kube.resources import KUEUE_LOCAL_QUEUES
from extender.kube.writers import Poller
from extender.telemetry import metrics
from extender.telemetry.logs import logger

# ---- Whether a Lease is held and renewed. `now` is in seconds since 1970, by the clock of the caller.

_DURATION = 15.0  # seconds, for a Lease that names no duration


def duration_of(lease: LeaseSpec) -> float:
    return lease.lease_duration_seconds or _DURATION


def age_of(lease: LeaseSpec, now: float) -> float | None:
    """Seconds since its renewal, negative when its holder's clock is ahead; None if it has no valid time of
    renewal."""
    try:
        return now - datetime.fromisoformat(lease.renew_time or "").timestamp()
    except ValueError:
        return None


def lively(lease: LeaseSpec, now: float) -> bool:
    """Whether the Lease has a holder that renewed it in time, by that clock."""
    age = age_of(lease, now)
    return bool(lease.holder_identity) and age is not None and age < duration_of(lease)


# ---- A fact about the cluster that is looked up at intervals, and that Muster can start without.

log = logger(__name__)

PERIOD = 30.0  # seconds between two looks
_SOON = 2.0  # seconds after a look that failed, while nothing is known
_PATIENCE = 1.0  # seconds that the start waits for the first look


class PolledFact:
    """Subclasses say what it is. `name`: of the thread; `unknown`: what is logged when a look fails."""

    name: str
    unknown: str

    def __init__(self) -> None:
        self.holds: bool | None = None  # None: no look has succeeded yet
        self._poller = Poller(self.name, PERIOD, self._poll)

    def ask(self) -> bool:
        """Whether it holds now. Raises ApiError."""
        raise NotImplementedError

    def learn(self, before: bool | None) -> None:
        """What follows from `holds`, after each look that succeeded; it was `before` until then."""
        raise NotImplementedError

    def start(self) -> None:
        self._poller.start(_PATIENCE)

    def stop(self) -> None:
        self._poller.stop()

    def look(self) -> None:
        try:
            holds = self.ask()
        except ApiError as fault:
            log.warning(self.unknown, error=str(fault))
            return
        before, self.holds = self.holds, holds
        self.learn(before)

    def _poll(self) -> float | None:
        self.look()
        return _SOON if self.holds is None else None


# ---- Whether the cluster has Kueue's own LocalQueues: then a label of Kueue's that names none of ours
# is meant for one of those.


class KueuePresence(PolledFact):
    """Until the first look has succeeded, groups with such a label wait."""

    name = "kueue"
    unknown = "cannot check whether the cluster has Kueue"

    def __init__(self, ledger: Ledger, cluster: ApiClient) -> None:
        super().__init__()
        self._ledger = ledger
        self._cluster = cluster

    def ask(self) -> bool:
        return any(self._cluster.serves(each, timeout=PERIOD) for each in KUEUE_LOCAL_QUEUES)

    def learn(self, before: bool | None) -> None:
        served = bool(self.holds)
        if served is not bool(before):
            log.info("labels of Kueue that name no LocalQueue of Muster", left_to_kueue=served)
        self._ledger.intake.note_kueue(served)


# ---- Whether marks on PodGroups may be trusted: only while the API server lets only Muster write them.
#
# A PodGroup has no status subresource, so a user who may change one may also write into it that it
# stood whole, or which queue took it in. An admission policy (manifests/marks.yaml) prevents that.
# Muster checks at intervals whether the policy is in force; without it, Muster relies only on what it
# has seen since it started.

_KEPT = "protected by the API server: only Muster can write them"
_NOT_KEPT = "not protected, so they are not trusted: kubectl apply -f manifests/marks.yaml"
_NOT_KNOWN = "not known yet whether the API server protects them"


class MarkTrust(PolledFact):
    """Until the first look has succeeded, marks do not count."""

    name = "marks"
    unknown = "cannot check whether marks are protected"

    def __init__(self, ledger: Ledger, cluster: ApiClient) -> None:
        super().__init__()
        self._ledger = ledger
        self._cluster = cluster

    def ask(self) -> bool:
        return self._cluster.keeps_marks(timeout=PERIOD)

    def learn(self, before: bool | None) -> None:
        kept = bool(self.holds)
        if kept is not before:
            write = log.info if kept else log.warning
            write("protection of the marks on PodGroups", marks=self.text())
        self._ledger.intake.trust_marks(kept)

    def text(self) -> str:
        """One line for people."""
        if self.holds is None:
            return _NOT_KNOWN
        return _KEPT if self.holds else _NOT_KEPT


# ---- Whether Volcano's own scheduler is at work.
#
# It is while one of its pods is on a node and has not ended, even if the pod is being deleted. It holds
# a Lease only if it was configured to elect a leader, which its release does not do; if it runs outside
# of pods, that Lease is the only sign. A Lease is alive while it changes; one seen for the first time
# is alive if it was renewed recently.

LEASE = "volcano"
POD_LABEL = ("app", "volcano-scheduler")
_FRESH = 60.0  # the most seconds, by wall clock, since the renewal of a live Lease seen for the first time


class VolcanoScheduler:
    """`namespace` is that of Volcano's pods and Lease; `clock` is monotonic, in seconds."""

    def __init__(self, namespace: str, clock: Callable[[], float]) -> None:
        self.namespace = namespace
        self._clock = clock
        self._pods: dict[Uid, str] = {}
        self._lease: LeaseSpec | None = None
        self._until = 0.0

    @property
    def is_at_work(self) -> bool:
        return bool(self._pods) or self._clock() < self._until

    @property
    def name(self) -> str:
        """The name of its pod, or otherwise the holder of its Lease, as far as that is known."""
        holder = (self._lease.holder_identity if self._lease else None) or "not known yet"
        return next(iter(self._pods.values()), holder)

    def see_pod(self, pod: Pod) -> None:
        label, value = POD_LABEL
        meta = pod.metadata
        if meta.namespace != self.namespace or (meta.labels or {}).get(label) != value:
            return
        if works(pod):
            self._pods[Uid(meta.uid)] = meta.name
        else:
            self.forget_pod(Uid(meta.uid))

    def forget_pod(self, uid: Uid) -> None:
        self._pods.pop(uid, None)

    def see_lease(self, lease: LeaseSpec, asked: float, wall: float) -> None:
        """`asked`: when the request for it was sent. `wall`: the time now, in seconds since 1970."""
        if not lease.holder_identity:
            self._until = asked
        elif lease != self._lease and (self._lease is not None or _is_fresh(lease, wall)):
            self._until = asked + duration_of(lease)
        self._lease = lease

    def miss_lease(self, asked: float) -> None:
        """There is no Lease."""
        self._lease, self._until = None, asked


def works(pod: Pod) -> bool:
    """Whether a pod is on a node and has not ended."""
    return bool(pod.spec.node_name) and pod.status.phase not in ENDED_PHASES


def _is_fresh(lease: LeaseSpec, wall: float) -> bool:
    """Whether a Lease was renewed recently, or has no time of renewal."""
    age = age_of(lease, wall)
    return age is None or age < _FRESH


# ---- Pods of schedulerName `volcano` are left alone while Volcano's own scheduler is at work.
#
# They are then not ours: their groups are not judged or reported, calls for them are refused, and our
# gate is removed, since nothing else would remove it. What they hold on nodes counts like that of any
# other pod. Once the scheduler has ended, they are ours again if `volcano` is one of our scheduler
# names. Even if it is not, groups without members and the numbers of queues are left to Volcano
# meanwhile.

VOLCANO = "volcano"
_PERIOD = 5.0  # seconds between two looks at the Lease
_GATES_EVERY = 1.0  # seconds between two searches for gates
_AGAIN = 30.0  # seconds after which a gate that is still there is removed again
_LOOK_PATIENCE = 1.0  # seconds that the start waits for the first look


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
        self._poller.start(_LOOK_PATIENCE)

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
        self._ledger.pods.leave(frozenset({VOLCANO} if yields else ()))
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
        yield from (pod.uid for pod in self._ledger.pods.left_gated() if pod.uid not in self._queue)

    def reconcile(self, uid: Uid) -> None:
        pod = self._ledger.pods.get(uid)
        if pod is not None and pod.gated and self._yields:
            self._queue.add(uid, _AGAIN)
            self.write(uid, partial(self._remove_gate, pod))

    def _remove_gate(self, pod: PodRecord) -> None:
        self._cluster.open_gate(pod.namespace, pod.name, pod.uid)
        metrics.gates_opened.inc()
