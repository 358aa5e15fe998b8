"""Plan for a Volcano Job: claims and pods to create, pods to delete, and the new status.

The claims of the job's volumes come first, and then its pods, task by task.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import NamedTuple

from msgspec.structs import replace

from extender.api.objects.volcano import JobStatus, Json, TaskSpec, VolcanoJob
from extender.api.units import unix_seconds
from extender.domain.model.reasons import EventReason
from extender.volcano.admission import DEFAULT_RETRIES, is_too_large, job_warnings, review_new, with_defaults
from extender.volcano.plugins import build_with_plugins, plugins_of
from extender.volcano.pods import JobPod, claim_names, owned_object, pod_name
from extender.volcano.policies import JobRequest, policy_requests, restarts_pod, target_of
from extender.volcano.states import (
    ACTIVE_PHASES,
    FINAL_PHASES,
    TARGETED_ACTIONS,
    TRANSITIONS,
    Action,
    JobPhase,
    Kill,
    implied_phase,
    in_phase,
    initial_status,
    phase_of,
    with_counts,
)

MAX_NAMED = 3  # limit of missing claims, or of pods with other owners, that one report names


class PodToCreate(NamedTuple):
    """Pod to create. `build` returns the complete pod, with the additions of plugins.

    `build` is called just before the pod is sent, since a pod of a large job may have a megabyte.
    """

    name: str
    build: Callable[[], Json]


class Creations(NamedTuple):
    claims: tuple[Json, ...] = ()
    pods: tuple[PodToCreate, ...] = ()
    faults: tuple[tuple[EventReason, str], ...] = ()  # reasons why further pods cannot be created


def missing_creations(
    job: VolcanoJob, pods: Sequence[JobPod], claims: Collection[str], foreign: Collection[str], max_pods: int
) -> Creations:
    """Return the missing claims or, if no claim is missing, up to `max_pods` missing pods.

    `foreign` are names of pods that have other owners. Pods with these names are reported as faults.
    """
    volumes = dict(zip(claim_names(job), job.spec.volumes or (), strict=True))
    missing_claims = {name: volume for name, volume in volumes.items() if name not in claims}
    new_claims = tuple(
        owned_object(job, "v1", "PersistentVolumeClaim", name, spec=volume.volume_claim)
        for name, volume in missing_claims.items()
        if volume.volume_claim is not None
    )
    faults = [
        (EventReason.CLAIM_MISSING, f"there is no claim {name} for its volume {volume.mount_path}")
        for name, volume in missing_claims.items()
        if volume.volume_claim is None
    ]
    if missing_claims:
        return Creations(new_claims, faults=tuple(faults[:MAX_NAMED]))
    missing_pods = _missing_pods(job, pods, foreign)
    names = sorted(foreign)[:MAX_NAMED]
    conflicts = [(EventReason.POD_NAME_TAKEN, f"pod {name} is there, and not its own") for name in names]
    return Creations(pods=tuple(islice(missing_pods, max_pods)), faults=tuple(conflicts))


def _missing_pods(job: VolcanoJob, pods: Sequence[JobPod], foreign: Collection[str]) -> Iterator[PodToCreate]:
    """Yield the missing pods that the job needs to start; if there are none, yield the other missing pods.

    If a task has partitions, the needed pods are whole partitions.
    """
    used_names, ready_tasks = {*(pod.name for pod in pods), *foreign}, _ready_tasks(job, pods)
    plugins = plugins_of(job).plugins
    tasks = [task for task in job.spec.tasks if _may_begin(task, ready_tasks)]

    def missing_of(task: TaskSpec, indexes: range) -> Iterator[PodToCreate]:
        for index in indexes:
            name = pod_name(job.metadata.name, task.name, index)
            if name not in used_names:
                yield PodToCreate(name, partial(build_with_plugins, job, plugins, task, index))

    needed = chain.from_iterable(missing_of(task, range(min(task.min_pods, task.replicas))) for task in tasks)
    first_pod = next(needed, None)
    if first_pod is not None:
        return chain([first_pod], needed)
    return chain.from_iterable(missing_of(task, range(task.min_pods, task.replicas)) for task in tasks)


def _ready_tasks(job: VolcanoJob, pods: Sequence[JobPod]) -> set[str]:
    """Return the tasks of which enough pods are ready or have succeeded."""
    counts = {task.name: 0 for task in job.spec.tasks}
    for pod in pods:
        is_ready = pod.phase == "Succeeded" or (pod.phase == "Running" and pod.is_ready)
        if is_ready and not pod.is_deleting and pod.task in counts:
            counts[pod.task] += 1
    return {task.name for task in job.spec.tasks if counts[task.name] >= task.min_pods}


def _may_begin(task: TaskSpec, ready_tasks: Collection[str]) -> bool:
    """Return whether the tasks on which a task depends are ready."""
    depends_on = task.depends_on
    if depends_on is None or not depends_on.name:
        return True
    are_ready = [name in ready_tasks for name in depends_on.name]
    return any(are_ready) if depends_on.iteration == "any" else all(are_ready)


_BATCH = 100  # limit of pods that one step creates, and of pods that it deletes
_MAX_REPORTED_FAULTS = 3  # limit of faults of a job that become Events
_MAX_PAUSE = 60.0  # longest pause between two retries, in seconds
_WAITING = "Waiting"  # reason in the status of a job that waits again after a start
_SYNC_REQUEST = JobRequest(Action.SYNC)


class JobView(NamedTuple):
    """Input of a plan. `pods` are the pods that the job owns, by the UID of their owner."""

    job: VolcanoJob  # the current job
    pods: Sequence[JobPod]
    may_have_pods: bool  # whether keys.STARTED allows pods, or Volcano has started the job
    now: float  # seconds since 1970
    request: JobRequest | None = None
    foreign_names: Collection[str] = ()  # names of the job's pods that pods of other owners use
    existing_claims: Mapping[str, bool] = {}  # names of existing claims, and whether the job owns them
    group_phase: str = ""  # phase of the job's PodGroup


class Remark(NamedTuple):
    """Text for an Event on the job."""

    type: str  # type of the Event: Normal or Warning
    reason: EventReason
    message: str


class Plan(NamedTuple):
    """Next steps for a job. The changed status is written first; if it is refused, nothing else is done.

    Many pods are created or deleted in several steps. Each step waits until the watch has shown the step
    before.
    """

    status: JobStatus
    new_claims: tuple[Json, ...] = ()
    new_pods: tuple[PodToCreate, ...] = ()
    pods_to_delete: tuple[JobPod, ...] = ()
    deletes_job: bool = False
    due_at: float | None = None  # time of the next plan, even if nothing changes
    remarks: tuple[Remark, ...] = ()


def plan(view: JobView) -> Plan:
    """Return the plan for a job."""
    stored_job = view.job
    if stored_job.metadata.deletion_timestamp is not None:  # the pods are deleted with the job
        return Plan(stored_job.status)
    job = with_defaults(stored_job)
    view, initial = view._replace(job=job), initial_status(job, view.pods, view.now)
    request, due_at = _current_request(view, initial)
    requested_status = _requested_status(view, initial, request)
    pods_to_delete = _pods_to_delete(view, requested_status, request)
    status = with_counts(requested_status, job, view.pods, pods_to_delete)
    if phase_of(requested_status.state.phase) is phase_of(initial.state.phase):
        status = _implied_status(view, status, deletes_pods=bool(pods_to_delete))
    ends_at = _removal_time(job, status)
    missing_objects = _missing_objects(view, status)
    due_times = [at for at in (due_at, ends_at) if at is not None]
    if status.state.phase != stored_job.status.state.phase:
        due_times.append(view.now)
    fault_remarks = (Remark("Warning", *fault) for fault in missing_objects.faults)
    return Plan(
        status,
        missing_objects.claims,
        missing_objects.pods,
        tuple(sorted(pods_to_delete, key=lambda pod: (-pod.index, pod.task)))[:_BATCH],
        deletes_job=ends_at is not None and ends_at <= view.now,
        due_at=min(due_times, default=None),
        remarks=_join_remarks((*_remarks(stored_job, request), *fault_remarks)),
    )


def _current_request(view: JobView, status: JobStatus) -> tuple[JobRequest, float | None]:
    """Return the current request, and the time when the next request is due.

    A request from outside the job precedes requests of the job's policies.
    """
    external_request, phase = view.request, phase_of(status.state.phase)
    if external_request is not None and external_request.at <= view.now:
        return (external_request if external_request.is_possible else _SYNC_REQUEST), None
    requests = [external_request] if external_request is not None else []
    if phase in ACTIVE_PHASES and view.may_have_pods:
        requests += (
            _with_pace(request, status)
            for request in policy_requests(view.job, view.pods, view.group_phase)
            if TRANSITIONS[phase, request.action].kill is not Kill.NONE
        )
    current_request = next((request for request in requests if request.at <= view.now), _SYNC_REQUEST)
    return current_request, min((request.at for request in requests if request.at > view.now), default=None)


def _with_pace(request: JobRequest, status: JobStatus) -> JobRequest:
    """Return the request, delayed if the job has been retried often.

    A job may have any number of retries, and each retry creates its pods again. Retries beyond the default
    number are therefore delayed, each twice as long as the one before.
    """
    extra_retries = status.retry_count - DEFAULT_RETRIES
    if extra_retries < 0 or not TRANSITIONS[phase_of(status.state.phase), request.action].is_retry:
        return request
    pause = min(2.0 ** min(extra_retries, 9), _MAX_PAUSE)
    return request._replace(at=max(request.at, unix_seconds(status.state.last_transition_time) + pause))


def _requested_status(view: JobView, status: JobStatus, request: JobRequest) -> JobStatus:
    """Return the status after a request. A job whose pods are not allowed any more returns to Pending."""
    phase = phase_of(status.state.phase)
    kill, next_phase, is_retry = TRANSITIONS[phase, request.action]
    message = f"{request.target}: {request.message}" if request.target else request.message
    if next_phase is not None or kill is Kill.ALL:
        version = status.version if kill is Kill.TARGET else status.version + 1
        status = replace(status, version=version, retry_count=status.retry_count + is_retry)
        return in_phase(status, next_phase or phase, view.now, request.action, message)
    if phase in ACTIVE_PHASES and phase is not JobPhase.PENDING and not view.may_have_pods:
        status = replace(status, version=status.version + 1)
        return in_phase(status, JobPhase.PENDING, view.now, _WAITING, "its queue has reclaimed its capacity")
    return status


def _pods_to_delete(view: JobView, status: JobStatus, request: JobRequest) -> list[JobPod]:
    """Return the pods that have to be deleted in this phase."""
    remaining_pods, phase = [pod for pod in view.pods if not pod.is_deleting], phase_of(status.state.phase)
    unfinished_pods = [pod for pod in remaining_pods if not pod.is_finished]
    if phase not in ACTIVE_PHASES:
        return unfinished_pods
    if not view.may_have_pods:
        return remaining_pods
    if phase is JobPhase.RESTARTING:
        return _pods_to_restart(view.job, status, request, remaining_pods, unfinished_pods)
    replicas_by_task = {task.name: task.replicas for task in view.job.spec.tasks}
    return [
        pod
        for pod in remaining_pods
        if pod.index >= replicas_by_task.get(pod.task, pod.index + 1)  # pods of unknown tasks stay
        or (pod.version < status.version and not pod.is_finished)
    ]


def _pods_to_restart(
    job: VolcanoJob, status: JobStatus, request: JobRequest, existing: list[JobPod], unfinished: list[JobPod]
) -> list[JobPod]:
    """Return the pods that a restart deletes. After the last retry, finished pods stay as evidence."""
    if status.retry_count >= job.spec.max_retry:
        return unfinished
    reason, target = status.state.reason, target_of(status.state.message)
    if reason == Action.RESTART:
        return [pod for pod in existing if pod.version < status.version]
    deleted_pods = [pod for pod in unfinished if pod.version < status.version]
    if reason in TARGETED_ACTIONS:
        older_pods = [pod for pod in existing if pod.retry < status.retry_count]
        deleted_pods += [pod for pod in older_pods if restarts_pod(reason, target, pod)]
    if request.target:
        deleted_pods += [pod for pod in existing if restarts_pod(request.action, request.target, pod)]
    return list({pod.uid: pod for pod in deleted_pods}.values())


def _implied_status(view: JobView, status: JobStatus, deletes_pods: bool) -> JobStatus:
    """Return the status in the phase that follows from the pods.

    `deletes_pods` means that the plan deletes pods.
    """
    phase = phase_of(status.state.phase)
    next_phase, state = implied_phase(phase, status, view.job.spec), status.state
    stays_in_phase = next_phase is phase or (phase is JobPhase.PENDING and not view.may_have_pods)
    if stays_in_phase or (phase is JobPhase.RESTARTING and next_phase is JobPhase.PENDING and deletes_pods):
        return status  # a restart lasts until the watch has shown the end of all deleted pods
    if next_phase is JobPhase.FAILED and phase is JobPhase.RESTARTING:
        message = f"{state.message}; it may be restarted {view.job.spec.max_retry} times"
        return in_phase(status, next_phase, view.now, "MaxRetryReached", message.removeprefix("; "))
    if next_phase in FINAL_PHASES and phase is JobPhase.RUNNING:
        pod_count = view.job.spec.members
        message = f"{status.succeeded} of its {pod_count} pods have succeeded, {status.failed} failed"
        return in_phase(status, next_phase, view.now, "PodsEnded", message)
    if next_phase is JobPhase.RUNNING and state.reason == _WAITING:
        return in_phase(status, next_phase, view.now)
    return in_phase(status, next_phase, view.now, state.reason, state.message)


def _missing_objects(view: JobView, status: JobStatus) -> Creations:
    """Return the claims and pods to create. During a restart there are none until the old pods have ended."""
    if not view.may_have_pods or status.state.phase not in (JobPhase.PENDING, JobPhase.RUNNING):
        return Creations()
    if is_too_large(view.job):
        return Creations()
    job = replace(view.job, status=status)
    return missing_creations(job, view.pods, view.existing_claims, view.foreign_names, _BATCH)


def _removal_time(job: VolcanoJob, status: JobStatus) -> float | None:
    """Return the time at which an ended job is deleted; None if the job stays."""
    ended_at, ttl = unix_seconds(status.state.last_transition_time), job.spec.ttl_seconds_after_finished
    return ended_at + ttl if ttl is not None and ended_at and status.state.phase in FINAL_PHASES else None


def _remarks(job: VolcanoJob, request: JobRequest) -> Iterator[Remark]:
    """Yield remarks on the action of a request and, for a new job, on its faults."""
    if request.action is not Action.SYNC:
        text = f"{request.action}: {request.message or request.reason}"
        yield Remark("Normal", EventReason.ACTION_TAKEN, text)
    is_new = not job.status.state.phase  # faults are reported only once
    faults = (*map(str, review_new(job)), *job_warnings(job)) if is_new else ()
    for fault in faults[:_MAX_REPORTED_FAULTS]:
        yield Remark("Warning", EventReason.JOB_FAULTY, fault)


def _join_remarks(remarks: Iterable[Remark]) -> tuple[Remark, ...]:
    """Join remarks with the same reason, since a second Event with a reason would replace the first."""
    messages = defaultdict[tuple[str, EventReason], list[str]](list)
    for kind, reason, message in remarks:
        messages[kind, reason].append(message)
    return tuple(Remark(*key, "; ".join(parts)) for key, parts in messages.items())
