"""Selectors, node affinity and taints, with the scheduler's meaning."""

from typing import Any

from extender.api.objects.cluster import Taint
from extender.api.objects.pods import LabelSelector, NodeSelector, NodeSelectorTerm, Requirement, Toleration
from extender.domain.model.selectors import allows, is_tolerated, selects
from extender.domain.model.shapes import HostPort, Shapes, is_any_port_used, node_taints
from tests.domain.builders import node, on_nodes, pod
from tests.domain.world import World, single
from tests.rows import each_of

LABELS = {"disk": "ssd", "cores": "16", "empty": ""}


@each_of(
    ("In", "disk", ["ssd", "hdd"], True),
    ("In", "disk", ["hdd"], False),
    ("In", "absent", ["ssd"], False),
    ("In", "disk", None, False),
    ("NotIn", "disk", ["hdd"], True),
    ("NotIn", "disk", ["ssd"], False),
    ("NotIn", "absent", ["ssd"], True),
    ("Exists", "disk", None, True),
    ("Exists", "empty", None, True),
    ("Exists", "absent", None, False),
    ("DoesNotExist", "absent", None, True),
    ("DoesNotExist", "disk", None, False),
    ("Gt", "cores", ["8"], True),
    ("Gt", "cores", ["16"], False),
    ("Lt", "cores", ["32"], True),
    ("Lt", "cores", ["16"], False),
    ("Gt", "disk", ["8"], False),
    ("Gt", "absent", ["8"], False),
    ("Lt", "cores", ["many"], False),
    ("Lt", "cores", None, False),
    ("Unheard", "disk", ["ssd"], False),
)
def test_operators(operator: str, key: str, values: list[str] | None, met: bool) -> None:
    requirement = Requirement(key, operator, values)
    assert selects(LabelSelector(match_expressions=[requirement]), LABELS) is met
    assert allows(NodeSelectorTerm([requirement]), LABELS, "n") is met


def test_an_absent_selector_selects_nothing_and_an_empty_one_everything() -> None:
    assert not selects(None, LABELS)
    assert selects(LabelSelector(), LABELS)


def test_labels_and_expressions_must_all_hold() -> None:
    absent = [Requirement("disk", "DoesNotExist")]
    assert selects(LabelSelector({"disk": "ssd", "cores": "16"}), LABELS)
    assert not selects(LabelSelector({"disk": "ssd", "cores": "8"}), LABELS)
    assert not selects(LabelSelector({"disk": "ssd"}, absent), LABELS)


def test_node_selector_terms() -> None:
    by_name = [Requirement("metadata.name", "In", ["n"])]
    assert not allows(NodeSelectorTerm(), LABELS, "n"), "an empty term admits no node"
    assert allows(NodeSelectorTerm(match_fields=by_name), LABELS, "n")
    assert not allows(NodeSelectorTerm(match_fields=by_name), LABELS, "m")
    assert not allows(NodeSelectorTerm([Requirement("disk", "In", ["hdd"])], by_name), LABELS, "n")


DEDICATED = Taint("dedicated", "NoSchedule", "ml")


@each_of(
    (DEDICATED, None, False),
    (Taint("dedicated", "NoExecute", "ml"), None, False),
    (Taint("dedicated", "PreferNoSchedule", "ml"), None, True),
    (DEDICATED, Toleration("dedicated", "Equal", "ml"), True),
    (DEDICATED, Toleration("dedicated", "", "ml"), True),
    (DEDICATED, Toleration("dedicated", "Equal", "web"), False),
    (DEDICATED, Toleration("dedicated", "Exists"), True),
    (DEDICATED, Toleration("dedicated", "Exists", effect="NoSchedule"), True),
    (DEDICATED, Toleration("dedicated", "Exists", effect="NoExecute"), False),
    (DEDICATED, Toleration("", "Exists"), True),
    (DEDICATED, Toleration("", "Equal", "ml"), False),
    (DEDICATED, Toleration("other", "Exists"), False),
    (DEDICATED, Toleration("dedicated", "Unheard", "ml"), False),
)
def test_taints(taint: Taint, toleration: Toleration | None, in_: bool) -> None:
    assert is_tolerated(taint, (toleration,) if toleration else ()) is in_


def test_a_cordoned_node_takes_only_pods_that_tolerate_it() -> None:
    tolerant = Toleration("node.kubernetes.io/unschedulable", "Exists")
    (cordon,) = node_taints(None, is_cordoned=True)
    assert not is_tolerated(cordon, ())
    assert is_tolerated(cordon, (tolerant,))
    assert node_taints([DEDICATED], is_cordoned=False) == (DEDICATED,)


@each_of(
    (HostPort("TCP", "0.0.0.0", 80), HostPort("TCP", "0.0.0.0", 80), True),
    (HostPort("TCP", "0.0.0.0", 80), HostPort("TCP", "10.0.0.1", 80), True),
    (HostPort("TCP", "10.0.0.2", 80), HostPort("TCP", "10.0.0.1", 80), False),
    (HostPort("TCP", "10.0.0.1", 80), HostPort("TCP", "10.0.0.1", 80), True),
    (HostPort("UDP", "0.0.0.0", 80), HostPort("TCP", "0.0.0.0", 80), False),
    (HostPort("TCP", "0.0.0.0", 80), HostPort("TCP", "0.0.0.0", 81), False),
)
def test_host_ports(ours: HostPort, theirs: HostPort, clash: bool) -> None:
    assert is_any_port_used((ours,), [theirs]) is clash
    assert is_any_port_used((theirs,), [ours]) is clash


NODES = [
    node("plain"),
    node("fast", labels={"disk": "ssd"}),
    node("tainted", taints=[DEDICATED]),
    node("closed", cordoned=True),
]


@each_of(
    ({"selector": {"disk": "ssd"}}, {"fast"}),
    ({"selector": {"disk": "tape"}}, set()),
    ({"affinity": on_nodes("disk", "DoesNotExist")}, {"plain"}),
    ({"affinity": on_nodes("disk", "In", "ssd", "nvme")}, {"fast"}),
    ({"tolerations": [Toleration("dedicated", "Exists")]}, {"plain", "fast", "tainted"}),
    ({"tolerations": [Toleration("", "Exists")]}, {"plain", "fast", "tainted", "closed"}),
    ({}, {"plain", "fast"}),
)
def test_the_plan_uses_nodes_that_suit(wish: dict[str, Any], goes_to: set[str]) -> None:
    alone = {each.metadata.name: World(each, pod("p", **wish)).settle() for each in NODES}
    assert {name for name, world in alone.items() if world.plan(single("p"))} == goes_to
    assert World(NODES, pod("p", **wish)).settle().plan(single("p")).get("p") in (goes_to or [None])


def test_any_of_several_terms_admits_a_node() -> None:
    terms = [NodeSelectorTerm([Requirement("disk", "In", [kind])]) for kind in ("tape", "ssd")]
    affinity = on_nodes("disk", "Exists")
    assert affinity.node_affinity is not None
    either = type(affinity)(type(affinity.node_affinity)(NodeSelector(terms)))
    assert World(NODES, pod("p", affinity=either)).settle().plan(single("p")) == {"p": "fast"}


def test_equal_pods_share_one_shape() -> None:
    shapes = Shapes()
    first, second = (shapes.shape_of(pod(name).spec, "team") for name in ("a", "b"))
    assert first is second
    assert shapes.shape_of(pod("c", cpu="2").spec, "team") is not first
    assert shapes.shape_of(pod("c", selector={"k": "v"}).spec, "team") is not first
