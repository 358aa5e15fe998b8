"""State of the cluster at one time, for the screen: queues, gangs, other pods, nodes."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from extender.api.keys import DEFAULT_QUEUE, ENDED_PHASES, ROOT_QUEUE
from extender.api.objects.cluster import Namespace, Node
from extender.api.objects.pods import Pod
from extender.api.objects.queues import LocalQueue, Queue
from extender.apimachinery.kinds import LOCAL_QUEUES, NAMESPACES, NODES, POD_GROUPS, PODS, QUEUES, Json
from extender.apimachinery.objects import typed
from extender.apimachinery.store import Store
from extender.domain.explain.observed_objects import ObservedGroup
from extender.domain.model.ownership import auto_group_name, group_name
from extender.domain.model.queue_of_group import namespace_queue
from extender.domain.model.reasons import Verdict
from extender.domain.model.resources import CPU, offered, pod_requests, total
from extender.domain.queues.local_queues import QueueRoutes, records_by_key
from extender.domain.queues.quota_records import entering_namespaces
from extender.sim.scheduler.loop import EXTENDED_PROFILES
from extender.sim.show.gangs import (
    ClusterReport,
    Gang,
    KnownObjects,
    PodSummary,
    ReportedNode,
    ReportedQueue,
    SinglePod,
    Written,
    gang_of,
    hint_for,
    key_of,
    single_pod,
)

DebugPages = Callable[[str], Any]


class ShownObjects(NamedTuple):
    """The objects of a cluster that the view shows, as an API server lists them."""

    queues: Sequence[Json]
    groups: Sequence[Json]
    pods: Sequence[Json]
    nodes: Sequence[Json]
    namespaces: Sequence[Json]
    local_queues: Sequence[Json] = ()

    @classmethod
    def in_store(cls, store: Store) -> "ShownObjects":
        with store:
            kinds = (QUEUES, POD_GROUPS, PODS, NODES, NAMESPACES, LOCAL_QUEUES)
            return cls(*(store.all(kind) for kind in kinds))


class ClusterState(msgspec.Struct, frozen=True):
    report: ClusterReport
    gangs: list[Gang]
    single_pods: list[SinglePod]  # pods that are members of no gang
    holding_gangs: list[Gang]  # running and starting gangs
    pending_by_queue: dict[str, int]  # number of pending groups, by queue

    @property
    def everything_started(self) -> bool:
        gangs_started = all(gang.has_started and not gang.waiting_count for gang in self.gangs)
        return gangs_started and all(pod.has_started for pod in self.single_pods)

    @property
    def everything_ended(self) -> bool:
        states = {gang.state for gang in self.gangs} | {pod.state for pod in self.single_pods}
        return states <= {Verdict.ENDED}

    def position(self, gang: Gang) -> str:
        """Return the position of a gang in its queue, such as `2 of 5`; empty if it has none."""
        pending = self.pending_by_queue.get(gang.queue, 0)
        return f"{gang.position} of {pending}" if gang.position and gang.waits else ""


def observe(objects: ShownObjects, debug_page: DebugPages) -> ClusterState:
    """Return the state of the cluster.

    `debug_page` returns a page of the debug port by name; None if the port does not answer.
    """
    pods = [typed(pod, Pod) for pod in objects.pods]
    groups = {group.key: group for group in (typed(obj, ObservedGroup) for obj in objects.groups)}
    members: dict[str, list[Pod]] = {}  # by key of the group, which is empty for other pods
    for pod in pods:
        key = _group_of(pod)
        is_member = key in groups and pod.spec.scheduler_name in EXTENDED_PROFILES
        members.setdefault(key if is_member else "", []).append(pod)
    known_objects = KnownObjects(
        {group["podGroup"]: group for group in debug_page("podgroups") or ()},
        groups.keys(),
        {queue["metadata"]["name"] for queue in objects.queues},
    )
    single_pods = [single_pod(pod, known_objects) for pod in members.pop("", [])]
    # A namespace has the queue that its annotation names, else the queue of its quota.
    metas = [queue["metadata"] for queue in objects.queues]
    queue_of = {name: meta["name"] for meta in metas for name in entering_namespaces(meta.get("annotations"))}
    for namespace in (typed(obj, Namespace) for obj in objects.namespaces):
        if queue_name := namespace_queue(namespace):
            queue_of[namespace.metadata.name] = queue_name
    local_queues = records_by_key(typed(obj, LocalQueue) for obj in objects.local_queues)
    routes = QueueRoutes(lambda namespace: queue_of.get(namespace, ""), local_queues)
    gangs = []
    for key, group in groups.items():
        gang = gang_of(group, members.get(key, []), routes)
        hint = hint_for(gang, known_objects, single_pods)
        position = known_objects.decided_groups.get(key, {}).get("position", 0)
        gangs.append(msgspec.structs.replace(gang, hint=hint, position=position))
    shares = debug_page("queues") or ()
    report = ClusterReport(
        pod_groups=[gang.as_report for gang in gangs],
        queues=queue_summaries(objects.queues, {gang.queue for gang in gangs}, shares),
        pods=_pod_summaries(pods, gangs, single_pods),
        nodes=[node_summary(typed(node, Node), pods) for node in objects.nodes],
    )
    holding_gangs = [gang for gang in gangs if gang.state in (Verdict.RUNNING, Verdict.STARTING)]
    pending_by_queue = {queue["name"]: queue.get("waiting", 0) for queue in shares}
    return ClusterState(report, gangs, single_pods, holding_gangs, pending_by_queue)


def _group_of(pod: Pod) -> str:
    """Return the key of the group that a pod names, or of the group that Muster makes for the pod."""
    return f"{pod.metadata.namespace}/{group_name(pod) or auto_group_name(pod)}"


def _pod_summaries(pods: Iterable[Pod], gangs: Iterable[Gang], rest: Iterable[SinglePod]) -> list[PodSummary]:
    """Return the summaries of pods. A waiting member has the reason of its group."""
    group_reasons = {gang.key: gang.group.reason for gang in gangs}
    pod_reasons = {pod.key: pod.wait_reason.reason for pod in rest}
    summaries = []
    for pod in pods:
        meta, node, phase = pod.metadata, pod.spec.node_name, pod.status.phase
        reason = pod_reasons.get(key_of(meta), group_reasons.get(_group_of(pod), ""))
        shown_reason = "" if node or phase in ENDED_PHASES else reason
        summaries.append(PodSummary(meta.namespace, meta.name, group_name(pod), phase, shown_reason, node))
    return summaries


def queue_summaries(
    queues: Iterable[Json], used_names: Collection[str], shares: Iterable[Json]
) -> list[ReportedQueue]:
    """Return the existing queues, and the default queue if it is used but does not exist.

    The default queue and the root queue are left out if no group uses them. If the status of a queue has no
    shares yet, they come from `shares`, which is the answer of /debug/queues.
    """
    debug_by_name = {share["name"]: share for share in shares}
    by_name = {queue["metadata"]["name"]: queue for queue in queues}
    by_name.setdefault(DEFAULT_QUEUE, {"metadata": {"name": DEFAULT_QUEUE}})
    names = sorted(name for name in by_name if name in used_names or name not in (DEFAULT_QUEUE, ROOT_QUEUE))
    return [_queue(by_name[name], debug_by_name.get(name, {})) for name in names]


def _queue(obj: Json, debug: Json) -> ReportedQueue:
    queue, status = typed(obj, Queue), obj.get("status") or {}
    if "deserved" not in status:
        amounts = {name: _written(debug.get(name)) for name in ("deserved", "allocated")}
        status = {**amounts, "share": debug.get("share")}
    state = queue.status.state or debug.get("state") or queue.spec.state or "Open"
    share = round(status.get("share") or 0.0, 4)
    allocated = status.get("allocated") or {}
    return ReportedQueue(queue.metadata.name, state, queue.spec.weight, status["deserved"], allocated, share)


def node_summary(node: Node, pods: Iterable[Pod]) -> ReportedNode:
    name = node.metadata.name
    on_node = [pod for pod in pods if pod.spec.node_name == name and pod.status.phase not in ENDED_PHASES]
    used = total(pod_requests(pod.spec) for pod in on_node)
    used_of_node = {resource: used.get(resource, 0) for resource in offered(node.status.allocatable)}
    return ReportedNode(name, node.status.allocatable or {}, _written(used_of_node))


def _written(amounts: Mapping[str, Any] | None) -> Written:
    """Return amounts in the notation of Kubernetes, without unlimited amounts."""
    finite = ((name, amount) for name, amount in (amounts or {}).items() if isinstance(amount, int | float))
    return {name: _quantity(name, round(amount)) for name, amount in finite if abs(amount) < 2**63}


def _quantity(name: str, amount: int) -> str:
    if name == CPU:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    for suffix, size in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if amount and amount % size == 0:
            return f"{amount // size}{suffix}"
    return str(amount)
