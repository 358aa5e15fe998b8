"""Properties of every decision with flavors, on any cluster."""

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.api.objects.queues import QueueFlavor
from extender.domain.model.reasons import Verdict
from extender.domain.model.records import GroupKey, Uid
from extender.domain.model.selectors import NodePart
from extender.domain.queues.flavors import flavor_on
from extender.domain.snapshot.snapshot import Snapshot
from tests.domain.builders import flavor, group, node, on_flavor, pod, queue
from tests.domain.world import World, gang
from tests.property_examples import examples

KINDS = ("spot", "ondemand", "gpu")
FEW = settings(max_examples=examples(25))
some_kind = st.sampled_from((*KINDS, "none"))
some_amount = st.sampled_from([None, {"cpu": "0"}, {"cpu": "2"}, {"cpu": "5"}, {"pods": "2"}])


@st.composite
def clusters(draw: st.DrawFn) -> World:
    """Draw nodes of some kinds, queues and gangs with roles in all states.

    Queues have flavors in any order, or none, and may be below another queue.
    """
    world = World()
    for n in range(draw(st.integers(1, 5))):
        kind, cpu = draw(some_kind), draw(st.sampled_from(["1", "2", "4"]))
        world.add(node(f"n{n}", cpu=cpu, labels=on_flavor(kind)))
    for name in ("p", "q0", "q1"):
        kinds = draw(st.lists(st.sampled_from(KINDS), unique=True, max_size=3))
        flavors = [flavor(kind, draw(some_amount), draw(some_amount)) for kind in kinds]
        flavors += draw(st.sampled_from([[], [QueueFlavor("rest", None, {"cpu": "2"})]]))
        parent = draw(st.sampled_from(["", "p"])) if name != "p" else ""
        world.add(queue(name, draw(st.integers(1, 3)), flavors=flavors, parent=parent))
    for n in range(draw(st.integers(1, 6))):
        _add_gang(draw, world, f"g{n}")
    return world


def _add_gang(draw: st.DrawFn, world: World, name: str) -> None:
    roles = draw(st.sampled_from([{}, {"a": 1}, {"a": 1, "b": 1}, {"a": 2, "b": 1}]))
    spare, needed = draw(st.integers(0, 2)), sum(roles.values()) + draw(st.integers(0, 1))
    world.add(group(name, needed, queue=f"q{draw(st.integers(0, 1))}", roles=roles))
    names = [role for role, n in roles.items() for _ in range(n)] + ["c"] * (
        needed + spare - sum(roles.values())
    )
    wish: dict[str, Any] = draw(st.sampled_from([{}, {}, {"selector": on_flavor("spot")}]))
    for n, role in enumerate(names):
        cpu = draw(st.sampled_from(["1", "1", "2"]))
        world.add(pod(f"{name}-{n}", name, cpu=cpu, role=role, **wish))


@st.composite
def running(draw: st.DrawFn) -> World:
    """Draw the same clusters after some starts and ends."""
    world = draw(clusters()).settle()
    for key, decision in list(world.decisions.groups.items()):
        if decision.verdict is Verdict.STARTING and draw(st.booleans()):
            world.start(key.partition("/")[2])
    bound = [name for name, each in world.pods.items() if each.spec.node_name]
    lost = draw(st.lists(st.sampled_from(bound), unique=True)) if bound else []
    for name in lost:
        world.finish(name, phase=draw(st.sampled_from(["Failed", "Succeeded"])))
        if draw(st.booleans()):
            record = world.ledger.pods.get(Uid(world.pods[name].metadata.uid))
            assert record is not None
            world.add(pod(f"{name}-again", record.group.partition("/")[2], role=record.role))
    return world


def placed(snapshot: Snapshot, world: World) -> dict[GroupKey, list[tuple[Any, str]]]:
    """Return by group its pods on nodes, and its planned pods, with their nodes."""
    found = {}
    for key, view in snapshot.groups.items():
        plan = world.decisions.groups[key].plan
        placements = [(each, each.node) for each in view.placed_pods if each.holds_capacity]
        placements += [(each, where) for each, where in view.assumed_pods]
        found[key] = placements + [(each, plan[each.uid]) for each in view.waiting_pods if each.uid in plan]
    return found


def labels_of(snapshot: Snapshot, name: str) -> Any:
    record = snapshot.nodes.nodes[snapshot.nodes.row_of[name]]
    assert record is not None
    return record.labels


@FEW
@given(running())
def test_no_queue_holds_more_of_a_flavor_than_it_may(world: World) -> None:
    """Count queues below that use the same flavor, too."""
    snapshot = world.settle().ledger.snapshot()
    held: Counter[tuple[str, NodePart, str]] = Counter()
    for key, pods in placed(snapshot, world).items():
        name = snapshot.groups[key].queue
        view = snapshot.queues[name]
        for each, where in pods:
            used = flavor_on(view.flavors, labels_of(snapshot, where))
            assert used is not None or not view.flavors
            if used:
                for resource, amount in each.shape.requests.items():
                    for queue_name in {name, view.record.parent}:
                        held[queue_name, used.nodes if used else NodePart(()), resource] += amount
    for name, view in snapshot.queues.items():
        for each in view.record.flavors:
            for resource, most in each.amounts.get("capability", {}).items():
                assert held[name, each.nodes, resource] <= most


@FEW
@given(running())
def test_a_role_is_never_on_two_flavors(world: World) -> None:
    snapshot = world.settle().ledger.snapshot()
    for key, pods in placed(snapshot, world).items():
        view, used = snapshot.groups[key], dict[str, set[str]]()
        flavors = snapshot.queues[view.queue].flavors
        for each, where in pods:
            role = each.role if each.role in view.min_task_member else ""
            found = flavor_on(flavors, labels_of(snapshot, where))
            used.setdefault(role, set()).add(found.name if found else "")
        assert all(len(names) == 1 for names in used.values())


@FEW
@given(running())
def test_usage_of_flavors_equals_a_recount(world: World) -> None:
    """Compare the sums to a recount, whichever flavors the group's own queue names."""
    snapshot = world.settle().ledger.snapshot()
    held: Counter[tuple[str, str, str]] = Counter()
    for view in snapshot.groups.values():
        placements = [(each, each.node) for each in view.placed_pods if each.holds_capacity] + list(
            view.assumed_pods
        )
        for each, where in placements:
            for pool in snapshot.pools.all_pools:
                if pool.nodes.has(labels_of(snapshot, where)):
                    for resource, amount in each.shape.requests.items():
                        held[view.queue, pool.name, resource] += amount
    shown = {
        (name, each, resource): amount
        for name, queue_view in snapshot.queues.items()
        for each, amounts in queue_view.amounts_by_pool.items()
        for resource, amount in amounts.items()
    }
    assert shown == dict(held)


@FEW
@given(clusters(), st.lists(st.tuples(st.text(max_size=70), st.text(max_size=9)), max_size=40))
def test_hostile_flavors_affect_only_their_queue(world: World, written: list[tuple[str, str]]) -> None:
    """Many flavors, with any names and amounts: its groups wait or start, and so do those of the others."""
    hostile = [QueueFlavor(name, {name: amount}, {"cpu": amount}) for name, amount in written]
    world.add(queue("q1", flavors=hostile)).settle()
    assert not any(decision.fault for decision in world.decisions.groups.values())


def test_capacity_that_becomes_free_after_a_trial_placement_is_noticed() -> None:
    """Requeue g3, which read the capacity before a trial placement of g4 took and freed it.

    The trial was in the cycle before.
    """
    spot = on_flavor("spot")
    flavors = [flavor("spot", {"cpu": "0"}), flavor("ondemand"), flavor("gpu")]
    world = World(*(node(f"n{n}", cpu=cpu, labels=spot) for n, cpu in enumerate("112")))
    world.add(queue("q0", flavors=flavors), queue("q1"), group("g1", 0, queue="q0"))
    world.add(gang("g0", 2, queue="q1"), gang("g2", 1, queue="q1"))
    world.add(group("g3", 2, queue="q1", roles={"a": 1}), pod("g3-0", "g3", role="a"), pod("g3-1", "g3"))
    world.add(group("g4", 2, queue="q0", roles={"a": 1, "b": 1}), pod("g4-0", "g4", role="a"))
    world.add(pod("g4-1", "g4", role="b"), pod("g4-2", "g4", cpu="2")).settle()
    world.start("g2").finish("g2-0", phase="Failed").settle()
    assert world.plan("g3") == {"g3-0": "n2", "g3-1": "n2"}
