"""A workload made from the objects of -f files: pods, suspended jobs, and queues from quotas.

The objects are created in the store of the embedded API server first, which sets defaults and refuses objects
as a real API server does. Queues from quotas are made at the start, as Muster makes them in a cluster.
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from extender.api.keys import CHECKPOINT, GATE, GROUP_ANNOTATION, ROOT_QUEUE
from extender.api.objects.base import Meta, Wire
from extender.api.objects.cluster import ClusterTopology, Namespace, Node, PriorityClass, Workload
from extender.api.objects.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from extender.api.objects.pods import Pod
from extender.api.objects.queues import LocalQueue, PodGroup, Queue, ResourceFlavor
from extender.api.workloads.children import SHAPE_ERRORS, count_pods, is_job_suspended
from extender.api.workloads.pod_sets import annotation_paths
from extender.api.workloads.shape import KindName, RuntimeName, runtime_named_by, value_at, with_spec
from extender.api.workloads.table import WORKLOADS
from extender.apimachinery import kinds
from extender.apimachinery.errors import StatusError
from extender.apimachinery.kinds import Json, ResourceKind
from extender.apimachinery.patches import apply_json_patch
from extender.apimachinery.quotas import with_usage
from extender.apimachinery.service import Service
from extender.apimachinery.store import Store
from extender.domain.model.ownership import group_name
from extender.domain.model.records import GroupKey
from extender.domain.queues.quota_records import annotations_of, spec_of
from extender.domain.snapshot.job_start_and_suspension import job_podgroup, unsuspend
from extender.domain.snapshot.jobs import AnyJob, JobKind
from extender.files.creation import Creation, arrival_of
from extender.files.manifests import Manifests
from extender.files.offspring import TIMES_PREFIX, children_of, find_in_store, with_runtime_of
from extender.files.unmanaged_objects import QueuesOfJobs, plan_of_quotas, record_of, unmanaged_objects
from extender.sim.kubelets import devices_of, ending_of, node
from extender.sim.virtual.workload import (
    GroupArrival,
    InvalidWorkload,
    JobArrival,
    PodArrival,
    VirtualWorkload,
    key_of_group,
    stamp,
)

# ---- queues from quotas


def make_queues(creation: Creation) -> tuple[Mapping[str, str], list[str]]:
    """Make the queues for the quotas among the objects. An existing queue of the same name is not changed.

    Returns:
        The queue of each namespace, and notes about faults of quotas. Only faulty parts are left out.
    """
    plan = plan_of_quotas(creation.objects)
    planned_queues = plan.queues.values()
    names = {obj["metadata"]["name"] for obj, _ in creation.objects if obj["kind"] == kinds.QUEUES.name}
    notes = [f"{fault.source}: {fault}" for fault in plan.faults]
    existing_queues = (queue for queue in planned_queues if queue.name in names)
    notes += [f"{queue.source}: queue {queue.name!r} exists, and stays as it is" for queue in existing_queues]
    created_names = {ROOT_QUEUE}  # parents come first; queues without a created parent are left out
    for queue in planned_queues:
        if not queue.is_unreadable and queue.name not in names and queue.parent in created_names:
            created_names.add(queue.name)
            kind = {"apiVersion": kinds.QUEUES.api_version, "kind": kinds.QUEUES.name}
            meta = {"name": queue.name, "annotations": annotations_of(queue)}
            creation.add({**kind, "metadata": meta, "spec": spec_of(queue)}, str(queue.source))
    return plan.namespaces, notes


def waiting_jobs(
    creation: Creation, service: Service, queues: QueuesOfJobs
) -> Iterator[tuple[Json, GroupKey, tuple[RuntimeName, Json] | None]]:
    """Yield the suspended jobs that Muster manages by default, each with its group and its runtime.

    Their PodGroups are created in the store, and so are the pods of a full start. If the API server refuses
    one of them, the refusal is a fault.
    """
    find = find_in_store(service.store)
    for obj, where in [*creation.objects]:
        if not (is_job_suspended(obj) and (obj["apiVersion"], obj["kind"]) in kinds.KIND_BY_NAME):
            continue
        try:
            row, full_job = WORKLOADS[obj["apiVersion"], obj["kind"]], with_runtime_of(obj, find)
            record = record_of(full_job)
            queue = queues.queue_of(record)
            if queues.manages(record):
                annotations = obj["metadata"].get("annotations") or {}
                times = {name: text for name, text in annotations.items() if name.startswith(TIMES_PREFIX)}
                podgroup = job_podgroup(record, queue, record.gang_size(queues.defaults_of(record)).members)
                creation.add({**podgroup, "metadata": {**podgroup["metadata"], "annotations": times}}, where)
                if not record.fault:
                    grouped = with_spec(full_job, **row.annotate(full_job, GROUP_ANNOTATION, record.podgroup))
                    paths = annotation_paths(row, grouped)
                    operations = unsuspend(grouped, row, paths, record.podgroup, stamp(0))
                    for child in children_of(apply_json_patch(grouped, operations), lambda _: None):
                        if child["kind"] != kinds.POD_GROUPS.name:  # the PodGroup exists already
                            creation.add(child, where)
                name = runtime_named_by(row, obj)
                runtime = find(name) if name else None
                yield obj, record.group, (name, runtime["spec"]) if name and runtime else None
        except (*SHAPE_ERRORS, msgspec.ValidationError, StatusError) as fault:
            creation.faults.append(f"{where}: its pods are not known: {fault}")


def omission_remarks(creation: Creation) -> Iterator[str]:
    """Yield notes about later pods of controllers, which the simulation leaves out."""
    for obj, where in creation.objects:
        subject = f'{where}: {obj["kind"]} "{obj["metadata"]["name"]}"'
        if obj["kind"] == kinds.JOBS.name and not is_job_suspended(obj):
            rest = (value_at(obj, ("spec", "completions")) or 0) - count_pods(obj)
            if rest > 0:
                yield f"{subject}: only its first pods are made; {rest} more, made as those succeed, are not"


# ---- objects

_DEVICE_TYPES: dict[ResourceKind, type[Wire]] = {
    kinds.DEVICE_CLASSES: DeviceClass,
    kinds.CLAIM_TEMPLATES: ResourceClaimTemplate,
    kinds.RESOURCE_CLAIMS: ResourceClaim,
    kinds.RESOURCE_SLICES: ResourceSlice,
}
_OWNER_KINDS = (("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet"))
T = TypeVar("T")


class Accepted(NamedTuple):
    """Object that the API server accepted, with its defaults."""

    object: Json
    arrival: float | None  # arrival time; None if not stated


def make_nodes(
    count: int, cpu: str, memory: str, gpu: int = 0, devices: tuple[str, int] | None = None
) -> VirtualWorkload:
    """Return a workload of equal nodes. `devices` names a DeviceClass and counts its devices on each node."""
    names = [f"node-{number}" for number in range(1, count + 1)]
    nodes = (Accepted(node(name, cpu, memory, gpu), None) for name in names)
    device_objects = devices_of(names, *devices) if devices else ()
    converted = tuple(msgspec.convert(obj, _DEVICE_TYPES[kind]) for kind, obj in device_objects)
    return VirtualWorkload(nodes=_typed(nodes, Node), devices=converted)


def from_manifests(manifests: Manifests, seed: int, seconds: float | None = None) -> VirtualWorkload:
    """Return the workload of files. `seconds` is the default run time of pods; None means no end.

    Raises:
        InvalidWorkload: The API server refuses an object.
    """
    service = Service(Store(), random.Random(seed))
    creation = Creation(service)
    # Quotas come later, because only the simulation knows which pods exist at the same time.
    creation.create(manifest for manifest in manifests.objects if manifest.kind is not kinds.RESOURCE_QUOTAS)
    entering, notes = make_queues(creation)
    queues = QueuesOfJobs(creation.objects, entering)
    unmanaged = [*unmanaged_objects(creation.objects, queues)]
    jobs = [*waiting_jobs(creation, service, queues)]
    creation.create(manifest for manifest in manifests.objects if manifest.kind is kinds.RESOURCE_QUOTAS)
    stored = _group_by_kind(creation)
    if creation.faults:
        raise InvalidWorkload("\n".join(creation.faults))
    groups: dict[GroupKey, GroupArrival] = {}
    for podgroup in stored[_name(kinds.POD_GROUPS)]:
        arrival = GroupArrival(podgroup.arrival or 0.0, msgspec.convert(podgroup.object, PodGroup))
        groups[arrival.key] = arrival
    members: defaultdict[GroupKey, list[PodArrival]] = defaultdict(list)
    for pod in stored[_name(kinds.PODS)]:
        member = _member(pod, groups, seconds)
        members[key_of_group(member.pod)].append(member)
    job_arrivals = []
    for job, key, runtime in jobs:
        job_arrivals.append(JobArrival(job, groups.pop(key), tuple(members.pop(key, ())), runtime))
    owners = [kind for kind, row in WORKLOADS.items() if row.makes_groups]
    return VirtualWorkload(
        nodes=_typed(stored[_name(kinds.NODES)], Node),
        flavors=_typed(stored[_name(kinds.RESOURCE_FLAVORS)], ResourceFlavor),
        topologies=_typed(stored[_name(kinds.TOPOLOGIES)], ClusterTopology),
        devices=tuple(
            device for kind, type_ in _DEVICE_TYPES.items() for device in _typed(stored[_name(kind)], type_)
        ),
        queues=_typed(stored[_name(kinds.QUEUES)], Queue),
        priority_classes=_typed(stored[_name(kinds.PRIORITY_CLASSES)], PriorityClass),
        namespaces=_typed(stored[_name(kinds.NAMESPACES)], Namespace),
        quotas=tuple(with_usage(quota.object, ()) for quota in stored[_name(kinds.RESOURCE_QUOTAS)]),
        local_queues=_typed(stored[_name(kinds.LOCAL_QUEUES)], LocalQueue),
        quota_namespaces=tuple(entering.items()),
        owners=_typed((owner for kind in _OWNER_KINDS for owner in stored[kind]), Workload),
        controllers=tuple((JobKind(*kind), job) for kind in owners for job in _typed(stored[kind], AnyJob)),
        ancestors=tuple(
            (kind, msgspec.convert(owner.object["metadata"], Meta))
            for api_version, kind in WORKLOADS
            for owner in stored[api_version, kind]
        ),
        groups=tuple(groups.values()),
        members=tuple(chain.from_iterable(members.values())),
        jobs=tuple(job_arrivals),
        unmanaged_objects=tuple(unmanaged),
        notes=(*manifests.notes, *notes, *(obj.note for obj in unmanaged), *omission_remarks(creation)),
    )


def _group_by_kind(creation: Creation) -> defaultdict[KindName, list[Accepted]]:
    """Return the created objects by kind, and record faults of unreadable times.

    The checkpoint annotation of an owner is copied to pods without a PodGroup, since Muster reads it there.
    """
    by_kind = defaultdict[KindName, list[Accepted]](list)
    checkpoints: dict[str, str] = {}  # checkpoint annotation of each object, by UID
    for obj, where in creation.objects:
        meta = obj["metadata"]
        annotations = meta.get("annotations") or {}
        owners = () if GROUP_ANNOTATION in annotations else meta.get("ownerReferences") or ()
        from_owners = (checkpoints[owner["uid"]] for owner in owners if owner["uid"] in checkpoints)
        if text := annotations.get(CHECKPOINT) or next(from_owners, ""):
            checkpoints[meta["uid"]] = text
            obj = {**obj, "metadata": {**meta, "annotations": {**annotations, CHECKPOINT: text}}}
        try:
            by_kind[obj["apiVersion"], obj["kind"]].append(Accepted(obj, arrival_of(obj["metadata"])))
        except ValueError as fault:
            creation.faults.append(f"{where}: {fault}")
    return by_kind


def _name(kind: ResourceKind) -> KindName:
    return kind.api_version, kind.name


def _member(accepted: Accepted, groups: Mapping[GroupKey, GroupArrival], seconds: float | None) -> PodArrival:
    """Return the arrival of a pod, which by default arrives with its PodGroup.

    The pod loses Muster's gate. Gates of other programs stay, so the pod never starts.
    """
    pod = msgspec.convert(accepted.object, Pod)
    group = groups.get(GroupKey(f"{pod.metadata.namespace}/{group_name(pod)}"))
    default = group.at if group else 0.0
    at = default if accepted.arrival is None else accepted.arrival
    gates = [gate for gate in pod.spec.scheduling_gates or () if gate.name != GATE]
    pod = replace(pod, spec=replace(pod.spec, scheduling_gates=gates or None))
    ending = ending_of(accepted.object, seconds)
    return PodArrival(at, pod, ending.seconds, ending.fails) if ending else PodArrival(at, pod, None)


def _typed(accepted: Iterable[Accepted], kind: type[T]) -> tuple[T, ...]:
    return tuple(msgspec.convert(created.object, kind) for created in accepted)
