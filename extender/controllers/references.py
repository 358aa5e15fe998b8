"""How objects name others: those that Events are about, and owners."""

from typing import Any

from extender.api.objects.base import Reference
from extender.domain.jobs.job_record import JobRecord
from extender.domain.model.records import GroupRecord, Origin, PodRecord
from extender.kube.resources import NATIVE_POD_GROUPS, PLUGINS_POD_GROUPS, POD_GROUPS

GROUP_KINDS = {
    Origin.VOLCANO: POD_GROUPS,
    Origin.PLUGINS: PLUGINS_POD_GROUPS,
    Origin.NATIVE: NATIVE_POD_GROUPS,
}
POD_GROUP_KIND = "PodGroup"  # in all of these APIs
_VOLCANO = POD_GROUPS.version


def of_pod(pod: PodRecord) -> Reference:
    return Reference("v1", "Pod", pod.name, pod.namespace, pod.uid)


def of_group(group: GroupRecord) -> Reference:
    version = GROUP_KINDS[group.origin].version
    return Reference(version, POD_GROUP_KIND, group.name, group.namespace, group.uid)


def of_job(job: JobRecord) -> Reference:
    return Reference(job.kind.api_version, job.kind.kind, job.name, job.namespace, job.uid)


def of_queue(name: str, uid: str) -> Reference:
    return Reference(_VOLCANO, "Queue", name, "", uid)


def owner_group(group: GroupRecord) -> dict[str, Any]:
    """An owner reference to a group, of whichever API it is. It does not block the group's deletion, which
    would take the right to update its finalizers."""
    return {
        "apiVersion": GROUP_KINDS[group.origin].version,
        "kind": POD_GROUP_KIND,
        "name": group.name,
        "uid": group.uid,
        "controller": True,
    }
