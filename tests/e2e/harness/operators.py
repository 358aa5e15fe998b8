"""Simulated controllers of an operator. They create the objects of a fixture in the order of the fixture.

The fixture names the source of its objects. Only the namespace and the UIDs of owners are filled in. The
operator's own kinds are installed as CRDs without a schema, so that their objects can be owners.
"""

from pathlib import Path
from typing import Any

import yaml

from tests.e2e.harness import manifests
from tests.e2e.harness.client import Client
from tests.e2e.harness.resources import CRDS, POD_GROUPS, Resource
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.watch import ApiError

Json = dict[str, Any]
FIXTURES = Path(__file__).parents[1] / "data" / "operators"
OWN_KINDS = {
    "RayCluster": "rayclusters",
    "RayJob": "rayjobs",
    "SparkApplication": "sparkapplications",
    "PyTorchJob": "pytorchjobs",
    "TrainJob": "trainjobs",
    "JobSet": "jobsets",
    "Workflow": "workflows",
}
APPLY = "application/apply-patch+yaml"
CONFLICT = 409
APPROVAL_ANNOTATION = {
    "api-approved.kubernetes.io": "unapproved, a stand-in for tests"
}  # annotation that CRDs of API groups under k8s.io need


class Operator:
    """Simulated operator with the objects of a fixture: `Operator(stage, "kuberay-cluster")`.

    Created objects are keyed by `Kind/name`.
    """

    def __init__(self, stage: Stage, fixture: str) -> None:
        self._stage = stage
        self._objects = yaml.safe_load((FIXTURES / f"{fixture}.yaml").read_text())["objects"]
        self._created: dict[str, Json] = {}
        for obj in self._objects:
            if obj["kind"] in OWN_KINDS:
                install_kind(stage.api, obj)

    def names(self, kind: str) -> list[str]:
        """Return the names of all objects of a kind, in the order of the fixture."""
        return [obj["metadata"]["name"] for obj in self._objects if obj["kind"] == kind]

    def create(self, kind: str, *names: str) -> list[str]:
        """Create all objects of a kind, or only the objects with these names. Return the names."""
        bodies = [self._object_of_fixture(kind, name) for name in names or self.names(kind)]
        for body in bodies:
            self._record(self._stage.api.create(self._resource(body), body))
        return list(names or self.names(kind))

    def apply(self, kind: str, manager: str) -> None:
        """Apply all objects of a kind server-side, with force, as this field manager."""
        for name in self.names(kind):
            body = self._object_of_fixture(kind, name)
            path = self._resource(body).path(self._stage.namespace, name)
            query = f"fieldManager={manager}&force=true"
            self._record(self._stage.api.request("PATCH", f"{path}?{query}", body, APPLY))

    def update_pod_group(self, name: str, **spec: Any) -> None:
        """Update the spec of a PodGroup by PUT. After a conflict, read and update again, as operators do."""

        def is_updated() -> bool:
            current_group = self._stage.api.get(POD_GROUPS, name, self._stage.namespace)
            try:
                self._stage.api.replace(
                    POD_GROUPS, {**current_group, "spec": {**current_group["spec"], **spec}}
                )
            except ApiError as error:
                if error.status != CONFLICT:
                    raise
                return False
            return True

        wait_for(is_updated, what=f"PodGroup {name} updated")

    def delete(self, kind: str) -> None:
        """Delete all objects of a kind, but not their dependents."""
        for name in self.names(kind):
            self._stage.api.delete(
                self._resource(self._created[f"{kind}/{name}"]), name, self._stage.namespace
            )

    def _object_of_fixture(self, kind: str, name: str) -> Json:
        """Return an object of the fixture, with the namespace and the UIDs of its owners filled in."""
        (template,) = [obj for obj in self._objects if (obj["kind"], obj["metadata"]["name"]) == (kind, name)]
        metadata = {**template["metadata"], "namespace": self._stage.namespace}
        owners = [{**owner, "uid": self._owner_uid(owner)} for owner in metadata.get("ownerReferences", ())]
        return {**template, "metadata": {**metadata, "ownerReferences": owners}}

    def _owner_uid(self, owner: Json) -> str:
        uid: str = self._created[f"{owner['kind']}/{owner['name']}"]["metadata"]["uid"]
        return uid

    def _record(self, created: Json) -> None:
        self._created[f"{created['kind']}/{created['metadata']['name']}"] = created

    def _resource(self, body: Json) -> Resource:
        return manifests.resource_of(self._stage.api, body)


def install_kind(client: Client, obj: Json) -> None:
    """Install a CRD without a schema for the kind of this object, if the CRD does not exist."""
    group, version = obj["apiVersion"].split("/")
    plural = OWN_KINDS[obj["kind"]]
    if client.find(CRDS, f"{plural}.{group}") is None:
        manifests.install(client, [_crd_without_schema(group, version, obj["kind"], plural)])


def _crd_without_schema(group: str, version: str, kind: str, plural: str) -> Json:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served_version = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "annotations": APPROVAL_ANNOTATION},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [served_version],
        },
    }
