"""Coexistence with Kueue, Volcano and the admission policies of the cluster, which Muster polls.

While Volcano's own scheduler runs, pods with schedulerName `volcano` belong to Volcano: Muster does not
evaluate or report their groups, and refuses the scheduler's calls for them. Muster removes its own gate from
these pods, since nothing else would remove it.

Once Volcano's scheduler has ended, these pods belong to Muster again if `volcano` is one of Muster's
scheduler names. While Volcano's scheduler runs, it also handles groups without members, and writes the
numbers in the status of queues, whatever Muster's scheduler names are.
"""

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

from extender.api.keys import ENDED_PHASES, VOLCANO_LEASE, VOLCANO_SCHEDULER
from extender.api.objects.cluster import LeaseSpec, age_of, duration_of
from extender.api.objects.pods import Pod
from extender.controllers.controller import Controller, ControllerContext
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.records import Uid
from extender.domain.snapshot.decisions import Decisions
from extender.kube.calls import AUTHORS_POLICIES, MARKERS_POLICY, USES_POLICY, ApiClient
from extender.kube.errors import ApiError, Forbidden, NotFound
from extender.kube.resources import KUEUE_LOCAL_QUEUES
from extender.kube.writers import Poller
from extender.telemetry.logs import logger

log = logger(__name__)

# Durations in seconds.
PERIOD = 30.0  # between two polls of the same fact
_RETRY_PERIOD = 2.0  # until the next poll after a failed poll, while the fact is unknown
_MAX_START_WAIT = 1.0  # longest wait for the first poll at the start
_LEASE_PERIOD = 5.0  # between two polls of Volcano's Lease
_MAX_LEASE_AGE = 60.0  # maximum age, by the wall clock, of a Lease that counts as alive at the first poll
_GATES_PERIOD = 1.0  # between two searches for pods of Volcano with Muster's gate
_GATE_RETRY_PAUSE = 30.0  # until the removal of a gate is repeated if the gate is still present

VOLCANO = "volcano"  # the schedulerName of Volcano's pods


class PolledFact(Poller):
    """Fact about the cluster that Muster polls at intervals.

    Attributes:
        name: Name of the polling thread.
        failure_message: Warning that is logged when a poll fails.
        is_true: Whether the fact was true at the last successful poll; None before the first successful poll.
    """

    name: str
    failure_message: str

    def __init__(self, ledger: Ledger, cluster: ApiClient) -> None:
        self._ledger = ledger
        self._cluster = cluster
        self.is_true: bool | None = None  # None until a poll has succeeded
        super().__init__(self.name, PERIOD, self.poll)

    def ask(self) -> bool:
        """Return whether the fact is true now.

        Raises:
            ApiError: The API server does not answer.
        """
        raise NotImplementedError

    def on_polled(self, was_true: bool | None) -> None:
        """Apply `is_true` after each successful poll; `was_true` is its value at the previous poll."""
        raise NotImplementedError

    def start(self, patience: float = _MAX_START_WAIT) -> None:
        super().start(patience)

    def poll(self) -> float | None:
        """Poll the fact once.

        Returns:
            The seconds until the next poll if no poll has succeeded yet; None means the usual period.
        """
        try:
            was_true, self.is_true = self.is_true, self.ask()
        except ApiError as fault:
            log.warning(self.failure_message, error=str(fault))
        else:
            self.on_polled(was_true)
        return _RETRY_PERIOD if self.is_true is None else None


class KueuePresence(PolledFact):
    """Presence of Kueue: whether the cluster serves Kueue's LocalQueues.

    If so, a Kueue label that names no LocalQueue of Muster is meant for a LocalQueue of Kueue. Until the
    first poll has succeeded, groups with such a label wait.
    """

    name = "kueue"
    failure_message = "cannot check whether the cluster has Kueue"

    def ask(self) -> bool:
        return any(self._cluster.serves(resource, timeout=PERIOD) for resource in KUEUE_LOCAL_QUEUES)

    def on_polled(self, was_true: bool | None) -> None:
        is_served = bool(self.is_true)
        if is_served is not bool(was_true):
            log.info("Kueue labels that name no LocalQueue of Muster", left_to_kueue=is_served)
        self._ledger.intake.record_kueue(is_served)


class MarkerTrust(PolledFact):
    """Trust in Muster's annotations on PodGroups: whether an admission policy lets only Muster write them.

    A PodGroup has no status subresource. A user with the right to change a PodGroup can therefore also write
    that the group has fully run, or which queue admitted the group. An admission policy
    (manifests/marks.yaml) prevents this. Without the policy, and until the first poll has succeeded, Muster
    relies only on its own observations since its start.
    """

    name = "marks"
    failure_message = "cannot check whether marks are protected"

    def ask(self) -> bool:
        return self._cluster.enforces(MARKERS_POLICY, timeout=PERIOD)

    def on_polled(self, was_true: bool | None) -> None:
        is_protected = bool(self.is_true)
        if is_protected is not was_true:
            log_line = log.info if is_protected else log.warning
            log_line("protection of the marks on PodGroups", markers=self.text())
        self._ledger.intake.trust_markers(is_protected)

    def text(self) -> str:
        if self.is_true is None:
            return "not known yet whether the API server protects them"
        if self.is_true:
            return "protected by the API server: only Muster can write them"
        return "not protected, so they are not trusted: kubectl apply -f manifests/marks.yaml"


class UseTrust(PolledFact):
    """Trust in records of the right to use a restricted queue: whether the API server checks these records.

    If the API server does not check them, or until the first poll has succeeded, no group starts in a
    restricted queue.
    """

    name = "uses"
    failure_message = "cannot check whether records of permitted users are protected"

    def ask(self) -> bool:
        return self._cluster.enforces(USES_POLICY, timeout=PERIOD)

    def on_polled(self, was_true: bool | None) -> None:
        if self.is_true is not was_true:
            log.info("records of users of restricted queues", trusted=self.is_true)
        self._ledger.intake.trust_uses(bool(self.is_true))


class AuthorTrust(PolledFact):
    """Trust in records of authors: whether the API server refuses records with the names of other users.

    If the API server does not refuse them, or until the first poll has succeeded, the author of every object
    is unknown.
    """

    name = "authors"
    failure_message = "cannot check whether records of authors are protected"

    def ask(self) -> bool:
        return all(self._cluster.enforces(policy, timeout=PERIOD) for policy in AUTHORS_POLICIES)

    def on_polled(self, was_true: bool | None) -> None:
        if self.is_true is not was_true:
            log.info("records of authors of objects", trusted=self.is_true)
        self._ledger.intake.trust_authors(bool(self.is_true))


def is_on_node(pod: Pod) -> bool:
    """Return whether a pod is on a node and has not ended."""
    return bool(pod.spec.node_name) and pod.status.phase not in ENDED_PHASES


class VolcanoProgram:
    """Program of Volcano, such as its scheduler, with the knowledge whether it runs in the cluster.

    The program works while a pod with its label is on a node and has not ended, even if the pod is being
    deleted. If the program runs outside of pods, its Lease is the only sign of it. Only a program that was
    configured to elect a leader has a Lease; Volcano's release does not configure this.

    A Lease is alive while it keeps changing. A Lease that is read for the first time is alive if it was
    renewed recently. `on_change` is called whenever `is_working` may have changed.
    """

    def __init__(
        self,
        cluster: ApiClient,
        namespace: str,
        label: tuple[str, str],
        lease: str,
        clock: Callable[[], float],
        on_change: Callable[[], object] = lambda: None,
    ) -> None:
        self._cluster, self._namespace = cluster, namespace
        self._label, self._lease_name = label, lease
        self._clock, self._on_change = clock, on_change
        self._lock = threading.Lock()  # different threads see the pods and read the Lease
        self._pods: dict[str, str] = {}  # names of the program's working pods, by UID
        self._lease: LeaseSpec | None = None
        self._alive_until = 0.0  # monotonic time until which the Lease is alive
        self._poller = Poller(f"lease-{lease}", _LEASE_PERIOD, self.look_at_lease)
        self.has_polled = False  # whether a poll has succeeded

    def start(self) -> None:
        """Start to poll the Lease, and wait a short time for the first answer."""
        self._poller.start(_MAX_START_WAIT)

    def stop(self) -> None:
        self._poller.stop()

    @property
    def is_working(self) -> bool:
        """Return whether the program works; True also until the first poll has succeeded."""
        return not self.has_polled or bool(self._pods) or self._clock() < self._alive_until

    @property
    def text(self) -> str:
        """Return the name of a pod of the program, or else the holder of its Lease, if known."""
        holder = (self._lease.holder_identity if self._lease else None) or "not known yet"
        return next(iter(self._pods.copy().values()), holder)

    def see_pod(self, pod: Pod) -> None:
        """Record whether a pod of the program works."""
        meta, (label, value) = pod.metadata, self._label
        if meta.namespace != self._namespace:
            return
        with self._lock:
            if (meta.labels or {}).get(label) == value:
                if is_on_node(pod):
                    self._pods[meta.uid] = meta.name
                else:
                    self._pods.pop(meta.uid, None)
            self._on_change()

    def forget_pod(self, uid: Uid, namespace: str) -> None:
        if namespace == self._namespace:
            with self._lock:
                self._pods.pop(uid, None)
                self._on_change()

    def look_at_lease(self) -> None:
        """Read the Lease of Volcano's program, and record until when the Lease counts as alive."""
        asked_at = self._clock()
        try:
            lease = self._cluster.lease(self._namespace, self._lease_name, timeout=_LEASE_PERIOD).spec
        except (NotFound, Forbidden) as fault:
            lease = None
            if isinstance(fault, Forbidden):
                log.warning("cannot check whether Volcano is running", error=str(fault))
        except ApiError as fault:
            log.debug("the Lease of Volcano could not be read", error=str(fault))
            return
        with self._lock:
            if lease is None or not lease.holder_identity:
                self._alive_until = asked_at
            elif lease != self._lease:
                age = None if self._lease else age_of(lease, time.time())
                if age is None or age < _MAX_LEASE_AGE:
                    self._alive_until = asked_at + duration_of(lease)
            self._lease = lease
            self.has_polled = True
            self._on_change()


class VolcanoCoexistence(Controller[Uid]):
    """Controller that leaves Volcano's pods to Volcano's scheduler while this scheduler runs.

    The feed passes pods to `scheduler`, too. Until the first poll of the Lease, Muster leaves the pods alone.
    `start` waits a short time for this poll, so that Muster knows who schedules the pods before it reads
    them.
    """

    name = "volcano-coexistence"

    def __init__(self, context: ControllerContext, namespace: str) -> None:
        super().__init__(context)
        self.scheduler = VolcanoProgram(
            self._cluster, namespace, VOLCANO_SCHEDULER, VOLCANO_LEASE, context.clock, self._apply_presence
        )

    def prepare(self) -> None:
        self._is_yielding = False
        self._next_search_at = 0.0

    def start(self) -> None:
        self._yield_to_volcano(True)
        self.scheduler.start()

    def stop(self) -> None:
        self.scheduler.stop()

    def text(self) -> str:
        """Return a status line."""
        if not self._is_yielding:
            return "no scheduler of Volcano is at work"
        return f"pods of schedulerName {VOLCANO} are left to its own scheduler ({self.scheduler.text})"

    def _apply_presence(self) -> None:
        if self.scheduler.has_polled:
            self._yield_to_volcano(self.scheduler.is_working)

    def _yield_to_volcano(self, yields: bool) -> None:
        """Leave Volcano's pods to Volcano's scheduler, or let Muster schedule them again."""
        if yields is self._is_yielding:
            return
        self._is_yielding = yields
        self._ledger.pods.set_unmanaged(frozenset({VOLCANO} if yields else ()))
        if self.scheduler.has_polled:
            text = "Volcano's pods are left to Volcano" if yields else "Volcano's pods are served by Muster"
            log.info(text)

    def due_keys(self, _: Decisions) -> Iterator[Uid]:
        """Yield, at intervals, the pods of Volcano's scheduler that still have Muster's gate."""
        if not self._is_yielding or self._clock() < self._next_search_at:
            return
        self._next_search_at = self._clock() + _GATES_PERIOD
        yield from (pod.uid for pod in self._ledger.pods.gated_unmanaged_pods() if pod.uid not in self._queue)

    def reconcile(self, uid: Uid) -> None:
        pod = self._ledger.pods.get(uid)
        if pod is not None and pod.is_gated and self._is_yielding:
            self._queue.add(uid, _GATE_RETRY_PAUSE)
            self.write(uid, partial(self._cluster.open_gate, pod.namespace, pod.name, pod.uid))
