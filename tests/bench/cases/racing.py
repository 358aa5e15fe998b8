"""Races of the same number of pods, from the first create to the last binding, with stock and with Muster.

Three cases report on them:

- stock: plain pods of the default scheduler: no groups, no gates, no admission policy
- all nodes: the same, but every node is scored for result pod, as it has to be next to Muster
- gated: gangs whose pods get our gate at creation, by the MutatingAdmissionPolicy of the manifests
- ungated: gangs without a gate, which filter refuses until their group may start
- view: gangs without a gate; the scheduler reads its pods through Muster, which shows those that may start
- racks: the same, each gang in one rack of 100 nodes

For each size of cluster and gang, all variants run one after the other. Stock runs first and last, and ratios
are to the mean of both: the API server's store grows with every run, and the speed of a shared machine
varies. The difference between both shows the uncertainty of a ratio. Gangs of 1 are pods without a PodGroup.
With `--bound`, the nodes have running pods before. With `--own-cores`, result part has a slice of the CPU.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from statistics import mean, median
from typing import Any

from tests.bench.fleet import OURS, STOCK, Fleet, Side, gang, pods
from tests.bench.load import BoundWatch, NewObject, count_bound, create
from tests.bench.meters import Reading, api_requests, family, peak_megabytes, read
from tests.bench.report import Row, show
from tests.bench.sizes import Bench, Sizes
from tests.bench.slices import sliced
from tests.e2e.harness.policy import in_force

ALONE = ("stock", "all nodes")
WARM_UP = 500
_NEGLIGIBLE = 0.005
_SETTLE_SECONDS = 15  # most seconds to wait until the API server gets no more requests
_CPU = "0.1"


@dataclass(frozen=True)
class Race:
    nodes: int
    pods: int
    gang: int
    variant: str
    round: int = 0
    own_cores: bool = False

    def new_objects(self, namespace: str) -> Iterable[NewObject]:
        if self.alone:
            return pods(namespace, "plain", self.pods, scheduler=STOCK, cpu=_CPU)
        if self.gang == 1:
            return pods(namespace, "plain", self.pods, scheduler=OURS, cpu=_CPU)
        sizes = [min(self.gang, self.pods - first) for first in range(0, self.pods, self.gang)]
        pod: dict[str, Any] = {"in_rack": self.variant == "racks", "scheduler": OURS, "cpu": _CPU}
        gangs = (gang(namespace, f"gang-{n}", size, **pod) for n, size in enumerate(sizes))
        return chain.from_iterable(gangs)

    @property
    def alone(self) -> bool:
        """Return whether the race runs without Muster."""
        return self.variant in ALONE

    @property
    def labels(self) -> Row:
        fields: Row = {"nodes": self.nodes, "gang": self.gang, "round": self.round + 1}
        return {**fields, **({"cores": "own"} if self.own_cores else {}), "scheduler": self.variant}


@dataclass(frozen=True)
class Result:
    """Result of a race.

    `bound` is counted by a list; `stock`: results of the stock scheduler, first and last.
    """

    race: Race
    seconds: float
    bound: int
    cost: Reading
    peak: float = 0.0  # MB of Muster
    stock: tuple["Result", ...] = ()

    @property
    def complete(self) -> bool:
        return self.bound == self.race.pods

    @property
    def algorithm(self) -> float:
        """Return the milliseconds of the scheduler's algorithm for each attempt."""
        return 1000 * self.cost.algorithm_seconds / max(self.cost.attempts, 1)

    def cpu(self, process: str) -> float:
        """Return the milliseconds of a process for each pod."""
        return 1000 * self.cost.cpu.get(process, 0.0) / self.race.pods

    def ratio(self, value_of: Callable[["Result"], float]) -> Row:
        """Return the ratio to the mean of the stock results; empty if not all pods were bound."""
        stock = [value_of(result) for result in self.stock]
        if not stock or not all(stock) or not all(result.complete for result in (self, *self.stock)):
            return {}
        return {"ratio": value_of(self) / mean(stock)}


class Races:
    """All races, which are run when the first result is needed."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self._results: list[Result] = []
        self._run = self._run_all()

    def __iter__(self) -> Iterator[Result]:
        yield from self._results
        for result in self._run:
            self._results.append(result)
            yield result

    def _run_all(self) -> Iterator[Result]:
        for nodes in self._sizes.nodes:
            with Fleet(nodes) as fleet:
                if self._sizes.bound:
                    fleet.fill(self._sizes.bound)
                run(fleet, Race(nodes, min(WARM_UP, self._sizes.pods), 1, "stock"), self._sizes.patience)
                for number in range(self._sizes.rounds):
                    for size in self._sizes.gangs:
                        yield from self._run_variants(fleet, size, number)

    def _run_variants(self, fleet: Fleet, size: int, number: int) -> Iterator[Result]:
        variants = ("stock", *self._sizes.variants, "stock")
        count, own_cores = self._sizes.pods, self._sizes.own_cores
        races = (Race(fleet.size, count, size, variant, number, own_cores) for variant in variants)
        results = [run(fleet, race, self._sizes.patience) for race in races]
        stock = tuple(result for result in results if result.race.variant == "stock")
        yield from (replace(result, stock=stock) for result in results)


def run(fleet: Fleet, race: Race, patience: float) -> Result:
    show(f"{race.pods} pods: {race.labels}")
    namespace = fleet.namespace()
    view = race.variant in ("view", "racks")
    side = fleet.stock(sampled=race.variant == "stock") if race.alone else fleet.with_muster(view=view)
    with (
        _with_gates(fleet, namespace, race),
        side as processes,
        sliced(_pids_by_part(fleet, processes)) if race.own_cores else nullcontext(),
        BoundWatch(fleet.access, namespace) as bound,
    ):
        before = _reading(fleet, processes)
        started = create(fleet.access, race.new_objects(namespace))
        bound.wait(race.pods, patience)
        cost = _reading(fleet, processes) - before
        cost = replace(cost, requests=_requests_when_idle(fleet) - before.requests)
        listed = count_bound(fleet.access, namespace)
        peak = peak_megabytes(processes.muster.process.pid) if processes.muster else 0.0
    fleet.clear(namespace)
    return Result(race, bound.last - started, listed, cost, peak)


def _pids_by_part(fleet: Fleet, side: Side) -> dict[str, list[int]]:
    control_plane = [fleet.cluster.etcd.pid, fleet.cluster.apiserver.pid]
    parts = {name: family(process.pid) for name, process in side.processes.items()}
    return {"control plane": control_plane, **parts, "clients": [os.getpid()]}


def _requests_when_idle(fleet: Fleet) -> Counter[str]:
    """Return the counts of requests, once no more come: the scheduler posts Events after bindings."""
    counts = api_requests(fleet.access)
    for _ in range(_SETTLE_SECONDS):
        time.sleep(1)
        before, counts = counts, api_requests(fleet.access)
        if counts == before:
            break
    return counts


def _with_gates(fleet: Fleet, namespace: str, race: Race) -> AbstractContextManager[None]:
    if race.variant != "gated":
        return nullcontext()
    return in_force(fleet.cluster.admin, namespace, "gates/admission-policy.yaml")


def _reading(fleet: Fleet, side: Side) -> Reading:
    cluster = fleet.cluster
    processes = {"etcd": cluster.etcd, "apiserver": cluster.apiserver, **side.processes}
    pids = {name: process.pid for name, process in processes.items()}
    return read(fleet.access, pids, side.scheduler.metrics())


# ---- reports


def makespan(bench: Bench) -> Iterator[Row]:
    """Yield the pods/s, the ratio, and the cost of every pod for the API server and each process."""
    for result in bench.races:
        yield {
            **result.race.labels,
            "seconds": result.seconds,
            "pods/s": result.race.pods / result.seconds if result.seconds > 0 else 0.0,
            "bound": result.bound,
            **result.ratio(lambda result: result.seconds),
            **{f"{name} ms": result.cpu(name) for name in ("etcd", "apiserver", "scheduler", "muster")},
            "muster MB": result.peak,
            "requests": _requests(result),
        }
    yield from _median_rows(bench)


def _median_rows(bench: Bench) -> Iterator[Row]:
    ratios_by_race: dict[tuple[int, int, str], list[float]] = {}
    for result in bench.races:
        if ratio := result.ratio(lambda result: result.seconds):
            race = result.race
            ratios_by_race.setdefault((race.nodes, race.gang, race.variant), []).append(float(ratio["ratio"]))
    if bench.sizes.rounds > 1:
        for (nodes, size, variant), ratios in ratios_by_race.items():
            yield {
                "nodes": nodes,
                "gang": size,
                "round": "median",
                "scheduler": variant,
                "ratio": median(ratios),
            }


def _requests(result: Result) -> str:
    """Return the requests for each pod: the total, and by kind."""
    per_pod = {kind: n / result.race.pods for kind, n in result.cost.requests.most_common()}
    kinds = [f"{kind} {n:.2f}" for kind, n in per_pod.items() if n >= _NEGLIGIBLE]
    return f"{sum(per_pod.values()):.2f} ({', '.join(kinds)})"


def algorithm(bench: Bench) -> Iterator[Row]:
    """Yield the scheduler's time from the queue to a node, including calls to Muster."""
    for result in bench.races:
        yield {
            **result.race.labels,
            "mean ms": result.algorithm,
            "attempts/pod": result.cost.attempts / result.race.pods,
            "ms/pod": 1000 * result.cost.algorithm_seconds / result.race.pods,
            **result.ratio(lambda result: result.algorithm),
        }


def cpu(bench: Bench) -> Iterator[Row]:
    """Yield the CPU time of Muster's processes."""
    for result in bench.races:
        if not result.race.alone:
            yield {**result.race.labels, "muster ms/pod": result.cpu("muster"), "bound": result.bound}
