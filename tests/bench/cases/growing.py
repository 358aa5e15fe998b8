"""CPU cost of a pod for Muster, and Muster's memory, for growing clusters.

The whole process of Muster is measured. The API server and the scheduler are simulated
(tests/bench/simulated.py), so that one machine can run a cluster of 15,000 nodes. While many pods run, gangs
of 20 are created at regular intervals, are bound, and are deleted.

`start cpu s` is the CPU time from the start of Muster until Muster has read all objects and has decided.
`idle ms a second` is the CPU time of Muster while nothing happens. A ratio compares a row with the first row
of the same run.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.bench.meters import cpu_microseconds, megabytes, peak_megabytes
from tests.bench.report import Row, show
from tests.bench.simulated import MEMBERS, SimulatedCluster, SimulatedScheduler, members_of
from tests.bench.sizes import Bench
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.waiting import wait_for

_GANG_INTERVAL = 0.2  # seconds between two gangs
_GANGS, _WARM_UP = 100, 10  # number of measured gangs, and of gangs before the measurement
_CONCURRENT_GANGS = 10  # number of concurrent gangs
_IDLE_SECONDS = 5.0  # seconds of a measurement without changes
_CALM_SECONDS = 3.0  # seconds without a write, after which Muster counts as calm
_PATIENCE = 300.0  # seconds


class Step(NamedTuple):
    """Size of a cluster: nodes, bound pods and queues."""

    nodes: int
    bound: int
    queues: int


STEPS = (Step(100, 1000, 10), Step(1000, 10_000, 100), Step(5000, 50_000, 300), Step(15_000, 150_000, 1000))


def growth(bench: Bench) -> Iterator[Row]:
    """Yield a row for each size of the cluster."""
    first_measurements: dict[str, float] = {}
    for step in STEPS if bench.sizes.pods >= 10_000 else STEPS[:2]:
        with TemporaryDirectory(prefix="muster-growth-") as folder:
            measurements = _measurements(step, Path(folder))
        first_measurements = first_measurements or measurements
        ratio = measurements["ms a pod"] / first_measurements["ms a pod"]
        yield {**step._asdict(), **measurements, "ratio": ratio}


def _measurements(step: Step, folder: Path) -> dict[str, float]:
    """Run Muster on a simulated cluster, and return the measured values."""
    show(f"{step.nodes} nodes, {step.bound} pods, {step.queues} queues")
    with SimulatedCluster(folder, *step) as cluster:
        muster = cluster.muster()
        try:
            started_at = time.monotonic()
            muster.start(wait=False)
            wait_for(muster.ready, _PATIENCE, "ready")
            ready_seconds = time.monotonic() - started_at
            wait_for(lambda: _is_calm(cluster), _PATIENCE, "calm")
            start_cpu = cpu_microseconds(muster.process.pid) / 1e6
            with SimulatedScheduler(muster, cluster.service.store.version) as scheduler:
                _run_gangs(cluster, scheduler, range(_WARM_UP))
                cycles_before, microseconds_before = (
                    _cycle_count(muster),
                    cpu_microseconds(muster.process.pid),
                )
                _run_gangs(cluster, scheduler, range(_WARM_UP, _WARM_UP + _GANGS))
                microseconds = (
                    cpu_microseconds(muster.process.pid) - microseconds_before
                )  # The difference does not include the cost of reading metrics.
            wait_for(lambda: _is_calm(cluster), _PATIENCE, "calm again")
            return {
                "ms a pod": microseconds / 1000 / (_GANGS * MEMBERS),
                "cycles a gang": (_cycle_count(muster) - cycles_before) / _GANGS,
                "idle ms a second": 1000 * _idle_cpu(muster, _IDLE_SECONDS),
                "MB": megabytes(muster.process.pid),
                "peak MB": peak_megabytes(muster.process.pid),
                "ready s": ready_seconds,
                "start cpu s": start_cpu,
            }
        finally:
            muster.kill()


def _run_gangs(cluster: SimulatedCluster, scheduler: SimulatedScheduler, numbers: range) -> None:
    """Create gangs, and wait until all gangs are bound. Earlier gangs are deleted at the same rate."""
    next_creation_at = time.monotonic()
    for number in numbers:
        cluster.add_gang(number)
        if number >= _CONCURRENT_GANGS:
            _wait_bound(scheduler, number - _CONCURRENT_GANGS)
            cluster.drop_gang(number - _CONCURRENT_GANGS)
        next_creation_at += _GANG_INTERVAL
        time.sleep(max(next_creation_at - time.monotonic(), 0.0))
    for number in numbers[-_CONCURRENT_GANGS:]:
        _wait_bound(scheduler, number)


def _wait_bound(scheduler: SimulatedScheduler, number: int) -> None:
    """Wait until all members of a gang are bound. Fail if Muster refuses a bind call."""
    members = set(members_of(number))
    wait_for(lambda: members <= scheduler.bound or scheduler.refused, _PATIENCE, f"gang {number} bound")
    assert not scheduler.refused, scheduler.refused[:3]


def _cycle_count(muster: Muster) -> float:
    return muster.metric("muster_decisions_total")


def _is_calm(cluster: SimulatedCluster) -> bool:
    """Return whether Muster has stopped writing to the API server."""
    version = cluster.service.store.version
    time.sleep(_CALM_SECONDS)
    return cluster.service.store.version == version


def _idle_cpu(muster: Muster, seconds: float) -> float:
    """Return the CPU time of an idle Muster, as a fraction of a core."""
    microseconds_before = cpu_microseconds(muster.process.pid)
    time.sleep(seconds)
    return (cpu_microseconds(muster.process.pid) - microseconds_before) / 1e6 / seconds
