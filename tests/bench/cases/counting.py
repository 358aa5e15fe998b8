"""Cost of the ledger and of the division as a cluster grows, in this process: each row is a point of a curve.

`divide`: the shares of so many queues, the best of three. `terms`: so many jobs of five pods, each with an
anti-affinity of its own, as after a restart; and one pod event later. `strangers`: bytes for each pod of a
DaemonSet, which is not ours. `names`: decide() beside twenty such pods that name so many resources in all.
"""

import gc
import time
import tracemalloc
from collections.abc import Iterator
from random import Random

from msgspec.structs import replace

from extender.api.objects.pods import Pod
from extender.domain.queues.share_tree import QueueDemand
from extender.domain.scheduling.decide import decide
from tests.bench.report import Row, show
from tests.bench.sizes import Bench
from tests.domain.builders import anti_affinity, foreign_pod, node, on_nodes, pod
from tests.domain.world import World, gang
from tests.sharing import divide

_GIB = 2**30
_EVENTS = 100
_DAEMON_SETS = 8


def count_case(bench: Bench) -> Iterator[Row]:
    most = bench.sizes.pods
    for parts in (10, 3, 1):
        show(f"count: {most // parts} queues, {most // parts // 10} jobs with terms")
        yield _divided(most // parts)
        yield _with_terms(most // parts // 10)
        yield _with_strangers(bench.sizes.most_nodes // parts)
        yield _with_names(max(most // parts * 2 // 5, 1))


def _divided(queues: int) -> Row:
    random = Random(1)
    demands = [_demand(f"q{number}", random) for number in range(queues)]
    total = {"cpu": queues * 20_000, "memory": queues * 80 * _GIB, "pods": queues * 110, "x.io/gpu": queues}
    spent = []
    for _ in range(3):
        started = time.perf_counter()
        divide(total, demands)
        spent.append(_since(started))
    return {"what": "divide", "size": queues, "ms": min(spent)}


def _demand(name: str, random: Random) -> QueueDemand:
    request = {
        "cpu": random.randint(1000, 100_000),
        "memory": random.randint(1, 400) * _GIB,
        "pods": random.randint(1, 100),
        "x.io/gpu": random.randint(0, 8),
    }
    capability = {"cpu": random.randint(1000, 90_000)} if random.random() < 0.3 else None
    return QueueDemand(name, random.randint(1, 100), request, capability, {"cpu": 100})


def _with_terms(jobs: int) -> Row:
    world = World([node(f"n{n}", cpu="64") for n in range(500)])
    members = [_member(job, number) for job in range(jobs) for number in range(5)]
    started = time.perf_counter()
    world.add(members)
    restart = _since(started)
    later = [
        foreign_pod(f"later-{n}", on="n0", labels={"app": "job", "job": "other"}) for n in range(_EVENTS)
    ]
    started = time.perf_counter()
    world.add(later)
    return {"what": "terms", "size": jobs, "ms": restart, "event ms": _since(started) / _EVENTS}


def _member(job: int, number: int) -> Pod:
    labels = {"app": "job", "job": f"j{job}", "index": str(number)}
    where = f"n{(5 * job + number) % 500}"
    return pod(f"j{job}-{number}", f"j{job}", labels=labels, affinity=anti_affinity(job=f"j{job}"), on=where)


def _with_strangers(nodes: int) -> Row:
    world = World([node(f"n{n}") for n in range(nodes)])
    world.ledger.snapshot()
    gc.collect()
    tracemalloc.start()
    started = time.perf_counter()
    for daemon_set in range(_DAEMON_SETS):
        for number in range(nodes):
            world.ledger.pods.set(_daemon(daemon_set, number))
    spent = _since(started)
    gc.collect()
    each = tracemalloc.get_traced_memory()[0] / (nodes * _DAEMON_SETS)
    tracemalloc.stop()
    return {"what": "strangers", "size": nodes * _DAEMON_SETS, "ms": spent, "bytes each": each}


def _daemon(daemon_set: int, number: int) -> Pod:
    name = f"daemon-{daemon_set}"
    made = foreign_pod(
        f"{name}-{number:05x}", on=f"n{number}", cpu="100m", labels={"app": name, "tier": "node"}
    )
    return replace(made, spec=replace(made.spec, affinity=on_nodes("metadata.name", "In", f"n{number}")))


def _with_names(names: int) -> Row:
    world = World([node(f"n{n}") for n in range(100)], gang("a", 3))
    for number in range(20):
        strange = {f"x{number}.io/r{each}": "1" for each in range(names)}
        world.add(pod(f"wide-{number}", on="n0", gated=False, scheduler="somebody", more=strange))
    snapshot = world.ledger.snapshot()
    started = time.perf_counter()
    decisions = decide(snapshot)
    spent = _since(started)
    longest = max(len(queue.allocated) + len(queue.deserved) for queue in decisions.queues.values())
    return {"what": "names", "size": 20 * names, "ms": spent, "names in a status": longest}


def _since(started: float) -> float:
    """Return the milliseconds since `started`."""
    return 1000 * (time.perf_counter() - started)
