"""Figures, not assertions: `python -m tests.domain.measure`."""

import sys
import time
from collections.abc import Callable
from typing import Any

from extender.api.objects.pods import Pod
from extender.domain.scheduling.decide import decide
from tests.domain.builders import anti_affinity, node, pod
from tests.domain.world import World, gang

NODES, BOUND, GROUPS, MEMBERS = 5_000, 50_000, 1_000, 20


def _timed(what: str, work: Callable[[], Any], times: int = 1) -> Any:
    started = time.perf_counter()
    result = work()
    spent = time.perf_counter() - started
    each = f" ({times / spent:,.0f} a second)" if times > 1 else ""
    sys.stdout.write(f"{what}: {spent * 1000:,.1f} ms{each}\n")
    return result


def _cluster(cpu: str) -> World:
    return World([node(f"n{n}", cpu=cpu) for n in range(NODES)])


def _bound_pods() -> list[Pod]:
    return [pod(f"p{n}", f"old{n // 10}", cpu="100m", on=f"n{n % NODES}") for n in range(BOUND)]


def _feed(world: World, pods: list[Pod]) -> None:
    for each in pods:
        world.ledger.pods.set(each)


def waiting_groups(
    what: str, cpu_of: Callable[[int], str], cpu: str, groups: int = GROUPS, **kind: Any
) -> None:
    world = _cluster(cpu)
    world.add([gang(f"g{n}", MEMBERS, cpu=cpu_of(n), **kind) for n in range(groups)])
    label = f"{groups} groups of {MEMBERS} on {NODES} nodes, {what}"
    snapshot = _timed(f"first snapshot, {label}", world.ledger.snapshot)
    decisions = _timed(f"decide(), {label}", lambda: decide(snapshot))
    _timed("  publish", lambda: world.ledger.publish(decisions))
    again = _timed("  snapshot again", world.ledger.snapshot)
    _timed("  decide() again", lambda: decide(again, decisions))


def events() -> None:
    world, pods = _cluster("16"), _bound_pods()
    _timed(f"set_pod, {BOUND} new bound pods", lambda: _feed(world, pods), BOUND)
    _timed("set_pod, the same again", lambda: _feed(world, pods), BOUND)
    _timed(f"first snapshot with {BOUND} bound pods", world.ledger.snapshot)
    _timed("  snapshot when nothing changed", world.ledger.snapshot)
    world.add(pods[0]).finish("p0")
    snapshot = _timed("  snapshot after one event", world.ledger.snapshot)
    _timed("  decide() with 5,000 gangs at rest", lambda: decide(snapshot))
    names = list(world.nodes)
    _timed("set_node, all again", lambda: [world.add(node(name, cpu="17")) for name in names], NODES)


def main() -> None:
    waiting_groups("same shape, none fits", lambda n: "6", "4")
    waiting_groups("same shape, room in pieces", lambda n: "3", "4")
    waiting_groups("distinct shapes, room for a fifth", lambda n: f"{3000 + n}m", "4")
    waiting_groups("distinct shapes, room for all", lambda n: f"{100 + n}m", "16")
    picky: dict[str, Any] = {"labels": {"app": "x"}, "affinity": anti_affinity(app="x")}
    waiting_groups("members apart", lambda n: "1", "4", groups=20, **picky)
    events()


if __name__ == "__main__":
    main()
