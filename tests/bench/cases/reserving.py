"""Cost and benefit of reservations: decide() in virtual time on three traces, under several settings.

Each row is the mean over the seeds. Waits are the seconds until minMember members of a group first ran;
`large` are groups of at least 8. `lost` is the percentage of work lost by evictions. `again` is the number of
evictions of a group for a queue that had already got capacity of this group. `mean %` and `worst %` are
relative to `none`, which reserves nothing.
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

_LARGE = 8  # members


class Setting(NamedTuple):
    """Settings of all queues. `reserve_after`: empty for the default."""

    limits: Limits = Limits()
    reserve_after: str = ""


SETTINGS = {
    "none": Setting(Limits(reservations=0.0)),
    "shipped": Setting(),
    "30m": Setting(reserve_after="30m"),
    "1h": Setting(reserve_after="1h"),
    "30m, 3 %": Setting(Limits(reservations=0.03), "30m"),
}


class Waits(Observer):
    def __init__(self, trace: ReservationTrace) -> None:
        self._scarce = trace.scarce
        self._queues = {GroupKey(f"default/{row.group}"): row.queue for row in trace.rows}
        self._min_members = {GroupKey(f"default/{row.group}"): row.min_member for row in trace.rows}
        self._created_at: dict[GroupKey, float] = {}
        self._bound: Counter[GroupKey] = Counter()
        self._bound_at: dict[Uid, float] = {}
        self._just_evicted: set[GroupKey] = set()  # groups that were evicted since the last step
        # The queues that got capacity of a group.
        self._evicted_for: defaultdict[GroupKey, set[str]] = defaultdict(set)
        self.waits: dict[GroupKey, float] = {}
        self.done = self.lost = 0.0
        self.evictions, self.repeated_evictions = 0, 0

    def pod_created(self, pod: PodRecord, now: float) -> None:
        self._created_at.setdefault(pod.group, now)

    def pod_bound(self, pod: PodRecord, now: float) -> None:
        self._bound_at[pod.uid] = now
        self._bound[pod.group] += 1
        if self._bound[pod.group] >= self._min_members[pod.group]:
            self.waits.setdefault(pod.group, now - self._created_at[pod.group])

    def pod_ended(self, pod: PodRecord, now: float) -> None:
        self.done += self._resource_seconds(pod, now)

    def pod_reclaimed(self, pod: PodRecord, now: float) -> None:
        self.evictions += 1
        self._just_evicted.add(pod.group)
        self.lost += self._resource_seconds(pod, now)

    def decided(self, decisions: Decisions, now: float) -> None:
        evicted, self._just_evicted = self._just_evicted, set()
        if evicted:
            for name, queue in decisions.queues.items():
                reclaimed_queues = {
                    victim_queue.queue
                    for victim_queue, last in queue.reclaimed.items()
                    if last.at == stamp(now)
                }
                for group in evicted:
                    if self._queues[group] in reclaimed_queues:
                        self.repeated_evictions += name in self._evicted_for[group]
                        self._evicted_for[group].add(name)

    def _resource_seconds(self, pod: PodRecord, now: float) -> float:
        since = self._bound_at.pop(pod.uid, now)
        return pod.shape.requests.get(self._scarce, 0) * (now - since)

    def measures(self) -> dict[str, float]:
        large = [wait for key, wait in self.waits.items() if self._min_members[key] >= _LARGE]
        return {
            "mean": fmean(self.waits.values()),
            "large": fmean(large or [0.0]),
            "worst": max(self.waits.values()),
            "lost %": 100.0 * self.lost / max(self.done + self.lost, 1.0),
            "evictions": self.evictions,
            "again": self.repeated_evictions,
            "never": len(self._created_at) - len(self.waits),
        }


class _Run(NamedTuple):
    trace: str
    setting: str
    seed: int


def reservations_case(bench: Bench) -> Iterator[Row]:
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
    trace, setting = RESERVATION_TRACES[run.trace](run.seed), SETTINGS[run.setting]
    spec = {"reserve_after": setting.reserve_after} if setting.reserve_after else {}
    queues = (replace(queue, spec=replace(queue.spec, **spec)) for queue in trace.workload.queues)
    waits = Waits(trace)
    workload = replace(trace.workload, queues=tuple(queues))
    Simulation(workload, setting.limits, frozenset({"muster"}), waits).run()
    return waits.measures()
