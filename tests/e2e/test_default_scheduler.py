"""Muster next to the cluster's own scheduler: it decides on marked pods, and no other pod depends on it.

The two speak TLS, each with a certificate of `muster certificates`, as installed.
"""

import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path

import pytest

from extender.webhooks.certificates import make_mutual
from tests.e2e.harness import objects
from tests.e2e.harness.access import User
from tests.e2e.harness.fault_proxy import FaultProxy
from tests.e2e.harness.muster import PROGRAM, Muster
from tests.e2e.harness.resources import NAMESPACES, PODS, QUEUES
from tests.e2e.harness.scheduler import KubeScheduler, load
from tests.e2e.harness.stage import Json, Stage
from tests.e2e.harness.standstill import Standstill
from tests.e2e.harness.waiting import wait_for

DEFAULT = "default-scheduler"
MARKERS = {"kube-muster.io/place": "1", "kube-muster.io/bind": "1"}
QUEUE_NAME = "scheduling.volcano.sh/queue-name"


@pytest.fixture
def muster(stage: Stage, muster_user: User, tls: Path) -> Iterator[Muster]:
    """Yield a Muster with the policy in force that marks pods."""
    with stage.policy("default-scheduler/admission-policy.yaml"):
        names, folder = (DEFAULT, "muster"), f"--tls-folder={tls / 'muster'}"
        yield stage.start_muster(folder, user=muster_user, scheduler_names=names)


@pytest.fixture
def scheduler(stage: Stage, muster: Muster, tls: Path) -> KubeScheduler:
    """Return the cluster's own scheduler with its own account; Muster is its extender for marked pods."""
    return stage.start_scheduler("default-scheduler.yaml", muster=muster.address, tls=tls / "scheduler")


@pytest.mark.gates
def test_marked_gangs_start_whole_next_to_pods_without_a_group(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    stage.nodes(3, cpu="4")
    plain = stage.pods("plain", 3, scheduler=DEFAULT)
    gang = stage.gang("a", 3, cpu="3", scheduler=DEFAULT)
    named = stage.pods("own-name", 1, cpu="0", scheduler="muster")
    stage.wait_phase([*plain, *gang, *named], "Running")
    assert [_marks(stage, name) for name in (*gang, *named)] == [MARKERS] * 4
    assert [_marks(stage, name) for name in plain] == [{}] * 3
    muster.wait_calls("bind", 4)


def test_certificates_of_another_ca_come_in_the_middle_of_a_start(
    stage: Stage, proxy: FaultProxy, muster_user: User, tls: Path, tmp_path: Path
) -> None:
    """Renew Muster's first, then the scheduler's with a restart, as the page says; two members are held."""
    with stage.policy("default-scheduler/admission-policy.yaml"):
        folder = f"--tls-folder={tls / 'muster'}"
        muster = stage.start_muster(
            folder, user=muster_user, server=proxy.server, scheduler_names=(DEFAULT, "muster")
        )
        options: Json = {"muster": muster.address, "tls": tls / "scheduler"}
        scheduler = stage.start_scheduler("default-scheduler.yaml", **options)
        stage.nodes(3, cpu="4")
        gang = Standstill(stage, muster, proxy, scheduler=DEFAULT)
        subprocess.run([PROGRAM, "certificates", "--out", tmp_path / "new"], check=True, timeout=60)
        shutil.copytree(tmp_path / "new" / "muster", tls / "muster", dirs_exist_ok=True)
        wait_for(lambda: _is_answered(muster, tmp_path / "new" / "scheduler"), what="the new CA in force")
        assert muster.held().keys() == {*gang.held}
        gang.release()
        shutil.copytree(tmp_path / "new" / "scheduler", tls / "scheduler", dirs_exist_ok=True)
        scheduler.restart()
        stage.wait_phase(gang.pods, "Running")


def _is_answered(muster: Muster, folder: Path) -> bool:
    """Return whether a caller with the scheduler's certificate of this folder gets an answer."""
    host, _, port = muster.address.partition(":")
    known = ssl.create_default_context(cafile=folder / "ca.crt")
    known.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    with closing(HTTPSConnection(host, int(port), timeout=30, context=known)) as caller:
        try:
            return _bind_nothing(caller) == 400
        except (OSError, HTTPException):
            return False


def test_a_caller_without_a_certificate_is_refused(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, tls: Path
) -> None:
    """Refuse callers without TLS or with a certificate of another CA; answer the scheduler meanwhile."""
    stage.nodes(1, cpu="4")
    host, _, port = muster.address.partition(":")
    trusting = ssl.create_default_context(cafile=tls / "muster" / "ca.crt")
    stranger = ssl.create_default_context(cafile=tls / "muster" / "ca.crt")
    pair = make_mutual(["127.0.0.1"], 3600, time.time())[1]
    (tls / "stranger.pem").write_bytes(pair.certificate + pair.key)
    stranger.load_cert_chain(tls / "stranger.pem")
    for caller in (
        HTTPConnection(host, int(port), timeout=30),
        HTTPSConnection(host, int(port), timeout=30, context=trusting),
        HTTPSConnection(host, int(port), timeout=30, context=stranger),
    ):
        with closing(caller), pytest.raises((OSError, HTTPException)):
            _bind_nothing(caller)
    stage.wait_phase(stage.gang("a", 3, scheduler=DEFAULT), "Running")
    known = ssl.create_default_context(cafile=tls / "scheduler" / "ca.crt")
    known.load_cert_chain(tls / "scheduler" / "tls.crt", tls / "scheduler" / "tls.key")
    known.set_alpn_protocols(["h2", "http/1.1"])
    with closing(HTTPSConnection(host, int(port), timeout=30, context=known)) as caller:
        assert _bind_nothing(caller) == 400
        assert isinstance(caller.sock, ssl.SSLSocket)
        assert caller.sock.selected_alpn_protocol() == "http/1.1"


def test_only_pods_of_muster_wait_while_it_is_down(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Start pods when it is back, whether they wait at their gate or, already admitted, in the scheduler."""
    stage.nodes(3, cpu="5")
    stage.pods("filler", 3, cpu="4", scheduler="nobody")
    for number in range(3):
        stage.api.bind(stage.namespace, f"filler-{number}", f"n{number}")
    let_in = stage.gang("a", 2, cpu="2", scheduler=DEFAULT)
    muster.wait_decision(stage.namespace, "a", verdict="Waiting")
    muster.kill()
    for name in let_in:
        _open_gate(stage, name)
    stage.delete_pods(["filler-0", "filler-1", "filler-2"])
    at_the_gate = stage.gang("b", 2, cpu="2", scheduler=DEFAULT)
    plain = stage.pods("plain", 3, scheduler=DEFAULT)
    stage.wait_phase(plain, "Running")
    wait_for(lambda: all(_refused(stage, name) for name in let_in), what="marked pods tried in vain")
    assert stage.bound([*let_in, *at_the_gate]) == {}
    muster.start()
    stage.wait_phase([*let_in, *at_the_gate], "Running")


def test_after_muster_an_ignorable_entry_lets_marked_pods_go(stage: Stage) -> None:
    """Follow docs/how-to/uninstall.md: entries stay, marker resources are ignored, no call is answered."""
    config = load("default-scheduler.yaml")
    for entry in config["extenders"]:
        entry["ignorable"] = True
    stage.nodes(2, cpu="4")
    with stage.policy("default-scheduler/admission-policy.yaml"):
        pods = stage.gang("a", 3, scheduler=DEFAULT)
    stage.start_scheduler(config, muster="127.0.0.1:1")
    for name in pods:
        assert _marks(stage, name) == MARKERS
        _open_gate(stage, name)
    stage.wait_phase(pods, "Running")


def test_a_namespace_names_the_queue_of_its_pods(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Its plain pods are ours then: two fit under the queue's ceiling, the third waits until that rises."""
    stage.nodes(2, cpu="4")
    stage.queue("team", capability={"cpu": "2"})
    stage.api.patch(NAMESPACES, stage.namespace, {"metadata": {"annotations": {QUEUE_NAME: "team"}}})
    wait_for(lambda: _gated_at_birth(stage), what="the namespace's pods gated")
    pods = stage.pods("p", 3, scheduler=DEFAULT)
    wait_for(lambda: len(stage.bound(pods)) == 2, what="two of three bound")
    (third,) = {*pods} - stage.bound(pods).keys()
    decided = muster.wait_decision(stage.namespace, stage.own_group(third), reason="QueueCeiling")
    assert decided["queue"] == "team"
    stage.api.patch(QUEUES, "team", {"spec": {"capability": {"cpu": "3"}}})
    stage.wait_phase(pods, "Running")


def _bind_nothing(caller: HTTPConnection) -> int:
    """Return the status; a caller that is not admitted gets none."""
    caller.request("POST", "/v1/bind", b"{}")
    return caller.getresponse().status


def _marks(stage: Stage, name: str) -> dict[str, str]:
    requests = stage.pod(name)["spec"]["containers"][0]["resources"]["requests"]
    return {key: value for key, value in requests.items() if key in MARKERS}


def _refused(stage: Stage, name: str) -> bool:
    conditions = stage.pod(name)["status"].get("conditions", [])
    return any(condition.get("reason") == "SchedulerError" for condition in conditions)


def _open_gate(stage: Stage, name: str) -> None:
    stage.api.patch(PODS, name, {"spec": {"schedulingGates": []}}, stage.namespace)


def _gated_at_birth(stage: Stage) -> bool:
    shown = objects.pod("sample", namespace=stage.namespace, scheduler=DEFAULT)
    made = stage.api.request("POST", f"{PODS.path(stage.namespace)}?dryRun=All", shown)
    return {"name": objects.GATE} in made["spec"].get("schedulingGates", [])
