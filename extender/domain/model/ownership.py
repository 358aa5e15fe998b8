"""Ownership of pods: whether Muster places them, their group, and the PodGroup that follows from their owner.

The rules of PodGroups of owners are Volcano's.
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
from extender.domain.model.run_history import NEVER_SAVED, Checkpoint, checkpoint_of, run_time_of
from extender.domain.model.topology import NO_TOPOLOGY, TopologyRequest, topology_of

_PREFIX = "podgroup-"
INHERITED = "volcano.sh/"


class OwnerRecord(msgspec.Struct, frozen=True, gc=False):
    """Record of a controller of pods, as far as it concerns their group."""

    uid: str
    gang: MadePods = MadePods()
    reference: OwnerReference | None = None  # owner of its pods' group; None: the owner of the pods
    annotations: Mapping[str, str] = {}  # annotations that the group inherits
    idle: bool = False  # spec.replicas is 0
    suspended: bool = False  # spec.suspend
    run_limit: int | None = None  # seconds after which its pods are ended: spec.activeDeadlineSeconds
    may_use: str = ""  # the restricted queue that its author may use, by its annotation
    checkpoint: Checkpoint = NEVER_SAVED  # by its annotation
    run_time: float | None = None  # seconds that its group will run, by its annotation
    topology: TopologyRequest = NO_TOPOLOGY  # for all its pods, by its annotations
    on_lost_domain: str = ""  # what follows if a domain lacks capacity for lost members, by its annotation


def owner_record(workload: Workload) -> OwnerRecord:
    """Return the record of a workload that owns pods."""
    annotations, spec = workload.metadata.annotations or {}, workload.spec
    return OwnerRecord(
        uid=workload.metadata.uid,
        gang=gang_of_replicas(annotations, spec.replicas, spec.pod_management_policy),
        annotations={key: text for key, text in annotations.items() if key.startswith(INHERITED)},
        idle=spec.replicas == 0,
        suspended=bool(spec.suspend),
        run_limit=spec.active_deadline_seconds,
        checkpoint=checkpoint_of(workload.metadata),
        run_time=run_time_of(workload.metadata),
        topology=topology_of(annotations),
        on_lost_domain=annotations.get(keys.ON_LOST_DOMAIN, ""),
    )


def controller_of(owners: list[OwnerReference] | None) -> OwnerReference | None:
    return next((owner for owner in owners or () if owner.controller), None)


# Groups of jobs whose pods have different controllers: labels name the job.

_UID = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_MADE = re.compile(rf"{_PREFIX}[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}")
_JOB_SET = ("jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/jobset-uid")
_MPI, _MPI_NAME = ("training.kubeflow.org/operator-name", "mpi-operator"), "training.kubeflow.org/job-name"
_LWS, _LWS_GROUP = "leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index"
_MPI_JOB, _LEADER_WORKER_SET = ("kubeflow.org/v2beta1", "MPIJob"), LEADER_WORKER_SET.key
CONTROLLER_LABELS = (*_JOB_SET, _MPI[0], _MPI_NAME, _LWS, _LWS_GROUP)
NAMED_CONTROLLERS = (_MPI_JOB, _LEADER_WORKER_SET)  # kinds whose pods have only the owner's name, in a label


def group_owner_of(pod: Pod) -> OwnerReference | None:
    """Return the owner of a pod's group: its controller, or the job above, perhaps without UID."""
    controller, labels = controller_of(pod.metadata.owner_references), pod.metadata.labels or {}
    kind = (controller.api_version, controller.kind) if controller else None
    job_set, uid = (labels.get(key, "") for key in _JOB_SET)
    if kind == JOB and _UID.fullmatch(uid):
        return OwnerReference(*JOB_SET.key, job_set, uid, True)
    if kind in (JOB, _MPI_JOB) and labels.get(_MPI[0]) == _MPI[1] and _MPI_NAME in labels:
        return OwnerReference(*_MPI_JOB, labels[_MPI_NAME])
    if kind == STATEFUL_SET and _LWS in labels and _LWS_GROUP in labels:
        return OwnerReference(*_LEADER_WORKER_SET, labels[_LWS])
    return controller


def auto_name(pod: Pod) -> str:
    """Return the name of the group of a pod that names none: that of its owner, or of the pod alone."""
    controller = group_owner_of(pod)
    if controller is None or controller.uid:
        return group_name_of(controller.uid if controller else pod.metadata.uid)
    index = (pod.metadata.labels or {}).get(_LWS_GROUP)
    return named_group(controller) + (f".{index}" if index else "")


def group_name_of(uid: str) -> str:
    """Return the name of the group of a controller's pods, or of a pod without a controller."""
    return f"{_PREFIX}{uid}"


def uid_of_group(name: str) -> str:
    """Return the UID in a name that `group_name_of` made."""
    return name.removeprefix(_PREFIX)


def is_named_by_uid(name: str) -> bool:
    """Return whether a group has the name of one that Muster makes for an owner with a UID."""
    return _MADE.fullmatch(name) is not None


def podgroup_name(job: OwnerReference) -> str:
    """Return the name of the PodGroup of a job and its pods. That of a Volcano Job is Volcano's choice."""
    is_volcanos = (job.api_version, job.kind) == VOLCANO_JOB
    return f"{job.name}-{job.uid}" if is_volcanos else group_name_of(job.uid)


def named_group(controller: OwnerReference) -> str:
    """Return the group of pods whose owner is known by name only; a LeaderWorkerSet has one per index."""
    return f"{_PREFIX}{controller.kind.lower()}-{controller.name}"


def has_many_groups(key: str) -> bool:
    """Return whether the key is that of a LeaderWorkerSet, which has one group per index."""
    return f"/{_PREFIX}{_LEADER_WORKER_SET[1].lower()}-" in key


def represented_owner(group: str, owners: list[OwnerReference] | None) -> OwnerReference | None:
    """Return the owner for whose pods Muster made the group of this name; None if others made it."""
    names = (group, group.partition(".")[0])
    matching = (own for own in owners or () if podgroup_name(own) in names or named_group(own) in names)
    return next(matching, None)


class Ownership(msgspec.Struct, frozen=True):
    """Rules about which pods belong to Muster, and which group and queue a pod names.

    Pods belong to Muster if they name one of its schedulers. Where that is the cluster's default
    scheduler, they must also name a group, a queue or a LocalQueue (not Kueue's), themselves or through
    their namespace.
    """

    schedulers: frozenset[str]  # values of spec.schedulerName
    auto_groups: bool = False  # whether pods of one controller that name no group form one

    def owns(self, pod: Pod, namespace_queue: str) -> bool:
        """Return whether Muster schedules a pod. `namespace_queue`: the default queue of its namespace."""
        scheduler = pod.spec.scheduler_name
        if scheduler not in self.schedulers:
            return False
        if scheduler != keys.DEFAULT_SCHEDULER:
            return True
        # The admission policy has added Muster's gate or marker resources to the pod: only Muster opens its
        # gate.
        first = pod.spec.containers[0].resources.requests if pod.spec.containers else None
        has_marker = first is not None and not keys.MARKERS.isdisjoint(first)
        if has_marker or any(gate.name == keys.GATE for gate in pod.spec.scheduling_gates or ()):
            return True
        names_local_queue = (pod.metadata.labels or {}).get(keys.LOCAL_QUEUE)
        return bool(group_name(pod) or queue_named_by(pod.metadata) or names_local_queue or namespace_queue)


# Adopted namespaces: pods without a scheduler of their own get Muster's, unless they opt out.


def is_adopted(namespace: str, labels: Mapping[str, str]) -> bool:
    return labels.get(keys.MANAGED) == "true" and namespace not in keys.NEVER_ADOPTED


def is_adoptable(pod: Pod) -> bool:
    """Return whether a pod, or a template, becomes Muster's in an adopted namespace."""
    opts_out = (pod.metadata.annotations or {}).get(keys.MANAGED) == "false"
    return pod.spec.scheduler_name in ("", keys.DEFAULT_SCHEDULER) and not opts_out


def group_name(pod: Pod) -> str:
    """Return the PodGroup that a pod names.

    Sources: Volcano's annotation, scheduler-plugins' label, and Kubernetes' own field.
    """
    meta = pod.metadata
    native = pod.spec.scheduling_group
    return name_of(
        (meta.annotations or {}).get(keys.GROUP_ANNOTATION)
        or (meta.labels or {}).get(keys.GROUP_LABEL)
        or (native.pod_group_name if native else "")
    )


def display_group_name(pod: Pod) -> str:
    """Return the group as users name it: for pods that name none, their owner, `job/train`."""
    named, owner = group_name(pod), controller_of(pod.metadata.owner_references)
    if named and named not in (auto_name(pod), podgroup_name(owner) if owner else ""):
        return named
    return owner.display_name if owner else f"pod/{pod.metadata.name}"


def group_of(pod: Pod, auto_groups: bool) -> tuple[str, bool]:
    """Return a pod's group, and whether it follows from the pod's controller, even if the pod names it."""
    named = group_name(pod)
    if not auto_groups:
        return named or f"pod:{pod.metadata.name}", False
    own = auto_name(pod)
    return named or own, named in ("", own)


def queue_named_by(meta: Meta) -> str:
    return name_of((meta.annotations or {}).get(keys.QUEUE) or (meta.labels or {}).get(keys.QUEUE) or "")


# Names of groups in pods. An annotation has space for 250,000 characters, an object's name for 253: longer
# names are cut, and get an ending that no object's name has.

_LONGEST, _SHOWN, _CUT = 253, 40, "…"


def name_of(written: str) -> str:
    """Return a name, cut to the maximum length."""
    return written if len(written) <= _LONGEST else f"{written[:_SHOWN]}{_CUT}"


def too_long(kind: str, name: str) -> str:
    """Return the fault of a name that was cut, for users; empty for other names."""
    fault = f"the name of its {kind}, {name.rpartition('/')[2]}, has more than {_LONGEST} characters"
    return fault if name.endswith(_CUT) else ""
