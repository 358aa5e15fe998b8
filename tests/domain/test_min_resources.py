"""Capacity for minResources beyond the needed members is reserved until later pods use it."""

from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace

from extender.api.objects.base import Quantities
from extender.domain.ledger.nodes import NodeCapacity
from extender.domain.model.reasons import Reason, Verdict
from tests.domain.builders import anti_affinity, group, node, pod, queue
from tests.domain.world import LIMITS, World, gang, key
from tests.rows import each_of


def application(name: str, driver: str = "1", together: str = "2") -> list[object]:
    """Return an application as its operator writes it: executors come once the required driver runs."""
    return [group(name, 1, min_resources={"cpu": together}), pod(f"{name}-driver", name, cpu=driver)]


def start(world: World, *names: str) -> World:
    world.settle().scheduler_takes(*names)
    return world.run(*names).settle()


def test_no_more_drivers_start_than_fit_with_their_executors() -> None:
    world = World(node("n", cpu="4"), *(each for n in range(3) for each in application(f"app{n}"))).settle()
    assert world.verdicts("app0", "app1", "app2") == [Verdict.STARTING, Verdict.STARTING, Verdict.WAITING]
    start(world, "app0-driver", "app1-driver").add(gang("other", 1))
    assert world.settle().reason("other") is Reason.NO_ROOM
    world.add(pod("app0-executor", "app0", more={"memory": "1Gi"})).settle()
    assert world.plan("app0") == {"app0-executor": "n"}
    assert world.reason("other") is Reason.NO_ROOM
    start(world, "app0-executor").finish("app0-executor", "app0-driver").settle()
    assert world.verdicts("app2", "other") == [Verdict.STARTING, Verdict.WAITING]


def test_executors_of_another_size_use_the_capacity_on_one_node() -> None:
    world = World(node("a", cpu="5"), node("b", cpu="5"), application("app", "1", "10")).settle()
    start(world, "app-driver").add(gang("other", 1))
    assert world.settle().reason("other") is Reason.NO_ROOM
    world.add(pod("e0", "app", cpu="4"), pod("e1", "app", cpu="4")).settle()
    start(world, "e0", "e1")
    assert (world.verdict("app"), world.claim_count()) == (Verdict.RUNNING, 4)
    assert world.reason("other") is Reason.NO_ROOM, "one cpu is not used yet"


def test_reserved_min_resources_count_for_the_ceiling_of_the_queue() -> None:
    small = queue("default", capability={"cpu": "3"})
    world = World(small, node("n", cpu="8"), application("app0"), application("app1")).settle()
    assert world.verdict("app0") is Verdict.STARTING
    assert world.reason("app1") is Reason.QUEUE_CEILING


def test_reserved_min_resources_are_freed_when_the_group_ends_or_is_deleted() -> None:
    world = World(node("n", cpu="4"), application("app0"), application("app1")).settle()
    start(world, "app0-driver", "app1-driver")
    assert world.claim_count() == 4
    world.finish("app0-driver", phase="Failed").settle()
    world.ledger.intake.drop_group(key("app1"))
    world.settle().delete("app1-driver").settle()
    assert world.claim_count() == 0


def test_members_that_ask_for_all_of_it_keep_nothing_more() -> None:
    world = World(node("n", cpu="4"), group("g", 2, min_resources={"cpu": "2"}))
    world.add(pod("g-0", "g"), pod("g-1", "g")).settle()
    assert world.claim_count() == 2


def test_names_that_no_node_offers_do_not_count() -> None:
    """Volcano writes those of quotas, too."""
    minimum: Quantities = {"cpu": "1", "requests.cpu": "1", "count/pods": "1", "example.com/gone": "4"}
    world = World(node("n", cpu="4"), group("g", 1, min_resources=minimum), pod("g-0", "g")).settle()
    assert (world.verdict("g"), world.claim_count()) == (Verdict.STARTING, 1)


def test_few_are_expected_however_many_groups_ask_for_much() -> None:
    world = World(node("n", cpu="400"), limits=replace(LIMITS, expected_pods=10))
    for n in range(20):
        world.add(*application(f"app{n}", together="9"))
    world.settle()
    assert all(world.verdict(f"app{n}") is Verdict.STARTING for n in range(20))
    assert world.claim_count() <= 20 + 10 + 20


def test_the_rest_of_min_resources_above_the_share_is_given_to_queues_that_deserve_it() -> None:
    world = start(World(node("n", cpu="4"), application("app", together="4")).settle(), "app-driver")
    assert world.claim_count() == 4
    world.add(queue("other"), gang("due", 2, queue="other")).settle()
    assert world.verdicts("app", "due") == [Verdict.RUNNING, Verdict.STARTING]
    assert (world.claim_count(), world.decisions.evictions) == (4, {})


def test_drivers_give_a_share_back_whatever_they_keep() -> None:
    apps = [application(f"app{n}", "2", "3") for n in range(2)]
    world = start(World(node("n", cpu="6"), *apps).settle(), "app0-driver", "app1-driver")
    assert world.claim_count() == 4
    world.add(queue("other"), gang("due", 3, queue="other")).settle()
    assert len(world.decisions.evictions) == 1


def test_reserved_min_resources_take_no_places_of_the_window() -> None:
    world = World(node("n", cpu="64"), application("app", together="30"), limits=replace(LIMITS, window=32))
    start(world, "app-driver").add(gang("next", 30, cpu="1")).settle()
    assert world.verdict("next") is Verdict.STARTING


def driver(*objects: object) -> World:
    """Return a world where the driver of an application runs on node a."""
    return start(World(node("a", cpu="8"), *objects, application("app", together="4")).settle(), "app-driver")


@each_of(
    ([], pod("e", "app", foreign_gate="example.com/theirs")),  # gate
    ([node("b", labels={"b": "b"}), pod("full", on="b", cpu="4")], pod("e", "app", selector={"b": "b"})),
    ([pod("busy", on="a", host_port=80)], pod("e", "app", host_port=80)),  # port
    ([pod("busy", on="a", labels={"b": "b"})], pod("e", "app", affinity=anti_affinity(b="b"))),  # affinity
)
def test_a_later_pod_that_cannot_use_it_leaves_it_as_it_is(around: list[object], executor: object) -> None:
    world = driver(*around)
    reserved = world.claim_count()
    world.add(executor).settle()
    assert (world.plan("app").get("e"), world.claim_count()) == (None, reserved)


GPU = "example.com/gpu"


@each_of({"cpu": "6"}, {"cpu": "1", "more": {GPU: "2"}})
def test_a_later_pod_passes_no_ceiling_through_reserved_capacity(asked: dict[str, Any]) -> None:
    """Refuse resources beyond the ceiling, whether minResources names them or not."""
    world = driver(queue("default", capability={"cpu": "4", GPU: "1"}))
    world.add(node("a", cpu="8", more={GPU: "8"}), pod("e", "app", **asked)).settle()
    assert "e" not in world.plan("app")
    assert world.reason("app") is Reason.QUEUE_CEILING


def test_later_pods_that_find_no_place_cost_no_more_the_more_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls, idle = count(1), NodeCapacity.idle
    monkeypatch.setattr(
        NodeCapacity, "idle", lambda capacity, name: idle(capacity, name) if next(calls) else {}
    )

    def looks(pods: int) -> int:
        world, before = driver(), next(calls)
        world.add(*(pod(f"e{n}", "app", cpu="2", selector={"b": f"{n % 40}"}) for n in range(pods)))
        world.ledger.snapshot()
        return next(calls) - before

    assert looks(200) <= looks(40)


def test_capacity_that_members_have_used_is_not_reserved_again_once_they_are_lost() -> None:
    """The place of a lost one is kept for a while only."""
    world = World(node("n", cpu="2"), group("g", 2, min_resources={"cpu": "2"}))
    start(world.add(pod("g-0", "g"), pod("g-1", "g")), "g-0", "g-1")
    world.add(gang("other", 1)).delete("g-0").settle()
    assert world.verdict("other") is Verdict.WAITING
    world.pass_time(31)
    assert world.settle().verdict("other") is Verdict.STARTING


def test_muster_s_own_minresources_keep_nothing_once_the_owner_of_the_pods_is_gone() -> None:
    """It was deleted without its pods after a member was lost: the PodGroup has no owner any more."""
    name = "podgroup-ef13978f-b70b-4c7d-965f-d44111b29611"
    world = World(node("n", cpu="2"), group(name, 2, stood_whole=True, min_resources={"cpu": "2"}))
    world.add(pod("g-0", name, on="n"), gang("other", 1)).settle()
    assert world.verdict("other") is Verdict.STARTING


def test_reserved_min_resources_do_not_depend_on_the_planned_members() -> None:
    """Reserve more next to the small member than next to the large one, and more than the ceiling admits."""
    world = World(queue("default", capability={"cpu": "4"}), node("n", cpu="8"), pod("busy", on="n"))
    world.add(group("g", 1, min_resources={"cpu": "4"}))
    world.add(pod("g-0", "g", cpu="3", selector={"no": "where"}), pod("g-1", "g")).settle()
    assert world.reason("g") is Reason.QUEUE_CEILING


def test_reserved_min_resources_shrink_to_what_the_members_leave() -> None:
    """KubeRay's gang of a head and two workers, of which a third worker comes before the gang starts."""
    world = World([node(f"n{number}", cpu="1", memory="4Gi") for number in range(3)])
    world.add(group("ray", 3, min_resources={"cpu": "3", "memory": "4Gi"}))
    world.add(pod("head", "ray", more={"memory": "2Gi"}), pod("w0", "ray", more={"memory": "1Gi"})).settle()
    assert world.reason("ray") is Reason.NOT_ENOUGH_MEMBERS
    world.add(*(pod(f"w{number}", "ray", more={"memory": "1Gi"}) for number in (1, 2))).settle()
    assert world.verdict("ray") is Verdict.STARTING
