"""Brings managed jobs in line with the decisions on their groups: makes their PodGroups, lets jobs go, and
suspends them again.

    decisions, watches ──► next_step ──► a PodGroup, or a change of the job as it is at that moment

A job that is written names its UID and version, so what somebody else changes meanwhile is looked at again.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

from extender.api import keys
from extender.api.workloads.shape import Kinds, at
from extender.api.workloads.template_paths import annotation_paths
from extender.controllers.conditions import timestamp
from extender.controllers.controller import ControllerContext, RecordingController
from extender.controllers.event_recorder import NORMAL, WARNING, EventRecorder
from extender.controllers.references import of_group, of_job
from extender.domain.decisions.decisions import Decisions
from extender.domain.jobs import changes
from extender.domain.jobs.job_record import JobRecord
from extender.domain.jobs.steps import JobStep, ManagedJob, differences, next_step
from extender.domain.jobs.unit import unit
from extender.domain.model.reasons import EventReason
from extender.domain.model.records import GroupKey
from extender.kube.errors import Conflict, Invalid, NotFound
from extender.kube.resources import resource_of
from extender.telemetry.logs import logger

log = logger(__name__)

_TOO_LATE = "not all its pods ran within {:g} s"


class JobsController(RecordingController[GroupKey]):
    """`table`: all kinds that are known."""

    name = "jobs"
    pause = 1.0

    def __init__(self, context: ControllerContext, recorder: EventRecorder, table: Kinds) -> None:
        super().__init__(context, recorder)
        self._table = table

    def notice(self, key: GroupKey) -> None:
        """A job is new, has changed or is gone."""
        self._queue.add(key)

    def due(self, decisions: Decisions) -> Iterable[GroupKey]:
        for key in self._changed_groups.of(decisions):
            if self._ledger.has_job(key):
                yield key
        yield from {each.victim.group for each in decisions.evictions.values()}

    def reconcile(self, key: GroupKey) -> None:
        managed = self._ledger.managed_job(key)
        if managed is None:
            return self._queue.settle(key)
        step, now = next_step(managed, self._clock()), self._clock()
        if (write := self._write_of(step, managed)) is not None:
            log.info("a step of a job", job=managed.job.spoken_name, step=step.name, group=key)
            self.write(key, write)
        elif managed.late_at is not None:
            self._queue.move(key, max(managed.late_at - now, 0.0))

    def _write_of(self, step: JobStep, managed: ManagedJob) -> Callable[[], None] | None:
        match step:
            case JobStep.MAKE_UNIT:
                return partial(self._make_unit, managed)
            case JobStep.UPDATE_UNIT:
                return partial(self._update_unit, managed)
            case JobStep.LET_GO:
                return partial(self._let_go, managed)
            case JobStep.GIVE_UP:
                return partial(self._give_up, managed)
            case JobStep.GIVE_WAY:
                return partial(self._give_way, managed)
        return None

    # ---- its PodGroup

    def _make_unit(self, managed: ManagedJob) -> None:
        with suppress(Conflict):  # it exists already: the watch will show it
            self._cluster.create_group(managed.job.namespace, unit(managed.job, managed.queue))

    def _update_unit(self, managed: ManagedJob) -> None:
        group = managed.group
        if group is not None:
            spec = {"spec": differences(managed)}
            self._cluster.patch_group(group.namespace, group.name, group.uid, spec)

    # ---- the job itself

    def _let_go(self, managed: ManagedJob) -> None:
        job = managed.job
        obj, row = self._newest(job), self._table[job.kind]
        if obj is None or at(obj, row.suspend) is not True:
            return
        group, now = job.group.partition("/")[2], timestamp(datetime.now(UTC))
        self._change(
            job, changes.let_go(obj, row.suspend, annotation_paths(row, obj, self._table), group, now)
        )
        self._recorder.record(of_job(job), NORMAL, EventReason.JOB_STARTED, "all its pods find room")

    def _give_up(self, managed: ManagedJob) -> None:
        group, why = managed.group, _why_given_up(managed)
        if group is not None:
            count = {keys.START_TIMEOUTS: str(group.start_timeouts + 1)}
            patch = {"metadata": {"annotations": count}}
            self._cluster.patch_group(group.namespace, group.name, group.uid, patch)
        self._ledger.give_up_start(managed.job.group, why)
        self._suspend(managed, f"goes back to queue {managed.queue}: {why}", EventReason.START_GIVEN_UP)

    def _give_way(self, managed: ManagedJob) -> None:
        group, evictions = managed.job.group, self._decisions.evictions.values()
        wanted = next((each.why for each in evictions if each.victim.group == group), "")
        why = wanted or f"it waits in queue {managed.queue}"
        self._suspend(managed, why, EventReason.JOB_SUSPENDED)

    def _suspend(self, managed: ManagedJob, why: str, reason: EventReason) -> None:
        job = managed.job
        obj = self._newest(job)
        if obj is None:
            return
        self._change(job, changes.suspend(obj, self._table[job.kind].suspend))
        for about in (of_job(job), *([of_group(managed.group)] if managed.group else [])):
            self._recorder.record(about, WARNING, reason, f"{job.spoken_name} was suspended: {why}")

    def _newest(self, job: JobRecord) -> dict[str, object] | None:
        """As the API server has it now; None if it is gone, or another one has its name."""
        try:
            obj = self._cluster.job(resource_of(self._table[job.kind]), job.namespace, job.name)
        except NotFound:
            return None
        return obj if obj["metadata"]["uid"] == job.uid else None

    def _change(self, job: JobRecord, operations: list[changes.Operation]) -> None:
        """Raises Conflict if it is in another version now."""
        try:
            self._cluster.patch_job(resource_of(self._table[job.kind]), job.namespace, job.name, operations)
        except Invalid as fault:
            raise Conflict(409, "Conflict", fault.message) from fault


def _why_given_up(managed: ManagedJob) -> str:
    decision = managed.decision
    failed = decision.detail if decision is not None and managed.late_at is None else ""
    return failed or _TOO_LATE.format(managed.timeout)
