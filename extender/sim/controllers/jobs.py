"""Jobs as in kube-controller-manager: their pods, the ends of these pods, and the status.

A Job with completions creates pods until that many have succeeded. A Job without completions creates pods
until one has succeeded. Failed pods are created again, up to backoffLimit, without the backoff of a real
controller. An ended pod counts once, even after its deletion.
"""

from collections import defaultdict
from itertools import count, islice
from typing import NamedTuple

from extender.apimachinery.kinds import JOBS, PODS, Json
from extender.apimachinery.objects import condition, find_stored_condition, now, set_condition
from extender.apimachinery.store import Change, Store
from extender.files.offspring import ComparedOffspring, has_ended, owner_uid, pods_at, retention_key

INDEX_KEY = "batch.kubernetes.io/job-completion-index"


class Ending(NamedTuple):
    has_succeeded: bool
    completion_index: int  # completion index of the pod in an Indexed Job


class JobEndings:
    """Ends of the pods of Jobs. A deleted pod counts as failed, unless the Job's controller deleted it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._endings_by_job = defaultdict[str, dict[str, Ending]](dict)  # by UID of the Job, then of the pod
        self._uids_deleted_here = set[str]()

    def observe(self, change: Change) -> None:
        meta, is_gone = change.object["metadata"], change.type == "DELETED"
        if change.kind is JOBS and is_gone:
            self._endings_by_job.pop(meta["uid"], None)
        if change.kind is PODS and (is_gone or "deletionTimestamp" in meta):
            self._record(change.object)
        if is_gone:
            self._uids_deleted_here.discard(meta["uid"])

    def endings_of(self, job: Json, owned: list[Json]) -> list[Ending]:
        """Return the ends of a job's pods. `owned` are its existing pods."""
        for pod in filter(has_ended, owned):
            self._record(pod)
        return list(self._endings_by_job.get(job["metadata"]["uid"], {}).values())

    def record_deletion(self, obj: Json) -> None:
        """Record that the controller deletes a pod."""
        self._uids_deleted_here.add(obj["metadata"]["uid"])

    def _record(self, pod: Json) -> None:
        uid, owners = pod["metadata"]["uid"], pod["metadata"].get("ownerReferences") or ()
        names = (owner["name"] for owner in owners if owner.get("controller") and owner["kind"] == JOBS.name)
        jobs = (self._store.get(JOBS, pod["metadata"]["namespace"], name) for name in names)
        job_exists = any(job is not None and job["metadata"]["uid"] == owner_uid(pod) for job in jobs)
        if uid not in self._uids_deleted_here and job_exists:  # pods of a deleted Job do not count
            ending = Ending(pod["status"].get("phase") == "Succeeded", index_of(pod))
            self._endings_by_job[owner_uid(pod)].setdefault(uid, ending)


def index_of(pod: Json) -> int:
    """Return the completion index of a pod; 0 if it has none."""
    text = (pod["metadata"].get("annotations") or {}).get(INDEX_KEY, "")
    return int(text) if text.isdecimal() else 0


class JobPods:
    """A Job with its existing pods, and the ends of its pods so far."""

    def __init__(self, job: Json, owned: list[Json], job_endings: JobEndings) -> None:
        self._job = job
        self._spec = spec = job["spec"]
        endings = job_endings.endings_of(job, owned)
        completions = spec.get("completions")
        self._completions = int(completions or 0)
        reasons = {(pod.get("status") or {}).get("reason") for pod in owned}
        self.active_pods = sorted((pod for pod in owned if not has_ended(pod)), key=retention_key)
        self.is_indexed = spec.get("completionMode") == "Indexed"
        self.is_suspended = bool(spec.get("suspend"))
        indexes = [ending.completion_index for ending in endings if ending.has_succeeded]
        self.succeeded_indexes = {index for index in indexes if index < self._completions}
        self.succeeded_count = len(self.succeeded_indexes if self.is_indexed else indexes)
        self.failed_count = len(endings) - len(indexes)
        has_enough = self.succeeded_count >= (1 if completions is None else int(completions))
        self.is_complete = has_enough and not self.active_pods
        self.ran_too_long = "activeDeadlineSeconds" in spec and _DEADLINE_EXCEEDED in reasons
        self.has_failed = self.ran_too_long or self.failed_count > int(spec.get("backoffLimit", 6))

    def compare(self) -> ComparedOffspring:
        """Compare the existing with the wanted pods. Return the pods to create and the pods to delete.

        Raises:
            SHAPE_ERRORS: The object cannot be read.
        """
        used_indexes = {*self.succeeded_indexes}
        retained_pods: list[Json] = []
        surplus_pods: list[Json] = []  # pods whose index another pod has, or is no longer wanted
        for pod in self.active_pods:
            index = index_of(pod)
            is_surplus = self.is_indexed and (index in used_indexes or index >= self._completions)
            (surplus_pods if is_surplus else retained_pods).append(pod)
            used_indexes.add(index)
        target: int = self._spec.get("parallelism", 1)
        if self.is_suspended or self.has_failed:
            target = 0
        elif (completions := self._spec.get("completions")) is not None:
            target = min(max(int(completions) - self.succeeded_count, 0), target)
        elif self.succeeded_count:
            target = len(self.active_pods)
        surplus_pods += retained_pods[target:]
        if surplus_pods:  # surplus pods are deleted before new ones are created
            return ComparedOffspring([], surplus_pods, [])
        free_indexes = (index for index in range(self._completions) if index not in used_indexes)
        indexes = islice(free_indexes if self.is_indexed else count(), max(target - len(retained_pods), 0))
        return ComparedOffspring(list(pods_at(self._job, indexes)), [], [])


# ---- status

_COMPLETE, _FAILED, _SUSPENDED = "Complete", "Failed", "Suspended"
_REACHED_TEXTS = ("CompletionsReached", "Reached expected number of succeeded pods")
_DEADLINE_EXCEEDED = "DeadlineExceeded"
_TOO_LONG_TEXTS = (_DEADLINE_EXCEEDED, "Job was active longer than specified deadline")
_EXCEEDED_TEXTS = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")


def is_finished(job: Json) -> bool:
    return any(_has_true_condition(job, type_) for type_ in (_COMPLETE, _FAILED))


def job_status(job: Json, pods: JobPods) -> Json:
    """Return the status of a Job. A finished Job keeps its status."""
    status: Json = {**(job.get("status") or {})}
    if is_finished(job):
        return status
    counts = {"active": len(pods.active_pods), "succeeded": pods.succeeded_count, "failed": pods.failed_count}
    for name, number in counts.items():  # a count of 0 is left out, except the count of ready pods
        status.pop(name, None)
        status |= {name: number} if number else {}
    status["ready"] = count_ready(pods.active_pods)
    if pods.is_indexed:
        status["completedIndexes"] = _index_ranges(sorted(pods.succeeded_indexes))
    if not pods.is_suspended:
        status.setdefault("startTime", now())
    if pods.is_complete:
        _set_conditions(status, ("SuccessCriteriaMet", _COMPLETE), _REACHED_TEXTS)
        status["completionTime"] = now()
    elif pods.has_failed:
        reason_and_message = _TOO_LONG_TEXTS if pods.ran_too_long else _EXCEEDED_TEXTS
        types = ("FailureTarget",) if pods.active_pods else ("FailureTarget", _FAILED)
        _set_conditions(status, types, reason_and_message)
    elif pods.is_suspended:
        if set_condition(status, condition(_SUSPENDED, "True", "JobSuspended", "Job suspended")):
            status.pop("startTime", None)
    else:  # only a Job that was suspended before has the condition Suspended
        former = find_stored_condition({"status": status}, _SUSPENDED)
        if former and set_condition(status, condition(_SUSPENDED, "False", "JobResumed", "Job resumed")):
            status["startTime"] = now()
    return status


def count_ready(pods: list[Json]) -> int:
    return sum(_has_true_condition(pod, "Ready") for pod in pods)


def _has_true_condition(obj: Json, type_: str) -> bool:
    return bool(find_stored_condition(obj, type_).get("status") == "True")


def _set_conditions(status: Json, types: tuple[str, ...], reason_and_message: tuple[str, str]) -> None:
    for type_ in types:
        set_condition(status, condition(type_, "True", *reason_and_message))


def _index_ranges(indexes: list[int]) -> str:
    """Return indexes as text, such as 0,2-5. A hyphen joins three or more consecutive indexes."""
    runs: list[list[int]] = []
    for index in indexes:
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)
