"""Accuracy of estimated starts, in virtual time.

The case counts the groups that start within their first estimated interval, and measures the cost of
estimates. The run times of an owner's jobs vary around a typical run time, which Muster must learn. Jobs
arrive all the time, at a rate that rises and falls, so that later jobs may overtake earlier jobs. Whenever
six more groups have begun to wait, a forecast is made for all waiting groups.
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
from extender.sim.virtual.manifest_workload import make_nodes
from extender.sim.virtual.simulation import Observer, Simulation
from extender.sim.virtual.trace import Row as Arrival
from extender.sim.virtual.trace import from_rows
from tests.bench.report import Row, show
from tests.bench.sizes import Bench

_NODES, _CPUS = 3, 32
_QUEUES = {"research": 2, "labs": 1}  # names of the queues, with their weights
_OWNERS = 30
_SHORTEST_RUN, _LONGEST_RUN = 60.0, 1800.0  # typical run times, in seconds
_DEVIATION = 0.35  # standard deviation of the logarithms of run times
# mean load, relative amplitude of the load, and seconds of a period
_LOAD, _AMPLITUDE, _PERIOD = 0.72, 0.6, 3600.0
_WAITS_PER_FORECAST = 6  # number of groups that begin to wait between two forecasts
_FORECASTS_PER_LINE = 50  # number of forecasts between two progress lines
_JOBS_PER_ESTIMATE = 4.0  # number of jobs for each estimate, since many jobs start before a forecast


def estimate_case(bench: Bench) -> Iterator[Row]:
    """Yield one row with the accuracy and the cost of the estimates."""
    nodes = make_nodes(_NODES, str(_CPUS), "256Gi", 0)
    jobs = from_rows(arrivals(round(_JOBS_PER_ESTIMATE * bench.sizes.pods), seed=1), (), _QUEUES)
    review = Review()
    # Evictions are off, because the lost work would overload such a small cluster.
    Simulation(nodes + jobs, Limits(max_reclaims=0), frozenset({"muster"}), review).run()
    yield review.row()


def arrivals(jobs: int, seed: int) -> list[Arrival]:
    """Return jobs with random owners, run times and arrival times. The seed determines all random values."""
    rng, rows = random.Random(seed), list[Arrival]()
    owners = [_owner(f"train{number}", rng) for number in range(_OWNERS)]
    for number in range(jobs):
        owner = rng.choice(owners)
        seconds = float(round((owner.seconds or 0.0) * rng.lognormvariate(0, _DEVIATION)))
        rows.append(owner._replace(group=f"{owner.group}-{number}", seconds=seconds))
    total_cpu_seconds = sum(row.members * int(row.requests["cpu"]) * (row.seconds or 0.0) for row in rows)
    arrival_time, rate = 0.0, _LOAD * jobs * _NODES * _CPUS / total_cpu_seconds
    for number, row in enumerate(rows):
        arrival_time += rng.expovariate(rate * (1 + _AMPLITUDE * sin(2 * pi * arrival_time / _PERIOD)))
        rows[number] = row._replace(arrival=float(round(arrival_time)))
    return rows


def _owner(name: str, rng: random.Random) -> Arrival:
    """Return the common properties of an owner's jobs. The field `seconds` has their typical run time."""
    seconds = _SHORTEST_RUN * (_LONGEST_RUN / _SHORTEST_RUN) ** rng.random()
    members, cpus = rng.choice((1, 1, 2)), rng.choice((8, 16))
    return Arrival(0.0, name, members, members, seconds, {"cpu": str(cpus)}, rng.choice([*_QUEUES]))


class Review(Observer):
    """Observer that compares the start of each group with the group's first estimate.

    As in Muster, each start also calibrates later estimates.
    """

    def __init__(self) -> None:
        self._first_estimates: dict[GroupKey, ExpectedStart] = {}  # first estimate of each waiting group
        self._groups_without_estimate: set[GroupKey] = set()  # waiting groups without an estimate
        self._new_waits = 0  # number of groups that have begun to wait since the last forecast
        self._former_decisions = Decisions()
        self._calibration = Calibration()
        self._costs: list[float] = []  # seconds of each forecast
        # first estimates with the actual starts
        self._compared_starts: list[tuple[ExpectedStart, float]] = []
        self._unknown_starts = 0

    def decided(self, decisions: Decisions, now: float) -> None:
        """Handle a decision: compare starts with estimates, record new waits, and maybe make a forecast."""
        former_decisions, self._former_decisions = self._former_decisions, decisions
        for key in decisions.changed_since(former_decisions):
            decision = decisions.groups.get(key)
            if decision is None or decision.verdict is not Verdict.WAITING:
                self._groups_without_estimate.discard(key)
                self._compare(key, self._first_estimates.pop(key, None), now)
            elif key not in self._first_estimates and key not in self._groups_without_estimate:
                self._groups_without_estimate.add(key)
                self._new_waits += 1
        if self._new_waits >= _WAITS_PER_FORECAST and self._groups_without_estimate:
            self._report(decisions)

    def _report(self, decisions: Decisions) -> None:
        """Make a forecast, which provides the first estimates of waiting groups without an estimate."""
        started_at, expected_starts = time.process_time(), completed_forecasts(decisions)
        self._costs.append(time.process_time() - started_at)
        for key in self._groups_without_estimate:
            self._first_estimates[key] = self._calibration.correct_forecast(key, expected_starts[key])
        self._groups_without_estimate.clear()
        self._new_waits = 0
        if len(self._costs) % _FORECASTS_PER_LINE == 0 and self._compared_starts:
            show(f"estimates: {self.row()}")

    def _compare(self, key: GroupKey, estimate: ExpectedStart | None, now: float) -> None:
        """Compare a start with its first estimate, and calibrate.

        Count the start if the estimate was unknown.
        """
        if estimate is None:
            return
        if estimate.is_known:
            self._compared_starts.append((estimate, now))
            self._calibration = self._calibration.after(key, estimate, now)
        else:
            self._unknown_starts += 1

    def row(self) -> Row:
        positions = Counter(interval_of(estimate, start) for estimate, start in self._compared_starts)
        compared_count = len(self._compared_starts)
        return {
            "waits": compared_count + self._unknown_starts,
            "unknown %": 100 * self._unknown_starts / (compared_count + self._unknown_starts),
            "inside %": 100 * positions["inside"] / compared_count,
            "before %": 100 * positions["before"] / compared_count,
            "after %": 100 * positions["after"] / compared_count,
            "by p50 %": 100
            * sum(start <= estimate.p50 for estimate, start in self._compared_starts)
            / compared_count,
            "waited s": median(start - estimate.made_at for estimate, start in self._compared_starts),
            "p50 off by s": median(abs(start - estimate.p50) for estimate, start in self._compared_starts),
            "interval s": median(estimate.p90 - estimate.p10 for estimate, _ in self._compared_starts),
            "forecast ms": 1000 * median(self._costs),
        }


def completed_forecasts(decisions: Decisions) -> Mapping[GroupKey, ExpectedStart]:
    """Run the generator `forecasts` to its end, and return its result."""
    generator = forecasts(decisions)
    while True:
        try:
            next(generator)
        except StopIteration as end:
            expected_starts: Mapping[GroupKey, ExpectedStart] = end.value
            return expected_starts
