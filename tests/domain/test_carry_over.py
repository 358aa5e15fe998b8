"""Carrying over: what is decided without a round is what a round would decide."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from extender.api import keys
from extender.api.objects.queues import QueueFlavor, QueueLimits, RunningLimit
from extender.domain.model.reasons import Reason
from extender.domain.scheduling.decide import decide
from extender.domain.scheduling.incremental import carry_over
from extender.domain.scheduling.memory import memory_of
from extender.domain.snapshot.decisions import Decisions
from tests.domain.builders import apart, flavor, group, node, on_flavor, pod, queue, stranger
from tests.domain.decided_twice import DecidedTwice
from tests.domain.world import World, comparable, gang, key, timestamp
from tests.property_examples import examples

NODES = tuple(f"n{n}" for n in range(3))
STRANGERS = tuple(f"s{n}" for n in range(6))
GANGS = tuple(f"g{n}" for n in range(6))
FLAVORS = (flavor("spot", {"cpu": "20"}), flavor("ondemand"))


def full_cluster() -> World:
    """Nodes of 4 cpu with 1 left on each; a gang at rest, and gangs of one and of two shapes that wait."""
    world = World([node(name, cpu="4") for name in NODES], queue("q"), queue("r"))
    then: dict[str, Any] = {"created": timestamp(1000)}
    world.add([gang("done", 1, queue="q", cpu="100m", **then)]).settle().start("done")
    world.add([stranger(f"old-{name}", on=name, cpu="2900m") for name in NODES])
    world.add(gang("one", 2, queue="q", cpu="2", **then), gang("same", 2, queue="r", cpu="2", **then))
    world.add(group("two", 3, queue="r", **then), pod("driver", "two", cpu="500m", **then))
    world.add([pod(f"worker-{n}", "two", cpu="2500m", **then) for n in range(2)])
    return world.settle()


def carried(world: World) -> Decisions | None:
    """What is decided on the world without a round, if that can be."""
    before = world.decisions
    memory = memory_of(before)
    assert memory is not None
    return carry_over(world.ledger.snapshot(), before, memory)


@pytest.mark.parametrize(
    "event",
    [
        lambda world: world.add(stranger("s", on="n0", cpu="100m")),
        lambda world: world.add(stranger("s", on="n0", cpu="900m")),
        lambda world: world.add(stranger("s", on="n0", cpu="3")),
        lambda world: world.delete("old-n1").add(stranger("s", on="n1", cpu="2500m")),
        lambda world: world.mark_deleted("done-0"),
    ],
    ids=[
        "a little less room",
        "less room for some",
        "no room at all",
        "more room",
        "a member at rest is going",
    ],
)
def test_an_event_that_starts_nothing_is_no_round(event: Callable[[World], object]) -> None:
    world = full_cluster()
    event(world)
    decisions = carried(world)
    assert decisions is not None
    assert comparable(decisions) == comparable(decide(world.ledger.snapshot(), None))


@pytest.mark.parametrize(
    "event",
    [
        lambda world: world.delete("old-n1"),
        lambda world: world.add(gang("new", 2, cpu="2")),
        lambda world: world.delete("one-0"),
        lambda world: world.finish("done-0"),
        lambda world: world.add(queue("q", weight=3)),
        lambda world: world.add(node("n3", cpu="4")),
        lambda world: world.add(node("n0", cpu="4", cordoned=True)),
        lambda world: world.advance(10_000),
    ],
    ids=[
        "enough room",
        "a gang comes",
        "a member goes",
        "a gang ends",
        "a queue",
        "a node",
        "a cordon",
        "time",
    ],
)
def test_whatever_may_change_a_decision_is_a_round(event: Callable[[World], object]) -> None:
    world = full_cluster()
    event(world)
    assert carried(world) is None


def divided_cluster() -> World:
    """A full node of each flavor, with half a cpu left, and a gang of two that finds room on neither."""
    world = World(queue("q", flavors=FLAVORS), node("old", cpu="4"))
    for kind in ("spot", "ondemand"):
        world.add(node(kind, cpu="400", labels=on_flavor(kind)), stranger(f"s-{kind}", on=kind, cpu="398.5"))
    return world.add(gang("g", 2, queue="q")).settle()


@pytest.mark.parametrize(
    ("event", "is_carried"),
    [
        (lambda world: world.add(stranger("s", on="old", cpu="1")), True),
        (lambda world: world.add(stranger("s", on="spot", cpu="100m")), False),
        (lambda world: world.delete("s-ondemand"), False),
    ],
    ids=["on a node of no flavor", "other numbers", "enough room"],
)
def test_what_lacks_room_on_several_flavors_is_carried_over_while_it_reads_alike(
    event: Callable[[World], object], is_carried: bool
) -> None:
    world = divided_cluster()
    assert world.reason("g") is Reason.NO_ROOM
    event(world)
    decisions = carried(world)
    assert (decisions is not None) is is_carried
    if decisions is not None:
        assert comparable(decisions) == comparable(decide(world.ledger.snapshot(), None))


def test_numbers_follow_events() -> None:
    world = full_cluster()
    assert world.reason("two") is Reason.NO_ROOM
    before = world.detail("two")
    world.add(stranger("s", on="n0", cpu="900m")).settle()
    assert world.detail("two") != before
    assert world.detail("two") == comparable(decide(world.ledger.snapshot())).groups[key("two")].detail


def test_a_chain_of_events_ends_where_a_round_would() -> None:
    """The totals that one carries over are those that the next starts from, and a round after them."""
    world = full_cluster()
    for number in range(5):
        world.add(stranger(f"s{number}", on=NODES[number % 3], cpu="200m")).settle()
        assert comparable(world.decisions) == comparable(decide(world.ledger.snapshot(), None))
    world.delete(*(f"s{number}" for number in range(5))).delete("old-n0", "old-n1").settle()
    assert comparable(world.decisions) == comparable(decide(world.ledger.snapshot(), world.decisions))
    assert world.plan("same")


class Events(DecidedTwice):
    """Any events on a cluster that is nearly full."""

    @initialize()
    def begin(self) -> None:
        self.world = full_cluster()

    @rule(name=st.sampled_from(STRANGERS), on=st.sampled_from(NODES), cpu=st.sampled_from(["0.1", "1", "3"]))
    def stranger_comes(self, name: str, on: str, cpu: str) -> None:
        if name not in self.world.pods:
            self.world.add(stranger(name, on=on, cpu=cpu))

    @rule(data=st.data())
    def stranger_goes(self, data: st.DataObject) -> None:
        there = sorted(name for name in self.world.pods if name.startswith(("s", "old")))
        there = [name for name in there if not name.startswith("same")]
        if there:
            self.world.delete(data.draw(st.sampled_from(there)))

    @rule(name=st.sampled_from(STRANGERS), on=st.sampled_from(NODES))
    def stranger_keeps_others_out(self, name: str, on: str) -> None:
        if name not in self.world.pods:
            self.world.add(stranger(name, on=on, cpu="0.1", labels={"app": "x"}))

    @rule(
        name=st.sampled_from(GANGS),
        members=st.integers(1, 3),
        needed=st.integers(1, 3),
        cpu=st.sampled_from(["0.5", "1", "2", "5"]),
        where=st.sampled_from(["q", "r", ""]),
        is_apart=st.booleans(),
        priority=st.sampled_from([0, 0, 3, 5]),
        hours=st.integers(0, 5),
    )
    def gang_comes(
        self,
        name: str,
        members: int,
        needed: int,
        cpu: str,
        where: str,
        is_apart: bool,
        priority: int,
        hours: int,
    ) -> None:
        if f"{name}-0" not in self.world.pods:
            kind: dict[str, Any] = {"labels": {"app": "x"}, "affinity": apart(app="x")} if is_apart else {}
            kind |= {"priority": priority, "created": timestamp(1000 - 3600.0 * hours)}
            self.world.add(gang(name, members, min(needed, members), queue=where, cpu=cpu, **kind))

    @rule(data=st.data())
    def plans_are_followed(self, data: st.DataObject) -> None:
        planned = sorted(name for each in GANGS if self._is_decided(each) for name in self.world.plan(each))
        for name in planned[: data.draw(st.integers(0, 3))]:
            self.world.bind(name, self.world.plan(name.rsplit("-", 1)[0])[name])
            self.world.run(name)

    @rule(data=st.data())
    def members_end(self, data: st.DataObject) -> None:
        bound = sorted(
            name for name, each in self.world.pods.items() if name[0] == "g" and each.spec.node_name
        )
        if bound:
            self.world.finish(data.draw(st.sampled_from(bound)))

    @rule(
        name=st.sampled_from(NODES),
        cpu=st.sampled_from(["3", "4", "8"]),
        cordoned=st.booleans(),
        kind=st.sampled_from(["spot", "ondemand"]),
    )
    def node_changes(self, name: str, cpu: str, cordoned: bool, kind: str) -> None:
        self.world.add(node(name, cpu=cpu, cordoned=cordoned, labels=on_flavor(kind)))

    @rule(
        name=st.sampled_from(["q", "r"]),
        weight=st.integers(1, 3),
        cpu=st.sampled_from(["1", "4", "20"]),
        strategy=st.sampled_from(["traverse", "fifo", "priority", "rotation", "mixed"]),
        ageing=st.sampled_from([0, 0, 8]),
        stop=st.sampled_from(["", "", "", "Hold", "HoldAndDrain"]),
        flavors=st.sampled_from([(), (), FLAVORS, FLAVORS[:1]]),
        limits=st.sampled_from(
            [None, None, QueueLimits(groups=1), QueueLimits(per_user=RunningLimit(pods=2))]
        ),
    )
    def queue_changes(
        self,
        name: str,
        weight: int,
        cpu: str,
        strategy: str,
        ageing: int,
        stop: str,
        flavors: tuple[QueueFlavor, ...],
        limits: QueueLimits | None,
    ) -> None:
        policies: dict[str, Any] = {"ageing": ageing, "stop_policy": stop, "limits": limits}
        policies["flavors"] = flavors
        self.world.add(queue(name, weight=weight, capability={"cpu": cpu}, strategy=strategy, **policies))

    @rule(name=st.sampled_from(GANGS), where=st.sampled_from(["q", "r"]), is_held=st.booleans())
    def group_is_held_or_resumed(self, name: str, where: str, is_held: bool) -> None:
        notes = {keys.HOLD: "true"} if is_held else {}
        self.world.add(group(name, 1, queue=where, created=timestamp(1000), annotations=notes))

    @rule(data=st.data())
    def scheduler_refuses(self, data: st.DataObject) -> None:
        waiting = sorted(
            name for name, each in self.world.pods.items() if name[0] == "g" and not each.spec.node_name
        )
        if waiting:
            name = data.draw(st.sampled_from(waiting))
            self.world.ungate(name).refuse(name)

    @rule(seconds=st.sampled_from([0.1, 5.0, 700.0, 3600.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.advance(seconds)

    def _is_decided(self, gang: str) -> bool:
        return key(gang) in self.world.decisions.groups


TestEvents = Events.TestCase
TestEvents.settings = settings(
    max_examples=examples(60), stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
