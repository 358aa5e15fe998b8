"""Ownership of pods: whether Muster schedules a pod, its group, and the PodGroup that its owner leads to.

The rules for PodGroups of owners are Volcano's.
"""

import re
from collections.abc import Mapping

import msgspec

from extender.api import keys
from extender.api.objects.base import Meta, OwnerReference
from extender.api.objects.cluster import Workload
from extender.api.objects.pods import Pod
from extender.api.workloads.gangs import MadePods, gang_of_replicas
from extender.api.workloads.sets import JOB_SET, LEADER_WORKER_SET
from extender.api.workloads.shape import JOB, STATEFUL_SET, VOLCANO_JOB
from extender.domain.model.run_history import NO_CHECKPOINT, Checkpoint, checkpoint_of, run_time_of
from extender.domain.model.topology import NO_TOPOLOGY, TopologyRequest, topology_of

_GROUP_PREFIX = "podgroup-"
KEY_PREFIX = "volcano.sh/"  # prefix of annotations that a PodGroup inherits


class OwnerRecord(msgspec.Struct, frozen=True, gc=False):
    """Record of a controller of pods, with the facts that concern the group of its pods."""

    uid: str
    gang: MadePods = MadePods()
    reference: OwnerReference | None = None  # owner of the PodGroup; None: the owner of the pods
    annotations: Mapping[str, str] = {}  # annotations that the PodGroup inherits
    is_idle: bool = False  # whether spec.replicas is 0
    is_suspended: bool = False  # value of spec.suspend
    run_limit: int | None = None  # seconds until Kubernetes ends its pods (activeDeadlineSeconds)
    usable_queue: str = ""  # restricted queue that its author may use, by its annotation
    checkpoint: Checkpoint = NO_CHECKPOINT  # latest checkpoint, by its annotation
    run_time: float | None = None  # expected run time in seconds, by its annotation
    topology: TopologyRequest = NO_TOPOLOGY  # request of all its pods together, by its annotations
    on_lost_domain: str = ""  # policy for lost members without capacity in their domain


def owner_record(workload: Workload) -> OwnerRecord:
    """Return the record of a workload that owns pods."""
    annotations, spec = workload.metadata.annotations or {}, workload.spec
    return OwnerRecord(
        uid=workload.metadata.uid,
        gang=gang_of_replicas(annotations, spec.replicas, spec.pod_management_policy),
        annotations={key: text for key, text in annotations.items() if key.startswith(KEY_PREFIX)},
        is_idle=spec.replicas == 0,
        is_suspended=bool(spec.suspend),
        run_limit=spec.active_deadline_seconds,
        checkpoint=checkpoint_of(workload.metadata),
        run_time=run_time_of(workload.metadata),
        topology=topology_of(annotations),
        on_lost_domain=annotations.get(keys.ON_LOST_DOMAIN, ""),
    )


def controller_of(owners: list[OwnerReference] | None) -> OwnerReference | None:
    """Return the owner that is marked as the controller; None without a controller."""
    return next((owner for owner in owners or () if owner.controller), None)


# Labels that name the job, for jobs whose pods have different controllers.

_UID_REGEX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_GROUP_NAME_REGEX = re.compile(rf"{_GROUP_PREFIX}[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}")
_JOB_SET = ("jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/jobset-uid")
_MPI, _MPI_NAME = ("training.kubeflow.org/operator-name", "mpi-operator"), "training.kubeflow.org/job-name"
_LWS, _LWS_GROUP = "leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index"
_MPI_JOB, _LEADER_WORKER_SET = ("kubeflow.org/v2beta1", "MPIJob"), LEADER_WORKER_SET.key
CONTROLLER_LABELS = (*_JOB_SET, _MPI[0], _MPI_NAME, _LWS, _LWS_GROUP)
NAMED_CONTROLLERS = (_MPI_JOB, _LEADER_WORKER_SET)  # kinds whose pods have only a label with the owner's name


def group_owner_of(pod: Pod) -> OwnerReference | None:
    """Return the owner of a pod's group: its controller, or the job above the controller.

    The UID of such a job may be unknown, and is then empty.
    """
    controller, labels = controller_of(pod.metadata.owner_references), pod.metadata.labels or {}
    kind = (controller.api_version, controller.kind) if controller else None
    job_set, uid = (labels.get(key, "") for key in _JOB_SET)
    if kind == JOB and _UID_REGEX.fullmatch(uid):
        return OwnerReference(*JOB_SET.key, job_set, uid, True)
    if kind in (JOB, _MPI_JOB) and labels.get(_MPI[0]) == _MPI[1] and _MPI_NAME in labels:
        return OwnerReference(*_MPI_JOB, labels[_MPI_NAME])
    if kind == STATEFUL_SET and _LWS in labels and _LWS_GROUP in labels:
        return OwnerReference(*_LEADER_WORKER_SET, labels[_LWS])
    return controller


def auto_group_name(pod: Pod) -> str:
    """Return the name of the group of a pod that names no group.

    The name is made from the group's owner, or from the pod if it has no controller.
    """
    controller = group_owner_of(pod)
    if controller is None or controller.uid:
        return group_name_of(controller.uid if controller else pod.metadata.uid)
    index = (pod.metadata.labels or {}).get(_LWS_GROUP)
    return named_group(controller) + (f".{index}" if index else "")


def group_name_of(uid: str) -> str:
    """Return the name of the group of a controller's pods, or of a pod without a controller."""
    return f"{_GROUP_PREFIX}{uid}"


def uid_of_group(name: str) -> str:
    """Return the UID in a group name from `group_name_of`."""
    return name.removeprefix(_GROUP_PREFIX)


def is_named_by_uid(name: str) -> bool:
    """Return whether a group's name has the form of names that Muster makes from UIDs."""
    return _GROUP_NAME_REGEX.fullmatch(name) is not None


def podgroup_name(job: OwnerReference) -> str:
    """Return the name of the PodGroup of a job. For a Volcano Job, this is the name that Volcano gives."""
    is_volcanos = (job.api_version, job.kind) == VOLCANO_JOB
    return f"{job.name}-{job.uid}" if is_volcanos else group_name_of(job.uid)


def named_group(controller: OwnerReference) -> str:
    """Return the name of the group of pods whose owner is known by its name only.

    The pods of a LeaderWorkerSet form one group per index, whose names have the index as a suffix.
    """
    return f"{_GROUP_PREFIX}{controller.kind.lower()}-{controller.name}"


def has_many_groups(key: str) -> bool:
    """Return whether the key belongs to a LeaderWorkerSet, whose pods form one group per index."""
    return f"/{_GROUP_PREFIX}{_LEADER_WORKER_SET[1].lower()}-" in key


def represented_owner(group: str, owners: list[OwnerReference] | None) -> OwnerReference | None:
    """Return the owner for whose pods Muster made the group of this name.

    None means that Muster did not make the group.
    """
    names = (group, group.partition(".")[0])
    matching = (each for each in owners or () if podgroup_name(each) in names or named_group(each) in names)
    return next(matching, None)


class Ownership(msgspec.Struct, frozen=True):
    """Rules about which pods belong to Muster, and which group and queue a pod names.

    A pod belongs to Muster if it names one of Muster's schedulers. If this is the cluster's default
    scheduler, the pod or its namespace must also name a group, a queue or a LocalQueue. A LocalQueue of Kueue
    does not count.
    """

    schedulers: frozenset[str]  # values of spec.schedulerName
    auto_groups: bool = False  # whether the pods of a controller form a group if they name none

    def owns(self, pod: Pod, namespace_queue: str) -> bool:
        """Return whether Muster schedules a pod.

        Args:
            pod: The pod.
            namespace_queue: The default queue of the pod's namespace; empty: none.
        """
        scheduler = pod.spec.scheduler_name
        if scheduler not in self.schedulers:
            return False
        if scheduler != keys.DEFAULT_SCHEDULER:
            return True
        # If the admission policy has added Muster's gate or marker resources, only Muster can start the pod.
        first_requests = pod.spec.containers[0].resources.requests if pod.spec.containers else None
        has_marker = first_requests is not None and not keys.MARKERS.isdisjoint(first_requests)
        if has_marker or any(gate.name == keys.GATE for gate in pod.spec.scheduling_gates or ()):
            return True
        names_local_queue = (pod.metadata.labels or {}).get(keys.LOCAL_QUEUE)
        return bool(group_name(pod) or queue_named_by(pod.metadata) or names_local_queue or namespace_queue)


def is_adopted(namespace: str, labels: Mapping[str, str]) -> bool:
    """Return whether a namespace is adopted.

    Pods of an adopted namespace that name no scheduler get Muster's scheduler, unless they opt out.
    """
    return labels.get(keys.MANAGED) == "true" and namespace not in keys.NEVER_ADOPTED


def is_adoptable(pod: Pod) -> bool:
    """Return whether Muster becomes the scheduler of a pod, or a template's pods, in an adopted namespace."""
    opts_out = (pod.metadata.annotations or {}).get(keys.MANAGED) == "false"
    return pod.spec.scheduler_name in ("", keys.DEFAULT_SCHEDULER) and not opts_out


def group_name(pod: Pod) -> str:
    """Return the PodGroup that a pod names; empty if it names none.

    The name comes from Volcano's annotation, from scheduler-plugins' label, or from the field of Kubernetes,
    in this order.
    """
    meta = pod.metadata
    native = pod.spec.scheduling_group
    return name_of(
        (meta.annotations or {}).get(keys.GROUP_ANNOTATION)
        or (meta.labels or {}).get(keys.GROUP_LABEL)
        or (native.pod_group_name if native else "")
    )


def display_group_name(pod: Pod) -> str:
    """Return the name of a pod's group for users.

    For a pod that names no group, this is the name of its owner, such as `job/train`.
    """
    name, owner = group_name(pod), controller_of(pod.metadata.owner_references)
    if name and name not in (auto_group_name(pod), podgroup_name(owner) if owner else ""):
        return name
    return owner.display_name if owner else f"pod/{pod.metadata.name}"


def group_of(pod: Pod, auto_groups: bool) -> tuple[str, bool]:
    """Return a pod's group, and whether the group follows from the pod's controller.

    The second value is also true if the pod names just the group that follows from its controller.
    """
    name = group_name(pod)
    if not auto_groups:
        return name or f"pod:{pod.metadata.name}", False
    default_group = auto_group_name(pod)
    return name or default_group, name in ("", default_group)


def queue_named_by(meta: Meta) -> str:
    """Return the queue that the annotation or label of an object names; empty if there is none."""
    return name_of((meta.annotations or {}).get(keys.QUEUE) or (meta.labels or {}).get(keys.QUEUE) or "")


_MAX_LENGTH, _CUT_LENGTH, _ELLIPSIS = 253, 40, "…"


def name_of(name: str) -> str:
    """Return the name to give to an object. A name that is too long is cut.

    A pod's annotation may contain 250,000 characters, but the name of an object at most 253. A cut name gets
    an ending that no object's name has.
    """
    return name if len(name) <= _MAX_LENGTH else f"{name[:_CUT_LENGTH]}{_ELLIPSIS}"


def length_fault(kind: str, name: str) -> str:
    """Return the fault of a name that was cut, for users; empty for other names."""
    fault = f"the name of its {kind}, {name.rpartition('/')[2]}, has more than {_MAX_LENGTH} characters"
    return fault if name.endswith(_ELLIPSIS) else ""
