"""Removal of scheduling gates from planned pods, after the planned node is nominated.

If the scheduler reads its pods through Muster, Muster shows it the planned pods. Only two writes are then
needed: gates are removed, and the node is nominated for pods that bind volumes or devices late. The scheduler
tries a nominated node first, and tries no other node if the pod fits.

If a pod has no gate of Muster, the scheduler may have marked it as unschedulable. Then an annotation of the
pod is changed once for every plan, so that the scheduler tries the pod again.
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

_Action = tuple[str, str]  # the action for a pod, and the planned node of the pod


class SchedulingGatesController(Controller[GroupKey]):
    """Controller that lets the scheduler place planned pods."""

    name = "scheduling-gates"

    def prepare(self) -> None:
        self._lock = threading.Lock()
        self._last_actions: dict[GroupKey, dict[Uid, _Action]] = {}

    def due_keys(self, decisions: Decisions) -> Iterable[GroupKey]:
        return self._changed_groups.since_last_call(decisions)

    def on_stopped_leading(self) -> None:
        with self._lock:
            self._last_actions.clear()

    def reconcile(self, key: GroupKey) -> None:
        """Remove the gate of each planned pod once. If a pod has no gate, make the scheduler try it again.

        With the scheduler proxy, the nomination of the planned node does that.
        """
        claims = self._ledger.claims_to_release([key])
        with self._lock:
            old_actions = self._last_actions.pop(key, {})
            if claims:
                uids = (claim.pod.uid for claim in claims)
                self._last_actions[key] = {uid: old_actions[uid] for uid in uids if uid in old_actions}
        for claim in claims:
            pod, node, has_proxy = claim.pod, claim.node, self._ledger.shown_pods.is_on
            if pod.is_gated:
                self._write_once(pod, ("open", ""), partial(self._remove_gate, pod, node))
            elif has_proxy and lacks_nomination(pod, node):
                nominate = partial(self._cluster.nominate, pod.namespace, pod.name, pod.uid, node)
                self._write_once(pod, ("nominate", node), nominate)
            elif pod.unschedulable and not has_proxy:
                token = f"{node}-{claim.stage_since:.3f}"
                request_retry = partial(self._cluster.trigger_retry, pod.namespace, pod.name, pod.uid, token)
                self._write_once(pod, ("nudge", node), request_retry)

    def _write_once(self, pod: PodRecord, action: _Action, request: Callable[[], None]) -> None:
        """Submit a write for a pod, unless the pod's last action was the same."""
        with self._lock:
            last_actions = self._last_actions[pod.group]
            if last_actions.get(pod.uid) == action:
                return
            last_actions[pod.uid] = action
        self.write(pod.group, request, target=pod.uid, on_failure=partial(self._forget_action, pod, action))

    def _forget_action(self, pod: PodRecord, action: _Action) -> None:
        with self._lock:
            last_actions = self._last_actions.get(pod.group, {})
            if last_actions.get(pod.uid) == action:
                del last_actions[pod.uid]

    def _remove_gate(self, pod: PodRecord, node: str) -> None:
        """Remove the gate of a pod.

        Before, nominate the planned node. This is not necessary if the pod needs no barrier, or if the
        scheduler reads its pods through Muster.
        """
        needs_no_nomination = self._ledger.shown_pods.is_on or self._ledger.groups.needs_no_barrier(pod.group)
        if not needs_no_nomination and pod.nominated_node != node:
            self._cluster.nominate(pod.namespace, pod.name, pod.uid, node)
        self._cluster.open_gate(pod.namespace, pod.name, pod.uid)


class Releaser:
    """Listener that shows planned pods to a scheduler that reads its pods through Muster.

    After each cycle, new planned pods are shown. While another replica leads, no pod is shown.
    """

    def __init__(self, ledger: Ledger, leads: Callable[[], bool]) -> None:
        self._shown_pods = ledger.shown_pods
        self._leads = leads
        self._guard = FaultGuard("releases")

    def on_decisions(self, _: Decisions) -> None:
        if not self._leads():
            self._shown_pods.take_all_back()
            return
        for key in self._shown_pods.due_groups():
            if not self._guard.run(key, partial(self._shown_pods.release, key)):
                self._shown_pods.postpone(key)
