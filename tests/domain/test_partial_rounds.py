"""Partial rounds: where many groups wait and few change, what is decided without the others is what a round
of all would decide.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from extender.api import keys
from extender.api.objects.queues import QueueLimits, QueuePreemption
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.scheduling.decide import decide, judge_all
from extender.domain.scheduling.incremental import partial_round
from extender.domain.scheduling.memory import memory_of
from extender.domain.snapshot.decisions import Decisions
from extender.domain.snapshot.snapshot import Limits
from tests.domain.builders import group, node, pod, queue, stranger
from tests.domain.decided_twice import DecidedTwice
from tests.domain.world import World, comparable, gang, key, timestamp
from tests.property_examples import examples

WAITING = 24
QUEUES = ("pa", "pb", "q")
RUNNING = tuple(f"r{n}" for n in range(3))


def crowd(ages: float = 100.0, **queues: dict[str, Any]) -> World:
    """Two full nodes of three queues, two of them below one, and many gangs that wait; `ages`: for so many
    seconds at least. `queues`: fields of their specs."""
    world = World(node("n0", cpu="4"), node("n1", cpu="4"), queue("p"))
    for name in QUEUES:
        world.add(queue(name, parent="p" if name.startswith("p") else "", **queues.get(name, {})))
    for number, name in enumerate(RUNNING):
        world.add(gang(name, 1, queue=QUEUES[number], cpu="2", created=timestamp(0))).settle().start(name)
    world.add(stranger("s", on="n1", cpu="1.7"))
    for number in range(WAITING):
        born = timestamp(1000 - ages - number)
        world.add(gang(f"w{number}", 1 + number % 2, queue=QUEUES[number % 3], cpu="1", created=born))
    for _ in range(20):  # as many reservations are made as there may be, one in a second
        world.settle().advance(1.0)
    return world.settle()


def without_the_inadmissible(world: World) -> Decisions | None:
    before = world.decisions
    memory = memory_of(before)
    assert memory is not None
    return partial_round(world.ledger.snapshot(), before, memory, judge_all)


EVENTS: dict[str, Callable[[World], object]] = {
    "one comes": lambda world: world.add(gang("new", 2, queue="pa", created=timestamp(990))),
    "one goes": lambda world: world.delete("w8-0").ledger.intake.drop_group(key("w8")),
    "one loses a member": lambda world: world.delete("w7-1"),
    "one wants less": lambda world: world.add(group("w7", 1, queue="pb", created=timestamp(893))),
    "one is held": lambda world: world.add(
        group("w8", 1, queue="q", created=timestamp(892), annotations={keys.HOLD: "true"})
    ),
    "one changes its queue": lambda world: world.add(group("w8", 1, queue="pa", created=timestamp(892))),
}


@pytest.mark.parametrize("ages", [100.0, 10_000.0], ids=["young", "reserving"])
@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
def test_one_of_many_changes_without_a_round_of_all(event: Callable[[World], object], ages: float) -> None:
    world = crowd(ages)
    event(world)
    decisions = without_the_inadmissible(world)
    assert decisions is not None
    assert comparable(decisions) == comparable(decide(world.ledger.snapshot()))
    moved = [each for each in decisions.groups.values() if each != world.decisions.groups.get(each.key)]
    assert set(decisions.turned) >= {each.key for each in moved}


@pytest.mark.parametrize(
    "event",
    [
        lambda world: world.finish("r0-0"),
        lambda world: world.add(queue("q", priority=3)),
        lambda world: world.add(gang("small", 1, queue="pa", cpu="0")),
        lambda world: world.add(node("n2", cpu="1")),
        lambda world: world.add(stranger("s2", on="n1", cpu="0.1")),
    ],
    ids=["room comes", "a queue changes", "one starts", "a node comes", "others take room"],
)
def test_what_may_matter_to_others_is_a_round_of_all(event: Callable[[World], object]) -> None:
    world = crowd()
    event(world)
    assert without_the_inadmissible(world) is None


def test_an_inadmissible_group_whose_time_has_come_takes_part() -> None:
    world = crowd()
    world.ledger.give_up_start(key("w7"), "too late")
    world.settle()
    assert world.reason("w7") is Reason.BACKING_OFF
    world.add(gang("new", 2, queue="pa", created=timestamp(990)))
    assert without_the_inadmissible(world) is not None
    world.now += 3600.0
    assert without_the_inadmissible(world) is None


def test_one_that_is_above_its_share_now_is_judged_again() -> None:
    """Whether it has a claim on room depends on what others ask for."""
    queues = (queue("a", reclaimable=False), queue("b"))
    world = World(
        node("n0", cpu="8"), stranger("s", on="n0", cpu="3"), *queues, limits=Limits(reservations=0)
    )
    world.add(gang("runs", 1, queue="a", cpu="3")).settle().start("runs")
    world.add(gang("also", 1, queue="a", cpu="2")).settle().start("also")
    for number in range(4):
        world.add(gang(f"w{number}", 1, queue="a", cpu="2", created=timestamp(number)))
    world.add(gang("first", 1, queue="b", cpu="1", created=timestamp(0))).settle().settle()
    assert world.decision("w3").claims_room
    world.add(gang("new", 1, queue="b", cpu="6", created=timestamp(990)))
    assert without_the_inadmissible(world) is None
    assert not world.settle().decision("w3").claims_room


def test_those_behind_move_up() -> None:
    world = crowd()
    there = [each for each in world.decisions.groups.values() if each.queue == "q" and each.position]
    line = sorted(there, key=lambda each: each.position)
    gone = line[2].key
    world.delete(*(name for name in world.pods if name.startswith(f"{gone.partition('/')[2]}-")))
    world.ledger.intake.drop_group(gone)
    assert without_the_inadmissible(world) is not None
    world.settle()
    now = [world.decisions.groups[each.key].position for each in line if each.key != gone]
    assert now == list(range(1, len(line)))
    assert world.queue("q").waiting == len(now)


class Waiting(DecidedTwice):
    """Any events on a crowd, most of them among those that wait."""

    @initialize(
        ages=st.sampled_from([0.0, 590.0, 10_000.0]),
        specs=st.tuples(
            *[
                st.fixed_dictionaries(
                    {},
                    optional={
                        "strategy": st.sampled_from(["fifo", "priority", "rotation", "mixed"]),
                        "deserved": st.sampled_from([{"cpu": "1"}, {"cpu": "4"}]),
                        "capability": st.sampled_from([{"cpu": "2"}, {"cpu": "5"}]),
                        "ageing": st.sampled_from([0, 8]),
                        "limits": st.sampled_from([None, QueueLimits(groups=1)]),
                        "reclaimable": st.booleans(),
                        "preemption": st.just(QueuePreemption("LowerPriority", "LowerPriority")),
                    },
                )
            ]
            * 3
        ),
    )
    def begin(self, ages: float, specs: tuple[dict[str, Any], ...]) -> None:
        self.world = crowd(ages, **dict(zip(QUEUES, specs, strict=True)))
        self.count = 0

    @rule(
        members=st.integers(1, 3),
        spare=st.integers(0, 1),
        cpu=st.sampled_from(["0.5", "1", "1", "2", "9"]),
        where=st.sampled_from(QUEUES),
        priority=st.sampled_from([0, 0, 0, 5]),
        hours=st.sampled_from([0, 0, 3]),
    )
    def one_comes(self, members: int, spare: int, cpu: str, where: str, priority: int, hours: int) -> None:
        self.count += 1
        more: dict[str, Any] = {"priority": priority, "created": timestamp(1000.0 - 3600.0 * hours)}
        self.world.add(gang(f"w{WAITING + self.count}", members + spare, members, where, cpu=cpu, **more))

    @rule(
        which=st.integers(0, 200), needed=st.integers(1, 2), where=st.sampled_from(QUEUES), held=st.booleans()
    )
    def one_changes(self, which: int, needed: int, where: str, held: bool) -> None:
        notes = {keys.HOLD: "true"} if held else {}
        made = timestamp(1000)
        self.world.add(group(self.name(which), needed, queue=where, created=made, annotations=notes))

    @rule(which=st.integers(0, 200))
    def one_has_another_member(self, which: int) -> None:
        self.count += 1
        name = self.name(which)
        self.world.add(pod(f"{name}-x{self.count}", name, cpu="1"))

    @rule(which=st.integers(0, 200), wholly=st.booleans())
    def one_goes(self, which: int, wholly: bool) -> None:
        name = self.name(which)
        members = sorted(each for each in self.world.pods if each.startswith(f"{name}-"))
        self.world.delete(*(members if wholly else members[:1]))
        if wholly:
            self.world.ledger.intake.drop_group(key(name))

    @rule(which=st.sampled_from(RUNNING))
    def one_that_runs_ends(self, which: str) -> None:
        if f"{which}-0" in self.world.pods:
            self.world.finish(f"{which}-0")

    @rule(cpu=st.sampled_from(["0", "0.1", "2"]), goes=st.booleans())
    def others_come_and_go(self, cpu: str, goes: bool) -> None:
        if "s2" in self.world.pods and goes:
            self.world.delete("s2")
        elif not goes:
            self.world.add(stranger("s2", on="n1", cpu=cpu))

    @rule()
    def plans_are_followed(self) -> None:
        self.world.settle()
        for each in list(self.world.decisions.groups.values()):
            if each.verdict is Verdict.STARTING and each.plan:
                self.world.start(each.key.partition("/")[2])
                return

    @rule(which=st.integers(0, 200))
    def scheduler_refuses(self, which: int) -> None:
        waiting = sorted(name for name, each in self.world.pods.items() if not each.spec.node_name)
        if waiting:
            self.world.refuse(waiting[which % len(waiting)])

    @rule(seconds=st.sampled_from([0.1, 1.0, 20.0, 700.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.advance(seconds)

    def name(self, which: int) -> str:
        return f"w{which % (WAITING + self.count)}"


TestWaiting = Waiting.TestCase
TestWaiting.settings = settings(
    max_examples=examples(40), stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
