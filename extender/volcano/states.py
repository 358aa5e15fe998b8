"""Phases of a Volcano Job: effects of actions in each phase, transitions by pods, and the status.

The table is Volcano's, with one difference: Muster executes an action that ends a restarting job. In
Volcano, this action has no effect.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import Enum, StrEnum
from typing import NamedTuple

from msgspec.structs import replace

from extender.api.objects.volcano import (
    JobCondition,
    JobStatus,
    TaskState,
    VolcanoJob,
    VolcanoJobSpec,
    VolcanoJobState,
)
from extender.api.units import as_duration, timestamp_at, unix_seconds
from extender.volcano.plugins import plugin_resources
from extender.volcano.pods import JobPod, claim_names


class JobPhase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    COMPLETING = "Completing"
    COMPLETED = "Completed"
    TERMINATING = "Terminating"
    TERMINATED = "Terminated"
    ABORTING = "Aborting"
    ABORTED = "Aborted"
    FAILED = "Failed"


class Action(StrEnum):
    SYNC = "SyncJob"
    ABORT = "AbortJob"
    RESTART = "RestartJob"
    RESTART_TASK = "RestartTask"
    RESTART_POD = "RestartPod"
    RESTART_PARTITION = "RestartPartition"
    TERMINATE = "TerminateJob"
    COMPLETE = "CompleteJob"
    RESUME = "ResumeJob"


class Kill(Enum):
    """Pods that an action deletes."""

    NONE = 0
    UNFINISHED = 1  # all pods that have not finished
    ALL = 2
    TARGET = 3  # the pod, or the pods of the task or partition, that the action names


class JobTransition(NamedTuple):
    kill: Kill
    next_phase: JobPhase | None = None  # next phase; None for the phase that follows from the pods
    is_retry: bool = False  # whether the action counts in status.retryCount


ACTIVE_PHASES = (JobPhase.PENDING, JobPhase.RUNNING, JobPhase.RESTARTING)  # with pods, or before new pods
FINAL_PHASES = (JobPhase.COMPLETED, JobPhase.FAILED, JobPhase.TERMINATED)
TARGETED_ACTIONS = (Action.RESTART_TASK, Action.RESTART_POD, Action.RESTART_PARTITION)

_NO_CHANGE, _CLEAN_UP = JobTransition(Kill.NONE), JobTransition(Kill.UNFINISHED)
_RESUMPTION = JobTransition(Kill.UNFINISHED, JobPhase.RESTARTING, is_retry=True)
_END_TRANSITIONS = {
    Action.ABORT: JobTransition(Kill.UNFINISHED, JobPhase.ABORTING),
    Action.TERMINATE: JobTransition(Kill.UNFINISHED, JobPhase.TERMINATING),
    Action.COMPLETE: JobTransition(Kill.UNFINISHED, JobPhase.COMPLETING),
}
_START_TRANSITIONS = {
    **dict.fromkeys(Action, _NO_CHANGE),
    Action.RESTART: JobTransition(Kill.ALL, JobPhase.RESTARTING, is_retry=True),
    **dict.fromkeys(TARGETED_ACTIONS, JobTransition(Kill.TARGET, JobPhase.RESTARTING, is_retry=True)),
    **_END_TRANSITIONS,
}
_RESTART_TRANSITIONS = {
    **dict.fromkeys(Action, _NO_CHANGE),
    Action.RESTART: JobTransition(Kill.ALL),
    **dict.fromkeys(TARGETED_ACTIONS, JobTransition(Kill.TARGET)),
    **_END_TRANSITIONS,
}
_CLEAN_UP_TRANSITIONS = dict.fromkeys(Action, _CLEAN_UP)
_ACTIONS_BY_PHASE = {
    JobPhase.PENDING: _START_TRANSITIONS,
    JobPhase.RUNNING: _START_TRANSITIONS,
    JobPhase.RESTARTING: _RESTART_TRANSITIONS,
    JobPhase.ABORTING: {**_CLEAN_UP_TRANSITIONS, Action.RESUME: _RESUMPTION},
    JobPhase.ABORTED: {**_CLEAN_UP_TRANSITIONS, Action.RESUME: _RESUMPTION},
}
TRANSITIONS: Mapping[tuple[JobPhase, Action], JobTransition] = {
    (phase, action): transition
    for phase in JobPhase
    for action, transition in _ACTIONS_BY_PHASE.get(phase, _CLEAN_UP_TRANSITIONS).items()
}

_AFTER_CLEAN_UP = {
    JobPhase.COMPLETING: JobPhase.COMPLETED,
    JobPhase.TERMINATING: JobPhase.TERMINATED,
    JobPhase.ABORTING: JobPhase.ABORTED,
}


def phase_of(text: str) -> JobPhase:
    """Return the phase that a text names; Pending if the text is empty or unknown, as in Volcano."""
    try:
        return JobPhase(text)
    except ValueError:
        return JobPhase.PENDING


def implied_phase(phase: JobPhase, status: JobStatus, spec: VolcanoJobSpec) -> JobPhase:
    """Return the phase that follows from the counts in `status`, without a request."""
    match phase:
        case JobPhase.PENDING:
            started_count = status.running + status.succeeded + status.failed
            return JobPhase.RUNNING if started_count >= (spec.min_available or 0) else phase
        case JobPhase.RUNNING:
            return _phase_after_running(status, spec)
        case JobPhase.RESTARTING:
            if status.retry_count >= spec.max_retry:
                return JobPhase.FAILED
            minimum = min(spec.min_available or 0, spec.members)  # at most the number of all members
            return JobPhase.PENDING if spec.members - status.terminating >= minimum else phase
    existing_pods = status.terminating + status.pending + status.running
    return phase if existing_pods else _AFTER_CLEAN_UP.get(phase, phase)


def _phase_after_running(status: JobStatus, spec: VolcanoJobSpec) -> JobPhase:
    """Return the phase that follows from the counts of a running job."""
    pod_count, minimum = spec.members, spec.min_available or 0
    if pod_count == 0:  # a job that is scaled to zero can be scaled up later
        return JobPhase.RUNNING
    if spec.min_success is not None and status.succeeded >= spec.min_success:
        return JobPhase.COMPLETED
    if status.succeeded + status.failed >= pod_count:
        failed = spec.min_success is not None or _lacks_successes(status, spec) or status.succeeded < minimum
        return JobPhase.FAILED if failed else JobPhase.COMPLETED
    return JobPhase.PENDING if status.pending > pod_count - minimum else JobPhase.RUNNING


def _lacks_successes(status: JobStatus, spec: VolcanoJobSpec) -> bool:
    """Return whether too few pods of a task have succeeded, if the job needs all its tasks."""
    if (spec.min_available or 0) < sum(task.min_pods for task in spec.tasks):
        return False
    counts = status.task_status_count or {}
    tasks = (task for task in spec.tasks if task.name in counts)
    return any((counts[task.name].phase or {}).get("Succeeded", 0) < task.min_pods for task in tasks)


# Status of a job: the initial status, transitions, and counts of pods.

_COUNT_FIELDS = {"Pending": "pending", "Running": "running", "Succeeded": "succeeded", "Failed": "failed"}


def initial_status(job: VolcanoJob, pods: Sequence[JobPod], now: float) -> JobStatus:
    """Return the status with the fields that follow from the spec.

    If the phase is unknown, the status begins with Pending. If pods have a newer version, this copy of the
    job is outdated, and the API server will refuse the status. If a user has reset the status, the pods
    restore it. Surplus pods do not count.
    """
    replicas_by_task = {task.name: task.replicas for task in job.spec.tasks}
    current_pods = [pod for pod in pods if pod.index < replicas_by_task.get(pod.task, 0)]
    resources = plugin_resources(job) | (job.status.controlled_resources or {})
    resources |= {f"volume-pvc-{name}": name for name in claim_names(job)}
    status = replace(
        job.status,
        min_available=job.spec.min_available or 0,
        controlled_resources=resources or None,
        version=max(job.status.version, *(pod.version for pod in current_pods), 0),
        retry_count=max(job.status.retry_count, *(pod.retry for pod in current_pods), 0),
    )
    phase = phase_of(status.state.phase)
    return status if phase == status.state.phase else in_phase(status, phase, now)


def in_phase(
    status: JobStatus, phase: JobPhase, now: float, reason: str = "", message: str = ""
) -> JobStatus:
    """Return the status with this phase, reason and message. It may already have this phase.

    The result has a condition for each phase that the job has entered, with the time of the last entry. The
    newest condition comes last.
    """
    if status.state.phase == phase:
        return replace(status, state=replace(status.state, reason=reason, message=message))
    at = timestamp_at(now)
    conditions = [condition for condition in status.conditions or () if condition.status != phase]
    running = next((condition for condition in conditions if condition.status == JobPhase.RUNNING), None)
    duration = status.running_duration
    if phase in (*FINAL_PHASES, JobPhase.ABORTED) and running is not None:
        duration = as_duration(max(unix_seconds(at) - unix_seconds(running.last_transition_time), 0.0))
    return replace(
        status,
        state=VolcanoJobState(phase, reason, message, at),
        conditions=[*conditions, JobCondition(phase, at)],
        running_duration=duration,
    )


def with_counts(
    status: JobStatus, job: VolcanoJob, pods: Sequence[JobPod], deleted_pods: Collection[JobPod]
) -> JobStatus:
    """Return the status with the numbers of pods.

    `deleted_pods` count as terminating. Surplus pods do not count. A job that has ended keeps its last
    numbers.
    """
    has_pods = deleted_pods or status.pending or status.running or status.terminating
    if status.state.phase in FINAL_PHASES and not has_pods:
        return status
    replicas_by_task = {task.name: task.replicas for task in job.spec.tasks}
    deleted_uids = {pod.uid for pod in deleted_pods}
    totals = dict.fromkeys((*_COUNT_FIELDS.values(), "unknown", "terminating"), 0)
    by_task: dict[str, dict[str, int]] = {}
    for pod in pods:
        if pod.is_deleting or pod.uid in deleted_uids:
            totals["terminating"] += 1
        elif pod.index < replicas_by_task.get(pod.task, 0):
            totals[_COUNT_FIELDS.get(pod.phase, "unknown")] += 1
            phases = by_task.setdefault(pod.task, {})
            phases[pod.phase] = phases.get(pod.phase, 0) + 1
    states = {task: TaskState(dict(sorted(phases.items()))) for task, phases in sorted(by_task.items())}
    return replace(status, task_status_count=states or None, **totals)
