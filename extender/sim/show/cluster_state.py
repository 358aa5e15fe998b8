"""The cluster at one moment, as far as it is shown: queues, gangs, pods, nodes. Also the form of `-o json`.

Shares come from Queue status, and where that does not carry them yet, from Muster's debug port.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from extender.api.conditions import condition
from extender.api.keys import DEFAULT_QUEUE, ENDED_PHASES, ROOT_QUEUE, SCHEDULED
from extender.api.objects import Namespace, Node, Pod, PodGroup, Queue
from extender.api.quantities import Quantity
from extender.domain.model.ownership import group_name
from extender.domain.model.queue_of_group import namespace_queue, queue_of_podgroup
from extender.domain.model.reasons import NOT_WAITING
from extender.domain.model.requests import pod_requests
from extender.domain.model.resources import CPU, Resources, offered, total
from extender.sim.apiserver.decoding import typed
from extender.sim.apiserver.kinds import NAMESPACES, NODES, POD_GROUPS, PODS, QUEUES, Json
from extender.sim.apiserver.store import Store

Written = dict[str, Quantity]


class QueueSummary(msgspec.Struct, frozen=True):
    name: str
    state: str
    weight: int
    deserved: Written
    allocated: Written
    share: float


class GroupSummary(msgspec.Struct, frozen=True, rename="camel"):
    namespace: str
    name: str
    queue: str
    phase: str
    reason: str
    min_member: int
    bound: int


class PodSummary(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    node: str


class NodeSummary(msgspec.Struct, frozen=True):
    name: str
    allocatable: Written
    used: Written


class ClusterReport(msgspec.Struct, frozen=True, rename="camel"):
    """What `-o json` prints."""

    pod_groups: list[GroupSummary]
    queues: list[QueueSummary]
    pods: list[PodSummary]
    nodes: list[NodeSummary]


class Gang(msgspec.Struct, frozen=True):
    """A group as the screen needs it: its summary in the report, and what that does not have."""

    summary: GroupSummary
    detail: str
    pods: int
    running: int
    ended: int
    failed: int
    nodes: tuple[str, ...]

    @property
    def key(self) -> str:
        return f"{self.summary.namespace}/{self.summary.name}"

    @property
    def done(self) -> bool:
        return self.summary.phase == "Completed" or 0 < self.pods == self.ended

    @property
    def runs(self) -> bool:
        return self.summary.phase in ("Running", "Unknown") and not self.done

    @property
    def starts(self) -> bool:
        return self.summary.phase == "Inqueue"

    @property
    def waits(self) -> bool:
        return not (self.done or self.runs or self.starts)


class ClusterState(msgspec.Struct, frozen=True):
    report: ClusterReport
    gangs: list[Gang]
    plain_pods: int  # of no group
    ended_pods: int

    @property
    def done(self) -> bool:
        """All pods that there are have ended."""
        return 0 < len(self.report.pods) == self.ended_pods


def observe(store: Store, shares: Iterable[Json] | None) -> ClusterState:
    """`shares`: what /debug/queues says, None if it does not."""
    with store:
        queues, groups, pods, nodes, namespaces = (
            store.all(kind) for kind in (QUEUES, POD_GROUPS, PODS, NODES, NAMESPACES)
        )
    read = [typed(pod, Pod) for pod in pods]
    by_group: dict[str, list[Pod]] = {}
    for pod in read:
        by_group.setdefault(f"{pod.metadata.namespace}/{group_name(pod)}", []).append(pod)
    queue_of = {each["metadata"]["name"]: namespace_queue(typed(each, Namespace)) for each in namespaces}
    gangs = [_gang(typed(group, PodGroup), by_group, queue_of) for group in groups]
    report = ClusterReport(
        pod_groups=[gang.summary for gang in gangs],
        queues=_queues(queues, gangs, shares),
        pods=[PodSummary(p.metadata.namespace, p.metadata.name, p.spec.node_name) for p in read],
        nodes=[_node(typed(node, Node), read) for node in nodes],
    )
    alone = sum(not group_name(pod) for pod in read)
    return ClusterState(report, gangs, alone, sum(pod.status.phase in ENDED_PHASES for pod in read))


# ---- gangs


def _gang(group: PodGroup, by_group: Mapping[str, list[Pod]], queue_of: Mapping[str, str]) -> Gang:
    """`queue_of`: the queue that a namespace names, by the namespace."""
    meta, scheduled = group.metadata, condition(group.status.conditions, SCHEDULED)
    members = by_group.get(f"{meta.namespace}/{meta.name}", [])
    phases = [pod.status.phase for pod in members]
    bound = [pod.spec.node_name for pod in members if pod.spec.node_name]
    reason = scheduled.reason if scheduled else ""
    summary = GroupSummary(
        namespace=meta.namespace,
        name=meta.name,
        queue=queue_of_podgroup(group.spec.queue, queue_of.get(meta.namespace, "")),
        phase=group.status.phase or "Pending",
        reason="" if reason in NOT_WAITING else reason,
        min_member=group.spec.min_member,
        bound=len(bound),
    )
    return Gang(
        summary,
        detail=scheduled.message if scheduled else "",
        pods=len(members),
        running=phases.count("Running"),
        ended=sum(phase in ENDED_PHASES for phase in phases),
        failed=phases.count("Failed"),
        nodes=tuple(sorted(set(bound))),
    )


# ---- queues


def _queues(
    queues: Iterable[Json], gangs: Iterable[Gang], shares: Iterable[Json] | None
) -> list[QueueSummary]:
    """Those that exist, and the default one where it is used without being made. Those that every cluster has
    are left out where nobody uses them."""
    debugged = {share["name"]: share for share in shares or ()}
    used = {gang.summary.queue for gang in gangs}
    shown = [queue for queue in queues if queue["metadata"]["name"] in used or not _is_everywhere(queue)]
    made = [_queue(queue, debugged.get(queue["metadata"]["name"], {})) for queue in shown]
    if DEFAULT_QUEUE in used - {part.name for part in made}:
        made.append(_queue({"metadata": {"name": DEFAULT_QUEUE}}, debugged.get(DEFAULT_QUEUE, {})))
    return sorted(made, key=lambda part: part.name)


def _is_everywhere(queue: Json) -> bool:
    return queue["metadata"]["name"] in (DEFAULT_QUEUE, ROOT_QUEUE)


def _queue(given: Json, debugged: Json) -> QueueSummary:
    queue, status = typed(given, Queue), given.get("status") or {}
    if "deserved" in status:
        deserved, allocated = status["deserved"], status.get("allocated") or {}
        share = status.get("share") or 0.0
    else:
        deserved, allocated = _written(debugged.get("deserved")), _written(debugged.get("allocated"))
        share = debugged.get("share") or 0.0
    state = queue.status.state or debugged.get("state") or queue.spec.state or "Open"
    return QueueSummary(queue.metadata.name, state, queue.spec.weight, deserved, allocated, round(share, 4))


# ---- nodes and amounts


def _node(node: Node, pods: Iterable[Pod]) -> NodeSummary:
    name = node.metadata.name
    here = [pod for pod in pods if pod.spec.node_name == name and pod.status.phase not in ENDED_PHASES]
    used = total(pod_requests(pod.spec) for pod in here)
    room = offered(node.status.allocatable)
    return NodeSummary(
        name, node.status.allocatable or {}, _written({each: used.get(each, 0) for each in room})
    )


def _written(amounts: Mapping[str, Any] | None) -> Written:
    """Amounts as Kubernetes writes them; those without bound are left out."""
    finite = ((name, amount) for name, amount in (amounts or {}).items() if isinstance(amount, int | float))
    return {name: _quantity(name, round(amount)) for name, amount in finite if abs(amount) < 2**63}


def _quantity(name: str, amount: int) -> str:
    if name == CPU:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    for suffix, unit in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if amount and amount % unit == 0:
            return f"{amount // unit}{suffix}"
    return str(amount)


def amounts(written: Mapping[str, Quantity]) -> Resources:
    """The numbers behind written amounts."""
    return offered(written)
