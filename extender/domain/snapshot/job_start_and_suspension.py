"""Start and suspension of jobs: a managed job's next step, start timeout, PodGroup and patches."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import Any

import msgspec
from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.base import Operation, OwnerReference, added, pointer
from extender.api.workloads.pod_sets import PartialStart, with_requested_count
from extender.api.workloads.shape import Json, Path, WorkloadRow, value_at
from extender.domain.model.queue_of_group import explicit_queue
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupRecord
from extender.domain.model.resources import PODS, quantities
from extender.domain.model.shapes import requests_of
from extender.domain.snapshot.auto_podgroups import podgroup
from extender.domain.snapshot.decisions import GroupDecision
from extender.domain.snapshot.jobs import JobRecord
from extender.domain.snapshot.wholeness import created_text


def podgroup_queue(job: JobRecord, queue: str) -> str:
    """Return spec.queue of the job's PodGroup; empty if a LocalQueue leads to `queue`."""
    return "" if job.local_queue is not None and not job.queue else queue


def min_resources(job: JobRecord) -> dict[str, str]:
    """Return the joint requests of all pods that the job makes at once."""
    requests = requests_of(Counter({part.pod.shape: part.count for part in job.pods}))
    return quantities({name: amount for name, amount in requests.items() if name != PODS})


def job_podgroup(job: JobRecord, queue: str, member_count: int) -> dict[str, Any]:
    """Return the PodGroup to create for a job.

    The PodGroup is owned by the job, and is deleted with the job.

    Args:
        job: The job.
        queue: The queue of the job.
        member_count: The number of pods that start together.
    """
    spec = {
        "minMember": member_count,
        "minTaskMember": dict(job.by_role),
        "queue": podgroup_queue(job, queue),
        "priorityClassName": job.priority_class,
        "minResources": min_resources(job) if member_count == job.pod_count else {},
        "subGroupPolicy": job.sub_groups,
    }
    owner = OwnerReference(*job.kind, job.name, job.uid, controller=True)
    metadata = {
        "name": job.podgroup,
        "namespace": job.namespace,
        "ownerReferences": [msgspec.to_builtins(owner)],
        "labels": {job.local_queue.key: job.local_queue.name} if job.local_queue else {},
    }
    return podgroup(metadata, spec)


RETENTION_SECONDS = 3600.0  # seconds until the PodGroup of a finished job is removed
# Seconds until the first look-up of refusals, and longest pause between two look-ups.
_MIN_PAUSE, _MAX_PAUSE = 2.0, 30.0
_ADMIT_SECONDS = 60.0  # seconds within which a job with capacity has to be unsuspended
_MAX_CHARACTERS = 2048  # limit of characters in a message about pods


class JobStep(Enum):
    """Next step of a managed job.

    First, the PodGroup of the job is created. The job is unsuspended when its group starts. It is suspended
    again when its capacity is reclaimed, or when its pods do not become ready in time.
    """

    NOTHING = auto()
    MAKE_PODGROUP = auto()  # create the PodGroup of the job
    UPDATE_PODGROUP = auto()  # update the PodGroup, because the job has changed
    UNSUSPEND = auto()  # unsuspend the job, because its group may start
    LOOK_UP_REFUSALS = auto()  # look up whether the API server refuses the missing pods
    GIVE_UP = auto()  # suspend the job, because its start took too long; it tries again later
    SUSPEND_FOR_OTHERS = auto()  # suspend the job, because others need the capacity
    FORGET_TIMEOUTS = auto()  # delete the record of earlier timeouts, because the job runs
    FORGET_START = auto()  # withdraw the admission of a job that a Command has stopped
    STOP = auto()  # suspend the job for good, because its run time limit is reached
    REMOVE_PODGROUP = auto()  # remove the PodGroup of a job that finished some time ago


_PREFIX_FOR_ONE_POD = re.compile(
    r'^(\(combined from similar events\): )?(Error creating: )?(pods "[^"]*" is forbidden: )?'
)


def refusal_of_pods(message: str) -> str:
    """Return why all pods of an owner are refused, from the message of an Event about one pod.

    Any user may write Events of any length in their namespace, so the message is cut.
    """
    return _PREFIX_FOR_ONE_POD.sub("", message[:_MAX_CHARACTERS])


class CreatedPods(msgspec.Struct, frozen=True):
    """Pods that the controller of an unsuspended job creates one after the other."""

    count: int = -1  # number of existing pods; -1: not counted yet
    since: float = 0.0  # when the number of existing pods last changed
    asked_at: float | None = None  # time of the last look-up of refusals; None: none yet
    refusal: str = ""  # the API server's message about refused pods; empty: no refusal

    def after_answer(self, now: float, message: str) -> "CreatedPods":
        """Return the state after a look-up of refusals.

        Args:
            now: The time of the look-up.
            message: The message of an Event about a refused pod; empty: no such Event.
        """
        return replace(self, asked_at=now, refusal=refusal_of_pods(message))

    @property
    def next_lookup_at(self) -> float:
        """Return the time of the next look-up of refusals, after a pause that doubles each time."""
        if self.asked_at is None:
            return self.since + _MIN_PAUSE
        return self.asked_at + min(self.asked_at - self.since, _MAX_PAUSE)


class ManagedJob(msgspec.Struct, frozen=True):
    """State of a managed job."""

    job: JobRecord
    queue: str  # queue in which the job waits or runs
    member_count: int  # number of pods that start together
    group: GroupRecord | None = None  # record of the job's PodGroup; None: not created yet
    decision: GroupDecision | None = None  # decision on its group
    unsuspended_since: float | None = None  # when the job was seen to be unsuspended
    has_capacity: bool = False  # whether capacity is claimed for all pods of the unchanged job
    capacity_since: float | None = None  # since when capacity is claimed for the waiting job
    reduced_to: int | None = None  # number of pods of a partial start; None: all pods start
    created_pods: CreatedPods = CreatedPods()  # pods that the job's controller has created
    lacks_pods: bool = False  # whether more pods are expected
    became_ready: bool = False  # whether all needed pods have run at the same time since the start
    is_on_nodes: bool = False  # whether its pods are on nodes
    start_timeout: float = 300.0  # start timeout in seconds
    is_victim: bool = False  # whether its pods are to be evicted
    runs_since: float | None = None  # when the job was unsuspended, by its annotation
    max_run_time: float | None = None  # seconds that jobs of its queue may run; None: no limit
    finished_at: float | None = None  # when the job was seen to have finished

    @property
    def due_at(self) -> float | None:
        """Return when passing time alone leads to a step; None: never."""
        if self.finished_at is not None:
            return self.finished_at + RETENTION_SECONDS
        times = [at for at in (self.start_deadline, self.run_limit_at, self.next_lookup_at) if at is not None]
        return min(times, default=None)

    @property
    def next_lookup_at(self) -> float | None:
        """Return when refusals of pods are looked up next; None: no look-up is needed.

        Muster looks up no refusals for a job whose pods it makes itself, because it already knows these
        refusals.
        """
        is_made_by_others = self.job.is_unsuspended and not self.job.is_commanded
        return self.created_pods.next_lookup_at if self.lacks_pods and is_made_by_others else None

    def has_failed(self, now: float) -> bool:
        """Return whether the start has failed: by its timeout, by refused pods, or by the decision."""
        if self.start_deadline is not None and now >= self.start_deadline:
            return True
        if self.created_pods.refusal and self.created_pods.count < self.member_count and not self.is_on_nodes:
            return True
        if self.decision is None or self.decision.verdict is not Verdict.WAITING:
            return False
        return bool(self.decision.undo) or self.decision.reason is Reason.BACKING_OFF

    @property
    def failure(self) -> str:
        """Return why the start has failed, for messages."""
        if self.created_pods.refusal:
            return f"its pods are refused: {self.created_pods.refusal}"
        if self.decision is not None and self.decision.reason is Reason.BACKING_OFF:
            return self.decision.detail
        if self.job.is_suspended:
            return f"the job could not be unsuspended within {_ADMIT_SECONDS:g} s"
        text = f"not all its pods ran within {self.start_timeout:g} s"
        count, needed_count = max(self.created_pods.count, 0), self.member_count
        return f"{text}; {created_text(count, needed_count)}" if count < needed_count else text

    @property
    def run_limit_at(self) -> float | None:
        """Return when the job reaches the run time limit of its queue; None: no limit, or not running."""
        if self.max_run_time is None or self.runs_since is None or not self.job.is_unsuspended:
            return None
        return self.runs_since + self.max_run_time

    @property
    def start_deadline(self) -> float | None:
        """Return the deadline of the start; None: the job is not starting.

        A suspended job with claimed capacity has a deadline, too. Otherwise it could hold this capacity
        forever, for example if a webhook that does not answer keeps Muster from unsuspending the job.
        """
        if self.job.is_suspended:
            return self.capacity_since + _ADMIT_SECONDS if self.capacity_since is not None else None
        if self.unsuspended_since is None or not self.job.was_started or self.became_ready:
            return None
        return self.unsuspended_since + self.start_timeout


def next_step(managed: ManagedJob, now: float) -> JobStep:
    """Return the next step towards the state that the decision on the job requires."""
    job, decision = managed.job, managed.decision
    if managed.finished_at is not None:
        is_over = now >= managed.finished_at + RETENTION_SECONDS and managed.group is not None
        return JobStep.REMOVE_PODGROUP if is_over else JobStep.NOTHING
    if managed.group is None:
        return JobStep.MAKE_PODGROUP
    if job.is_stopped:
        return JobStep.FORGET_START if job.is_commanded and job.was_started else JobStep.NOTHING
    if decision is None:
        return JobStep.NOTHING
    if job.is_suspended:
        return _step_of_waiting(managed, decision, now)
    if not job.was_started:  # jobs that already run stay as they are
        return JobStep.NOTHING if managed.is_on_nodes else JobStep.SUSPEND_FOR_OTHERS
    return _step_of_admitted(managed, managed.group, now)


def _step_of_admitted(managed: ManagedJob, group: GroupRecord, now: float) -> JobStep:
    """Return the step of a job that Muster has unsuspended."""
    if managed.run_limit_at is not None and now >= managed.run_limit_at:
        return JobStep.STOP
    if managed.is_victim:
        return JobStep.SUSPEND_FOR_OTHERS
    if managed.has_failed(now):
        return JobStep.GIVE_UP
    if managed.became_ready and group.start_timeouts:
        return JobStep.FORGET_TIMEOUTS
    if managed.next_lookup_at is not None and now >= managed.next_lookup_at:
        return JobStep.LOOK_UP_REFUSALS
    return _update_if_different(managed)


def _step_of_waiting(managed: ManagedJob, decision: GroupDecision, now: float) -> JobStep:
    """Return the step of a suspended job."""
    is_starting = decision.verdict is Verdict.STARTING
    if is_starting and managed.start_deadline is not None and now >= managed.start_deadline:
        return JobStep.GIVE_UP
    matches_job = managed.has_capacity and not differences(managed)
    return JobStep.UNSUSPEND if is_starting and matches_job else _update_if_different(managed)


def _update_if_different(managed: ManagedJob) -> JobStep:
    """Return the step that updates the PodGroup if its fields differ from the job; otherwise no step."""
    return JobStep.UPDATE_PODGROUP if differences(managed) else JobStep.NOTHING


def differences(managed: ManagedJob) -> dict[str, object]:
    """Return the fields in the spec of the job's PodGroup that have to change to match the job.

    Ended pods of a running job count as members: its minMember falls only if the job declares fewer pods.
    """
    group, job = managed.group, managed.job
    if group is None or job.fault:
        return {}
    if managed.became_ready and job.is_commanded:  # users may change minAvailable while the job runs
        return {"minMember": managed.member_count} if managed.member_count != group.min_member else {}
    if managed.became_ready:
        return {"minMember": job.declared_count} if job.declared_count < group.min_member else {}
    queue = podgroup_queue(job, managed.queue)
    target = {"minMember": managed.member_count, "queue": queue, "priorityClassName": job.priority_class}
    current = {"minMember": group.min_member, "queue": group.queue, "priorityClassName": group.priority_class}
    if explicit_queue(queue) == explicit_queue(group.queue):
        current["queue"] = queue
    names = target if job.is_suspended else ("minMember",)
    changes: dict[str, object] = {name: target[name] for name in names if current[name] != target[name]}
    if job.is_commanded and job.is_suspended and job.by_role != group.min_task_member:
        changes["minTaskMember"] = {**dict.fromkeys(group.min_task_member), **job.by_role}
    requests = min_resources(job) if managed.member_count == job.pod_count else None
    return changes | ({"minResources": requests} if job.is_suspended and "minMember" in changes else {})


def unsuspend(
    obj: Json,
    row: WorkloadRow,
    annotation_paths: Iterable[Sequence[str | int]],
    group: str,
    at_time: str,
    reduced_to: int | None = None,
) -> list[Operation]:
    """Return the JSON patch that unsuspends a job, and names its group in the annotations of its pods.

    Only pods of kinds with a suspend field get the annotation. Pods of other kinds name their group
    themselves.

    Args:
        obj: The job in the API server.
        row: The fields of its kind.
        annotation_paths: The paths of its pods' annotations.
        group: The name of the group.
        at_time: The timestamp of its admission.
        reduced_to: The number of pods of a partial start. None means as many pods as its author requested.
    """
    return [
        *version_tests(obj),
        *([{"op": "replace", "path": pointer(row.suspend), "value": False}] if row.suspend else []),
        *_with_count(obj, row, reduced_to),
        _add_annotation(obj, ("metadata",), keys.STARTED, at_time),
        *(
            _add_annotation(obj, path[:-1], keys.GROUP_ANNOTATION, group)
            for path in (annotation_paths if row.suspend else ())
            if (_value_at(obj, path) or {}).get(keys.GROUP_ANNOTATION) != group
        ),
    ]


def unsuspend_unread(
    uid: str, version: str, suspend_path: Path, annotations: Iterable[Path], group: str, at_time: str
) -> dict[str, Any]:
    """Return a merge patch that unsuspends a job which has not been read.

    A merge patch cannot change a single entry of a list, so no template of the job may be in a list.
    """
    annotation = {keys.STARTED: at_time}
    patch: dict[str, Any] = {"metadata": {"uid": uid, "resourceVersion": version, "annotations": annotation}}
    if suspend_path:
        _put(patch, suspend_path, False)
    for path in annotations:
        _put(patch, (*path, keys.GROUP_ANNOTATION), group)
    return patch


def _put(patch: dict[str, Any], path: Path, value: object) -> None:
    """Set a value in a nested patch, and create the objects above it."""
    *parents, last_key = path
    for name in parents:
        patch = patch.setdefault(name, {})
    patch[last_key] = value


def with_fields(obj: Json, fields: Json) -> list[Operation]:
    """Return the operations that set `fields` in the spec of an object."""
    return [*version_tests(obj), *(added(("spec", name), value) for name, value in fields.items())]


def suspend(obj: Json, row: WorkloadRow, admitted_at: str = "") -> list[Operation]:
    """Return the operations that suspend a job, restore its full number of pods, and withdraw its admission.

    If the kind has no suspend field, an empty annotation withdraws the admission. Only a Command stops such a
    job for good. The patch conflicts with concurrent changes only if it writes a number of pods.

    Args:
        obj: The job in the API server.
        row: The fields of its kind.
        admitted_at: The timestamp of its admission. With this record, the job counts as suspended by its
            user.
    """
    uid_test, _ = version_tests(obj)
    if row.commanded is not None:
        return [uid_test, _add_annotation(obj, ("metadata",), keys.STARTED, "")]
    path, count = ("metadata", "annotations", keys.STARTED), _with_count(obj, row, None)
    operations: list[Operation] = []
    if admitted_at:
        operations = [_add_annotation(obj, path[:1], path[-1], admitted_at)]
    elif value_at(obj, path) is not None:
        operations = [{"op": "remove", "path": pointer(path)}]
    return [*(version_tests(obj) if count else [uid_test]), added(row.suspend, True), *count, *operations]


def _with_count(obj: Json, row: WorkloadRow, reduced_to: int | None) -> list[Operation]:
    """Return the operations that set the number of pods and record the number that the author requested.

    Args:
        obj: The job in the API server.
        row: The fields of its kind.
        reduced_to: The number of pods of a partial start. None restores the author's number.
    """
    if not row.parallelism:
        return []
    own_count = value_at(with_requested_count(row, obj), row.parallelism)
    count = own_count if reduced_to is None else reduced_to
    is_resized = value_at(obj, row.parallelism) != count
    changes = [{"op": "replace", "path": pointer(row.parallelism), "value": count}] if is_resized else []
    record = ("metadata", "annotations", keys.PARTIAL_START)
    if reduced_to is not None:
        changes.append(_add_annotation(obj, record[:1], record[-1], str(PartialStart(reduced_to, own_count))))
    elif value_at(obj, record) is not None:
        changes.append({"op": "remove", "path": pointer(record)})
    return changes


def version_tests(obj: Json) -> list[Operation]:
    """Return operations that make a patch fail unless the object has the same UID and version."""
    return [
        {"op": "test", "path": f"/metadata/{name}", "value": obj["metadata"][name]}
        for name in ("uid", "resourceVersion")
    ]


def _add_annotation(obj: Json, metadata: Sequence[str | int], key: str, value: str) -> Operation:
    """Return the operation that adds an annotation, and creates its parents if they are missing."""
    parent: Any = _value_at(obj, metadata)
    if parent is None:
        return added(metadata, {"annotations": {key: value}})
    if not parent.get("annotations"):
        return added((*metadata, "annotations"), {key: value})
    return added((*metadata, "annotations", key), value)


def _value_at(obj: Any, path: Iterable[str | int]) -> Any:
    """Return the value at a path of names and list indices; None if it is missing."""
    for name in path:
        obj = obj[int(name)] if isinstance(obj, list) else (obj or {}).get(name)
    return obj
