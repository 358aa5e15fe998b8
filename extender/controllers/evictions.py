"""Eviction of pods: bound members of failed starts, and victims that free capacity for other groups.

The Eviction API decides whether a pod is evicted. If a disruption budget refuses an eviction, an Event says
so. Only a victim of a reclaim is deleted instead, if its queue does not honour disruption budgets.

Evictions of the members of a failed start are repeated as long as the decision says so. After a refused
reclaim, the next decision chooses other victims. Evictions use the same writers as statuses, and never delay
the removal of a gate.
"""

from collections.abc import Iterable, Mapping
from functools import partial

from extender.api.keys import DISRUPTION_TARGET
from extender.api.objects.base import Condition, Reference
from extender.controllers.controller import RecordingController
from extender.controllers.events import WARNING
from extender.controllers.objects import group_reference, pod_reference, with_transition_time
from extender.controllers.queue_status import record_reclaims
from extender.domain.model.evictions import LOSS_CAUSES, EvictionCause
from extender.domain.model.reasons import EventReason
from extender.domain.model.records import PodRecord, Uid
from extender.domain.snapshot.decisions import Decisions
from extender.kube.errors import ApiError, Conflict, NotFound, Refused
from extender.kube.writers import TokenBucket
from extender.telemetry import metrics
from extender.telemetry.logs import logger

log = logger(__name__)

_RETRY_PAUSE = 3.0  # seconds after which the eviction of a pod that still exists is repeated
_RATE, _BURST = 50.0, 200  # evictions per second, and at once
_SUSPENSION_TIMEOUT = 30.0  # seconds for which Muster waits for the suspension of the pod's job
_RATE_LIMIT_PAUSE = 0.2  # seconds until a pod beyond the rate limit is tried again

_EVENT_REASONS: Mapping[EvictionCause, EventReason] = {
    EvictionCause.RECLAIM: EventReason.RECLAIMED,
    EvictionCause.PREEMPT: EventReason.PREEMPTED,
    EvictionCause.BORROW: EventReason.PREEMPTED,
    EvictionCause.UNMANAGED: EventReason.PREEMPTED,
    EvictionCause.CONSOLIDATE: EventReason.CONSOLIDATED,
    EvictionCause.DRAIN: EventReason.DRAINED,
    EvictionCause.RESTART: EventReason.RESTARTED,
}
_OWN_PURPOSES: Mapping[EvictionCause, str] = {
    EvictionCause.UNDO: "because the start of its group failed",
    EvictionCause.DRAIN: "to drain its queue",
    EvictionCause.RESTART: "to restart its group elsewhere",
}
_MAIN_PURPOSE = "to free capacity for others"


class EvictionsController(RecordingController[Uid]):
    name = "evictions"
    pause = _RETRY_PAUSE

    def prepare(self) -> None:
        self._budget = TokenBucket(_RATE, _BURST, self._clock())
        self._wait_starts: dict[Uid, float] = {}  # since when each pod waits for its job's suspension
        self._pods_in_progress: set[Uid] = set()  # pods with an eviction in progress

    def on_stopped_leading(self) -> None:
        self._wait_starts.clear()
        self._pods_in_progress.clear()

    def due_keys(self, decisions: Decisions) -> Iterable[Uid]:
        """Yield the new victims, and the new bound members of failed starts."""
        self._wait_starts = {uid: at for uid, at in self._wait_starts.items() if uid in decisions.evictions}
        yield from filter(self._is_new, decisions.evictions)
        for key in self._changed_groups.since_last_call(decisions):
            if (decision := decisions.groups.get(key)) is not None:
                yield from filter(self._is_new, decision.undo)

    def _is_new(self, uid: Uid) -> bool:
        """Return whether the pod is neither due nor being evicted."""
        return uid not in self._queue and uid not in self._pods_in_progress

    def reconcile(self, uid: Uid) -> None:
        """Evict the pod if the newest decisions still contain the eviction."""
        pod, eviction = self._ledger.pods.get(uid), self._decisions.evictions.get(uid)
        is_slow = eviction is not None and eviction.is_slow
        if pod is None or (pod.deleting and not is_slow):
            return None
        if not pod.deleting and self._is_left_to_its_job(pod):
            return None
        decision = self._decisions.groups.get(pod.group)
        if eviction is not None:
            cause, why = eviction.victim.cause, eviction.why
        elif decision is not None and uid in decision.undo:
            cause, why = EvictionCause.UNDO, decision.detail
        else:
            return None
        if not self._budget.take(self._clock()):
            return self._queue.move(uid, _RATE_LIMIT_PAUSE)
        log.warning("evicting a pod", pod=pod.key, group=pod.group, cause=cause, why=why)
        self._pods_in_progress.add(uid)
        forget_progress = partial(self._pods_in_progress.discard, uid)
        self.write(uid, partial(self._evict, pod, cause, why), attempts=1, on_failure=forget_progress)

    def _is_left_to_its_job(self, pod: PodRecord) -> bool:
        """Return whether the pod's job is to be suspended, so that the pod needs no eviction.

        For a victim this is limited in time, since a user who changes the job all the time could prevent the
        suspension.
        """
        if not self._ledger.registry.has_job(pod.group):
            return False
        if pod.uid not in self._decisions.evictions:
            return True
        now = self._clock()
        return now < self._wait_starts.setdefault(pod.uid, now) + _SUSPENSION_TIMEOUT

    def _evict(self, pod: PodRecord, cause: EvictionCause, why: str) -> None:
        """Evict a pod, or delete it if disruption budgets do not protect it, and record an Event.

        Args:
            pod: The pod.
            cause: The cause of the eviction.
            why: The reason for the eviction, as a text for users.
        """
        queue_name = self._ledger.groups.queue_of(pod.group) if pod.group else ""
        queue = self._ledger.queues.info(queue_name) if queue_name else None
        protection = queue.protection if queue is not None and cause not in _OWN_PURPOSES else None
        grace_seconds, is_forced = None, False
        if protection is not None:  # disruption budgets do not protect terminating pods
            grace_seconds = protection.max_grace
            is_forced = cause is EvictionCause.RECLAIM and not (protection.honours_budgets or pod.deleting)
        remove = self._cluster.delete_pod if is_forced else self._cluster.evict
        if cause in LOSS_CAUSES and not pod.deleting:
            record_reclaims(self._ledger, self._cluster, queue_name)
        try:
            remove(pod.namespace, pod.name, pod.uid, grace_seconds)
        except NotFound:
            return self._pods_in_progress.discard(pod.uid)
        except ApiError as fault:
            metrics.evictions.labels("refused", cause).inc()
            log.warning(
                "an eviction was refused", pod=pod.key, group=pod.group, cause=cause, error=str(fault)
            )
            if cause not in _OWN_PURPOSES and isinstance(fault, Refused) and not isinstance(fault, Conflict):
                self._ledger.record_refused_eviction(pod.uid)
            message = f"{pod.name} has to be evicted {_OWN_PURPOSES.get(cause, _MAIN_PURPOSE)}, but: {fault}"
            for about in self._event_objects(pod):
                self._recorder.record(about, WARNING, EventReason.EVICTION_REFUSED, message)
            raise
        self._queue.move(pod.uid, _RETRY_PAUSE)  # otherwise the pod would count as new
        self._pods_in_progress.discard(pod.uid)
        if pod.deleting:  # the request has only shortened the grace period
            return
        metrics.evictions.labels("done", cause).inc()
        if (decision := self._decisions.groups.get(pod.group)) is not None:
            metrics.labelled_by_queue(metrics.queue_evictions, decision.queue, cause).inc()
        if cause in _EVENT_REASONS:
            self._record_event(pod, cause, why)

    def _record_event(self, pod: PodRecord, cause: EvictionCause, why: str) -> None:
        """Record the reason of an eviction in Events, and in a condition of the pod."""
        for about in self._event_objects(pod):
            self._recorder.record(about, WARNING, _EVENT_REASONS[cause], f"{pod.name} was evicted: {why}")
        # This condition replaces the API server's condition, which has less detail.
        condition = Condition(DISRUPTION_TARGET, "True", "PreemptionByScheduler", f"Muster: {why}")
        try:
            self._cluster.set_disrupted(
                pod.namespace, pod.name, pod.uid, with_transition_time(condition, None)
            )
        except ApiError as fault:  # the pod is gone already, or ends without the condition
            log.debug("a condition of a victim could not be written", pod=pod.key, error=str(fault))

    def _event_objects(self, pod: PodRecord) -> list[Reference]:
        group = self._ledger.groups.record(pod.group) if pod.group else None
        return [pod_reference(pod)] + ([group_reference(group)] if group else [])
