"""Leadership: which replica may write, and how it starts in a cluster in an unexpected state."""

import socket
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness.access import User
from tests.e2e.harness.fault_proxy import FaultProxy
from tests.e2e.harness.muster import PROGRAM, Muster
from tests.e2e.harness.resources import LEASES
from tests.e2e.harness.scheduler import QUICK_LEASE
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.standstill import Standstill
from tests.e2e.harness.waiting import wait_for

LEASE, SYSTEM = "muster-scheduler", "kube-system"


@pytest.fixture
def follower(stage: Stage, proxy: FaultProxy, muster_user: User) -> Muster:
    return stage.start_muster(user=muster_user, server=proxy.server, leader_elect="follow")


def test_muster_writes_only_next_to_the_scheduler_that_holds_the_lease(
    stage: Stage, follower: Muster, proxy: FaultProxy, muster_user: User
) -> None:
    """First another host's scheduler has it, then the neighbour, then the other host again."""
    _hold_lease(stage, "elsewhere_1")
    stage.nodes(3, cpu="4")
    first = stage.gang("a", 3, gated=True)
    _decided(stage, follower, "a")
    assert proxy.writes() == []
    stage.api.delete(LEASES, LEASE, SYSTEM)
    scheduler = stage.start_sidecar(follower, user=muster_user, leader_elect=True)
    stage.wait_phase(first, "Running")
    wait_for(lambda: stage.pod_group("a")["status"]["phase"] == "Running", what="a reported as running")
    assert follower.metric("muster_leader") == 1
    scheduler.kill()
    _hold_lease(stage, "elsewhere_2")
    wait_for(lambda: follower.metric("muster_leader") == 0, what="leadership lost")
    written = proxy.writes()
    second = stage.gang("b", 3, gated=True)
    _decided(stage, follower, "b")
    assert proxy.writes() == written
    assert stage.bound(second) == {}


@pytest.mark.gates
def test_a_gang_at_the_barrier_is_bound_without_the_lease(
    stage: Stage, follower: Muster, proxy: FaultProxy, muster_user: User
) -> None:
    """The scheduler that counts is the one that calls bind, whatever Lease we last saw."""
    _hold_lease(stage, f"{socket.gethostname()}_1")
    stage.start_sidecar(follower, user=muster_user)
    stage.nodes(3, cpu="4")
    gang = Standstill(stage, follower, proxy)
    _hold_lease(stage, "elsewhere_1")
    wait_for(lambda: follower.metric("muster_leader") == 0, what="leadership lost")
    gang.release()
    stage.wait_phase(gang.pods, "Running")
    assert stage.pod_group("a")["status"]["phase"] != "Running"


def test_an_expired_lease_makes_no_replica_the_leader(
    stage: Stage, follower: Muster, proxy: FaultProxy, muster_user: User
) -> None:
    """The scheduler hangs: its Lease still bears its name, but somebody else may have taken over."""
    scheduler = stage.start_sidecar(follower, user=muster_user, leader_elect=True, lease=QUICK_LEASE)
    wait_for(lambda: follower.metric("muster_leader") == 1, what="leading")
    scheduler.process.freeze()
    wait_for(lambda: follower.metric("muster_leader") == 0, what="leadership lost")
    written = proxy.writes()
    stage.nodes(3, cpu="4")
    gang = stage.gang("a", 3, gated=True)
    _decided(stage, follower, "a")
    assert proxy.writes() == written
    scheduler.process.thaw()
    scheduler.kill()
    scheduler.start()
    stage.wait_phase(gang, "Running")


def test_a_start_without_an_api_server_waits_for_it(stage: Stage, muster_user: User) -> None:
    wire = stage.start_wire()
    wire.refuse()
    muster = stage.start_muster(user=muster_user, server=wire.server, wait=False)
    wait_for(lambda: "listing or watching was interrupted" in muster.process.tail(), what="the log says why")
    started = muster.metric("process_start_time_seconds")
    assert not muster.ready()
    assert "[-]pods-synced failed" in muster.readyz()
    assert muster.live()
    wire.restore()
    muster.wait_ready()
    assert muster.metric("process_start_time_seconds") == started
    assert "Traceback" not in muster.process.tail(1000)


@pytest.mark.parametrize("flag", ["--listen", "--health-listen", "--debug-listen"])
def test_the_error_for_a_port_in_use_names_its_flag(stage: Stage, muster_user: User, flag: str) -> None:
    running = stage.start_muster(user=muster_user)
    refusal = _refused_to_serve(stage.cluster.kubeconfig(muster_user), flag, running.address)
    assert f"{flag}: invalid value '{running.address}': " in refusal


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("}{", "line 1"),
        ('{"apiVersion": "v1", "kind": "Config"}', "context"),
        (None, "no such file"),
    ],
    ids=["not-yaml", "empty", "missing"],
)
def test_an_invalid_kubeconfig_is_reported(tmp_path: Path, content: str | None, why: str) -> None:
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content)
    refusal = _refused_to_serve(path, "--listen", "127.0.0.1:0")
    assert "--kubeconfig" in refusal
    assert str(path) in refusal
    assert why in refusal.lower()


def _refused_to_serve(kubeconfig: Path, flag: str, address: str) -> str:
    """Return the message of `muster serve` when it ends at once for a mistake of the administrator."""
    free = {"--listen": "127.0.0.1:0", "--health-listen": "127.0.0.1:0", "--debug-listen": "127.0.0.1:0"}
    listening = [part for pair in {**free, flag: address}.items() for part in pair]
    command = [str(PROGRAM), "serve", "--kubeconfig", str(kubeconfig), *listening]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def _decided(stage: Stage, muster: Muster, group: str) -> None:
    """Wait until the replica would start the group and has decided again: pending writes were made."""
    muster.wait_decision(stage.namespace, group, verdict="Starting")
    stage.pods(f"after-{group}", 1, gated=True)
    muster.wait_decision(stage.namespace, stage.own_group(f"after-{group}-0"), verdict="Starting")


def _hold_lease(stage: Stage, holder: str) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec: dict[str, Any] = {
        "holderIdentity": holder,
        "leaseDurationSeconds": 15,
        "acquireTime": now,
        "renewTime": now,
    }
    if stage.api.find(LEASES, LEASE, SYSTEM) is None:
        metadata = {"name": LEASE, "namespace": SYSTEM}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        stage.api.create(LEASES, body)
    else:
        stage.api.patch(LEASES, LEASE, {"spec": spec}, SYSTEM)
