"""The objects that Events are about, in the form in which Events name them."""

from extender.api.objects import Reference
from extender.domain.model.records import GroupRecord, PodRecord

_VOLCANO = "scheduling.volcano.sh/v1beta1"


def of_pod(pod: PodRecord) -> Reference:
    return Reference("v1", "Pod", pod.name, pod.namespace, pod.uid)


def of_group(group: GroupRecord) -> Reference:
    return Reference(_VOLCANO, "PodGroup", group.name, group.namespace, group.uid)


def of_queue(name: str, uid: str) -> Reference:
    return Reference(_VOLCANO, "Queue", name, "", uid)
