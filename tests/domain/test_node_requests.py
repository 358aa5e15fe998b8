"""Pods that ask for nodes stay within what their queue and those above it may still use, in its order."""

from typing import Any

from extender.api.objects.queues import QueueLimits, RunningLimit
from extender.domain.scheduling.decide import decide
from extender.domain.snapshot.decisions import ConditionPolicy
from tests.domain.builders import foreign_pod, group, node, pod, queue
from tests.domain.inadmissible_world import crowd
from tests.domain.world import World, comparable, gang, timestamp
from tests.rows import each_of

VIEW = ConditionPolicy(covers_ungated=True)


def asking(world: World) -> list[str]:
    """Return the names of the pods that ask for nodes."""
    decided = world.settle().decisions.groups.values()
    pods = (
        (decision, member) for decision in decided for member in world.ledger.groups.members(decision.key)
    )
    conditions = ((VIEW.condition_of(decision, member), member.name) for decision, member in pods)
    return sorted(name for condition, name in conditions if condition and condition.reason == "Unschedulable")


def full(*objects: Any) -> World:
    """Return one node, filled by a pod of another scheduler."""
    return World(node("a", cpu="2"), foreign_pod("s", on="a", cpu="2"), *objects)


def singles(count: int, of: str = "q", **options: Any) -> list[Any]:
    return [gang(f"{of}{i}", 1, queue=of, cpu="2", gated=False, **options) for i in range(count)]


@each_of(
    [queue("q", capability={"cpu": "4"})],  # capability
    [queue("q", limits=QueueLimits(pods=2))],  # pods
    [queue("q", limits=QueueLimits(groups=2))],  # groups
    [queue("q", limits=QueueLimits(per_namespace=RunningLimit(pods=2)))],  # of a namespace
    [queue("dept", capability={"cpu": "5"}), queue("q", parent="dept")],  # of a parent
)
def test_the_first_pods_of_a_queue_request_nodes_up_to_its_headroom(ceilings: list[Any]) -> None:
    assert asking(full(*ceilings, singles(5))) == ["q0-0", "q1-0"]


def test_without_a_ceiling_all_ask() -> None:
    assert len(asking(full(queue("q"), singles(5)))) == 5


def test_queues_below_one_ceiling_share_it() -> None:
    queues = queue("dept", capability={"cpu": "6"}), queue("q", parent="dept"), queue("r", parent="dept")
    assert len(asking(full(*queues, singles(4), singles(4, "r")))) == 3


def test_a_gang_asks_for_all_that_it_needs_or_for_none() -> None:
    waits = (
        gang("large", 3, queue="q", cpu="1", gated=False),
        gang("small", 1, queue="q", cpu="1", gated=False),
    )
    first = gang("first", 2, queue="q", cpu="1", gated=False)
    world = full(
        node("b", cpu="3"), foreign_pod("t", on="b", cpu="3"), queue("q", capability={"cpu": "3"}), first
    )
    assert asking(world.add(*waits)) == ["first-0", "first-1", "small-0"]


def test_elastic_members_request_what_is_left() -> None:
    world = World(node("a", cpu="2"), queue("q", capability={"cpu": "6"}), group("g", 1, "q"))
    world.add(pod("g-0", "g", cpu="2", gated=False)).start("g")
    world.add(*(pod(f"g-{i}", "g", cpu="2", gated=False) for i in range(1, 6)))
    assert asking(world) == ["g-1", "g-2"]


def test_the_next_pod_requests_nodes_once_headroom_is_free() -> None:
    world = full(queue("q", capability={"cpu": "4"}), singles(4))
    assert asking(world) == ["q0-0", "q1-0"]
    world.delete("q0-0")
    assert asking(world) == ["q1-0", "q2-0"]
    world.add(queue("q", capability={"cpu": "6"}))
    assert asking(world) == ["q1-0", "q2-0", "q3-0"]


@each_of(("2", 3), ("3", 0))
def test_a_gang_larger_than_the_cluster_asks_where_each_of_its_pods_fits_a_node(cpu: str, asks: int) -> None:
    assert len(asking(World(node("a", cpu="2"), gang("g", 3, cpu=cpu, gated=False)))) == asks


def test_gangs_larger_than_the_cluster_stay_within_the_headroom_too() -> None:
    gangs = [gang(f"g{i}", 2, queue="q", cpu="2", gated=False) for i in range(3)]
    # More than the nodes offer is no ceiling, so limits say how much may run.
    world = World(node("a", cpu="2"), queue("q", limits=QueueLimits(pods=5)), gangs)
    assert asking(world) == ["g0-0", "g0-1", "g1-0", "g1-1"]


def test_a_group_that_is_evaluated_again_keeps_its_request() -> None:
    """Reservations have groups of a queue evaluated again, of which nothing changes."""
    assert_decided_as_from_nothing(crowd(590.0, q={"capability": {"cpu": "5"}}))


@each_of("w0", "w4", "w22")
def test_a_group_that_moves_to_a_queue_with_headroom_asks(moves: str) -> None:
    world = crowd(0.0, pa={"capability": {"cpu": "3"}}, pb={"capability": {"cpu": "5"}})
    assert_decided_as_from_nothing(world.add(group(moves, 1, "q", created=timestamp(1000))))


def assert_decided_as_from_nothing(world: World) -> None:
    snapshot = world.ledger.snapshot()
    assert comparable(decide(snapshot, world.decisions)) == comparable(decide(snapshot))
