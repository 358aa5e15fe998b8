"""Which pods are ours, which group each of them belongs to, and the PodGroup that follows from its owner.

The names, and which annotations are inherited from owner and pod, are Volcano's.
"""

from collections.abc import Mapping

import msgspec

from extender.api import keys
from extender.api.objects.base import Meta, OwnerReference
from extender.api.objects.cluster import Workload
from extender.api.objects.pods import Pod

_PREFIX = "podgroup-"
INHERITED = "volcano.sh/"


class OwnerRecord(msgspec.Struct, frozen=True, gc=False):
    """What the controller of pods says about their group."""

    uid: str
    min_member: int = 1  # from its annotation
    asks: bool = False  # whether it has that annotation
    annotations: Mapping[str, str] = {}  # those that the group inherits
    idle: bool = False  # it wants no pods: spec.replicas is 0
    suspended: bool = False  # spec.suspend
    run_limit: int | None = None  # seconds after which its pods are ended: spec.activeDeadlineSeconds


def owner_record(workload: Workload) -> OwnerRecord:
    annotations, spec = workload.metadata.annotations or {}, workload.spec
    return OwnerRecord(
        uid=workload.metadata.uid,
        min_member=_min_member(annotations.get(keys.MIN_MEMBER)),
        asks=keys.MIN_MEMBER in annotations,
        annotations={key: text for key, text in annotations.items() if key.startswith(INHERITED)},
        idle=spec.replicas == 0,
        suspended=bool(spec.suspend),
        run_limit=spec.active_deadline_seconds,
    )


def _min_member(text: str | None) -> int:
    """Text that is not a number counts as 1."""
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


class Ownership(msgspec.Struct, frozen=True):
    """Which pods are ours, and which group and queue a pod names. Nothing else reads this from pods.

    Pods are ours if they name one of our schedulers. Where that is the cluster's default scheduler, they must
    also name a group, a queue or a LocalQueue, themselves or through their namespace. Kueue's label does not
    make a pod of that scheduler ours."""

    schedulers: frozenset[str]  # values of spec.schedulerName
    auto_groups: bool = False  # whether pods of one controller that name no group form one

    def owns(self, pod: Pod, namespace_queue: str) -> bool:
        scheduler = pod.spec.scheduler_name
        if scheduler not in self.schedulers:
            return False
        if scheduler != keys.DEFAULT_SCHEDULER or _is_marked(pod):
            return True
        names_local_queue = (pod.metadata.labels or {}).get(keys.LOCAL_QUEUE)
        return bool(group_name(pod) or own_queue(pod) or names_local_queue or namespace_queue)


def _is_marked(pod: Pod) -> bool:
    """Whether the admission policy has put our gate or marks on the pod: nothing else would open its gate."""
    if any(gate.name == keys.GATE for gate in pod.spec.scheduling_gates or ()):
        return True
    first = pod.spec.containers[0].resources.requests if pod.spec.containers else None
    return first is not None and not keys.MARKS.isdisjoint(first)


def group_name(pod: Pod) -> str:
    """The PodGroup that a pod names: Volcano's annotation, scheduler-plugins' label, the native field."""
    meta = pod.metadata
    native = pod.spec.scheduling_group
    return (
        (meta.annotations or {}).get(keys.GROUP_ANNOTATION)
        or (meta.labels or {}).get(keys.GROUP_LABEL)
        or (native.pod_group_name if native else "")
    )


def spoken_group_name(pod: Pod) -> str:
    """The group as people name it: for pods that name none, their owner, `job/train`."""
    named, owner = group_name(pod), controller_of(pod.metadata.owner_references)
    if named and named != auto_name(pod):
        return named
    return f"{owner.kind.lower()}/{owner.name}" if owner else f"pod/{pod.metadata.name}"


def own_queue(pod: Pod) -> str:
    return queue_named_by(pod.metadata)


def group_of(pod: Pod, auto_groups: bool) -> tuple[str, bool]:
    """The name of a pod's group, and whether the group is the one that follows from the pod's controller. A
    pod that names exactly this group is treated as one that names none."""
    named = group_name(pod)
    if not auto_groups:
        return named or f"pod:{pod.metadata.name}", False
    own = auto_name(pod)
    return named or own, named in ("", own)


def queue_named_by(meta: Meta) -> str:
    return (meta.annotations or {}).get(keys.QUEUE) or (meta.labels or {}).get(keys.QUEUE) or ""
