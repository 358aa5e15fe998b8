"""Slow parts are not failures: a scheduler that is away, gates, volumes, images, an API server that hangs."""

import threading
from typing import Any

import pytest

from tests.e2e.harness.access import User
from tests.e2e.harness.fault_proxy import FaultProxy
from tests.e2e.harness.faults import ALL_REQUESTS, hold_request, lose_request
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.scheduler import QUICK_LEASE, KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.volumes import Provisioner
from tests.e2e.harness.waiting import wait_for

LARGE = 200
LONG = 150.0  # seconds, where the longest deadlines have to pass


@pytest.mark.gates
def test_time_without_a_scheduler_without_a_leader_or_with_shut_gates_is_no_failure(
    stage: Stage, proxy: FaultProxy, muster_user: User
) -> None:
    """Its Lease runs out after 10 s, twice the deadline of a start."""
    muster = stage.start_muster(
        "--bind-deadline", "5s", user=muster_user, server=proxy.server, leader_elect="follow"
    )
    scheduler = stage.start_sidecar(muster, user=muster_user, leader_elect=True, lease=QUICK_LEASE)
    wait_for(lambda: muster.metric("muster_leader") == 1, what="leading")
    stage.nodes(1, cpu="8")
    stage.wait_phase(stage.gang("before", 2, gated=True))
    released = threading.Event()
    gates = hold_request(released, "PATCH", r"/pods/shut-\d$", times=ALL_REQUESTS)
    proxy.inject(gates)
    scheduler.process.freeze()
    gangs = {name: stage.gang(name, 3, gated=True) for name in ("open", "shut")}
    for name in gangs:
        muster.wait_decision(stage.namespace, name, verdict="Starting")
    wait_for(gates.hit.is_set, what="the removal of a gate sent")
    wait_for(lambda: muster.metric("muster_leader") == 0, what="leadership lost")
    assert not any(stage.bound(gang) for gang in gangs.values())
    _assert_none_failed(muster)
    scheduler.kill()
    scheduler.start()
    stage.wait_phase(gangs["open"])
    released.set()
    stage.wait_phase(gangs["shut"])
    _assert_none_failed(muster)


@pytest.mark.timeout(400)
@pytest.mark.gang_deadline(LONG)
def test_volumes_that_take_longer_than_a_start_and_images_that_never_come(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Extend a start by members in PreBind up to the bind deadline.

    A group has run fully when all required members have been bound for a while, and loses none from
    then on. A third group, which a kubelet keeps from ever standing whole, is undone at the deadline of
    its start: those of the others are past by then.
    """
    stage.nodes(10, cpu="1")
    volumes = Provisioner(stage)
    images = stage.gang("images", 3, gated=True)
    stage.kubelet.pull("images-2")
    slow = [
        *stage.gang("slow", 2, min_member=3, gated=True),
        *stage.pods("late", 1, group="slow", gated=True, **volumes.late("data")),
    ]
    wait_for(lambda: volumes.is_awaited("data"), what="the volume awaited")
    muster.wait_held(slow[:2])
    stage.kubelet.refuse("young-1")
    stage.gang("young", 4, gated=True)
    stage.wait_phase(["young-1"], "Failed")
    wait_for(lambda: _view(stage, muster, "images")["stoodWhole"], what="it has run fully")
    stage.delete_pods(["images-1"])
    stage.wait_phase(["young-0", "young-2", "young-3"], "Gone", timeout=LONG)
    assert stage.phases(["images-0"]) == {"Running"}
    assert stage.phases(["images-2"]) == {"Pending"}
    assert muster.held().keys() == {*slow[:2]}
    volumes.provide("data")
    stage.wait_phase(slow)
    assert muster.metric("muster_evictions_total", outcome="done") == 3
    assert _failed(muster) == {f"{stage.namespace}/young"}
    stage.wait_phase([images[0], *stage.pods("again", 1, group="images", gated=True)])


@pytest.mark.timeout(400)
@pytest.mark.muster_flags("--bind-deadline", "15s", "--start-backoff", "10m", "--start-backoff-max", "10m")
def test_a_large_gang_whose_bindings_hang_leaves_no_claim(
    stage: Stage, muster_behind_proxy: Muster, proxy: FaultProxy, muster_user: User
) -> None:
    """Release all claims although no binding arrives and for a time no pod can be read.

    Another gang needs all of the capacity.
    """
    muster = muster_behind_proxy
    stage.start_sidecar(muster, user=muster_user)
    stage.nodes(LARGE // 100, cpu="100")
    released = threading.Event()
    hangs = lose_request(released, times=ALL_REQUESTS)
    unreadable = lose_request(released, "GET", r"/pods/hangs-\d+$", times=ALL_REQUESTS)
    proxy.inject(hangs, unreadable)
    gang = stage.gang("hangs", LARGE, gated=True)
    wait_for(unreadable.hit.is_set, what="a pod read in vain")
    muster.wait_held([])
    assert "POSTED" in muster.claim_stages()
    hangs.times = unreadable.times = 0
    released.set()
    wait_for(lambda: not muster.claim_stages(), timeout=LONG, what="all claims given back")
    assert all(node["idle"]["cpu"] == 100_000 for node in muster.debug("/debug/nodes"))
    assert stage.bound(gang) == {}
    stage.delete_pods(gang)
    stage.wait_phase(stage.gang("next", LARGE, gated=True), timeout=LONG)


def _view(stage: Stage, muster: Muster, group: str) -> dict[str, Any]:
    view: dict[str, Any] = muster.debug(f"/debug/podgroups/{stage.namespace}/{group}")
    return view


def _failed(muster: Muster) -> set[str]:
    """Return the groups that ever backed off, or were refused."""
    turns = muster.debug("/debug/decisions?limit=1000")
    return {turn["podGroup"] for turn in turns if turn.get("reason") in ("BackingOff", "RefusedByScheduler")}


def _assert_none_failed(muster: Muster) -> None:
    assert not _failed(muster)
    assert {view["verdict"] for view in muster.debug("/debug/podgroups")} <= {"Starting", "Running"}
