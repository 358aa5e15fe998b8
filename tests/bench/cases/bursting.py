"""Bursts: all gangs exist before the schedulers start, and the cluster has free capacity for all of them.

stock      the same number of pods with the default scheduler, without groups and queues
muster     gangs in one queue, in 20 and in 200 queues; the scheduler reads through the scheduler proxy

The pace is the number of bound pods per second, from the first binding to the last. `ratio` compares the pace
with the pace of stock, and `of one queue` with the pace of the same gangs in one queue. The mix alternates
gangs of 1, 4 and 20 pods.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from itertools import count, cycle

from tests.bench.fleet import OURS, STOCK, Fleet, Side, pods
from tests.bench.load import BoundWatch, NewObject, create
from tests.bench.meters import cpu_seconds
from tests.bench.report import Row, show
from tests.bench.sizes import Bench
from tests.e2e.harness import objects
from tests.e2e.harness.resources import POD_GROUPS, PODS, QUEUES

_QUEUES = (1, 20, 200)
_MIXES = {"1": (1,), "4": (4,), "20": (20,), "mix": (1, 4, 20)}
_PODS_OF_NODE = 400
_SPARE_FACTOR = 1.3  # factor on the number of nodes, so that no gang waits for capacity
_CPU = "10m"


def burst(bench: Bench) -> Iterator[Row]:
    """Yield a row for stock, and a row for each number of queues and each mix of gang sizes."""
    total = bench.sizes.burst_pods
    with Fleet(int(_SPARE_FACTOR * total / _PODS_OF_NODE) + 2, cpu="64", pods=_PODS_OF_NODE) as fleet:
        stock = _measured_pace(
            fleet, fleet.stock(), lambda namespace: pods(namespace, "plain", total, scheduler=STOCK, cpu=_CPU)
        )
        yield {"scheduler": "stock", "gang": "", "queues": "", **stock}
        names: list[str] = []
        # rows of one queue, keyed by mix
        one_queue_rows: dict[str, Row] = {}
        for queues in _QUEUES:
            further_queues = [f"q{number}" for number in range(len(names), queues)]
            create(fleet.access, ((QUEUES, objects.queue(name)) for name in further_queues))
            names += further_queues
            for mix, sizes in _MIXES.items():
                show(f"burst: {total} pods in gangs of {mix} and {queues} queues")
                row = _measured_pace(
                    fleet, fleet.with_muster(view=True), partial(_gangs, sizes, total, names)
                )
                if queues == 1:
                    one_queue_rows[mix] = row
                ratios = {
                    "ratio": _ratio(row, stock),
                    "of one queue": _ratio(row, one_queue_rows[mix]),
                }
                yield {"scheduler": "muster", "gang": mix, "queues": queues, **row, **ratios}


def _ratio(row: Row, base_row: Row) -> float:
    """Return the pace of a row divided by the pace of another row."""
    return float(row["pods/s"]) / float(base_row["pods/s"])


def _gangs(sizes: tuple[int, ...], total: int, queues: list[str], namespace: str) -> Iterator[NewObject]:
    """Yield the objects of gangs that have `total` pods together. The gangs use the queues in turn."""
    queue = cycle(queues)
    for number, size in zip(count(), cycle(sizes), strict=False):
        if total <= 0:
            return
        members, name = min(size, total), f"gang-{number}"
        total -= members
        pod_group = objects.pod_group(name, namespace=namespace, min_member=members, queue=next(queue))
        yield POD_GROUPS, pod_group
        yield from pods(namespace, name, members, group=name, scheduler=OURS, cpu=_CPU)


def _measured_pace(
    fleet: Fleet, side: AbstractContextManager[Side], new_objects: Callable[[str], Iterable[NewObject]]
) -> Row:
    """Create objects in a new namespace, start the schedulers, and measure the pace of the bindings."""
    namespace = fleet.namespace()
    objects_to_create = list(new_objects(namespace))
    create(fleet.access, objects_to_create)
    total = sum(resource is PODS for resource, _ in objects_to_create)
    with BoundWatch(fleet.access, namespace) as bound, side as started_side:
        bound.wait(total, 60 + total / 20)
        cpu_times = {
            f"{name} cpu s": cpu_seconds(process.pid) for name, process in started_side.processes.items()
        }
        bound_times = sorted(bound.bound_at.values())
    fleet.clear(namespace)
    seconds = bound_times[-1] - bound_times[0] if len(bound_times) > 1 else 0.0
    return {
        "bound": len(bound_times),
        "seconds": seconds,
        "pods/s": len(bound_times) / max(seconds, 0.1),
        **cpu_times,
    }
