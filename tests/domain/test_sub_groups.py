"""Volcano's sub-groups of a PodGroup: each starts whole, and at least `minSubGroups` start together."""

from collections.abc import Mapping
from typing import Any

from msgspec import convert
from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.queues import PodGroup, SubGroup
from extender.domain.model.reasons import Reason, Verdict
from tests.domain.builders import HOSTNAME, group, node, pod, queue
from tests.domain.world import World, gang, timestamp
from tests.rows import each_of

RACK, BLOCK, REPLICA = "tier:1", "tier:2", "replica"
HARD_TOPOLOGY, SOFT_TOPOLOGY = ({"mode": mode, "highestTierAllowed": 1} for mode in ("hard", "soft"))


def policy(size: int, least: int = 0, role: str = "w", **more: Any) -> dict[str, Any]:
    """Return a policy for the pods of a task, in sub-groups by index unless `more` names labels."""
    selector = {"labelSelector": {"matchLabels": {keys.ROLE: role}}} if role else {}
    return {"name": role or "all", "subGroupSize": size, "minSubGroups": least, **selector, **more}


def by_replica(size: int, least: int = 0, **more: Any) -> dict[str, Any]:
    return policy(size, least, "", matchLabelKeys=[REPLICA], **more)


def record(*policies: Mapping[str, Any], members: int = 1, name: str = "g", **more: Any) -> PodGroup:
    new_group = group(name, members, **more)
    return replace(
        new_group, spec=replace(new_group.spec, sub_group_policy=convert(policies, list[SubGroup]))
    )


def members(number: int, role: str = "w", name: str = "g", **more: Any) -> list[Any]:
    return [pod(f"{name}-{role}-{n}", name, "4", role, **more) for n in range(number)]


def replicas(*names: str, role: str = "w") -> list[Any]:
    """Return a pod for each replica named, which may repeat."""
    return [pod(f"g-{role}-{n}", "g", "4", role, labels={REPLICA: name}) for n, name in enumerate(names)]


def racks(blocks: Mapping[str, Mapping[str, int]] | None = None, **sizes: int) -> list[Any]:
    """Return nodes of 4 cpu: `racks(a=2)` has a0 and a1 in rack a."""
    return [
        node(f"{rack}{n}", "4", labels={BLOCK: block, RACK: rack})
        for block, inside in (blocks or {"x": sizes}).items()
        for rack, size in inside.items()
        for n in range(size)
    ]


def started(world: World) -> int:
    return len(world.plan("g"))


@each_of((1, 0), (3, 0), (4, 4), (5, 4), (6, 6))
def test_at_least_so_many_sub_groups_start_and_only_whole_ones(free: int, running: int) -> None:
    world = World(*racks(a=free), record(policy(2, 2)), members(6)).settle()
    if running:
        assert started(world) == 4
        world.start("g")
        assert sum(bool(pod.spec.node_name) for pod in world.pods.values()) + started(world) == running
    else:
        assert (started(world), world.verdict("g")) == (0, Verdict.WAITING)


def test_sub_groups_that_run_grow_by_whole_ones() -> None:
    world = World(*racks(a=4), record(policy(2, 2)), members(8)).start("g")
    world.add(node("b0", "4")).settle()
    assert not world.plan("g")
    world.add(node("b1", "4")).settle()
    assert world.plan("g").keys() == {"g-w-4", "g-w-5"}


def test_pods_with_equal_labels_are_a_sub_group_in_one_rack() -> None:
    policies = by_replica(2, 2, networkTopology=HARD_TOPOLOGY)
    world = World(*racks(a=2, b=2), record(policies), replicas("x", "y", "x", "y")).settle()
    on = [world.plan("g")[f"g-w-{n}"][0] for n in range(4)]
    assert on in ([*"abab"], [*"baba"])


def test_a_sub_group_has_pods_of_several_roles() -> None:
    policies = by_replica(2, 2, networkTopology=HARD_TOPOLOGY)
    pods = [*replicas("x", "y", role="prefill"), *replicas("y", "x", role="decode")]
    plan = World(*racks(a=2, b=2), record(policies), pods).settle().plan("g")
    assert plan["g-prefill-0"][0] == plan["g-decode-1"][0] != plan["g-prefill-1"][0] == plan["g-decode-0"][0]


def test_a_sub_group_that_lacks_pods_counts_for_no_minimum() -> None:
    world = World(*racks(a=4), record(by_replica(2, 2)), replicas("x", "x", "y", "z")).settle()
    assert world.reason("g") is Reason.NOT_ENOUGH_MEMBERS
    assert world.detail("g") == "4 of 4 members exist, missing 1 sub-groups of all"
    world.add(pod("g-w-4", "g", "4", "w", labels={REPLICA: "z"})).settle()
    assert world.plan("g").keys() == {"g-w-0", "g-w-1", "g-w-3", "g-w-4"}


def test_the_minimum_of_each_level_counts() -> None:
    """Masters alone reach minMember, but no sub-group of workers has enough pods for the second one."""
    policies = policy(1, 1, "master"), policy(2, 2, "w")
    pods = [*members(4, "master"), *members(3)]
    world = World(*racks(a=8), record(*policies, members=3), pods).settle()
    assert world.detail("g") == "7 of 5 members exist, missing 1 sub-groups of w"
    world.add(pod("g-w-3", "g", "4", "w")).settle()
    assert {"g-w-0", "g-w-1", "g-w-2", "g-w-3"} <= world.plan("g").keys()


def test_the_first_policy_that_selects_a_pod_counts() -> None:
    policies = policy(1, 1, "master"), policy(2, 1, "", matchLabelKeys=[keys.ROLE])
    pods = [*members(2, "master"), *(pod(f"g-{n}", "g", "4", labels={keys.ROLE: "w"}) for n in range(2))]
    world = World(*racks(a=3), record(*policies), pods).settle()
    assert world.plan("g").keys() == {"g-master-0", "g-0", "g-1"}


@each_of((HARD_TOPOLOGY, 0), (SOFT_TOPOLOGY, 3), ({"mode": "soft"}, 3))
def test_a_soft_topology_of_sub_groups_prefers_domains(topology: dict[str, Any], running: int) -> None:
    """No rack has capacity for a sub-group of three."""
    pods = members(3)
    world = World(*racks(a=2, b=1), record(policy(3, 1, networkTopology=topology)), pods).settle()
    assert started(world) == running


def test_each_sub_group_of_a_soft_topology_is_in_one_domain_if_one_has_capacity() -> None:
    """Racks of one, three and two: the second sub-group of two is split, and no other."""
    pods, taken = members(4), pod("x", on="b0", cpu="4")
    world = World(
        *racks(a=1, b=4, c=1), taken, record(policy(2, 2, networkTopology=SOFT_TOPOLOGY)), pods
    ).settle()
    racks_of = [{world.plan("g")[f"g-w-{at + n}"][0] for n in (0, 1)} for at in (0, 2)]
    assert {"b"} in racks_of
    assert started(world) == 4


def test_the_least_sub_groups_stay_whole_when_capacity_is_reclaimed() -> None:
    """The last members by name are of two sub-groups, of which one can be spared."""
    pods = replicas(*"xyzxyz")
    world = World(*racks(a=6), queue("rich"), queue("poor"), record(by_replica(2, 2), queue="rich"), pods)
    world.start("g").start("g").pass_time(60)
    world.add(gang("p", 2, cpu="4", queue="poor")).settle()
    victims = {eviction.victim.name for eviction in world.decisions.evictions.values()}
    assert victims == {"g-w-2", "g-w-5"}


def selecting(**selector: Any) -> dict[str, Any]:
    return {"subGroupSize": 2, "labelSelector": selector}


@each_of(
    [selecting(matchExpressions=[{"key": REPLICA, "operator": "In", "values": [*map(str, range(2048))]}])],
    [selecting(matchLabels={REPLICA: str(n)}) for n in range(33)],
    [selecting(matchLabels={keys.ROLE: str(n)}) for n in range(257)],
)
def test_too_many_values_of_selectors_delay_this_group_only(policies: list[Any]) -> None:
    """Each would be compared with the labels of each pod."""
    world = World(*racks(a=4), record(*policies), members(2), gang("other", 1)).settle()
    assert world.reason("g") is Reason.INVALID_SPEC
    assert "labels of a role: at most 256 and 64" in world.detail("g")
    assert world.verdict("other") is Verdict.STARTING


def test_many_roles_may_have_sub_groups() -> None:
    policies = [selecting(matchLabels={keys.ROLE: str(n)}) for n in range(100)]
    world = World(*racks(a=4), record(*policies), members(2)).settle()
    assert world.verdict("g") is Verdict.STARTING


# Deep policies: sub-groups of a role in racks, inside the block of the group.

TWO_LEVELS = {"x": {"a": 2, "b": 1}, "y": {"c": 2, "d": 2}}


def deep(**more: Any) -> list[Any]:
    made = record(policy(2, 2, networkTopology=HARD_TOPOLOGY), **more)
    in_block = {"mode": "hard", "highestTierAllowed": 2}
    spec = convert({"networkTopology": in_block}, type(made.spec))
    return [replace(made, spec=replace(made.spec, network_topology=spec.network_topology)), *members(4)]


def filled(world: World) -> World:
    """Fill each node with a gang of one that is named as the node."""
    for name in list(world.nodes):
        world.add(gang(name, 1, cpu="4", queue="rich", selector={HOSTNAME: name}, run_time="1h"))
        world.start(name)
    return world


def in_racks_of_one_block(nodes: Mapping[str, str]) -> bool:
    return {*nodes.values()} == {"c0", "c1", "d0", "d1"} and all(
        nodes[f"g-w-{n}"][0] == nodes[f"g-w-{n + 1}"][0] for n in (0, 2)
    )


def test_a_deep_policy_reclaims_capacity_in_racks_of_one_block() -> None:
    world = filled(World(*racks(TWO_LEVELS), queue("rich"), queue("poor", weight=3)))
    world.add(deep(queue="poor")).settle()
    victims = [eviction.victim.name for eviction in world.decisions.evictions.values()]
    assert {world.pods[name].spec.node_name for name in victims} == {"c0", "c1", "d0", "d1"}
    world.delete(*victims).settle()
    assert in_racks_of_one_block(world.plan("g"))


def test_a_deep_policy_gets_a_reservation_in_racks_of_one_block() -> None:
    world = filled(World(*racks(TWO_LEVELS), queue("rich", reclaimable=False), queue("poor")))
    world.add(deep(queue="poor", created=timestamp(world.now)))
    world.pass_time(601.0)
    reservation = world.decision("g").reservation
    assert reservation is not None
    assert {*reservation.nodes.values()} == {"c0", "c1", "d0", "d1"}
    world.add(gang("late", 1, cpu="4", queue="rich", created=timestamp(world.now), run_time="3h"))
    world.delete("c0-0", "a0-0", "a1-0", "b0-0").settle()
    assert world.plan("late")["late-0"][0] in "ab"
    assert not started(world)
    world.delete("c1-0", "d0-0", "d1-0").settle()
    assert in_racks_of_one_block(world.plan("g"))
