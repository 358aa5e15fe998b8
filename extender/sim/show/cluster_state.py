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
from extender.domain.explain.observed import ObservedGroup
from extender.domain.model.ownership import auto_name, group_name
from extender.domain.model.queue_of_group import namespace_queue
from extender.domain.model.reasons import Verdict
from extender.domain.model.resources import CPU, offered, pod_requests, total
from extender.domain.queues.local_queues import QueueRoutes, records_by_key
from extender.domain.queues.quota_records import entering_namespaces
from extender.sim.scheduler.loop import EXTENDED
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

Look = Callable[[str], Any]


class ShownObjects(NamedTuple):
    """The objects of a cluster that are shown, as an API server lists them."""

    queues: Sequence[Json]
    groups: Sequence[Json]
    pods: Sequence[Json]
    nodes: Sequence[Json]
    namespaces: Sequence[Json]
    local_queues: Sequence[Json] = ()

    @classmethod
    def of(cls, store: Store) -> "ShownObjects":
        with store:
            kinds = (QUEUES, POD_GROUPS, PODS, NODES, NAMESPACES, LOCAL_QUEUES)
            return cls(*(store.all(kind) for kind in kinds))


class ClusterState(msgspec.Struct, frozen=True):
    report: ClusterReport
    gangs: list[Gang]
    loose: list[SinglePod]  # pods of no gang
    holding: list[Gang]  # that run or start
    in_line: dict[str, int]  # how many groups are, by queue

    @property
    def everything_started(self) -> bool:
        gangs = all(gang.has_started and not gang.left_out for gang in self.gangs)
        return gangs and all(pod.has_started for pod in self.loose)

    @property
    def everything_ended(self) -> bool:
        states = {gang.state for gang in self.gangs} | {pod.state for pod in self.loose}
        return states <= {Verdict.ENDED}

    def position(self, gang: Gang) -> str:
        """Return the position in the queue, such as `2 of 5`; empty for a gang without a position."""
        in_line = self.in_line.get(gang.queue, 0)
        return f"{gang.position} of {in_line}" if gang.position and gang.waits else ""


def observe(objects: ShownObjects, look: Look) -> ClusterState:
    """Return the state. `look`: returns a page of Muster's debug port by name; None without an answer."""
    pods = [typed(pod, Pod) for pod in objects.pods]
    groups = {group.key: group for group in (typed(obj, ObservedGroup) for obj in objects.groups)}
    members: dict[str, list[Pod]] = {}  # by group; by the empty key those of none
    for pod in pods:
        key = _group_of(pod)
        counts = key in groups and pod.spec.scheduler_name in EXTENDED
        members.setdefault(key if counts else "", []).append(pod)
    known = KnownObjects(
        {group["podGroup"]: group for group in look("podgroups") or ()},
        groups.keys(),
        {queue["metadata"]["name"] for queue in objects.queues},
    )
    loose = [single_pod(pod, known) for pod in members.pop("", [])]
    # The queue of a namespace is the one that it names, else the one that its quota gives it.
    metas = [queue["metadata"] for queue in objects.queues]
    queue_of = {name: meta["name"] for meta in metas for name in entering_namespaces(meta.get("annotations"))}
    for namespace in (typed(obj, Namespace) for obj in objects.namespaces):
        if named := namespace_queue(namespace):
            queue_of[namespace.metadata.name] = named
    local_queues = records_by_key(typed(obj, LocalQueue) for obj in objects.local_queues)
    ways = QueueRoutes(lambda namespace: queue_of.get(namespace, ""), local_queues)
    gangs = []
    for key, group in groups.items():
        gang = gang_of(group, members.get(key, []), ways)
        hint = hint_for(gang, known, loose)
        position = known.decided.get(key, {}).get("position", 0)
        gangs.append(msgspec.structs.replace(gang, hint=hint, position=position))
    shares = look("queues") or ()
    report = ClusterReport(
        pod_groups=[gang.reported for gang in gangs],
        queues=queue_summaries(objects.queues, {gang.queue for gang in gangs}, shares),
        pods=_pod_summaries(pods, gangs, loose),
        nodes=[node_summary(typed(node, Node), pods) for node in objects.nodes],
    )
    holding = [gang for gang in gangs if gang.state in (Verdict.RUNNING, Verdict.STARTING)]
    in_line = {queue["name"]: queue.get("waiting", 0) for queue in shares}
    return ClusterState(report, gangs, loose, holding, in_line)


def _group_of(pod: Pod) -> str:
    """Return the key of the group that a pod names, or that Muster makes for it."""
    return f"{pod.metadata.namespace}/{group_name(pod) or auto_name(pod)}"


def _pod_summaries(pods: Iterable[Pod], gangs: Iterable[Gang], rest: Iterable[SinglePod]) -> list[PodSummary]:
    """Return the summaries of pods. A member waits for the reason of its group."""
    of_group = {gang.key: gang.group.reason for gang in gangs}
    of_pod = {pod.key: pod.why.reason for pod in rest}
    found = []
    for pod in pods:
        meta, node, phase = pod.metadata, pod.spec.node_name, pod.status.phase
        reason = of_pod.get(key_of(meta), of_group.get(_group_of(pod), ""))
        shown = "" if node or phase in ENDED_PHASES else reason
        found.append(PodSummary(meta.namespace, meta.name, group_name(pod), phase, shown, node))
    return found


def queue_summaries(
    queues: Iterable[Json], used: Collection[str], shares: Iterable[Json]
) -> list[ReportedQueue]:
    """Return the existing queues, and the default queue if it is used but does not exist.

    Queues that every cluster has are left out where no group uses them. `shares`: /debug/queues, for
    queues whose status has none yet.
    """
    debugged = {share["name"]: share for share in shares}
    made = {queue["metadata"]["name"]: queue for queue in queues}
    made.setdefault(DEFAULT_QUEUE, {"metadata": {"name": DEFAULT_QUEUE}})
    shown = sorted(name for name in made if name in used or name not in (DEFAULT_QUEUE, ROOT_QUEUE))
    return [_queue(made[name], debugged.get(name, {})) for name in shown]


def _queue(given: Json, debugged: Json) -> ReportedQueue:
    queue, says = typed(given, Queue), given.get("status") or {}
    if "deserved" not in says:
        amounts = {name: _written(debugged.get(name)) for name in ("deserved", "allocated")}
        says = {**amounts, "share": debugged.get("share")}
    state = queue.status.state or debugged.get("state") or queue.spec.state or "Open"
    share = round(says.get("share") or 0.0, 4)
    held = says.get("allocated") or {}
    return ReportedQueue(queue.metadata.name, state, queue.spec.weight, says["deserved"], held, share)


def node_summary(node: Node, pods: Iterable[Pod]) -> ReportedNode:
    name = node.metadata.name
    here = [pod for pod in pods if pod.spec.node_name == name and pod.status.phase not in ENDED_PHASES]
    used = total(pod_requests(pod.spec) for pod in here)
    held = {resource: used.get(resource, 0) for resource in offered(node.status.allocatable)}
    return ReportedNode(name, node.status.allocatable or {}, _written(held))


def _written(amounts: Mapping[str, Any] | None) -> Written:
    """Return amounts as Kubernetes writes them, without unlimited ones."""
    finite = ((name, amount) for name, amount in (amounts or {}).items() if isinstance(amount, int | float))
    return {name: _quantity(name, round(amount)) for name, amount in finite if abs(amount) < 2**63}


def _quantity(name: str, amount: int) -> str:
    if name == CPU:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    for suffix, podgroup in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if amount and amount % podgroup == 0:
            return f"{amount // podgroup}{suffix}"
    return str(amount)
