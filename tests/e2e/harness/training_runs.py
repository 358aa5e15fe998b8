"""Kind of jobs that exists only in the tests: CRD, entry in Muster's configuration, rights, and objects."""

from pathlib import Path
from typing import Any

import yaml

from tests.e2e.harness import manifests, objects
from tests.e2e.harness.client import Client
from tests.e2e.harness.resources import CRDS, Resource
from tests.e2e.harness.waiting import wait_for

Json = dict[str, Any]
GROUP, VERSION, PLURAL, KIND = "example.com", "v1", "trainingruns", "TrainingRun"
TRAINING_RUNS = Resource(f"/apis/{GROUP}/{VERSION}", PLURAL)
_CRD_NAME = f"{PLURAL}.{GROUP}"
_CONFIGURATION: Json = {
    "apiVersion": "config.kube-muster.io/v1alpha1",
    "kind": "MusterConfiguration",
    "jobKinds": [
        {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": KIND,
            "plural": PLURAL,
            "suspend": "spec.suspend",
            "podSets": [{"role": "worker", "template": "spec.template", "count": "spec.replicas"}],
            "succeeded": {"conditions": ["Complete"]},
            "failed": {"field": "status.phase", "values": ["Failed"]},
        }
    ],
}


def configuration(folder: Path) -> Path:
    """Write the file for `muster serve --config`, and return the path of the file."""
    path = folder / "muster.yaml"
    path.write_text(yaml.safe_dump(_CONFIGURATION))
    return path


def crd() -> Json:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": VERSION, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": KIND, "plural": PLURAL, "singular": KIND.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": _CRD_NAME},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def rights() -> list[Json]:
    """Return the role and the binding that docs/reference/jobs.md describes."""
    api, metadata = "rbac.authorization.k8s.io", {"name": f"muster-{PLURAL}"}
    rule = {"apiGroups": [GROUP], "resources": [PLURAL], "verbs": ["get", "list", "watch", "patch"]}
    account = {"kind": "ServiceAccount", "name": "muster", "namespace": "kube-muster"}
    role = {"apiVersion": f"{api}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": [rule]}
    binding_fields = {"roleRef": {"apiGroup": api, "kind": "ClusterRole", **metadata}, "subjects": [account]}
    return [
        role,
        {"apiVersion": f"{api}/v1", "kind": "ClusterRoleBinding", "metadata": metadata, **binding_fields},
    ]


def install(client: Client) -> None:
    manifests.install(client, [crd()])


def remove(client: Client) -> None:
    """Delete the CRD with all its objects, if the CRD exists."""
    remove_kind(client, _CRD_NAME)


def remove_kind(client: Client, name: str) -> None:
    """Delete a CRD, if it exists, and wait until it is gone."""
    if client.find(CRDS, name):
        client.delete(CRDS, name)
    wait_for(lambda: client.find(CRDS, name) is None, what=f"{name} gone")


def training_run(name: str, *, namespace: str, replicas: int, **pod: Any) -> Json:
    """Return a suspended TrainingRun. `pod` has arguments for `objects.pod`."""
    template_pod = objects.pod("", namespace=namespace, **pod)
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {objects.QUEUE_NAME: "default"},
        },
        "spec": {"suspend": True, "replicas": replicas, "template": {"spec": template_pod["spec"]}},
    }
