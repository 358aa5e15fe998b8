"""Fairness over time: node time of queues in virtual time, with one-node jobs of 40 to 80 s.

In `backlog` every queue has more jobs than the cluster can run. The due part of a queue is its weight divided
by the sum of the weights. `least` and `most`: the smallest and the largest ratio of a queue's node time to
its due part, in any window of 30 minutes. In `arrivals` jobs come at random, 1.5 times as many as the cluster
can run, for an hour; `wait` is the mean wait of the jobs of a queue in seconds: the shortest and the longest.
`parts` are the parts of the node time in the first 30 minutes, the queues by age, the oldest first.
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
from extender.sim.virtual.manifest_workload import made_nodes
from extender.sim.virtual.simulation import Observer, Simulation
from extender.sim.virtual.trace import Row as Job
from extender.sim.virtual.trace import from_rows
from extender.sim.virtual.workload import VirtualWorkload, stamp
from tests.bench.report import Row, show
from tests.bench.sizes import Bench

WINDOW = 1800.0  # seconds
_STEP = 60.0  # seconds between the starts of two windows
_SHORTEST, _LONGEST = 40.0, 80.0  # seconds that a job runs
_LOAD, _ARRIVING = 1.5, 3600.0  # work as a multiple of the capacity; seconds of arrivals


class WeightedCluster(NamedTuple):
    """Cluster: the weights of its queues, the oldest first, and its number of nodes."""

    weights: tuple[int, ...]
    nodes: int

    @property
    def due(self) -> list[float]:
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
    """Run times of the jobs of each queue, and their waiting times."""

    def __init__(self, queues: Mapping[GroupKey, str]) -> None:
        self._queues = queues
        self._created_at: dict[GroupKey, float] = {}
        self._bound_at: dict[Uid, float] = {}
        self.waits: defaultdict[str, list[float]] = defaultdict(list)
        self.ran: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)

    def pod_created(self, pod: PodRecord, now: float) -> None:
        self._created_at[pod.group] = now

    def pod_bound(self, pod: PodRecord, now: float) -> None:
        self._bound_at[pod.uid] = now
        self.waits[self._queues[pod.group]].append(now - self._created_at[pod.group])

    def pod_ended(self, pod: PodRecord, now: float) -> None:
        self.ran[self._queues[pod.group]].append((self._bound_at.pop(pod.uid), now))

    def node_seconds_within(self, queue: str, begin: float, end: float) -> float:
        """Return the node seconds of a queue between two times."""
        return sum(max(min(until, end) - max(since, begin), 0.0) for since, until in self.ran[queue])


def turns(bench: Bench) -> Iterator[Row]:
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
        remaining = 1.3 * due * cluster.nodes * seconds + 4 * _LONGEST
        while remaining > 0.0:
            jobs.append(_job(rng, queue, len(jobs)))
            remaining -= jobs[-1].seconds or 0.0
    measurements = _run(cluster, jobs)
    names, node_seconds = _names(cluster), cluster.nodes * WINDOW
    begins = [number * _STEP for number in range(int((seconds - WINDOW) / _STEP) + 1)]
    parts = [
        measurements.node_seconds_within(name, begin, begin + WINDOW) / node_seconds / due
        for name, due in zip(names, cluster.due, strict=True)
        for begin in begins
    ]
    first = [measurements.node_seconds_within(name, 0.0, WINDOW) / node_seconds for name in names]
    return {"least": min(parts), "most": max(parts), "parts": " ".join(f"{part:.3f}" for part in first)}


def arrivals_row(cluster: WeightedCluster, seed: int) -> Row:
    rng, mean = random.Random(seed), (_SHORTEST + _LONGEST) / 2
    count = int(_LOAD * cluster.nodes * _ARRIVING / mean)
    queues = rng.choices(range(len(cluster.weights)), cluster.weights, k=count)
    arrivals = sorted(rng.uniform(0.0, _ARRIVING) for _ in queues)
    queue_and_arrival = zip(queues, arrivals, strict=True)
    jobs = [_job(rng, queue, n)._replace(arrival=at) for n, (queue, at) in enumerate(queue_and_arrival)]
    measurements = _run(cluster, jobs)
    waits = [fmean(measurements.waits[name]) for name in _names(cluster)]
    return {"wait": f"{min(waits):.0f}/{max(waits):.0f}"}


def _job(rng: random.Random, queue: int, number: int) -> Job:
    seconds = round(rng.uniform(_SHORTEST, _LONGEST), 1)
    return Job(0.0, f"g{number}", 1, 1, seconds, {"cpu": "4"}, f"q{queue}")


def _names(cluster: WeightedCluster) -> list[str]:
    return [f"q{number}" for number in range(len(cluster.weights))]


def _run(cluster: WeightedCluster, jobs: Sequence[Job]) -> NodeTime:
    queues = tuple(
        Queue(Meta(name, uid=name, creation_timestamp=stamp(age - 1000.0)), QueueSpec(weight))
        for age, (name, weight) in enumerate(zip(_names(cluster), cluster.weights, strict=True))
    )
    workload = made_nodes(cluster.nodes, "4", "16Gi") + VirtualWorkload(queues=queues)
    workload = workload + from_rows(list(jobs), queues, {})
    measurements = NodeTime({GroupKey(f"default/{job.group}"): job.queue for job in jobs})
    Simulation(workload, Limits(), frozenset({"muster"}), measurements).run()
    return measurements
