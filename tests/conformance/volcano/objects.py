"""The objects of a case as the API server would send them."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.cluster import Node, PriorityClass
from extender.api.objects.pods import Pod
from extender.api.objects.queues import PodGroup, Queue
from tests.domain.builders import SCHEDULER

CaseData = Mapping[str, Any]
T = TypeVar("T")
MANY_PODS = {"pods": "110"}
UNLISTED_NODE = "a-node-not-shown"  # of running pods whose case names no node


def objects(data: CaseData) -> Iterator[Any]:
    """Yield all objects of a session, in the order in which they would have been created."""
    yield from map(priority_class, data.get("priorityClasses") or ())
    yield from map(node, data.get("nodes") or ())
    yield from map(queue, data.get("queues") or ())
    yield from map(group, data.get("podGroups") or ())
    yield from map(pod, data.get("pods") or ())


def node(data: CaseData) -> Node:
    allocatable = MANY_PODS | data["allocatable"]
    return _converted(Node, data, status={"allocatable": allocatable})


def queue(data: CaseData) -> Queue:
    copied_fields = (
        "weight",
        "capability",
        "deserved",
        "reclaimable",
        "parent",
        "priority",
        "dequeueStrategy",
    )
    spec = {name: data[name] for name in copied_fields if data.get(name) is not None}
    spec["preemption"] = {"withinQueue": "LowerPriority", "after": "0s", "atMost": "0s"}
    if data.get("guarantee"):
        spec["guarantee"] = {"resource": data["guarantee"]}
    return _converted(Queue, data, spec=spec, status={"state": data.get("state", "")})


def group(data: CaseData, created: str | None = None) -> PodGroup:
    gang = ("queue", "minMember", "minTaskMember", "minResources", "priorityClassName")
    copied_fields = (*gang, "networkTopology", "subGroupPolicy")
    spec = {name: data[name] for name in copied_fields if data.get(name) is not None}
    podgroup = _converted(PodGroup, data, spec=spec, status={"phase": data.get("phase", "Pending")})
    return replace(podgroup, metadata=replace(podgroup.metadata, creation_timestamp=created))


def pod(data: CaseData) -> Pod:
    phase = data.get("phase", "Pending")
    spec = {
        "containers": [{"resources": {"requests": data.get("requests") or {}}}],
        "schedulerName": SCHEDULER,
        "nodeName": data.get("node") or (UNLISTED_NODE if phase == "Running" else ""),
        "nodeSelector": data.get("nodeSelector"),
        "schedulingGates": [{"name": keys.GATE}] if phase == "Pending" and not data.get("node") else None,
        "priority": data.get("priority"),
        "preemptionPolicy": data.get("preemptionPolicy") or "",
    }
    annotations = (data.get("annotations") or {}) | {keys.GROUP_ANNOTATION: data.get("podgroup", "")}
    return _converted(Pod, {**data, "annotations": annotations}, spec=spec, status={"phase": phase})


def priority_class(data: CaseData) -> PriorityClass:
    """Return a class that groups may have regardless of their pods' classes, as in Volcano."""
    flagged = {**data, "annotations": {keys.FOR_POD_GROUPS: "true"}}
    policy = data.get("preemptionPolicy") or ""
    return _converted(PriorityClass, flagged, value=data.get("value", 0), preemptionPolicy=policy)


def key(data: CaseData) -> str:
    return f"{data['namespace']}/{data['name']}"


def _converted(kind: type[T], data: CaseData, **fields: Any) -> T:
    copied_fields = ("name", "namespace", "labels", "annotations")
    metadata = {name: data[name] for name in copied_fields if data.get(name) is not None}
    metadata["uid"] = f"{data.get('namespace', '')}/{data['name']}"
    return msgspec.convert({"metadata": metadata, **fields}, kind)
