"""CronJobs of batch.volcano.sh: which Job is due, and which Jobs are to be deleted.

The rules are as for Kubernetes' CronJobs. Of several missed times, only the last counts. The name of a Job
contains its minute, so each time has at most one Job. All state is in the status and in the Jobs.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from msgspec.structs import replace

from extender.api.keys import MAY_USE
from extender.api.objects.volcano import ActiveJob, CronJob, CronJobStatus, Json, VolcanoJob
from extender.api.units import timestamp_at, unix_seconds
from extender.api.workloads.operators import VOLCANO_JOB
from extender.domain.model.queue_of_group import may_use_annotation, recorded_usable_queue
from extender.domain.model.reasons import EventReason
from extender.volcano.plan import Remark
from extender.volcano.states import JobPhase, phase_of

JOB_VERSION = VOLCANO_JOB.api_version  # version of Jobs and CronJobs
SCHEDULED_AT = "volcano.sh/cronjob-scheduled-timestamp"  # annotation of a Job with its scheduled time
_MAX_LENGTH = 200  # limit of characters of a schedule, and of a time zone
_MAX_NAME_LENGTH = 52  # a Job's name is a label of at most 63 characters, of which the minute needs 11
_SUCCEEDED_LIMIT, _FAILED_LIMIT = 3, 1  # default history limits of ended Jobs
_FAILED_PHASES = (JobPhase.FAILED, JobPhase.TERMINATED)
_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class Schedule:
    """Times of a cron expression in a time zone. All times are in seconds since 1970."""

    def __init__(self, expression: str, zone: str | None) -> None:
        """Read a schedule.

        Raises:
            ValueError: The expression is not a schedule; the message is a sentence.
        """
        if max(len(expression), len(zone or "")) > _MAX_LENGTH:
            raise ValueError(f"schedule and timeZone may have {_MAX_LENGTH} characters")
        fields = _MACROS.get(expression.strip(), expression).replace("?", "*").split()
        if len(fields) != 5:
            raise ValueError(f"schedule {expression!r:.80} is to have five fields, as in 0 3 * * 1")
        # A step such as */2 restricts the days in Kubernetes. One match of two such fields is enough.
        for position, all_values in ((2, "1-31"), (4, "0-6")):  # day of the month, and day of the week
            fields[position] = re.sub(r"\*(?=/(?!0*1\b))", all_values, fields[position])
        self.expression = " ".join(fields)
        try:
            self.zone = ZoneInfo(zone or "UTC")
        except (KeyError, OSError, ValueError) as fault:
            raise ValueError(f"timeZone {zone!r:.80} is not known") from fault
        try:
            CronSim(self.expression, self.as_datetime(0.0))
        except (CronSimError, ValueError) as fault:
            raise ValueError(f"schedule {expression!r:.80}: {fault!s:.80}") from fault

    def last(self, now: float) -> float | None:
        """Return the newest time that is not after `now`; None if there was none in the last 50 years."""
        times = CronSim(self.expression, self.as_datetime(int(now) + 1.0), reverse=True)
        return next((at for at in map(datetime.timestamp, times) if at <= now), None)

    def next(self, now: float) -> float | None:
        """Return the first time after `now`; None if there is none in the next 50 years."""
        times = CronSim(self.expression, self.as_datetime(now))
        return next((at for at in map(datetime.timestamp, times) if at > now), None)

    def as_datetime(self, seconds: float) -> datetime:
        return datetime.fromtimestamp(seconds, UTC if self.zone.key == "UTC" else self.zone)


_schedule_of = lru_cache(maxsize=1024)(Schedule)  # cached, so that each expression is parsed once


class CronPlan(NamedTuple):
    """Next steps for a CronJob, in this order: deletions, a new Job, a changed status."""

    status: CronJobStatus
    jobs_to_delete: tuple[VolcanoJob, ...] = ()
    job_to_create: Json | None = None
    due_at: float | None = None  # time of the next plan, even if nothing changes
    remarks: tuple[Remark, ...] = ()


def cron_plan(cron: CronJob, jobs: Sequence[VolcanoJob], now: float) -> CronPlan:
    """Return the plan of a CronJob.

    `jobs` are the Jobs that the CronJob owns, by UID. `now` is in seconds since 1970.
    """
    if cron.metadata.deletion_timestamp is not None:
        return CronPlan(cron.status)
    active_jobs = [job for job in jobs if _phase(job) not in (JobPhase.COMPLETED, *_FAILED_PHASES)]
    status, deletes = _status(cron, jobs, active_jobs), _surplus_jobs(cron, jobs)
    if cron.spec.suspend:
        return CronPlan(status, deletes)
    try:
        schedule = _schedule_of(cron.spec.schedule, cron.spec.time_zone)
        if len(cron.metadata.name) > _MAX_NAME_LENGTH:
            raise ValueError(f"its name may have {_MAX_NAME_LENGTH} characters: its Jobs are named after it")
    except ValueError as fault:
        remark = Remark("Warning", EventReason.INVALID_SCHEDULE, str(fault))
        return CronPlan(status, deletes, remarks=(remark,))
    last_run, due_at = schedule.last(now), schedule.next(now)
    must_wait = cron.spec.concurrency_policy == "Forbid" and bool(active_jobs)
    if last_run is None or last_run <= _settled_until(cron, status, now) or must_wait:
        return CronPlan(status, deletes, due_at=due_at)
    if cron.spec.concurrency_policy == "Replace":
        deletes = (*deletes, *(job for job in active_jobs if job.metadata.deletion_timestamp is None))
    status = replace(status, last_schedule_time=timestamp_at(last_run))
    return CronPlan(status, deletes, _job(cron, last_run, schedule.as_datetime(last_run).isoformat()), due_at)


def _phase(job: VolcanoJob) -> JobPhase:
    return phase_of(job.status.state.phase)


def _status(cron: CronJob, jobs: Sequence[VolcanoJob], active_jobs: Sequence[VolcanoJob]) -> CronJobStatus:
    """Return the status that follows from the Jobs.

    If Muster stops after it has created a Job, the recorded status may lack this Job.
    """
    old_status = cron.status
    scheduled_times = [(job.metadata.annotations or {}).get(SCHEDULED_AT) for job in jobs]
    end_times = [job.status.state.last_transition_time for job in jobs if _phase(job) is JobPhase.COMPLETED]
    references = [
        ActiveJob(JOB_VERSION, "Job", job.metadata.name, job.metadata.namespace, job.metadata.uid)
        for job in sorted(active_jobs, key=_creation_order)
    ]
    return CronJobStatus(
        active=references or None,
        last_schedule_time=_newest_timestamp(old_status.last_schedule_time, *scheduled_times),
        last_successful_time=_newest_timestamp(old_status.last_successful_time, *end_times),
    )


def _surplus_jobs(cron: CronJob, jobs: Sequence[VolcanoJob]) -> tuple[VolcanoJob, ...]:
    """Return the ended Jobs to delete, because they exceed the history limits. The newest Jobs stay."""
    spec = cron.spec
    limits = (
        ((JobPhase.COMPLETED,), spec.successful_jobs_history_limit, _SUCCEEDED_LIMIT),
        (_FAILED_PHASES, spec.failed_jobs_history_limit, _FAILED_LIMIT),
    )
    surplus_jobs: list[VolcanoJob] = []
    for phases, limit, default in limits:
        ended_jobs = sorted((job for job in jobs if _phase(job) in phases), key=_creation_order)
        surplus_jobs += ended_jobs[: max(len(ended_jobs) - (default if limit is None else limit), 0)]
    return tuple(job for job in surplus_jobs if job.metadata.deletion_timestamp is None)


def _settled_until(cron: CronJob, status: CronJobStatus, now: float) -> float:
    """Return the time up to which each scheduled time has had its Job, or is past its starting deadline."""
    last_handled = unix_seconds(status.last_schedule_time or cron.metadata.creation_timestamp)
    deadline = cron.spec.starting_deadline_seconds
    return last_handled if deadline is None else max(last_handled, now - deadline)


def _job(cron: CronJob, at: float, timestamp: str) -> Json:
    """Return the Job for a scheduled time."""
    meta, template = cron.metadata, cron.spec.job_template
    # The right of the author is recorded on the CronJob, not in its template, which any author may write.
    annotations = {key: text for key, text in (template.metadata.annotations or {}).items() if key != MAY_USE}
    if queue := recorded_usable_queue(meta, "CronJob"):
        annotations |= may_use_annotation(queue, VOLCANO_JOB.kind)
    owner = {"apiVersion": JOB_VERSION, "kind": "CronJob", "name": meta.name, "uid": meta.uid}
    metadata = {
        "name": f"{meta.name}-{int(at) // 60}",
        "namespace": meta.namespace,
        "labels": template.metadata.labels or {},
        "annotations": {**annotations, SCHEDULED_AT: timestamp},
        "ownerReferences": [{**owner, "controller": True}],
    }
    return {"apiVersion": JOB_VERSION, "kind": "Job", "metadata": metadata, "spec": template.spec}


def _creation_order(job: VolcanoJob) -> tuple[float, str]:
    return unix_seconds(job.metadata.creation_timestamp), job.metadata.name


def _newest_timestamp(*timestamps: str | None) -> str | None:
    """Return the newest of some timestamps; None if there are none."""
    at = max(map(unix_seconds, timestamps))
    return timestamp_at(at) if at else None
