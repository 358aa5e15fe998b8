"""What the admission of Volcano Jobs fills in, for jobs that came past it, and what it would have refused.

A job that came past it does as much as it can: nothing in it stops others, or this controller.
"""

from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

from msgspec.structs import replace

from extender.api.durations import as_seconds
from extender.api.keys import DEFAULT_QUEUE
from extender.api.objects.volcano import TaskSpec, VolcanoJob, VolcanoJobSpec
from extender.volcano.states import Action

_RETRIES = 3


def with_defaults(job: VolcanoJob) -> VolcanoJob:
    """Tasks without a name get one; of several with the same name the first counts."""
    tasks: dict[str, TaskSpec] = {}
    for number, task in enumerate(job.spec.tasks):
        name = task.name or f"default{number}"
        tasks.setdefault(name, _whole(task, name))
    needed = job.spec.min_available or sum(task.min_available or 0 for task in tasks.values())
    spec = replace(
        job.spec,
        tasks=list(tasks.values()),
        min_available=needed,
        queue=job.spec.queue or DEFAULT_QUEUE,
        max_retry=job.spec.max_retry or _RETRIES,
    )
    return replace(job, spec=spec)


def _whole(task: TaskSpec, name: str) -> TaskSpec:
    replicas, least, policy = max(task.replicas, 0), task.min_available, task.partition_policy
    if least is None:
        in_parts = policy.min_partitions * policy.partition_size if policy is not None else 0
        least = in_parts or replicas
    retries = task.max_retry or _RETRIES
    return replace(task, name=name, replicas=replicas, min_available=least, max_retry=retries)


def faults(job: VolcanoJob) -> Iterator[str]:
    """Sentences for its owner: why it cannot do what it says."""
    tasks = [task.name or f"default{number}" for number, task in enumerate(job.spec.tasks)]
    for name, count in Counter(tasks).items():
        if count > 1:
            yield f"{count} tasks have the name {name:.63}; the first of them counts"
    spec = with_defaults(job).spec
    if (spec.min_available or 0) > spec.members:
        yield f"minAvailable is {spec.min_available}, but all its tasks have {spec.members} pods"
    yield from _faults_of_dependencies(spec)
    tasks_and_job = [(f"task {task.name:.63}", task.policies) for task in spec.tasks]
    for of, policies in (*tasks_and_job, ("the job", spec.policies)):
        for policy in policies or ():
            if policy.action not in tuple(Action):
                yield f"a policy of {of} asks for {policy.action!r:.40}, which is not known"
            if policy.timeout and not _is_duration(policy.timeout):
                yield f"a policy of {of} has timeout {policy.timeout!r:.40}, which is none, and is left out"


def _faults_of_dependencies(spec: VolcanoJobSpec) -> Iterator[str]:
    needed = {task.name: (task.depends_on.name if task.depends_on else None) or [] for task in spec.tasks}
    for task, names in needed.items():
        for name in names:
            if name not in needed:
                yield f"task {task:.63} depends on {name:.63}, which is no task of the job"
    try:
        TopologicalSorter(needed).prepare()
    except CycleError as circle:
        yield f"tasks wait for each other: {' for '.join(circle.args[1])[:200]}"


def _is_duration(text: str) -> bool:
    try:
        return as_seconds(text) >= 0.0
    except ValueError:
        return False
