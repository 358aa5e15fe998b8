"""Evicts the bound members of a start that failed for good: a group that never stood whole gives back its
room.

An eviction that a disruption budget refuses is reported by Events, and tried again after ever longer pauses
for as long as the decision stands. It never delays the removal of a gate: it shares its writers with
statuses.
"""

from collections.abc import Iterable
from functools import partial

from extender.controllers.controller import RecordingController
from extender.controllers.event_recorder import WARNING
from extender.controllers.references import of_group, of_pod
from extender.domain.decisions.decisions import Decisions
from extender.domain.model.reasons import EventReason
from extender.domain.model.records import PodRecord, Uid
from extender.kube.errors import ApiError, NotFound
from extender.telemetry import metrics
from extender.telemetry.logs import logger

log = logger(__name__)

_AGAIN = 3.0  # seconds after which a pod that is still there is evicted again


class EvictionsController(RecordingController[Uid]):
    name = "evictions"
    pause = _AGAIN

    def due(self, decisions: Decisions) -> Iterable[Uid]:
        for key in self._changed_groups.of(decisions):
            if (decision := decisions.groups.get(key)) is not None:
                yield from (uid for uid in decision.undo if uid not in self._queue)

    def reconcile(self, uid: Uid) -> None:
        pod = self._ledger.pod(uid)
        decision = self._decisions.groups.get(pod.group) if pod is not None else None
        if pod is None or pod.deleting or decision is None or uid not in decision.undo:
            return self._queue.settle(uid)
        log.warning("undoing a start", pod=pod.key, group=decision.key, why=decision.detail)
        self.write(uid, partial(self._evict, pod), attempts=1)

    def _evict(self, pod: PodRecord) -> None:
        try:
            self._cluster.evict(pod.namespace, pod.name, pod.uid)
        except NotFound:
            return
        except ApiError as fault:
            self._report_refusal(pod, fault)
            raise
        metrics.evictions.labels("done").inc()
        self._queue.move(pod.uid, _AGAIN)

    def _report_refusal(self, pod: PodRecord, fault: ApiError) -> None:
        metrics.evictions.labels("refused").inc()
        log.warning("an eviction was refused", pod=pod.key, group=pod.group, error=str(fault))
        message = f"{pod.name} has to be evicted because the start of its group failed, but: {fault}"
        group = self._ledger.group_record(pod.group)
        for about in [of_pod(pod)] + ([of_group(group)] if group else []):
            self._recorder.record(about, WARNING, EventReason.EVICTION_REFUSED, message)
