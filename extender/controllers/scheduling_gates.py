"""Removes scheduling gates from planned pods, and shows planned pods to the scheduler that reads them
through Muster.
"""

import threading
from collections.abc import Callable, Iterable
from functools import partial

from extender.controllers.controller import Controller
from extender.controllers.cycle import Guard
from extender.domain.ledger.claims import Claim
from extender.domain.ledger.ledger import Ledger
from extender.domain.ledger.releases import lacks_nomination
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.snapshot.decisions import Decisions
from extender.telemetry import metrics

# ---- Shows planned pods to the scheduler that reads its pods through Muster. Nothing is written to the
# API.


class Releaser:
    """Listens to the cycle. While another replica `leads`, nothing is shown."""

    def __init__(self, ledger: Ledger, leads: Callable[[], bool]) -> None:
        self._shown = ledger.shown
        self._leads = leads
        self._guard = Guard("releases")

    def look(self, _: Decisions) -> None:
        if not self._leads():
            self._shown.take_all_back()
            return
        for key in self._shown.due():
            if not self._guard.run(key, partial(self._shown.release, key)):
                self._shown.postpone(key)


# ---- Removes scheduling gates from planned pods: the planned node is nominated, then the gate is
# removed. Pods without a gate are nudged. Where the scheduler reads its pods through Muster, it is told
# of nodes there.
#
# The nomination makes the scheduler try that node first, and no other if the pod fits; it is written
# before the gate is removed and never after. A pod without our gate that the scheduler has parked as
# unschedulable is nudged by a change of an annotation, once for every plan made for it.

_Act = tuple[str, str]  # what was done for a pod, and for which planned node


class SchedulingGatesController(Controller[GroupKey]):
    name = "scheduling-gates"

    def prepare(self) -> None:
        self._lock = threading.Lock()
        self._done: dict[GroupKey, dict[Uid, _Act]] = {}

    def due(self, decisions: Decisions) -> Iterable[GroupKey]:
        return self._changed_groups.of(decisions)

    def rest(self) -> None:
        with self._lock:
            self._done.clear()

    def reconcile(self, key: GroupKey) -> None:
        """Act once on every planned pod that the scheduler has not asked about yet."""
        planned = self._ledger.to_release([key])
        with self._lock:
            before = self._done.pop(key, {})
            if planned:
                uids = (claim.pod.uid for claim in planned)
                self._done[key] = {uid: before[uid] for uid in uids if uid in before}
        for claim in planned:
            self._release(claim)

    def _release(self, claim: Claim) -> None:
        pod, is_shown = claim.pod, self._ledger.shown.is_on
        if pod.gated:
            self._once(pod, ("open", ""), partial(self._remove_gate, pod, claim.node))
        elif is_shown and lacks_nomination(pod, claim.node):
            self._once(pod, ("nominate", claim.node), partial(self._nominate, pod, claim.node))
        elif pod.unschedulable and not is_shown:
            self._once(pod, ("nudge", claim.node), partial(self._nudge, pod, claim))

    def _once(self, pod: PodRecord, act: _Act, job: Callable[[], None]) -> None:
        with self._lock:
            done = self._done[pod.group]
            if done.get(pod.uid) == act:
                return
            done[pod.uid] = act
        self.write(pod.group, job, of=pod.uid, undone=partial(self._undone, pod, act))

    def _undone(self, pod: PodRecord, act: _Act) -> None:
        with self._lock:
            done = self._done.get(pod.group, {})
            if done.get(pod.uid) == act:
                del done[pod.uid]

    def _remove_gate(self, pod: PodRecord, node: str) -> None:
        if self._needs_nomination(pod, node):
            self._nominate(pod, node)
        self._cluster.open_gate(pod.namespace, pod.name, pod.uid)
        metrics.gates_opened.inc()

    def _needs_nomination(self, pod: PodRecord, node: str) -> bool:
        if self._ledger.shown.is_on or self._ledger.groups.needs_no_barrier(pod.group):
            return False
        return pod.nominated != node

    def _nominate(self, pod: PodRecord, node: str) -> None:
        self._cluster.nominate(pod.namespace, pod.name, pod.uid, node)

    def _nudge(self, pod: PodRecord, claim: Claim) -> None:
        self._cluster.nudge(pod.namespace, pod.name, pod.uid, f"{claim.node}-{claim.since:.3f}")
