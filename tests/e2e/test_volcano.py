"""Muster leaves Volcano's pods alone while Volcano runs; these tests hold Volcano's Lease."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from tests.e2e.harness.muster import Muster
from tests.e2e.harness.objects import namespace
from tests.e2e.harness.resources import LEASES, NAMESPACES
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

LEASE, SYSTEM = "volcano", "volcano-system"


@pytest.mark.gates
def test_pods_of_volcano_are_left_to_it_while_it_holds_its_lease(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Muster's scheduler has a profile of that name as well: it must not place them either."""
    stage.nodes(3, cpu="4")
    with _volcano_at_work(stage):
        wait_for(lambda: "its own scheduler" in muster.readyz(), what="Volcano noticed")
        theirs = stage.gang("theirs", 3, scheduler="volcano", gated=True)
        ours = stage.gang("ours", 3, gated=True)
        stage.wait_phase(ours, "Running")
        wait_for(lambda: _gateless(stage, theirs), what="the gates of Volcano's pods opened")
        wait_for(lambda: "left to Volcano" in str(stage.pod("theirs-0")["status"]), what="refused")
        assert stage.bound(theirs) == {}
        assert "status" not in stage.pod_group("theirs")
        assert "volcano-1" in muster.debug("/debug/leadership")["volcano"]
    stage.wait_phase(theirs, "Running")
    assert "no scheduler" in muster.readyz()


@contextmanager
def _volcano_at_work(stage: Stage) -> Iterator[None]:
    if stage.api.find(NAMESPACES, SYSTEM) is None:
        stage.api.create(NAMESPACES, namespace(SYSTEM))
    over = threading.Event()
    renewing = threading.Thread(target=_renew, args=(stage, over), daemon=True)
    metadata = {"name": LEASE, "namespace": SYSTEM}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": _spec()}
    stage.api.create(LEASES, lease)
    renewing.start()
    try:
        yield
    finally:
        over.set()
        renewing.join()
        stage.api.delete(LEASES, LEASE, SYSTEM)


def _renew(stage: Stage, over: threading.Event) -> None:
    while not over.wait(2):
        stage.api.patch(LEASES, LEASE, {"spec": _spec()}, SYSTEM)


def _spec() -> dict[str, object]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"holderIdentity": "volcano-1", "leaseDurationSeconds": 15, "renewTime": now}


def _gateless(stage: Stage, pods: list[str]) -> bool:
    return not any(stage.pod(name)["spec"].get("schedulingGates") for name in pods)
