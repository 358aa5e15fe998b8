"""`muster check` on a real API server: an installation whose pods are played, and what may be wrong."""

import base64
import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from extender.webhooks.certificates import make_pair
from tests.e2e import build
from tests.e2e.conftest import KUBERNETES
from tests.e2e.harness import installs, manifests, objects, rights, webhooks
from tests.e2e.harness.access import ADMIN, User
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.pod_network import PodNetwork
from tests.e2e.harness.policy import gating, needed
from tests.e2e.harness.resources import (
    CLUSTER_ROLES,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    NODES,
    POD_GROUPS,
    PODS,
    SERVICES,
    VALIDATING_WEBHOOKS,
)
from tests.e2e.harness.rights import Right
from tests.e2e.harness.scheduler import KubeScheduler, sidecar_options
from tests.e2e.harness.shell import Shell
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.webhooks import Port

Json = dict[str, Any]
NAMESPACE = "kube-muster"
POD, ADDRESS, HEALTH = "muster-1", "10.1.0.7", 8282
SERVICE = "muster-webhook"
CONFIGURATION = ("validatingwebhookconfigurations", "admissionregistration.k8s.io", "kube-muster")


@pytest.fixture
def admin(stage: Stage) -> Shell:
    return Shell(stage.cluster, ADMIN, NAMESPACE)


# ---- objects alone


def test_check_reports_present_and_missing_parts(stage: Stage, admin: Shell) -> None:
    """No pods run here, so parts that need them are wrong; objects in the API server are ok."""
    with stage.policy("gates/admission-policy.yaml"):
        done = admin("check", "-o", "json")
    assert done.returncode == 1, done.stderr
    states = {each["subject"]: each["state"] for each in json.loads(done.stdout)}
    assert states["Kubernetes"] == states["clocks"] == states["rights"] == states["Volcano"] == "ok"
    assert states["queues.scheduling.volcano.sh"] == states["podgroups.scheduling.volcano.sh"] == "ok"
    assert states["workload"] == "wrong"


def test_check_finds_a_right_that_is_missing(stage: Stage, admin: Shell) -> None:
    """The scheduler next to Muster has the same account, and misses the right, too."""
    (role,) = [
        document
        for document in manifests.documents("rbac.yaml")
        if (document["kind"], document["metadata"]["name"]) == ("ClusterRole", "kube-muster")
    ]
    fewer = [rule for rule in role["rules"] if "pods/eviction" not in rule["resources"]]
    try:
        stage.api.patch(CLUSTER_ROLES, "kube-muster", {"rules": fewer})
        wait_for(lambda: "create pods/eviction" in _rights(admin), what="the missing right is reported")
    finally:
        stage.api.patch(CLUSTER_ROLES, "kube-muster", {"rules": role["rules"]})
    wait_for(lambda: "has all" in _rights(admin), what="the right is there again")


def _rights(admin: Shell) -> str:
    found = json.loads(admin("check", "-o", "json").stdout)
    return "".join(each["message"] for each in found if each["subject"] == "rights")


# ---- mutual TLS


def test_check_says_how_the_secret_of_mutual_tls_is_made(tmp_path: Path) -> None:
    """Run the commands of the message as they stand, as an administrator."""
    with ControlPlane(kubernetes=KUBERNETES) as cluster:
        admin = Shell(cluster, ADMIN, NAMESPACE)
        overlay = installs.overlay(
            tmp_path, "default-scheduler", needed(KUBERNETES), build.release(KUBERNETES)
        )
        manifests.install(cluster.admin, installs.kustomized(cluster.binaries / "kubectl", overlay))
        state, shown, todo = _mutual_tls(admin)
        assert (state, "kube-muster/muster-tls" in shown) == ("wrong", True)
        commands = todo.partition(";")[0].replace(", then:", " &&")
        admin.runs(f"cd {tmp_path} && {commands}")
        state, shown, todo = _mutual_tls(admin)
        assert (state, todo) == ("ok", "")
        assert re.search(r"127\.0\.0\.1 .*\b(9|10)y", shown)


def _mutual_tls(admin: Shell) -> tuple[str, str, str]:
    (found,) = [
        each for each in json.loads(admin("check", "-o", "json").stdout) if each["subject"] == "mutual TLS"
    ]
    return found["state"], found["message"], found["todo"]


# ---- an installation


class Site:
    """The objects of an overlay, and the pod of one replica, which is whatever Muster runs meanwhile."""

    def __init__(
        self, cluster: ControlPlane, network: PodNetwork, user: User, folder: Path, view: bool
    ) -> None:
        self.cluster = cluster
        self._view = view
        self.api = cluster.admin
        self._network = network
        self._user = user
        self._admin = Shell(cluster, ADMIN, NAMESPACE)
        kubernetes = cluster.kubernetes
        components = () if view else gating(kubernetes)
        overlay = installs.overlay(folder, "sidecar", components, build.release(kubernetes))
        manifests.install(self.api, installs.kustomized(cluster.binaries / "kubectl", overlay))
        self._run_pod()
        self._serve()

    def _run_pod(self) -> None:
        """Run the pod as the controller and a kubelet do."""
        deployment = self.api.patch(DEPLOYMENTS, "muster", {"spec": {"replicas": 1}}, NAMESPACE)
        ready = dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas", "availableReplicas"), 1)
        self.api.patch(DEPLOYMENTS, "muster", {"status": ready}, NAMESPACE, "status")
        template = deployment["spec"]["template"]
        metadata = {"name": POD, "namespace": NAMESPACE, "labels": template["metadata"]["labels"]}
        spec = {**template["spec"], "nodeName": "n0"}
        self.api.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        status = {"phase": "Running", "podIP": ADDRESS, "podIPs": [{"ip": ADDRESS}]}
        self.api.patch(PODS, POD, {"status": status}, NAMESPACE, "status")

    def _serve(self) -> None:
        """Put the pod behind the service of the webhooks."""
        labels = {"kubernetes.io/service-name": SERVICE}
        metadata = {"name": SERVICE, "namespace": NAMESPACE, "labels": labels}
        slices = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4"}
        ends = [{"addresses": [ADDRESS], "conditions": {"ready": True}}]
        self.api.create(ENDPOINT_SLICES, {**slices, "metadata": metadata, "endpoints": ends})

    def start_muster(self, stack: ExitStack) -> Muster:
        """Start Muster, which pod and service lead to; it need not become ready."""
        port = Port()
        flags = ("--webhook-certificates=self-signed", f"--webhook-listen=127.0.0.1:{port.number}")
        kubeconfig = self.cluster.kubeconfig(self._user)
        options: Json = {"arguments": flags, "host": POD, "view": self._view}
        muster = Muster(self.cluster, kubeconfig, leader_elect="follow", **options)
        stack.push(muster)
        muster.start(wait=False)
        self._network.route(ADDRESS, HEALTH, muster.health_port)
        called = self.api.get(SERVICES, SERVICE, NAMESPACE)["spec"]["clusterIP"]
        self._network.route(called, 443, port.number)
        return muster

    def start_scheduler(self, stack: ExitStack, muster: Muster) -> None:
        options: Json = {"user": self._user, "leader_elect": True, "host": POD}
        stack.enter_context(KubeScheduler(self.cluster, **sidecar_options(muster), **options))

    def schedule_one(self) -> None:
        """Schedule a pod of ours, so that the scheduler has called."""
        self.api.create(NODES, objects.node("n0"))
        self.api.create(PODS, objects.pod("one", namespace="default"))
        wait_for(lambda: "nodeName" in self.api.get(PODS, "one", "default")["spec"], what="a pod bound")

    def direct(self, muster: Muster) -> Json:
        """Return options of a scheduler that calls Muster and reads its pods from the API server."""
        return {"muster": muster.address, "user": self._user, "leader_elect": True, "host": POD}

    def waits_for_members(self) -> None:
        """Create a pod of ours that fits and may not start: a scheduler that sees it asks Muster."""
        self.api.create(POD_GROUPS, objects.pod_group("half", namespace="default", min_member=2))
        self.api.create(PODS, objects.pod("half-0", namespace="default", group="half"))

    def found(self) -> list[Json]:
        """Return all findings of `muster check`."""
        found: list[Json] = json.loads(self._admin("check", "-o", "json").stdout)
        return found

    def wrong(self) -> dict[str, str]:
        """Return the first finding of `muster check` for each subject; the exit status must fit."""
        done = self._admin("check", "-o", "json")
        assert done.stderr == ""
        found = [each for each in json.loads(done.stdout) if each["state"] != "ok"]
        assert done.returncode == bool(found), done.stdout
        return {each["subject"]: each["message"] for each in reversed(found)}

    def wait_wrong(self, *subjects: str) -> dict[str, str]:
        """Wait until exactly these findings remain."""
        found: dict[str, str] = {}

        def so_it_is() -> bool:
            found.clear()
            found.update(self.wrong())
            return found.keys() == set(subjects)

        wait_for(so_it_is, what=f"wrong: {subjects}")
        return found


@pytest.fixture
def site(muster_user: User, tmp_path: Path, view: bool) -> Iterator[Site]:
    """Yield a site on its own API server, which reaches pods and services."""
    with PodNetwork() as network:
        flags = network.flags()
        with ControlPlane(kubernetes=KUBERNETES, users=[muster_user], apiserver_flags=flags) as cluster:
            yield Site(cluster, network, muster_user, tmp_path, view)


def test_an_installation_comes_into_order_and_out_of_it(site: Site) -> None:
    with ExitStack() as stack:
        with rights.without_right(site.api, Right("create", "secrets", "")):
            muster = site.start_muster(stack)
            wait_for(lambda: muster.live(), what="muster live")
            wait_for(lambda: "[+]pods-synced ok" in muster.readyz(), what="all but the certificate there")
            found = site.wait_wrong("rights", "webhooks", "certificates", "leader", "health")
        assert found["rights"].endswith("create secrets in kube-muster")
        assert "caBundle is empty" in found["webhooks"]
        assert "muster-webhook-certificate" in found["certificates"]
        assert "webhook-certificate: " in found["health"]
        found = site.wait_wrong("leader")
        assert "kube-system/muster-scheduler" in found["leader"]
        site.start_scheduler(stack, muster)
        assert site.wait_wrong("calls")["calls"].startswith("muster-1 ")
        site.schedule_one()
        assert site.wait_wrong() == {}
        assert webhooks.in_force(site.api), "through the service, as it is installed"
        with rights.without_right(site.api, Right("patch", *CONFIGURATION)):
            site.wait_wrong("rights")
            _distrust(site)
            found = site.wait_wrong("rights", "webhooks")
        assert "kube-muster/muster-webhook-certificate" in found["webhooks"]
        assert site.wait_wrong() == {}


@pytest.mark.view
def test_check_sees_whether_the_scheduler_reads_through_the_view(site: Site) -> None:
    with ExitStack() as stack, ExitStack() as first:
        muster = site.start_muster(stack)
        muster.wait_ready()
        site.wait_wrong("leader")
        site.start_scheduler(first, muster)
        site.schedule_one()
        assert site.wait_wrong() == {}
        shown = [each["message"] for each in site.found() if each["subject"] == "view"]
        assert shown[0].endswith("/run/kube-muster/kubeconfig")
        assert shown[1].startswith("muster-1: kube-scheduler/v")
        _configure(site, "sidecar-gates.yaml")
        found = site.wait_wrong("view")
        assert "no kubeconfig" in found["view"]
        _configure(site, "sidecar.yaml")
        assert site.wait_wrong() == {}
        first.close()
        stack.enter_context(KubeScheduler(site.cluster, "sidecar-gates.yaml", **site.direct(muster)))
        site.waits_for_members()
        message = "reads pods elsewhere"
        wait_for(lambda: message in site.wrong().get("view", ""), what=message)


def _configure(site: Site, file: str) -> None:
    """Change the Deployment alone: running pods go on."""
    (scheduler,) = site.api.get(DEPLOYMENTS, "muster", NAMESPACE)["spec"]["template"]["spec"]["containers"]
    scheduler["command"] = ["kube-scheduler", f"--config=/etc/kubernetes/muster/{file}"]
    changed = {"spec": {"template": {"spec": {"containers": [scheduler]}}}}
    site.api.patch(DEPLOYMENTS, "muster", changed, NAMESPACE)


def _distrust(site: Site) -> None:
    """Set the bundle of another CA, which no controller corrects."""
    other = make_pair(["localhost"], 90 * 86400, time.time()).authority
    bundle = base64.b64encode(other).decode()
    hooks = site.api.get(VALIDATING_WEBHOOKS, "kube-muster")["webhooks"]
    spoilt = [{**hook, "clientConfig": {**hook["clientConfig"], "caBundle": bundle}} for hook in hooks]
    site.api.patch(VALIDATING_WEBHOOKS, "kube-muster", {"webhooks": spoilt})
