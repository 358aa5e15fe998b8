"""Real controllers of kubernetes-sigs with their CRDs and webhooks, on loopback."""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonpatch
import yaml

from extender.shipped import read
from tests.e2e import build
from tests.e2e.harness import manifests
from tests.e2e.harness.access import ADMIN
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.process import Process, free_ports
from tests.e2e.harness.resources import CRDS, Resource
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.watch import ApiError

Json = dict[str, Any]


@dataclass(frozen=True)
class SigsOperator:
    """Operator of one kind of objects. Its paths are relative to the sources of its release."""

    # name of the folder with the operator's go.mod, also part of the API group of its configuration
    name: str
    release: str  # path of the Go module
    package: str  # path of the program
    kind: Resource
    crd: str
    webhooks: str
    patches: str  # folder of the patches that restrict the pod webhooks to the operator's pods
    sample: Callable[[], Json]  # returns an object for dry-run requests
    is_defaulted: Callable[[Json], bool]  # returns whether the webhooks have set their defaults on an object

    @property
    def module(self) -> Path:
        return Path(__file__).parents[1] / self.name

    def program(self) -> Path:
        """Return the path of the program, and build it if necessary.

        The build takes minutes, so it is done before the tests.
        """
        return build.tool(self.module, self.package)

    def source(self, path: str) -> Path:
        return build.sources(self.release, self.module) / path


class SigsController:
    """Running controller of an operator: `with SigsController(cluster, JOB_SET):`.

    The controller needs kube-controller-manager. It has all rights, because rights are not under test. The
    operator's CRD is deleted when the context ends.
    """

    def __init__(self, cluster: ControlPlane, operator: SigsOperator) -> None:
        self._client, self._operator = cluster.admin, operator
        self._port, self._health_port = free_ports(2)
        self._ca_bundle = base64.b64encode(cluster.certificate.read_bytes()).decode()
        self._installed_objects: list[Json] = []
        (self._crd,) = read([operator.source(operator.crd)])
        config = cluster.folder / f"{operator.name}.json"
        config.write_text(json.dumps(self._configuration(_write_certificates(cluster, operator.name))))
        command = [str(operator.program()), f"--config={config}", f"--kubeconfig={cluster.kubeconfig(ADMIN)}"]
        self.process = Process(operator.name, command, cluster.folder / f"{operator.name}.log")

    def __enter__(self) -> "SigsController":
        self._delete_existing_crd()
        self._installed_objects = manifests.install(self._client, [self._crd])
        self.process.start()
        configurations = [self._redirect_to_loopback(webhook) for webhook in self._webhooks()]
        self._installed_objects += manifests.install(self._client, configurations)
        wait_for(self._are_in_force, what=f"the webhooks of {self._operator.name} in force")
        return self

    def __exit__(self, *_: object) -> None:
        manifests.remove(self._client, self._installed_objects)
        self._wait_gone()
        self.process.kill()

    def _delete_existing_crd(self) -> None:
        """Delete a CRD of the operator's kind that another test may have left."""
        if self._client.find(CRDS, self._crd["metadata"]["name"]):
            self._client.delete(CRDS, self._crd["metadata"]["name"])
            self._wait_gone()

    def _wait_gone(self) -> None:
        name = self._crd["metadata"]["name"]
        wait_for(lambda: self._client.find(CRDS, name) is None, what=f"{name} gone")

    def _redirect_to_loopback(self, configuration: Json) -> Json:
        """Return a webhook configuration that calls the controller on its loopback port."""
        for webhook in configuration["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            url = f"https://127.0.0.1:{self._port}{path}"
            webhook["clientConfig"] = {"url": url, "caBundle": self._ca_bundle}
        configuration["metadata"]["name"] = f"{self._operator.name}-{configuration['metadata']['name']}"
        return configuration

    def _are_in_force(self) -> bool:
        """Return whether the webhooks set defaults on an object in a dry run."""
        self.process.require_alive()
        path = self._operator.kind.path("default")
        try:
            created_object = self._client.request("POST", f"{path}?dryRun=All", self._operator.sample())
        except ApiError:
            return False
        return self._operator.is_defaulted(created_object)

    def _configuration(self, certificates: Path) -> Json:
        """Return the program's configuration, with servers on loopback only."""
        return {
            "apiVersion": f"config.{self._operator.name}.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "webhook": {"host": "127.0.0.1", "port": self._port, "certDir": str(certificates)},
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self._health_port}"},
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
        }

    def _webhooks(self) -> list[Json]:
        """Return the webhook configurations of the operator. Pod webhooks select only the operator's pods."""
        folder = self._operator.source(self._operator.patches)
        patches = {
            f"{kind}WebhookConfiguration": yaml.safe_load((folder / f"{kind.lower()}-patch.yaml").read_text())
            for kind in ("Mutating", "Validating")
        }
        text = self._operator.source(self._operator.webhooks).read_text()
        documents = filter(None, yaml.safe_load_all(text))
        return [jsonpatch.apply_patch(document, patches[document["kind"]]) for document in documents]


def _write_certificates(cluster: ControlPlane, name: str) -> Path:
    """Copy the certificate and the key of the cluster into a folder, with the file names of a TLS Secret."""
    folder = cluster.folder / f"{name}-certificates"
    folder.mkdir(exist_ok=True)
    for file, path in (("tls.crt", cluster.certificate), ("tls.key", cluster.key)):
        (folder / file).write_bytes(path.read_bytes())
    return folder
