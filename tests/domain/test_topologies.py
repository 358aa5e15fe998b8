"""Levels of topologies, and the domains of nodes."""

from extender.domain.snapshot.nodes import NodeRecord, NodeTable, Topologies

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
