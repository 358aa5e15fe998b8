"""The status of a Job, field by field as the job controller of kube-controller-manager writes it."""

from extender.sim.apiserver.conditions import condition, find_stored_condition, now, set_condition
from extender.sim.apiserver.kinds import Json
from extender.sim.controllers.job_pods import JobPods

_COMPLETE, _FAILED, _SUSPENDED = "Complete", "Failed", "Suspended"
_REACHED = ("CompletionsReached", "Reached expected number of succeeded pods")
_EXCEEDED = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")


def finished(job: Json) -> bool:
    return any(_holds(job, type_) for type_ in (_COMPLETE, _FAILED))


def job_status(job: Json, pods: JobPods) -> Json:
    """A finished Job keeps what it says."""
    status: Json = {**(job.get("status") or {})}
    if finished(job):
        return status
    _count(status, pods)
    if pods.is_complete:
        _end(status, ("SuccessCriteriaMet", _COMPLETE), _REACHED)
        status["completionTime"] = now()
    elif pods.has_failed:
        _end(status, ("FailureTarget", *(() if pods.active else (_FAILED,))), _EXCEEDED)
    elif pods.suspended:
        _suspend(status)
    else:
        _resume(status)
    return status


def count_ready(pods: list[Json]) -> int:
    return sum(_holds(pod, "Ready") for pod in pods)


def _holds(obj: Json, type_: str) -> bool:
    return bool(find_stored_condition(obj, type_).get("status") == "True")


def _count(status: Json, pods: JobPods) -> None:
    """Of what is 0 only the number of ready pods is written."""
    counts = {"active": len(pods.active), "succeeded": pods.succeeded, "failed": pods.failed}
    for name, number in counts.items():
        status.pop(name, None)
        status |= {name: number} if number else {}
    status["ready"] = count_ready(pods.active)
    if pods.indexed:
        status["completedIndexes"] = _shortened(sorted(pods.succeeded_indexes))
    if not pods.suspended:
        status.setdefault("startTime", now())


def _end(status: Json, types: tuple[str, ...], why: tuple[str, str]) -> None:
    for type_ in types:
        set_condition(status, condition(type_, "True", *why))


def _suspend(status: Json) -> None:
    if set_condition(status, condition(_SUSPENDED, "True", "JobSuspended", "Job suspended")):
        status.pop("startTime", None)


def _resume(status: Json) -> None:
    """A Job that was never suspended does not say that it is not. One that goes on starts anew."""
    was = find_stored_condition({"status": status}, _SUSPENDED)
    if was and set_condition(status, condition(_SUSPENDED, "False", "JobResumed", "Job resumed")):
        status["startTime"] = now()


def _shortened(indexes: list[int]) -> str:
    """As in 0,2-5: three and more in a row are written with a hyphen."""
    rows: list[list[int]] = []
    for index in indexes:
        if rows and index == rows[-1][-1] + 1:
            rows[-1].append(index)
        else:
            rows.append([index])
    return ",".join(f"{row[0]}-{row[-1]}" if len(row) > 2 else ",".join(map(str, row)) for row in rows)
