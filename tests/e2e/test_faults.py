"""Others take capacity, requests fail, members go, watches break, kubelets refuse: all gangs stay whole."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import urllib3

from tests.e2e.harness import objects
from tests.e2e.harness.access import User
from tests.e2e.harness.fault_proxy import FaultProxy
from tests.e2e.harness.faults import answer, hold_answer, lose_answer
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import NODES, POD_GROUPS, PODS
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.standstill import HangingBinding, Standstill
from tests.e2e.harness.tcp_proxy import TcpProxy
from tests.e2e.harness.waiting import wait_for

STOCK = "default-scheduler"
GPU = "example.com/gpu"


@pytest.fixture
def muster(muster_behind_proxy: Muster) -> Muster:
    return muster_behind_proxy


# ---- another scheduler takes nominated capacity


def test_only_the_members_whose_node_was_taken_are_planned_again(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, proxy: FaultProxy
) -> None:
    stage.nodes(5, cpu="2")
    gang = Standstill(stage, muster, proxy, size=4, cpu="2")
    robbed, *others = gang.held
    _take(stage, gang.nodes[robbed])
    gang.release()
    nodes = stage.wait_bound(gang.pods)
    assert nodes[robbed] != gang.nodes[robbed]
    assert {name: nodes[name] for name in others} == {name: gang.nodes[name] for name in others}
    assert muster.metric("muster_verb_calls_total", verb="bind", outcome="refused") == 1
    stage.wait_phase(gang.pods, "Running")


@pytest.mark.muster_flags("--bind-deadline", "5s", "--start-backoff", "1s")
def test_a_start_without_free_capacity_is_given_up_for_others_and_retried(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, proxy: FaultProxy
) -> None:
    """Its claims are free at once: a gang that they kept waiting starts, while the first one backs off."""
    stage.nodes(3, cpu="2")
    gang = Standstill(stage, muster, proxy, cpu="2")
    waiting = stage.gang("b", 2, cpu="2", gated=True)
    muster.wait_decision(stage.namespace, "b", verdict="Waiting")
    _take(stage, gang.nodes[gang.held[0]])
    gang.release()
    stage.wait_phase(waiting, "Running")
    assert stage.bound(gang.pods) == {}
    assert muster.held() == {}
    stage.delete_pods([*waiting, "foreign-0"])
    stage.wait_phase(gang.pods, "Running")
    assert muster.metric("muster_evictions_total") == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda stage, node: stage.api.delete(NODES, node),
        lambda stage, node: stage.api.patch(NODES, node, {"spec": {"unschedulable": True}}),
    ],
    ids=["deleted", "cordoned"],
)
def test_a_node_that_goes_while_it_is_held_is_not_bound_to(
    stage: Stage,
    muster: Muster,
    scheduler: KubeScheduler,
    proxy: FaultProxy,
    change: Callable[[Stage, str], object],
) -> None:
    stage.nodes(4, cpu="2")
    gang = Standstill(stage, muster, proxy, cpu="2")
    lost = gang.nodes[gang.held[0]]
    change(stage, lost)
    stage.api.create(NODES, objects.node("later", cpu="1"))
    wait_for(lambda: "later" in {each["name"] for each in muster.debug("/debug/nodes")}, what="it is known")
    gang.release()
    assert lost not in stage.wait_bound(gang.pods).values()
    stage.wait_phase(gang.pods, "Running")


# ---- bindings fail


@pytest.mark.muster_flags("--bind-deadline", "5s")
def test_a_burst_of_bindings_with_every_kind_of_failure(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, proxy: FaultProxy
) -> None:
    """Refused twice over, cut off after success, timed out after success: each pod has one node, for good."""
    stage.nodes(3, cpu="4")
    released = threading.Event()
    proxy.inject(answer(409), answer(500), lose_answer(), hold_answer(released))
    gang = stage.gang("a", 6, cpu="2", gated=True)
    nodes = stage.wait_bound(gang)
    stage.wait_phase(gang, "Running")
    muster.wait_held([])
    released.set()
    wait_for(lambda: proxy.bindings().keys() == nodes.keys(), what="the last answer given")
    assert proxy.pending_faults() == []
    assert {name: {*asked} for name, asked in proxy.bindings().items()} == {
        name: {node} for name, node in nodes.items()
    }
    assert muster.metric("muster_verb_calls_total", verb="bind", outcome="refused") == 0


# ---- members go


def test_a_member_deleted_at_the_barrier_is_replaced(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, proxy: FaultProxy
) -> None:
    """The others stay held meanwhile."""
    stage.nodes(3, cpu="2")
    gang = Standstill(stage, muster, proxy, size=3, cpu="2")
    gone, reserved = gang.held
    stage.delete_pods([gone])
    muster.wait_held([reserved])
    replacement = stage.pods("a", 1, first=3, group="a", cpu="2", gated=True)
    muster.wait_held([reserved, *replacement])
    gang.release()
    stage.wait_phase([reserved, gang.last, *replacement], "Running")
    assert muster.metric("muster_verb_calls_total", verb="bind", outcome="refused") == 1


@pytest.mark.muster_flags("--bind-deadline", "3s", "--start-backoff", "1s")
def test_a_member_deleted_at_the_barrier_without_a_replacement(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, proxy: FaultProxy
) -> None:
    """No member is bound, the capacity is free for others, and the group reports what it lacks."""
    stage.nodes(3, cpu="2")
    gang = Standstill(stage, muster, proxy, cpu="2")
    gone, reserved = gang.held
    stage.delete_pods([gone])
    gang.release()
    muster.wait_decision(stage.namespace, "a", reason="NotEnoughMembers")
    assert muster.held() == {}
    assert proxy.bindings() == {}
    other = stage.gang("b", 3, cpu="2", gated=True)
    stage.wait_phase(other, "Running")
    stage.finish(other)
    late = stage.pods("a", 1, first=3, group="a", cpu="2", gated=True)
    stage.wait_phase([reserved, gang.last, *late], "Running")


def test_a_podgroup_deleted_at_the_barrier(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, proxy: FaultProxy
) -> None:
    """Two of three are held. No member is bound before there is a PodGroup again, which asks for two."""
    stage.nodes(3, cpu="2")
    gang = Standstill(stage, muster, proxy, cpu="2")
    stage.api.delete(POD_GROUPS, "a", stage.namespace)
    muster.wait_held([])
    muster.wait_decision(stage.namespace, "a", verdict="Waiting", reason="GroupNotFound")
    assert proxy.bindings() == {}
    stage.group("a", 2)
    stage.wait_bound(gang.held)
    gang.release()
    stage.wait_phase(gang.pods, "Running")


def test_a_podgroup_deleted_between_two_bindings(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, proxy: FaultProxy
) -> None:
    """Bind all pods of one posting."""
    stage.nodes(3, cpu="2")
    gang = HangingBinding(stage, proxy)
    stage.api.delete(POD_GROUPS, "a", stage.namespace)
    muster.wait_decision(stage.namespace, "a", reason="GroupNotFound")
    gang.release()
    stage.wait_phase(gang.pods, "Running")


@pytest.mark.muster_flags("--bind-deadline", "6s", "--start-backoff", "1s")
@pytest.mark.parametrize("reason", ["GroupNotFound", "Held"])
def test_a_pod_bound_after_its_start_has_ended_is_evicted(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, proxy: FaultProxy, reason: str
) -> None:
    """Two of three are gone before the binding of the third arrives, and the group may not be evaluated."""
    stage.nodes(3, cpu="2")
    gang = HangingBinding(stage, proxy)
    others = [name for name in gang.pods if name != gang.hanging]
    stage.delete_pods(others)
    if reason == "Held":
        held = {"metadata": {"annotations": {"kube-muster.io/hold": "true"}}}
        stage.api.patch(POD_GROUPS, "a", held, stage.namespace)
    else:
        stage.api.delete(POD_GROUPS, "a", stage.namespace)
    muster.wait_decision(stage.namespace, "a", verdict="Waiting", reason=reason)
    gang.release()
    stage.wait_bound([gang.hanging])
    stage.wait_phase([gang.hanging], "Gone")
    wait_for(lambda: muster.metric("muster_evictions_total", outcome="done") == 1, what="one eviction")


def test_a_vanished_device_blocks_no_pod_that_requests_none(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    stage.nodes(2, cpu="4", **{GPU: "1"})
    for node in ("n0", "n1"):
        stage.pods(f"uses-{node}", 1, limits={GPU: "1"}, scheduler=STOCK)
        stage.api.bind(stage.namespace, f"uses-{node}-0", node)
    stage.wait_phase(["uses-n0-0", "uses-n1-0"], "Running")
    for node in ("n0", "n1"):
        gone = {"allocatable": {GPU: None}, "capacity": {GPU: None}}
        stage.api.patch(NODES, node, {"status": gone}, sub="status")
    stage.wait_phase(stage.gang("a", 4, gated=True), "Running")


# ---- kubelets refuse


def test_a_gang_that_never_ran_fully_is_completed_by_a_replacement(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    stage.nodes(4, cpu="2")
    stage.kubelet.refuse("a-1")
    gang = stage.gang("a", 3, cpu="2", gated=True)
    stage.wait_phase(["a-1"], "Failed")
    replacement = stage.pods("a", 1, first=3, group="a", cpu="2", gated=True)
    stage.wait_phase(["a-0", "a-2", *replacement], "Running")
    wait_for(lambda: stage.pod_group("a")["status"]["phase"] == "Running", what="a runs")
    assert muster.metric("muster_evictions_total") == 0
    assert len(gang) == 3


@pytest.mark.muster_flags("--bind-deadline", "4s", "--start-backoff", "1s")
def test_a_gang_that_never_ran_fully_is_undone_and_one_that_did_is_not(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Both gangs lose one member at the same time, and get no replacement."""
    stage.nodes(6, cpu="2")
    old = stage.gang("old", 3, cpu="2", gated=True)
    stage.wait_phase(old, "Running")
    wait_for(lambda: stage.pod_group("old")["status"]["phase"] == "Running", what="old ran fully")
    stage.kubelet.refuse("young-1")
    stage.kubelet.refuse("old-3")
    stage.delete_pods(["old-1"])
    stage.pods("old", 1, first=3, group="old", cpu="2", gated=True)
    stage.wait_phase(["old-3"], "Failed")
    stage.gang("young", 3, cpu="2", gated=True)
    stage.wait_phase(["young-1"], "Failed")
    stage.wait_phase(["young-0", "young-2"], "Gone")
    assert stage.phases(["old-0", "old-2"]) == {"Running"}
    wait_for(lambda: muster.metric("muster_evictions_total", outcome="done") == 2, what="two evictions")


# ---- watches break


@pytest.fixture
def wire(stage: Stage) -> TcpProxy:
    return stage.start_wire()


@pytest.fixture
def wired(stage: Stage, wire: TcpProxy, muster_user: User) -> Muster:
    """Return Muster on a wire that can be cut, with a scheduler on another one."""
    muster = stage.start_muster(user=muster_user, server=wire.server)
    stage.start_sidecar(muster, user=muster_user)
    return muster


def test_changes_while_watches_are_cut_are_known_afterwards(
    stage: Stage, wire: TcpProxy, wired: Muster
) -> None:
    """A gang goes, a foreign pod comes, a node is new and one is gone: the next gang stands right."""
    stage.nodes(3, cpu="4")
    before = stage.gang("a", 3, cpu="4", gated=True)
    stage.wait_phase(before, "Running")
    wire.refuse()
    stage.delete_pods(before)
    stage.wait_phase(before, "Gone")
    stage.api.delete(NODES, "n1")
    stage.nodes(1, prefix="new", cpu="4")
    _take(stage, "n0", directly=True, cpu="3")
    late = stage.gang("b", 3, cpu="2", gated=True)
    wire.restore()
    assert set(stage.wait_bound(late).values()) == {"n2", "new0"}
    stage.wait_phase(late, "Running")
    nodes = {each["name"]: each["idle"]["cpu"] for each in wired.debug("/debug/nodes")}
    assert sorted(nodes.items())[0] == ("n0", 1000)
    assert sum(nodes.values()) == 1000 + 2000


def test_watches_cut_again_and_again_during_starts(stage: Stage, wire: TcpProxy, wired: Muster) -> None:
    stage.nodes(4, cpu="4")
    gangs = [stage.gang(f"g{number}", 4, cpu="1", gated=True) for number in range(4)]
    pods = [name for gang in gangs for name in gang]

    seen: set[int] = set()

    def all_bound() -> bool:
        """Return whether all are bound; end all watches each time that more of them are."""
        bound = len(stage.bound(pods))
        if bound not in seen:
            seen.add(bound)
            wire.cut()
        return bound == len(pods)

    wait_for(all_bound, what="all gangs bound")
    stage.wait_phase(pods, "Running")
    wait_for(lambda: stage.pod_group("g3")["status"]["phase"] == "Running", what="the last one reported")


@pytest.mark.gates
def test_a_member_deleted_unseen_at_the_barrier(stage: Stage, wire: TcpProxy, muster_user: User) -> None:
    """Muster is cut off when it goes, so the gang seems whole: what was bound without it is completed."""
    cluster = stage.cluster
    proxy = stage.started.enter_context(FaultProxy(wire.server, cluster.certificate, cluster.key))
    muster = stage.start_muster(user=muster_user, server=proxy.server)
    stage.start_sidecar(muster, user=muster_user)
    stage.nodes(3, cpu="2")
    gang = Standstill(stage, muster, proxy, cpu="2")
    wire.refuse()
    stage.delete_pods([gang.held[0]])
    stage.api.patch(PODS, gang.last, {"spec": {"schedulingGates": []}}, stage.namespace)
    muster.wait_held(gang.pods)
    wire.restore()
    replacement = stage.pods("a", 1, first=3, group="a", cpu="2", gated=True)
    stage.wait_phase([*gang.pods[1:], *replacement], "Running")
    gang.release()


def _take(stage: Stage, node: str, *, directly: bool = False, cpu: str = "2") -> None:
    """Place a foreign pod on `node`, by a second, stock scheduler."""
    where: dict[str, Any] = {"nodeSelector": {"kubernetes.io/hostname": node}, "scheduler": STOCK}
    (foreign,) = stage.pods("foreign", 1, cpu=cpu, **where)
    if directly:
        stage.api.bind(stage.namespace, foreign, node)
    else:
        other = stage.start_scheduler()
        stage.wait_bound([foreign])
        other.kill()


# ---- the API server stores nothing


@pytest.mark.nightly  # a minute has to pass
def test_muster_is_unready_and_alive_while_etcd_has_no_space(stage: Stage, muster_user: User) -> None:
    stage.nodes(1, cpu="4")
    stage.gang("a", 2, gated=True)
    with _no_space(stage.cluster.etcd_address):
        muster = stage.start_muster(user=muster_user, wait=False)
        wait_for(muster.live, what="it listens")
        wait_for(lambda: "database space exceeded" in muster.readyz(), 100, what="readyz reports")
        assert not muster.ready()
        assert muster.live()
    muster.wait_ready()


@contextmanager
def _no_space(etcd: str) -> Iterator[None]:
    """Raise the alarm that etcd raises above its quota, which every write meets until somebody disarms it."""

    def ask(action: str) -> None:
        body = {"action": action, "alarm": "NOSPACE", "memberID": member}
        answer = urllib3.request("POST", f"{etcd}/v3/maintenance/alarm", json=body)
        assert answer.status == 200, answer.data

    status = urllib3.request("POST", f"{etcd}/v3/maintenance/status", json={})
    member = status.json()["header"]["member_id"]
    ask("ACTIVATE")
    try:
        yield
    finally:
        ask("DEACTIVATE")
