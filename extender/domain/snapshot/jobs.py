"""Jobs of any kind in the ledger, and the pods that their controllers will create."""

from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from operator import or_
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.base import Meta, OwnerReference, Wire, refuse_deep
from extender.api.objects.pods import Pod
from extender.api.objects.queues import ABORT, RESUME, NetworkTopology, SubGroup
from extender.api.units import BadQuantity
from extender.api.workloads.children import SHAPE_ERRORS
from extender.api.workloads.gangs import Defaults, GangSize, MadePods, gang_of, gang_size_of
from extender.api.workloads.pod_sets import JobPodSet, min_parallelism_of, pod_sets, with_requested_count
from extender.api.workloads.shape import (
    JobOutcome,
    Json,
    Kinds,
    WorkloadRow,
    has_templates,
    is_stopped,
    is_suspended,
    kind_prefix,
    outcome_of,
    value_at,
)
from extender.api.workloads.table import WORKLOADS
from extender.domain.model import ownership
from extender.domain.model.device_requests import ClaimKey, carrier_pods, claims_of, requests_devices
from extender.domain.model.queue_of_group import (
    LocalQueueLabel,
    explicit_queue,
    local_queue_label,
    recorded_usable_queue,
)
from extender.domain.model.reasons import Outcome
from extender.domain.model.records import GroupKey, PodRecord
from extender.domain.model.run_history import NO_CHECKPOINT, Checkpoint, checkpoint_of, run_time_of
from extender.domain.model.shapes import Shapes
from extender.domain.model.topology import (
    NO_TOPOLOGY,
    SubGroupPolicy,
    TopologyRequest,
    first_request,
    network_topology,
    sub_group_policies,
    topology_of,
)
from extender.domain.model.wire_records import pod_record
from extender.domain.queues.local_queues import QueueRoutes


class JobChange(NamedTuple):
    """Change of a job, which concerns up to three objects.

    Attributes:
        podgroup: Changed annotations of the job's PodGroup, if it has one.
        job: A merge patch of the job itself.
        command: The action of a Command that is to be created; empty: no Command.
    """

    podgroup: Mapping[str, str | None] = {}
    job: Json = {}
    command: str = ""


def suspension_patch(row: WorkloadRow, is_suspended: bool) -> Json:
    """Return the patch that suspends or unsuspends a job; empty if its kind has no suspend field."""
    patch: Any = is_suspended
    for name in reversed(row.suspend):
        patch = {name: patch}
    return dict(patch)


def stop_change(row: WorkloadRow, obj: Json, now: str) -> JobChange:
    """Return the change that suspends a job until a user resumes it.

    The change also writes Muster's record of the start. Without this record, the job would count as waiting
    for its start.
    """
    if row.commanded:
        return JobChange(command="" if is_stopped(row, obj) else ABORT)
    if is_suspended(row, obj):
        return JobChange()
    has_record = value_at(obj, ("metadata", "annotations", keys.STARTED))
    start_record: Json = {} if has_record else {"metadata": {"annotations": {keys.STARTED: now}}}
    return JobChange(job={**suspension_patch(row, True), **start_record})


def resume_change(row: WorkloadRow, obj: Json, is_by_muster: bool = True) -> JobChange:
    """Return the change that resumes a held or stopped job.

    Args:
        row: The fields of the job's kind.
        obj: The job.
        is_by_muster: Whether Muster unsuspends the job once its queue admits it.
    """
    podgroup: dict[str, str | None] = {keys.HOLD: None, keys.START_TIMEOUTS: None}
    if not is_stopped(row, obj):
        return JobChange(podgroup)
    start_record = "" if row.commanded else None  # an empty record means that a Volcano Job waits for Muster
    has_record = value_at(obj, ("metadata", "annotations", keys.STARTED))
    patch: Json = {"metadata": {"annotations": {keys.STARTED: start_record}}} if has_record else {}
    if not (row.commanded or is_by_muster):
        patch |= suspension_patch(row, False)
    return JobChange(podgroup, patch, RESUME if row.commanded else "")


class ExpectedPods(msgspec.Struct, frozen=True):
    """Equal pods that a job will make."""

    role: str  # the part of the job to which the pods belong; empty if the job has one part
    count: int
    pod: PodRecord  # record of each pod, without its own UID and name


class JobKind(NamedTuple):
    """Kind of a job: `JobKind("batch/v1", "Job")`."""

    api_version: str
    kind: str


class JobRecord(msgspec.Struct, frozen=True):
    """Record of a job: its queue, its progress, and the pods that it makes."""

    uid: str
    kind: JobKind
    namespace: str
    name: str
    group: GroupKey  # group of its pods
    created_at: str = ""  # metadata.creationTimestamp
    queue: str = ""  # queue that the job itself names
    is_commanded: bool = False  # whether only Commands stop the job; it enters `default` without a queue
    local_queue: LocalQueueLabel | None = None  # label with which the job names a LocalQueue
    priority_class: str = ""
    is_suspended: bool = False  # whether it is suspended: its controller makes no pods
    is_stopped: bool = False  # whether it waits in no queue until a user resumes it
    started_at: str = ""  # when Muster unsuspended it, by its annotation; empty: never
    outcome: Outcome | None = None  # how the job ended; None: not ended
    pods: tuple[ExpectedPods, ...] = ()  # pods that it makes at once, without ended pods
    gang: MadePods = MadePods()  # size of the gang that its pods form
    by_role: Mapping[str, int] = {}  # least number of pods by role
    sub_groups: Sequence[Json] = ()  # subGroupPolicy of its PodGroup
    declared_count: int = 0  # number of pods at once by its spec, with ended pods
    completions: int | None = None  # number of pods that must succeed; None: all pods made at once
    min_partial_size: int = 0  # least number of pods for a partial start; 0: no partial start
    fault: str = ""  # why its pods are unknown, for users; empty if they are known
    claims: frozenset[ClaimKey] | None = None  # device claims of its pods; None: no devices requested
    is_for_muster: bool = False  # whether all its pods name one of our schedulers
    is_adoptable: bool = False  # whether all its pods name our schedulers, or would in an adopted namespace
    names_group: bool = False  # whether its pods name a PodGroup of another owner
    is_part: bool = False  # whether another job has made it, and is managed instead
    checkpoint: Checkpoint = NO_CHECKPOINT  # latest checkpoint, by its annotation
    run_time: float | None = None  # expected run time in seconds, by its annotation
    usable_queue: str = ""  # restricted queue that its author may use, by its annotation
    topology: TopologyRequest = NO_TOPOLOGY  # request of all its pods, by its spec or annotations
    policies: tuple[SubGroupPolicy, ...] = ()  # policies parsed from `sub_groups`
    on_lost_domain: str = ""  # policy for lost members without capacity in their domain

    @property
    def pod_count(self) -> int:
        """Return how many pods the job makes at once."""
        return sum(part.count for part in self.pods)

    def gang_size(self, defaults: Defaults) -> GangSize:
        """Return how many pods start together.

        Args:
            defaults: The default sizes of the namespace and the queue.
        """
        template = next((part.pod.min_member for part in self.pods if part.pod.min_member), "")
        size = gang_size_of(self.gang, template, defaults, waits=True)
        return size._replace(members=min(size.members, self.pod_count))

    @property
    def podgroup(self) -> str:
        """Return the name of the PodGroup."""
        return self.group.partition("/")[2]

    @property
    def was_started(self) -> bool:
        """Return whether Muster has unsuspended the job, by its annotation."""
        return bool(self.started_at)

    @property
    def is_unsuspended(self) -> bool:
        """Return whether Muster has admitted the job, and the job has not ended."""
        return self.was_started and not self.is_suspended and self.outcome is None

    @property
    def display_name(self) -> str:
        """Return kind and name, such as `job/train`."""
        return f"{kind_prefix(*self.kind)}/{self.name}"


class JobRules(msgspec.Struct, frozen=True):
    """Rules that decide which jobs Muster manages."""

    mode: str = "suspended"  # off, suspended or queue
    namespaces: frozenset[str] = frozenset()  # excluded namespaces
    kinds: frozenset[str] = frozenset()  # excluded kinds, such as "Job.batch"
    table: Kinds = msgspec.field(default_factory=lambda: WORKLOADS)  # all known kinds

    def manages(self, job: JobRecord, queue: str, is_adopted: bool = False) -> bool:
        """Return whether Muster manages a job with a queue.

        Muster manages suspended jobs, and jobs that it has started. In mode `queue`, it manages all other
        jobs, too.

        Args:
            job: The job.
            queue: The queue of the job; empty: the job has none and is not managed.
            is_adopted: Whether the job's namespace is adopted.
        """
        kind = f"{job.kind.kind}.{job.kind.api_version.rpartition('/')[0]}"
        is_excluded = job.namespace in self.namespaces or kind in self.kinds or job.names_group or job.is_part
        if self.mode == MODE_OFF or is_excluded or not queue:
            return False
        if job.outcome is not None:  # the pod templates of an ended job are not read
            return job.was_started
        if not (job.is_for_muster or (is_adopted and job.is_adoptable)):
            return False
        return job.is_suspended or job.was_started or self.mode == MODE_QUEUE


MODE_OFF, MODE_SUSPENDED, MODE_QUEUE = "off", "suspended", "queue"


MAX_PODS = 10_000  # pods of one job at once: far more than any window
_OUTCOMES = {None: None, JobOutcome.SUCCEEDED: Outcome.COMPLETED, JobOutcome.FAILED: Outcome.FAILED}
_TOLERATION_SECONDS = 300  # default time for which pods tolerate an unreachable node
_UNREACHABLE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class JobRuntime(Wire, frozen=True):
    """Object of any kind that contains templates of jobs."""

    metadata: Meta
    spec: dict[str, Any] = {}

    def __post_init__(self) -> None:
        refuse_deep(self.spec)


class AnyJob(JobRuntime, frozen=True):
    """Job of any kind whose controller makes pods."""

    status: dict[str, Any] = {}

    def __post_init__(self) -> None:
        refuse_deep(self.spec, self.status)


def is_unsuspended_by_muster(row: WorkloadRow, obj: Json) -> bool:
    """Return whether Muster unsuspends a job.

    Muster unsuspends a job if the job or its pods name a queue, and its pods name no PodGroup. It also
    unsuspends any job without templates.
    """
    if not has_templates(row, obj):
        return True
    kind, job = JobKind(*row.key), msgspec.convert(obj, AnyJob, strict=False)
    table = {**WORKLOADS, row.key: row}
    record = job_record(kind, job, table, Shapes(), schedulers=(), auto_groups=True)
    return bool((record.queue or record.local_queue) and not record.names_group)


def job_record(
    kind: JobKind, job: AnyJob, table: Kinds, shapes: Shapes, schedulers: Iterable[str], auto_groups: bool
) -> JobRecord:
    """Return the record of a job.

    A job with a `fault` in its record waits. The record of an ended job expects no pods.
    """
    meta, obj, row = job.metadata, as_json(kind, job), table[kind]
    controller = ownership.controller_of(meta.owner_references)
    controller_row = table.get((controller.api_version, controller.kind)) if controller else None
    if is_suspended(row, obj):
        obj = with_requested_count(row, obj)
    record = JobRecord(
        uid=meta.uid,
        kind=kind,
        namespace=meta.namespace,
        name=meta.name,
        group=podgroup_of(kind, meta),
        created_at=meta.creation_timestamp or "",
        queue=_own_queue(row, job),
        is_commanded=row.commanded is not None,
        local_queue=local_queue_label(meta),
        is_suspended=is_suspended(row, obj),
        is_stopped=is_stopped(row, obj),
        started_at=(meta.annotations or {}).get(keys.STARTED, ""),
        outcome=_OUTCOMES[outcome_of(row, obj)],
        is_part=controller_row is not None and controller_row.manageable,
        checkpoint=checkpoint_of(meta),
        run_time=run_time_of(meta),
        usable_queue=recorded_usable_queue(meta, kind.kind),
        topology=topology_of(meta.annotations or {}),
        on_lost_domain=(meta.annotations or {}).get(keys.ON_LOST_DOMAIN, ""),
    )
    if record.outcome is not None:
        return record
    try:
        record = replace(record, min_partial_size=min_parallelism_of(row, obj))
        sets = _first_sets(obj, table)
        spec_sets = sets if not (job.status and row.counting) else _first_sets({**obj, "status": {}}, table)
        completions = value_at(obj, row.completions) if row.completions else None
        gang = gang_of(row, obj, {part.role: part.count for part in spec_sets})
        record = replace(record, gang=gang, declared_count=gang.pods, completions=completions)
        if row.commanded is not None:
            group = row.commanded.podgroup(obj)
            count_by_role = {ownership.name_of(role): count for role, count in group["minTaskMember"].items()}
            gang = replace(gang, requested=str(group["minMember"] or ""))
            sub_groups = group.get("subGroupPolicy", ())
            record = replace(record, gang=gang, by_role=count_by_role, sub_groups=sub_groups)
            topology = msgspec.convert(job.spec.get("networkTopology"), NetworkTopology | None)
            record = replace(
                record,
                topology=first_request(network_topology(topology), record.topology),
                policies=sub_group_policies(msgspec.convert(sub_groups, list[SubGroup])),
            )
        dependent_roles = row.dependent_roles(obj, {part.role: part.count for part in sets})
        return _with_pods(record, sets, dependent_roles, shapes, frozenset(schedulers), auto_groups)
    except (*SHAPE_ERRORS, BadQuantity, msgspec.ValidationError) as fault:
        return replace(record, fault=f"its pods are not known: {fault}", is_for_muster=True)


def owner_of_pods(
    kind: JobKind, job: AnyJob, table: Kinds, known_gang: MadePods | None = None
) -> ownership.OwnerRecord:
    """Return a job as the owner of pods that name no group.

    If the templates of the job cannot be read, its pods start one by one.

    Args:
        kind: The kind of the job.
        job: The job.
        table: All kinds.
        known_gang: The gang in the job's record, which is expensive to compute; None: not computed yet.
    """
    meta, deadline = job.metadata, job.spec.get("activeDeadlineSeconds")
    annotations, row, obj = meta.annotations or {}, table.get(kind), as_json(kind, job)
    gang = known_gang or MadePods(requested=annotations.get(keys.MIN_MEMBER, ""))
    if known_gang is None:
        with suppress(*SHAPE_ERRORS, BadQuantity, msgspec.ValidationError):
            sets = _first_sets({**obj, "status": {}}, table)
            gang = gang_of(row, obj, {part.role: part.count for part in sets})
    return ownership.OwnerRecord(
        uid=meta.uid,
        gang=gang,
        reference=OwnerReference(*kind, meta.name, meta.uid, True),
        annotations={key: text for key, text in annotations.items() if key.startswith(ownership.KEY_PREFIX)},
        is_suspended=row is not None and is_suspended(row, obj),
        run_limit=deadline if isinstance(deadline, int) else None,
        usable_queue=recorded_usable_queue(meta, kind.kind),
        checkpoint=checkpoint_of(meta),
        run_time=run_time_of(meta),
        topology=topology_of(annotations),
        on_lost_domain=annotations.get(keys.ON_LOST_DOMAIN, ""),
    )


def queue_named_by(kind: JobKind, job: AnyJob, table: Kinds) -> str:
    """Return the queue that the job names itself, else the queue that its pod templates name.

    The result is empty if neither names a queue.
    """
    queue = _own_queue(table.get(kind), job)
    with suppress(*SHAPE_ERRORS, msgspec.ValidationError):
        for part in _first_sets(as_json(kind, job), table) if not queue else ():
            meta = msgspec.convert(part.template.get("metadata") or {}, Meta)
            queue = queue or ownership.queue_named_by(meta)
    return queue


def _own_queue(row: WorkloadRow | None, job: AnyJob) -> str:
    """Return the queue that the job itself names; empty if it names none."""
    if row is None or row.commanded is None:
        return ownership.queue_named_by(job.metadata)
    return explicit_queue(ownership.name_of(str(job.spec.get("queue") or "")))


def queue_of_job(job: JobRecord, routes: QueueRoutes) -> str:
    """Return the queue that a job enters; empty if it enters no queue.

    A job enters no queue if nothing names a queue for it. A job also enters no queue if its label belongs to
    Kueue: if two projects started and suspended the same job, its state would never settle.
    """
    if job.local_queue is not None and routes.local_queue(job.namespace, job.local_queue) is None:
        return ""
    entered_queue = routes.queue_of(job.namespace, job.queue, job.local_queue)
    return entered_queue or (keys.DEFAULT_QUEUE if job.is_commanded else "")


def podgroup_of(kind: JobKind, meta: Meta) -> GroupKey:
    """Return the key of the group in which the pods of a job wait."""
    return GroupKey(f"{meta.namespace}/{ownership.podgroup_name(OwnerReference(*kind, meta.name, meta.uid))}")


def job_group_key(kind: JobKind, meta: Meta) -> GroupKey:
    """Return the key of the group that a job's pods form if the pods name no group.

    See `ownership.group_owner_of`.
    """
    name = ownership.group_name_of(meta.uid)
    if kind in ownership.NAMED_CONTROLLERS:
        name = ownership.named_group(OwnerReference(*kind, meta.name))
    return GroupKey(f"{meta.namespace}/{name}")


def _first_sets(obj: Json, table: Kinds) -> list[JobPodSet]:
    """Return the pod sets at the start of a job.

    Pods that come only after others have ended are left out: no capacity is reserved for them.
    """
    return [part for part in pod_sets(obj, table) if not part.starts_later]


def as_json(kind: JobKind, job: AnyJob) -> Json:
    """Return the object in the form that the table of kinds reads."""
    meta = job.metadata
    metadata: Json = {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid}
    metadata |= {"labels": meta.labels or {}, "annotations": meta.annotations or {}}
    head = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
    return {**head, "spec": job.spec, "status": job.status}


def _with_pods(
    record: JobRecord,
    pod_sets: list[JobPodSet],
    dependent_roles: Container[str],
    shapes: Shapes,
    schedulers: frozenset[str],
    auto_groups: bool,
) -> JobRecord:
    """Return the record of a job, completed from its pod templates."""
    total = sum(pod_set.count for pod_set in pod_sets)
    pods = [_stored_pod(record, pod_set) for pod_set in pod_sets]
    fault = f"it makes {total} pods at once; at most {MAX_PODS} are allowed" if total > MAX_PODS else ""
    expected_pods = []
    counts = [pod_set.count for pod_set in pod_sets]
    for number, count, pod in carrier_pods(zip(counts, pods, strict=True)) if not fault else ():
        role, group = pod_sets[number].role, record.group
        member = pod_record(pod, shapes, is_ours=True, auto_groups=auto_groups)
        member = replace(member, group=group, own_group=group, is_auto=auto_groups, is_expected=True)
        expected_pods.append(ExpectedPods(role, count, replace(member, is_dependent=role in dependent_roles)))
    names_our_scheduler = [(pod.spec.scheduler_name or keys.DEFAULT_SCHEDULER) in schedulers for pod in pods]
    return replace(
        record,
        queue=record.queue or next((ownership.queue_named_by(pod.metadata) for pod in pods), ""),
        priority_class=next((pod.spec.priority_class_name for pod in pods), ""),
        pods=tuple(expected_pods),
        fault=fault,
        claims=frozenset[ClaimKey]().union(*map(claims_of, pods))
        if any(requests_devices(pod.spec) for pod in pods)
        else None,
        is_for_muster=all(names_our_scheduler),
        is_adoptable=all(map(or_, names_our_scheduler, map(ownership.is_adoptable, pods))),
        names_group=any(ownership.group_name(pod) not in ("", record.podgroup) for pod in pods),
    )


def _stored_pod(record: JobRecord, part: JobPodSet) -> Pod:
    """Return a pod as the API server would store it.

    The pod has the defaults of the API server, and the additions of admission plugins.
    """
    spec, meta = {**part.template["spec"]}, {**(part.template.get("metadata") or {})}
    tolerations = spec.get("tolerations") or ()
    taint_keys = {each.get("key") for each in tolerations if each.get("effect") in (None, "", "NoExecute")}
    spec["tolerations"] = [*tolerations] + [  # Kubernetes' admission plugin DefaultTolerationSeconds
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _TOLERATION_SECONDS}
        for key in _UNREACHABLE_TAINTS
        if not {None, "", key} & taint_keys
    ]
    for kind in ("containers", "initContainers"):
        containers = []  # a missing request defaults to the limit
        for container in spec.get(kind) or ():
            resources = container.get("resources") or {}
            requests = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
            containers.append({**container, "resources": {**resources, "requests": requests}})
        spec[kind] = containers
    meta |= {"namespace": record.namespace, "uid": record.uid, "creationTimestamp": record.created_at}
    return msgspec.json.decode(msgspec.json.encode({"metadata": meta, "spec": spec}), type=Pod)
