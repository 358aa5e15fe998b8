"""Volcano Jobs of ten pods from their creation to Completed: their cost for Muster and the API server.

Few of them and many. Pods are scheduled for real and end as soon as they are bound: no kubelet is at work.
Only the objects of a job besides its pods count as its writes; Events are counted apart.
"""

import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tests.bench.fleet import Fleet, Side
from tests.bench.line import MERGE, Line
from tests.bench.load import BoundWatch, Wish, create
from tests.bench.meters import Reading, read
from tests.bench.report import Row, show
from tests.bench.sizes import Bench
from tests.e2e.harness import manifests
from tests.e2e.harness.resources import PODS, VOLCANO_JOBS
from tests.e2e.harness.volcano_jobs import FILES, VERSION, task
from tests.e2e.harness.waiting import wait_for

_PODS = 10  # of a job
_CLIENTS = 4
_WRITES = ("POST", "PUT", "PATCH", "APPLY", "DELETE")
_NOT_OF_A_JOB = ("pods", "events", "leases")
_ENDED = json.dumps({"status": {"phase": "Succeeded"}}).encode()


def volcano_jobs(bench: Bench) -> Iterator[Row]:
    with Fleet(bench.sizes.nodes[0]) as fleet:
        manifests.apply(fleet.cluster.admin, *FILES, "jobs/batch/rbac.yaml")
        with fleet.ours("--volcano-jobs=on", view=True) as side:
            for count in (100, 300, 1000, 10_000):
                if count * _PODS <= bench.sizes.pods:
                    yield _completed(fleet, side, count)


def _completed(fleet: Fleet, side: Side, count: int) -> Row:
    space = fleet.namespace()
    show(f"{count} Volcano Jobs of {_PODS} pods")
    before = _read(fleet, side)
    with BoundWatch(fleet.access, space) as bound:
        started = create(fleet.access, _wishes(space, count))
        _end_all(fleet, space, bound, count * _PODS)
    wait_for(lambda: _in_phase(fleet, space, "Completed") == count, 300, "all of them Completed")
    seconds, cost = time.monotonic() - started, _read(fleet, side) - before
    return {
        "jobs": count,
        "wall s": seconds,
        "muster cpu ms per job": 1000 * cost.cpu["muster"] / count,
        "api server cpu ms per job": 1000 * cost.cpu["api server"] / count,
        "writes per job": sum(_writes(cost.requests, but=_NOT_OF_A_JOB).values()) / count,
        **{name: number / count for name, number in _writes(cost.requests).items() if number > count / 5},
    }


def _wishes(space: str, count: int) -> Iterator[Wish]:
    for number in range(count):
        meta = {"name": f"j{number}", "namespace": space}
        spec = {"schedulerName": "muster", "tasks": [task("work", _PODS, cpu="0.1", schedulerName="muster")]}
        yield VOLCANO_JOBS, {"apiVersion": VERSION, "kind": "Job", "metadata": meta, "spec": spec}


def _end_all(fleet: Fleet, space: str, bound: BoundWatch, count: int) -> None:
    """End each pod once it is bound."""
    ended: set[str] = set()
    deadline = time.monotonic() + 60 + count / 10
    with ThreadPoolExecutor(_CLIENTS) as clients:
        while len(ended) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(ended)} of {count} pods were bound")
            names = [name for name in list(bound.at) if name not in ended]
            if not names:
                time.sleep(0.1)
            parts = (names[number::_CLIENTS] for number in range(_CLIENTS))
            list(clients.map(partial(_end, fleet, space), parts))
            ended.update(names)


def _end(fleet: Fleet, space: str, names: list[str]) -> None:
    line = Line.to(fleet.access, content=MERGE)
    try:
        for name in names:
            line.want("PATCH", PODS.path(space, name, "status"), _ENDED)
    finally:
        line.close()


def _in_phase(fleet: Fleet, space: str, phase: str) -> int:
    listed = json.loads(Line.to(fleet.access).want("GET", VOLCANO_JOBS.path(space)))["items"]
    return sum(job.get("status", {}).get("state", {}).get("phase") == phase for job in listed)


def _read(fleet: Fleet, side: Side) -> Reading:
    processes = {**side.processes, "api server": fleet.cluster.apiserver, "etcd": fleet.cluster.etcd}
    return read(fleet.access, {name: each.pid for name, each in processes.items()}, {})


def _writes(requests: Mapping[str, int], but: tuple[str, ...] = ()) -> dict[str, int]:
    """Return the writes by verb and resource, without those that create the jobs."""
    found = {
        name: number
        for name, number in sorted(requests.items())
        if name.startswith(_WRITES) and name.partition(" ")[2].partition("/")[0] not in but
    }
    found.pop("POST jobs", None)
    return found
