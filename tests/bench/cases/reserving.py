"""Cost and benefit of reservations: decide() in virtual time on three traces, under several settings.

Each row is the mean over the seeds:

- `mean`, `worst`: wait of a group in seconds, until minMember members ran for the first time
- `large`: mean wait of groups with at least 8 members
- `lost %`: percentage of work that evictions lose
- `again`: number of evictions of a group for a queue that had already got capacity of this group
- `mean %`, `large %`, `worst %`: difference from `none`, which reserves nothing
"""

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from statistics import fmean
from typing import NamedTuple

from msgspec.structs import replace

from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.snapshot.decisions import Decisions
from extender.domain.snapshot.snapshot import Limits
from extender.sim.virtual.simulation import Observer, Simulation
from extender.sim.virtual.workload import stamp
from tests.bench.report import Row, show
from tests.bench.reservation_traces import RESERVATION_TRACES, ReservationTrace
from tests.bench.sizes import Bench

_LARGE_GANG = 8  # members


class Setting(NamedTuple):
    """Settings of all queues. An empty `reserve_after` means the default."""

    limits: Limits = Limits()
    reserve_after: str = ""


SETTINGS = {
    "none": Setting(Limits(max_reserved_part=0.0)),
    "shipped": Setting(),
    "30m": Setting(reserve_after="30m"),
    "1h": Setting(reserve_after="1h"),
    "30m, 3 %": Setting(Limits(max_reserved_part=0.03), "30m"),
}


class Waits(Observer):
    """Observer that measures the waits of groups and the losses by evictions."""

    def __init__(self, trace: ReservationTrace) -> None:
        self._scarce_resource = trace.scarce
        self._queues = {GroupKey(f"default/{row.group}"): row.queue for row in trace.rows}
        self._min_members = {GroupKey(f"default/{row.group}"): row.min_member for row in trace.rows}
        self._created_at: dict[GroupKey, float] = {}
        self._bound_pods: Counter[GroupKey] = Counter()
        self._bound_at: dict[Uid, float] = {}
        self._newly_evicted: set[GroupKey] = (
            set()
        )  # groups of which pods were evicted since the last decision
        # Queues for which a group was evicted, keyed by group.
        self._queues_served: defaultdict[GroupKey, set[str]] = defaultdict(set)
        self.waits: dict[GroupKey, float] = {}
        self.finished_work = self.lost_work = 0.0
        self.evictions, self.repeated_evictions = 0, 0

    def pod_created(self, pod: PodRecord, now: float) -> None:
        self._created_at.setdefault(pod.group, now)

    def pod_bound(self, pod: PodRecord, now: float) -> None:
        self._bound_at[pod.uid] = now
        self._bound_pods[pod.group] += 1
        if self._bound_pods[pod.group] >= self._min_members[pod.group]:
            self.waits.setdefault(pod.group, now - self._created_at[pod.group])

    def pod_ended(self, pod: PodRecord, now: float) -> None:
        self.finished_work += self._resource_seconds(pod, now)

    def pod_reclaimed(self, pod: PodRecord, now: float) -> None:
        self.evictions += 1
        self._newly_evicted.add(pod.group)
        self.lost_work += self._resource_seconds(pod, now)

    def decided(self, decisions: Decisions, now: float) -> None:
        """Count evictions of a group for a queue for which the group was already evicted before."""
        evicted_groups, self._newly_evicted = self._newly_evicted, set()
        if evicted_groups:
            for name, queue in decisions.queues.items():
                reclaimed_queues = {
                    victim_queue.queue
                    for victim_queue, reclaim in queue.reclaimed.items()
                    if reclaim.at == stamp(now)
                }
                for group in evicted_groups:
                    if self._queues[group] in reclaimed_queues:
                        self.repeated_evictions += name in self._queues_served[group]
                        self._queues_served[group].add(name)

    def _resource_seconds(self, pod: PodRecord, now: float) -> float:
        """Return the pod's request of the scarce resource, multiplied by the seconds since its binding."""
        bound_at = self._bound_at.pop(pod.uid, now)
        return pod.shape.requests.get(self._scarce_resource, 0) * (now - bound_at)

    def measures(self) -> dict[str, float]:
        """Return the measured values, keyed by column."""
        large_waits = [wait for key, wait in self.waits.items() if self._min_members[key] >= _LARGE_GANG]
        return {
            "mean": fmean(self.waits.values()),
            "large": fmean(large_waits or [0.0]),
            "worst": max(self.waits.values()),
            "lost %": 100.0 * self.lost_work / max(self.finished_work + self.lost_work, 1.0),
            "evictions": self.evictions,
            "again": self.repeated_evictions,
            "never": len(self._created_at) - len(self.waits),
        }


class _Run(NamedTuple):
    """Input of one simulation."""

    trace: str
    setting: str
    seed: int


def reservations_case(bench: Bench) -> Iterator[Row]:
    """Yield a row for each trace and setting. The seeds are simulated in parallel."""
    seeds = bench.sizes.seeds
    with ProcessPoolExecutor(os.cpu_count()) as processes:
        for trace in RESERVATION_TRACES:
            baseline: Mapping[str, float] = {}
            for setting in SETTINGS:
                show(f"reservations: {trace}, {setting}, seeds 0 to {seeds - 1}")
                runs = [_Run(trace, setting, seed) for seed in range(seeds)]
                rows = list(processes.map(measured, runs))
                means = {name: fmean(row[name] for row in rows) for name in rows[0]}
                baseline = baseline or means
                for name in ("mean", "large", "worst"):
                    means[f"{name} %"] = 100.0 * (means[name] / baseline[name] - 1.0)
                yield {"trace": trace, "setting": setting, **means}


def measured(run: _Run) -> dict[str, float]:
    """Simulate a trace with a setting, and return the measured values."""
    trace, setting = RESERVATION_TRACES[run.trace](run.seed), SETTINGS[run.setting]
    spec = {"reserve_after": setting.reserve_after} if setting.reserve_after else {}
    queues = (replace(queue, spec=replace(queue.spec, **spec)) for queue in trace.workload.queues)
    waits = Waits(trace)
    workload = replace(trace.workload, queues=tuple(queues))
    Simulation(workload, setting.limits, frozenset({"muster"}), waits).run()
    return waits.measures()
