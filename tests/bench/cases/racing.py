"""Races with stock and with Muster: equally many pods, from the first creation to the last binding.

Three cases report the races. The variants are:

- stock: plain pods of the default scheduler, without groups, gates and an admission policy
- all nodes: as stock, but the scheduler scores every node for each pod, as a scheduler next to Muster must
- gated: gangs whose pods get Muster's gate at creation, by the MutatingAdmissionPolicy of the manifests
- ungated: gangs without a gate; Muster's filter refuses the pods of a group until the group may start
- view: gangs without a gate; the scheduler reads pods through Muster, which hides pods that may not start yet
- racks: as view, but each gang must be in one rack of 100 nodes

All variants run one by one, for each size of cluster and of gang. Stock runs first and last, and a ratio
compares with the mean of both runs, for two reasons. The API server's store grows with every run, and the
speed of a shared machine varies. The difference between both runs of stock shows how uncertain a ratio is.

Gangs of 1 are pods without a PodGroup. With `--bound`, the nodes already have running pods. With
`--own-cores`, the control plane, each scheduling process and the clients have separate slices of the CPU.
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
_SETTLE_SECONDS = 15  # maximum seconds of waiting until the API server gets no more requests
_CPU = "0.1"


@dataclass(frozen=True)
class Race:
    """Race of one variant, with its sizes and its round.

    With `own_cores`, each part has its own slice of the CPU.
    """

    nodes: int
    pods: int
    gang: int
    variant: str
    round: int = 0
    own_cores: bool = False

    def new_objects(self, namespace: str) -> Iterable[NewObject]:
        """Return the objects that the race creates in a namespace."""
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
        """Return the fields that identify the race in a row."""
        fields: Row = {"nodes": self.nodes, "gang": self.gang, "round": self.round + 1}
        return {**fields, **({"cores": "own"} if self.own_cores else {}), "scheduler": self.variant}


@dataclass(frozen=True)
class Result:
    """Result of a race.

    `bound` is the number of bound pods in a list at the end. `stock` has the results of the first and the
    last race with the stock scheduler.
    """

    race: Race
    seconds: float
    bound: int
    cost: Reading
    peak: float = 0.0  # peak memory of Muster in MB
    stock: tuple["Result", ...] = ()

    @property
    def complete(self) -> bool:
        """Return whether all pods were bound."""
        return self.bound == self.race.pods

    @property
    def algorithm(self) -> float:
        """Return the milliseconds that the scheduler's algorithm takes for each attempt."""
        return 1000 * self.cost.algorithm_seconds / max(self.cost.attempts, 1)

    def cpu(self, process: str) -> float:
        """Return the CPU milliseconds of a process for each pod."""
        return 1000 * self.cost.cpu.get(process, 0.0) / self.race.pods

    def ratio(self, value_of: Callable[["Result"], float]) -> Row:
        """Return the ratio to the mean of the stock results, or {} if any of these races is incomplete."""
        stock = [value_of(result) for result in self.stock]
        if not stock or not all(stock) or not all(result.complete for result in (self, *self.stock)):
            return {}
        return {"ratio": value_of(self) / mean(stock)}


class Races:
    """All races. A race is run when its result is needed for the first time."""

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
                for round_number in range(self._sizes.rounds):
                    for size in self._sizes.gangs:
                        yield from self._run_variants(fleet, size, round_number)

    def _run_variants(self, fleet: Fleet, size: int, round_number: int) -> Iterator[Result]:
        """Run all variants with gangs of a size in one round, and yield the results."""
        variants = ("stock", *self._sizes.variants, "stock")
        count, own_cores = self._sizes.pods, self._sizes.own_cores
        races = (Race(fleet.size, count, size, variant, round_number, own_cores) for variant in variants)
        results = [run(fleet, race, self._sizes.patience) for race in races]
        stock = tuple(result for result in results if result.race.variant == "stock")
        yield from (replace(result, stock=stock) for result in results)


def run(fleet: Fleet, race: Race, patience: float) -> Result:
    """Run one race, and return its result. `patience` is the time limit in seconds."""
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
        reading_before = _take_reading(fleet, processes)
        created_at = create(fleet.access, race.new_objects(namespace))
        bound.wait(race.pods, patience)
        cost = _take_reading(fleet, processes) - reading_before
        cost = replace(cost, requests=_requests_when_idle(fleet) - reading_before.requests)
        bound_count = count_bound(fleet.access, namespace)
        peak = peak_megabytes(processes.muster.process.pid) if processes.muster else 0.0
    fleet.clear(namespace)
    return Result(race, bound.last - created_at, bound_count, cost, peak)


def _pids_by_part(fleet: Fleet, side: Side) -> dict[str, list[int]]:
    """Return the process ids of each part that gets its own slice of the CPU."""
    control_plane = [fleet.cluster.etcd.pid, fleet.cluster.apiserver.pid]
    parts = {name: family(process.pid) for name, process in side.processes.items()}
    return {"control plane": control_plane, **parts, "clients": [os.getpid()]}


def _requests_when_idle(fleet: Fleet) -> Counter[str]:
    """Return the counts of requests once no more requests arrive.

    The scheduler still posts Events after bindings.
    """
    counts = api_requests(fleet.access)
    for _ in range(_SETTLE_SECONDS):
        time.sleep(1)
        earlier_counts, counts = counts, api_requests(fleet.access)
        if counts == earlier_counts:
            break
    return counts


def _with_gates(fleet: Fleet, namespace: str, race: Race) -> AbstractContextManager[None]:
    """Return a context in which new pods get gates, if the variant of the race has gates."""
    if race.variant != "gated":
        return nullcontext()
    return in_force(fleet.cluster.admin, namespace, "gates/admission-policy.yaml")


def _take_reading(fleet: Fleet, side: Side) -> Reading:
    """Return a reading of the control plane, the scheduler and Muster."""
    cluster = fleet.cluster
    processes = {"etcd": cluster.etcd, "apiserver": cluster.apiserver, **side.processes}
    pids = {name: process.pid for name, process in processes.items()}
    return read(fleet.access, pids, side.scheduler.metrics())


# ---- Reports


def makespan(bench: Bench) -> Iterator[Row]:
    """Yield the pods/s, the ratio, and the cost of each pod for the API server and each process."""
    for result in bench.races:
        yield {
            **result.race.labels,
            "seconds": result.seconds,
            "pods/s": result.race.pods / result.seconds if result.seconds > 0 else 0.0,
            "bound": result.bound,
            **result.ratio(lambda result: result.seconds),
            **{f"{name} ms": result.cpu(name) for name in ("etcd", "apiserver", "scheduler", "muster")},
            "muster MB": result.peak,
            "requests": _requests_text(result),
        }
    yield from _median_rows(bench)


def _median_rows(bench: Bench) -> Iterator[Row]:
    """Yield the median ratio of each race over all rounds, if there are several rounds."""
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


def _requests_text(result: Result) -> str:
    """Return the number of requests for each pod as text: the total, and the number of each kind."""
    per_pod = {kind: n / result.race.pods for kind, n in result.cost.requests.most_common()}
    kinds = [f"{kind} {n:.2f}" for kind, n in per_pod.items() if n >= _NEGLIGIBLE]
    return f"{sum(per_pod.values()):.2f} ({', '.join(kinds)})"


def algorithm(bench: Bench) -> Iterator[Row]:
    """Yield the time in which the scheduler finds a node for a pod, including calls to Muster."""
    for result in bench.races:
        yield {
            **result.race.labels,
            "mean ms": result.algorithm,
            "attempts/pod": result.cost.attempts / result.race.pods,
            "ms/pod": 1000 * result.cost.algorithm_seconds / result.race.pods,
            **result.ratio(lambda result: result.algorithm),
        }


def cpu(bench: Bench) -> Iterator[Row]:
    """Yield the CPU time of Muster for each pod."""
    for result in bench.races:
        if not result.race.alone:
            yield {**result.race.labels, "muster ms/pod": result.cpu("muster"), "bound": result.bound}
