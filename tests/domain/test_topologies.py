"""Levels of topologies, and the domains of nodes."""

import pytest

from extender.api.objects.base import Meta
from extender.api.objects.cluster import ClusterTopology, ClusterTopologySpec, TopologyLevel
from extender.domain.explain.dump import Forms
from extender.domain.ledger.restore import restore
from extender.domain.ledger.topologies import BadTopology, TopologySource
from extender.domain.snapshot.nodes import NodeRecord, NodeTable, Topologies
from extender.domain.snapshot.snapshot import Snapshot
from tests.domain.builders import node
from tests.domain.world import World
from tests.rows import each_of

BLOCK, RACK = "block", "rack"


def table(*nodes: dict[str, str]) -> NodeTable:
    records = [NodeRecord(f"n{number}", labels, (), {}) for number, labels in enumerate(nodes)]
    return NodeTable(records, Topologies([(BLOCK, RACK)]))


def test_equal_names_in_two_larger_domains_are_two_domains() -> None:
    nodes = table(*({BLOCK: block, RACK: "1"} for block in "aab"))
    first, second, third = nodes.domains_of_level(RACK).tolist()
    assert first == second != third


def test_a_node_without_the_label_of_any_larger_level_is_in_no_domain() -> None:
    nodes = table({BLOCK: "a", RACK: "1"}, {RACK: "1"}, {BLOCK: "a"})
    assert [code >= 0 for code in nodes.domains_of_level(RACK)] == [True, False, False]
    assert [code >= 0 for code in nodes.domains_of_level(BLOCK)] == [True, False, True]


def test_the_first_topology_with_a_level_counts() -> None:
    topologies = Topologies([(BLOCK, RACK), ("zone", RACK)])
    assert topologies.levels_down_to(RACK) == (BLOCK, RACK)
    assert topologies.levels_with("other") == ("other",)


def topology(name: str, *levels: str) -> ClusterTopology:
    return ClusterTopology(Meta(name), ClusterTopologySpec([TopologyLevel(level) for level in levels]))


def two_blocks() -> list[object]:
    return [node(f"{block}{n}", labels={BLOCK: block, RACK: "1"}) for block in "ab" for n in range(2)]


def racks_of(world: World) -> int:
    codes = world.ledger.snapshot().nodes.domains_of_level(RACK)
    return len({*codes.tolist()} - {-1})


def test_domains_follow_the_topologies_that_exist() -> None:
    world = World(*two_blocks())
    assert racks_of(world) == 1
    world.add(topology("network", BLOCK, RACK))
    assert racks_of(world) == 2
    world.add(topology("a", RACK))  # the first by name counts
    assert racks_of(world) == 1
    world.ledger.intake.put_topology("a", None, TopologySource.MUSTER)
    assert racks_of(world) == 2


def test_musters_own_topologies_take_precedence_over_those_of_kueue() -> None:
    world = World(*two_blocks()).add(topology("network", BLOCK, RACK))
    world.ledger.intake.set_topology(topology("a", RACK), TopologySource.KUEUE)
    assert racks_of(world) == 2
    world.ledger.intake.put_topology("network", None, TopologySource.MUSTER)
    assert racks_of(world) == 1


def test_a_change_of_levels_asks_for_decisions_and_a_repetition_does_not() -> None:
    world = World(*two_blocks()).add(topology("network", BLOCK, RACK))
    nodes, changes = world.ledger.snapshot().nodes, world.changes
    world.add(topology("network", BLOCK, RACK))
    assert world.changes == changes
    assert world.ledger.snapshot().nodes is nodes
    world.add(topology("network", RACK))
    assert world.changes > changes


@each_of((), ("",), (RACK, RACK), tuple(f"level-{n}" for n in range(17)))
def test_unusable_levels_are_refused_and_the_last_usable_ones_stay(levels: tuple[str, ...]) -> None:
    world = World(*two_blocks()).add(topology("network", BLOCK, RACK))
    with pytest.raises(BadTopology):
        world.add(topology("network", *levels))
    assert racks_of(world) == 2


def test_of_many_topologies_the_first_ones_count() -> None:
    world = World().add(*(topology(f"t{number:03}", f"level-{number}") for number in reversed(range(100))))
    levels = world.ledger.snapshot().nodes.topologies.levels
    assert levels == tuple(f"level-{number}" for number in range(64))


def test_a_dump_and_a_restored_ledger_have_the_topologies() -> None:
    snapshot = World(*two_blocks()).add(topology("network", BLOCK, RACK)).ledger.snapshot()
    forms = Forms()
    written = forms.write(Snapshot, snapshot)
    forms.read_shapes(forms.write_shapes())
    again = World()
    restore(again.ledger, forms.read(Snapshot, written))
    assert racks_of(again) == 2
