"""The pods of a Volcano Job: their names, how they are made, and which are missing or too many."""

import msgspec

from extender.api.objects.volcano import Json, TaskSpec, VolcanoJob


class JobPod(msgspec.Struct, frozen=True):
    """What counts of a pod that a job owns. Times in seconds since 1970."""

    name: str
    uid: str
    task: str
    index: int
    version: int  # of the job when it was made
    phase: str
    retry: int = 0  # the job's status.retryCount when it was made
    partition: str = ""  # empty: its task has none
    deleting: bool = False
    exit_code: int | None = None  # of its first container
    ran: bool = False  # has been on a node
    ready: bool = False  # all its containers are
    restarts: int = 0  # of all its containers
    created: float = 0.0
    ended: float = 0.0  # when its last container ended; 0: none has


def pod_of(pod: Json) -> JobPod | None:
    """None if its annotations do not say of which task, index and version it is."""
    raise NotImplementedError


def pod_name(job: str, task: str, index: int) -> str:
    return f"{job}-{task}-{index}"


def group_name(job: VolcanoJob) -> str:
    """Of its PodGroup."""
    return f"{job.metadata.name}-{job.metadata.uid}"


def build(job: VolcanoJob, task: TaskSpec, index: int) -> Json:
    """A pod to be created, without what plugins add."""
    raise NotImplementedError
