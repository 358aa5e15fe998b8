"""Creation of PodGroups for managed jobs, and suspension and start of these jobs.

    decisions, watches ──► next_step ──► a PodGroup, or a change of the job in its current version

A write names the UID and the version of the job. If the job was changed meanwhile, the API server reports a
conflict, and the controller tries again.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from extender.api import keys
from extender.api.objects.base import Operation, OwnerReference
from extender.api.objects.cluster import Event
from extender.api.objects.queues import ABORT, new_command
from extender.api.units import as_duration
from extender.api.workloads.children import SHAPE_ERRORS, controllers
from extender.api.workloads.pod_sets import annotation_paths, may_change_count
from extender.api.workloads.shape import JOB, POD, Json, Kinds, Path, is_suspended, value_at, with_runtime
from extender.controllers.controller import ControllerContext, RecordingController
from extender.controllers.events import NORMAL, WARNING, EventRecorder
from extender.controllers.objects import group_reference, job_reference, timestamp
from extender.controllers.podgroup_status import first_status
from extender.controllers.queue_status import record_reclaims
from extender.domain.model.evictions import LOSS_CAUSES
from extender.domain.model.reasons import EventReason
from extender.domain.model.records import GroupKey, GroupRecord
from extender.domain.snapshot import job_start_and_suspension
from extender.domain.snapshot.auto_podgroups import record_submitter
from extender.domain.snapshot.decisions import Decisions
from extender.domain.snapshot.job_start_and_suspension import (
    JobStep,
    ManagedJob,
    differences,
    job_podgroup,
    next_step,
)
from extender.domain.snapshot.jobs import AnyJob, JobKind, JobRecord, as_json, podgroup_of
from extender.kube.errors import ApiError, Conflict, Forbidden, Invalid, NotFound
from extender.kube.resources import resource_of
from extender.kube.writers import TokenBucket
from extender.telemetry.logs import logger

log = logger(__name__)

_WATCH_DELAY = 5.0  # seconds after which the watch should have shown a write
_MAX_CONTROLLERS = 1000  # most children of a job whose Events are read: a tenant may ask for billions
_SECONDS_LENGTH = len("2026-01-01T00:00:00")
_REFUSAL = re.compile("FailedCreate|FailedToCreate")  # reasons of Kubernetes and Kubeflow, and of KubeRay
_SIMPLE_KINDS = ("Job", "ReplicaSet", "StatefulSet")  # kinds that report refused pods with one reason only
_NOT_URGENT_STEPS = (JobStep.MAKE_PODGROUP, JobStep.UPDATE_PODGROUP, JobStep.LOOK_UP_REFUSALS)
_LOOKUP_RATE, _LOOKUP_BURST = 2.0, 8  # per second, and at once; each look-up scans all Events


class KnownVersion(NamedTuple):
    """Version of a suspended job, with the paths that a patch needs to start the job."""

    version: str  # metadata.resourceVersion of the job
    suspend_path: Path
    annotation_paths: tuple[Path, ...]  # paths of the annotations of the job's pods


class JobVersions(dict[GroupKey, KnownVersion]):
    """Versions of suspended jobs, which allow Muster to unsuspend a job without reading it first.

    Safe to use from any thread. A job has an entry only if its template paths contain no list, because a
    merge patch cannot change lists. A version is used once: if it is outdated, the API server reports a
    conflict, and the job is read.
    """

    def __init__(self, table: Kinds) -> None:
        super().__init__()
        self._table = table
        self._paths: dict[tuple[Path, ...], tuple[Path, ...]] = {}  # so that equal paths share one object

    def record(self, key: GroupKey, kind: JobKind, job: AnyJob) -> None:
        """Record the newest version of a job; forget a job that does not wait or needs to be read first."""
        obj, row = as_json(kind, job), self._table[kind]
        paths: tuple[Path, ...] = ()
        is_waiting = is_suspended(row, obj)
        if is_waiting and row.suspend and may_change_templates(obj) and not may_change_count(row, obj):
            with suppress(*SHAPE_ERRORS):
                paths = tuple(annotation_paths(row, obj, self._table))
        needs_no_paths = is_waiting and not row.suspend
        if not (paths or needs_no_paths) or any(_passes_list(obj, path) for path in paths):
            self.pop(key, None)
        else:
            version = job.metadata.resource_version
            self[key] = KnownVersion(version, row.suspend, self._paths.setdefault(paths, paths))


def _passes_list(obj: Any, path: Path) -> bool:
    """Return whether a path passes a list, which a merge patch cannot change."""
    for name in path:
        obj = obj.get(name) if isinstance(obj, dict) else None
        if isinstance(obj, list):
            return True
    return False


def may_change_templates(obj: Json) -> bool:
    """Return whether the pod templates of a job may be changed.

    Before Kubernetes 1.36, a Job that has run keeps its startTime while it is suspended, and its template can
    no longer be changed. The pods of such a Job get the group of their controller even without an annotation.
    """
    is_job = (obj.get("apiVersion"), obj.get("kind")) == JOB
    return not (is_job and value_at(obj, ("status", "startTime")))


def _name_or_prefix(metadata: Json) -> str:
    """Return the name of a child, or the part of a generated name before its random letters."""
    return str(metadata.get("name") or metadata.get("generateName"))


def _possible_names(about: OwnerReference) -> set[tuple[str, str]]:
    """Return the kind of an Event's object with its name, and with the prefix of a generated name."""
    return {(about.kind, about.name), (about.kind, f"{about.name.rpartition('-')[0]}-")}


class _WrittenStep(NamedTuple):
    """Step that was written, with the state of the job and its PodGroup that made the step necessary."""

    step: JobStep
    job: JobRecord
    group: GroupRecord | None
    at: float  # monotonic time of the write, in seconds


class JobsController(RecordingController[GroupKey]):
    """Controller that makes PodGroups of managed jobs, and starts and suspends the jobs.

    `table` has all known kinds of jobs.
    """

    name = "jobs"
    pause = 1.0

    def __init__(self, context: ControllerContext, recorder: EventRecorder, table: Kinds) -> None:
        super().__init__(context, recorder)
        self._table = table
        self._versions = JobVersions(table)

    def prepare(self) -> None:
        self._last_steps: dict[GroupKey, _WrittenStep] = {}  # written steps, until the watch shows them
        self._jobs_with_podgroup: set[GroupKey] = set()  # jobs that have had a PodGroup
        self._lookup_budget = TokenBucket(_LOOKUP_RATE, _LOOKUP_BURST, self._clock())

    def on_stopped_leading(self) -> None:
        self._last_steps.clear()

    def on_job(self, kind: JobKind, job: AnyJob) -> None:
        """Process a new or changed job after the ledger has stored it."""
        key = podgroup_of(kind, job.metadata)
        self._versions.record(key, kind, job)
        self._queue.add(key)

    def forget(self, key: GroupKey) -> None:
        self._versions.pop(key, None)
        self._last_steps.pop(key, None)
        self._jobs_with_podgroup.discard(key)
        self._queue.add(key)

    def due_keys(self, decisions: Decisions) -> Iterable[GroupKey]:
        """Return the jobs whose decision has changed, and the jobs that are victims."""
        victims = {eviction.victim.group for eviction in decisions.evictions.values()}
        return filter(
            self._ledger.registry.has_job, {*self._changed_groups.since_last_call(decisions), *victims}
        )

    def reconcile(self, key: GroupKey) -> None:
        """Take the next step of a job, unless the step was written and the watch has not shown it yet."""
        managed = self._ledger.managed_job(key)
        if managed is None:
            self._last_steps.pop(key, None)
            return None
        if managed.group is not None:
            self._jobs_with_podgroup.add(key)
        now = self._clock()
        step = next_step(managed, now)
        if step is JobStep.NOTHING:
            self._last_steps.pop(key, None)
            if managed.due_at is not None:
                self._queue.move(key, max(managed.due_at - now, 0.0))
            return None
        # A step is written only once, even if further decisions come before the watch shows the step.
        new_step, last_step = _WrittenStep(step, managed.job, managed.group, now), self._last_steps.get(key)
        if last_step is not None and last_step[:-1] == new_step[:-1] and now < last_step.at + _WATCH_DELAY:
            return self._queue.add(key, last_step.at + _WATCH_DELAY - now)
        if step is JobStep.LOOK_UP_REFUSALS and not self._lookup_budget.take(now):
            return self._queue.add(key, 1 / _LOOKUP_RATE)
        log.info("changing a job", job=managed.job.display_name, step=step.name, group=key)
        self._last_steps[key] = new_step
        forget_step, is_urgent = partial(self._last_steps.pop, key, None), step not in _NOT_URGENT_STEPS
        self.write(key, partial(self._take_step, step, managed), on_failure=forget_step, is_urgent=is_urgent)

    def _take_step(self, step: JobStep, managed: ManagedJob) -> None:
        """Take a step of a job.

        If the API server refuses the write that starts the job, for example because the annotations are full,
        the start is given up. Other groups can then use the capacity.
        """
        try:
            self._carry_out(step, managed)
        except (Forbidden, Invalid) as fault:
            if step in (JobStep.UNSUSPEND, JobStep.UPDATE_PODGROUP) and managed.job.is_suspended:
                why = f"what starts it is refused: {fault.message}"
                self._ledger.give_up_start(managed.job.group, why)
                text = f"{managed.job.display_name} returns to queue {managed.queue}: {why}"
                self._record_event(managed, EventReason.START_GIVEN_UP, text)
            raise

    def _carry_out(self, step: JobStep, managed: ManagedJob) -> None:
        """Take a step of a job by writing to the API server."""
        group = managed.group
        match step:
            case JobStep.MAKE_PODGROUP:
                self._make_podgroup(managed)
            case JobStep.UPDATE_PODGROUP if group is not None:
                changes = {"spec": differences(managed)}
                self._cluster.patch_group(group.namespace, group.name, group.uid, changes)
            case JobStep.REMOVE_PODGROUP if group is not None:
                with suppress(NotFound):
                    self._cluster.delete_group(group.namespace, group.name, group.uid)
            case JobStep.FORGET_TIMEOUTS if group is not None:
                self._record_timeouts(group, None)
            case JobStep.UNSUSPEND:
                self._unsuspend(managed)
            case JobStep.LOOK_UP_REFUSALS:
                self._look_up_refusals(managed.job)
            case JobStep.GIVE_UP:
                self._give_up(managed)
            case JobStep.FORGET_START:
                self._forget_start(managed.job)
            case JobStep.SUSPEND_FOR_OTHERS | JobStep.STOP:
                self._suspend_for_capacity(managed, is_final=step is JobStep.STOP)

    def _make_podgroup(self, managed: ManagedJob) -> None:
        """Create the PodGroup of a job, unless the job had a PodGroup before and is gone by now.

        The watch can be late with the deletion of the job. A PodGroup created after the deletion might stay,
        since nothing collects the dependents of a kind that is gone.
        """
        if managed.job.group in self._jobs_with_podgroup and self._read_job(managed.job) is None:
            return
        job = managed.job
        podgroup = job_podgroup(job, managed.queue, managed.member_count)
        podgroup["status"] |= first_status(self._ledger.decisions.groups.get(job.group))
        record_submitter(podgroup, self._ledger.groups.submitter_of(job.group))
        try:
            self._cluster.create_group(job.namespace, podgroup)
        except Conflict:  # the PodGroup exists already; the watch will show it
            pass
        except (Forbidden, Invalid) as fault:
            self._recorder.record(job_reference(job), WARNING, EventReason.GROUP_REFUSED, fault.message)
            raise

    def _unsuspend(self, managed: ManagedJob) -> None:
        """Unsuspend a job. If its version is known, the job is not read first."""
        job, now = managed.job, timestamp(datetime.now(UTC))
        if (known_version := self._versions.pop(job.group, None)) is not None:
            version, suspend, annotations = known_version
            patch = job_start_and_suspension.unsuspend_unread(
                job.uid, version, suspend, annotations, job.podgroup, now
            )
            self._cluster.merge_job(resource_of(self._table[job.kind]), job.namespace, job.name, patch)
        else:
            obj, row = self._read_job(job), self._table[job.kind]
            if obj is None or not is_suspended(row, obj):
                return
            if row.runtime is not None:
                # The templates are in another object, so the job itself gets the name of its group first.
                with_templates = with_runtime(obj, self._ledger.registry.runtimes.used_spec(job.group))
                if fields := row.annotate(with_templates, keys.GROUP_ANNOTATION, job.podgroup):
                    self._change(job, job_start_and_suspension.with_fields(obj, fields))
                    obj = self._read_job(job)
                    if obj is None or not is_suspended(row, obj):
                        return
            paths = annotation_paths(row, obj, self._table) if may_change_templates(obj) else []
            self._change(
                job,
                job_start_and_suspension.unsuspend(obj, row, paths, job.podgroup, now, managed.reduced_to),
            )
        count = managed.reduced_to
        fitting_text = "all its" if count is None else f"{count} of its {job.pod_count}"
        self._recorder.record(job_reference(job), NORMAL, EventReason.JOB_STARTED, f"{fitting_text} pods fit")

    def _look_up_refusals(self, job: JobRecord) -> None:
        """Look up whether the API server refuses pods of a job, in the Events on the job and its children."""
        row, events = self._table[job.kind], list[Event]()
        with suppress(ApiError, *SHAPE_ERRORS):  # the next look-up tries again
            events = self._cluster.warnings(job.namespace, f"involvedObject.uid={job.uid}")
            if any(part.kind != POD for part in row.offspring) and (obj := self._read_job(job)) is not None:
                with_templates = with_runtime(obj, self._ledger.registry.runtimes.used_spec(job.group))
                first_children = islice(controllers(with_templates), _MAX_CONTROLLERS)
                children = {(child["kind"], _name_or_prefix(child["metadata"])) for child in first_children}
                for kind in sorted({kind for kind, _ in children}):
                    reason = ",reason=FailedCreate" if kind in _SIMPLE_KINDS else ""  # finds fewer Events
                    found = self._cluster.warnings(job.namespace, f"involvedObject.kind={kind}{reason}")
                    events += [each for each in found if not children.isdisjoint(_possible_names(each.about))]
        began_at = job.started_at[:_SECONDS_LENGTH]
        refusals = [
            each for each in events if _REFUSAL.match(each.reason) and each.at[:_SECONDS_LENGTH] >= began_at
        ]
        newest = max(refusals, key=lambda each: each.at, default=None)
        self._ledger.record_refusal(job.group, newest.message if newest else "")
        self._last_steps.pop(job.group, None)
        self._queue.add(job.group)

    def _give_up(self, managed: ManagedJob) -> None:
        """Give up a start and suspend the job.

        The failed start is counted once, when the job is suspended; a repeated write counts nothing.
        """
        why = managed.failure
        self._ledger.give_up_start(managed.job.group, why)
        text = f"returns to queue {managed.queue}: {why}"
        is_suspended = self._suspend(managed, text, EventReason.START_GIVEN_UP)
        if is_suspended and managed.group is not None and not managed.created_pods.refusal:
            self._record_timeouts(managed.group, str(managed.group.start_timeouts + 1))

    def _suspend_for_capacity(self, managed: ManagedJob, is_final: bool) -> None:
        """Suspend a job to free its capacity.

        `is_final` means that the job has reached the limit of its run time.
        """
        if is_final:
            limit, queue = as_duration(managed.max_run_time or 0.0), managed.queue
            why = f"jobs of queue {queue} run for {limit} at most; muster job resume lets it queue again"
            self._suspend(managed, why, EventReason.JOB_STOPPED, is_final=True)
            return
        evictions = self._decisions.evictions.values()
        eviction = next((each for each in evictions if each.victim.group == managed.job.group), None)
        if eviction is not None and eviction.victim.cause in LOSS_CAUSES:
            record_reclaims(self._ledger, self._cluster, eviction.victim.queue)
        why = eviction.why if eviction is not None else f"it waits in queue {managed.queue}"
        self._suspend(managed, why, EventReason.JOB_SUSPENDED)

    def _forget_start(self, job: JobRecord) -> None:
        """Remove the record of the start from a job that a Command has stopped.

        Once resumed, the job waits.
        """
        if (obj := self._read_job(job)) is not None:
            self._change(job, job_start_and_suspension.suspend(obj, self._table[job.kind]))

    def _record_timeouts(self, group: GroupRecord, count: str | None) -> None:
        patch = {"metadata": {"annotations": {keys.START_TIMEOUTS: count}}}
        self._cluster.patch_group(group.namespace, group.name, group.uid, patch)

    def _suspend(self, managed: ManagedJob, why: str, reason: EventReason, is_final: bool = False) -> bool:
        """Suspend a job; return False if the job is gone or is already suspended."""
        job, row = managed.job, self._table[managed.job.kind]
        obj = self._read_job(job)
        if obj is None or is_suspended(row, obj):
            return False
        if is_final and row.commanded is not None:
            owner = OwnerReference(*job.kind, job.name, job.uid, controller=True)
            with suppress(Conflict):  # the Command exists already, and will be executed
                self._cluster.create_command(
                    job.namespace, new_command(owner, ABORT, f"{job.name}-{job.uid}-stop")
                )
        else:
            self._change(job, job_start_and_suspension.suspend(obj, row, job.started_at if is_final else ""))
        self._record_event(managed, reason, f"{job.display_name} was suspended: {why}")
        return True

    def _record_event(self, managed: ManagedJob, reason: EventReason, text: str) -> None:
        groups = [group_reference(managed.group)] if managed.group else []
        for about in (job_reference(managed.job), *groups):
            self._recorder.record(about, WARNING, reason, text)

    def _read_job(self, job: JobRecord) -> dict[str, object] | None:
        """Return the job from the API server; None if the job was deleted or replaced."""
        try:
            obj = self._cluster.job(resource_of(self._table[job.kind]), job.namespace, job.name)
        except NotFound:
            return None
        return obj if obj["metadata"]["uid"] == job.uid else None

    def _change(self, job: JobRecord, operations: list[Operation]) -> None:
        """Apply a JSON patch to a job.

        Raises:
            Conflict: The job has another version now; the patch begins with tests of the version.
        """
        try:
            self._cluster.patch_job(resource_of(self._table[job.kind]), job.namespace, job.name, operations)
        except Invalid as fault:
            newest = self._read_job(job)
            if newest is not None and operations[:2] == job_start_and_suspension.version_tests(newest):
                raise
            raise Conflict(409, "Conflict", fault.message) from fault
