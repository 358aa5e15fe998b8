"""Volumes of a simulated provisioner.

A volume exists in one zone from the beginning, or is provided after the scheduler has chosen a node.
Cluster-scoped objects have the test's namespace in their names, and are deleted when the test ends.
"""

from typing import Any

from tests.e2e.harness.resources import STORAGE_CLASSES, VOLUME_CLAIMS, VOLUMES, Resource
from tests.e2e.harness.stage import Stage

Json = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
BOUND = {"pv.kubernetes.io/bind-completed": "yes"}


class Provisioner:
    """Simulated provisioner of volumes for the pods of one test."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._storage_class = f"{stage.namespace}-late"

    def in_zone(self, name: str, zone: str) -> Json:
        """Create a claim with a volume in a zone, and return the fields of a pod's spec for the claim."""
        claim = self._create_claim(
            name, {"storageClassName": "", "volumeName": self._volume_name(name)}, BOUND
        )
        term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
        self._create_volume(claim, "", nodeAffinity={"required": {"nodeSelectorTerms": [term]}})
        return _spec_with_claim(name)

    def late(self, name: str) -> Json:
        """Create a claim that waits for its first consumer. Return the fields of a pod's spec for the claim.

        The test provides the volume after the scheduler has chosen a node.
        """
        kind = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": self._storage_class},
        }
        if self._stage.api.find(STORAGE_CLASSES, self._storage_class) is None:
            mode = {"provisioner": "example.com/simulated", "volumeBindingMode": "WaitForFirstConsumer"}
            self._create(STORAGE_CLASSES, {**kind, **mode})
        self._create_claim(name, {"storageClassName": self._storage_class}, {})
        return _spec_with_claim(name)

    def is_awaited(self, name: str) -> bool:
        """Return whether the scheduler has chosen a node for a claim, and waits for the claim's volume."""
        claim = self._stage.api.get(VOLUME_CLAIMS, name, self._stage.namespace)
        return "volume.kubernetes.io/selected-node" in claim["metadata"].get("annotations", {})

    def provide(self, name: str) -> None:
        """Create the volume of a claim, and bind the claim to the volume."""
        api, namespace = self._stage.api, self._stage.namespace
        self._create_volume(api.get(VOLUME_CLAIMS, name, namespace), self._storage_class)
        bound_fields = {"metadata": {"annotations": BOUND}, "spec": {"volumeName": self._volume_name(name)}}
        api.patch(VOLUME_CLAIMS, name, bound_fields, namespace)

    def _volume_name(self, claim: str) -> str:
        return f"{self._stage.namespace}-{claim}"

    def _create_claim(self, name: str, spec: Json, annotations: Json) -> Json:
        request = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        metadata = {"name": name, "namespace": self._stage.namespace, "annotations": annotations}
        kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
        created: Json = self._stage.api.create(
            VOLUME_CLAIMS, {**kind, "metadata": metadata, "spec": {**request, **spec}}
        )
        return created

    def _create_volume(self, claim: Json, storage_class: str, **spec: Any) -> None:
        owner = {key: claim["metadata"][key] for key in ("namespace", "name", "uid")}
        volume = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/simulated"},
            "storageClassName": storage_class,
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **owner},
            **spec,
        }
        name = {"name": self._volume_name(owner["name"])}
        kind = {"apiVersion": "v1", "kind": "PersistentVolume"}
        self._create(VOLUMES, {**kind, "metadata": name, "spec": volume})

    def _create(self, resource: Resource, body: Json) -> None:
        """Create an object, which is deleted when the test ends."""
        self._stage.api.create(resource, body)
        self._stage.started.callback(self._remove, resource, body["metadata"]["name"])

    def _remove(self, resource: Resource, name: str) -> None:
        """Remove the finalizer of an object, and delete the object.

        No controller runs that would remove the finalizer.
        """
        self._stage.api.patch(resource, name, {"metadata": {"finalizers": None}})
        self._stage.api.delete(resource, name)


def _spec_with_claim(claim: str) -> Json:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}
