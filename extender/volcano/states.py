"""The phases of a Volcano Job, and what every action does in each."""

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import NamedTuple


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
    to: JobPhase | None = None  # None: as the pods say
    is_retry: bool = False  # it counts in status.retryCount


FINISHED = frozenset({JobPhase.COMPLETED, JobPhase.FAILED, JobPhase.TERMINATED, JobPhase.ABORTED})
TABLE: Mapping[tuple[JobPhase, Action], JobTransition] = {}


def phase_of(text: str) -> JobPhase:
    """Pending for a phase that is empty or unknown, as Volcano has it."""
    try:
        return JobPhase(text)
    except ValueError:
        return JobPhase.PENDING
