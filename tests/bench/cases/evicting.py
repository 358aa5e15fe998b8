"""Benefit and cost of evictions: decide() in virtual time on three traces, under several policies.

The policies are:

- `none`: never evicts
- `traverse`: neither evicts pods nor reserves nodes
- `shipped`: the default settings of queues
- `prompt`: evicts as soon as the benefit is larger than the lost work
- `Kueue`: reclaimWithinCohort Any, withinClusterQueue Never
- `KAI`: reclaim, and preemption by priority inside a queue

Muster's settings express the policies of Kueue and KAI: both evict at once and reserve nothing. These runs
still have Muster's gangs, shares and order, so only the time of evictions is compared.

Each row is the mean over the seeds:

- `wait`: seconds until all members of a group ran for the first time, as mean/p95. Small groups have up to 2
  CPUs, large groups more than 8 CPUs. In the trace `training`, GPUs count instead.
- `delay s`: time of jobs in addition to their run time, including lost work
- `lost cpu h`, `lost GPU h`: work that evictions lose
- `below due h`: amount by which queues were below their requests and their deserved shares, in CPU hours, or
  in GPU hours in `training`
- `most`: largest number of evictions of a single group
- `utilisation`: usage of the scarce resource until the last arrival, without the first fifth of the time
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from statistics import fmean
from typing import NamedTuple

from msgspec.structs import replace

from extender.api.keys import GPU
from extender.api.objects.queues import QueuePreemption
from extender.domain.model.records import PodRecord
from extender.domain.snapshot.snapshot import Limits
from extender.sim.virtual.measurements import Measurements
from extender.sim.virtual.simulation import Simulation
from extender.sim.virtual.workload import key_of_group
from tests.bench.report import Row, show
from tests.bench.sizes import Bench
from tests.bench.traces import TRACES, Trace

_HOUR = 3600.0
_WARM_UP = 0.2  # first part of the arrivals, in which the cluster fills up
_MAX_UNITS_SMALL, _MAX_UNITS_MEDIUM = 2, 8  # largest number of units of small groups, and of medium groups


class Policy(NamedTuple):
    """Settings of all queues. If `preemption` is None, queues have the default preemption."""

    limits: Limits = Limits()
    preemption: QueuePreemption | None = None
    strategy: str = ""


_AT_ONCE = QueuePreemption(after="0s", at_most="0s", within_queue="Never")
_AT_ONCE_ALSO_WITHIN_QUEUE = replace(_AT_ONCE, within_queue="LowerPriority")
POLICIES = {
    "none": Policy(Limits(max_reclaims=0)),
    "traverse": Policy(Limits(max_reclaims=0, max_reserved_part=0), strategy="traverse"),
    "shipped": Policy(),
    "prompt": Policy(preemption=QueuePreemption(after="0s")),
    "Kueue": Policy(Limits(max_reserved_part=0), _AT_ONCE),
    "KAI": Policy(Limits(max_reserved_part=0), _AT_ONCE_ALSO_WITHIN_QUEUE),
}


class Cost(Measurements):
    """Measurements that include the work lost by evictions, and the shortfall of queues."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace.workload)
        self.scarce = GPU if GPU in self.capacity else "cpu"
        self.lost = {"cpu": 0.0, GPU: 0.0}
        self.below_due = self.used = 0.0
        self.window_start, self.window_end = _WARM_UP * trace.last_arrival, trace.last_arrival

    def pod_reclaimed(self, pod: PodRecord, now: float) -> None:
        """Add the work that the eviction of a pod loses.

        The lost work is the requests of the pod, multiplied by the seconds for which the pod ran.
        """
        for name in self.lost:
            self.lost[name] += (now - self._run_starts[pod.uid]) * pod.shape.requests.get(name, 0)
        super().pod_reclaimed(pod, now)

    def pass_time(self, now: float) -> None:
        """Add up usage and shortfall of the queues until now.

        `below_due` is summed over the whole run, and `used` only from `window_start` to `window_end`.
        """
        self._extend(now)  # Earlier periods without an event count, too.
        for until, seconds, decisions in self._quiet_periods:
            parents = {queue.parent for queue in decisions.queues.values()}
            measured_seconds = min(until, self.window_end) - max(until - seconds, self.window_start)
            leaves = [queue for name, queue in decisions.queues.items() if name not in parents]
            for queue in leaves:
                used = queue.allocated.get(self.scarce, 0)
                deserved_amount = min(
                    queue.deserved.get(self.scarce, 0.0), queue.requested.get(self.scarce, 0)
                )
                self.below_due += max(deserved_amount - used, 0.0) * seconds
                self.used += used * max(measured_seconds, 0.0)
        super().pass_time(now)


class _Run(NamedTuple):
    """Input of one process."""

    trace: str
    policy: str
    jobs: int
    seed: int


def evict_case(bench: Bench) -> Iterator[Row]:
    """Yield a row for each trace and policy. The seeds are simulated in parallel."""
    jobs, seeds = bench.sizes.jobs, bench.sizes.seeds
    with ProcessPoolExecutor(os.cpu_count()) as processes:
        for trace in TRACES:
            for policy in POLICIES:
                show(f"evict: {jobs} jobs of {trace}, {policy}, seeds 0 to {seeds - 1}")
                runs = [_Run(trace, policy, jobs, seed) for seed in range(seeds)]
                rows = list(processes.map(_simulated_row, runs))
                yield {"trace": trace, "policy": policy, **_mean(rows)}


def _simulated_row(run: _Run) -> dict[str, float]:
    """Simulate a trace under a policy, and return the measured values."""
    trace, policy = TRACES[run.trace](run.jobs, run.seed), POLICIES[run.policy]
    queues = (
        replace(
            queue, spec=replace(queue.spec, dequeue_strategy=policy.strategy, preemption=policy.preemption)
        )
        for queue in trace.workload.queues
    )
    trace = trace._replace(workload=replace(trace.workload, queues=tuple(queues)))
    measurements = Cost(trace)
    simulation = Simulation(trace.workload, policy.limits, frozenset({"muster"}), measurements)
    end = simulation.run()
    measurements.close(end)
    return measures(trace, measurements, end)


def measures(trace: Trace, measurements: Cost, end: float) -> dict[str, float]:
    """Return the measured values of a run that ended at the time `end`."""
    unit = 1000.0 if measurements.scarce == "cpu" else 1.0
    timelines = [timeline for timeline in measurements.timelines.values() if timeline.name in trace.units]
    waits_by_size: dict[str, list[float]] = {"small": [], "medium": [], "large": []}
    for timeline in timelines:
        units = trace.units[timeline.name]
        size = "large"
        if units <= _MAX_UNITS_MEDIUM:
            size = "small" if units <= _MAX_UNITS_SMALL else "medium"
        waits_by_size[size].append(end if timeline.wait is None else timeline.wait)
    run_times = {
        measurements.name_of(key_of_group(member.pod)): member.run_seconds or 0.0
        for member in trace.workload.members
    }
    delays = [
        (timeline.ended_at or end) - (timeline.complete_at or 0.0) - run_times[timeline.name]
        for timeline in timelines
    ]
    waits = [wait for waits_of_size in waits_by_size.values() for wait in waits_of_size]
    capacity = measurements.capacity[measurements.scarce] * (
        measurements.window_end - measurements.window_start
    )
    evictions = [len(timeline.evictions) for timeline in measurements.timelines.values()]
    row = {
        "utilisation": measurements.used / capacity,
        "makespan h": (end - (measurements.first_time or 0.0)) / _HOUR,
    }
    for size, times in [("all", waits), *waits_by_size.items()]:
        row |= {f"{size} mean": fmean(times or [0.0]), f"{size} p95": _p95(times)}
    row |= {"delay s": fmean(delays), "lost cpu h": measurements.lost["cpu"] / 1000.0 / _HOUR}
    row |= {"lost GPU h": measurements.lost[GPU] / _HOUR, "evictions": sum(evictions), "most": max(evictions)}
    hours_below_due, jain = measurements.below_due / unit / _HOUR, measurements.fairness.means()
    return row | {"below due h": hours_below_due, "Jain": jain[max(jain)] if jain else 1.0}


def _p95(waits: Sequence[float]) -> float:
    """Return the 95th percentile, or 0 without waits."""
    return sorted(waits)[min(int(0.95 * len(waits)), len(waits) - 1)] if waits else 0.0


def _mean(rows: Sequence[dict[str, float]]) -> Row:
    """Return the means of all rows, and the maximum of `most`. A mean and its p95 share a cell."""
    means = {name: fmean(row[name] for row in rows) for name in rows[0]}
    means["most"] = max(row["most"] for row in rows)
    cells: dict[str, float | str] = {}
    for name, mean in means.items():
        size, _, statistic = name.rpartition(" ")
        if statistic == "mean":
            cells[f"wait {size}"] = f"{mean:.0f}/{means[f'{size} p95']:.0f}"
        elif statistic != "p95":
            cells[name] = mean
    return cells
