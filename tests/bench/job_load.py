"""Load of Kueue's own scheduler benchmark: classes of jobs, queues, and arrivals of jobs.

5 parents have 6 queues each. Each queue deserves 20 cpus and may borrow 100, so the queues deserve 600 cpus.
One node has all of them, since Kueue counts quotas only.
"""

import heapq
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.bench.load import NewObject
from tests.e2e.harness import jobs, objects
from tests.e2e.harness.resources import JOBS, PRIORITY_CLASSES, QUEUES

PARENTS, CHILDREN = 5, 6
DESERVED, BORROWED = 20, 100  # cpus of each queue
CAPACITY = PARENTS * CHILDREN * DESERVED


@dataclass(frozen=True)
class JobClass:
    """Class of jobs with one pod each. `count`: number of jobs for each queue."""

    name: str
    count: int
    interval: float  # seconds between two arrivals in a queue
    cpu: int
    run_seconds: float
    priority: int

    def scaled(self, scale: float) -> int:
        return max(1, round(self.count * scale))


CLASSES = (
    JobClass("small", 350, 0.1, 1, 0.2, 50),
    JobClass("medium", 100, 0.5, 5, 0.5, 100),
    JobClass("large", 50, 1.2, 20, 1.0, 200),
)
BY_NAME = {job_class.name: job_class for job_class in CLASSES}


def class_of(job: str) -> JobClass:
    """Return the class of a job from its name, such as `large-3-4-17`."""
    return BY_NAME[job.partition("-")[0]]


def total(scale: float) -> int:
    return PARENTS * CHILDREN * sum(job_class.scaled(scale) for job_class in CLASSES)


def work(scale: float) -> float:
    """Return the least seconds that all jobs take, if every cpu is always in use."""
    return PARENTS * CHILDREN * sum(c.scaled(scale) * c.cpu * c.run_seconds for c in CLASSES) / CAPACITY


def queues_and_classes() -> Iterator[NewObject]:
    """Yield the queues and priority classes of Kueue's benchmark.

    Queues below their deserved share reclaim capacity, and jobs preempt those of lower priority.
    """
    for job_class in CLASSES:
        yield PRIORITY_CLASSES, priority_class(job_class)
    for parent in range(PARENTS):
        yield QUEUES, objects.queue(f"p{parent}", capability={"cpu": str(CHILDREN * DESERVED)})
    for parent, child in _queue_numbers():
        yield (
            QUEUES,
            objects.queue(
                f"p{parent}-{child}",
                parent=f"p{parent}",
                deserved={"cpu": str(DESERVED)},
                borrowingLimit={"cpu": str(BORROWED)},
                reclaimable=True,
                preemption={"withinQueue": "LowerPriority"},
            ),
        )


def priority_class(job_class: JobClass) -> dict[str, Any]:
    head = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": job_class.name},
    }
    return head | {"value": job_class.priority}


def arrivals(namespace: str, scale: float, report_sent: Callable[[str], None]) -> Iterator[NewObject]:
    """Yield each job at its time of arrival, and call `report_sent` with its name."""
    started = time.monotonic()
    for due, name, queue in heapq.merge(*map(sorted, _arrival_times(scale))):
        time.sleep(max(0.0, started + due - time.monotonic()))
        new_object = JOBS, suspended_job(name, namespace, queue, class_of(name))
        report_sent(name)
        yield new_object


def _arrival_times(scale: float) -> Iterator[Iterable[tuple[float, str, str]]]:
    for parent, child in _queue_numbers():
        for job_class in CLASSES:
            names = (
                f"{job_class.name}-{parent}-{child}-{number}" for number in range(job_class.scaled(scale))
            )
            yield [((n + 1) * job_class.interval, name, f"p{parent}-{child}") for n, name in enumerate(names)]


def _queue_numbers() -> Iterator[tuple[int, int]]:
    return ((parent, child) for parent in range(PARENTS) for child in range(CHILDREN))


def suspended_job(name: str, namespace: str, queue: str, job_class: JobClass) -> dict[str, Any]:
    return jobs.job(
        name,
        namespace=namespace,
        suspend=True,
        queue=queue,
        scheduler="muster",
        cpu=str(job_class.cpu),
        priorityClassName=job_class.name,
    )
