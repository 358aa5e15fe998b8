"""The real kubectl against the embedded API server, where `make control-plane` has built one."""

import subprocess
from pathlib import Path

import pytest

from extender.sim.apiserver.kinds import EVENTS, NODES, PODS
from extender.sim.apiserver.server import ApiServer
from extender.sim.apiserver.service import Service
from extender.sim.apiserver.tables import table, wanted
from extender.sim.kubelets import Kubelets
from extender.sim.scheduler.extender import Extender
from extender.sim.scheduler.loop import Scheduler
from tests.e2e.harness import objects
from tests.e2e.harness.waiting import wait_for
from tests.sim.requests import pod

BUILT = sorted(Path.home().glob(".cache/kube-muster/control-plane/*/kubectl"))
EXAMPLE = Path(__file__).parents[2] / "examples" / "first-gang.yaml"
needs_kubectl = pytest.mark.skipif(not BUILT, reason="no kubectl here: `make control-plane` builds one")


class Kubectl:
    def __init__(self, kubeconfig: Path) -> None:
        cache = kubeconfig.with_name("cache")
        self._start = [str(BUILT[-1]), "--kubeconfig", str(kubeconfig), "--cache-dir", str(cache)]

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._start, *arguments], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def kubectl(server: ApiServer, tmp_path: Path) -> Kubectl:
    server.write_kubeconfig(tmp_path / "kubeconfig")
    return Kubectl(tmp_path / "kubeconfig")


@needs_kubectl
def test_the_example_is_applied_shown_and_deleted(kubectl: Kubectl) -> None:
    assert kubectl("apply", "-f", str(EXAMPLE)).count("created") == 14
    assert kubectl("apply", "-f", str(EXAMPLE)).count("unchanged") == 14
    head, first, *_ = kubectl("get", "pods", "-o", "wide").splitlines()
    assert head.split()[:3] == ["NAME", "READY", "STATUS"]
    assert first.split()[1:3] == ["0/1", "SchedulingGated"]
    assert kubectl("get", "queue", "-o", "name").split() == [
        "queue.scheduling.volcano.sh/reports",
        "queue.scheduling.volcano.sh/research",
    ]
    assert "train" in kubectl("get", "pg", "--all-namespaces")
    kubectl("delete", "-f", str(EXAMPLE))
    assert kubectl("get", "pods,pg,q", "-o", "name") == ""


@needs_kubectl
def test_a_deletion_waits_for_the_kubelet(kubectl: Kubectl, service: Service) -> None:
    service.create(PODS, "", pod("a", nodeName="n0", terminationGracePeriodSeconds=30))
    kubelets = Kubelets(service)
    kubelets.start()
    kubectl("wait", "pod/a", "--for=jsonpath={.status.phase}=Running", "--timeout=30s")
    kubectl("delete", "pod", "a")
    assert service.store.get(PODS, "default", "a") is None
    kubelets.stop()


@needs_kubectl
def test_a_pod_is_described_with_its_events(kubectl: Kubectl, service: Service) -> None:
    scheduler = Scheduler(service, Extender("127.0.0.1:9"))
    scheduler.start()
    for name in ("a", "b"):
        service.create(PODS, "", pod(name, cpu="3"))
    wait_for(lambda: len(service.store.all(EVENTS)) == 2)
    service.create(NODES, "", objects.node("n0", cpu="4"))
    wait_for(lambda: not scheduler.busy and len(service.store.all(EVENTS)) == 4)
    scheduler.stop()
    first, second = sorted((kubectl("describe", "pod", name) for name in ("a", "b")), key=len)
    assert "no nodes available to schedule pods" in first
    assert "Successfully assigned default/" in first
    assert "Insufficient cpu" in second
    assert "default-scheduler" in second


def test_lists_become_tables_for_people(service: Service) -> None:
    made = service.create(PODS, "", pod("a", nodeName="n0"))
    shown = table(PODS, made)
    names = [column["name"] for column in shown["columnDefinitions"]]
    cells = dict(zip(names, shown["rows"][0]["cells"], strict=True))
    assert (cells["Name"], cells["Ready"], cells["Status"], cells["Node"]) == ("a", "0/1", "Pending", "n0")
    assert wanted("application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
    assert not wanted("application/json")
