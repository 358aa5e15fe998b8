"""Groups of pods that name none: which group such a pod makes with its siblings, and the PodGroup for it.

Pods of one controller share a group, named after the controller's UID; a pod without one is a group of its
own. The name follows from the pod alone, so a pod belongs to its group before the PodGroup exists, and
nothing moves when that comes. The names, and what is inherited from owner and pod, are Volcano's.

A PodGroup is a thing new to its queue, so none is made while the queue takes nothing in. Who empties a queue
that is closed would otherwise find each group made again.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

import msgspec

from extender.api import keys
from extender.api.objects import OwnerReference, Pod, Workload
from extender.domain.requests import pod_requests
from extender.domain.resources import PODS, Resources, quantities

_PREFIX = "podgroup-"
_INHERITED = "volcano.sh/"
_OF_POD = ("preemptable", "cooldown-time", "revocable-zone", "jdb-min-available", "jdb-max-unavailable")
_OF_POD_LABELS = ("preemptable", "cooldown-time")
_BUDGETS = frozenset({f"{_INHERITED}jdb-min-available", f"{_INHERITED}jdb-max-unavailable"})


class OwnerRecord(msgspec.Struct, frozen=True, gc=False):
    """What the controller of pods says about their group. `annotations` are those that the group inherits.
    `idle`: it wants no pods."""

    uid: str
    min_member: int = 1
    asks: bool = False  # it names a number itself
    annotations: Mapping[str, str] = {}
    idle: bool = False
    suspended: bool = False


def owner_record(workload: Workload) -> OwnerRecord:
    annotations, spec = workload.metadata.annotations or {}, workload.spec
    return OwnerRecord(
        uid=workload.metadata.uid,
        min_member=_min_member(annotations.get(keys.MIN_MEMBER)),
        asks=keys.MIN_MEMBER in annotations,
        annotations={key: text for key, text in annotations.items() if key.startswith(_INHERITED)},
        idle=spec.replicas == 0,
        suspended=bool(spec.suspend),
    )


class AutoGroup(msgspec.Struct, frozen=True):
    """A group of pods that name none, at one moment. `min_member`: its PodGroup's; None while there is none.
    `lives`: a pod of it waits, or is on a node. `has_pods`: any is left, if only finished. `is_used`: so are
    pods that merely name it."""

    min_member: int | None
    owner: OwnerRecord | None
    queue_is_open: bool
    lives: bool
    has_pods: bool
    is_used: bool


class Step(Enum):
    """What is to be done about the PodGroup of a group."""

    NOTHING = auto()
    MAKE = auto()
    AWAIT_QUEUE = auto()
    RENUMBER = auto()  # its owner's numbers changed
    DELETE = auto()


def next_step(group: AutoGroup) -> Step:
    """An owner that wants no pods, like an old revision, would keep its group for ever: that is deleted."""
    owner = group.owner
    if group.min_member is None:
        return _first_step(group)
    if owner is not None and group.has_pods and group.min_member != owner.min_member:
        return Step.RENUMBER
    if owner is not None and owner.idle and not group.is_used:
        return Step.DELETE
    return Step.NOTHING


def _first_step(group: AutoGroup) -> Step:
    if not group.lives:
        return Step.NOTHING
    return Step.MAKE if group.queue_is_open else Step.AWAIT_QUEUE


def _min_member(text: str | None) -> int:
    """What is no number counts as 1."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else 1


def controller_of(owners: list[OwnerReference] | None) -> OwnerReference | None:
    return next((owner for owner in owners or () if owner.controller), None)


def auto_name(pod: Pod) -> str:
    """The name of the group of a pod that names none."""
    controller = controller_of(pod.metadata.owner_references)
    return group_name_of(controller.uid if controller else pod.metadata.uid)


def group_name_of(uid: str) -> str:
    """The name of the group of a controller's pods, or of a pod's own."""
    return f"{_PREFIX}{uid}"


def min_resources(requests: Resources, min_member: int) -> dict[str, str]:
    return quantities({name: n * min_member for name, n in requests.items() if name != PODS})


def build(pod: Pod, owner: OwnerRecord | None, queue: str) -> dict[str, Any]:
    """The PodGroup for a pod and its siblings, as it is created. Raises BadQuantity."""
    min_member = owner.min_member if owner else 1
    spec = {
        "minMember": min_member,
        "queue": queue,
        "priorityClassName": pod.spec.priority_class_name,
        "minResources": min_resources(pod_requests(pod.spec), min_member),
    }
    metadata = {
        "name": auto_name(pod),
        "namespace": pod.metadata.namespace,
        "ownerReferences": _owners(pod),
        "annotations": _annotations(pod, owner),
        "labels": _chosen(pod.metadata.labels, _OF_POD_LABELS),
    }
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {name: value for name, value in metadata.items() if value},
        "spec": {name: value for name, value in spec.items() if value or name == "minMember"},
        "status": {"phase": "Pending"},
    }


def _owners(pod: Pod) -> list[dict[str, Any]]:
    """The pod's own where it has a controller, else the pod. None of them blocks its owner's deletion: that
    would take the right to update the finalizers of every such owner."""
    meta = pod.metadata
    if controller_of(meta.owner_references):
        owners = meta.owner_references or []
    else:
        owners = [OwnerReference("v1", "Pod", meta.name, meta.uid, controller=True)]
    return [msgspec.to_builtins(owner) for owner in owners]


def _annotations(pod: Pod, owner: OwnerRecord | None) -> dict[str, str]:
    """The owner's, overwritten by the pod's. One disruption budget excludes the other."""
    own = _chosen(pod.metadata.annotations, _OF_POD)
    inherited = dict(owner.annotations) if owner else {}
    if not _BUDGETS.isdisjoint(own):
        inherited = {key: text for key, text in inherited.items() if key not in _BUDGETS}
    return inherited | own


def _chosen(given: Mapping[str, str] | None, names: tuple[str, ...]) -> dict[str, str]:
    wanted = {f"{_INHERITED}{name}" for name in names}
    return {key: text for key, text in (given or {}).items() if key in wanted}
