"""Time from the start of the process to the first binding, on a cluster that is full of running pods.

The pending pods exist before the process starts: a gang of three for Muster, and one pod for the stock
scheduler. Muster starts together with its scheduler, or next to a running scheduler. Both starts are measured
with gates, and with the scheduler proxy.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, nullcontext

from extender.api.keys import SCHEDULED
from tests.bench.api_connection import ApiConnection
from tests.bench.fleet import OURS, STOCK, Fleet, gang, pods
from tests.bench.load import BoundWatch, NewObject, count_bound, create
from tests.bench.meters import peak_megabytes
from tests.bench.report import Row, show
from tests.bench.sizes import Bench
from tests.e2e.harness import objects
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import POD_GROUPS, PODS
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.waiting import wait_for

MEMBERS = 20
_PATIENCE = 120.0  # seconds
_RUNNING_CONDITIONS = [{"type": "StoodWhole", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]


def start(bench: Bench) -> Iterator[Row]:
    """Yield a row for each start in each round."""
    sizes = bench.sizes
    with Fleet(sizes.most_nodes) as fleet:
        namespace = fleet.namespace()
        show(f"{sizes.bound_before} bound pods in groups of {MEMBERS}")
        create(fleet.access, _bound_gangs(namespace, sizes.bound_before, fleet.size))
        _write_statuses(fleet, namespace)
        common_fields: Row = {"nodes": fleet.size, "bound": count_bound(fleet.access, namespace)}
        for number in range(1, sizes.rounds + 1):
            yield from ({**common_fields, "round": number, **row} for row in _measure_all(fleet))


def _write_statuses(fleet: Fleet, namespace: str) -> None:
    """Start Muster once, so that the running groups have the statuses that they have after a restart."""

    def have_statuses() -> bool:
        listing = ApiConnection.to(fleet.access).expect_success("GET", POD_GROUPS.path(namespace))
        groups = json.loads(listing)["items"]
        types = [[condition["type"] for condition in group["status"]["conditions"]] for group in groups]
        return all(SCHEDULED in types_of_group for types_of_group in types)

    show("an earlier Muster writes their statuses")
    with fleet.muster():
        wait_for(have_statuses, _PATIENCE)


def _measure_all(fleet: Fleet) -> Iterator[Row]:
    """Yield a row for the stock scheduler, and a row for each way to start Muster."""
    stock_seconds, stock_peaks = _measure_stock(fleet)
    yield {"started": "stock scheduler", "seconds": stock_seconds, **stock_peaks}
    for name, (seconds, peaks) in {
        "muster and scheduler": _measure_both(fleet),
        "muster": _measure_muster(fleet),
        "muster and scheduler, view": _measure_both(fleet, view=True),
        "muster, view": _measure_muster(fleet, view=True),
    }.items():
        yield {"started": name, "seconds": seconds, "ratio": seconds / stock_seconds, **peaks}


def _bound_gangs(namespace: str, count: int, nodes: int) -> Iterator[NewObject]:
    """Yield running groups whose pods are bound at creation, so that they need no scheduler."""
    for number in range(count // MEMBERS):
        name = f"g{number}"
        group = objects.pod_group(name, namespace=namespace, min_member=MEMBERS)
        yield POD_GROUPS, {**group, "status": {"phase": "Running", "conditions": _RUNNING_CONDITIONS}}
        for member in range(MEMBERS):
            node = f"n{(number * MEMBERS + member) % nodes}"
            pod = objects.pod(f"{name}-{member}", namespace=namespace, group=name, cpu="0.1", nodeName=node)
            yield PODS, pod


def _measure_stock(fleet: Fleet) -> tuple[float, Row]:
    scheduler = fleet.scheduler()
    namespace = fleet.namespace()
    return _measure(fleet, namespace, pods(namespace, "new", 1, scheduler=STOCK), {"scheduler": scheduler})


def _measure_both(fleet: Fleet, *, view: bool = False) -> tuple[float, Row]:
    """Measure the start of Muster together with its scheduler."""
    muster = fleet.muster(view=view)
    namespace = fleet.namespace()
    new_objects = gang(namespace, "new", 3, scheduler=OURS, gated=not view)
    return _measure(fleet, namespace, new_objects, {"muster": muster, "scheduler": fleet.scheduler(muster)})


def _measure_muster(fleet: Fleet, *, view: bool = False) -> tuple[float, Row]:
    """Measure the start of Muster next to a running scheduler.

    With the scheduler proxy, the scheduler has read all objects through an earlier process of Muster.
    """
    muster = fleet.muster(view=view)
    namespace = fleet.namespace()
    with muster if view else nullcontext(), fleet.scheduler(muster):
        new_objects = gang(namespace, "new", 3, scheduler=OURS, gated=not view)
        if view:
            muster.kill()
        return _measure(fleet, namespace, new_objects, {"muster": muster})


def _measure(
    fleet: Fleet,
    namespace: str,
    new_objects: Iterable[NewObject],
    programs: Mapping[str, Muster | KubeScheduler],
) -> tuple[float, Row]:
    """Return the seconds from the start until all pending pods are bound, and each program's peak memory."""
    pending_objects = list(new_objects)
    create(fleet.access, pending_objects)
    pod_count = sum(resource is PODS for resource, _ in pending_objects)
    with BoundWatch(fleet.access, namespace) as bound, ExitStack() as stack:
        started_at = time.monotonic()
        for program in programs.values():
            stack.push(program)
            program.start(wait=False)
        if not bound.wait(pod_count, _PATIENCE):
            raise TimeoutError(f"{len(bound.bound_at)} of {pod_count} bound within {_PATIENCE:g} s")
        peaks = {f"{name} MB": peak_megabytes(program.process.pid) for name, program in programs.items()}
        return bound.last - started_at, peaks
