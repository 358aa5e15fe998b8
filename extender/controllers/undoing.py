"""Undoing starts that failed for good: the bound members of a group that never stood whole are evicted.

An eviction that a disruption budget refuses is asked for again, and told, for as long as the decision stands.
"""

from functools import partial

from extender.controllers.actor import Teller
from extender.controllers.recording import WARNING
from extender.controllers.references import of_group, of_pod
from extender.domain.decisions.decisions import Decisions, GroupDecision
from extender.domain.model.reasons import Happening
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.kube.errors import ApiError, NotFound
from extender.telemetry import metrics
from extender.telemetry.logs import logger

log = logger(__name__)

_AGAIN = 3.0


class Undoer(Teller):
    def prepare(self) -> None:
        self._undone: dict[GroupKey, GroupDecision] = {}
        self._asked: dict[Uid, float] = {}

    def look(self, decisions: Decisions) -> None:
        for key in self._turns.of(decisions):
            self._note(key, decisions.groups.get(key))
        if not self._leads():
            return
        wanted = {uid for decision in self._undone.values() for uid in decision.undo}
        self._asked = {uid: at for uid, at in self._asked.items() if uid in wanted}
        for decision in self._undone.values():
            self._undo(decision)

    def _note(self, key: GroupKey, decision: GroupDecision | None) -> None:
        if decision is not None and decision.undo:
            self._undone[key] = decision
        else:
            self._undone.pop(key, None)

    def _undo(self, decision: GroupDecision) -> None:
        for uid in decision.undo:
            pod = self._ledger.pod(uid)
            if pod is None or pod.deleting or self._clock() < self._asked.get(uid, 0.0):
                continue
            self._asked[uid] = self._clock() + _AGAIN
            log.warning("undoing a start", pod=pod.key, group=decision.key, why=decision.detail)
            self._writers.submit(("evict", uid), partial(self._evict, pod))

    def _evict(self, pod: PodRecord) -> None:
        try:
            self._cluster.evict(pod.namespace, pod.name, pod.uid)
        except NotFound:
            return
        except ApiError as fault:
            self._tell_of_refusal(pod, fault)
            raise
        metrics.evictions.labels("done").inc()

    def _tell_of_refusal(self, pod: PodRecord, fault: ApiError) -> None:
        metrics.evictions.labels("refused").inc()
        log.warning("an eviction was refused", pod=pod.key, group=pod.group, error=str(fault))
        told = f"{pod.name} is to go, since its group did not stand whole, but: {fault}"
        group = self._ledger.group_record(pod.group)
        for about in [of_pod(pod)] + ([of_group(group)] if group else []):
            self._recorder.tell(about, WARNING, Happening.EVICTION_REFUSED, told)
