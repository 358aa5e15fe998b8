"""Kueue's own scheduler benchmark, run with suspended Jobs.

15,000 Jobs of three classes in 30 queues below 5 parents, on a real control plane without kubelets and
without a job controller. A second case measures Jobs that only wait: the memory
for each Job, and the cost of one event when there are many.

All sizes, run times, priorities, intervals and amounts of the queues are Kueue's, but Kueue's benchmark has
no Jobs: it writes the objects of its queue itself.
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

_MANY = 10_000  # pods of a node
_PATIENCE = 1200.0  # seconds
_CHANGES = 40
_CALM = 4.0  # seconds of a measurement, with or without changes
_QUIET = 200_000.0  # microseconds of Muster's CPU time a second, below which it is idle


def queueing(bench: Bench) -> Iterator[Row]:
    part = bench.sizes.queued
    count = job_load.total(part)
    with _fleet(CAPACITY) as fleet, fleet.muster() as muster:
        space = fleet.namespace()
        show(f"{count} Jobs; their run times alone take {job_load.work(part):.0f} s")
        before = _read(fleet, muster)
        with JobRunner(fleet.access, space) as runner:
            started = create(fleet.access, arrivals(space, part, runner.record_sent))
            show(f"all have arrived; {len(runner.finished)} have finished")
            _await(runner, count)
            cost = _read(fleet, muster) - before
            yield _whole(runner, started, cost, peak_megabytes(muster.process.pid))
            yield from _classes(runner)


def waiting(bench: Bench) -> Iterator[Row]:
    for count in bench.sizes.written:
        yield _waiting(count)


@contextmanager
def _fleet(cpu: int) -> Iterator[Fleet]:
    """Yield a fleet of one node, with the queues of the benchmark and with Muster's rights on Jobs."""
    with Fleet(1, cpu=str(cpu), pods=_MANY) as fleet:
        manifests.apply(fleet.cluster.admin, "jobs/batch/rbac.yaml")
        create(fleet.access, queues_and_classes())
        yield fleet


# ---- the benchmark


def _await(runner: JobRunner, count: int) -> None:
    wait_for(lambda: runner.failures or len(runner.finished) >= count, _PATIENCE, f"{count} Jobs finished")
    if runner.failures:
        raise runner.failures[0]


def _read(fleet: Fleet, muster: Muster) -> Reading:
    cluster = fleet.cluster
    processes = {"muster": muster.process, "api server": cluster.apiserver, "etcd": cluster.etcd}
    return read(fleet.access, {name: each.pid for name, each in processes.items()}, {})


def _whole(runner: JobRunner, started: float, cost: Reading, peak: float) -> Row:
    wall, jobs = max(runner.finished.values()) - started, len(runner.finished)
    return {
        "jobs": jobs,
        "wall s": wall,
        "capacity used": runner.cpu_seconds / (CAPACITY * wall),
        "interrupted": runner.interrupted,
        **{f"{name} cpu s": used for name, used in cost.cpu.items()},
        "muster MB": peak,
        "requests per job": sum(cost.requests.values()) / jobs,
        **_requests(cost.requests, jobs),
    }


def _requests(counts: Mapping[str, int], jobs: int) -> Row:
    """Return the numbers of requests per job, without requests that fewer than half of the jobs cause."""
    return {name: number / jobs for name, number in sorted(counts.items()) if number > jobs / 2}


def _classes(runner: JobRunner) -> Iterator[Row]:
    for each in CLASSES:
        waits = [at - runner.sent[name] for name, at in runner.admitted.items() if class_of(name) is each]
        cuts = quantiles(waits, n=100)
        yield {"class": each.name, "mean s": mean(waits), "p50 s": cuts[49], "p99 s": cuts[98]}


# ---- jobs that only wait


def _waiting(count: int) -> Row:
    large = CLASSES[-1]
    with _fleet(large.cpu) as fleet, fleet.muster() as muster:
        space, pid = fleet.namespace(), muster.process.pid
        create(fleet.access, [(JOBS, suspended_job("large-0", space, "p0-0", large))])
        wait_for(lambda: not _job(fleet, space, "large-0")["spec"]["suspend"], what="the node taken")
        before = megabytes(pid)
        show(f"{count} Jobs wait")
        create(fleet.access, _waiters(space, count))
        wait_for(lambda: _known(fleet, space) > count, _PATIENCE, "a PodGroup for each")
        wait_for(lambda: _spent(pid, lambda _: None) < _QUIET * _CALM, _PATIENCE, "all reported as waiting")
        calm_time = _spent(pid, lambda _: None)
        change_time = _spent(pid, lambda number: _change(fleet, space, number))
        return {
            "waiting": count,
            "KB per job": (megabytes(pid) - before) * 1024 / count,
            "ms per event": (change_time - calm_time) / 1000 / _CHANGES,
            "calm ms per s": calm_time / 1000 / _CALM,
        }


def _waiters(space: str, count: int) -> Iterator[NewObject]:
    small = CLASSES[0]
    for number in range(count):
        queue = f"p{number % job_load.PARENTS}-{number // job_load.PARENTS % job_load.CHILDREN}"
        yield JOBS, suspended_job(f"small-{number}", space, queue, small)


def _known(fleet: Fleet, space: str) -> int:
    page = json.loads(
        ApiConnection.to(fleet.access).expect_success("GET", f"{POD_GROUPS.path(space)}?limit=1")
    )
    return len(page["items"]) + int(page["metadata"].get("remainingItemCount", 0))


def _job(fleet: Fleet, space: str, name: str) -> Json:
    return fleet.cluster.admin.get(JOBS, name, space)


def _change(fleet: Fleet, space: str, number: int) -> None:
    """Raise the parallelism of a job."""
    fleet.cluster.admin.patch(JOBS, f"small-{number}", {"spec": {"parallelism": 2}}, space)


def _spent(pid: int, change: Callable[[int], None]) -> float:
    """Return the microseconds of a process's CPU time while changes are made at regular intervals."""
    before = cpu_microseconds(pid)
    for number in range(_CHANGES):
        change(number)
        time.sleep(_CALM / _CHANGES)
    return cpu_microseconds(pid) - before
