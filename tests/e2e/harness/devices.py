"""Devices of a simulated driver, and claims for them, as objects of resource.k8s.io.

The names of cluster-scoped objects contain the test's namespace. `end` deletes these objects.
"""

from typing import Any

from tests.e2e.harness.resources import CLAIM_TEMPLATES, DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.e2e.harness.stage import Stage

Json = dict[str, Any]
API = "resource.k8s.io/v1"


class Devices:
    """Devices of one device class. `extended` is the extended resource that the class provides, if any."""

    def __init__(self, stage: Stage, extended: str = "") -> None:
        self._stage = stage
        self._slices: list[str] = []
        self.name, self.extended = stage.namespace, extended
        self._classes = [self.name]
        self.driver = f"{stage.namespace}.example.com"
        selector = {"cel": {"expression": f"device.driver == '{self.driver}'"}}
        extended_field = {"extendedResourceName": extended} if extended else {}
        self._create(DEVICE_CLASSES, "DeviceClass", self.name, {"selectors": [selector], **extended_field})

    def on(self, node: str, count: int, *fields: Json) -> None:
        """Publish devices on a node, as a driver does.

        `fields` has the fields of each device. The last entry is used for all further devices. Without
        `fields`, each device has the attribute `index`.
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
        """Publish a GPU on a node that can be allocated as a whole or as two halves."""
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
        """Create a class of the devices that have an attribute, and return the name of the class.

        With `!NAME`, the class has the devices without the attribute NAME.
        """
        negation = "!" if attribute.startswith("!") else ""
        attribute = attribute.removeprefix("!")
        return self.selected(name, f"{negation}device.attributes['{self.driver}'].{attribute}")

    def selected(self, name: str, condition: str) -> str:
        """Create a class of the devices that meet a CEL condition, and return the name of the class."""
        expression = f"device.driver == '{self.driver}' && {condition}"
        class_name = f"{self._stage.namespace}-{name}"
        self._create(
            DEVICE_CLASSES, "DeviceClass", class_name, {"selectors": [{"cel": {"expression": expression}}]}
        )
        self._classes.append(class_name)
        return class_name

    def claimed(self, name: str, count: int = 1) -> Json:
        """Create a claim for devices, and return the fields of a pod's spec that refer to the claim."""
        request = {"name": "gpu", "exactly": {"deviceClassName": self.name, "count": count}}
        spec = {"devices": {"requests": [request]}}
        self._create(RESOURCE_CLAIMS, "ResourceClaim", name, spec, self._stage.namespace)
        return {"resourceClaims": [{"name": "gpu", "resourceClaimName": name}]}

    def template(self, name: str, count: int, device_class: str = "", first: int = 0, **more: Any) -> Json:
        """Create a template of claims, and return the fields of a pod's spec that refer to the template.

        Args:
            name: Name of the template.
            count: Number of devices.
            device_class: Name of the class, if it is not the main class.
            first: Lowest index of the devices that the request selects. With 0, the request has no selector.
            more: Further fields of the template, such as constraints, or other requests.
        """
        exact_request: Json = {"deviceClassName": device_class or self.name, "count": count}
        if first:
            expression = f"device.attributes['{self.driver}'].index >= {first}"
            exact_request["selectors"] = [{"cel": {"expression": expression}}]
        request = {"name": "gpu", "exactly": exact_request}
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
    """Return the fields of a device whose attribute `index` has this number."""
    return {"attributes": {"index": {"int": number}}}
