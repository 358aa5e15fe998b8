"""Nodes that the scheduler's own tests leave over: capacity, labels, taints, ports, affinity."""

from typing import Any

import pytest

from extender.sim.scheduler.nodes import (
    AFFINITY_UNMET,
    ANTI_AFFINITY,
    EXISTING_ANTI_AFFINITY,
    PORTS_TAKEN,
    UNSUITABLE,
    Nodes,
    feasible,
)
from tests.e2e.harness import objects
from tests.sim.requests import Json

TAINT = {"key": "only", "value": "gpu", "effect": "NoSchedule"}
NEAR = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.fixture
def nodes() -> Nodes:
    """Return n0 and n1 in zone a, n2 in zone b."""
    nodes = Nodes()
    for name, zone in (("n0", "a"), ("n1", "a"), ("n2", "b")):
        nodes.set_node(objects.node(name, labels={"zone": zone}))
    return nodes


def pod(name: str, **options: Any) -> Json:
    new_pod = objects.pod(name, namespace="default", **options)
    new_pod["metadata"]["uid"] = name
    new_pod["status"] = {}
    return new_pod


def fit(nodes: Nodes, wanted: Json) -> list[str]:
    return feasible(nodes, nodes.pod_info(wanted), nodes.names())[0]


def rejections(nodes: Nodes, wanted: Json) -> set[str]:
    found = feasible(nodes, nodes.pod_info(wanted), nodes.names())[1].values()
    return {reason for fault in found for reason in fault.reasons}


def company(kind: str, key: str = "zone") -> Json:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "x"}}}
    return {kind: {NEAR: [term]}}


def test_a_node_that_was_deleted_meanwhile_fits_no_pod(nodes: Nodes) -> None:
    names = nodes.names()
    nodes.drop_node("n1")
    assert feasible(nodes, nodes.pod_info(pod("a")), names) == (["n0", "n2"], {})


def test_free_capacity_is_what_bound_and_assumed_pods_leave(nodes: Nodes) -> None:
    nodes.place(pod("a", cpu="3"), "n0")
    assert fit(nodes, pod("b", cpu="2")) == ["n1", "n2"]
    assert rejections(nodes, pod("b", cpu="2")) == {"Insufficient cpu"}
    nodes.remove("a")
    assert fit(nodes, pod("b", cpu="2")) == ["n0", "n1", "n2"]


def test_a_node_holds_so_many_pods(nodes: Nodes) -> None:
    nodes.set_node(objects.node("n0", pods=1))
    nodes.place(pod("a"), "n0")
    assert rejections(nodes, pod("b")) == {"Too many pods"}


def test_an_unknown_resource_fits_nowhere(nodes: Nodes) -> None:
    assert rejections(nodes, pod("a", limits={"example.com/gpu": "1"})) == {"Insufficient example.com/gpu"}


def test_selectors_taints_and_cordons(nodes: Nodes) -> None:
    nodes.set_node(objects.node("n1", labels={"zone": "a"}, taints=[TAINT]))
    cordoned = objects.node("n2", labels={"zone": "b"})
    cordoned["spec"]["unschedulable"] = True
    nodes.set_node(cordoned)
    assert fit(nodes, pod("a")) == ["n0"]
    assert rejections(nodes, pod("a")) == {*UNSUITABLE.reasons}
    assert fit(nodes, pod("a", tolerations=[{"key": "only", "operator": "Exists"}])) == ["n0", "n1"]
    assert fit(nodes, pod("a", nodeSelector={"zone": "b"})) == []


def test_host_ports_are_taken_once(nodes: Nodes) -> None:
    nodes.place(pod("a", ports=[80]), "n0")
    assert fit(nodes, pod("b", ports=[80])) == ["n1", "n2"]
    assert rejections(nodes, pod("b", ports=[80])) == {*PORTS_TAKEN.reasons}


def test_affinity_needs_a_matching_pod_but_the_first_may_go_anywhere(nodes: Nodes) -> None:
    wanted = pod("a", affinity=company("podAffinity"))
    assert rejections(nodes, wanted) == {*AFFINITY_UNMET.reasons}
    first = pod("a", affinity=company("podAffinity"), labels={"app": "x"})
    assert fit(nodes, first) == ["n0", "n1", "n2"]
    nodes.place(first, "n2")
    assert fit(nodes, wanted) == ["n2"]


def test_anti_affinity_counts_both_ways(nodes: Nodes) -> None:
    shy = pod("shy", affinity=company("podAntiAffinity"))
    nodes.place(pod("x", labels={"app": "x"}), "n0")
    assert fit(nodes, shy) == ["n2"]
    assert rejections(nodes, shy) == {*ANTI_AFFINITY.reasons}
    nodes.remove("x")
    nodes.place(shy, "n2")
    assert fit(nodes, pod("x", labels={"app": "x"})) == ["n0", "n1"]
    assert rejections(nodes, pod("x", labels={"app": "x"})) == {*EXISTING_ANTI_AFFINITY.reasons}


def test_a_nominated_pod_has_its_capacity_before_pods_of_equal_priority(nodes: Nodes) -> None:
    planned = pod("planned", cpu="4", priority=5)
    planned["status"]["nominatedNodeName"] = "n0"
    nodes.nominate(planned)
    assert fit(nodes, pod("equal", priority=5)) == ["n1", "n2"]
    assert fit(nodes, pod("better", priority=6)) == ["n0", "n1", "n2"]
    assert fit(nodes, planned) == ["n0", "n1", "n2"]
    nodes.place(planned, "n1")
    assert fit(nodes, pod("equal", priority=5)) == ["n0", "n2"]


def test_rules_of_other_components_are_ignored(nodes: Nodes) -> None:
    spread = [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    wanted = pod("a", topologySpreadConstraints=spread, volumes=[volume])
    assert fit(nodes, wanted) == ["n0", "n1", "n2"]


def test_a_node_that_is_gone_is_not_offered(nodes: Nodes) -> None:
    nodes.place(pod("a"), "n0")
    nodes.drop_node("n0")
    assert fit(nodes, pod("b")) == ["n1", "n2"]
    nodes.remove("a")
