"""Fairness over time: node time of queues in virtual time, with jobs that take one node for 40 to 80 s.

In the load `backlog`, every queue has more jobs than the cluster can run. The due part of a queue is its
weight divided by the sum of all weights. The ratio of a queue is its node time in a window of 30 minutes,
divided by its due part. `least` and `most` are the smallest and the largest ratio of all queues and windows.
`parts` are the queues' parts of the node time in the first 30 minutes, in the order of the queues' age, the
oldest queue first.

In the load `arrivals`, jobs arrive at random for an hour, 1.5 times as many as the cluster can run. `wait` is
the mean wait of a queue's jobs in seconds. The first number is the shortest mean of all queues, and the
second the longest.
"""

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from extender.api.objects.base import Meta
from extender.api.objects.queues import Queue, QueueSpec
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.snapshot.snapshot import Limits
from extender.sim.virtual.manifest_workload import make_nodes
from extender.sim.virtual.simulation import Observer, Simulation
from extender.sim.virtual.trace import Row as Job
from extender.sim.virtual.trace import from_rows
from extender.sim.virtual.workload import VirtualWorkload, stamp
from tests.bench.report import Row, show
from tests.bench.sizes import Bench

WINDOW = 1800.0  # seconds
_WINDOW_STEP = 60.0  # seconds between the starts of two windows
_SHORTEST_RUN, _LONGEST_RUN = 40.0, 80.0  # shortest and longest run time of a job, in seconds
# arriving work as a multiple of the capacity, and seconds in which jobs arrive
_LOAD, _ARRIVAL_SECONDS = 1.5, 3600.0


class WeightedCluster(NamedTuple):
    """Cluster with the weights of its queues, the oldest queue first, and with its number of nodes."""

    weights: tuple[int, ...]
    nodes: int

    @property
    def due(self) -> list[float]:
        """Return the due part of each queue: its weight divided by the sum of all weights."""
        return [weight / sum(self.weights) for weight in self.weights]


CLUSTERS = (
    WeightedCluster((1,) * 2, 1),
    WeightedCluster((1,) * 3, 4),
    WeightedCluster((1,) * 8, 4),
    WeightedCluster((1,) * 12, 5),
    WeightedCluster((1, 10), 1),
    WeightedCluster((1, 2, 10), 2),
    WeightedCluster((1, 2, 10), 4),
    WeightedCluster((10, 2, 1), 13),
)


class NodeTime(Observer):
    """Observer that records the run times and the waits of the jobs of each queue.

    `runs` has the begin and the end of each job that has ended.
    """

    def __init__(self, queues: Mapping[GroupKey, str]) -> None:
        self._queues = queues
        self._created_at: dict[GroupKey, float] = {}
        self._bound_at: dict[Uid, float] = {}
        self.waits: defaultdict[str, list[float]] = defaultdict(list)
        self.runs: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)

    def pod_created(self, pod: PodRecord, now: float) -> None:
        self._created_at[pod.group] = now

    def pod_bound(self, pod: PodRecord, now: float) -> None:
        self._bound_at[pod.uid] = now
        self.waits[self._queues[pod.group]].append(now - self._created_at[pod.group])

    def pod_ended(self, pod: PodRecord, now: float) -> None:
        self.runs[self._queues[pod.group]].append((self._bound_at.pop(pod.uid), now))

    def node_seconds_within(self, queue: str, begin: float, end: float) -> float:
        """Return the node seconds that a queue has used between two times."""
        return sum(
            max(min(job_end, end) - max(job_begin, begin), 0.0) for job_begin, job_end in self.runs[queue]
        )


def turns(bench: Bench) -> Iterator[Row]:
    """Yield a row for each cluster with a backlog, and rows for two clusters with arrivals."""
    for cluster in CLUSTERS:
        show(f"turns: {len(cluster.weights)} queues on {cluster.nodes} nodes")
        fields: Row = {"queues": " ".join(map(str, cluster.weights)), "nodes": cluster.nodes}
        yield {"load": "backlog", **fields, **backlog_row(cluster, 0)}
    for cluster in (CLUSTERS[2], CLUSTERS[6]):
        fields = {"queues": " ".join(map(str, cluster.weights)), "nodes": cluster.nodes}
        yield {"load": "arrivals", **fields, **arrivals_row(cluster, 0)}


def backlog_row(cluster: WeightedCluster, seed: int, seconds: float = 2 * WINDOW) -> Row:
    """Measure all windows of 30 minutes while all queues have waiting jobs."""
    rng, jobs = random.Random(seed), list[Job]()
    for queue, due in enumerate(cluster.due):
        remaining_seconds = 1.3 * due * cluster.nodes * seconds + 4 * _LONGEST_RUN
        while remaining_seconds > 0.0:
            jobs.append(_job(rng, queue, len(jobs)))
            remaining_seconds -= jobs[-1].seconds or 0.0
    measurements = _run(cluster, jobs)
    names, node_seconds = _names(cluster), cluster.nodes * WINDOW
    window_begins = [number * _WINDOW_STEP for number in range(int((seconds - WINDOW) / _WINDOW_STEP) + 1)]
    ratios_to_due = [
        measurements.node_seconds_within(name, window_begin, window_begin + WINDOW) / node_seconds / due
        for name, due in zip(names, cluster.due, strict=True)
        for window_begin in window_begins
    ]
    first_parts = [measurements.node_seconds_within(name, 0.0, WINDOW) / node_seconds for name in names]
    return {
        "least": min(ratios_to_due),
        "most": max(ratios_to_due),
        "parts": " ".join(f"{part:.3f}" for part in first_parts),
    }


def arrivals_row(cluster: WeightedCluster, seed: int) -> Row:
    """Measure the waits of jobs that arrive at random."""
    rng, mean_run_time = random.Random(seed), (_SHORTEST_RUN + _LONGEST_RUN) / 2
    count = int(_LOAD * cluster.nodes * _ARRIVAL_SECONDS / mean_run_time)
    queues = rng.choices(range(len(cluster.weights)), cluster.weights, k=count)
    arrivals = sorted(rng.uniform(0.0, _ARRIVAL_SECONDS) for _ in queues)
    queue_and_arrival = zip(queues, arrivals, strict=True)
    jobs = [
        _job(rng, queue, n)._replace(arrival=arrival_time)
        for n, (queue, arrival_time) in enumerate(queue_and_arrival)
    ]
    measurements = _run(cluster, jobs)
    waits = [fmean(measurements.waits[name]) for name in _names(cluster)]
    return {"wait": f"{min(waits):.0f}/{max(waits):.0f}"}


def _job(rng: random.Random, queue: int, number: int) -> Job:
    seconds = round(rng.uniform(_SHORTEST_RUN, _LONGEST_RUN), 1)
    return Job(0.0, f"g{number}", 1, 1, seconds, {"cpu": "4"}, f"q{queue}")


def _names(cluster: WeightedCluster) -> list[str]:
    return [f"q{number}" for number in range(len(cluster.weights))]


def _run(cluster: WeightedCluster, jobs: Sequence[Job]) -> NodeTime:
    """Simulate the jobs on the cluster, and return the measurements."""
    queues = tuple(
        Queue(Meta(name, uid=name, creation_timestamp=stamp(age - 1000.0)), QueueSpec(weight))
        for age, (name, weight) in enumerate(zip(_names(cluster), cluster.weights, strict=True))
    )
    workload = make_nodes(cluster.nodes, "4", "16Gi") + VirtualWorkload(queues=queues)
    workload = workload + from_rows(list(jobs), queues, {})
    measurements = NodeTime({GroupKey(f"default/{job.group}"): job.queue for job in jobs})
    Simulation(workload, Limits(), frozenset({"muster"}), measurements).run()
    return measurements
