"""Releasing planned pods to the scheduler: nominate the planned node, open the gate, or nudge.

The nomination makes the scheduler look at that node first, and at no other if it fits; it is written before
the gate opens and never after. A pod without our gate that the scheduler has parked is nudged by one
annotation, once for every plan made for it.
"""

import threading
from collections.abc import Callable

from extender.controllers.actor import Actor
from extender.domain.cache.claims import Claim
from extender.domain.decisions.decisions import Decisions
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.kube.errors import ApiError
from extender.telemetry import metrics

Act = tuple[str, str]  # what was done for a pod, and for which planned node


class Releaser(Actor):
    def prepare(self) -> None:
        self._lock = threading.Lock()
        self._due: set[GroupKey] = set()
        self._done: dict[GroupKey, dict[Uid, Act]] = {}

    def look(self, decisions: Decisions) -> None:
        """Act on every planned pod that the scheduler has not taken up, once. Groups of which nothing changed
        are passed over."""
        with self._lock:
            self._due.update(self._turns.of(decisions))
            if not self._leads():
                return
            due, self._due = self._due, set()
        for key in due:
            self._look_at(key)

    def _look_at(self, key: GroupKey) -> None:
        planned = self._ledger.to_release([key])
        with self._lock:
            before = self._done.pop(key, {})
            if planned:
                uids = (claim.pod.uid for claim in planned)
                self._done[key] = {uid: before[uid] for uid in uids if uid in before}
        for claim in planned:
            self._release(claim)

    def _release(self, claim: Claim) -> None:
        pod = claim.pod
        if pod.gated:
            self._once(pod, ("open", ""), lambda: self._open(pod, claim.node))
        elif pod.unschedulable:
            self._once(pod, ("nudge", claim.node), lambda: self._nudge(pod, claim))

    def _once(self, pod: PodRecord, act: Act, write: Callable[[], None]) -> None:
        with self._lock:
            done = self._done[pod.group]
            if done.get(pod.uid) == act:
                return
            done[pod.uid] = act
        self._writers.submit(("release", pod.uid), write, lambda fault: self._ended(pod, act, fault))

    def _ended(self, pod: PodRecord, act: Act, fault: ApiError | None) -> None:
        """What was not written is due again with the next look."""
        if fault is None:
            return
        with self._lock:
            done = self._done.get(pod.group, {})
            if done.get(pod.uid) == act:
                del done[pod.uid]
            self._due.add(pod.group)

    def _open(self, pod: PodRecord, node: str) -> None:
        if not self._ledger.waits_for_nobody(pod.group) and pod.nominated != node:
            self._cluster.nominate(pod.namespace, pod.name, pod.uid, node)
        self._cluster.open_gate(pod.namespace, pod.name, pod.uid)
        metrics.gates_opened.inc()

    def _nudge(self, pod: PodRecord, claim: Claim) -> None:
        self._cluster.nudge(pod.namespace, pod.name, pod.uid, f"{claim.node}-{claim.since:.3f}")
