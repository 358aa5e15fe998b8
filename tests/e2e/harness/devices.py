"""Devices of a simulated driver, as objects of resource.k8s.io, and claims for them.

Cluster-scoped objects are named after the test's namespace, and are deleted by `end`.
"""

from typing import Any

from tests.e2e.harness.resources import CLAIM_TEMPLATES, DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.e2e.harness.stage import Stage

Json = dict[str, Any]
API = "resource.k8s.io/v1"


class Devices:
    """Devices of one class. `extended`: the extended resource that the class backs."""

    def __init__(self, stage: Stage, extended: str = "") -> None:
        self._stage = stage
        self._slices: list[str] = []
        self.name, self.extended = stage.namespace, extended
        self._classes = [self.name]
        self.driver = f"{stage.namespace}.example.com"
        selector = {"cel": {"expression": f"device.driver == '{self.driver}'"}}
        backing = {"extendedResourceName": extended} if extended else {}
        self._create(DEVICE_CLASSES, "DeviceClass", self.name, {"selectors": [selector], **backing})

    def on(self, node: str, count: int, *fields: Json) -> None:
        """Publish devices on a node, as a driver does.

        `fields`: those of each device, the last ones for all further devices. By default, a device has
        the attribute `index`.
        """
        name = f"{self._stage.namespace}-{node}"
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        devices = [
            {"name": f"gpu-{number}", **(fields[min(number, len(fields) - 1)] if fields else _index(number))}
            for number in range(count)
        ]
        spec = {"driver": self.driver, "nodeName": node, "pool": pool, "devices": devices}
        self._create(RESOURCE_SLICES, "ResourceSlice", name, spec)
        self._slices.append(name)

    def partitioned_on(self, node: str) -> None:
        """Publish a GPU of two slices: as a whole, or as two halves."""
        pool = {"name": node, "generation": 1, "resourceSliceCount": 2}
        spec = {"driver": self.driver, "nodeName": node, "pool": pool}
        counters = [{"name": "gpu", "counters": {"slices": {"value": "2"}}}]
        devices = [
            {
                "name": name,
                "attributes": {"whole": {"bool": slices == 2}},
                "consumesCounters": [{"counterSet": "gpu", "counters": {"slices": {"value": str(slices)}}}],
            }
            for name, slices in (("whole", 2), ("half-0", 1), ("half-1", 1))
        ]
        for part in ({"sharedCounters": counters}, {"devices": devices}):
            name = f"{self._stage.namespace}-{node}-{next(iter(part)).lower()}"
            self._create(RESOURCE_SLICES, "ResourceSlice", name, {**spec, **part})
            self._slices.append(name)

    def device_class(self, name: str, attribute: str) -> str:
        """Create a class of the devices with an attribute, or, for `!NAME`, of those without it."""
        negation = "!" if attribute.startswith("!") else ""
        attribute = attribute.removeprefix("!")
        return self.selected(name, f"{negation}device.attributes['{self.driver}'].{attribute}")

    def selected(self, name: str, condition: str) -> str:
        """Create a class of the devices that meet a condition."""
        expression = f"device.driver == '{self.driver}' && {condition}"
        class_name = f"{self._stage.namespace}-{name}"
        self._create(
            DEVICE_CLASSES, "DeviceClass", class_name, {"selectors": [{"cel": {"expression": expression}}]}
        )
        self._classes.append(class_name)
        return class_name

    def claimed(self, name: str, count: int = 1) -> Json:
        """Create a claim for devices, and return the fields of a pod's spec that use it."""
        request = {"name": "gpu", "exactly": {"deviceClassName": self.name, "count": count}}
        spec = {"devices": {"requests": [request]}}
        self._create(RESOURCE_CLAIMS, "ResourceClaim", name, spec, self._stage.namespace)
        return {"resourceClaims": [{"name": "gpu", "resourceClaimName": name}]}

    def template(self, name: str, count: int, device_class: str = "", first: int = 0, **more: Any) -> Json:
        """Create a template of claims for devices, and return the fields of a pod's spec that use it.

        Args:
            name: Name of the template.
            count: The number of devices.
            device_class: The class, if not the main one.
            first: The lowest index of devices that the request selects; 0: it has no selector.
            more: Further fields, such as constraints, or other requests.
        """
        exactly: Json = {"deviceClassName": device_class or self.name, "count": count}
        if first:
            expression = f"device.attributes['{self.driver}'].index >= {first}"
            exactly["selectors"] = [{"cel": {"expression": expression}}]
        request = {"name": "gpu", "exactly": exactly}
        spec = {"spec": {"devices": {"requests": [request], **more}}}
        self._create(CLAIM_TEMPLATES, "ResourceClaimTemplate", name, spec, self._stage.namespace)
        return {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": name}]}

    def end(self) -> None:
        for name in self._slices:
            self._stage.api.delete(RESOURCE_SLICES, name)
        for name in self._classes:
            self._stage.api.delete(DEVICE_CLASSES, name)

    def _create(self, resource: Any, kind: str, name: str, spec: Json, namespace: str = "") -> None:
        metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
        self._stage.api.create(
            resource, {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}
        )


def _index(number: int) -> Json:
    return {"attributes": {"index": {"int": number}}}
