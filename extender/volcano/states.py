"""The phases of a Volcano Job, what every action does in each, and where its pods lead it on their own.

The table is Volcano's, with one difference: what ends a job that restarts ends it, and is not lost.
"""

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import NamedTuple

from extender.api.objects.volcano import JobStatus, VolcanoJobSpec


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
    """Which pods an action deletes."""

    NONE = 0
    UNFINISHED = 1  # those that have succeeded or failed stay
    ALL = 2
    TARGET = 3  # those of the task, the pod or the partition that the action is about


class JobTransition(NamedTuple):
    kill: Kill
    to: JobPhase | None = None  # None: where the pods lead it
    is_retry: bool = False  # it counts in status.retryCount


ACTIVE = (JobPhase.PENDING, JobPhase.RUNNING, JobPhase.RESTARTING)  # it has pods, or is to have them
ENDED = (JobPhase.COMPLETED, JobPhase.FAILED, JobPhase.TERMINATED)  # for good
TARGETED = (Action.RESTART_TASK, Action.RESTART_POD, Action.RESTART_PARTITION)

_SYNC, _CLEAN_UP = JobTransition(Kill.NONE), JobTransition(Kill.UNFINISHED)
_RESUMED = JobTransition(Kill.UNFINISHED, JobPhase.RESTARTING, is_retry=True)
_ENDS = {
    Action.ABORT: JobTransition(Kill.UNFINISHED, JobPhase.ABORTING),
    Action.TERMINATE: JobTransition(Kill.UNFINISHED, JobPhase.TERMINATING),
    Action.COMPLETE: JobTransition(Kill.UNFINISHED, JobPhase.COMPLETING),
}
_STARTED = {
    **dict.fromkeys(Action, _SYNC),
    Action.RESTART: JobTransition(Kill.ALL, JobPhase.RESTARTING, is_retry=True),
    **dict.fromkeys(TARGETED, JobTransition(Kill.TARGET, JobPhase.RESTARTING, is_retry=True)),
    **_ENDS,
}
_RESTARTING = {
    **dict.fromkeys(Action, _SYNC),
    Action.RESTART: JobTransition(Kill.ALL),
    **dict.fromkeys(TARGETED, JobTransition(Kill.TARGET)),
    **_ENDS,
}
_LAST = dict.fromkeys(Action, _CLEAN_UP)
_ROWS = {
    JobPhase.PENDING: _STARTED,
    JobPhase.RUNNING: _STARTED,
    JobPhase.RESTARTING: _RESTARTING,
    JobPhase.ABORTING: {**_LAST, Action.RESUME: _RESUMED},
    JobPhase.ABORTED: {**_LAST, Action.RESUME: _RESUMED},
}
TABLE: Mapping[tuple[JobPhase, Action], JobTransition] = {
    (phase, action): transition
    for phase in JobPhase
    for action, transition in _ROWS.get(phase, _LAST).items()
}

_AFTER_CLEAN_UP = {
    JobPhase.COMPLETING: JobPhase.COMPLETED,
    JobPhase.TERMINATING: JobPhase.TERMINATED,
    JobPhase.ABORTING: JobPhase.ABORTED,
}


def phase_of(text: str) -> JobPhase:
    """Pending for a phase that is empty or unknown, as Volcano has it."""
    try:
        return JobPhase(text)
    except ValueError:
        return JobPhase.PENDING


def led_to(phase: JobPhase, status: JobStatus, spec: VolcanoJobSpec) -> JobPhase:
    """The phase that follows from the counts in `status`, if nobody asks for anything."""
    match phase:
        case JobPhase.PENDING:
            started = status.running + status.succeeded + status.failed
            return JobPhase.RUNNING if started >= (spec.min_available or 0) else phase
        case JobPhase.RUNNING:
            return _after_running(status, spec)
        case JobPhase.RESTARTING:
            if status.retry_count >= spec.max_retry:
                return JobPhase.FAILED
            needed = min(spec.min_available or 0, spec.members)  # what it cannot have, it does not wait for
            return JobPhase.PENDING if spec.members - status.terminating >= needed else phase
    alive = status.terminating + status.pending + status.running
    return phase if alive else _AFTER_CLEAN_UP.get(phase, phase)


def _after_running(status: JobStatus, spec: VolcanoJobSpec) -> JobPhase:
    total, needed = spec.members, spec.min_available or 0
    if total == 0:  # it was scaled down to nothing, and may be scaled up again
        return JobPhase.RUNNING
    if spec.min_success is not None and status.succeeded >= spec.min_success:
        return JobPhase.COMPLETED
    if status.succeeded + status.failed >= total:
        failed = spec.min_success is not None or _lacks_a_task(status, spec) or status.succeeded < needed
        return JobPhase.FAILED if failed else JobPhase.COMPLETED
    return JobPhase.PENDING if status.pending > total - needed else JobPhase.RUNNING


def _lacks_a_task(status: JobStatus, spec: VolcanoJobSpec) -> bool:
    """Too few pods of a task have succeeded; that counts unless the job needs fewer than its tasks."""
    if (spec.min_available or 0) < sum(task.least for task in spec.tasks):
        return False
    counts = status.task_status_count or {}
    return any(
        (counts[task.name].phase or {}).get("Succeeded", 0) < task.least
        for task in spec.tasks
        if task.name in counts
    )
