"""HyperNodes of Volcano, which become levels of a topology."""

from typing import Any

import pytest
from msgspec import convert
from msgspec.structs import replace

from extender.api.objects.base import Meta
from extender.api.objects.pods import LabelSelector
from extender.api.objects.queues import NetworkTopology
from extender.api.objects.volcano import (
    ExactMatch,
    HyperNode,
    HyperNodeMember,
    HyperNodeSpec,
    MemberSelector,
    RegexMatch,
)
from extender.domain.ledger.topologies import BadTopology
from extender.domain.model.reasons import Reason
from tests.domain.builders import node, pod
from tests.domain.world import World, gang
from tests.rows import each_of

ZONE = "zone"


def exact(name: str, kind: str = "Node") -> HyperNodeMember:
    return HyperNodeMember(kind, MemberSelector(exact_match=ExactMatch(name)))


def like(pattern: str) -> HyperNodeMember:
    return HyperNodeMember("Node", MemberSelector(regex_match=RegexMatch(pattern)))


def labelled(**labels: str) -> HyperNodeMember:
    return HyperNodeMember("Node", MemberSelector(label_match=LabelSelector(labels)))


def hyper(name: str, tier: int, *members: HyperNodeMember, tier_name: str = "") -> HyperNode:
    return HyperNode(Meta(name), HyperNodeSpec(tier, tier_name, list(members)))


def tiers(world: World) -> dict[str, str]:
    """Return the HyperNodes of each node, the largest first, by the first topology: `{"n0": "s1 s0"}`."""
    table = world.ledger.snapshot().nodes
    levels = table.topologies.level_lists[0] if table.topologies.level_lists else ()
    return {
        node.name: " ".join(node.labels[level] for level in levels if level in node.labels)
        for node in table.nodes
        if node is not None
    }


def nodes(number: int = 4) -> list[object]:
    return [node(f"n{n}", labels={ZONE: "ab"[n % 2]}) for n in range(number)]


SPINE = hyper("spine", 2, exact("leaf-a", "HyperNode"), exact("leaf-b", "HyperNode"))


@each_of(
    [exact("n0"), exact("n2"), exact("gone")],
    [like("^n[02]$")],
    [like("[02]"), exact("")],
    [labelled(zone="a")],
    [exact("n0"), like("n2"), labelled()],
)
def test_nodes_are_in_the_domains_of_their_hyper_nodes(members: list[HyperNodeMember]) -> None:
    world = World(*nodes()).add(hyper("leaf-a", 1, *members), SPINE)
    assert tiers(world) == {"n0": "spine leaf-a", "n1": "", "n2": "spine leaf-a", "n3": ""}
    assert world.ledger.snapshot().nodes.topologies.levels_down_to("tier:1") == ("tier:2", "tier:1")


def test_tiers_are_levels_by_number_and_by_name() -> None:
    world = World(*nodes()).add(
        hyper("leaf", 1, exact("n0"), tier_name="rack"), hyper("top", 2, like("n"), tier_name="1")
    )
    table = world.ledger.snapshot().nodes
    assert table.topologies.level_lists == (("tier:2", "tier:1"), ("tier:2", "tier:rack"))
    for level in ("tier:1", "tier:rack"):
        assert [code >= 0 for code in table.domains_of_level(level)].count(True) == 1


@each_of(range(0, 400, 20), range(16))
def test_many_tiers_are_levels_up_to_a_limit(numbers: range) -> None:
    world = World(*nodes(1)).add(*(hyper(f"h{tier}", tier, like("n")) for tier in numbers))
    levels = world.ledger.snapshot().nodes.topologies.level_lists[0]
    assert levels == tuple(f"tier:{tier}" for tier in reversed(numbers[:16]))


@each_of(
    (  # the first by name counts
        [hyper("b", 1, exact("n0")), hyper("a", 1, exact("n0")), hyper("c", 1, like("n"))],
        {"n0": "a", "n1": "c"},
    ),
    (  # no HyperNode of the larger tier has n0
        [hyper("a", 1, exact("n0")), hyper("top", 2, exact("n1"))],
        {"n0": "a a", "n1": "top"},
    ),
    (  # a tier without HyperNodes has the domains of the one below
        [hyper("a", 1, exact("n0")), hyper("top", 3, like("n"))],
        {"n0": "top a a", "n1": "top"},
    ),
    (  # cycles, and unknown members
        [
            hyper("x", 2, exact("y", "HyperNode"), exact("n0")),
            hyper("y", 2, exact("x", "HyperNode")),
            hyper("self", 1, exact("self", "HyperNode"), exact("gone", "HyperNode"), exact("n0", "Other")),
            hyper("down", 1, exact("x", "HyperNode")),
        ],
        {"n0": "x", "n1": ""},
    ),
)
def test_the_domains_of_irregular_hyper_nodes(hyper_nodes: list[HyperNode], domains: dict[str, str]) -> None:
    assert tiers(World(*nodes(2)).add(*hyper_nodes)) == domains


@each_of(
    ({"highestTierAllowed": 1}, Reason.NEVER_FITS),
    ({"highestTierAllowed": 2}, None),
    ({"highestTierAllowed": 2, "mode": "soft"}, None),
    ({"highestTierName": "unknown"}, Reason.NEVER_FITS),
)
def test_a_tier_above_all_hyper_nodes_is_the_whole_cluster(topology: Any, reason: Reason | None) -> None:
    """As in Volcano. Each HyperNode has capacity for one of two members."""
    record, *members = gang("g", 2, cpu="4")
    request = convert(topology, NetworkTopology)
    record = replace(record, spec=replace(record.spec, network_topology=request))
    hyper_nodes = hyper("a", 1, exact("n0")), hyper("b", 1, exact("n1"))
    world = World(*nodes(2)).add(*hyper_nodes, record, members).settle()
    assert world.reason("g") is reason
    if reason is None:
        world.start("g").pass_time(60)
        world.delete("g-0").add(pod("g-2", "g", "4")).settle()
        assert world.plan("g") == {"g-2": "n0"} or world.plan("g") == {"g-2": "n1"}


def test_domains_follow_the_changes_of_nodes_and_hyper_nodes() -> None:
    world = World(*nodes(2)).add(hyper("a", 1, labelled(zone="a"), like("new")))
    assert tiers(world) == {"n0": "a", "n1": ""}
    world.add(node("n1", labels={ZONE: "a"}), node("n0", labels={ZONE: "b"}), node("new"))
    assert tiers(world) == {"n0": "", "n1": "a", "new": "a"}
    world.drop_node("new")
    world.add(hyper("a", 1, exact("n0")))
    assert tiers(world) == {"n0": "a", "n1": ""}
    world.ledger.intake.drop_hyper_node("a")
    assert tiers(world) == {"n0": "", "n1": ""}
    assert world.ledger.snapshot().nodes.topologies.level_lists == ()


def test_a_repeated_event_changes_nothing() -> None:
    world = World(*nodes()).add(hyper("a", 1, like("n")))
    before, changes = world.ledger.snapshot().nodes, world.changes
    world.add(*nodes(), hyper("a", 1, like("n")))
    assert world.changes == changes
    assert world.ledger.snapshot().nodes is before


def test_a_hyper_node_with_too_many_patterns_is_refused() -> None:
    world = World(*nodes(1)).add(hyper("a", 1, *(like(f"n{n}") for n in range(64))))
    with pytest.raises(BadTopology, match="65 patterns"):
        world.add(hyper("b", 1, *(like(f"m{n}") for n in range(65))))


@each_of("(", "a" * 257, "(a+)+$", "(a|aa)+$", "((a*)b?)*", "([a-z]{2,})*", ".*.*.*.*.*x", "a{9999999999999}")
def test_unusable_patterns_are_refused_and_the_last_usable_one_stays(pattern: str) -> None:
    world = World(*nodes(1)).add(hyper("a", 1, like("n0")))
    with pytest.raises(BadTopology):
        world.add(hyper("a", 1, like(pattern)))
    assert tiers(world) == {"n0": "a"}


@each_of(r"^n\d+$", "^(n|m)[0-9]+-?$|n0", r"n(0|1)(\.local)?$", r"[(+*]*n[^)*]+", r"n0\(*")
def test_usual_patterns_are_used(pattern: str) -> None:
    assert tiers(World(*nodes(1)).add(hyper("a", 1, like(pattern)))) == {"n0": "a"}
