"""Traces for the comparison of reservations. Each trace has large gangs that small groups may overtake.

| trace    | nodes        | groups                                                     | queues            |
|----------|--------------|------------------------------------------------------------|-------------------|
| `heavy`  | 4 of 32 cpus | run times by Pareto's law up to 4 h, 1 to 32 members       | 12, Zipf, 2 levels |
| `gpu`    | 12 of 8 GPUs | log-normal run times up to 6 h, 1 GPU to 8 whole nodes     | 8, weights 1 to 3 |
| `bursts` | 6 of 16 cpus | Pareto's law up to 90 min, a third of the gangs is elastic | 12, 2 levels      |

In the first two traces, 1.25 times as much work arrives as the cluster can do. The seed determines a trace.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from extender.api.keys import GPU
from extender.api.objects.base import Meta
from extender.api.objects.queues import Queue, QueueSpec
from extender.sim.virtual.manifest_workload import make_nodes
from extender.sim.virtual.trace import Row, from_rows
from extender.sim.virtual.workload import VirtualWorkload

_LOAD = 1.25
_HEAVY_SIZES = (1, 1, 1, 2, 2, 4, 4, 8, 16, 32)
_GPU_SIZES = {  # weights of groups, keyed by the GPUs of a member and the number of members
    (1, 1): 40,
    (2, 1): 12,
    (4, 1): 10,
    (8, 1): 12,
    (8, 2): 8,
    (8, 4): 4,
    (1, 4): 10,
    (8, 8): 1,
}


class ReservationTrace(NamedTuple):
    """Trace with its groups, and with the name of the scarce resource."""

    workload: VirtualWorkload
    rows: Sequence[Row]
    scarce: str  # name of the scarce resource


def heavy_trace(seed: int) -> ReservationTrace:
    """Return the trace `heavy` for a seed."""
    rng = random.Random(f"heavy{seed}")
    queues = [_queue(f"p{p}", p + 1) for p in range(3)]
    leaves = [f"p{p}-{child}" for p in range(3) for child in range(4)]
    queues += [_queue(leaf, 1 + number % 2, leaf[:2]) for number, leaf in enumerate(leaves)]
    queue_weights = [1.0 / (rank + 1) for rank in range(len(leaves))]
    rng.shuffle(queue_weights)
    jobs = [(rng.choice(_HEAVY_SIZES), _pareto(rng, 60.0, 1.1, 4 * 3600.0)) for _ in range(260)]
    arrival_seconds = sum(size * 2 * seconds for size, seconds in jobs) / 128 / _LOAD
    arrivals = sorted(rng.random() * arrival_seconds for _ in jobs)
    rows: list[Row] = []
    for number, ((size, seconds), arrival) in enumerate(zip(jobs, arrivals, strict=True)):
        leaf = rng.choices(leaves, queue_weights)[0]
        declared = seconds * rng.choice([1, 1.5, 3]) if rng.random() < 0.6 else None
        rows.append(_group_row(number, arrival, size, size, seconds, {"cpu": "2"}, leaf, declared=declared))
    return _trace(make_nodes(4, "32", "128Gi"), queues, rows, "cpu")


def gpu_trace(seed: int) -> ReservationTrace:
    """Return the trace `gpu` for a seed."""
    rng = random.Random(f"gpu{seed}")
    queues = [_queue(f"t{team}", 1 + team % 3) for team in range(8)]
    jobs: list[tuple[int, int, float]] = []
    for _ in range(220):
        gpus, size = rng.choices(list(_GPU_SIZES), list(_GPU_SIZES.values()))[0]
        jobs.append((gpus, size, min(rng.lognormvariate(math.log(400.0), 1.7), 6 * 3600.0)))
    arrival_seconds = sum(gpus * size * seconds for gpus, size, seconds in jobs) / 96 / _LOAD
    arrivals = sorted(rng.random() * arrival_seconds for _ in jobs)
    rows: list[Row] = []
    for number, ((gpus, size, seconds), arrival) in enumerate(zip(jobs, arrivals, strict=True)):
        team, priority = f"t{min(int(rng.expovariate(0.4)), 7)}", rng.choice([0, 0, 0, 10])
        requests = {"cpu": str(4 * gpus), GPU: str(gpus)}
        declared = seconds * 2 if rng.random() < 0.5 else None
        rows.append(_group_row(number, arrival, size, size, seconds, requests, team, priority, declared))
    return _trace(make_nodes(12, "64", "512Gi", 8), queues, rows, GPU)


def burst_trace(seed: int) -> ReservationTrace:
    """Return the trace `bursts` for a seed."""
    rng = random.Random(f"bursts{seed}")
    queues = [_queue(f"p{p}") for p in range(2)]
    queues += [_queue(f"p{p}-{child}", 1, f"p{p}") for p in range(2) for child in range(6)]
    return _trace(make_nodes(6, "16", "64Gi"), queues, list(_burst_rows(rng)), "cpu")


def _burst_rows(rng: random.Random) -> Iterator[Row]:
    """Yield the groups of twelve teams that each create three bursts of groups."""
    number = 0
    for team in range(12):
        for _ in range(3):
            arrival = rng.random() * 9000.0
            for _ in range(rng.randrange(4, 12)):
                size = rng.choice([1, 2, 4, 8, 16])
                minimum = max(size // rng.choice([1, 1, 2]), 1)
                seconds, cpu = _pareto(rng, 90.0, 1.4, 5400.0), rng.choice(["1", "2", "3"])
                yield _group_row(
                    number, arrival, size, minimum, seconds, {"cpu": cpu}, f"p{team % 2}-{team // 2}"
                )
                number += 1


def _pareto(rng: random.Random, minimum: float, alpha: float, maximum: float) -> float:
    """Return a random value of a Pareto distribution that is cut off at the maximum."""
    return float(min(minimum * rng.random() ** (-1 / alpha), maximum))


def _queue(name: str, weight: int = 1, parent: str = "") -> Queue:
    return Queue(Meta(name, uid=name), QueueSpec(weight, parent=parent))


def _group_row(
    number: int,
    arrival: float,
    members: int,
    minimum: int,
    seconds: float,
    requests: dict[str, str],
    queue: str,
    priority: int = 0,
    declared: float | None = None,
) -> Row:
    """Return a group as a row of a trace. `declared` is the declared run time in seconds, if any."""
    rounded_declared = None if declared is None else round(declared, 1)
    return Row(
        round(arrival, 1),
        f"g{number}",
        members,
        minimum,
        round(seconds, 1),
        requests,
        queue,
        priority=priority,
        declared=rounded_declared,
    )


def _trace(nodes: VirtualWorkload, queues: Sequence[Queue], rows: list[Row], scarce: str) -> ReservationTrace:
    rows.sort(key=lambda row: row.arrival)
    workload = nodes + VirtualWorkload(queues=tuple(queues)) + from_rows(rows, tuple(queues), {})
    return ReservationTrace(workload, rows, scarce)


RESERVATION_TRACES: dict[str, Callable[[int], ReservationTrace]] = {
    "heavy": heavy_trace,
    "gpu": gpu_trace,
    "bursts": burst_trace,
}
