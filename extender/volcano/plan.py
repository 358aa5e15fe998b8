"""Plan for a Volcano Job: the claims and pods to create, the pods to delete, and its status.

Claims of its volumes come first, and then pods, task by task.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import NamedTuple

from msgspec.structs import replace

from extender.api.objects.volcano import JobStatus, Json, TaskSpec, VolcanoJob
from extender.api.units import instant
from extender.domain.model.reasons import EventReason
from extender.volcano.admission import RETRIES, is_too_large, job_warnings, review_new, with_defaults
from extender.volcano.plugins import plugins_of, whole_pod
from extender.volcano.pods import JobPod, claim_names, owned, pod_name
from extender.volcano.policies import JobRequest, aims_at, policy_requests, target_of
from extender.volcano.states import (
    ACTIVE,
    ENDED,
    TABLE,
    TARGETED,
    Action,
    JobPhase,
    Kill,
    implied_phase,
    in_phase,
    initial_status,
    phase_of,
    with_counts,
)

MOST_NAMED = 3


class PodToCreate(NamedTuple):
    """Pod to create. `build` makes it, with the additions of plugins, just before it is sent.

    The pod of a large job may be a megabyte.
    """

    name: str
    build: Callable[[], Json]


class Creations(NamedTuple):
    claims: tuple[Json, ...] = ()
    pods: tuple[PodToCreate, ...] = ()
    faults: tuple[tuple[EventReason, str], ...] = ()  # why other pods cannot be created


def missing_creations(
    job: VolcanoJob, pods: Sequence[JobPod], claims: Collection[str], foreign: Collection[str], most: int
) -> Creations:
    """Return the missing claims, else at most `most` missing pods. Names of `foreign` pods are left out."""
    volumes = dict(zip(claim_names(job), job.spec.volumes or (), strict=True))
    missing = {name: volume for name, volume in volumes.items() if name not in claims}
    new_claims = tuple(
        owned(job, "v1", "PersistentVolumeClaim", name, spec=volume.volume_claim)
        for name, volume in missing.items()
        if volume.volume_claim is not None
    )
    faults = [
        (EventReason.CLAIM_MISSING, f"there is no claim {name} for its volume {volume.mount_path}")
        for name, volume in missing.items()
        if volume.volume_claim is None
    ]
    if missing:
        return Creations(new_claims, faults=tuple(faults[:MOST_NAMED]))
    missing_pods = _missing_pods(job, pods, foreign)
    conflicts = [
        (EventReason.POD_NAME_TAKEN, f"pod {name} is there, and not its own")
        for name in sorted(foreign)[:MOST_NAMED]
    ]
    return Creations(pods=tuple(islice(missing_pods, most)), faults=tuple(conflicts))


def _missing_pods(job: VolcanoJob, pods: Sequence[JobPod], foreign: Collection[str]) -> Iterator[PodToCreate]:
    """Return the missing pods: those that the job needs to start, or the others once these exist.

    If a task is partitioned, the needed pods are whole partitions.
    """
    taken, ready = {*(pod.name for pod in pods), *foreign}, _ready_tasks(job, pods)
    plugins = plugins_of(job).plugins
    tasks = [task for task in job.spec.tasks if _may_begin(task, ready)]

    def missing(task: TaskSpec, indices: range) -> Iterator[PodToCreate]:
        for index in indices:
            if (name := pod_name(job.metadata.name, task.name, index)) not in taken:
                yield PodToCreate(name, partial(whole_pod, job, plugins, task, index))

    needed = chain.from_iterable(missing(task, range(min(task.least, task.replicas))) for task in tasks)
    if (first := next(needed, None)) is not None:
        return chain([first], needed)
    return chain.from_iterable(missing(task, range(task.least, task.replicas)) for task in tasks)


def _ready_tasks(job: VolcanoJob, pods: Sequence[JobPod]) -> set[str]:
    """Return the tasks of which as many pods as they need are ready, or have succeeded."""
    counts = {task.name: 0 for task in job.spec.tasks}
    for pod in pods:
        is_ready = pod.phase == "Succeeded" or (pod.phase == "Running" and pod.ready)
        if is_ready and not pod.deleting and pod.task in counts:
            counts[pod.task] += 1
    return {task.name for task in job.spec.tasks if counts[task.name] >= task.least}


def _may_begin(task: TaskSpec, ready: Collection[str]) -> bool:
    needs = task.depends_on
    if needs is None or not needs.name:
        return True
    return (any if needs.iteration == "any" else all)(name in ready for name in needs.name)


_MOST = 100  # pods created in one step, and pods deleted
_MOST_REPORTED = 3  # faults of a job
_LONGEST_PAUSE = 60.0  # seconds from one retry to the next
_WAITS = "Waiting"  # reason of a job that waits again
_SYNC = JobRequest(Action.SYNC)


class JobView(NamedTuple):
    """Input of a plan. `pods`: those that the job owns, by the UID of their owner."""

    job: VolcanoJob  # current job
    pods: Sequence[JobPod]
    may_have_pods: bool  # whether it may have pods: by keys.STARTED, or started by Volcano
    now: float  # seconds since 1970
    request: JobRequest | None = None
    foreign: Collection[str] = ()  # wanted names that other owners' pods have
    claims: Mapping[str, bool] = {}  # existing claims of the job, and whether it owns them
    group_phase: str = ""  # phase of its PodGroup


class Remark(NamedTuple):
    """Event on the job."""

    type: str  # Normal or Warning
    reason: EventReason
    message: str


class Plan(NamedTuple):
    """Plan for a job, in this order: a changed status, then the rest.

    If the status is refused, nothing else is done. Of many pods some are created or deleted, the others once
    the watch shows that.
    """

    status: JobStatus
    claims: tuple[Json, ...] = ()
    creates: tuple[PodToCreate, ...] = ()
    deletes: tuple[JobPod, ...] = ()
    delete_job: bool = False
    due_at: float | None = None  # when to look again, even if nothing changes
    remarks: tuple[Remark, ...] = ()


def plan(view: JobView) -> Plan:
    given = view.job
    if given.metadata.deletion_timestamp is not None:  # its pods are deleted with it
        return Plan(given.status)
    job = with_defaults(given)
    view, start = view._replace(job=job), initial_status(job, view.pods, view.now)
    request, due_at = _request(view, start)
    requested = _requested_status(view, start, request)
    doomed = _pods_to_delete(view, requested, request)
    status = with_counts(requested, job, view.pods, doomed)
    if phase_of(requested.state.phase) is phase_of(start.state.phase):
        status = _implied_status(view, status, kills=bool(doomed))
    ends_at = _expiry(job, status)
    missing = _missing(view, status)
    due_times = [at for at in (due_at, ends_at) if at is not None]
    if status.state.phase != given.status.state.phase:
        due_times.append(view.now)
    return Plan(
        status,
        missing.claims,
        missing.pods,
        tuple(sorted(doomed, key=lambda pod: (-pod.index, pod.task)))[:_MOST],
        delete_job=ends_at is not None and ends_at <= view.now,
        due_at=min(due_times, default=None),
        remarks=_join_remarks(
            (*_remarks(given, request), *(Remark("Warning", *fault) for fault in missing.faults))
        ),
    )


def _request(view: JobView, status: JobStatus) -> tuple[JobRequest, float | None]:
    """Return the current request, and when the next one is due. Requests from outside come first."""
    given, phase = view.request, phase_of(status.state.phase)
    if given is not None and given.at <= view.now:
        return (given if given.is_possible else _SYNC), None
    found = [given] if given is not None else []
    if phase in ACTIVE and view.may_have_pods:
        events = policy_requests(view.job, view.pods, view.group_phase)
        found += [
            _with_pace(each, status) for each in events if TABLE[phase, each.action].kill is not Kill.NONE
        ]
    now = next((each for each in found if each.at <= view.now), _SYNC)
    return now, min((each.at for each in found if each.at > view.now), default=None)


def _with_pace(request: JobRequest, status: JobStatus) -> JobRequest:
    """Return the request at its pace.

    A job may have any number of retries, and each makes its pods again: those beyond the default number
    come at intervals, each twice as long as the one before.
    """
    extra_retries = status.retry_count - RETRIES
    if extra_retries < 0 or not TABLE[phase_of(status.state.phase), request.action].is_retry:
        return request
    pause = min(2.0 ** min(extra_retries, 9), _LONGEST_PAUSE)
    return request._replace(at=max(request.at, instant(status.state.last_transition_time) + pause))


def _requested_status(view: JobView, status: JobStatus, request: JobRequest) -> JobStatus:
    """Return the status after a request; a job that may have no pods any more waits again."""
    phase = phase_of(status.state.phase)
    kill, to, is_retry = TABLE[phase, request.action]
    message = f"{request.target}: {request.message}" if request.target else request.message
    if to is not None or kill is Kill.ALL:
        version = status.version if kill is Kill.TARGET else status.version + 1
        status = replace(status, version=version, retry_count=status.retry_count + is_retry)
        return in_phase(status, to or phase, view.now, request.action, message)
    if phase in ACTIVE and phase is not JobPhase.PENDING and not view.may_have_pods:
        status = replace(status, version=status.version + 1)
        return in_phase(status, JobPhase.PENDING, view.now, _WAITS, "its queue has reclaimed its capacity")
    return status


def _pods_to_delete(view: JobView, status: JobStatus, request: JobRequest) -> list[JobPod]:
    """Return the pods that must go in this phase, as long as they exist."""
    remaining, phase = [pod for pod in view.pods if not pod.deleting], phase_of(status.state.phase)
    unfinished = [pod for pod in remaining if not pod.is_finished]
    if phase not in ACTIVE:
        return unfinished
    if not view.may_have_pods:
        return remaining
    if phase is JobPhase.RESTARTING:
        return _pods_to_restart(view.job, status, request, remaining, unfinished)
    replicas = {task.name: task.replicas for task in view.job.spec.tasks}
    return [
        pod
        for pod in remaining
        if pod.index >= replicas.get(pod.task, pod.index + 1)
        or (pod.version < status.version and not pod.is_finished)
    ]


def _pods_to_restart(
    job: VolcanoJob, status: JobStatus, request: JobRequest, there: list[JobPod], unfinished: list[JobPod]
) -> list[JobPod]:
    """Return the pods of a job that restarts. After the last retry ended ones stay, as evidence."""
    if status.retry_count >= job.spec.max_retry:
        return unfinished
    reason, target = status.state.reason, target_of(status.state.message)
    if reason == Action.RESTART:
        return [pod for pod in there if pod.version < status.version]
    chosen = [pod for pod in unfinished if pod.version < status.version]
    if reason in TARGETED:
        chosen += [pod for pod in there if pod.retry < status.retry_count and aims_at(reason, target, pod)]
    if request.target:
        chosen += [pod for pod in there if aims_at(request.action, request.target, pod)]
    return list({pod.uid: pod for pod in chosen}.values())


def _implied_status(view: JobView, status: JobStatus, kills: bool) -> JobStatus:
    """Return the status in the phase that its pods imply."""
    phase = phase_of(status.state.phase)
    to, state = implied_phase(phase, status, view.job.spec), status.state
    stays = to is phase or (phase is JobPhase.PENDING and not view.may_have_pods)
    if stays or (phase is JobPhase.RESTARTING and to is JobPhase.PENDING and kills):
        return status  # also until the watch shows the end of each pod to be restarted
    if to is JobPhase.FAILED and phase is JobPhase.RESTARTING:
        text = f"{state.message}; it may be restarted {view.job.spec.max_retry} times"
        return in_phase(status, to, view.now, "MaxRetryReached", text.removeprefix("; "))
    if to in ENDED and phase is JobPhase.RUNNING:
        ended = (
            f"{status.succeeded} of its {view.job.spec.members} pods have succeeded, {status.failed} failed"
        )
        return in_phase(status, to, view.now, "PodsEnded", ended)
    if to is JobPhase.RUNNING and state.reason == _WAITS:
        return in_phase(status, to, view.now)
    return in_phase(status, to, view.now, state.reason, state.message)


def _missing(view: JobView, status: JobStatus) -> Creations:
    """Return the missing pods; none during a restart, while old pods are still to go."""
    if not view.may_have_pods or status.state.phase not in (JobPhase.PENDING, JobPhase.RUNNING):
        return Creations()
    if is_too_large(view.job):
        return Creations()
    return missing_creations(replace(view.job, status=status), view.pods, view.claims, view.foreign, _MOST)


def _expiry(job: VolcanoJob, status: JobStatus) -> float | None:
    ended, ttl = instant(status.state.last_transition_time), job.spec.ttl_seconds_after_finished
    return ended + ttl if ttl is not None and ended and status.state.phase in ENDED else None


def _remarks(job: VolcanoJob, request: JobRequest) -> Iterator[Remark]:
    if request.action is not Action.SYNC:
        text = f"{request.action}: {request.message or request.reason}"
        yield Remark("Normal", EventReason.ACTION_TAKEN, text)
    new = () if job.status.state.phase else (*map(str, review_new(job)), *job_warnings(job))  # reported once
    for fault in new[:_MOST_REPORTED]:
        yield Remark("Warning", EventReason.JOB_FAULTY, fault)


def _join_remarks(remarks: Iterable[Remark]) -> tuple[Remark, ...]:
    """Return joined remarks: an Event of a reason has one message, which a second one would replace."""
    messages = defaultdict[tuple[str, EventReason], list[str]](list)
    for kind, reason, message in remarks:
        messages[kind, reason].append(message)
    return tuple(Remark(*key, "; ".join(parts)) for key, parts in messages.items())
