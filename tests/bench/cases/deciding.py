"""decide() alone, in this process: many groups wait on a full cluster, or start on an empty one.

`first` knows nothing of before, and `again` follows it with nothing changed. `after an event` follows one pod
bound elsewhere: the median of several events. `worst` is the slowest of them: an event that changes a number
of which all groups are told. `snapshot` is what freezing the ledger costs in each.
"""

import gc
import time
from collections.abc import Iterator
from statistics import median

from extender.domain.model.reasons import Verdict
from extender.domain.scheduling.decide import decide
from extender.domain.snapshot.decisions import Decisions
from tests.bench.report import Row, show
from tests.bench.sizes import Bench
from tests.domain import builders
from tests.domain.world import World, gang

MEMBERS = 20
_REPEATS, _EVENTS = 5, 10


def decide_case(bench: Bench) -> Iterator[Row]:
    nodes, groups = bench.sizes.most_nodes, bench.sizes.waiting
    for full in (True, False):
        for shapes in sorted({1, min(20, groups), min(1000, groups), groups}):
            show(f"decide: {groups} groups of {shapes} shapes on {nodes} nodes")
            yield _timed(_world(nodes, groups, shapes, full), nodes, groups, shapes, full)


def _world(nodes: int, groups: int, shapes: int, full: bool) -> World:
    """On a full cluster every node has room for one CPU less than a member asks for."""
    world = World(*(builders.node(f"n{n}", cpu="32") for n in range(nodes)))
    if full:
        world.add(*(builders.stranger(f"s{n}", on=f"n{n}", cpu="31") for n in range(nodes)))
    for number in range(groups):
        world.add(gang(f"g{number}", MEMBERS, cpu=f"{2000 + number % shapes}m"))
    return world


def _timed(world: World, nodes: int, groups: int, shapes: int, full: bool) -> Row:
    frozen, first, before = decided_once(world, None)
    before = world.settle().decisions
    again = min(decided_once(world, before)[1] for _ in range(_REPEATS))
    events, decisions = [], before
    for number in range(_EVENTS):
        world.add(builders.stranger(f"event-{number}", on=f"n{number}", cpu="0.1"))
        *times, decisions = decided_once(world, decisions)
        events.append(times)
    snapshots, decided = zip(*events, strict=True)
    waiting = sum(group.verdict is Verdict.WAITING for group in before.groups.values())
    return {
        "cluster": "full" if full else "empty",
        "nodes": nodes,
        "groups": groups,
        "shapes": shapes,
        "waiting": waiting,
        "first ms": first,
        "again ms": again,
        "after an event ms": median(decided),
        "worst ms": max(decided),
        "snapshot first ms": frozen,
        "snapshot after ms": median(snapshots),
    }


def decided_once(world: World, before: Decisions | None) -> tuple[float, float, Decisions]:
    """Milliseconds of the snapshot and of the decision, without garbage that others left."""
    gc.collect()
    started = time.perf_counter()
    snapshot = world.ledger.snapshot()
    frozen = time.perf_counter()
    decisions = decide(snapshot, before)
    ended = time.perf_counter()
    return 1000 * (frozen - started), 1000 * (ended - frozen), decisions
