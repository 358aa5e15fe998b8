"""Kueue's own scheduler benchmark, run with suspended Jobs.

15,000 Jobs of three classes wait in 30 queues below 5 parents. The control plane is real, but there are no
kubelets and no job controller. A second case has Jobs that only wait. This case measures the memory of each
Job, and the cost of one event when there are many Jobs.

All sizes, run times, priorities, intervals and queue amounts are Kueue's. But Kueue's benchmark has no Jobs:
it writes Workloads directly, which Kueue otherwise creates from Jobs.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from statistics import mean, quantiles

from tests.bench import job_load
from tests.bench.api_connection import ApiConnection
from tests.bench.fleet import Fleet, Json
from tests.bench.job_load import CAPACITY, CLASSES, arrivals, class_of, queues_and_classes, suspended_job
from tests.bench.job_runner import JobRunner
from tests.bench.load import NewObject, create
from tests.bench.meters import Reading, cpu_microseconds, megabytes, peak_megabytes, read
from tests.bench.report import Row, show
from tests.bench.sizes import Bench
from tests.e2e.harness import manifests
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import JOBS, POD_GROUPS
from tests.e2e.harness.waiting import wait_for

_PODS_OF_NODE = 10_000  # maximum number of pods on a node
_PATIENCE = 1200.0  # seconds
_CHANGES = 40
_CALM_SECONDS = 4.0  # seconds of a measurement, with or without changes
_IDLE_MICROSECONDS = 200_000.0  # Muster counts as idle below this number of CPU microseconds per second.


def queueing(bench: Bench) -> Iterator[Row]:
    """Yield a row for the whole benchmark, and a row for each class of Jobs."""
    scale = bench.sizes.kueue_scale
    count = job_load.total(scale)
    with _fleet(CAPACITY) as fleet, fleet.muster() as muster:
        namespace = fleet.namespace()
        show(f"{count} Jobs; their run times alone take {job_load.work(scale):.0f} s")
        reading_before = _take_reading(fleet, muster)
        with JobRunner(fleet.access, namespace) as runner:
            first_arrival = create(fleet.access, arrivals(namespace, scale, runner.record_sent))
            show(f"all have arrived; {len(runner.finished)} have finished")
            _wait_finished(runner, count)
            cost = _take_reading(fleet, muster) - reading_before
            yield _total_row(runner, first_arrival, cost, peak_megabytes(muster.process.pid))
            yield from _class_rows(runner)


def waiting(bench: Bench) -> Iterator[Row]:
    """Yield a row for each number of waiting Jobs."""
    for count in bench.sizes.pending_jobs:
        yield _measure_waiting(count)


@contextmanager
def _fleet(cpu: int) -> Iterator[Fleet]:
    """Yield a fleet of one node, with the queues of the benchmark and Muster's rights on Jobs."""
    with Fleet(1, cpu=str(cpu), pods=_PODS_OF_NODE) as fleet:
        manifests.apply(fleet.cluster.admin, "jobs/batch/rbac.yaml")
        create(fleet.access, queues_and_classes())
        yield fleet


# ---- Kueue's benchmark


def _wait_finished(runner: JobRunner, count: int) -> None:
    """Wait until `count` Jobs have finished. Raise the first failure of the runner."""
    wait_for(lambda: runner.failures or len(runner.finished) >= count, _PATIENCE, f"{count} Jobs finished")
    if runner.failures:
        raise runner.failures[0]


def _take_reading(fleet: Fleet, muster: Muster) -> Reading:
    """Return a reading of Muster, the API server and etcd."""
    cluster = fleet.cluster
    processes = {"muster": muster.process, "api server": cluster.apiserver, "etcd": cluster.etcd}
    return read(fleet.access, {name: process.pid for name, process in processes.items()}, {})


def _total_row(runner: JobRunner, first_arrival: float, cost: Reading, peak: float) -> Row:
    wall_seconds, jobs = max(runner.finished.values()) - first_arrival, len(runner.finished)
    return {
        "jobs": jobs,
        "wall s": wall_seconds,
        "capacity used": runner.cpu_seconds / (CAPACITY * wall_seconds),
        "interrupted": runner.interrupted,
        **{f"{name} cpu s": seconds for name, seconds in cost.cpu.items()},
        "muster MB": peak,
        "requests per job": sum(cost.requests.values()) / jobs,
        **_requests_per_job(cost.requests, jobs),
    }


def _requests_per_job(counts: Mapping[str, int], jobs: int) -> Row:
    """Return the number of requests per Job, for each kind of request.

    Kinds with less than one request for two Jobs are left out.
    """
    return {name: number / jobs for name, number in sorted(counts.items()) if number > jobs / 2}


def _class_rows(runner: JobRunner) -> Iterator[Row]:
    """Yield a row for each class of Jobs, with the seconds from creation to admission."""
    for job_class in CLASSES:
        waits = [
            admitted_at - runner.sent_at[name]
            for name, admitted_at in runner.admitted.items()
            if class_of(name) is job_class
        ]
        percentiles = quantiles(waits, n=100)
        yield {
            "class": job_class.name,
            "mean s": mean(waits),
            "p50 s": percentiles[49],
            "p99 s": percentiles[98],
        }


# ---- Jobs that only wait


def _measure_waiting(count: int) -> Row:
    """Fill the node with one large Job, create `count` waiting Jobs, and measure memory and CPU time."""
    large_class = CLASSES[-1]
    with _fleet(large_class.cpu) as fleet, fleet.muster() as muster:
        namespace, pid = fleet.namespace(), muster.process.pid
        create(fleet.access, [(JOBS, suspended_job("large-0", namespace, "p0-0", large_class))])
        wait_for(lambda: not _job(fleet, namespace, "large-0")["spec"]["suspend"], what="the node is in use")
        megabytes_before = megabytes(pid)
        show(f"{count} Jobs wait")
        create(fleet.access, _waiting_jobs(namespace, count))
        wait_for(lambda: _count_groups(fleet, namespace) > count, _PATIENCE, "a PodGroup for each")
        wait_for(
            lambda: _cpu_time_of_changes(pid, lambda _: None) < _IDLE_MICROSECONDS * _CALM_SECONDS,
            _PATIENCE,
            "all reported as waiting",
        )
        calm_time = _cpu_time_of_changes(pid, lambda _: None)
        change_time = _cpu_time_of_changes(pid, lambda number: _raise_parallelism(fleet, namespace, number))
        return {
            "waiting": count,
            "KB per job": (megabytes(pid) - megabytes_before) * 1024 / count,
            "ms per event": (change_time - calm_time) / 1000 / _CHANGES,
            "calm ms per s": calm_time / 1000 / _CALM_SECONDS,
        }


def _waiting_jobs(namespace: str, count: int) -> Iterator[NewObject]:
    small_class = CLASSES[0]
    for number in range(count):
        queue = f"p{number % job_load.PARENTS}-{number // job_load.PARENTS % job_load.CHILDREN}"
        yield JOBS, suspended_job(f"small-{number}", namespace, queue, small_class)


def _count_groups(fleet: Fleet, namespace: str) -> int:
    """Return the number of PodGroups.

    The list has a limit, so that the API server returns only one object.
    """
    page = json.loads(
        ApiConnection.to(fleet.access).expect_success("GET", f"{POD_GROUPS.path(namespace)}?limit=1")
    )
    return len(page["items"]) + int(page["metadata"].get("remainingItemCount", 0))


def _job(fleet: Fleet, namespace: str, name: str) -> Json:
    return fleet.cluster.admin.get(JOBS, name, namespace)


def _raise_parallelism(fleet: Fleet, namespace: str, number: int) -> None:
    """Raise the parallelism of a job."""
    fleet.cluster.admin.patch(JOBS, f"small-{number}", {"spec": {"parallelism": 2}}, namespace)


def _cpu_time_of_changes(pid: int, change: Callable[[int], None]) -> float:
    """Make changes at regular intervals, and return the microseconds of a process's CPU time meanwhile."""
    microseconds_before = cpu_microseconds(pid)
    for number in range(_CHANGES):
        change(number)
        time.sleep(_CALM_SECONDS / _CHANGES)
    return cpu_microseconds(pid) - microseconds_before
