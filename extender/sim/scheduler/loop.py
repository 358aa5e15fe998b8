"""Scheduling loop: it takes one pod at a time, filters the nodes, calls the extender, and binds the pod.

The pod's nominated node is tried first, then all nodes. If no node fits, pods of lower priority may be
preempted. The pod is then assumed on its node, and another thread binds it, because the extender holds the
call. Pods of profiles without an extender are placed as by the cluster's own scheduler.

A condition is written only if its message is new, so that a repeated refusal requeues no pods. A repeated
Event raises a count.
"""

import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from extender.apimachinery.errors import StatusError
from extender.apimachinery.kinds import PODS, Json
from extender.apimachinery.objects import condition, set_condition
from extender.apimachinery.service import Service
from extender.sim.scheduler.extender import Extender, ExtenderError
from extender.sim.scheduler.nodes import (
    PREEMPTION_REASON,
    Nodes,
    PodInfo,
    PostFilterResult,
    Rejection,
    Victims,
    best_candidate,
    feasible,
    fit_error,
    ineligibility,
    no_candidate,
    victims_by_candidate,
)
from extender.sim.scheduler.queue import Informer, QueuedPod, SchedulingQueue


class StatusRecorder:
    def __init__(self, service: Service) -> None:
        self._service = service

    def set_failed(self, pod: Json, reason: str, message: str, nominated_node: str | None = "") -> None:
        """Record that no node was found for a pod.

        An empty `nominated_node` removes the nomination; None means that it stays.
        """
        self._event(pod, "Warning", "FailedScheduling", "Scheduling", message)

        def change(status: Json) -> None:
            if nominated_node is not None:
                status.pop("nominatedNodeName", None)
            if nominated_node:
                status["nominatedNodeName"] = nominated_node
            set_condition(status, condition("PodScheduled", "False", reason, message))

        self.change_status(pod["metadata"], change)

    def set_scheduled(self, pod: Json, node: str) -> None:
        meta = pod["metadata"]
        record = f"Successfully assigned {meta['namespace']}/{meta['name']} to {node}"
        self._event(pod, "Normal", "Scheduled", "Binding", record)

    def evict(self, victim: Json, preemptor: Json, node: str) -> None:
        """Write the reason into the pod's condition, and delete the pod. Its kubelet ends it."""
        meta, scheduler = victim["metadata"], preemptor["spec"]["schedulerName"]
        message = f"{scheduler}: preempting to accommodate a higher priority pod"
        target = condition("DisruptionTarget", "True", PREEMPTION_REASON, message)
        self.change_status(meta, lambda status: set_condition(status, target))
        with suppress(StatusError):
            self._service.delete_this(PODS, meta)
        record = f"Preempted by pod {preemptor['metadata']['uid']} on node {node}"
        self._event(victim, "Normal", "Preempted", "Preempting", record, scheduler)

    def change_status(self, meta: Json, change: Callable[[Json], object]) -> None:
        def changed_status(pod: Json) -> Json:
            status = {**pod["status"]}
            change(status)
            return status

        with suppress(StatusError):
            self._service.set_status(PODS, meta, changed_status)

    def _event(self, pod: Json, type_: str, reason: str, action: str, record: str, source: str = "") -> None:
        self._service.record(pod, type_, reason, action, record, source or pod["spec"]["schedulerName"])


EXTENDED_PROFILES = frozenset({"muster", "volcano"})
PLAIN_PROFILES = frozenset({"default-scheduler"})


@dataclass(eq=False)
class Unschedulable(Exception):
    """Error: no node fits the pod."""

    rejections: Mapping[str, Rejection]  # by node, without nodes that the extender did not mention
    by_extender: bool  # whether the extender refused nodes, so that any event requeues the pod


class Scheduler:
    """Scheduler of the pods of several profiles.

    It calls the extender for pods of the profiles in `extended`, but not for pods of the profiles in `plain`.
    """

    def __init__(
        self,
        service: Service,
        extender: Extender,
        rng: random.Random | None = None,
        extended: frozenset[str] = EXTENDED_PROFILES,
        plain: frozenset[str] = PLAIN_PROFILES,
    ) -> None:
        self._service = service
        self._extender = extender
        self._rng = rng or random.Random()
        self._extended = extended
        self._lock = threading.RLock()
        self._nodes = Nodes()
        self._recorder = StatusRecorder(service)
        self.queue = SchedulingQueue()
        self._informer = Informer(service.store, self._nodes, self._lock, self.queue, extended | plain)
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    def start(self) -> None:
        self._informer.start()
        self._thread.start()

    def stop(self) -> None:
        self._informer.stop()
        self.queue.close()
        self._thread.join(1)
        self._extender.close()

    @property
    def busy(self) -> bool:
        return self.queue.busy or self._informer.is_behind

    def _run(self) -> None:
        while item := self.queue.pop():
            if "deletionTimestamp" in item.pod["metadata"]:
                self.queue.forget(item.uid)
                continue
            try:
                node = self._choose_node(item.pod)
            except Unschedulable as fault:
                self._refuse(item, fault)
            except ExtenderError as fault:
                self.queue.add_failed(item)
                self._recorder.set_failed(item.pod, "SchedulerError", str(fault))
            else:
                with self._lock:
                    self._nodes.place(item.pod, node)
                name = f"bind {item.uid}"
                threading.Thread(target=self._bind, args=[item, node], name=name, daemon=True).start()

    def _refuse(self, item: QueuedPod, fault: Unschedulable) -> None:
        """Handle a pod that fits no node: preempt other pods if that helps, and wait for a change."""
        with self._lock:
            node_count = len(self._nodes.names())
        if not node_count:
            self.queue.add_unschedulable(item, by_extender=False)
            return self._recorder.set_failed(item.pod, "Unschedulable", "no nodes available to schedule pods")
        outcome = self._preempt(item.pod, fault.rejections, node_count)
        self.queue.add_unschedulable(item, by_extender=fault.by_extender)
        reasons = Counter(reason for rejection in fault.rejections.values() for reason in rejection.reasons)
        message = f"{fit_error(node_count, reasons)} {outcome.message}".rstrip()
        self._recorder.set_failed(item.pod, "Unschedulable", message, outcome.node)
        if not outcome.node or not outcome.victims:
            return
        with self._lock:
            self._nodes.nominate(item.pod, outcome.node)
            lower_uids = self._nodes.lower_nominated_uids(self._nodes.pod_info(item.pod), outcome.node)
        pods_by_uid = {pod["metadata"]["uid"]: pod for pod in self._service.store.all(PODS)}
        # Pods of lower priority that were nominated to this node need another node.
        for meta in (pods_by_uid[uid]["metadata"] for uid in lower_uids if uid in pods_by_uid):
            self._recorder.change_status(meta, lambda status: status.pop("nominatedNodeName", None))
        for victim in outcome.victims:
            if victim.uid in pods_by_uid and "deletionTimestamp" not in pods_by_uid[victim.uid]["metadata"]:
                self._recorder.evict(pods_by_uid[victim.uid], item.pod, outcome.node)

    # ---- choosing

    def _choose_node(self, pod: Json) -> str:
        """Return a node for a pod: its nominated node if that fits, else the best of all nodes."""
        with self._lock:
            pod_info, names = self._nodes.pod_info(pod), self._nodes.names()
        earlier_rejections: Mapping[str, Rejection] = {}
        if (nominated_node := pod["status"].get("nominatedNodeName")) in names:
            try:
                return self._best(pod, pod_info, [nominated_node], {})
            except Unschedulable as fault:
                earlier_rejections = fault.rejections
            except ExtenderError:
                pass  # then try all nodes, as without a nomination
        return self._best(pod, pod_info, names, earlier_rejections)

    def _best(self, pod: Json, pod_info: PodInfo, names: list[str], earlier: Mapping[str, Rejection]) -> str:
        """Return the best node of `names`. `earlier` are the rejections by other calls in this attempt.

        Raises:
            Unschedulable: No node fits.
            ExtenderError: The call of the extender failed.
        """
        with self._lock:
            fit, rejections = feasible(self._nodes, pod_info, names)
        if not fit:
            raise Unschedulable({**earlier, **rejections}, by_extender=False)
        if self._is_extended(pod):
            filtered = self._extender.filter(pod, fit)
            if not filtered.nodes:
                raise Unschedulable({**earlier, **rejections, **filtered.rejections}, by_extender=True)
            fit = filtered.nodes
        if len(fit) == 1:
            return fit[0]
        with self._lock:  # choose the least loaded node, at random among equals
            remaining = [name for name in fit if name in self._nodes]
            scores = {name: round(100 * (1 - self._nodes.load(pod_info, name))) for name in remaining}
        if not remaining:
            raise Unschedulable({**earlier, **rejections}, by_extender=False)
        best_score = max(scores.values())
        return self._rng.choice([name for name in remaining if scores[name] == best_score])

    def _is_extended(self, pod: Json) -> bool:
        return pod["spec"]["schedulerName"] in self._extended

    def _preempt(self, pod: Json, rejections: Mapping[str, Rejection], node_count: int) -> PostFilterResult:
        """Return the victims for a pod that no node accepts, and the pod's nominated node."""
        with self._lock:
            pod_info = self._nodes.pod_info(pod)
            if reason := ineligibility(self._nodes, pod, pod_info, rejections):
                return PostFilterResult.refusal(reason)
            victims_by_node, refusals = victims_by_candidate(self._nodes, pod_info, rejections)
        if not victims_by_node:
            return no_candidate(node_count, refusals)
        try:
            return best_candidate(self._accepted_victims(pod, victims_by_node))
        except ExtenderError as fault:
            return PostFilterResult(None, message=f"preemption: {fault}")

    def _accepted_victims(self, pod: Json, victims_by_node: Mapping[str, Victims]) -> Mapping[str, Victims]:
        """Return the victims that the extender accepts, by node.

        Raises:
            ExtenderError: The call of the extender failed.
        """
        if not self._is_extended(pod):
            return victims_by_node
        proposals = {name: [victim.uid for victim in victims] for name, victims in victims_by_node.items()}
        accepted_victims: dict[str, Victims] = {}
        for name, uids in self._extender.preempt(pod, proposals).items():
            pods_by_uid = {pod_info.uid: pod_info for pod_info in self._nodes.pods_on(name)}
            if not (victims := [pods_by_uid[uid] for uid in uids if uid in pods_by_uid]):
                raise ExtenderError(f'expected at least one victim pod on node "{name}"')
            accepted_victims[name] = victims
        return accepted_victims

    def _bind(self, item: QueuedPod, node: str) -> None:
        """Bind a pod.

        The pod stays in the queue until the watch shows the binding. Otherwise an older event of the watch
        could add the bound pod again.
        """
        pod, meta = item.pod, item.pod["metadata"]
        try:
            if self._is_extended(pod) and self._extender.is_binder_of(pod):
                self._extender.bind(pod, node)
            else:
                binding = {"metadata": {"uid": meta["uid"]}, "target": {"kind": "Node", "name": node}}
                self._service.bind(meta["namespace"], meta["name"], binding)
        except (ExtenderError, StatusError) as fault:
            stored = self._service.store.get(PODS, meta["namespace"], meta["name"])
            if stored is None or stored["metadata"]["uid"] != item.uid or stored["spec"].get("nodeName"):
                return  # the pod was deleted, or the binding succeeded
            with self._lock:
                self._nodes.remove(item.uid)
            self.queue.requeue(excluded=item)  # its capacity is free again
            self.queue.add_failed(item)
            self._recorder.set_failed(pod, "SchedulerError", f"binding rejected: {fault}")
        else:
            self._recorder.set_scheduled(pod, node)
