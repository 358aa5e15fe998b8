"""The controllers of pods that name no group, and the name of the PodGroup that follows from a controller.

The names, and which annotations are inherited from owner and pod, are Volcano's.
"""

from collections.abc import Mapping

import msgspec

from extender.api import keys
from extender.api.objects.base import OwnerReference
from extender.api.objects.owners import Workload
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
