"""Cost of decide() in this process. Many groups wait on a full cluster, or start on an empty cluster.

The first rows have these columns:

- `first ms`: a decision without cached data
- `again ms`: the next decision, without a change
- `after an event ms`: median of decisions after pods of another scheduler were bound
- `worst ms`: the slowest of these decisions; its event changes an amount that the statuses of all groups
  report
- `snapshot first ms` and `snapshot after ms`: time to freeze the ledger before a decision

In further rows, one for each strategy of queues, the cluster is full of running gangs in many queues. These
columns are CPU times:

- `start ms`: a decision after a gang has ended, in which waiting groups start
- `started ms`: the next decision
- `new ms`: a decision after the creation of a group that must wait
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
from tests.domain.world import World, gang, timestamp

MEMBERS = 20
_REPEATS, _EVENTS = 5, 10
_CROWDED_NODES, _SHAPES = 100, 12
_STRATEGIES = ("traverse", "fair", "fifo", "priority", "rotation", "mixed")


def decide_case(bench: Bench) -> Iterator[Row]:
    """Yield a row for each number of shapes on a full and an empty cluster, and for each queue strategy."""
    nodes, groups = bench.sizes.most_nodes, bench.sizes.waiting_groups
    for full in (True, False):
        for shapes in sorted({1, min(20, groups), min(1000, groups), groups}):
            show(f"decide: {groups} groups of {shapes} shapes on {nodes} nodes")
            yield _measure_decisions(_world(nodes, groups, shapes, full), nodes, groups, shapes, full)
    for strategy in _STRATEGIES:
        for flavored in (False, True):
            show(f"decide: {10 * groups} groups in queues of strategy {strategy}")
            yield _measure_in_queues(10 * groups, max(groups // 10, 2), strategy, flavored)


def _world(nodes: int, groups: int, shapes: int, full: bool) -> World:
    """Return a world with waiting groups.

    Groups with equal members have the same shape. On a full cluster, every node has one CPU too little for a
    member.
    """
    world = World(*(builders.node(f"n{n}", cpu="32") for n in range(nodes)))
    if full:
        world.add(*(builders.foreign_pod(f"s{n}", on=f"n{n}", cpu="31") for n in range(nodes)))
    for number in range(groups):
        world.add(gang(f"g{number}", MEMBERS, cpu=f"{2000 + number % shapes}m"))
    return world


def _measure_decisions(world: World, nodes: int, groups: int, shapes: int, full: bool) -> Row:
    """Return the times of decisions without cached data, without a change, and after events."""
    first_snapshot_ms, first_ms, _ = decided_once(world, None)
    settled_decisions = world.settle().decisions
    again_ms = min(decided_once(world, settled_decisions)[1] for _ in range(_REPEATS))
    event_times, decisions = [], settled_decisions
    for number in range(_EVENTS):
        world.add(builders.foreign_pod(f"event-{number}", on=f"n{number}", cpu="0.1"))
        *times, decisions = decided_once(world, decisions)
        event_times.append(times)
    snapshot_times, decision_times = zip(*event_times, strict=True)
    waiting_groups = sum(group.verdict is Verdict.WAITING for group in settled_decisions.groups.values())
    return {
        "cluster": "full" if full else "empty",
        "nodes": nodes,
        "groups": groups,
        "shapes": shapes,
        "waiting": waiting_groups,
        "first ms": first_ms,
        "again ms": again_ms,
        "after an event ms": median(decision_times),
        "worst ms": max(decision_times),
        "snapshot first ms": first_snapshot_ms,
        "snapshot after ms": median(snapshot_times),
    }


def _measure_in_queues(groups: int, queues: int, strategy: str, flavored: bool) -> Row:
    """Return the times of decisions on a full cluster, after the end of a gang and after a new gang."""
    world = _full_cluster(groups, queues, strategy, flavored)
    start_times, takeover_times, arrival_times = list[float](), list[float](), list[float]()
    for number in range(_EVENTS):
        world.finish(*(f"runs-{number}-{member}" for member in range(4)))
        start_times.append(_cpu_of_decision(world))
        world.settle()
        planned_uids = [uid for decision in world.decisions.groups.values() for uid in decision.plan]
        world.scheduler_takes(*(name for name in world.pods if f"uid-{name}" in planned_uids))
        takeover_times.append(_cpu_of_decision(world))
        world.settle().add(gang(f"new-{number}", 2, queue=f"q{number % queues}", cpu="2.1"))
        arrival_times.append(_cpu_of_decision(world))
        world.settle()
    return {
        "cluster": "full",
        "groups": groups,
        "queues": queues,
        "strategy": strategy,
        "flavors": "on" if flavored else "off",
        "start ms": median(start_times),
        "started ms": median(takeover_times),
        "new ms": median(arrival_times),
    }


def _full_cluster(groups: int, queues: int, strategy: str, flavored: bool) -> World:
    """Return a world that is full of running gangs, with further groups that wait in the queues."""
    flavors = (builders.flavor("a"), builders.flavor("b")) if flavored else ()
    world = World()
    for number in range(_CROWDED_NODES):
        labels = builders.on_flavor("ab"[number % 2]) if flavored else None
        world.add(builders.node(f"n{number}", cpu="32", labels=labels))
    for number in range(queues):
        world.add(builders.queue(f"q{number}", strategy=strategy, flavors=flavors))
    for number in range(4 * _CROWDED_NODES):
        name, created_at = f"runs-{number}", timestamp(0)
        world.add(builders.group(name, 4, queue=f"q{number % queues}", created=created_at))
        world.add(
            [
                builders.pod(f"{name}-{member}", name, cpu="2", on=f"n{number // 4}", created=created_at)
                for member in range(4)
            ]
        )
    for number in range(groups):
        cpu = f"{2000 + 100 * (number // queues % _SHAPES)}m"
        created_at = timestamp(500 + number / 100)
        world.add(gang(f"g{number}", 2, queue=f"q{number % queues}", cpu=cpu, created=created_at))
    return world.settle()


def _cpu_of_decision(world: World) -> float:
    """Decide and publish the decisions. Return the milliseconds of CPU time that the decision took."""
    gc.collect()
    snapshot = world.ledger.snapshot()
    started_at = time.process_time()
    decisions = decide(snapshot, world.decisions)
    seconds = time.process_time() - started_at
    world.publish_decisions(decisions)
    return 1000 * seconds


def decided_once(world: World, previous_decisions: Decisions | None) -> tuple[float, float, Decisions]:
    """Decide after a garbage collection.

    Return the milliseconds of the snapshot, the milliseconds of the decision, and the decisions.
    """
    gc.collect()
    started_at = time.perf_counter()
    snapshot = world.ledger.snapshot()
    frozen_at = time.perf_counter()
    decisions = decide(snapshot, previous_decisions)
    decided_at = time.perf_counter()
    return 1000 * (frozen_at - started_at), 1000 * (decided_at - frozen_at), decisions
