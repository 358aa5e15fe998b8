"""Defaults that are filled in, as JSON patches: an empty list changes nothing."""

from typing import Any

from extender.api import keys
from extender.api.objects.base import pointer
from extender.api.objects.queues import PodGroup, Queue
from extender.domain.admission.submission import QueueLookup
from extender.domain.model.queue_of_group import explicit_queue

Operation = dict[str, Any]


def _add(value: object, *path: str) -> Operation:
    return {"op": "add", "path": pointer(path), "value": value}


def queue_defaults(queue: Queue, has_weight: bool) -> list[Operation]:
    """For a new queue: reclaimable, a weight unless it `has_weight`, a path that begins with root."""
    patch = []
    if queue.spec.reclaimable is None:
        patch.append(_add(True, "spec", "reclaimable"))
    if not has_weight or queue.spec.weight == 0:
        patch.append(_add(1, "spec", "weight"))
    annotations = queue.metadata.annotations or {}
    path, weights = annotations.get(keys.HIERARCHY, ""), annotations.get(keys.HIERARCHY_WEIGHTS, "")
    if path and weights and path.partition("/")[0] != keys.ROOT_QUEUE:
        patch.append(_add(f"{keys.ROOT_QUEUE}/{path}", "metadata", "annotations", keys.HIERARCHY))
        patch.append(_add(f"1/{weights}", "metadata", "annotations", keys.HIERARCHY_WEIGHTS))
    return patch


def group_defaults(group: PodGroup, namespace: str, user: str, queues: QueueLookup) -> list[Operation]:
    """The user who makes it, and the namespace's own queue in place of the `default` that a schema filled in,
    unless it names a LocalQueue: that may lead elsewhere tomorrow."""
    patch, annotations = [], group.metadata.annotations
    if user and annotations is None:
        patch.append(_add({keys.SUBMITTER: user}, "metadata", "annotations"))
    elif user and annotations is not None and annotations.get(keys.SUBMITTER) != user:
        patch.append(_add(user, "metadata", "annotations", keys.SUBMITTER))
    queue = queues.of_namespace(namespace)
    by_label = queues.local_queue_named_by(namespace, group.metadata) is not None
    if queue and not by_label and not explicit_queue(group.spec.queue):
        patch.append(_add(queue, "spec", "queue"))
    return patch


def pod_defaults(pod: dict[str, Any], marked: bool) -> list[Operation]:
    """Our gate on a new pod of ours and, if `marked`, the marks that make the scheduler send it to Muster, as
    the admission policies set them; `pod` is the object as submitted. A pod with a node bypasses the
    scheduler, and pods of a DaemonSet do not wait for one another.
    """
    spec, owners = pod.get("spec") or {}, pod.get("metadata", {}).get("ownerReferences") or []
    of_daemonset = any(owner.get("kind") == "DaemonSet" and owner.get("controller") for owner in owners)
    if spec.get("nodeName") or of_daemonset:
        return []
    patch, gate, gates = [], {"name": keys.GATE}, spec.get("schedulingGates")
    if not gates:
        patch.append(_add([gate], "spec", "schedulingGates"))
    elif gate not in gates:
        patch.append(_add(gate, "spec", "schedulingGates", "-"))
    if marked and (containers := spec.get("containers")):  # on the first, beside its own requests
        marks = dict.fromkeys(sorted(keys.MARKS), "1")
        resources = containers[0].get("resources") or {}
        asked = {part: {**(resources.get(part) or {}), **marks} for part in ("requests", "limits")}
        patch.append(_add({**resources, **asked}, "spec", "containers", "0", "resources"))
    return patch
