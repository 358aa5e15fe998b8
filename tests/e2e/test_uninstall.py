"""Commands of docs/how-to/uninstall.md, unchanged, on a real API server: nothing of Muster is left."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.conftest import KUBERNETES
from tests.e2e.harness import installs, manifests, objects, webhooks
from tests.e2e.harness.access import User
from tests.e2e.harness.administrator import Administrator, commands
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.jobs import job
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.policy import gates_pods, gating
from tests.e2e.harness.resources import (
    CRDS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
)
from tests.e2e.harness.scheduler import KubeScheduler, sidecar_options
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.watch import ApiError
from tests.e2e.harness.webhooks import Port

Json = dict[str, Any]
PAGE = installs.ROOT / "docs" / "how-to" / "uninstall.md"
UPGRADE = installs.ROOT / "docs" / "how-to" / "upgrade.md"
TEAM = "team"
FOREIGN = "example.com/theirs"
LEAVING = "kube-muster/install/leaving"
HELM_UNINSTALL = "helm uninstall muster --namespace kube-muster && kubectl delete namespace kube-muster"


@pytest.fixture
def cluster(muster_user: User) -> Iterator[ControlPlane]:
    """Yield a control plane for this test alone, whose namespaces really end."""
    with ControlPlane(kubernetes=KUBERNETES, users=[muster_user]) as started:
        started.start_controller_manager()
        yield started


@pytest.fixture
def gates() -> bool:
    """Return whether pods wait behind gates rather than hidden from the scheduler."""
    return False


@pytest.fixture
def administrator(cluster: ControlPlane, tmp_path: Path, gates: bool) -> Administrator:
    return Administrator(cluster, tmp_path, PAGE, gating(KUBERNETES) if gates else ())


INSTALL = {
    "kustomize": "kubectl apply --kustomize overlay",
    "helm": "helm install muster kube-muster/install/chart --namespace kube-muster --create-namespace",
}


@pytest.mark.parametrize("gates", [False, True], ids=["view", "gates"])
@pytest.mark.parametrize("way", INSTALL)
def test_uninstalling_leaves_no_objects_and_no_blocked_pods(
    cluster: ControlPlane, administrator: Administrator, muster_user: User, way: str, gates: bool
) -> None:
    assert HELM_UNINSTALL in PAGE.read_text()
    administrator.run(
        f"{INSTALL[way]} --set view.enabled=false" if (way, gates) == ("helm", True) else INSTALL[way]
    )
    port = Port()
    webhooks.move_to_loopback(cluster.admin, port)
    with (
        Muster(
            cluster,
            cluster.kubeconfig(muster_user),
            leader_elect="follow",
            arguments=port.flags("self-signed"),
            view=not gates,
        ) as muster,
        KubeScheduler(cluster, **sidecar_options(muster), user=muster_user, leader_elect=True),
    ):
        _populate(cluster)
        wait_for(lambda: gates_pods(cluster.admin, TEAM) is gates, what=f"pods gated: {gates}")
        running = _create(cluster, "small", 1)
        waiting = _create(cluster, "large", 3)
        wait_for(lambda: _nodes_of(cluster, running) == {"n0"}, what="what fits bound")
        muster.wait_decision(TEAM, "large", verdict="Waiting")
        _create_jobs(cluster)
        assert _gated(cluster) == (set(waiting) if gates else set())
        administrator.step(1)
        wait_for(lambda: not gates_pods(cluster.admin, TEAM), what="nothing gated any more")
        administrator.run(HELM_UNINSTALL) if way == "helm" else administrator.step(2)
    # The pods of the Deployment have ended with it, as the two processes here have.
    while administrator.step(3):
        pass
    assert _gated(cluster) == set()
    assert cluster.admin.get(PODS, "large-2", TEAM)["spec"]["schedulingGates"] == [{"name": FOREIGN}]
    assert _nodes_of(cluster, running) == {"n0"}
    assert len(cluster.admin.items(POD_GROUPS, TEAM)) == 4
    if way == "kustomize":
        _placed_by_a_plain_scheduler(cluster, administrator, muster_user, waiting[:2])
    administrator.step(5)
    _nothing_left(cluster, administrator)


def test_helm_upgrades_and_rolls_back(cluster: ControlPlane, administrator: Administrator) -> None:
    """Follow docs/how-to/upgrade.md, with a value for the next version."""
    administrator.run(INSTALL["helm"])
    (administrator.home / "values.yaml").write_text("replicas: 3\n")
    upgrade, rollback = (_helm(word) for word in ("upgrade", "rollback"))
    for command, replicas in ((upgrade, 3), (rollback, 2)):
        administrator.run(command)
        deployment = json.loads(administrator.run("kubectl -n kube-muster get deployment muster -o json"))
        assert deployment["spec"]["replicas"] == replicas


def _helm(word: str) -> str:
    (found,) = re.findall(rf"^helm {word} .*$", UPGRADE.read_text(), re.MULTILINE)
    return str(found)


def _placed_by_a_plain_scheduler(
    cluster: ControlPlane, administrator: Administrator, user: User, waiting: Sequence[str]
) -> None:
    """Run the page's commands for pods whose scheduler is gone: those that fit are placed, one by one."""
    administrator.step(4)
    assert _suspended(cluster) == {"stopped"}
    assert not gates_pods(cluster.admin, TEAM)
    found = installs.kustomized(cluster.binaries / "kubectl", administrator.home / LEAVING)
    (config,) = [each for each in found if each["kind"] == "ConfigMap"]
    (workload,) = [each for each in found if each["kind"] == "Deployment"]
    assert not workload["spec"]["template"]["spec"]["initContainers"]
    with KubeScheduler(cluster, yaml.safe_load(config["data"]["sidecar.yaml"]), user=user, leader_elect=True):
        wait_for(lambda: len(_nodes_of(cluster, waiting)) == 1, what="pods of the old name placed")
    administrator.run(commands(PAGE, 2).replace("overlay", LEAVING))


def _nothing_left(cluster: ControlPlane, administrator: Administrator) -> None:
    found = installs.kustomized(cluster.binaries / "kubectl", administrator.home / "overlay")
    named = [each for each in found if each["apiVersion"].partition("/")[0] != "scheduling.volcano.sh"]
    wait_for(lambda: cluster.admin.find(NAMESPACES, "kube-muster") is None, what="the namespace gone")
    left = [manifests.find(cluster.admin, each) for each in named]
    assert [each["metadata"]["name"] for each in left if each] == []
    assert [each for each in cluster.admin.items(CRDS) if "volcano" in each["metadata"]["name"]] == []
    assert cluster.admin.find(LEASES, "muster-scheduler", "kube-system") is None


def _populate(cluster: ControlPlane) -> None:
    """Create a node with capacity for three pods, and a namespace."""
    cluster.admin.create(NODES, objects.node("n0", cpu="3"))
    cluster.admin.create(NAMESPACES, objects.namespace(TEAM))


def _create(cluster: ControlPlane, name: str, size: int) -> list[str]:
    """Create a gang; the last pod of a gang of several has a foreign gate as well."""
    group = objects.pod_group(name, namespace=TEAM, min_member=size)
    wait_for(lambda: _accepted(cluster, group), what="the webhooks reached")
    pods = [objects.pod(f"{name}-{number}", namespace=TEAM, group=name) for number in range(size)]
    if size > 1:
        pods[-1]["spec"]["schedulingGates"] = [{"name": FOREIGN}]
    return [cluster.admin.create(PODS, pod)["metadata"]["name"] for pod in pods]


def _create_jobs(cluster: ControlPlane) -> None:
    """Create a suspended job that waits for capacity, and a job that its user has stopped."""
    cluster.admin.create(JOBS, job("waits", namespace=TEAM, cpu="3", suspend=True, queue="default"))
    recorded = {"kube-muster.io/started": "2026-01-01T00:00:00Z"}
    stopped = job("stopped", namespace=TEAM, suspend=True, queue="default", annotations=recorded)
    cluster.admin.create(JOBS, stopped)
    wait_for(lambda: _reasons(cluster) == {"NoRoom", "Aborted"}, what="the states of both are reported")


def _reasons(cluster: ControlPlane) -> set[str]:
    """Return the reasons of the PodGroups of Jobs."""
    found = [each for each in cluster.admin.items(POD_GROUPS, TEAM) if "ownerReferences" in each["metadata"]]
    return {
        condition["reason"] for each in found for condition in each.get("status", {}).get("conditions", [])
    }


def _suspended(cluster: ControlPlane) -> set[str]:
    return {each["metadata"]["name"] for each in cluster.admin.items(JOBS, TEAM) if each["spec"]["suspend"]}


def _accepted(cluster: ControlPlane, group: Json) -> bool:
    """Return whether the webhooks are reached: their CA is written in the first seconds of Muster's life."""
    try:
        cluster.admin.create(POD_GROUPS, group)
    except ApiError:
        return False
    return True


def _gated(cluster: ControlPlane) -> set[str]:
    ours = {"name": objects.GATE}
    return {
        each["metadata"]["name"]
        for each in cluster.admin.items(PODS)
        if ours in each["spec"].get("schedulingGates", [])
    }


def _nodes_of(cluster: ControlPlane, names: Sequence[str]) -> set[str]:
    pods = [cluster.admin.get(PODS, name, TEAM) for name in names]
    return {pod["spec"].get("nodeName", "") for pod in pods}
