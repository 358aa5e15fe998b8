"""The cluster at one moment, as far as it is shown: queues, gangs, other pods, nodes."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from extender.api.keys import ENDED_PHASES
from extender.api.objects.cluster import Namespace
from extender.api.objects.groups import PodGroup
from extender.api.objects.nodes import Node
from extender.api.objects.pods import Pod
from extender.api.objects.queues import LocalQueue
from extender.domain.model.ownership import group_name
from extender.domain.model.pod_owners import auto_name
from extender.domain.model.queue_of_group import namespace_queue
from extender.domain.queues.local_queue_records import records_by_key
from extender.domain.quotas.steps import entering
from extender.sim.apiserver.decoding import typed
from extender.sim.apiserver.kinds import LOCAL_QUEUES, NAMESPACES, NODES, POD_GROUPS, PODS, QUEUES, Json
from extender.sim.apiserver.store import Store
from extender.sim.scheduler.loop import EXTENDED
from extender.sim.show.gangs import Gang, WaysIn, gang_of, key_of
from extender.sim.show.hints import hint_for
from extender.sim.show.loose_pods import Known, LoosePod, loose_pod
from extender.sim.show.outcome import ClusterReport, PodSummary
from extender.sim.show.queues_and_nodes import node_summary, queue_summaries

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
    """`loose`: pods that are members of none of the gangs. `holding`: the gangs that run or start. `in_line`:
    by queue, how many groups are in line."""

    report: ClusterReport
    gangs: list[Gang]
    loose: list[LoosePod]
    holding: list[Gang]
    in_line: dict[str, int]

    @property
    def everything_started(self) -> bool:
        gangs = all(gang.has_started and not gang.left_out for gang in self.gangs)
        return gangs and all(pod.has_started for pod in self.loose)

    @property
    def everything_ended(self) -> bool:
        states = {gang.state for gang in self.gangs} | {pod.state for pod in self.loose}
        return states <= {"ended", "failed"}

    def position(self, gang: Gang) -> str:
        """`2 of 5`: its place in the line of its queue; empty where it stands in none."""
        in_line = self.in_line.get(gang.summary.queue, 0)
        return f"{gang.position} of {in_line}" if gang.position and gang.waits else ""


def observe(objects: ShownObjects, look: Look) -> ClusterState:
    """`look`: a page of Muster's debug port by its name; None while it does not answer."""
    pods = [typed(pod, Pod) for pod in objects.pods]
    groups = {key_of(group.metadata): group for group in (typed(each, PodGroup) for each in objects.groups)}
    members = _by_group(pods, groups)
    known = Known(
        {each["podGroup"]: each for each in look("podgroups") or ()},
        groups.keys(),
        {queue["metadata"]["name"] for queue in objects.queues},
    )
    loose = [loose_pod(pod, known) for pod in members.pop("", [])]
    named = {each.metadata.name: namespace_queue(each) for each in _namespaces(objects)}
    ways = WaysIn(
        _by_quota(objects.queues) | {name: queue for name, queue in named.items() if queue},
        records_by_key(typed(each, LocalQueue) for each in objects.local_queues),
    )
    gangs = [
        _completed(gang_of(group, members.get(key, []), ways), known, loose) for key, group in groups.items()
    ]
    shares = look("queues") or ()
    report = ClusterReport(
        pod_groups=[gang.summary for gang in gangs],
        queues=queue_summaries(objects.queues, {gang.summary.queue for gang in gangs}, shares),
        pods=_pod_summaries(pods, gangs, loose),
        nodes=[node_summary(typed(node, Node), pods) for node in objects.nodes],
    )
    holding = [gang for gang in gangs if gang.state in ("runs", "starts")]
    in_line = {queue["name"]: queue.get("waiting", 0) for queue in shares}
    return ClusterState(report, gangs, loose, holding, in_line)


def _namespaces(objects: ShownObjects) -> list[Namespace]:
    return [typed(each, Namespace) for each in objects.namespaces]


def _by_quota(queues: Iterable[Json]) -> dict[str, str]:
    """The queue that its quota gives a namespace, by the namespace."""
    metas = (queue["metadata"] for queue in queues)
    return {each: meta["name"] for meta in metas for each in entering(meta.get("annotations"))}


def _completed(gang: Gang, known: Known, loose: Sequence[LoosePod]) -> Gang:
    """What objects do not say of it."""
    hint = hint_for(gang, known.groups, known.queues, loose)
    position = known.decided.get(gang.key, {}).get("position", 0)
    return msgspec.structs.replace(gang, hint=hint, position=position)


def _by_group(pods: Iterable[Pod], groups: Collection[str]) -> dict[str, list[Pod]]:
    """Pods by the group that they are members of; by the empty key those of none."""
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        key = _group_of(pod)
        counts = key in groups and pod.spec.scheduler_name in EXTENDED
        found.setdefault(key if counts else "", []).append(pod)
    return found


def _group_of(pod: Pod) -> str:
    """The key of the group that it names, or of the one that Muster makes for it."""
    return f"{pod.metadata.namespace}/{group_name(pod) or auto_name(pod)}"


def _pod_summaries(pods: Iterable[Pod], gangs: Iterable[Gang], loose: Iterable[LoosePod]) -> list[PodSummary]:
    """A member waits for the reason of its group."""
    of_group = {gang.key: gang.summary.reason for gang in gangs}
    of_pod = {pod.key: pod.why.reason for pod in loose}

    def summary(pod: Pod) -> PodSummary:
        meta, named, node = pod.metadata, group_name(pod), pod.spec.node_name
        reason = of_pod.get(key_of(meta), of_group.get(_group_of(pod), ""))
        placed = node or pod.status.phase in ENDED_PHASES
        return PodSummary(meta.namespace, meta.name, named, pod.status.phase, "" if placed else reason, node)

    return [summary(pod) for pod in pods]
