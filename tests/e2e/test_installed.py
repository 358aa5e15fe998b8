"""The default-scheduler install with the dashboard, as kustomize builds it: policies, rights and flags."""

import http.client
import json
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import build
from tests.e2e.conftest import KUBERNETES
from tests.e2e.harness import installs, manifests, objects, webhooks
from tests.e2e.harness.access import ADMIN, User, issued, service_account
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.muster import PROGRAM
from tests.e2e.harness.policy import WITHOUT_POLICIES
from tests.e2e.harness.process import free_ports
from tests.e2e.harness.resources import POD_GROUPS, PODS
from tests.e2e.harness.scheduler import QUICK_LEASE
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

pytestmark = pytest.mark.skipif(KUBERNETES in WITHOUT_POLICIES, reason="tried where policies mark pods")

Json = dict[str, Any]
CERTIFICATE = """openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365
 -keyout tls.key -out tls.crt -subj /CN=muster-dashboard
 -addext subjectAltName=DNS:localhost,DNS:muster-dashboard.kube-muster.svc"""
GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"
TAINT = {"key": GPU, "value": "present", "effect": "NoSchedule"}
TOLERATED = {"tolerations": [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}]}
GANGS = {"whole": (2, {GPU: "8"}), "waits": (1, {GPU: "8"}), "slices": (7, {MIG: "1"}), "plain": (2, {})}


@pytest.fixture
def cluster(muster_user: User) -> Iterator[ControlPlane]:
    """Yield a control plane for these tests alone: what is installed stays until it ends."""
    with ControlPlane(kubernetes=KUBERNETES, users=[muster_user]) as started:
        yield started


class Site:
    """Site with all objects of an overlay, and one pod of its DaemonSet; only folders and ports differ."""

    def __init__(self, stage: Stage, user: User, tls: Path, folder: Path) -> None:
        self.stage, self._folder = stage, folder
        components = ("dashboard", "jobs")
        overlay = installs.overlay(folder, "default-scheduler", components, build.release(KUBERNETES))
        self._made = installs.kustomized(stage.cluster.binaries / "kubectl", overlay)
        manifests.install(stage.api, self._made)
        subprocess.run(CERTIFICATE.split(), cwd=folder, check=True, capture_output=True, timeout=60)
        webhooks.move_to_loopback(stage.api, port := webhooks.Port())
        (container,) = self._pod()["containers"]
        settings = {each["name"]: each["value"] for each in container["env"]}
        assert settings["MUSTER_DASHBOARD_LISTEN"] == ":8285"
        (self._port,) = free_ports(1)
        settings |= {
            "MUSTER_DASHBOARD_LISTEN": f":{self._port}",
            "MUSTER_DASHBOARD_TLS_FOLDER": str(folder),
            "MUSTER_TLS_FOLDER": str(tls / "muster"),
        }
        program = ("env", *(f"{name}={value}" for name, value in settings.items()), str(PROGRAM))
        flags = (*container["args"][1:], *port.flags("self-signed"))
        muster = stage.start_muster(*flags, user=user, leader_elect="follow", program=program, wait=False)
        options: Json = {"tls": tls / "scheduler", "leader_elect": True, "lease": QUICK_LEASE}
        stage.start_scheduler("default-scheduler.yaml", muster=muster.address, **options)
        muster.wait_ready()
        webhooks.wait_in_force(stage.api)

    def _pod(self) -> Json:
        (found,) = [each for each in self._made if each["kind"] == "DaemonSet"]
        spec: Json = found["spec"]["template"]["spec"]
        return spec

    def page(self, path: str, token: str) -> tuple[int, str]:
        """Return a page of the dashboard, by port-forward."""
        trust = ssl.create_default_context(cafile=self._folder / "tls.crt")
        connection = http.client.HTTPSConnection("localhost", self._port, timeout=30, context=trust)
        try:
            connection.request("GET", path, None, {"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def groups(self, token: str) -> set[str]:
        status, body = self.page("/api/v1/overview", token)
        assert status == 200, body
        return {f"{each['namespace']}/{each['name']}" for each in json.loads(body)["groups"]}

    def close(self) -> None:
        """Remove what would refuse to have the cluster emptied."""
        admission = ("ValidatingAdmissionPolicy", "ValidatingWebhookConfiguration")
        manifests.remove(self.stage.api, [each for each in self._made if each["kind"] in admission])


@pytest.fixture
def site(stage: Stage, muster_user: User, tls: Path, tmp_path: Path) -> Iterator[Site]:
    made = Site(stage, muster_user, tls, tmp_path)
    try:
        yield made
    finally:
        made.close()


def test_a_tenants_gangs_start_on_gpus_and_are_shown_to_the_tenant_alone(stage: Stage, site: Site) -> None:
    space, user = stage.namespace, service_account(stage.namespace, "tenant").name
    account = {"apiVersion": "v1", "kind": "ServiceAccount"}
    manifests.apply_one(stage.api, {**account, "metadata": {"name": "tenant", "namespace": space}})
    stage.grant_edit(user)
    capacity: Json = {"cpu": "96", "memory": "1Ti", "taints": [TAINT]}
    stage.nodes(2, prefix="g", **capacity, **{GPU: "8"})
    stage.nodes(1, prefix="m", **capacity, **{GPU: "0", MIG: "7"})
    stage.nodes(1, prefix="c", cpu="96")
    stage.queue("q")
    manifests.apply_one(stage.api, objects.pod_group("other", namespace="other", min_member=1))
    with stage.api.acting_as(user) as tenant:
        for name, (members, limits) in GANGS.items():
            tenant.create(POD_GROUPS, objects.pod_group(name, namespace=space, min_member=members, queue="q"))
            more: Json = {"limits": limits, "scheduler": "default-scheduler", **TOLERATED}
            for number in range(members):
                tenant.create(PODS, objects.pod(f"{name}-{number}", namespace=space, group=name, **more))
            if name != "waits":  # it may hold the capacity of gangs that are not there yet
                stage.wait_phase([f"{name}-{number}" for number in range(members)], "Running")
    stage.wait_reason("waits", "NoRoom")
    own, others = {f"{space}/{name}" for name in GANGS}, "other/other"
    wait_for(lambda: site.groups(ADMIN.token) >= {others, *own}, what="all shown to an administrator")
    token = issued(stage.api, space, "tenant").token
    assert site.groups(token) == own
    paths = (f"/groups/{space}/waits", f"/groups/{others}", "/queues/q")
    assert [site.page(path, token)[0] for path in paths] == [200, 404, 404]
    assert [site.page(path, ADMIN.token)[0] for path in paths] == [200] * 3
    assert site.page("/", "")[0] == 401
