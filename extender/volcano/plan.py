"""One look at a Volcano Job: which pods to create and delete, and its status."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from extender.api.objects.volcano import JobStatus, Json, VolcanoJob
from extender.volcano.pods import JobPod
from extender.volcano.policies import JobRequest


class JobView(NamedTuple):
    """What is known of a job. `pods`: those it owns, by the UID of their owner."""

    job: VolcanoJob  # as it is now, with_defaults
    pods: Sequence[JobPod]
    let_go: bool  # it may have pods: keys.STARTED, or one that Volcano had started
    now: float  # seconds since 1970
    request: JobRequest | None = None
    foreign: Collection[str] = ()  # names of pods that are not its own, among those it wants
    claims: Mapping[str, bool] = {}  # claims that there are of those it names or makes: whether it owns them
    group_phase: str = ""  # of its PodGroup


class Remark(NamedTuple):
    """An Event on the job."""

    type: str  # Normal or Warning
    reason: str
    message: str


class Plan(NamedTuple):
    """To be done in this order: status, where it differs, then the rest. If the status is refused, nothing
    else is done. `creates` are whole, with what plugins add; a few of many, then `due_at` is now."""

    status: JobStatus
    claims: tuple[Json, ...] = ()
    creates: tuple[Json, ...] = ()
    deletes: tuple[JobPod, ...] = ()
    delete_job: bool = False
    due_at: float | None = None  # when to look again, even if nothing changes
    remarks: tuple[Remark, ...] = ()


def plan(view: JobView) -> Plan:
    raise NotImplementedError
