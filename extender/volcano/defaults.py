"""What the admission of Volcano Jobs fills in, for jobs that came past it.

A job that came past it does as much as it can: nothing in it stops others, or this controller.
"""

from msgspec.structs import replace

from extender.api.keys import DEFAULT_QUEUE
from extender.api.objects.volcano import TaskSpec, VolcanoJob

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
