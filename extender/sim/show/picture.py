"""The cluster at one moment, as far as it is shown: queues, gangs, pods, nodes. Also the form of `-o json`.

Shares come from Queue status, and where that does not carry them yet, from Muster's debug port.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from extender.api.conditions import condition
from extender.api.keys import DEFAULT_QUEUE, ROOT_QUEUE, SCHEDULED
from extender.api.objects import Node, Pod, PodGroup, Queue
from extender.api.quantities import Quantity
from extender.domain.model.ownership import group_name
from extender.domain.model.reasons import NOT_WAITING
from extender.domain.model.requests import pod_requests
from extender.domain.model.resources import CPU, Resources, offered, total
from extender.sim.apiserver.kinds import NODES, POD_GROUPS, PODS, QUEUES, Json
from extender.sim.apiserver.store import Store
from extender.sim.apiserver.typed import typed

_ENDED = ("Succeeded", "Failed")
Written = dict[str, Quantity]


class QueuePart(msgspec.Struct, frozen=True):
    name: str
    state: str
    weight: int
    deserved: Written
    allocated: Written
    share: float


class GroupPart(msgspec.Struct, frozen=True, rename="camel"):
    namespace: str
    name: str
    queue: str
    phase: str
    reason: str
    min_member: int
    bound: int


class PodPart(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    node: str


class NodePart(msgspec.Struct, frozen=True):
    name: str
    allocatable: Written
    used: Written


class Report(msgspec.Struct, frozen=True, rename="camel"):
    """What `-o json` prints."""

    pod_groups: list[GroupPart]
    queues: list[QueuePart]
    pods: list[PodPart]
    nodes: list[NodePart]


class Gang(msgspec.Struct, frozen=True):
    """A group as the screen needs it, beside its part of the report."""

    part: GroupPart
    detail: str
    created: str
    pods: int
    running: int
    ended: int
    failed: int
    nodes: tuple[str, ...]

    @property
    def key(self) -> str:
        return f"{self.part.namespace}/{self.part.name}"

    @property
    def done(self) -> bool:
        return self.part.phase == "Completed" or 0 < self.pods == self.ended

    @property
    def runs(self) -> bool:
        return self.part.phase in ("Running", "Unknown") and not self.done

    @property
    def starts(self) -> bool:
        return self.part.phase == "Inqueue"

    @property
    def waits(self) -> bool:
        return not (self.done or self.runs or self.starts)


class Picture(msgspec.Struct, frozen=True):
    report: Report
    gangs: list[Gang]
    plain_pods: int  # of no group
    ended_pods: int

    @property
    def done(self) -> bool:
        """All pods that there are have ended."""
        return 0 < len(self.report.pods) == self.ended_pods


def take(store: Store, shares: Iterable[Json] | None) -> Picture:
    """`shares`: what /debug/queues says, None if it does not."""
    with store:
        queues, groups, pods, nodes = (store.all(kind) for kind in (QUEUES, POD_GROUPS, PODS, NODES))
    read = [typed(pod, Pod) for pod in pods]
    by_group: dict[str, list[Pod]] = {}
    for pod in read:
        by_group.setdefault(f"{pod.metadata.namespace}/{group_name(pod)}", []).append(pod)
    gangs = [_gang(typed(group, PodGroup), by_group) for group in groups]
    report = Report(
        pod_groups=[gang.part for gang in gangs],
        queues=_queues(queues, gangs, shares),
        pods=[PodPart(p.metadata.namespace, p.metadata.name, p.spec.node_name) for p in read],
        nodes=[_node(typed(node, Node), read) for node in nodes],
    )
    alone = sum(not group_name(pod) for pod in read)
    return Picture(report, gangs, alone, sum(pod.status.phase in _ENDED for pod in read))


# ---- gangs


def _gang(group: PodGroup, by_group: Mapping[str, list[Pod]]) -> Gang:
    meta, said = group.metadata, _scheduled(group)
    members = by_group.get(f"{meta.namespace}/{meta.name}", [])
    phases = [pod.status.phase for pod in members]
    bound = [pod.spec.node_name for pod in members if pod.spec.node_name]
    reason = said.get("reason", "")
    part = GroupPart(
        namespace=meta.namespace,
        name=meta.name,
        queue=group.spec.queue or DEFAULT_QUEUE,
        phase=group.status.phase or "Pending",
        reason="" if reason in NOT_WAITING else reason,
        min_member=group.spec.min_member,
        bound=len(bound),
    )
    return Gang(
        part,
        detail=said.get("message", ""),
        created=meta.creation_timestamp or "",
        pods=len(members),
        running=phases.count("Running"),
        ended=sum(phase in _ENDED for phase in phases),
        failed=phases.count("Failed"),
        nodes=tuple(sorted(set(bound))),
    )


def _scheduled(group: PodGroup) -> dict[str, str]:
    """The condition that says whether a group may start."""
    said = condition(group.status.conditions, SCHEDULED)
    return {"reason": said.reason, "message": said.message} if said else {}


# ---- queues


def _queues(queues: Iterable[Json], gangs: Iterable[Gang], shares: Iterable[Json] | None) -> list[QueuePart]:
    """Those that exist, and the default one where it is used without being made. Those that every cluster has
    are left out where nobody uses them."""
    told = {share["name"]: share for share in shares or ()}
    used = {gang.part.queue for gang in gangs}
    shown = [queue for queue in queues if queue["metadata"]["name"] in used or not _is_everywhere(queue)]
    made = [_queue(queue, told.get(queue["metadata"]["name"], {})) for queue in shown]
    if DEFAULT_QUEUE in used - {part.name for part in made}:
        made.append(_queue({"metadata": {"name": DEFAULT_QUEUE}}, told.get(DEFAULT_QUEUE, {})))
    return sorted(made, key=lambda part: part.name)


def _is_everywhere(queue: Json) -> bool:
    return queue["metadata"]["name"] in (DEFAULT_QUEUE, ROOT_QUEUE)


def _queue(given: Json, told: Json) -> QueuePart:
    queue, status = typed(given, Queue), given.get("status") or {}
    if "deserved" in status:
        deserved, allocated = status["deserved"], status.get("allocated") or {}
        share = status.get("share") or 0.0
    else:
        deserved, allocated = _written(told.get("deserved")), _written(told.get("allocated"))
        share = told.get("share") or 0.0
    state = queue.status.state or told.get("state") or queue.spec.state or "Open"
    return QueuePart(queue.metadata.name, state, queue.spec.weight, deserved, allocated, round(share, 4))


# ---- nodes and amounts


def _node(node: Node, pods: Iterable[Pod]) -> NodePart:
    name = node.metadata.name
    here = [pod for pod in pods if pod.spec.node_name == name and pod.status.phase not in _ENDED]
    used = total(pod_requests(pod.spec) for pod in here)
    room = offered(node.status.allocatable)
    return NodePart(name, node.status.allocatable or {}, _written({each: used.get(each, 0) for each in room}))


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
