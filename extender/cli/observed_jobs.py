"""Jobs as the API server shows them, each with its PodGroup, and the search for jobs."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import click
import msgspec

from extender.api.keys import HOLD, START_TIMEOUTS, STARTED
from extender.api.objects.base import Meta, OwnerReference
from extender.api.objects.pods import Pod
from extender.api.workloads.pod_sets import PartialStart, partial_start, pod_sets
from extender.api.workloads.shape import (
    WorkloadRow,
    has_templates,
    is_stopped,
    is_suspended,
    outcome_of,
    runtime_kind,
    runtime_named_by,
    with_runtime,
)
from extender.cli.access import ClusterAccess
from extender.cli.kinds import OwnerKind, Target, all_kinds, job_kinds, job_of, job_row
from extender.cli.lookup import fetch_all
from extender.cli.output import Json
from extender.cli.why.evidence import SCHEDULERS, Evidence
from extender.domain.explain.observed import ObservedGroup
from extender.domain.model.ownership import group_name, queue_named_by
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.shapes import Shapes
from extender.domain.snapshot import jobs as records
from extender.kube.access import Right, right_to
from extender.kube.errors import Forbidden, NotFound
from extender.kube.resources import POD_GROUPS, Resource, resource_of
from extender.terminal.text import did_you_mean, near_misses

# States of jobs, in addition to the verdicts of groups.
HELD = "Held"  # held by its user, or after several start timeouts
SUSPENDED = "Suspended"  # suspended until its user resumes it
_GroupsByKind = dict[tuple[str, str], list[tuple[OwnerReference, ObservedGroup]]]  # by apiVersion and kind


class QueueRefusal(NamedTuple):
    queue: str
    reason: str
    message: str


class ObservedJob(NamedTuple):
    """Job with its PodGroup, if it has one.

    Attributes:
        obj: The job; None if it may not be read.
        refusal: The reason why its pods wait without a PodGroup.
    """

    row: WorkloadRow
    meta: Meta
    obj: Json | None
    podgroup: ObservedGroup | None
    refusal: QueueRefusal | None = None

    @property
    def display_name(self) -> str:
        """Return the name for users, such as `job/train`."""
        return f"{self.row.prefix}/{self.meta.name}"

    @property
    def qualified_name(self) -> str:
        """Return the name in kubectl's notation, such as `job.batch/train`."""
        return f"{self.row.qualified}/{self.meta.name}"

    @property
    def resource(self) -> Resource:
        return Resource(f"/apis/{self.row.api_version}", self.row.plural)

    @property
    def is_suspended(self) -> bool:
        return self.obj is not None and is_suspended(self.row, self.obj)

    @property
    def is_stopped(self) -> bool:
        """Return whether the job is suspended until a user resumes it."""
        return self.obj is not None and is_stopped(self.row, self.obj)

    @property
    def admitted_at(self) -> str:
        """Return the timestamp at which Muster unsuspended the job; empty if it did not."""
        return (self.meta.annotations or {}).get(STARTED, "")

    @property
    def partial_start(self) -> PartialStart | None:
        """Return the numbers of pods of a partial start; None if all pods started."""
        return partial_start(self.row, self.obj) if self.obj is not None else None

    @property
    def start_timeouts(self) -> str:
        """Return the number of consecutive start timeouts as text; empty without one."""
        return self._group_annotations.get(START_TIMEOUTS, "")

    @property
    def _group_annotations(self) -> Mapping[str, str]:
        return (self.podgroup.metadata.annotations if self.podgroup else None) or {}

    @property
    def state(self) -> str:
        """Return the state of the job: a verdict, Held or Suspended."""
        verdict = self.podgroup.verdict if self.podgroup else Verdict.UNKNOWN
        if self.obj is None:
            return verdict if verdict in (Verdict.ENDED, Verdict.RUNNING) else self._queue_state
        if outcome_of(self.row, self.obj):
            return Verdict.ENDED
        if self.is_suspended:
            return SUSPENDED if self.is_stopped else self._queue_state
        if verdict in (Verdict.RUNNING, Verdict.ENDED):
            return Verdict.RUNNING
        return Verdict.STARTING if self.admitted_at else self._queue_state

    @property
    def is_pending(self) -> bool:
        """Return whether the job waits for its start, with or without pods."""
        return self.state in (Verdict.WAITING, HELD)

    @property
    def is_held(self) -> bool:
        """Return whether a user holds the job, or its start timed out too often."""
        annotations = self._group_annotations
        is_annotated = annotations.get(HOLD) == "true" or START_TIMEOUTS in annotations
        return is_annotated or self.reason in (Reason.HELD, Reason.START_TIMED_OUT)

    @property
    def is_unsuspended_by_muster(self) -> bool:
        """Return whether Muster will unsuspend the job.

        The job or its pods must name a queue, and must not name a PodGroup. True if the job cannot be read.
        """
        return self.obj is None or records.is_unsuspended_by_muster(self.row, self.obj)

    @property
    def _queue_state(self) -> str:
        scheduled = self.podgroup.scheduled if self.podgroup else None
        is_held = self._group_annotations.get(HOLD) == "true"
        if is_held or self.reason in (Reason.HELD, Reason.START_TIMED_OUT):
            return HELD
        starts = scheduled is not None and scheduled.reason == Verdict.STARTING
        return Verdict.STARTING if starts else Verdict.WAITING

    @property
    def reason(self) -> str:
        """Return the reason why the job waits; empty if it does not wait."""
        source = self.podgroup or self.refusal
        return source.reason if source else ""

    @property
    def message(self) -> str:
        source = self.podgroup or self.refusal
        return source.message if source else ""

    @property
    def position(self) -> int:
        """Return the position in the queue, from 1; 0 if the job is not pending."""
        return self.podgroup.waiting.position if self.podgroup and self.state == Verdict.WAITING else 0

    @property
    def pods(self) -> int:
        """Return the number of pods that the job creates at the same time."""
        minimum = self.podgroup.spec.min_member if self.podgroup else 0
        if self.obj is None or not has_templates(self.row, self.obj):
            return minimum
        return max(records.owner_of_pods(*self._kind_and_record, all_kinds()).gang.pods, minimum)

    @property
    def _kind_and_record(self) -> tuple[records.JobKind, records.AnyJob]:
        return records.JobKind(*self.row.key), msgspec.convert(self.obj, records.AnyJob, strict=False)

    @property
    def right_to_patch(self) -> Right:
        return right_to("patch", self.resource, self.meta.namespace, self.meta.name)

    def record(self, schedulers: Iterable[str] = SCHEDULERS) -> records.JobRecord | None:
        """Return Muster's record of the job; None if the job may not be read.

        `schedulers` are the scheduler names of Muster.
        """
        if self.obj is None or not has_templates(self.row, self.obj):
            return None
        return records.job_record(*self._kind_and_record, all_kinds(), Shapes(), schedulers, auto_groups=True)


def observed_job(row: WorkloadRow, obj: Json, podgroup: ObservedGroup | None) -> ObservedJob:
    """Return the job in an object. The object may lack its kind, as objects in a list do."""
    with_kind = {**obj, "apiVersion": row.api_version, "kind": row.kind}
    return ObservedJob(row, msgspec.convert(obj["metadata"], Meta), with_kind, podgroup)


def jobs_of(access: ClusterAccess, evidence: Evidence) -> list[ObservedJob]:
    """Return the jobs with a PodGroup and the jobs whose queue is closed, sorted by namespace and name.

    The jobs are in the namespace of `access`, or in all namespaces. If a kind may not be read, a warning on
    stderr names the kind, and its jobs have only the data of their PodGroups.
    """
    jobs: dict[str, ObservedJob] = {}
    objects = fetch_all(access.reader, POD_GROUPS, access.namespace, ())
    groups = [msgspec.convert(obj, ObservedGroup) for obj in objects]
    groups_by_name = {(group.namespace, group.name): group for group in groups}
    for (version, name), podgroups in _podgroups(groups, evidence).items():
        if (row := job_row(version, name)) is None:
            continue
        listed = _objects_by_uid(access, Resource(f"/apis/{version}", row.plural), may_warn=bool(podgroups))
        for owner, podgroup in podgroups:
            if listed is None:
                jobs[owner.uid] = ObservedJob(row, Meta(owner.name, podgroup.namespace), None, podgroup)
            elif owner.uid in listed:
                jobs[owner.uid] = observed_job(row, listed[owner.uid], podgroup)
        for uid, obj in (listed or {}).items():
            if uid in jobs:
                continue
            job = _with_named_group(observed_job(row, obj, None), lambda *name: groups_by_name.get(name))
            if job.podgroup:
                jobs[uid] = job
            elif refusal := _refusal(evidence, job):
                jobs[uid] = job._replace(refusal=refusal)
    return sorted(jobs.values(), key=lambda job: (job.meta.namespace, job.meta.name, job.row.kind))


def _with_named_group(job: ObservedJob, find: Callable[[str, str], ObservedGroup | None]) -> ObservedJob:
    """Return the job with the PodGroup that its pods name, if the job has no other PodGroup.

    `find` gets a namespace and a name, and returns the PodGroup; None if it does not exist.
    """
    record = job.record()
    if job.podgroup or record is None or not record.names_group or record.is_part or job.obj is None:
        return job
    templates = (msgspec.convert(part.template, Pod, strict=False) for part in pod_sets(job.obj, all_kinds()))
    return job._replace(podgroup=find(job.meta.namespace, next(filter(None, map(group_name, templates)), "")))


def _podgroups(groups: Iterable[ObservedGroup], evidence: Evidence) -> _GroupsByKind:
    """Return the PodGroups with their owners, by apiVersion and kind. Every served kind is a key."""
    served = ((kind, evidence.resource_of_kind(kind)) for kind in job_kinds())
    by_kind: _GroupsByKind = {(resource.version, kind.name): [] for kind, resource in served if resource}
    for podgroup in groups:
        if owner := job_of(podgroup.controller):
            by_kind.setdefault((owner.api_version, owner.kind), []).append((owner, podgroup))
    return by_kind


def _refusal(evidence: Evidence, job: ObservedJob) -> QueueRefusal | None:
    """Return the refusal by the queue, if a job's pods wait because the queue accepts no groups."""
    record = job.record()
    if record is None or record.is_suspended or not record.is_for_muster or not record.pods:
        return None
    if record.names_group or record.is_part:
        return None
    pod = record.pods[0].pod
    if pod.queue or pod.local_queue:
        queue = evidence.queue_of_pods(record.namespace, pod.queue, pod.local_queue)
    else:
        queue = evidence.queue_of_object(job.meta, queue_named_by(job.meta))
    reason, message = evidence.refusal_of(queue)
    return QueueRefusal(queue, reason, message.text) if message else None


def _objects_by_uid(access: ClusterAccess, resource: Resource, may_warn: bool) -> dict[str, Json] | None:
    """Return the objects of a kind by UID; None if they may not be read.

    If `may_warn` is true, a warning then names the missing right.
    """
    try:
        objects = access.reader.list(resource, access.namespace, Json)
    except NotFound:
        return {}
    except Forbidden:
        if may_warn:
            right = right_to("list", resource, access.namespace)
            click.echo(f"Only the PodGroups of {resource.plural} are shown: you may not {right}.", err=True)
        return None
    return {obj["metadata"]["uid"]: obj for obj in objects}


def job_of_kind(evidence: Evidence, kind: OwnerKind, name: str) -> ObservedJob | None:
    """Return the job with this name and the templates of its runtime; None if it cannot be read."""
    resource = evidence.resource_of_kind(kind)
    row = job_row(resource.version, kind.name) if resource else None
    obj = evidence.find_owner(kind, name, Json) if row else None
    if row is None or obj is None:
        return None
    meta = msgspec.convert(obj["metadata"], Meta)
    key_functions = (records.podgroup_of, records.job_group_key)
    keys = (key_of(records.JobKind(*row.key), meta) for key_of in key_functions)
    groups = (evidence.group(key.partition("/")[2]) for key in keys)
    podgroup = next(filter(None, groups), None)
    if runtime := runtime_named_by(row, obj):
        kind_of_runtime = runtime_kind(row, runtime)
        stored_runtime = None
        if kind_of_runtime is not None:
            resource, in_cluster = resource_of(kind_of_runtime), not runtime.namespace
            stored_runtime = evidence.find(resource, runtime.name, records.JobRuntime, of_cluster=in_cluster)
        if kind_of_runtime is None or kind_of_runtime.plural not in evidence.unread_kinds:
            obj = with_runtime(obj, stored_runtime.spec if stored_runtime else None)
    return observed_job(row, obj, podgroup)


def find_job(evidence: Evidence, target: Target) -> ObservedJob:
    """Return the job of the named kind, or of any kind.

    The command ends if there is no such job, or several.
    """
    kinds = [kind for kind in job_kinds() if not target.kind or kind.is_called(target.kind)]
    jobs = [job for kind in kinds if (job := job_of_kind(evidence, kind, target.name))]
    if len(jobs) > 1:
        candidates = " and ".join(job.display_name for job in jobs)
        raise click.UsageError(f"invalid value {target.name!r}, which may be {candidates}: name one of them")
    if jobs:
        return _with_named_group(jobs[0], lambda _, name: evidence.group(name))
    namespace = evidence.namespace
    served_kinds = [(kind, resource) for kind in kinds if (resource := evidence.resource_of_kind(kind))]
    if target.kind and not served_kinds and not evidence.unread_kinds:
        raise click.ClickException(f"the cluster knows no {kinds[0].plural}.{kinds[0].group}")
    if evidence.unread_kinds:
        unread = (resource for kind, resource in served_kinds if kind.plural in evidence.unread_kinds)
        rights = ", ".join(str(right_to("get", resource, namespace, target.name)) for resource in unread)
        rights = rights or f"get {', '.join(evidence.unread_kinds)}"  # for example a runtime
        raise click.ClickException(f"not allowed: the search needs the right to {rights}")
    owners = [(kind, obj) for kind, _ in served_kinds for obj in evidence.all_owners(kind)]
    names = sorted(f"{kind.name.lower()}/{obj.metadata.name}" for kind, obj in owners)
    similar_names = near_misses(target.name, (name.partition("/")[2] for name in names))
    suggestion = did_you_mean([name for name in names if name.partition("/")[2] in similar_names])
    title = f"{target.kind} {target.name!r}" if target.kind else f"a job {target.name!r} of any kind"
    message = f"{title} not found in namespace {namespace}"
    raise click.ClickException(f"{message}; {suggestion}" if suggestion else message)
