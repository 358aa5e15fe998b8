"""Topologies on a real control plane: of Muster, and Volcano's HyperNodes."""

from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.api.keys import REQUIRED_TOPOLOGY
from tests.e2e.harness import manifests
from tests.e2e.harness.client import Client
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import HYPER_NODES, NODES, POD_GROUPS, TOPOLOGIES
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.volcano_jobs import VolcanoJobs, task
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.watch import ApiError
from tests.rows import each_of

Json = dict[str, Any]
BLOCK, RACK, HOST = "example.com/block", "example.com/rack", "kubernetes.io/hostname"
TIER = "tier:1"
CRD = Path(__file__).parent / "data" / "hyper-nodes.yaml"


@pytest.fixture(scope="module", autouse=True)
def hyper_nodes(cluster: ControlPlane) -> Iterator[None]:
    """Install the kind HyperNode: there before Muster looks."""
    written = manifests.install(cluster.admin, list(yaml.safe_load_all(CRD.read_text())))
    yield
    manifests.remove(cluster.admin, written)


@pytest.fixture(autouse=True)
def levels(stage: Stage) -> Iterator[None]:
    """Delete the levels of a test at its end: they belong to no namespace."""
    yield
    for kind in (TOPOLOGIES, HYPER_NODES):
        stage.api.delete_all(kind)


def topology(*levels: str, name: str = "network") -> Json:
    head = {"apiVersion": "kube-muster.io/v1alpha1", "kind": "Topology", "metadata": {"name": name}}
    return {**head, "spec": {"levels": [{"nodeLabel": level} for level in levels]}}


def hyper_node(name: str, tier: int, *members: Json, kind: str = "Node") -> Json:
    head = {"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "metadata": {"name": name}}
    return {
        **head,
        "spec": {"tier": tier, "members": [{"type": kind, "selector": member} for member in members]},
    }


def in_one(level: str) -> Json:
    return {"cpu": "4", "gated": True, "annotations": {REQUIRED_TOPOLOGY: level}}


def wait_for_topology(muster: Muster, *levels: str) -> None:
    """Wait until Muster has a topology with these levels."""
    wait_for(
        lambda: list(levels) in [each["levels"] for each in muster.debug("/debug/topologies")],
        what=f"{', '.join(levels)} known",
    )


def test_a_gang_follows_nodes_that_move_to_another_rack(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    stage.api.create(TOPOLOGIES, topology(BLOCK, RACK))
    for rack in "ab":
        stage.nodes(2, prefix=rack, cpu="4", labels={BLOCK: "x", RACK: rack})
    wait_for_topology(muster, BLOCK, RACK)
    gang = stage.gang("g", 3, **in_one(RACK))
    stage.wait_reason("g", "NeverFits")
    stage.api.patch(NODES, "b1", {"metadata": {"labels": {RACK: "a"}}})
    assert {*stage.wait_bound(gang).values()} == {"a0", "a1", "b1"}


def test_racks_of_hyper_nodes(stage: Stage, muster: Muster, scheduler: KubeScheduler) -> None:
    """Show topologies by name, pattern and label, and one that changes later."""
    stage.nodes(2, prefix="n", cpu="4")
    stage.nodes(3, prefix="m", cpu="4", labels={RACK: "m"})
    create = partial(stage.api.create, HYPER_NODES)
    create(hyper_node("leaf-n", 1, {"regexMatch": {"pattern": "^n[0-9]+$"}}))
    create(hyper_node("leaf-m", 1, {"exactMatch": {"name": "m0"}}))
    leaves = ({"exactMatch": {"name": name}} for name in ("leaf-n", "leaf-m"))
    create(hyper_node("spine", 2, *leaves, kind="HyperNode"))
    create(hyper_node("broken", 1, {"regexMatch": {"pattern": "(a+)+$"}}))
    wait_for_topology(muster, "tier:2", TIER)
    gang = stage.gang("g", 3, **in_one(TIER))
    stage.wait_reason("g", "NeverFits")
    selected = [{"type": "Node", "selector": {"labelMatch": {"matchLabels": {RACK: "m"}}}}]
    stage.api.patch(HYPER_NODES, "leaf-m", {"spec": {"members": selected}})
    assert {*stage.wait_bound(gang).values()} == {"m0", "m1", "m2"}
    assert "broken" in muster.debug("/debug/bad-objects")["hypernodes"]


def test_the_network_topology_of_a_podgroup(stage: Stage, muster: Muster, scheduler: KubeScheduler) -> None:
    """Leaf a has a single node, with less free capacity than those of leaf b."""
    for leaf, nodes in (("a", 1), ("b", 2)):
        stage.nodes(nodes, prefix=leaf, cpu="5" if leaf == "b" else "4")
        stage.api.create(HYPER_NODES, hyper_node(leaf, 1, {"regexMatch": {"pattern": f"^{leaf}[0-9]$"}}))
    wait_for_topology(muster, TIER)
    stage.group("g", 2)
    topology = {"mode": "hard", "highestTierAllowed": 1}
    stage.api.patch(POD_GROUPS, "g", {"spec": {"networkTopology": topology}}, stage.namespace)
    gang = stage.pods("g", 2, group="g", cpu="4", gated=True)
    assert {*stage.wait_bound(gang).values()} == {"b0", "b1"}


def test_racks_of_two_blocks_are_two_racks(stage: Stage, muster: Muster, scheduler: KubeScheduler) -> None:
    """Without the Topology, the nodes of both count as one rack."""
    for block in "ab":
        stage.nodes(2, prefix=block, cpu="4", labels={BLOCK: block, RACK: "1"})
    stage.api.create(TOPOLOGIES, topology(BLOCK, RACK))
    wait_for_topology(muster, BLOCK, RACK)
    gang = stage.gang("g", 3, **in_one(RACK))
    stage.wait_reason("g", "NeverFits")
    small = stage.gang("small", 2, **in_one(RACK))
    assert len({name[0] for name in stage.wait_bound(small).values()}) == 1
    stage.finish(small)
    stage.api.delete(TOPOLOGIES, "network")
    assert len({name[0] for name in stage.wait_bound(gang).values()}) == 2


@pytest.mark.muster_flags("--volcano-jobs=on")
@pytest.mark.usefixtures("volcano_kinds")
def test_volcano_jobs_and_their_partitions_stay_in_hyper_nodes(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """The job of three fits only into leaf b; then each leaf has capacity for one partition."""
    for leaf, nodes in (("a", 2), ("b", 3), ("c", 2)):
        stage.nodes(nodes, prefix=leaf, cpu="4")
        stage.api.create(HYPER_NODES, hyper_node(leaf, 1, {"regexMatch": {"pattern": f"^{leaf}[0-9]$"}}))
    wait_for_topology(muster, TIER)
    jobs = VolcanoJobs(stage.api, stage.namespace, stage.kubelet)
    hard = {"mode": "hard", "highestTierAllowed": 1}
    jobs.create("whole", task("work", 3, cpu="4"), networkTopology=hard)
    whole = [*jobs.wait_pods("whole", 3, "Running")]
    assert {name[0] for name in stage.wait_bound(whole).values()} == {"b"}
    parts = {"totalPartitions": 2, "partitionSize": 2, "minPartitions": 2, "networkTopology": hard}
    jobs.create("parts", task("work", 4, cpu="4", partitionPolicy=parts))
    where = stage.wait_bound(sorted(jobs.wait_pods("parts", 4, "Running")))
    assert sorted(where[f"parts-work-{at}"][0] + where[f"parts-work-{at + 1}"][0] for at in (0, 2)) == [
        "aa",
        "cc",
    ]


def test_sub_groups_of_a_podgroup_start_whole_and_at_least_so_many_together(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Leaf b gets its second node later, and leaf c has capacity for the third sub-group."""
    for leaf, nodes in (("a", 2), ("b", 1), ("c", 1)):
        stage.nodes(nodes, prefix=leaf, cpu="4")
        stage.api.create(HYPER_NODES, hyper_node(leaf, 1, {"regexMatch": {"pattern": f"^{leaf}[0-9]+$"}}))
    wait_for_topology(muster, TIER)
    stage.group("g", 1)
    hard = {"mode": "hard", "highestTierAllowed": 1}
    policy = {"subGroupSize": 2, "minSubGroups": 2, "matchLabelKeys": ["replica"], "networkTopology": hard}
    stage.api.patch(POD_GROUPS, "g", {"spec": {"subGroupPolicy": [policy]}}, stage.namespace)
    replicas = {
        name: stage.pods(name, 2, group="g", cpu="4", gated=True, labels={"replica": name}) for name in "xyz"
    }
    stage.wait_reason("g", "NeverFits")
    stage.nodes(1, prefix="b1", cpu="4")
    wait_for(lambda: len(stage.bound([*chain(*replicas.values())])) == 4, what="two sub-groups bound")
    stage.nodes(1, prefix="c1", cpu="4")
    leaves = [{node[0] for node in stage.wait_bound(names).values()} for names in replicas.values()]
    assert sorted(map(sorted, leaves)) == [["a"], ["b"], ["c"]]


@each_of(
    ((), "spec.levels"),
    ((RACK, RACK), "no two levels may have the same nodeLabel"),
    ((HOST, RACK), "kubernetes.io/hostname may only be the last level"),
    (("a/b/c",), "spec.levels[0].nodeLabel"),
    (tuple(f"level-{number}" for number in range(9)), "spec.levels"),
)
def test_invalid_levels_are_refused(levels: tuple[str, ...], reported: str, *, stage: Stage) -> None:
    with pytest.raises(ApiError) as refused:
        stage.api.create(TOPOLOGIES, topology(*levels))
    assert refused.value.status == 422
    assert reported in str(refused.value)


def test_tenants_change_no_topologies(stage: Stage, editor: Client) -> None:
    stage.api.create(TOPOLOGIES, topology(BLOCK, RACK, HOST))
    attempts = (
        lambda: editor.create(TOPOLOGIES, topology(RACK, name="mine")),
        lambda: editor.patch(TOPOLOGIES, "network", {"spec": {"levels": []}}),
        lambda: editor.delete(TOPOLOGIES, "network"),
        lambda: editor.create(HYPER_NODES, hyper_node("mine", 1, {"exactMatch": {"name": "n0"}})),
    )
    for attempt in attempts:
        with pytest.raises(ApiError) as refused:
            attempt()
        assert refused.value.status == 403
