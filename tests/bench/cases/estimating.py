"""Accuracy of estimated starts, in virtual time.

The case counts the groups that start within their first estimated interval, and measures the cost of
estimates. The jobs of an owner have run times around a typical one, which Muster has to learn. Jobs arrive
all the time, at a rate that rises and falls, so later jobs may overtake. After every sixth group that begins
to wait, a forecast is made for all groups that wait then.
"""

import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from math import pi, sin
from statistics import median

from extender.domain.explain.forecast import Calibration, ExpectedStart, forecasts, interval_of
from extender.domain.model.reasons import Verdict
from extender.domain.model.records import GroupKey
from extender.domain.snapshot.decisions import Decisions
from extender.domain.snapshot.snapshot import Limits
from extender.sim.virtual.manifest_workload import made_nodes
from extender.sim.virtual.simulation import Observer, Simulation
from extender.sim.virtual.trace import Row as Arrival
from extender.sim.virtual.trace import from_rows
from tests.bench.report import Row, show
from tests.bench.sizes import Bench

_NODES, _CPUS = 3, 32
_QUEUES = {"research": 2, "labs": 1}  # with their weights
_OWNERS = 30
_SHORTEST, _LONGEST = 60.0, 1800.0  # typical run times, in seconds
_DEVIATION = 0.35  # standard deviation of the logarithms of run times
_LOAD, _SWING, _PERIOD = 0.72, 0.6, 3600.0  # mean load, its relative swing, and seconds of a swing
_WAITS_PER_FORECAST = 6  # groups that begin to wait between two forecasts
_SHOWN = 50  # number of forecasts between two lines of progress
_JOBS = 4.0  # jobs for each estimate, since many start before a forecast


def estimate_case(bench: Bench) -> Iterator[Row]:
    nodes = made_nodes(_NODES, str(_CPUS), "256Gi", 0)
    jobs = from_rows(arrivals(round(_JOBS * bench.sizes.pods), seed=1), (), _QUEUES)
    review = Review()
    # No pod is evicted: the lost work would overload so small a cluster.
    Simulation(nodes + jobs, Limits(reclaims=0), frozenset({"muster"}), review).run()
    yield review.row()


def arrivals(jobs: int, seed: int) -> list[Arrival]:
    rng, rows = random.Random(seed), list[Arrival]()
    owners = [_owner(f"train{number}", rng) for number in range(_OWNERS)]
    for number in range(jobs):
        owner = rng.choice(owners)
        seconds = float(round((owner.seconds or 0.0) * rng.lognormvariate(0, _DEVIATION)))
        rows.append(owner._replace(group=f"{owner.group}-{number}", seconds=seconds))
    work = sum(row.members * int(row.requests["cpu"]) * (row.seconds or 0.0) for row in rows)
    at, rate = 0.0, _LOAD * jobs * _NODES * _CPUS / work
    for number, row in enumerate(rows):
        at += rng.expovariate(rate * (1 + _SWING * sin(2 * pi * at / _PERIOD)))
        rows[number] = row._replace(arrival=float(round(at)))
    return rows


def _owner(name: str, rng: random.Random) -> Arrival:
    """Return the common properties of an owner's jobs; `seconds` is their typical run time."""
    seconds = _SHORTEST * (_LONGEST / _SHORTEST) ** rng.random()
    members, cpus = rng.choice((1, 1, 2)), rng.choice((8, 16))
    return Arrival(0.0, name, members, members, seconds, {"cpu": str(cpus)}, rng.choice([*_QUEUES]))


class Review(Observer):
    """Observer that compares starts with their first estimates, and calibrates later ones, as Muster does."""

    def __init__(self) -> None:
        self._reported: dict[GroupKey, ExpectedStart] = {}  # first estimates of waiting groups
        self._unestimated: set[GroupKey] = set()  # waiting groups without an estimate
        self._new_waits = 0  # groups that began to wait since the last forecast
        self._former_decisions = Decisions()
        self._calibration = Calibration()
        self._costs: list[float] = []  # seconds of each forecast
        self._compared_starts: list[tuple[ExpectedStart, float]] = []  # estimates with the actual starts
        self._unknown = 0

    def decided(self, decisions: Decisions, now: float) -> None:
        former, self._former_decisions = self._former_decisions, decisions
        for key in decisions.changed_since(former):
            decision = decisions.groups.get(key)
            if decision is None or decision.verdict is not Verdict.WAITING:
                self._unestimated.discard(key)
                self._compare(key, self._reported.pop(key, None), now)
            elif key not in self._reported and key not in self._unestimated:
                self._unestimated.add(key)
                self._new_waits += 1
        if self._new_waits >= _WAITS_PER_FORECAST and self._unestimated:
            self._report(decisions)

    def _report(self, decisions: Decisions) -> None:
        started, expected_starts = time.process_time(), completed_forecasts(decisions)
        self._costs.append(time.process_time() - started)
        for key in self._unestimated:
            self._reported[key] = self._calibration.applied(key, expected_starts[key])
        self._unestimated.clear()
        self._new_waits = 0
        if len(self._costs) % _SHOWN == 0 and self._compared_starts:
            show(f"estimates: {self.row()}")

    def _compare(self, key: GroupKey, reported: ExpectedStart | None, now: float) -> None:
        if reported is None:
            return
        if reported.is_known:
            self._compared_starts.append((reported, now))
            self._calibration = self._calibration.after(key, reported, now)
        else:
            self._unknown += 1

    def row(self) -> Row:
        positions = Counter(interval_of(reported, at) for reported, at in self._compared_starts)
        compared_count = len(self._compared_starts)
        return {
            "waits": compared_count + self._unknown,
            "unknown %": 100 * self._unknown / (compared_count + self._unknown),
            "inside %": 100 * positions["inside"] / compared_count,
            "before %": 100 * positions["before"] / compared_count,
            "after %": 100 * positions["after"] / compared_count,
            "by p50 %": 100
            * sum(at <= reported.p50 for reported, at in self._compared_starts)
            / compared_count,
            "waited s": median(at - reported.made_at for reported, at in self._compared_starts),
            "p50 off by s": median(abs(at - reported.p50) for reported, at in self._compared_starts),
            "interval s": median(reported.p90 - reported.p10 for reported, _ in self._compared_starts),
            "forecast ms": 1000 * median(self._costs),
        }


def completed_forecasts(decisions: Decisions) -> Mapping[GroupKey, ExpectedStart]:
    """Return the result of the generator `forecasts`."""
    work = forecasts(decisions)
    while True:
        try:
            next(work)
        except StopIteration as end:
            expected_starts: Mapping[GroupKey, ExpectedStart] = end.value
            return expected_starts
