"""The load of Kueue's own scheduler benchmark: its classes of jobs, its queues, and when each job arrives.

5 parents with 6 queues each, every one of which deserves 20 cpus and may borrow 100: 600 cpus in all. One
node has all of them, since Kueue counts quotas only.
"""

import heapq
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.bench.load import Wish
from tests.e2e.harness import jobs, objects
from tests.e2e.harness.resources import JOBS, PRIORITY_CLASSES, QUEUES

PARENTS, CHILDREN = 5, 6
DESERVED, BORROWED = 20, 100  # cpus of each queue
CAPACITY = PARENTS * CHILDREN * DESERVED


@dataclass(frozen=True)
class JobClass:
    """Jobs of one pod each; the numbers are for each queue."""

    name: str
    count: int
    every: float  # seconds from one to the next
    cpu: int
    runs: float  # seconds
    priority: int

    def scaled(self, part: float) -> int:
        return max(1, round(self.count * part))


CLASSES = (
    JobClass("small", 350, 0.1, 1, 0.2, 50),
    JobClass("medium", 100, 0.5, 5, 0.5, 100),
    JobClass("large", 50, 1.2, 20, 1.0, 200),
)
BY_NAME = {each.name: each for each in CLASSES}


def class_of(job: str) -> JobClass:
    """Return the class of a job by its name, `large-3-4-17`."""
    return BY_NAME[job.partition("-")[0]]


def total(part: float) -> int:
    return PARENTS * CHILDREN * sum(each.scaled(part) for each in CLASSES)


def work(part: float) -> float:
    """Return the seconds that the run times alone take, with every cpu in use."""
    return PARENTS * CHILDREN * sum(c.scaled(part) * c.cpu * c.runs for c in CLASSES) / CAPACITY


def setting() -> Iterator[Wish]:
    """Yield the queues of Kueue's benchmark.

    A queue below its deserved share reclaims, and higher priority preempts lower.
    """
    for each in CLASSES:
        yield PRIORITY_CLASSES, priority_class(each)
    for parent in range(PARENTS):
        yield QUEUES, objects.queue(f"p{parent}", capability={"cpu": str(CHILDREN * DESERVED)})
    for parent, child in _places():
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


def priority_class(of: JobClass) -> dict[str, Any]:
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": of.name}}
    return head | {"value": of.priority}


def arrivals(namespace: str, part: float, report_sent: Callable[[str], None]) -> Iterator[Wish]:
    """Yield the jobs, each when it is due; `report_sent` is called with each name at that time."""
    started = time.monotonic()
    for due, name, queue in heapq.merge(*map(sorted, _due(part))):
        time.sleep(max(0.0, started + due - time.monotonic()))
        wish = JOBS, suspended_job(name, namespace, queue, class_of(name))
        report_sent(name)
        yield wish


def _due(part: float) -> Iterator[Iterable[tuple[float, str, str]]]:
    for parent, child in _places():
        for of in CLASSES:
            names = (f"{of.name}-{parent}-{child}-{number}" for number in range(of.scaled(part)))
            yield [((n + 1) * of.every, name, f"p{parent}-{child}") for n, name in enumerate(names)]


def _places() -> Iterator[tuple[int, int]]:
    return ((parent, child) for parent in range(PARENTS) for child in range(CHILDREN))


def suspended_job(name: str, namespace: str, queue: str, of: JobClass) -> dict[str, Any]:
    return jobs.job(
        name,
        namespace=namespace,
        suspend=True,
        queue=queue,
        scheduler="muster",
        cpu=str(of.cpu),
        priorityClassName=of.name,
    )
