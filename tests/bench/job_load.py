"""Load of Kueue's own scheduler benchmark: classes of jobs, queues, and arrivals of jobs.

5 parents have 6 queues each. Each queue deserves 20 CPUs and may borrow 100 CPUs, so all queues together
deserve 600 CPUs. One node has all these CPUs, since Kueue's benchmark counts only quotas.
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
DESERVED, BORROWED = 20, 100  # CPUs that each queue deserves, and CPUs that it may borrow
CAPACITY = PARENTS * CHILDREN * DESERVED


@dataclass(frozen=True)
class JobClass:
    """Class of jobs with one pod each. `count` is the number of jobs for each queue."""

    name: str
    count: int
    interval: float  # seconds between two arrivals in a queue
    cpu: int
    run_seconds: float
    priority: int

    def scaled(self, scale: float) -> int:
        """Return the number of jobs for each queue in a smaller benchmark."""
        return max(1, round(self.count * scale))


CLASSES = (
    JobClass("small", 350, 0.1, 1, 0.2, 50),
    JobClass("medium", 100, 0.5, 5, 0.5, 100),
    JobClass("large", 50, 1.2, 20, 1.0, 200),
)
BY_NAME = {job_class.name: job_class for job_class in CLASSES}


def class_of(job: str) -> JobClass:
    """Return the class of a job. The job's name, such as `large-3-4-17`, begins with the class."""
    return BY_NAME[job.partition("-")[0]]


def total(scale: float) -> int:
    """Return the number of jobs of all queues."""
    return PARENTS * CHILDREN * sum(job_class.scaled(scale) for job_class in CLASSES)


def work(scale: float) -> float:
    """Return the seconds that all jobs need at least, if every CPU is always in use."""
    return (
        PARENTS
        * CHILDREN
        * sum(job_class.scaled(scale) * job_class.cpu * job_class.run_seconds for job_class in CLASSES)
        / CAPACITY
    )


def queues_and_classes() -> Iterator[NewObject]:
    """Yield the queues and priority classes of Kueue's benchmark.

    Queues below their deserved share reclaim capacity, and jobs preempt jobs of lower priority.
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
    fields = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": job_class.name},
    }
    return fields | {"value": job_class.priority}


def arrivals(namespace: str, scale: float, report_sent: Callable[[str], None]) -> Iterator[NewObject]:
    """Yield each job at its arrival time, and call `report_sent` with the name of the job."""
    started_at = time.monotonic()
    for arrival_time, name, queue in heapq.merge(*map(sorted, _arrival_times(scale))):
        time.sleep(max(0.0, started_at + arrival_time - time.monotonic()))
        new_object = JOBS, suspended_job(name, namespace, queue, class_of(name))
        report_sent(name)
        yield new_object


def _arrival_times(scale: float) -> Iterator[Iterable[tuple[float, str, str]]]:
    """Yield the jobs of each queue and class, with arrival time, name and queue."""
    for parent, child in _queue_numbers():
        for job_class in CLASSES:
            names = (
                f"{job_class.name}-{parent}-{child}-{number}" for number in range(job_class.scaled(scale))
            )
            yield [((n + 1) * job_class.interval, name, f"p{parent}-{child}") for n, name in enumerate(names)]


def _queue_numbers() -> Iterator[tuple[int, int]]:
    """Return the numbers of parent and child of each queue."""
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
