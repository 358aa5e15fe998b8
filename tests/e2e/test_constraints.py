"""Gangs whose members accept few nodes start as a whole or wait with a reason; no other group starves."""

from typing import Any

import pytest

from extender.api.keys import PREFERRED_TOPOLOGY, REQUIRED_TOPOLOGY, SLICE_SIZE, SLICE_TOPOLOGY
from tests.e2e.harness.resources import NODES, POD_GROUPS
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage

Json = dict[str, Any]
BOTH_WAYS = pytest.mark.parametrize("gated", [True, False], ids=["gated", "ungated"])
CAPACITY_REASONS = ("NoRoom", "Fragmented")
ZONE = "topology.kubernetes.io/zone"
RACK = "example.com/rack"
DEDICATED: Json = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}


def test_gated_and_ungated_members_start_together(stage: Stage, scheduler: KubeScheduler) -> None:
    stage.nodes(2, cpu="4")
    filler = stage.pods("filler", 1, cpu="4")
    stage.wait_phase(filler)
    gang = [*stage.gang("a", 3, min_member=6, gated=True), *stage.pods("b", 3, group="a")]
    stage.wait_reason("a", "NoRoom")
    assert stage.bound(gang) == {}
    stage.finish(filler)
    stage.wait_phase(gang)


def test_members_get_their_gates_from_the_admission_policy(stage: Stage, scheduler: KubeScheduler) -> None:
    """Submitters change nothing: a gang and a pod on its own, as they are created today."""
    stage.nodes(2, cpu="4")
    with stage.policy("gates/admission-policy.yaml"):
        filler = stage.pods("filler", 1, cpu="4")
        stage.wait_phase(filler)
        gang = stage.gang("a", 3, cpu="2")
        stage.wait_reason("a", "NoRoom")
        assert all(stage.pod(name)["spec"].get("schedulingGates") for name in gang)
        stage.finish(filler)
        stage.wait_phase(gang)


@BOTH_WAYS
def test_members_that_keep_apart(stage: Stage, scheduler: KubeScheduler, gated: bool) -> None:
    """One on each of three nodes. While a guard that repels them stands on one, they wait."""
    stage.nodes(3, cpu="8")
    apart = _keeping_apart("workers")
    guard = stage.pods("guard", 1, **apart)
    stage.wait_phase(guard)
    gang = stage.gang("a", 3, gated=gated, **apart)
    stage.wait_reason("a", *CAPACITY_REASONS)
    assert stage.bound(gang) == {}
    _assert_others_start(stage)
    stage.finish(guard)
    assert len({*stage.wait_bound(gang).values()}) == 3


def test_more_members_that_keep_apart_than_nodes(stage: Stage, scheduler: KubeScheduler) -> None:
    stage.nodes(3, cpu="8")
    gang = stage.gang("a", 4, gated=True, **_keeping_apart("workers"))
    stage.wait_reason("a", "NeverFits")
    assert stage.bound(gang) == {}
    _assert_others_start(stage)
    stage.nodes(1, prefix="more", cpu="8")
    assert len({*stage.wait_bound(gang).values()}) == 4


@BOTH_WAYS
def test_members_that_require_one_rack(stage: Stage, scheduler: KubeScheduler, gated: bool) -> None:
    """They start in the rack that holds all of them, and a lost one is replaced there."""
    for rack in "ab":
        stage.nodes(2, prefix=rack, cpu="4", labels={RACK: rack})
    fillers = [stage.pods(f"in-{rack}", 1, cpu="4", nodeSelector={RACK: rack}) for rack in "ab"]
    for filler in fillers:
        stage.wait_phase(filler)
    template: Json = {"cpu": "4", "annotations": {REQUIRED_TOPOLOGY: RACK}}
    gang = stage.gang("g", 2, gated=gated, **template)
    stage.wait_reason("g", "NoDomain")
    _assert_others_start(stage)
    stage.finish(fillers[1])
    stage.wait_phase(gang)
    assert {name[0] for name in stage.bound(gang).values()} == {"b"}
    stage.wait_group("g", phase="Running")
    stage.finish(fillers[0])
    stage.delete_pods([gang[0]])
    (other,) = stage.pods("other", 1, group="g", gated=gated, **template)
    assert stage.wait_bound([other])[other][0] == "b"


@pytest.mark.parametrize(("members", "racks"), [(2, {"b"}), (3, {"a", "b"})])
def test_members_that_prefer_one_rack(
    stage: Stage, scheduler: KubeScheduler, members: int, racks: set[str]
) -> None:
    for rack in "ab":
        stage.nodes(2, prefix=rack, cpu="4", labels={RACK: rack})
    stage.wait_phase(stage.pods("filler", 1, cpu="4", nodeSelector={"kubernetes.io/hostname": "a0"}))
    gang = stage.gang("g", members, cpu="4", gated=True, annotations={PREFERRED_TOPOLOGY: RACK})
    assert {name[0] for name in stage.wait_bound(gang).values()} == racks


def test_a_group_in_a_block_has_slices_in_racks(stage: Stage, scheduler: KubeScheduler) -> None:
    """Block x has more nodes, but in racks of one and three."""
    for rack, block, nodes in (("a", "x", 1), ("b", "x", 3), ("c", "y", 2), ("d", "y", 2)):
        stage.nodes(nodes, prefix=rack, cpu="4", labels={RACK: rack, "example.com/block": block})
    group = stage.group("g", 4)
    annotations = {"metadata": {"annotations": {REQUIRED_TOPOLOGY: "example.com/block"}}}
    stage.api.patch(POD_GROUPS, group["metadata"]["name"], annotations, stage.namespace)
    slices = {SLICE_TOPOLOGY: RACK, SLICE_SIZE: "2"}
    bound = stage.wait_bound(stage.pods("g", 4, group="g", gated=True, cpu="4", annotations=slices))
    assert "".join(bound[f"g-{number}"][0] for number in range(4)) in ("ccdd", "ddcc")


@BOTH_WAYS
def test_members_with_a_host_port(stage: Stage, scheduler: KubeScheduler, gated: bool) -> None:
    stage.nodes(2, cpu="8")
    holder = stage.pods("holder", 1, ports=[8080])
    stage.wait_phase(holder)
    gang = stage.gang("a", 2, ports=[8080], gated=gated)
    stage.wait_reason("a", *CAPACITY_REASONS)
    assert stage.bound(gang) == {}
    _assert_others_start(stage)
    stage.finish(holder)
    assert len({*stage.wait_bound(gang).values()}) == 2


@BOTH_WAYS
def test_members_whose_node_selector_no_node_has(stage: Stage, scheduler: KubeScheduler, gated: bool) -> None:
    stage.nodes(2, cpu="4")
    gang = stage.gang("a", 2, gated=gated, nodeSelector={"disk": "fast"})
    stage.wait_reason("a", "NeverFits")
    assert stage.bound(gang) == {}
    _assert_others_start(stage)
    stage.nodes(1, prefix="fast", cpu="4", labels={"disk": "fast"})
    assert {*stage.wait_bound(gang).values()} == {"fast0"}


@BOTH_WAYS
def test_members_that_do_not_tolerate_a_taint(stage: Stage, scheduler: KubeScheduler, gated: bool) -> None:
    stage.nodes(1, cpu="4")
    (tainted,) = stage.nodes(1, prefix="tainted", cpu="4", taints=[DEDICATED])
    filler = stage.pods("filler", 1, cpu="4")
    stage.wait_phase(filler)
    gang = stage.gang("a", 5, gated=gated)
    stage.wait_reason("a", "NeverFits")
    assert stage.bound(gang) == {}
    tolerant = stage.gang(
        "tolerant", 2, gated=gated, tolerations=[{"key": "dedicated", "operator": "Exists"}]
    )
    assert {*stage.wait_bound(tolerant).values()} == {tainted}
    stage.finish([*filler, *tolerant])
    stage.api.patch(NODES, tainted, {"spec": {"taints": []}})
    stage.wait_phase(gang)


@BOTH_WAYS
def test_members_that_the_scheduler_spreads(stage: Stage, scheduler: KubeScheduler, gated: bool) -> None:
    """Our plan knows nothing of spreading and puts all of them side by side: the scheduler has its way."""
    _zones(stage, a="8", b="8")
    gang = stage.gang("a", 4, gated=gated, **_spread("workers"))
    assert sorted(stage.wait_bound(gang).values()) == ["a0", "a0", "b0", "b0"]


@pytest.mark.muster_flags("--start-backoff", "1s", "--start-backoff-max", "2s")
@BOTH_WAYS
def test_members_that_the_scheduler_refuses_to_spread(
    stage: Stage, scheduler: KubeScheduler, gated: bool
) -> None:
    """Zone b has no free capacity, so only one may run in zone a: they wait and report whose rule that is."""
    _zones(stage, a="8", b="1")
    filler = stage.pods("filler", 1, nodeSelector={ZONE: "b"})
    stage.wait_phase(filler)
    gang = stage.gang("a", 3, gated=gated, **_spread("workers"))
    stage.wait_reason("a", "RefusedByScheduler")
    assert stage.bound(gang) == {}
    _assert_others_start(stage)
    stage.nodes(1, prefix="more", cpu="8", labels={ZONE: "b"})
    stage.wait_phase(gang)


def test_members_without_their_volume(stage: Stage, scheduler: KubeScheduler) -> None:
    """One member names a claim that does not exist and never reaches Muster. The others are released."""
    stage.nodes(2, cpu="4")
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "nowhere"}}
    gang = [
        *stage.gang("a", 2, min_member=3, gated=True),
        *stage.pods("stuck", 1, group="a", gated=True, volumes=[volume]),
    ]
    stage.wait_reason("a", "BackingOff", "RefusedByScheduler")
    assert stage.bound(gang) == {}
    _assert_others_start(stage)


def _assert_others_start(stage: Stage) -> None:
    """Check that plain pods of the same amount start while others wait."""
    others = [*stage.gang("others", 2, gated=True), *stage.pods("other", 1)]
    stage.wait_phase(others)
    stage.delete_pods(others)


def _keeping_apart(name: str) -> Json:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": name}}}
    repelled = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return {"labels": {"app": name}, "affinity": repelled}


def _spread(name: str) -> Json:
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": name}},
    }
    return {"labels": {"app": name}, "topologySpreadConstraints": [constraint]}


def _zones(stage: Stage, **cpus: str) -> None:
    """Create one node in each zone."""
    for zone, cpu in cpus.items():
        stage.nodes(1, prefix=zone, cpu=cpu, labels={ZONE: zone})
