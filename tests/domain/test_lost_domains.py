"""Gangs whose domain lacks capacity for lost members: they wait, or restart elsewhere as a whole."""

from itertools import count, pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from extender.api import keys
from extender.domain.model.evictions import EvictionCause
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.scheduling.decide import decide
from extender.domain.snapshot.job_start_and_suspension import JobStep
from tests.domain.builders import budget, node, pod, queue
from tests.domain.job_world import JobWorld, job, podgroup_name
from tests.domain.test_topology import IN_A_RACK, RACK, racks, slices
from tests.domain.world import LIMITS, World, gang
from tests.rows import each_of

RESTART, WAIT = {keys.ON_LOST_DOMAIN: keys.RESTART}, {keys.ON_LOST_DOMAIN: keys.WAIT}
NUMBERS = count()
GRACE, HOUR = LIMITS.lost_domain_grace, LIMITS.reclaim_memory
MADE: dict[str, Any] = {"cpu": "4", "owner": "rs"}


def running(notes: dict[str, str] = IN_A_RACK | RESTART, **more: Any) -> World:
    """Return a world with a gang of two that fills rack a; a controller makes its pods. Rack b is empty."""
    world = World(*racks(a=2), gang("g", 2, notes=notes, **MADE, **more)).start("g")
    world.pass_time(60)
    return world.add(*racks(b=2))


def lose(world: World, *names: str, **more: Any) -> World:
    """Lose members with their nodes; their controller makes others of the same names."""
    for name in names:
        world.drop_node(world.pods[name].spec.node_name)
    return remake(world, *names, **more)


def remake(world: World, *names: str, **more: Any) -> World:
    pods = (pod(name, "g", uid=f"{name}-{next(NUMBERS)}", **MADE, **more) for name in names)
    world.delete(*names).add(*pods)
    return world.settle()


def evicted(world: World) -> set[str]:
    return {each.victim.name for each in world.decisions.evictions.values()}


def test_a_gang_restarts_as_a_whole_where_its_owner_asks_for_it() -> None:
    world = lose(running(), "g-1")
    assert world.reason("g") is Reason.NO_DOMAIN
    assert world.detail("g").endswith(
        "for 0 of 1 members; it restarts elsewhere from 2026-01-01T00:18:40Z on"
    )
    world.pass_time(GRACE - 1)
    assert not evicted(world)
    world.pass_time(2)
    assert evicted(world) == {"g-0"}
    assert {each.victim.cause for each in world.decisions.evictions.values()} == {EvictionCause.RESTART}
    assert (world.verdict("g"), world.reason("g")) == (Verdict.RUNNING, Reason.NO_DOMAIN)
    assert world.detail("g").startswith(f"it restarts elsewhere as a whole: {RACK}=a has other members")
    remake(world, "g-0")
    assert set(world.plan("g").values()) == {"b0", "b1"}
    assert not evicted(world.start("g"))


@each_of(
    (IN_A_RACK, {}, False),
    (IN_A_RACK | WAIT, RESTART, False),  # that of the PodGroup comes first
    (IN_A_RACK, RESTART, True),
    (RESTART, IN_A_RACK, True),
    (RESTART, slices(2), True),
    (RESTART, {keys.PREFERRED_TOPOLOGY: RACK}, False),  # the member starts elsewhere alone
)
def test_annotations_of_podgroups_and_pods(
    of_group: dict[str, str], of_pods: dict[str, str], restarts: bool
) -> None:
    world = lose(running(of_group, annotations=of_pods), "g-1", annotations=of_pods)
    world.pass_time(GRACE + 1)
    assert bool(evicted(world)) is restarts


def test_a_job_is_suspended_and_starts_elsewhere() -> None:
    world = JobWorld(*racks(a=2))
    world.submit(job("train", 2, cpu="4", annotations=IN_A_RACK | RESTART)).run_whole("train").work()
    world.pass_time(60)
    world.add(*racks(b=2)).drop_node(world.pods["train-1"].spec.node_name)
    world.delete("train-1").work()
    assert world.reason(podgroup_name("train")) is Reason.NO_DOMAIN
    world.pass_time(GRACE + 1)
    world.work()
    assert ("train", JobStep.SUSPEND_FOR_OTHERS) in world.steps
    plan = world.plan(podgroup_name("train"))
    assert (len(plan), set(plan.values())) == (2, {"b0", "b1"})


def test_no_member_is_evicted_before_a_domain_has_capacity_for_all() -> None:
    world = running().add(pod("x", on="b0", cpu="1"))
    lose(world, "g-1").pass_time(GRACE + 1)
    assert not evicted(world)
    assert world.detail("g").endswith("once a domain has capacity for all its members")
    world.finish("x").settle()
    assert evicted(world) == {"g-0"}


def test_a_node_that_returns_within_the_grace_period_gets_the_replacement() -> None:
    world = lose(running(), "g-1")
    (rest,) = {"a0", "a1"} - {world.pods["g-0"].spec.node_name}
    world.pass_time(GRACE / 2)
    world.add(node(rest, "4", labels={RACK: "a"})).settle()
    assert set(world.plan("g").values()) == {rest}
    world.start("g").pass_time(GRACE)
    assert not evicted(world)


@each_of(
    ({}, "disruption budget team/b", True),
    ({"owner": ""}, "some of its pods would not be created again", False),
)
def test_a_gang_that_may_not_go_says_why(pods: dict[str, str], reported: str, has_budget: bool) -> None:
    facts = MADE | pods
    world = World(*racks(a=2), gang("g", 2, notes=IN_A_RACK | RESTART, labels={"app": "x"}, **facts)).start(
        "g"
    )
    world.pass_time(60)
    world.add(*racks(b=2), *([budget("b", 0, app="x")] if has_budget else []))
    lose(world, "g-1").pass_time(GRACE + 1)
    assert not evicted(world)
    assert reported in world.detail("g")


def test_the_capacity_elsewhere_is_reserved_until_the_members_are_back() -> None:
    world = lose(running(), "g-1")
    world.pass_time(GRACE + 1)
    world.mark_deleted("g-0", grace=30.0)
    world.add(gang("other", 2, cpu="4", created="2025-01-01T00:00:00Z")).settle()
    assert world.verdict("other") is Verdict.WAITING
    remake(world, "g-0")
    assert set(world.plan("g").values()) == {"b0", "b1"}


def test_a_refused_eviction_is_repeated_and_no_member_joins_until_it_succeeds() -> None:
    world = World(*racks(a=3), gang("g", 3, notes=IN_A_RACK | RESTART, **MADE)).start("g")
    world.pass_time(60)
    lose(world.add(*racks(b=3)), "g-2").pass_time(GRACE + 1)
    assert evicted(world) == {"g-0", "g-1"}
    remake(world, "g-1")
    assert evicted(world) == {"g-0"}
    assert not world.plan("g")
    world.pass_time(LIMITS.reclaim_deadline)
    assert not evicted(world)


def test_restarts_of_one_gang_come_in_growing_intervals() -> None:
    world, at = running(), list[float]()
    for number, rack in enumerate("cdef"):
        world.add(*racks(**{rack: 2}))
        lose(world, "g-1")
        while not evicted(world):
            world.pass_time(GRACE)
        at.append(world.now)
        remake(world, "g-0").start("g")
        assert number or world.ledger.registry.group(world.decision("g").key).restart_count == 1
    pauses = [later - before for before, later in pairwise(at)]
    assert [round(pause / HOUR) for pause in pauses] == [1, 2, 4]


def test_a_stopped_queue_keeps_the_gang_where_it_is() -> None:
    world = World(*racks(a=2), queue("q"), gang("g", 2, queue="q", notes=IN_A_RACK | RESTART, **MADE))
    world.start("g").pass_time(60)
    world.add(*racks(b=2), queue("q", stop_policy="Hold"))
    lose(world, "g-1").pass_time(GRACE + 1)
    assert not evicted(world)
    assert "stopPolicy of queue q is Hold" in world.detail("g")


STEPS = "lose", "lose", "return", "use", "free", "wait", "wait", "rest"


@given(steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 5)), max_size=16))
def test_each_gang_that_is_evicted_starts_at_once_in_one_rack(steps: list[tuple[str, int]]) -> None:
    """Nodes are lost, used by others and return in any order; decisions do not depend on earlier ones."""
    world, names = lose(running().add(*racks(c=2)), "g-1"), [f"{rack}{n}" for rack in "abc" for n in range(2)]
    for step, number in steps:
        change(world, step, names[number])
        snapshot = world.ledger.snapshot()
        assert decide(snapshot).groups == decide(snapshot, world.decisions).groups
        if going := evicted(world):
            assert going == {
                name for name, pod in world.pods.items() if pod.spec.node_name and name[0] == "g"
            }
            remake(world, *going)
            assert len(world.plan("g")) == 2
        if world.plan("g"):
            world.start("g")
            assert len({world.pods[f"g-{n}"].spec.node_name[:1] for n in (0, 1)} - {""}) == 1


def change(world: World, step: str, name: str) -> None:
    """Make one change of a node, or let time pass."""
    on_node = [pod for pod, obj in world.pods.items() if obj.spec.node_name == name]
    if step == "lose" and name in world.nodes:
        world.delete(*(pod for pod in on_node if pod[0] == "x"))
        lost = [pod for pod in on_node if pod[0] == "g"]
        world.drop_node(name)
        remake(world, *lost)
    elif step == "return":
        world.add(node(name, "4", labels={RACK: name[0]}))
    elif step == "use" and name in world.nodes and not on_node:
        world.add(pod(f"x-{name}", on=name, cpu="1"))
    elif step == "free":
        world.delete(*(pod for pod in on_node if pod[0] == "x"))
    world.settle().pass_time({"wait": GRACE + 1, "rest": HOUR}.get(step, 0.0))


def test_each_of_many_groups_has_its_turn() -> None:
    """Nine gangs of three fit nowhere else; the gang of two fits into rack b, and may be the last one."""
    names = [f"f{n}" for n in range(9)]
    world = running()
    for name in names:
        world.add(*racks(**{name: 3}), gang(name, 3, notes=IN_A_RACK | RESTART, **MADE)).start(name)
    world.pass_time(60)
    for name in names:
        world.drop_node(world.pods[f"{name}-2"].spec.node_name)
        world.delete(f"{name}-2").add(pod(f"{name}-2", name, uid=f"{name}-{next(NUMBERS)}", **MADE))
    lose(world, "g-1").pass_time(GRACE + 1)
    for _ in range(3):
        if not evicted(world):
            world.pass_time(1)
    assert evicted(world) == {"g-0"}
