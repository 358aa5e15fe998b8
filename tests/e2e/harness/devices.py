"""Devices of a played driver, as resource.k8s.io describes them, and claims for them.

What is in no namespace bears the name of the test's, and goes with `end`.
"""

from typing import Any

from tests.e2e.harness.resources import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.e2e.harness.stage import Stage

Json = dict[str, Any]
API = "resource.k8s.io/v1"
DRIVER = "gpu.example.com"


class Devices:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._slices: list[str] = []
        chosen = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
        self._create(DEVICE_CLASSES, "DeviceClass", stage.namespace, {"selectors": [chosen]})

    def on(self, node: str, count: int) -> None:
        """Publish so many devices on a node, as a driver does."""
        name = f"{self._stage.namespace}-{node}"
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": f"gpu-{number}"} for number in range(count)]
        spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
        self._create(RESOURCE_SLICES, "ResourceSlice", name, spec)
        self._slices.append(name)

    def claimed(self, name: str) -> Json:
        """Create a claim for one device, and return the fields that a pod's spec needs for it."""
        asked = {"name": "gpu", "exactly": {"deviceClassName": self._stage.namespace}}
        spec = {"devices": {"requests": [asked]}}
        self._create(RESOURCE_CLAIMS, "ResourceClaim", name, spec, self._stage.namespace)
        return {"resourceClaims": [{"name": "gpu", "resourceClaimName": name}]}

    def end(self) -> None:
        for name in self._slices:
            self._stage.api.delete(RESOURCE_SLICES, name)
        self._stage.api.delete(DEVICE_CLASSES, self._stage.namespace)

    def _create(self, resource: Any, kind: str, name: str, spec: Json, namespace: str = "") -> None:
        metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
        self._stage.api.create(
            resource, {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}
        )
