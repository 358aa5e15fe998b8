"""Racks that lose nodes under a gang that requires one: in its start, and while it runs."""

from typing import Any

import pytest

from extender.api.keys import ON_LOST_DOMAIN, REQUIRED_TOPOLOGY, RESTART
from tests.e2e.harness import objects
from tests.e2e.harness.access import ADMIN
from tests.e2e.harness.fault_proxy import FaultProxy
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import EVENTS, NODES, POD_GROUPS, PODS, REPLICA_SETS
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.shell import Shell
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.standstill import Standstill
from tests.e2e.harness.waiting import GENEROUS_SECONDS, wait_for
from tests.e2e.test_nodes import UNREACHABLE

Json = dict[str, Any]
RACK = "example.com/rack"
IN_A_RACK = {REQUIRED_TOPOLOGY: RACK}
SIZE = 3


@pytest.fixture
def muster(muster_behind_proxy: Muster) -> Muster:
    return muster_behind_proxy


def racks(stage: Stage, **sizes: int) -> None:
    """Create nodes for one pod each: `racks(stage, a=2)` makes a0 and a1 in rack a."""
    for rack, size in sizes.items():
        stage.nodes(size, prefix=rack, cpu="2", labels={RACK: rack})


@pytest.mark.parametrize("spare", [1, 0], ids=["with-a-spare-node", "full"])
@pytest.mark.parametrize("spec", [None, {"taints": UNREACHABLE}], ids=["deleted", "unreachable"])
@pytest.mark.parametrize("whose", ["a-0", "a-2"], ids=["of-a-held-member", "of-a-member-on-its-way"])
def test_a_start_whose_rack_loses_a_node_ends_in_one_rack(
    stage: Stage,
    muster: Muster,
    scheduler: KubeScheduler,
    proxy: FaultProxy,
    spare: int,
    spec: Json | None,
    whose: str,
) -> None:
    """The start is completed in its rack while that has capacity, and begins again in rack b otherwise."""
    racks(stage, a=SIZE + spare, b=SIZE + spare + 1)
    gang = Standstill(stage, muster, proxy, size=SIZE, cpu="2", annotations=IN_A_RACK)
    page = muster.debug(f"/debug/podgroups/{stage.namespace}/a")
    planned = {member["pod"].rpartition("/")[2]: member["claim"]["node"] for member in page["members"]}
    assert {node[0] for node in planned.values()} == {"a"}
    if spec is None:
        stage.api.delete(NODES, planned[whose])
    else:
        stage.api.patch(NODES, planned[whose], {"spec": spec})
    gang.release()
    nodes = stage.wait_bound(gang.pods, 2 * GENEROUS_SECONDS)
    assert len({node[0] for node in nodes.values()}) == 1
    if spec is None:
        assert {node[0] for node in nodes.values()} == {"a" if spare else "b"}
        assert planned[whose] not in nodes.values()


@pytest.fixture
def running(stage: Stage, muster: Muster, scheduler: KubeScheduler) -> Stage:
    """Fill rack a with the group g, whose pods a controller makes; rack b holds one more."""
    racks(stage, a=SIZE, b=SIZE + 1)
    stage.start_controller_manager()
    stage.group("g", SIZE)
    change(stage, IN_A_RACK)
    new_pod = objects.pod("", namespace=stage.namespace, group="g", cpu="2", gated=True, labels={"app": "g"})
    meta = {key: new_pod["metadata"][key] for key in ("labels", "annotations")}
    spec = {"replicas": SIZE, "selector": {"matchLabels": {"app": "g"}}}
    spec["template"] = {"metadata": meta, "spec": new_pod["spec"]}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "spec": spec}
    stage.api.create(REPLICA_SETS, {**owner, "metadata": {"name": "g", "namespace": stage.namespace}})
    wait_racks(stage, "aaa")
    stage.wait_group("g", phase="Running", running=SIZE)
    return stage


def change(stage: Stage, annotations: dict[str, str]) -> None:
    stage.api.patch(POD_GROUPS, "g", {"metadata": {"annotations": annotations}}, stage.namespace)


def wait_racks(stage: Stage, racks: str, timeout: float = GENEROUS_SECONDS) -> None:
    """Wait until the pods that run are on nodes of these racks."""
    wait_for(lambda: "".join(sorted(node[0] for node in nodes(stage))) == racks, timeout, f"pods in {racks}")


def nodes(stage: Stage) -> list[str]:
    """Return the nodes of the members that run and do not terminate."""
    pods = stage.api.items(PODS, stage.namespace)
    stay = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    return [each["spec"]["nodeName"] for each in stay if each["status"].get("phase") == "Running"]


def lose(stage: Stage, node: str) -> None:
    """Remove a node as the node controllers do when a machine is gone for good."""
    stage.api.delete(NODES, node)
    for pod in stage.api.items(PODS, stage.namespace, fieldSelector=f"spec.nodeName={node}"):
        stage.api.delete(PODS, pod["metadata"]["name"], stage.namespace, grace=0)


def test_a_lost_member_is_replaced_in_its_rack(running: Stage) -> None:
    running.nodes(1, prefix="a-spare", cpu="2", labels={RACK: "a"})
    lose(running, "a1")
    wait_racks(running, "aaa")
    assert "a-spare0" in nodes(running)


def test_a_full_rack_is_named_and_the_others_run_on(running: Stage) -> None:
    before = {item["metadata"]["uid"] for item in running.api.items(PODS, running.namespace)}
    lose(running, "a1")
    running.wait_reason("g", "NoDomain")
    text = f"{RACK}=a has other members, and free capacity for 0 of 1 members"
    wait_for(lambda: text in running.message("g"), what="the rack in the condition")
    about = "involvedObject.kind=PodGroup,involvedObject.name=g,reason=NoDomain"
    events = wait_for(
        lambda: running.api.items(EVENTS, running.namespace, fieldSelector=about), what="the Event"
    )
    assert text in str(events)
    assert text in Shell(running.cluster, ADMIN, running.namespace).output("why", "podgroup/g")
    pods = running.api.items(PODS, running.namespace)
    assert len(before & {pod["metadata"]["uid"] for pod in pods}) == SIZE - 1
    running.nodes(1, prefix="a-new", cpu="2", labels={RACK: "a"})
    wait_racks(running, "aaa")


def test_a_gang_restarts_in_another_rack_where_its_owner_asks_for_it(running: Stage) -> None:
    change(running, {ON_LOST_DOMAIN: RESTART})
    lose(running, "a1")
    running.wait_reason("g", "NoDomain")
    wait_for(lambda: "it restarts elsewhere from" in running.message("g"), what="the time of the restart")
    assert sorted(nodes(running)) == ["a0", "a2"]
    wait_racks(running, "bbb", 3 * GENEROUS_SECONDS)
    about = "involvedObject.kind=PodGroup,involvedObject.name=g,reason=Restarted"
    assert running.api.items(EVENTS, running.namespace, fieldSelector=about)
    running.wait_group("g", phase="Running", running=SIZE)
