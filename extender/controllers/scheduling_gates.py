"""Removal of scheduling gates from planned pods, after the planned node is nominated.

If the scheduler reads its pods through Muster, planned pods are shown there, and nothing is written. The
scheduler tries a nominated node first, and no other if the pod fits. A pod without Muster's gate that the
scheduler has parked as unschedulable is changed in an annotation, once for every plan, to make it try again.
"""

import threading
from collections.abc import Callable, Iterable
from functools import partial

from extender.controllers.controller import Controller
from extender.controllers.cycle import FaultGuard
from extender.domain.ledger.ledger import Ledger
from extender.domain.ledger.releases import lacks_nomination
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.snapshot.decisions import Decisions

_Act = tuple[str, str]  # the act for a pod, and its planned node


class SchedulingGatesController(Controller[GroupKey]):
    name = "scheduling-gates"

    def prepare(self) -> None:
        self._lock = threading.Lock()
        self._done: dict[GroupKey, dict[Uid, _Act]] = {}

    def due_keys(self, decisions: Decisions) -> Iterable[GroupKey]:
        return self._changed_groups.since_last_call(decisions)

    def on_stopped_leading(self) -> None:
        with self._lock:
            self._done.clear()

    def reconcile(self, key: GroupKey) -> None:
        """Remove the gate, once, of every planned pod that the scheduler has not asked about yet."""
        planned = self._ledger.claims_to_release([key])
        with self._lock:
            before = self._done.pop(key, {})
            if planned:
                uids = (claim.pod.uid for claim in planned)
                self._done[key] = {uid: before[uid] for uid in uids if uid in before}
        for claim in planned:
            pod, node, is_shown = claim.pod, claim.node, self._ledger.shown.is_on
            if pod.gated:
                self._act_once(pod, ("open", ""), partial(self._remove_gate, pod, node))
            elif is_shown and lacks_nomination(pod, node):
                nominate = partial(self._cluster.nominate, pod.namespace, pod.name, pod.uid, node)
                self._act_once(pod, ("nominate", node), nominate)
            elif pod.unschedulable and not is_shown:
                token = f"{node}-{claim.since:.3f}"
                nudge = partial(self._cluster.trigger_retry, pod.namespace, pod.name, pod.uid, token)
                self._act_once(pod, ("nudge", node), nudge)

    def _act_once(self, pod: PodRecord, act: _Act, request: Callable[[], None]) -> None:
        """Submit a write for a pod, unless this act was its last one."""
        with self._lock:
            done = self._done[pod.group]
            if done.get(pod.uid) == act:
                return
            done[pod.uid] = act
        self.write(pod.group, request, target=pod.uid, undone=partial(self._forget_act, pod, act))

    def _forget_act(self, pod: PodRecord, act: _Act) -> None:
        with self._lock:
            done = self._done.get(pod.group, {})
            if done.get(pod.uid) == act:
                del done[pod.uid]

    def _remove_gate(self, pod: PodRecord, node: str) -> None:
        is_alone = self._ledger.shown.is_on or self._ledger.groups.needs_no_barrier(pod.group)
        if not is_alone and pod.nominated != node:
            self._cluster.nominate(pod.namespace, pod.name, pod.uid, node)
        self._cluster.open_gate(pod.namespace, pod.name, pod.uid)


class Releaser:
    """Releases planned pods to the scheduler that reads its pods through Muster.

    Pods are released after each cycle. While another replica leads, no pod is shown.
    """

    def __init__(self, ledger: Ledger, leads: Callable[[], bool]) -> None:
        self._shown = ledger.shown
        self._leads = leads
        self._guard = FaultGuard("releases")

    def on_decisions(self, _: Decisions) -> None:
        if not self._leads():
            self._shown.take_all_back()
            return
        for key in self._shown.due_groups():
            if not self._guard.run(key, partial(self._shown.release, key)):
                self._shown.postpone(key)
