"""Groups of pods without a group name: the PodGroup for a pod and its siblings."""

from collections.abc import Mapping
from enum import Enum, StrEnum, auto
from typing import Any

import msgspec

from extender.api import keys
from extender.api.objects.base import OwnerReference
from extender.api.objects.pods import Pod
from extender.domain.model.ownership import INHERITED, OwnerRecord, auto_name, controller_of
from extender.domain.model.queue_of_group import LocalQueueLabel
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.resources import PODS, Resources, pod_requests, quantities
from extender.domain.snapshot.decisions import GroupDecision

_OF_POD = ("preemptable", "cooldown-time", "revocable-zone", "jdb-min-available", "jdb-max-unavailable")
_OF_POD_LABELS = ("preemptable", "cooldown-time")
_BUDGETS = frozenset({f"{INHERITED}jdb-min-available", f"{INHERITED}jdb-max-unavailable"})


class AutoGroup(msgspec.Struct, frozen=True):
    """State of a group of pods without a group name."""

    min_member: int | None  # minMember of its PodGroup; None without a PodGroup
    wanted: int  # how many of its pods start together
    owner: OwnerRecord | None  # the controller of its pods, if that says anything about the group
    queue_is_open: bool
    has_live_pods: bool  # whether a pod of it waits or is on a node, and its controller is known
    has_pods: bool  # it has a pod left, even if only a finished one
    is_used: bool  # whether it has any pod, also one that names it explicitly, or may still get one
    has_job: bool = False  # a managed job makes its pods, and its PodGroup is made for that


class PlainPods(StrEnum):
    """Policy of PodGroups for plain pods.

    A PodGroup costs two writes, and adds nothing to the status of a pod that starts at once.
    """

    ALWAYS = "always"
    WAITING = "waiting"  # plain pods that have waited for a short time
    NEVER = "never"

    def need_podgroup(self, decision: GroupDecision | None) -> bool:
        """Return whether a plain pod with this decision needs a PodGroup now.

        The limit of pods in flight and the scheduler's own queue do not count as waiting: a burst of
        pods that all fit goes through them.
        """
        if self is not PlainPods.WAITING or decision is None:
            return self is PlainPods.ALWAYS
        return decision.verdict is Verdict.WAITING and decision.reason is not Reason.WINDOW_FULL


class PodGroupStep(Enum):
    """Step for the PodGroup of a group."""

    NOTHING = auto()
    MAKE = auto()
    AWAIT_QUEUE = auto()  # create it once the queue is open
    RENUMBER = auto()  # update it: its owner's numbers changed
    DELETE = auto()


def next_step(group: AutoGroup, goes_without: bool = False) -> PodGroupStep:
    """Return the step about the PodGroup of a group.

    An owner without pods, such as an old revision, loses its PodGroup: it may stay indefinitely.
    `goes_without`: the group is that of a plain pod that needs no PodGroup now.
    """
    owner = group.owner
    if group.has_job:
        return PodGroupStep.NOTHING
    if group.min_member is None:
        if goes_without or not group.has_live_pods:
            return PodGroupStep.NOTHING
        return PodGroupStep.MAKE if group.queue_is_open else PodGroupStep.AWAIT_QUEUE
    if owner is not None and group.has_pods and group.min_member != group.wanted:
        return PodGroupStep.RENUMBER
    if owner is not None and owner.idle and not group.is_used:
        return PodGroupStep.DELETE
    return PodGroupStep.NOTHING


def min_resources(requests: Resources, owner: OwnerRecord | None, min_member: int) -> dict[str, str]:
    """Return the resources of minMember pods; None where only one of several sorts of pods is known."""
    if owner is not None and owner.gang.sets > 1 and min_member > 1:
        return {}
    return quantities({name: n * min_member for name, n in requests.items() if name != PODS})


def build(
    pod: Pod, owner: OwnerRecord | None, min_member: int, queue: str, label: LocalQueueLabel | None = None
) -> dict[str, Any]:
    """Return the PodGroup for a pod and its siblings, as it is created.

    Args:
        pod: The first pod of the group.
        owner: The owner of the pods, if any.
        min_member: The number of pods that start together.
        queue: The queue of the pods.
        label: Name of the LocalQueue by which they come into their queue, which then is not named itself: it
            may change.

    Raises:
        BadQuantity: A request cannot be read.
    """
    meta, labels = pod.metadata, _selected_annotations(pod.metadata.labels, _OF_POD_LABELS)
    # A disruption budget of the pod replaces any budget of its owner.
    own = _selected_annotations(meta.annotations, _OF_POD)
    without = frozenset() if _BUDGETS.isdisjoint(own) else _BUDGETS
    of_owner = owner.annotations if owner is not None else {}
    inherited = {key: text for key, text in of_owner.items() if key not in without}
    spec = {
        "minMember": min_member,
        "queue": "" if label else queue,
        "priorityClassName": pod.spec.priority_class_name,
        "minResources": min_resources(pod_requests(pod.spec), owner, min_member),
    }
    metadata = {
        "name": auto_name(pod),
        "namespace": meta.namespace,
        "ownerReferences": _owners(pod, owner),
        "annotations": inherited | own,
        "labels": labels | {label.key: label.name} if label else labels,
    }
    return podgroup(metadata, spec)


def podgroup(metadata: Mapping[str, object], spec: Mapping[str, object]) -> dict[str, Any]:
    """Return the object as it is created, without empty fields."""
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {name: value for name, value in metadata.items() if value},
        "spec": {name: value for name, value in spec.items() if value or name == "minMember"},
        "status": {"phase": "Pending"},
    }


def record_submitter(obj: dict[str, Any], user: str) -> None:
    """Record on a PodGroup the user for whom it is made, if known: it may outlive its owners."""
    if user:
        obj["metadata"].setdefault("annotations", {})[keys.SUBMITTER] = user


def _owners(pod: Pod, owner: OwnerRecord | None) -> list[dict[str, Any]]:
    """Return the owner of the PodGroup: the job above if it is known, else the pod's controller or the pod.

    No owner reference blocks the deletion of its owner: for that, Muster would need the right to update the
    finalizers of all owners.
    """
    meta = pod.metadata
    if owner is not None and owner.reference is not None:
        owners = [owner.reference]
    elif controller_of(meta.owner_references):
        owners = meta.owner_references or []
    else:
        owners = [OwnerReference("v1", "Pod", meta.name, meta.uid, controller=True)]
    return [msgspec.to_builtins(owner) for owner in owners]


def _selected_annotations(annotations: Mapping[str, str] | None, names: tuple[str, ...]) -> dict[str, str]:
    wanted = {f"{INHERITED}{name}" for name in names}
    return {key: text for key, text in (annotations or {}).items() if key in wanted}
