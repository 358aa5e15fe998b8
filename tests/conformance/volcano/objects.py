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

Given = Mapping[str, Any]
T = TypeVar("T")
MANY_PODS = {"pods": "110"}
SOMEWHERE = "a-node-not-shown"  # where pods run of which a case does not say where


def objects(given: Given) -> Iterator[Any]:
    """Yield all objects of a session, in the order in which they would have been created."""
    yield from map(priority_class, given.get("priorityClasses") or ())
    yield from map(node, given.get("nodes") or ())
    yield from map(queue, given.get("queues") or ())
    yield from map(group, given.get("podGroups") or ())
    yield from map(pod, given.get("pods") or ())


def node(given: Given) -> Node:
    allocatable = MANY_PODS | given["allocatable"]
    return _made(Node, given, status={"allocatable": allocatable})


def queue(given: Given) -> Queue:
    same = ("weight", "capability", "deserved", "reclaimable", "parent", "priority", "dequeueStrategy")
    spec = {name: given[name] for name in same if given.get(name) is not None}
    spec["preemption"] = {"withinQueue": "LowerPriority", "after": "0s", "atMost": "0s"}
    if given.get("guarantee"):
        spec["guarantee"] = {"resource": given["guarantee"]}
    return _made(Queue, given, spec=spec, status={"state": given.get("state", "")})


def group(given: Given, created: str | None = None) -> PodGroup:
    gang = ("queue", "minMember", "minTaskMember", "minResources", "priorityClassName")
    same = (*gang, "networkTopology", "subGroupPolicy")
    spec = {name: given[name] for name in same if given.get(name) is not None}
    made = _made(PodGroup, given, spec=spec, status={"phase": given.get("phase", "Pending")})
    return replace(made, metadata=replace(made.metadata, creation_timestamp=created))


def pod(given: Given) -> Pod:
    phase = given.get("phase", "Pending")
    spec = {
        "containers": [{"resources": {"requests": given.get("requests") or {}}}],
        "schedulerName": SCHEDULER,
        "nodeName": given.get("node") or (SOMEWHERE if phase == "Running" else ""),
        "nodeSelector": given.get("nodeSelector"),
        "schedulingGates": [{"name": keys.GATE}] if phase == "Pending" and not given.get("node") else None,
        "priority": given.get("priority"),
        "preemptionPolicy": given.get("preemptionPolicy") or "",
    }
    annotations = (given.get("annotations") or {}) | {keys.GROUP_ANNOTATION: given.get("podgroup", "")}
    return _made(Pod, {**given, "annotations": annotations}, spec=spec, status={"phase": phase})


def priority_class(given: Given) -> PriorityClass:
    """Return a class that groups may have regardless of their pods' classes, as in Volcano."""
    flagged = {**given, "annotations": {keys.FOR_POD_GROUPS: "true"}}
    policy = given.get("preemptionPolicy") or ""
    return _made(PriorityClass, flagged, value=given.get("value", 0), preemptionPolicy=policy)


def key(given: Given) -> str:
    return f"{given['namespace']}/{given['name']}"


def _made(kind: type[T], given: Given, **rest: Any) -> T:
    same = ("name", "namespace", "labels", "annotations")
    metadata = {name: given[name] for name in same if given.get(name) is not None}
    metadata["uid"] = f"{given.get('namespace', '')}/{given['name']}"
    return msgspec.convert({"metadata": metadata, **rest}, kind)
