"""Pods of a Volcano Job: their relevant fields, their names, and their creation.

Names, labels and annotations are Volcano's. So a job can change from Muster to Volcano, or from Volcano to
Muster, and its pods stay the same.
"""

from typing import Any

import msgspec

from extender.api.keys import GROUP_ANNOTATION, MAX_UNAVAILABLE, MIN_AVAILABLE, PREEMPTABLE, ROLE
from extender.api.objects.volcano import Json, TaskSpec, VolcanoJob
from extender.api.units import unix_seconds
from extender.api.workloads.operators import VOLCANO_JOB
from extender.api.workloads.shape import items_at, value_at

_PREFIX = "volcano.sh/"
INDEX_KEY, VERSION_KEY = f"{_PREFIX}task-index", f"{_PREFIX}job-version"
JOB_NAME, JOB_NAMESPACE = f"{_PREFIX}job-name", f"{_PREFIX}job-namespace"
PARTITION_KEY, RETRY_KEY = f"{_PREFIX}partition-id", f"{_PREFIX}job-retry-count"
_COPIED_KEYS = (PREEMPTABLE, f"{_PREFIX}cooldown-time")  # labels and annotations copied from the job
_COPIED_ANNOTATIONS = (*_COPIED_KEYS, f"{_PREFIX}revocable-zone", MIN_AVAILABLE, MAX_UNAVAILABLE)
_STATUS_FIELDS = ("containerStatuses", "initContainerStatuses")


class JobPod(msgspec.Struct, frozen=True):
    """Record of a pod that a job owns. Times are in seconds since 1970."""

    name: str
    uid: str
    task: str
    index: int
    version: int  # the job's version when the pod was created
    phase: str
    namespace: str = ""
    retry: int = 0  # the job's status.retryCount when the pod was created
    partition: str = ""  # partition of the task; empty if the task has none
    is_deleting: bool = False
    exit_code: int | None = None  # exit code of the first container
    was_bound: bool = False  # whether the pod was ever bound to a node
    is_ready: bool = False  # whether all containers are ready
    restart_count: int = 0  # restarts of all containers
    created_at: float = 0.0
    ended_at: float = 0.0  # end of the last container; 0 if a container has not ended

    @property
    def is_finished(self) -> bool:
        return self.phase in ("Succeeded", "Failed")


def pod_of(pod: Json) -> JobPod | None:
    """Return the record of a pod; None if it has no valid annotations of task, index and version."""
    meta = _mapping(pod, "metadata")
    annotations, labels = _mapping(meta, "annotations"), _mapping(meta, "labels")
    index, version = _number(annotations.get(INDEX_KEY)), _number(annotations.get(VERSION_KEY))
    task = annotations.get(ROLE) or labels.get(ROLE)
    if index is None or version is None or not task:
        return None
    statuses = items_at(pod, "status", _STATUS_FIELDS[0])
    all_statuses = [status for name in _STATUS_FIELDS for status in items_at(pod, "status", name)]
    ends = [_mapping(status, "state", "terminated") for status in statuses]
    return JobPod(
        name=meta.get("name", ""),
        uid=meta.get("uid", ""),
        task=task,
        index=index,
        version=version,
        phase=value_at(pod, ("status", "phase")) or "Pending",
        namespace=meta.get("namespace", ""),
        retry=_number(annotations.get(RETRY_KEY)) or 0,
        partition=labels.get(PARTITION_KEY, ""),
        is_deleting=bool(meta.get("deletionTimestamp")),
        exit_code=ends[0].get("exitCode") if ends else None,
        was_bound=bool(value_at(pod, ("spec", "nodeName"))),
        is_ready=all(status.get("ready") for status in statuses),
        restart_count=sum(status.get("restartCount") or 0 for status in all_statuses),
        created_at=unix_seconds(meta.get("creationTimestamp")),
        ended_at=max((unix_seconds(end.get("finishedAt")) for end in ends), default=0.0),
    )


def _number(text: Any) -> int | None:
    """Return a short decimal number; None for any other value."""
    return int(text) if isinstance(text, str) and text.isdecimal() and len(text) < 10 else None


def pod_name(job: str, task: str, index: int) -> str:
    return f"{job}-{task}-{index}"


def group_name(job: VolcanoJob) -> str:
    """Return the name of the job's PodGroup."""
    return f"{job.metadata.name}-{job.metadata.uid}"


def partition_of(task: TaskSpec, index: int) -> str:
    """Return the partition of a pod; empty if the task has no partitions."""
    policy = task.partition_policy
    if policy is None:
        return ""
    return str(index // policy.partition_size) if policy.partition_size > 0 else "0"


def owned_object(job: VolcanoJob, api_version: str, kind: str, name: str, **body: Any) -> Json:
    """Return an object that the job owns, without blockOwnerDeletion.

    With blockOwnerDeletion, the admission plugin OwnerReferencesPermissionEnforcement would require a right
    on finalizers of jobs.
    """
    owner = dict(zip(("apiVersion", "kind"), VOLCANO_JOB.key, strict=True))
    owner |= {"name": job.metadata.name, "uid": job.metadata.uid}
    references = [{**owner, "controller": True}]
    metadata = {"name": name, "namespace": job.metadata.namespace, "ownerReferences": references}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **body}


def build_pod(job: VolcanoJob, task: TaskSpec, index: int) -> Json:
    """Return a new pod, without the additions of plugins."""
    template = task.template
    spec = _with_volumes(job, _mapping(template, "spec"))
    inherited = {"schedulerName": job.spec.scheduler_name, "priorityClassName": job.spec.priority_class_name}
    spec |= {field: value for field, value in inherited.items() if value and not spec.get(field)}
    if spec.get("hostNetwork") and not spec.get("dnsPolicy"):
        spec["dnsPolicy"] = "ClusterFirstWithHostNet"  # needed to find the other pods of the job
    pod = owned_object(job, "v1", "Pod", pod_name(job.metadata.name, task.name, index), spec=spec)
    labels = _mapping(template, "metadata", "labels") | _labels(job, task, index)
    annotations = _mapping(template, "metadata", "annotations") | _annotations(job, task, index)
    pod["metadata"] |= {"labels": labels, "annotations": annotations}
    return pod


def _mapping(obj: Any, *path: str) -> Json:
    """Return the object at a path; empty if there is none."""
    value = value_at(obj, path)
    return value if isinstance(value, dict) else {}


def _labels(job: VolcanoJob, task: TaskSpec, index: int) -> dict[str, str]:
    """Return the labels of a pod that Volcano sets, or that come from the job."""
    meta, partition = job.metadata, partition_of(task, index)
    inherited_labels = {key: value for key, value in (meta.labels or {}).items() if key in _COPIED_KEYS}
    return {
        JOB_NAME: meta.name,
        JOB_NAMESPACE: meta.namespace,
        f"{_PREFIX}queue-name": job.spec.queue,
        ROLE: task.name,
        INDEX_KEY: str(index),
        **({PARTITION_KEY: partition} if partition else {}),
        **inherited_labels,
    }


def _annotations(job: VolcanoJob, task: TaskSpec, index: int) -> dict[str, str]:
    """Return the annotations that Volcano sets on a pod, and the annotations that come from the job."""
    meta, numa = job.metadata, task.topology_policy
    return {
        JOB_NAME: meta.name,
        f"{_PREFIX}queue-name": job.spec.queue,
        f"{_PREFIX}template-uid": f"{meta.name}-{task.name}",
        GROUP_ANNOTATION: group_name(job),
        ROLE: task.name,
        INDEX_KEY: str(index),
        VERSION_KEY: str(job.status.version),
        RETRY_KEY: str(job.status.retry_count),
        **({f"{_PREFIX}numa-topology-policy": numa} if numa else {}),
        **{key: value for key, value in (meta.annotations or {}).items() if key in _COPIED_ANNOTATIONS},
    }


def claim_names(job: VolcanoJob) -> list[str]:
    """Return the name of each volume's claim. Unnamed claims are named after the job and its UID."""
    return [
        volume.volume_claim_name or f"{job.metadata.name}-{job.metadata.uid}-{number}"
        for number, volume in enumerate(job.spec.volumes or ())
    ]


def _with_volumes(job: VolcanoJob, spec: Json) -> Json:
    """Return a copy of a pod's spec in which each container has the job's volumes.

    If two volumes of the job name the same claim, the pod has one volume for this claim.
    """
    claims = claim_names(job)
    if not claims:
        return dict(spec)
    names = {claim: f"job-volume-{number}" for number, claim in enumerate(dict.fromkeys(claims))}
    claimed_volumes = zip(claims, job.spec.volumes or (), strict=True)
    mounts = [{"name": names[claim], "mountPath": volume.mount_path} for claim, volume in claimed_volumes]
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": claim}} for claim, name in names.items()]
    containers = [
        {**container, "volumeMounts": [*items_at(container, "volumeMounts"), *mounts]}
        for container in items_at(spec, "containers")
    ]
    return {**spec, "containers": containers, "volumes": [*items_at(spec, "volumes"), *volumes]}
