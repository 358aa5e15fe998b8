"""Decisions with many queues in a tree.

Thousands of groups wait on a full cluster, and a gang of a queue below its share reclaims capacity from the
borrowers. `first` is the first decision, `after an event` follows it with one pod of others bound, `after a
group` with one more group of one of the queues. `choosing victims` is how much longer the decision that
begins the reclaim takes than one without that gang.
"""

from collections.abc import Iterator
from statistics import median

from extender.host.upkeep import collect_less_often, long_lived
from tests.bench.cases.deciding import decided_once
from tests.bench.report import Row, show
from tests.bench.sizes import Bench
from tests.domain import builders
from tests.domain.world import World, gang

DEPTH = 4
_BRANCHES = 6  # below each queue that is no leaf
_SHAPES = 20
_MEMBERS = 10
_PODS_ON_NODE = 10
_REPEATS = 5


def sharing(bench: Bench) -> Iterator[Row]:
    nodes, groups = bench.sizes.most_nodes, bench.sizes.waiting
    yield from _waiting(nodes, groups, queues=max(10, groups // 10))
    yield from _waiting(nodes, groups=10 * groups, queues=max(10, groups // 10))
    yield from _reclaiming(nodes, members=max(bench.sizes.gangs))


def tree_of(queues: int) -> list[str]:
    """Return names whose parts are their path from the root: `q0`, `q0-3`, `q0-3-5`; breadth first."""
    names: list[str] = []
    level = [""]
    while len(names) < queues:
        level = [f"{above}-{n}" if above else f"q{n}" for above in level for n in range(_BRANCHES)]
        names += level
        if level[0].count("-") == DEPTH - 1:
            break
    return names[:queues]


def parent_of(name: str) -> str:
    return name.rpartition("-")[0]


def _waiting(nodes: int, groups: int, queues: int) -> Iterator[Row]:
    show(f"sharing: {groups} groups wait in {queues} queues on {nodes} full nodes")
    world = World(*(builders.node(f"n{n}", cpu="32") for n in range(nodes)))
    world.add(*(builders.foreign_pod(f"s{n}", on=f"n{n}", cpu="31") for n in range(nodes)))
    names = tree_of(queues)
    for number, name in enumerate(names):
        world.add(builders.queue(name, parent=parent_of(name), weight=1 + number % 7))
    for number in range(groups):
        cpu = f"{2000 + number % _SHAPES}m"
        world.add(gang(f"g{number}", _MEMBERS, queue=names[-1 - number % len(names)], cpu=cpu))
    _collect_as_served()
    _, first, _ = decided_once(world, None)
    before = world.settle().decisions
    events, decisions = [], before
    for number in range(_REPEATS):
        world.add(builders.foreign_pod(f"event-{number}", on=f"n{number}", cpu="0.1"))
        _, event, decisions = decided_once(world, decisions)
        events.append(event)
    group = min(_after_group(world, names[0], number) for number in range(_REPEATS))
    yield {
        "what": "waiting",
        "nodes": nodes,
        "queues": len(names),
        "groups": groups,
        "first ms": first,
        "after an event ms": median(events),
        "after a group ms": group,
    }


def _collect_as_served() -> None:
    """Collect garbage as the serving process does once it has read the cluster."""
    collect_less_often()
    long_lived(lambda: True)()


def _after_group(world: World, queue: str, number: int) -> float:
    before = world.settle().decisions
    world.add(gang(f"late-{number}", _MEMBERS, queue=queue, cpu="2"))
    return decided_once(world, before)[1]


def _reclaiming(nodes: int, members: int) -> Iterator[Row]:
    """Measure a reclaim: all nodes are full with gangs of a queue that has borrowed all of it."""
    running = nodes * _PODS_ON_NODE
    show(f"sharing: a gang of {members} takes room back among {running} running pods")
    world = World(*(builders.node(f"n{n}", cpu=str(_PODS_ON_NODE)) for n in range(nodes)))
    world.add(builders.queue("lender"), builders.queue("borrower"))
    for number in range(running // _MEMBERS):
        world.add(_placed(number, nodes))
    _collect_as_served()
    before = world.settle().decisions
    without = decided_once(world, None)[1]
    world.add(gang("owed", members, queue="lender", cpu="1"))
    _, first, decisions = decided_once(world, None)
    _, after, _ = decided_once(world, before)
    yield {
        "what": "reclaiming",
        "nodes": nodes,
        "pods": running,
        "members": members,
        "first ms": first,
        "after a group ms": after,
        "choosing victims ms": first - without,
        "victims": len(decisions.evictions),
    }


def _placed(number: int, nodes: int) -> list[object]:
    name = f"b{number}"
    pods = (
        builders.pod(f"{name}-{n}", name, cpu="1", on=f"n{(number * _MEMBERS + n) % nodes}")
        for n in range(_MEMBERS)
    )
    return [builders.group(name, _MEMBERS, queue="borrower"), *pods]
