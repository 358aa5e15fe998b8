"""Groups of pods that name no group: the PodGroup that Muster makes for a pod and its siblings."""

from collections.abc import Mapping
from enum import Enum, StrEnum, auto
from typing import Any

import msgspec

from extender.api import keys
from extender.api.objects.base import OwnerReference
from extender.api.objects.pods import Pod
from extender.domain.model.ownership import KEY_PREFIX, OwnerRecord, auto_group_name, controller_of
from extender.domain.model.queue_of_group import LocalQueueLabel
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.resources import PODS, Resources, pod_requests, quantities
from extender.domain.snapshot.decisions import GroupDecision

_ANNOTATIONS = ("preemptable", "cooldown-time", "revocable-zone", "jdb-min-available", "jdb-max-unavailable")
_LABELS = ("preemptable", "cooldown-time")
_BUDGET_ANNOTATIONS = frozenset({f"{KEY_PREFIX}jdb-min-available", f"{KEY_PREFIX}jdb-max-unavailable"})


class AutoGroup(msgspec.Struct, frozen=True):
    """State of a group of pods that name no group."""

    min_member: int | None  # minMember of the PodGroup; None if the group has no PodGroup
    member_count: int  # number of pods that start together, by their owner
    owner: OwnerRecord | None  # controller of the pods; None if the controller says nothing about the group
    queue_is_open: bool
    has_live_pods: bool  # whether a pod with a known controller waits or is on a node
    has_pods: bool  # whether the group still has a pod, even if that pod has finished
    is_used: bool  # whether the group has or may get pods, including pods that name the group
    has_job: bool = False  # whether a managed job makes the pods: the PodGroup then belongs to the job


class PlainPods(StrEnum):
    """Policy that says which plain pods get a PodGroup.

    A PodGroup costs two writes. For a pod that starts at once, a PodGroup adds nothing to the pod's status.
    """

    ALWAYS = "always"
    WAITING = "waiting"  # only plain pods that have waited for a short time
    NEVER = "never"

    def need_podgroup(self, decision: GroupDecision | None) -> bool:
        """Return whether a plain pod with this decision needs a PodGroup now.

        A wait for a place in the starting window does not count, and neither does a wait in the scheduler's
        own queue: in a burst of pods that all fit, every pod waits in both.
        """
        if self is not PlainPods.WAITING or decision is None:
            return self is PlainPods.ALWAYS
        return decision.verdict is Verdict.WAITING and decision.reason is not Reason.WINDOW_FULL


class PodGroupStep(Enum):
    """Next step for the PodGroup of a group."""

    NOTHING = auto()
    MAKE = auto()
    AWAIT_QUEUE = auto()  # create the PodGroup once the queue is open
    RENUMBER = auto()  # update the PodGroup, because the numbers of its owner changed
    DELETE = auto()


def next_step(group: AutoGroup, needs_none: bool = False) -> PodGroupStep:
    """Return the next step for the PodGroup of a group.

    The PodGroup of an owner without pods, such as an old revision, is deleted. Otherwise the PodGroup could
    stay as long as the owner, which may be forever.

    Args:
        group: The group.
        needs_none: Whether the group is a plain pod that needs no PodGroup now.
    """
    owner = group.owner
    if group.has_job:
        return PodGroupStep.NOTHING
    if group.min_member is None:
        if needs_none or not group.has_live_pods:
            return PodGroupStep.NOTHING
        return PodGroupStep.MAKE if group.queue_is_open else PodGroupStep.AWAIT_QUEUE
    if owner is not None and group.has_pods and group.min_member != group.member_count:
        return PodGroupStep.RENUMBER
    if owner is not None and owner.is_idle and not group.is_used:
        return PodGroupStep.DELETE
    return PodGroupStep.NOTHING


def min_resources(requests: Resources, owner: OwnerRecord | None, min_member: int) -> dict[str, str]:
    """Return the joint requests of minMember pods.

    The result is empty if the owner makes several sorts of pods: only the requests of one sort are known.
    """
    if owner is not None and owner.gang.sets > 1 and min_member > 1:
        return {}
    return quantities({name: n * min_member for name, n in requests.items() if name != PODS})


def build(
    pod: Pod, owner: OwnerRecord | None, min_member: int, queue: str, label: LocalQueueLabel | None = None
) -> dict[str, Any]:
    """Return the PodGroup to create for a pod and its siblings.

    Args:
        pod: The first pod of the group.
        owner: The owner of the pods, if any.
        min_member: The number of pods that start together.
        queue: The queue of the pods.
        label: The label that names the LocalQueue of the pods, if any. The PodGroup then has this label and
            no queue, because the queue of a LocalQueue may change.

    Raises:
        BadQuantity: A request cannot be read.
    """
    meta, labels = pod.metadata, _volcano_values(pod.metadata.labels, _LABELS)
    # A disruption budget of the pod replaces any budget of its owner.
    pod_annotations = _volcano_values(meta.annotations, _ANNOTATIONS)
    replaced_keys = frozenset() if _BUDGET_ANNOTATIONS.isdisjoint(pod_annotations) else _BUDGET_ANNOTATIONS
    owner_annotations = owner.annotations if owner is not None else {}
    inherited_annotations = {key: text for key, text in owner_annotations.items() if key not in replaced_keys}
    spec = {
        "minMember": min_member,
        "queue": "" if label else queue,
        "priorityClassName": pod.spec.priority_class_name,
        "minResources": min_resources(pod_requests(pod.spec), owner, min_member),
    }
    metadata = {
        "name": auto_group_name(pod),
        "namespace": meta.namespace,
        "ownerReferences": _owner_references(pod, owner),
        "annotations": inherited_annotations | pod_annotations,
        "labels": labels | {label.key: label.name} if label else labels,
    }
    return podgroup(metadata, spec)


def podgroup(metadata: Mapping[str, object], spec: Mapping[str, object]) -> dict[str, Any]:
    """Return the PodGroup to create, without empty fields."""
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {name: value for name, value in metadata.items() if value},
        "spec": {name: value for name, value in spec.items() if value or name == "minMember"},
        "status": {"phase": "Pending"},
    }


def record_submitter(podgroup_object: dict[str, Any], user: str) -> None:
    """Record on a PodGroup the user for whom it is made, if that user is known.

    The PodGroup may outlive its owners, so the user cannot always be looked up on them.
    """
    if user:
        podgroup_object["metadata"].setdefault("annotations", {})[keys.SUBMITTER] = user


def _owner_references(pod: Pod, owner: OwnerRecord | None) -> list[dict[str, Any]]:
    """Return the owner references of the PodGroup.

    The owner is the job above the pod's controller if that job is known, else the pod's controller, else the
    pod. No owner reference blocks the deletion of the owner: for that, Muster would need the right to update
    the finalizers of all owners.
    """
    meta = pod.metadata
    if owner is not None and owner.reference is not None:
        owners = [owner.reference]
    elif controller_of(meta.owner_references):
        owners = meta.owner_references or []
    else:
        owners = [OwnerReference("v1", "Pod", meta.name, meta.uid, controller=True)]
    return [msgspec.to_builtins(owner) for owner in owners]


def _volcano_values(values: Mapping[str, str] | None, names: tuple[str, ...]) -> dict[str, str]:
    """Return the annotations or labels of Volcano with these names."""
    keys_to_copy = {f"{KEY_PREFIX}{name}" for name in names}
    return {key: text for key, text in (values or {}).items() if key in keys_to_copy}
