"""The real JobSet controller (kubernetes-sigs/jobset) with its CRD and its webhooks, on loopback."""

import base64
import json
from pathlib import Path
from typing import Any

import jsonpatch
import yaml

from extender.shipped import read
from tests.e2e import build
from tests.e2e.harness import manifests
from tests.e2e.harness.access import ADMIN
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.jobs import job
from tests.e2e.harness.process import Process, free_ports
from tests.e2e.harness.resources import CRDS, Resource
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.watch import ApiError

Json = dict[str, Any]
MODULE = Path(__file__).parents[1] / "jobset"
RELEASE = "sigs.k8s.io/jobset"
JOB_SETS = Resource("/apis/jobset.x-k8s.io/v1alpha2", "jobsets")
CRD = "jobsets.jobset.x-k8s.io"


def program() -> Path:
    """Return the program, built first when it is not there.

    That takes a minute or two, so it is not done inside a test.
    """
    return build.tool(MODULE, RELEASE)


def job_set(
    name: str,
    *,
    namespace: str,
    replicas: int = 1,
    parallelism: int = 1,
    suspend: bool = False,
    annotations: dict[str, str] | None = None,
    **pod: Any,
) -> Json:
    """Return a JobSet with `replicas` Jobs named `<name>-workers-<n>`.

    Each has so many pods, as `objects.pod` takes them.
    """
    template = job("", namespace=namespace, parallelism=parallelism, completions=parallelism, **pod)
    replicated = {"name": "workers", "replicas": replicas, "template": {"spec": template["spec"]}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations or {}},
        "spec": {"suspend": suspend, "replicatedJobs": [replicated]},
    }


class JobSetController:
    """JobSet controller: `with JobSetController(cluster):` on a cluster with kube-controller-manager.

    Its kind is removed with it. It may do everything: its rights are not under test.
    """

    def __init__(self, cluster: ControlPlane) -> None:
        self._client = cluster.admin
        self._port, self._health = free_ports(2)
        self._bundle = base64.b64encode(cluster.certificate.read_bytes()).decode()
        self._written: list[Json] = []
        folder = _certificates(cluster)
        config = cluster.folder / "jobset.json"
        config.write_text(json.dumps(_configuration(folder, self._port, self._health)))
        command = [str(program()), f"--config={config}", f"--kubeconfig={cluster.kubeconfig(ADMIN)}"]
        self.process = Process("jobset", command, cluster.folder / "jobset.log")

    def __enter__(self) -> "JobSetController":
        self._make_way()
        self._written = manifests.install(self._client, [_crd()])
        self.process.start()
        hooks = [self._on_loopback(webhook) for webhook in _webhooks()]
        self._written += manifests.install(self._client, hooks)
        wait_for(self._in_force, what="JobSet's webhooks in force")
        return self

    def __exit__(self, *_: object) -> None:
        manifests.remove(self._client, self._written)
        wait_for(lambda: self._client.find(CRDS, CRD) is None, what="JobSets gone")
        self.process.kill()

    def _make_way(self) -> None:
        """Delete a stand-in of this kind that other tests may have left."""
        if self._client.find(CRDS, CRD):
            self._client.delete(CRDS, CRD)
            wait_for(lambda: self._client.find(CRDS, CRD) is None, what="the stand-in gone")

    def _on_loopback(self, configuration: Json) -> Json:
        for each in configuration["webhooks"]:
            path = each["clientConfig"]["service"]["path"]
            url = f"https://127.0.0.1:{self._port}{path}"
            each["clientConfig"] = {"url": url, "caBundle": self._bundle}
        configuration["metadata"]["name"] = f"jobset-{configuration['metadata']['name']}"
        return configuration

    def _in_force(self) -> bool:
        """Return whether defaults of a JobSet are filled in, by a controller that answers."""
        self.process.require_alive()
        shown = job_set("for-show", namespace="default", suspend=True)
        try:
            made = self._client.request("POST", f"{JOB_SETS.path('default')}?dryRun=All", shown)
        except ApiError:
            return False
        return bool(made["spec"]["replicatedJobs"][0]["template"]["spec"].get("completionMode") == "Indexed")


def _certificates(cluster: ControlPlane) -> Path:
    folder = cluster.folder / "jobset-certificates"
    folder.mkdir(exist_ok=True)
    for name, path in (("tls.crt", cluster.certificate), ("tls.key", cluster.key)):
        (folder / name).write_bytes(path.read_bytes())
    return folder


def _configuration(certificates: Path, port: int, health: int) -> Json:
    """Return a configuration, without which the program listens on all addresses of the machine."""
    return {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(certificates)},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
    }


def _components() -> Path:
    return build.sources(RELEASE, MODULE) / "config" / "components"


def _crd() -> Json:
    (found,) = read([_components() / "crd" / "bases" / "jobset.x-k8s.io_jobsets.yaml"])
    return found


def _webhooks() -> list[Json]:
    """Return the webhooks as its kustomization makes them: those of pods ask only for pods of a JobSet."""
    folder = _components() / "webhook"
    patches = {
        f"{each}WebhookConfiguration": yaml.safe_load(
            (folder / "patches" / f"{each.lower()}-patch.yaml").read_text()
        )
        for each in ("Mutating", "Validating")
    }
    documents = yaml.safe_load_all((folder / "manifests.yaml").read_text())
    return [jsonpatch.apply_patch(document, patches[document["kind"]]) for document in documents if document]
