"""What is to be done about one queue, so that it becomes what its quota wants."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from extender.api import keys
from extender.api.objects.queues import Queue
from extender.api.quantities import BadQuantity, Quantity
from extender.domain.model.resources import offered
from extender.domain.queues.quota_records import QuotaQueue

Json = dict[str, Any]
_MOST_LISTED = 2000  # namespaces in the annotation, whose size the API server limits


class QuotaStep(StrEnum):
    NOTHING = "nothing"
    CREATE = "create"
    CHANGE = "change"
    CLOSE = "close"
    DELETE = "delete"
    LEAVE = "leave"  # made by others


def quota_source(queue: Queue) -> str:
    """The quota that a queue says it is made from, or empty."""
    return (queue.metadata.annotations or {}).get(keys.QUOTA_SOURCE, "")


def step_of(wanted: QuotaQueue | None, queue: Queue | None, *, empty: bool) -> QuotaStep:
    """`wanted`: None if no quota asks for it. `empty`: no group and no other queue is in the queue."""
    if queue is None:
        return QuotaStep.NOTHING if wanted is None or wanted.kept else QuotaStep.CREATE
    if not quota_source(queue):
        return QuotaStep.NOTHING if wanted is None else QuotaStep.LEAVE
    if queue.metadata.deletion_timestamp:
        return QuotaStep.NOTHING
    if wanted is None:
        if not is_ended(queue) or queue.spec.state not in ("", "Closed"):
            return QuotaStep.CLOSE
        return QuotaStep.DELETE if empty and queue.status.state == "Closed" else QuotaStep.NOTHING
    return QuotaStep.CHANGE if not wanted.kept and changes(wanted, queue) else QuotaStep.NOTHING


def is_ended(queue: Queue) -> bool:
    return (queue.metadata.annotations or {}).get(keys.QUOTA_ENDED) == "true"


def entering(annotations: Mapping[str, str] | None) -> list[str]:
    """The namespaces that enter a queue with these annotations, by its quota."""
    noted = (annotations or {}).get(keys.QUOTA_NAMESPACES, "")
    return noted.split(",") if noted else []


def annotations_of(wanted: QuotaQueue) -> dict[str, str]:
    listed = ",".join(wanted.namespaces[:_MOST_LISTED])
    return {keys.QUOTA_SOURCE: str(wanted.source)} | ({keys.QUOTA_NAMESPACES: listed} if listed else {})


def spec_of(wanted: QuotaQueue) -> Json:
    """The spec of a new queue."""
    found: Json = {"weight": 1, "reclaimable": True, "parent": wanted.parent}
    if wanted.capability:
        found["capability"] = wanted.capability
    if wanted.guarantee:
        found |= {"deserved": wanted.guarantee, "guarantee": {"resource": wanted.guarantee}}
    if wanted.most_groups is not None:
        found["limits"] = {"groups": wanted.most_groups}
    return found


def changes(wanted: QuotaQueue, queue: Queue) -> Json:
    """What has to change of a queue, as a merge patch; empty if nothing has."""
    spec, now = queue.spec, queue.metadata.annotations or {}
    ours = (keys.QUOTA_SOURCE, keys.QUOTA_NAMESPACES, keys.QUOTA_ENDED)
    notes = dict.fromkeys(ours) | annotations_of(wanted)
    kept = _amounts(spec.guarantee.resource if spec.guarantee else None, wanted.guarantee)
    changed: Json = {
        "capability": _amounts(spec.capability, wanted.capability),
        "deserved": _amounts(spec.deserved, wanted.guarantee),
        "guarantee": {"resource": kept} if kept else None,
    }
    patch = {name: value for name, value in changed.items() if value}
    if (spec.parent or keys.ROOT_QUEUE) != wanted.parent:
        patch["parent"] = wanted.parent
    if (spec.limits.groups if spec.limits else None) != wanted.most_groups:
        patch["limits"] = {"groups": wanted.most_groups}
    if is_ended(queue):
        patch["state"] = "Open"
    noted = {name: value for name, value in notes.items() if now.get(name) != value}
    metadata = {"metadata": {"annotations": noted}} if noted else {}
    return metadata | ({"spec": patch} if patch else {})


def _amounts(now: dict[str, Quantity] | None, wanted: dict[str, Quantity]) -> Json | None:
    """The amounts to merge, with nulls for those that go; None if they are what they should be."""
    now = now or {}
    try:
        same = now.keys() == wanted.keys() and offered(now) == offered(wanted)
    except BadQuantity:
        same = False
    return None if same else dict.fromkeys(now) | wanted
