"""Nodes drained, cordoned and lost under gangs: a gang that ran fully is completed, never undone."""

from functools import partial
from typing import Any

import pytest

from tests.e2e.harness.fault_proxy import FaultProxy
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import NODES, PODS
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.standstill import Standstill
from tests.e2e.harness.waiting import wait_for

UNREACHABLE = [
    {"key": "node.kubernetes.io/unreachable", "effect": effect} for effect in ("NoSchedule", "NoExecute")
]


@pytest.fixture
def muster(muster_behind_proxy: Muster) -> Muster:
    return muster_behind_proxy


def test_a_replacement_has_the_first_claim_on_capacity(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Others have waited for longer, and are smaller."""
    stage.nodes(3, cpu="2")
    gang = stage.gang("a", 3, cpu="2", gated=True)
    nodes = _running(stage, gang)
    others = stage.gang("b", 1, cpu="1", gated=True)
    stage.wait_reason("b", "NoRoom")
    _drain(stage, nodes["a-0"], "a-0")
    stage.pods("a", 1, first=3, group="a", cpu="2", gated=True)
    muster.wait_decision(stage.namespace, "a", verdict="Running", reason="NoRoom")
    assert stage.bound(others) == {}
    _cordon(stage, nodes["a-0"], on=False)
    assert _running(stage, ["a-3", "a-1", "a-2"])["a-3"] == nodes["a-0"]
    assert stage.bound(others) == {}


def test_all_nodes_of_a_gang_are_drained_one_after_the_other(stage: Stage, scheduler: KubeScheduler) -> None:
    """Each member is replaced elsewhere, and the others stay."""
    stage.nodes(4, cpu="2")
    members = stage.gang("a", 3, cpu="2", gated=True)
    nodes = _running(stage, members)
    for number, (member, node) in enumerate(sorted(nodes.items())):
        _drain(stage, node, member)
        members = [each for each in members if each != member]
        (new,) = stage.pods("a", 1, first=3 + number, group="a", cpu="2", gated=True)
        after = _running(stage, [*members, new])
        assert after[new] not in nodes.values()
        assert {name: after[name] for name in members} == {name: nodes[name] for name in members}
        members, nodes = [*members, new], after
        _cordon(stage, node, on=False)
    assert members == ["a-3", "a-4", "a-5"]


def test_surplus_members_come_back_one_by_one(stage: Stage, scheduler: KubeScheduler) -> None:
    """Two are needed and two more run; with half of the nodes gone, the group still stands."""
    stage.nodes(4, cpu="2")
    gang = stage.gang("a", 4, min_member=2, cpu="2", gated=True)
    nodes = _running(stage, gang)
    for member in ("a-0", "a-1"):
        _lose(stage, nodes[member], member)
    later = stage.pods("a", 2, first=4, group="a", cpu="2", gated=True)
    stage.wait_reason("a", "NoRoom")
    assert stage.bound(later) == {}
    for number in (1, 2):
        stage.nodes(1, prefix=f"new{number}-", cpu="2")
        wait_for(partial(_count, stage, later, number), what=f"{number} of them back")
    _running(stage, ["a-2", "a-3", *later])


def test_a_lost_node_takes_its_member_and_no_other(stage: Stage, scheduler: KubeScheduler) -> None:
    """Make the node unreachable, then delete it with its pods; a spare node is there."""
    stage.nodes(4, cpu="2")
    gang = stage.gang("a", 3, cpu="2", gated=True)
    nodes = _running(stage, gang)
    stage.api.patch(NODES, nodes["a-0"], {"spec": {"taints": UNREACHABLE}})
    assert stage.phases(gang) == {"Running"}
    _lose(stage, nodes["a-0"], "a-0")
    stage.pods("a", 1, first=3, group="a", cpu="2", gated=True)
    after = _running(stage, ["a-1", "a-2", "a-3"])
    assert after["a-3"] not in nodes.values()


def test_pods_that_cannot_end_on_a_lost_node_free_capacity_below_the_ceiling(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Their grace period is over, and no controller can delete them for good (kueue#6757)."""
    stage.queue("q", capability={"cpu": "4"})
    stage.nodes(2, cpu="2")
    nodes = _running(stage, stage.gang("a", 4, queue="q", cpu="1", gated=True))
    stage.kubelet.off()
    lost = [name for name, node in nodes.items() if node == nodes["a-0"]]
    stage.nodes(1, prefix="spare", cpu="2")
    stage.api.patch(NODES, nodes["a-0"], {"spec": {"taints": UNREACHABLE}})
    for name in lost:
        stage.api.delete(PODS, name, stage.namespace, grace=1)
    others = stage.pods("a", len(lost), first=4, group="a", cpu="1", gated=True)
    stage.wait_bound(others)
    assert stage.phases(lost) == {"Running"}


@pytest.mark.parametrize(
    "spec", [{"unschedulable": True}, {"taints": UNREACHABLE}], ids=["cordoned", "unreachable"]
)
def test_no_pod_is_planned_onto_a_node_that_accepts_none(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, spec: dict[str, Any]
) -> None:
    *_, away = stage.nodes(3, cpu="2")
    stage.api.patch(NODES, away, {"spec": spec})
    gang = stage.gang("a", 3, cpu="2", gated=True)
    stage.wait_reason("a", "NoRoom", "NeverFits")
    assert stage.bound(gang) == {}
    stage.api.patch(NODES, away, {"spec": dict.fromkeys(spec)})
    _running(stage, gang)


@pytest.mark.parametrize("whose", ["a-0", "a-2"], ids=["of-a-held-member", "of-a-member-on-its-way"])
def test_a_start_whose_node_is_deleted_is_planned_again(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, proxy: FaultProxy, whose: str
) -> None:
    stage.nodes(4, cpu="2")
    gang = Standstill(stage, muster, proxy, cpu="2")
    nodes = _planned(stage, muster)
    stage.api.delete(NODES, nodes[whose])
    wait_for(lambda: nodes[whose] not in _known(muster), what="Muster knows that it is gone")
    gang.release()
    after = _running(stage, gang.pods)
    assert after[whose] != nodes[whose]
    assert {name: node for name, node in after.items() if name != whose} == {
        name: node for name, node in nodes.items() if name != whose
    }


def _running(stage: Stage, pods: list[str]) -> dict[str, str]:
    """Return the nodes of these pods, once all of them run."""
    stage.wait_phase(pods, "Running")
    return stage.bound(pods)


def _count(stage: Stage, pods: list[str], number: int) -> bool:
    return len(stage.bound(pods)) == number


def _known(muster: Muster) -> set[str]:
    return {each["name"] for each in muster.debug("/debug/nodes")}


def _planned(stage: Stage, muster: Muster) -> dict[str, str]:
    """Return the nodes that are claimed for the members of gang a."""
    page = muster.debug(f"/debug/podgroups/{stage.namespace}/a")
    return {each["pod"].rpartition("/")[2]: each["claim"]["node"] for each in page["members"]}


def _cordon(stage: Stage, node: str, *, on: bool = True) -> None:
    stage.api.patch(NODES, node, {"spec": {"unschedulable": on or None}})


def _drain(stage: Stage, node: str, *pods: str) -> None:
    """Drain a node as kubectl does: cordon it, then evict all pods."""
    _cordon(stage, node)
    for name in pods:
        metadata = {"name": name, "namespace": stage.namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        stage.api.request("POST", PODS.path(stage.namespace, name, "eviction"), body)
    stage.wait_phase(pods, "Gone")


def _lose(stage: Stage, node: str, *pods: str) -> None:
    """Remove a node as the node controllers do when a machine is gone for good."""
    stage.api.delete(NODES, node)
    for name in pods:
        stage.api.delete(PODS, name, stage.namespace, grace=0)
    stage.wait_phase(pods, "Gone")
