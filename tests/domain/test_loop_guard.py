"""The loop guard: a group gives room to the same one at most once an hour, also where that never starts.

The memory of who gave to whom is lost with the process. What is lost with it is bounded: after a restart each
group gives once more.
"""

from itertools import pairwise
from typing import Any

from extender.domain.model.reasons import Verdict
from tests.domain.builders import node, pod, queue
from tests.domain.world import LIMITS, World, gang

VICTIMS = tuple(f"b{n}" for n in range(4))
HOUR = LIMITS.reclaim_memory


class Refusing:
    """Queue a deserves half of what b holds, but the scheduler uses no node for its gang x. Evicted pods come
    again, and run again as soon as they may."""

    def __init__(self) -> None:
        self.objects: list[Any] = [node("n"), queue("a"), queue("b")]
        self.pods = [each for name in VICTIMS for each in gang(name, 1, queue="b")]
        self.world = World(self.objects, self.pods).start(*VICTIMS)
        self.world.add(gang("x", 2, queue="a"))
        self.evicted: list[tuple[float, str]] = []

    def restart(self) -> None:
        """Another Muster, which knows what the API server does."""
        before = self.world
        groups = [gang(name, 1, queue="b")[0] for name in VICTIMS]
        self.world = World(self.objects, groups, gang("x", 2, queue="a")[0])
        self.world.now = before.now
        self.world.add(*before.pods.values())

    def go_on(self, seconds: float) -> None:
        world, until = self.world, self.world.now + seconds
        while world.now < until:
            world.pass_time(20.0)
            self.evict()
            for name, each in list(world.pods.items()):
                if each.spec.node_name:
                    continue
                group = world.group_of(name)
                if group == "x" and world.verdict("x") is Verdict.STARTING:
                    world.ungate(name).refuse(name, f"0/1 nodes, at {world.now}")
                elif group != "x" and world.plan(group):
                    world.scheduler_takes(name).run(name).settle()

    def evict(self) -> None:
        world = self.world
        for eviction in list(world.decisions.evictions.values()):
            victim = eviction.victim
            group = victim.group.partition("/")[2]
            self.evicted.append((world.now, group))
            world.delete(victim.name).add(pod(f"{group}-{len(self.evicted)}", group))
        world.settle()

    def of(self, group: str) -> list[float]:
        """When members of a group were evicted."""
        return [moment for moment, each in self.evicted if each == group]


def test_each_group_gives_once_an_hour() -> None:
    refusing = Refusing()
    refusing.go_on(3 * HOUR)
    assert len(refusing.evicted) > len(VICTIMS)
    for name in VICTIMS:
        assert all(later - one >= HOUR - 20.0 for one, later in pairwise(refusing.of(name)))


def test_after_a_restart_each_group_gives_once_more() -> None:
    refusing = Refusing()
    for restarts in range(4):
        began = refusing.world.now
        refusing.go_on(HOUR / 2)
        assert len(refusing.evicted) > restarts
        assert all(len([moment for moment in refusing.of(name) if moment >= began]) <= 1 for name in VICTIMS)
        refusing.restart()
