"""Properties of every decision, on any cluster."""

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.domain.model.reasons import Reason, Verdict
from extender.domain.scheduling.decide import decide
from extender.domain.snapshot.wholeness import missing_of
from tests.domain.builders import anti_affinity, foreign_pod, group, node, pod, queue
from tests.domain.world import World, comparable, gang, timestamp
from tests.property_examples import examples

SIZES = ("250m", "1", "2", "3")
FEW = settings(max_examples=examples(25))


@st.composite
def clusters(draw: st.DrawFn, running: bool = True) -> World:
    """Draw some nodes, queues with unusual limits, and gangs of all kinds in all states."""
    world = World()
    for n in range(draw(st.integers(1, 4))):
        world.add(
            node(
                f"n{n}", cpu=draw(st.sampled_from(["1", "2", "4"])), pods=draw(st.sampled_from(["3", "110"]))
            )
        )
    for n in range(draw(st.integers(1, 3))):
        capability = draw(st.sampled_from([None, {"cpu": "2"}, {"cpu": "5"}]))
        strategy = draw(st.sampled_from(["", "fifo", "traverse"]))
        world.add(queue(f"q{n}", draw(st.integers(1, 4)), capability, strategy=strategy))
    for n in range(draw(st.integers(1, 6))):
        _add_gang(draw, world, f"g{n}", running)
    if draw(st.booleans()):
        world.add(foreign_pod("stranger", on="n0"))
    return world


def _add_gang(draw: st.DrawFn, world: World, name: str, running: bool) -> None:
    members = draw(st.integers(1, 4))
    needed = draw(st.integers(0, members + 1))
    kind: dict[str, Any] = (
        {"labels": {"app": name}, "affinity": anti_affinity(app=name)} if draw(st.booleans()) else {}
    )
    world.add(group(name, needed, queue=f"q{draw(st.integers(0, 3))}", stood_whole=draw(st.booleans())))
    for n in range(members):
        on = draw(st.sampled_from(["", "", "", "n0"])) if running else ""
        world.add(pod(f"{name}-{n}", name, cpu=draw(st.sampled_from(SIZES)), on=on, **kind))


def planned(world: World) -> Counter[tuple[str, str]]:
    """Return the capacity that plans take, by node and resource."""
    sums: Counter[tuple[str, str]] = Counter()
    for decision in world.decisions.groups.values():
        for uid, node_ in decision.plan.items():
            record = world.ledger.pods.get(uid)
            assert record is not None
            sums.update({(node_, name): amount for name, amount in record.shape.requests.items()})
    return sums


@FEW
@given(clusters())
def test_plans_never_take_more_than_there_is(world: World) -> None:
    world.settle()
    snapshot = world.ledger.snapshot()
    for (name, resource), amount in planned(world).items():
        row, column = snapshot.nodes.row[name], snapshot.dimensions.index(resource)
        assert amount <= snapshot.capacity[row, column]


@FEW
@given(clusters())
def test_plans_never_take_a_queue_above_its_ceiling(world: World) -> None:
    """Ignore ceilings as high as all nodes that are no capability: there the nodes limit the queue."""
    world.settle()
    snapshot = world.ledger.snapshot()
    for decision in world.decisions.queues.values():
        sums = Counter(decision.allocated)
        planned_ = [
            each for each in world.decisions.groups.values() if each.queue == decision.name and each.plan
        ]
        started_before = any(snapshot.groups[each.key].placed for each in planned_)
        for each in planned_:
            for uid in each.plan:
                record = world.ledger.pods.get(uid)
                assert record is not None
                sums.update(record.shape.requests)
        capability = snapshot.queues[decision.name].record.capability or {}
        for name, most in capability.items() if planned_ and not started_before else ():
            assert sums[name] <= most


@FEW
@given(clusters())
def test_a_gang_is_planned_whole_or_not_at_all(world: World) -> None:
    decisions = decide(world.ledger.snapshot())
    for key, view in world.ledger.snapshot().groups.items():
        decision = decisions.groups[key]
        wanted = missing_of(view, fitting=decision.plan)
        if decision.verdict is Verdict.STARTING and view.min_member and not view.placed:
            assert decision.plan.keys() == {member.uid for member in wanted.members}
        if decision.verdict is Verdict.WAITING:
            assert not decision.plan


@FEW
@given(clusters())
def test_every_group_has_a_verdict_and_a_reason_while_it_waits(world: World) -> None:
    snapshot = world.ledger.snapshot()
    decisions = decide(snapshot)
    assert decisions.groups.keys() == snapshot.groups.keys()
    for decision in decisions.groups.values():
        assert decision.verdict is not Verdict.WAITING or decision.reason is not None
        assert not decision.undo, "nothing is undone before its deadline"


@FEW
@given(clusters())
def test_equal_snapshots_have_equal_decisions(world: World) -> None:
    snapshot = world.ledger.snapshot()
    first = decide(snapshot)
    assert decide(snapshot) == first
    assert comparable(decide(snapshot, first)) == comparable(first)
    world.ledger.publish(first)
    later = world.ledger.snapshot()
    assert comparable(decide(later, first)) == comparable(decide(later, None))


@FEW
@given(clusters())
def test_a_world_at_rest_settles_and_stays(world: World) -> None:
    """World.settle fails if decisions go round in circles."""
    world.settle()
    before = world.decisions
    world.settle()
    assert world.decisions.groups == before.groups


def started(cpus: list[int], gangs: list[int], **spec: Any) -> set[str]:
    """Return the gangs of one queue that start; members of one cpu each."""
    world = World([node(f"n{n}", cpu=str(cpu)) for n, cpu in enumerate(cpus)], queue("q", **spec))
    names = [f"g{n}" for n in range(len(gangs))]
    for n, (name, members) in enumerate(zip(names, gangs, strict=True)):
        world.add(gang(name, members, queue="q", created=timestamp(n)))
    world.settle()
    return {name for name in names if world.verdict(name) is Verdict.STARTING}


cpus = st.lists(st.integers(1, 4), min_size=1, max_size=5)
sizes = st.lists(st.integers(1, 4), min_size=1, max_size=8)
capabilities = st.sampled_from([None, {"cpu": "3"}, {"cpu": "6"}])


@FEW
@given(cpus, cpus, st.integers(1, 4), st.integers(1, 8), capabilities)
def test_more_nodes_never_start_fewer_equal_gangs(
    few: list[int], more: list[int], members: int, count: int, capability: Any
) -> None:
    """Compare gangs of one size: otherwise a large one may take the capacity of several small ones."""
    gangs = [members] * count
    assert started(few, gangs, capability=capability) <= started(few + more, gangs, capability=capability)


@FEW
@given(cpus, cpus, sizes, capabilities)
def test_more_nodes_never_start_fewer_gangs_in_strict_order(
    few: list[int], more: list[int], gangs: list[int], capability: Any
) -> None:
    """Compare gangs of any size where none passes the first one.

    Gangs that no node holds are no obstacle: with more nodes they are, so here all of them fit.
    """
    few = [*few, max(gangs)]
    fifo: dict[str, Any] = {"strategy": "fifo", "capability": capability and {"cpu": "6"}}
    assert started(few, gangs, **fifo) <= started(few + more, gangs, **fifo)


kinds: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{}, {"host_port": 80}, {"labels": {"app": "x"}, "affinity": anti_affinity(app="x")}]
)


@FEW
@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from([("1", 4), ("2", 2), ("4", 1)]),
    kinds,
    st.integers(0, 9),
)
def test_no_group_starves_on_an_idle_cluster(
    nodes: int, members: int, size: tuple[str, int], kind: dict[str, Any], weight: int
) -> None:
    """One group waits, fits, and its queue is open: it starts, however small its queue's weight."""
    cpu, on_one_node = size
    fits = members <= nodes * (1 if kind else on_one_node)
    world = World([node(f"n{n}", cpu="4") for n in range(nodes)], queue("small", weight=1))
    world.add(
        queue("large", weight=1000 * weight + 1), gang("g", members, queue="small", cpu=cpu, **kind)
    ).settle()
    assert (world.verdict("g") is Verdict.STARTING) is fits
    assert fits or world.reason("g") is Reason.NEVER_FITS


@FEW
@given(clusters(running=False), st.randoms(use_true_random=False))
def test_every_group_that_may_start_starts_and_all_end(world: World, dice: Any) -> None:
    """Run everything to its end: in each round a group starts, or all that are left have a reason to wait."""
    lasting = {Reason.NEVER_FITS, Reason.NOT_ENOUGH_MEMBERS, Reason.QUEUE_NOT_FOUND}
    for number in range(40):
        if number == 1 and "stranger" in world.pods:
            world.delete("stranger")
        world.settle()
        ready = sorted(name for name in world.pods if any(name in plan for plan in _plans(world)))
        if not ready and number:
            break
        for name in ready:
            world.bind(name, next(plan[name] for plan in _plans(world) if name in plan))
            world.run(name)
        dice.shuffle(ready)
        world.finish(*ready)
    waiting = [each for each in world.decisions.groups.values() if each.verdict is Verdict.WAITING]
    behind = {Reason.BEHIND_OTHERS} if any(each.reason in lasting for each in waiting) else set()
    # Elastic members are not compared with the empty cluster, so those that never fit have other reasons.
    elastic = {key for key, view in world.ledger.snapshot().groups.items() if not view.min_member}
    never = {Reason.NO_ROOM, Reason.QUEUE_CEILING}
    evaluated = [each for each in waiting if each.key not in elastic or each.reason not in never]
    assert {each.reason for each in evaluated} <= lasting | behind


def _plans(world: World) -> list[dict[str, str]]:
    names = {each.metadata.uid: name for name, each in world.pods.items()}
    return [
        {names[uid]: node_ for uid, node_ in decision.plan.items()}
        for decision in world.decisions.groups.values()
    ]
