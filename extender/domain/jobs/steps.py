"""What is to be done about a job that is managed: its PodGroup is made, it is let go when its group starts,
and suspended again when it has to make room or does not get going in time."""

from enum import Enum, auto

import msgspec

from extender.domain.decisions.decisions import GroupDecision
from extender.domain.jobs.job_record import JobRecord
from extender.domain.jobs.unit import min_resources, unit_queue
from extender.domain.model.queue_of_group import explicit_queue
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupRecord

KEPT = 3600.0  # seconds for which the PodGroup of a finished job stays


class JobStep(Enum):
    NOTHING = auto()
    MAKE_UNIT = auto()  # its PodGroup
    UPDATE_UNIT = auto()  # the job asks for something else now
    LET_GO = auto()  # its pods may be made
    GIVE_UP = auto()  # its start took too long: it is suspended, and tries again later
    GIVE_WAY = auto()  # it is suspended, because others need the room
    FORGET_TIMEOUTS = auto()  # it runs: those before do not count any more
    STOP = auto()  # it has run for as long as its queue allows: it is suspended, and stays so
    REMOVE_UNIT = auto()  # it finished a while ago


class ManagedJob(msgspec.Struct, frozen=True):
    """A job at one moment."""

    job: JobRecord
    queue: str  # in which it waits or runs
    group: GroupRecord | None = None  # its PodGroup
    decision: GroupDecision | None = None  # on its group
    let_go: float | None = None  # since when it is not suspended, as far as was seen
    has_room: bool = False  # it is as it was when room was claimed for all pods with which it starts
    reduced_to: int | None = None  # with how many pods it starts, if with fewer than it asks for
    got_going: bool = False  # all needed pods have run at the same time since then
    runs: bool = False  # pods of it are on nodes
    timeout: float = 300.0  # seconds that this may take
    is_victim: bool = False  # its pods have to give their room back
    runs_since: float | None = None  # when it was let go, by its annotation; it outlives a restart
    max_run_time: float | None = None  # seconds that jobs of its queue may run; None: no limit
    finished_at: float | None = None  # when it had finished, as far as was seen

    @property
    def due_at(self) -> float | None:
        """When time alone asks for a step; None: never."""
        if self.finished_at is not None:
            return self.finished_at + KEPT
        moments = [moment for moment in (self.late_at, self.over_at) if moment is not None]
        return min(moments, default=None)

    @property
    def over_at(self) -> float | None:
        """When it has run for as long as its queue allows."""
        if self.max_run_time is None or self.runs_since is None or not self.job.is_let_go:
            return None
        return self.runs_since + self.max_run_time

    @property
    def late_at(self) -> float | None:
        """When its start has taken too long; None: it is not starting."""
        is_starting = self.job.started and not self.job.suspended and not self.got_going
        return self.let_go + self.timeout if is_starting and self.let_go is not None else None


def next_step(managed: ManagedJob, now: float) -> JobStep:
    job, decision = managed.job, managed.decision
    if managed.finished_at is not None:
        is_over = now >= managed.finished_at + KEPT and managed.group is not None
        return JobStep.REMOVE_UNIT if is_over else JobStep.NOTHING
    if managed.group is None:
        return JobStep.MAKE_UNIT
    if decision is None or (job.suspended and job.started):  # suspended by its user
        return JobStep.NOTHING
    if job.suspended:
        starts = decision.verdict is Verdict.STARTING and managed.has_room
        return JobStep.LET_GO if starts and not differences(managed) else _update(managed)
    if not job.started:  # nobody but Muster may let it go; what runs already is left alone
        return JobStep.NOTHING if managed.runs else JobStep.GIVE_WAY
    if managed.over_at is not None and now >= managed.over_at:
        return JobStep.STOP
    if managed.is_victim:
        return JobStep.GIVE_WAY
    if _has_failed(decision) or (managed.late_at is not None and now >= managed.late_at):
        return JobStep.GIVE_UP
    if managed.got_going and managed.group.start_timeouts:
        return JobStep.FORGET_TIMEOUTS
    return _update(managed)


def _has_failed(decision: GroupDecision) -> bool:
    """Its start, by the decision on its group."""
    waits = decision.verdict is Verdict.WAITING
    return waits and (bool(decision.undo) or decision.reason is Reason.BACKING_OFF)


def _update(managed: ManagedJob) -> JobStep:
    return JobStep.UPDATE_UNIT if differences(managed) else JobStep.NOTHING


def differences(managed: ManagedJob) -> dict[str, object]:
    """The fields of its PodGroup's spec that do not say any more what the job asks for. What runs stays where
    it is, and needs fewer pods only if the job declares fewer: those that end count as there."""
    group, job = managed.group, managed.job
    if group is None or job.fault:
        return {}
    if managed.got_going:
        return {"minMember": job.declared} if job.declared < group.min_member else {}
    queue = unit_queue(job, managed.queue)
    wanted = {"minMember": job.needed, "queue": queue, "priorityClassName": job.priority_class}
    there = {"minMember": group.min_member, "queue": group.queue, "priorityClassName": group.priority_class}
    if explicit_queue(queue) == explicit_queue(group.queue):
        there["queue"] = queue
    followed = wanted if job.suspended else ("minMember",)
    found = {name: wanted[name] for name in followed if there[name] != wanted[name]}
    return found | ({"minResources": min_resources(job)} if job.suspended and "minMember" in found else {})
