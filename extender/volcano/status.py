"""The status of a Volcano Job: how it begins, moves to another phase, and counts pods."""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from extender.api.durations import as_duration, moment, timestamp_at
from extender.api.objects.volcano import JobCondition, JobStatus, TaskState, VolcanoJob, VolcanoJobState
from extender.volcano.plugins import notes_of
from extender.volcano.pods import JobPod, claim_names
from extender.volcano.states import ENDED, JobPhase, phase_of

_COUNTED = {"Pending": "pending", "Running": "running", "Succeeded": "succeeded", "Failed": "failed"}


def begun(job: VolcanoJob, pods: Sequence[JobPod], now: float) -> JobStatus:
    """As it is, in phase Pending if it has none that is known, with what follows from its spec.

    Pods from after it say that this copy is outdated: the status that follows is refused then, and nothing is
    done by it. Or somebody has reset it: then it is as it was."""
    resources = notes_of(job) | (job.status.controlled_resources or {})
    resources |= {f"volume-pvc-{name}": name for name in claim_names(job)}
    status = replace(
        job.status,
        min_available=job.spec.min_available or 0,
        controlled_resources=resources or None,
        version=max(job.status.version, *(pod.version for pod in pods), 0),
        retry_count=max(job.status.retry_count, *(pod.retry for pod in pods), 0),
    )
    phase = phase_of(status.state.phase)
    return status if phase == status.state.phase else moved(status, phase, now)


def moved(status: JobStatus, phase: JobPhase, now: float, reason: str = "", message: str = "") -> JobStatus:
    """In another phase. In the same it only has another reason. Its conditions are the last time that it
    entered each phase, the newest at the end."""
    if status.state.phase == phase:
        return replace(status, state=replace(status.state, reason=reason, message=message))
    at = timestamp_at(now)
    conditions = [each for each in status.conditions or () if each.status != phase]
    ran_from = next((each for each in conditions if each.status == JobPhase.RUNNING), None)
    duration = status.running_duration
    if phase in (*ENDED, JobPhase.ABORTED) and ran_from is not None:
        duration = as_duration(max(moment(at) - moment(ran_from.last_transition_time), 0.0))
    return replace(
        status,
        state=VolcanoJobState(phase, reason, message, at),
        conditions=[*conditions, JobCondition(phase, at)],
        running_duration=duration,
    )


def counted(
    status: JobStatus, job: VolcanoJob, pods: Sequence[JobPod], doomed: Collection[JobPod]
) -> JobStatus:
    """`doomed` are being deleted, as far as the status is concerned. Pods that are too many do not count.

    A job that has ended keeps its last counts, whatever becomes of its pods."""
    if status.state.phase in ENDED and not (doomed or status.pending or status.running or status.terminating):
        return status
    replicas, going = {task.name: task.replicas for task in job.spec.tasks}, {pod.uid for pod in doomed}
    totals = dict.fromkeys((*_COUNTED.values(), "unknown", "terminating"), 0)
    by_task: dict[str, dict[str, int]] = {}
    for pod in pods:
        if pod.deleting or pod.uid in going:
            totals["terminating"] += 1
        elif pod.index < replicas.get(pod.task, 0):
            totals[_COUNTED.get(pod.phase, "unknown")] += 1
            phases = by_task.setdefault(pod.task, {})
            phases[pod.phase] = phases.get(pod.phase, 0) + 1
    states = {task: TaskState(dict(sorted(phases.items()))) for task, phases in sorted(by_task.items())}
    return replace(status, task_status_count=states or None, **totals)
