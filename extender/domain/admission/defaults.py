"""Defaults that are filled in, as JSON patches: an empty list changes nothing."""

from typing import Any

from extender.api import keys
from extender.api.objects.queues import PodGroup, Queue
from extender.domain.admission.submission import QueueLookup
from extender.domain.model.queue_of_group import explicit_queue

Operation = dict[str, Any]
_ESCAPES = str.maketrans({"~": "~0", "/": "~1"})


def pointer(*parts: str) -> str:
    """The JSON pointer to a field, escaped: keys of annotations and resources contain slashes."""
    return "".join(f"/{part.translate(_ESCAPES)}" for part in parts)


def _add(value: object, *path: str) -> Operation:
    return {"op": "add", "path": pointer(*path), "value": value}


def queue_defaults(queue: Queue, has_weight: bool) -> list[Operation]:
    """For a new queue: reclaimable, a weight unless it `has_weight`, a path that begins with root."""
    patch = []
    if queue.spec.reclaimable is None:
        patch.append(_add(True, "spec", "reclaimable"))
    if not has_weight or queue.spec.weight == 0:
        patch.append(_add(1, "spec", "weight"))
    return patch + _path_defaults(queue)


def _path_defaults(queue: Queue) -> list[Operation]:
    annotations = queue.metadata.annotations or {}
    path, weights = annotations.get(keys.HIERARCHY, ""), annotations.get(keys.HIERARCHY_WEIGHTS, "")
    if not path or not weights or path.partition("/")[0] == keys.ROOT_QUEUE:
        return []
    return [
        _add(f"{keys.ROOT_QUEUE}/{path}", "metadata", "annotations", keys.HIERARCHY),
        _add(f"1/{weights}", "metadata", "annotations", keys.HIERARCHY_WEIGHTS),
    ]


def group_defaults(group: PodGroup, namespace: str, user: str, queues: QueueLookup) -> list[Operation]:
    """The user who makes it, whatever it says itself, and the namespace's own queue, in place of the
    `default` that a schema filled in. A group that names a LocalQueue gets none: that may lead elsewhere
    tomorrow."""
    queue, patch = queues.of_namespace(namespace), _submitter(group, user)
    by_label = queues.local_queue_named_by(namespace, group.metadata) is not None
    if queue and not by_label and not explicit_queue(group.spec.queue):
        patch.append(_add(queue, "spec", "queue"))
    return patch


def _submitter(group: PodGroup, user: str) -> list[Operation]:
    annotations = group.metadata.annotations
    if not user or (annotations or {}).get(keys.SUBMITTER) == user:
        return []
    if annotations is None:
        return [_add({keys.SUBMITTER: user}, "metadata", "annotations")]
    return [_add(user, "metadata", "annotations", keys.SUBMITTER)]


def pod_defaults(pod: dict[str, Any], marked: bool) -> list[Operation]:
    """Our gate on a new pod of ours and, if `marked`, the marks that make the scheduler send it to Muster.

    Does what the admission policies do, for API servers without them; `pod` is the object as submitted. A pod
    with a node bypasses the scheduler, and pods of a DaemonSet do not wait for one another.
    """
    spec = pod.get("spec") or {}
    if spec.get("nodeName") or _of_daemonset(pod):
        return []
    return _gate(spec) + (_marks(spec) if marked else [])


def _of_daemonset(pod: dict[str, Any]) -> bool:
    owners = pod.get("metadata", {}).get("ownerReferences") or []
    return any(owner.get("kind") == "DaemonSet" and owner.get("controller") for owner in owners)


def _gate(spec: dict[str, Any]) -> list[Operation]:
    gate, gates = {"name": keys.GATE}, spec.get("schedulingGates")
    if not gates:
        return [_add([gate], "spec", "schedulingGates")]
    return [] if gate in gates else [_add(gate, "spec", "schedulingGates", "-")]


def _marks(spec: dict[str, Any]) -> list[Operation]:
    """On the first container, in addition to its own requests."""
    containers = spec.get("containers")
    if not containers:
        return []
    marks = dict.fromkeys(sorted(keys.MARKS), "1")
    resources = containers[0].get("resources") or {}
    asked = {part: {**(resources.get(part) or {}), **marks} for part in ("requests", "limits")}
    return [_add({**resources, **asked}, "spec", "containers", "0", "resources")]
