"""Jobs of any kind in the ledger, and the pods that they will make."""

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
from extender.api.workloads.children import MALFORMED
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
from extender.domain.model.device_requests import ClaimKey, carriers, claims_of, requests_devices
from extender.domain.model.queue_of_group import (
    LocalQueueLabel,
    explicit_queue,
    local_queue_label,
    recorded_use,
)
from extender.domain.model.reasons import Outcome
from extender.domain.model.records import GroupKey, PodRecord
from extender.domain.model.run_history import NEVER_SAVED, Checkpoint, checkpoint_of, run_time_of
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
    """Change of a job, in up to three places.

    Attributes:
        podgroup: Annotations of its PodGroup, if any.
        job: A patch of the job itself.
        command: An action to ask for by a Command.
    """

    podgroup: Mapping[str, str | None] = {}
    job: Json = {}
    command: str = ""


def suspending(row: WorkloadRow, value: bool) -> Json:
    """Return the patch that suspends or unsuspends a job, if it has a field for that."""
    patch: Any = value
    for name in reversed(row.suspend):
        patch = {name: patch}
    return dict(patch)


def stopping(row: WorkloadRow, obj: Json, now: str) -> JobChange:
    """Return the change that suspends a job until a user resumes it.

    The change writes Muster's record of the start: without it the job would be one that waits for its start.
    """
    if row.commanded:
        return JobChange(command="" if is_stopped(row, obj) else ABORT)
    if is_suspended(row, obj):
        return JobChange()
    has_record = value_at(obj, ("metadata", "annotations", keys.STARTED))
    record: Json = {} if has_record else {"metadata": {"annotations": {keys.STARTED: now}}}
    return JobChange(job={**suspending(row, True), **record})


def resuming(row: WorkloadRow, obj: Json, by_muster: bool = True) -> JobChange:
    """Return the change that resumes a held or stopped job. `by_muster`: its queue unsuspends it."""
    podgroup: dict[str, str | None] = {keys.HOLD: None, keys.START_TIMEOUTS: None}
    if not is_stopped(row, obj):
        return JobChange(podgroup)
    record = "" if row.commanded else None  # an empty record marks a Volcano Job that waits for Muster
    has_record = value_at(obj, ("metadata", "annotations", keys.STARTED))
    waits_again: Json = {"metadata": {"annotations": {keys.STARTED: record}}} if has_record else {}
    if not (row.commanded or by_muster):
        waits_again |= suspending(row, False)
    return JobChange(podgroup, waits_again, RESUME if row.commanded else "")


class ExpectedPods(msgspec.Struct, frozen=True):
    """Equal pods that a job makes."""

    role: str  # the part of the job that they belong to; empty if it has only one
    count: int
    pod: PodRecord  # each of them, but for UID and name


class JobKind(NamedTuple):
    """Kind of a job: `JobKind("batch/v1", "Job")`."""

    api_version: str
    kind: str


class JobRecord(msgspec.Struct, frozen=True):
    uid: str
    kind: JobKind
    namespace: str
    name: str
    group: GroupKey  # the group that its pods form
    created: str = ""  # metadata.creationTimestamp
    queue: str = ""  # the queue that it names itself
    commanded: bool = False  # it has no field that suspends it, and enters `default` where it names no queue
    local_queue: LocalQueueLabel | None = None  # the label by which it names a LocalQueue
    priority_class: str = ""
    suspended: bool = False  # its controller makes nothing
    stopped: bool = False  # whether it stays suspended until a user resumes it, and waits in no queue
    started_at: str = ""  # when Muster unsuspended it, by its annotation; empty: it has not
    outcome: Outcome | None = None  # how it ended; None: it has not
    pods: tuple[ExpectedPods, ...] = ()  # pods that it makes at once, without ended ones
    gang: MadePods = MadePods()  # the gang among its pods
    by_role: Mapping[str, int] = {}  # minimum by role
    sub_groups: Sequence[Json] = ()  # subGroupPolicy of its PodGroup
    declared: int = 0  # number of pods at once by its spec, including ended ones
    completions: int | None = None  # how many of its pods are to succeed; None: all that it makes at once
    least: int = 0  # least pods of a partial start; 0: no partial starts
    fault: str = ""  # why its pods are not known, for users; empty if they are
    claims: frozenset[ClaimKey] | None = None  # claims that its pods name; None: they request no devices
    ours: bool = False  # its pods name one of our schedulers
    adoptable: bool = False  # they name one, or will in an adopted namespace
    named_group: bool = False  # its pods name a PodGroup of another owner's
    is_part: bool = False  # another job has made it, and is managed instead
    checkpoint: Checkpoint = NEVER_SAVED  # by its annotation
    run_time: float | None = None  # seconds that it will run, by its annotation
    may_use: str = ""  # the restricted queue that its author may use, by its annotation
    topology: TopologyRequest = NO_TOPOLOGY  # for all its pods, by its spec or annotations
    policies: tuple[SubGroupPolicy, ...] = ()  # `sub_groups`, as they are read
    on_lost_domain: str = ""  # what follows if a domain lacks capacity for lost members, by its annotation

    @property
    def needed(self) -> int:
        """Return how many pods the job makes at once."""
        return sum(part.count for part in self.pods)

    def size(self, defaults: Defaults) -> GangSize:
        """Return how many pods start together; `defaults`: those of the namespace and the queue."""
        template = next((part.pod.min_member for part in self.pods if part.pod.min_member), "")
        size = gang_size_of(self.gang, template, defaults, waits=True)
        return size._replace(members=min(size.members, self.needed))

    @property
    def podgroup(self) -> str:
        """Return the name of the PodGroup."""
        return self.group.partition("/")[2]

    @property
    def started(self) -> bool:
        return bool(self.started_at)

    @property
    def is_unsuspended(self) -> bool:
        """Return whether Muster has admitted it, and it has not ended."""
        return self.started and not self.suspended and self.outcome is None

    @property
    def display_name(self) -> str:
        """Return kind and name, such as `job/train`."""
        return f"{kind_prefix(*self.kind)}/{self.name}"


class JobRules(msgspec.Struct, frozen=True):
    mode: str = "suspended"  # off, suspended or queue
    namespaces: frozenset[str] = frozenset()  # namespaces whose jobs are not managed
    kinds: frozenset[str] = frozenset()  # kinds that are not managed: "Job.batch"
    table: Kinds = msgspec.field(default_factory=lambda: WORKLOADS)  # all kinds that are known

    def manages(self, job: JobRecord, queue: str, is_adopted: bool = False) -> bool:
        """Return whether Muster manages a job with a queue: a suspended one, or one that Muster has started.

        In mode `queue`, also any other one. `is_adopted`: whether its namespace is adopted.
        """
        kind = f"{job.kind.kind}.{job.kind.api_version.rpartition('/')[0]}"
        is_left = job.namespace in self.namespaces or kind in self.kinds or job.named_group or job.is_part
        if self.mode == OFF or is_left or not queue:
            return False
        if job.outcome is not None:  # the pods of an ended job are not read
            return job.started
        if not (job.ours or (is_adopted and job.adoptable)):
            return False
        return job.suspended or job.started or self.mode == BY_QUEUE


OFF, SUSPENDED, BY_QUEUE = "off", "suspended", "queue"


MOST_PODS = 10_000  # pods of one job at once: far more than any window
_OUTCOMES = {None: None, JobOutcome.SUCCEEDED: Outcome.COMPLETED, JobOutcome.FAILED: Outcome.FAILED}
_TOLERATED = 300  # seconds for which pods tolerate an unreachable node, by default
_AWAY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class JobRuntime(Wire, frozen=True):
    """Object of any kind with the templates of jobs."""

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
    """Return whether a job waits as one: it or its pods name a queue, and its pods no PodGroup."""
    if not has_templates(row, obj):
        return True
    kind, job = JobKind(*row.key), msgspec.convert(obj, AnyJob, strict=False)
    table = {**WORKLOADS, row.key: row}
    record = job_record(kind, job, table, Shapes(), schedulers=(), auto_groups=True)
    return bool((record.queue or record.local_queue) and not record.named_group)


def job_record(
    kind: JobKind, job: AnyJob, table: Kinds, shapes: Shapes, schedulers: Iterable[str], auto_groups: bool
) -> JobRecord:
    """Return the record of a job. Its `fault` makes it wait. A job that has ended expects no pods."""
    meta, obj, row = job.metadata, as_json(kind, job), table[kind]
    controller = ownership.controller_of(meta.owner_references)
    made_by = table.get((controller.api_version, controller.kind)) if controller else None
    if is_suspended(row, obj):
        obj = with_requested_count(row, obj)
    record = JobRecord(
        uid=meta.uid,
        kind=kind,
        namespace=meta.namespace,
        name=meta.name,
        group=podgroup_of(kind, meta),
        created=meta.creation_timestamp or "",
        queue=_named_by_itself(row, job),
        commanded=row.commanded is not None,
        local_queue=local_queue_label(meta),
        suspended=is_suspended(row, obj),
        stopped=is_stopped(row, obj),
        started_at=(meta.annotations or {}).get(keys.STARTED, ""),
        outcome=_OUTCOMES[outcome_of(row, obj)],
        is_part=made_by is not None and made_by.manageable,
        checkpoint=checkpoint_of(meta),
        run_time=run_time_of(meta),
        may_use=recorded_use(meta, kind.kind),
        topology=topology_of(meta.annotations or {}),
        on_lost_domain=(meta.annotations or {}).get(keys.ON_LOST_DOMAIN, ""),
    )
    if record.outcome is not None:
        return record
    try:
        record = replace(record, least=min_parallelism_of(row, obj))
        sets = _first_sets(obj, table)
        declared = sets if not (job.status and row.counted) else _first_sets({**obj, "status": {}}, table)
        completions = value_at(obj, row.completions) if row.completions else None
        gang = gang_of(row, obj, {part.role: part.count for part in declared})
        record = replace(record, gang=gang, declared=gang.pods, completions=completions)
        if row.commanded is not None:
            group = row.commanded.podgroup(obj)
            by_role = {ownership.name_of(role): count for role, count in group["minTaskMember"].items()}
            gang = replace(gang, requested=str(group["minMember"] or ""))
            sub_groups = group.get("subGroupPolicy", ())
            record = replace(record, gang=gang, by_role=by_role, sub_groups=sub_groups)
            topology = msgspec.convert(job.spec.get("networkTopology"), NetworkTopology | None)
            record = replace(
                record,
                topology=first_request(network_topology(topology), record.topology),
                policies=sub_group_policies(msgspec.convert(sub_groups, list[SubGroup])),
            )
        dependent = row.dependent(obj, {part.role: part.count for part in sets})
        return _with_pods(record, sets, dependent, shapes, frozenset(schedulers), auto_groups)
    except (*MALFORMED, BadQuantity, msgspec.ValidationError) as fault:
        return replace(record, fault=f"its pods are not known: {fault}", ours=True)


def owner_of_pods(
    kind: JobKind, job: AnyJob, table: Kinds, known: MadePods | None = None
) -> ownership.OwnerRecord:
    """Return a job as the owner of pods that name no group.

    If the pods of its templates cannot be read, they start one by one.

    Args:
        kind: The kind of the job.
        job: The job.
        table: All kinds.
        known: The result of its record, which is expensive to compute; None: not computed.
    """
    meta, deadline = job.metadata, job.spec.get("activeDeadlineSeconds")
    annotations, row, obj = meta.annotations or {}, table.get(kind), as_json(kind, job)
    gang = known or MadePods(requested=annotations.get(keys.MIN_MEMBER, ""))
    if known is None:
        with suppress(*MALFORMED, BadQuantity, msgspec.ValidationError):
            sets = _first_sets({**obj, "status": {}}, table)
            gang = gang_of(row, obj, {part.role: part.count for part in sets})
    return ownership.OwnerRecord(
        uid=meta.uid,
        gang=gang,
        reference=OwnerReference(*kind, meta.name, meta.uid, True),
        annotations={key: text for key, text in annotations.items() if key.startswith(ownership.INHERITED)},
        suspended=row is not None and is_suspended(row, obj),
        run_limit=deadline if isinstance(deadline, int) else None,
        may_use=recorded_use(meta, kind.kind),
        checkpoint=checkpoint_of(meta),
        run_time=run_time_of(meta),
        topology=topology_of(annotations),
        on_lost_domain=annotations.get(keys.ON_LOST_DOMAIN, ""),
    )


def queue_named_by(kind: JobKind, job: AnyJob, table: Kinds) -> str:
    """Return the queue that the job itself names, else its pod templates; empty if neither does."""
    named = _named_by_itself(table.get(kind), job)
    with suppress(*MALFORMED, msgspec.ValidationError):
        for part in _first_sets(as_json(kind, job), table) if not named else ():
            meta = msgspec.convert(part.template.get("metadata") or {}, Meta)
            named = named or ownership.queue_named_by(meta)
    return named


def _named_by_itself(row: WorkloadRow | None, job: AnyJob) -> str:
    if row is None or row.commanded is None:
        return ownership.queue_named_by(job.metadata)
    return explicit_queue(ownership.name_of(str(job.spec.get("queue") or "")))


def queue_of_job(job: JobRecord, routes: QueueRoutes) -> str:
    """Return the queue that a job enters; empty if nothing names one, or if its label is Kueue's own.

    A job that two projects start and suspend never settles.
    """
    if job.local_queue is not None and routes.local_queue(job.namespace, job.local_queue) is None:
        return ""
    entered = routes.queue_of(job.namespace, job.queue, job.local_queue)
    return entered or (keys.DEFAULT_QUEUE if job.commanded else "")


def podgroup_of(kind: JobKind, meta: Meta) -> GroupKey:
    """Return the key of the group as which the job waits."""
    return GroupKey(f"{meta.namespace}/{ownership.podgroup_name(OwnerReference(*kind, meta.name, meta.uid))}")


def group_made_by(kind: JobKind, meta: Meta) -> GroupKey:
    """Return the group of a job's pods that name none; see `ownership.group_owner_of`."""
    name = ownership.group_name_of(meta.uid)
    if kind in ownership.NAMED_CONTROLLERS:
        name = ownership.named_group(OwnerReference(*kind, meta.name))
    return GroupKey(f"{meta.namespace}/{name}")


def _first_sets(obj: Json, table: Kinds) -> list[JobPodSet]:
    """Return the pod sets at the start: no capacity is reserved for pods that come once others have ended."""
    return [part for part in pod_sets(obj, table) if not part.later]


def as_json(kind: JobKind, job: AnyJob) -> Json:
    """Return the object as the table of kinds reads it."""
    meta = job.metadata
    metadata: Json = {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid}
    metadata |= {"labels": meta.labels or {}, "annotations": meta.annotations or {}}
    head = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
    return {**head, "spec": job.spec, "status": job.status}


def _with_pods(
    record: JobRecord,
    pod_sets: list[JobPodSet],
    dependent: Container[str],
    shapes: Shapes,
    schedulers: frozenset[str],
    auto_groups: bool,
) -> JobRecord:
    """Return the record of a job with what its pod templates say."""
    needed = sum(pod_set.count for pod_set in pod_sets)
    pods = [_pod_of(record, pod_set) for pod_set in pod_sets]
    fault = f"it makes {needed} pods at once; at most {MOST_PODS} are allowed" if needed > MOST_PODS else ""
    expected = []
    counts = [pod_set.count for pod_set in pod_sets]
    for number, count, pod in carriers(zip(counts, pods, strict=True)) if not fault else ():
        role, group = pod_sets[number].role, record.group
        member = pod_record(pod, shapes, ours=True, auto_groups=auto_groups)
        member = replace(member, group=group, own_group=group, auto=auto_groups, expected=True)
        expected.append(ExpectedPods(role, count, replace(member, dependent=role in dependent)))
    of_schedulers = [(pod.spec.scheduler_name or keys.DEFAULT_SCHEDULER) in schedulers for pod in pods]
    return replace(
        record,
        queue=record.queue or next((ownership.queue_named_by(pod.metadata) for pod in pods), ""),
        priority_class=next((pod.spec.priority_class_name for pod in pods), ""),
        pods=tuple(expected),
        fault=fault,
        claims=frozenset[ClaimKey]().union(*map(claims_of, pods))
        if any(requests_devices(pod.spec) for pod in pods)
        else None,
        ours=all(of_schedulers),
        adoptable=all(map(or_, of_schedulers, map(ownership.is_adoptable, pods))),
        named_group=any(ownership.group_name(pod) not in ("", record.podgroup) for pod in pods),
    )


def _pod_of(record: JobRecord, part: JobPodSet) -> Pod:
    """Return the pod as the API server stores it: with its defaults, and what admission adds."""
    spec, meta = {**part.template["spec"]}, {**(part.template.get("metadata") or {})}
    own = spec.get("tolerations") or ()
    tolerated = {each.get("key") for each in own if each.get("effect") in (None, "", "NoExecute")}
    spec["tolerations"] = [*own] + [  # Kubernetes' admission plugin DefaultTolerationSeconds
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _TOLERATED}
        for key in _AWAY
        if not {None, "", key} & tolerated
    ]
    for kind in ("containers", "initContainers"):
        containers = []  # a missing request equals the limit
        for container in spec.get(kind) or ():
            resources = container.get("resources") or {}
            requests = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
            containers.append({**container, "resources": {**resources, "requests": requests}})
        spec[kind] = containers
    meta |= {"namespace": record.namespace, "uid": record.uid, "creationTimestamp": record.created}
    return msgspec.json.decode(msgspec.json.encode({"metadata": meta, "spec": spec}), type=Pod)
