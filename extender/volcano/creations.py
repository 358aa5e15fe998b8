"""Creations for a Volcano Job: the claims of its volumes, and then pods, task by task."""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import NamedTuple

from extender.api.objects.volcano import Json, TaskSpec, VolcanoJob
from extender.domain.model.reasons import EventReason
from extender.volcano.plugins import plugins_of, whole_pod
from extender.volcano.pods import JobPod, claim_names, owned, pod_name

MOST_NAMED = 3


class PodToCreate(NamedTuple):
    """Pod to create. `build` makes it, with what plugins add, only when it is about to be sent.

    The pod of a large job may be a megabyte.
    """

    name: str
    build: Callable[[], Json]


class Creations(NamedTuple):
    claims: tuple[Json, ...] = ()
    pods: tuple[PodToCreate, ...] = ()
    faults: tuple[tuple[EventReason, str], ...] = ()  # of what it lacks all the same


def lacking(
    job: VolcanoJob, pods: Sequence[JobPod], claims: Collection[str], foreign: Collection[str], most: int
) -> Creations:
    """At `most` so many pods, and none before all `claims` are there. Names of `foreign` pods stay free."""
    volumes = dict(zip(claim_names(job), job.spec.volumes or (), strict=True))
    missing = {name: volume for name, volume in volumes.items() if name not in claims}
    makes = tuple(
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
        return Creations(makes, faults=tuple(faults[:MOST_NAMED]))
    lacks = _missing_pods(job, pods, foreign)
    taken = [
        (EventReason.POD_NAME_TAKEN, f"pod {name} is there, and not its own")
        for name in sorted(foreign)[:MOST_NAMED]
    ]
    return Creations(pods=tuple(islice(lacks, most)), faults=tuple(taken))


def _missing_pods(job: VolcanoJob, pods: Sequence[JobPod], foreign: Collection[str]) -> Iterator[PodToCreate]:
    """Yield the missing pods, first those that the job needs, so that it starts with them.

    These are whole parts of its tasks, where these are in parts. The others come once these exist.
    """
    not_free, ready = {*(pod.name for pod in pods), *foreign}, _ready_tasks(job, pods)
    plugins = plugins_of(job).plugins
    tasks = [task for task in job.spec.tasks if _may_begin(task, ready)]

    def missing(task: TaskSpec, indices: range) -> Iterator[PodToCreate]:
        for index in indices:
            if (name := pod_name(job.metadata.name, task.name, index)) not in not_free:
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
