"""Devices of Dynamic Resource Allocation, resource.k8s.io/v1: classes, slices, claims and their templates."""

import msgspec

from extender.api.objects.base import Meta, Wire
from extender.api.objects.pods import NodeSelector
from extender.api.units import Quantity

API = "resource.k8s.io/v1"
EXTENDED_PREFIX = "deviceclass.resource.kubernetes.io/"  # extended resources that stand for a DeviceClass


class CelSelector(Wire, frozen=True):
    expression: str = ""


class DeviceSelector(Wire, frozen=True):
    cel: CelSelector | None = None


def expressions_of(selectors: list[DeviceSelector] | None) -> tuple[str, ...]:
    return tuple(selector.cel.expression for selector in selectors or () if selector.cel)


class DeviceClassSpec(Wire, frozen=True):
    selectors: list[DeviceSelector] | None = None
    extended_resource_name: str = ""


class DeviceClass(Wire, frozen=True):
    metadata: Meta
    spec: DeviceClassSpec = DeviceClassSpec()


class DeviceAttribute(Wire, frozen=True):
    """Value of a device's attribute: exactly one of the fields is set."""

    integer: int | None = msgspec.field(default=None, name="int")
    boolean: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None


class DeviceCapacity(Wire, frozen=True):
    value: Quantity = 0


class CounterSet(Wire, frozen=True):
    """Named amounts of a device that has partitions.

    In `shared_counters`, these are the amounts that all partitions share. In `consumes_counters`, these are
    the amounts that one partition consumes.
    """

    name: str = ""
    counter_set: str = ""  # in `consumes_counters`, the name of the shared set; else empty
    counters: dict[str, DeviceCapacity] | None = None


class Device(Wire, frozen=True):
    name: str
    attributes: dict[str, DeviceAttribute] | None = None
    capacity: dict[str, DeviceCapacity] | None = None
    consumes_counters: list[CounterSet] | None = None
    allow_multiple_allocations: bool | None = None


class ResourcePool(Wire, frozen=True):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(Wire, frozen=True):
    driver: str = ""
    node_name: str = ""
    pool: ResourcePool = ResourcePool()
    devices: list[Device] | None = None
    shared_counters: list[CounterSet] | None = None


class ResourceSlice(Wire, frozen=True):
    metadata: Meta
    spec: ResourceSliceSpec = ResourceSliceSpec()


class ExactRequest(Wire, frozen=True):
    device_class_name: str = ""
    allocation_mode: str = ""  # ExactCount or All; empty means ExactCount
    count: int = 0  # 0 means one device
    admin_access: bool | None = None
    selectors: list[DeviceSelector] | None = None


class DeviceRequest(Wire, frozen=True):
    name: str = ""
    exactly: ExactRequest | None = None  # None if the request lists alternatives


class DeviceClaim(Wire, frozen=True):
    requests: list[DeviceRequest] | None = None


class ClaimSpec(Wire, frozen=True):
    devices: DeviceClaim = DeviceClaim()


class ClaimTemplateSpec(Wire, frozen=True):
    spec: ClaimSpec = ClaimSpec()


class ResourceClaimTemplate(Wire, frozen=True):
    metadata: Meta
    spec: ClaimTemplateSpec = ClaimTemplateSpec()


class AllocatedDevice(Wire, frozen=True):
    request: str = ""  # the name of the claim's request, or REQUEST/ALTERNATIVE
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None


class AllocatedDevices(Wire, frozen=True):
    results: list[AllocatedDevice] | None = None


class Allocation(Wire, frozen=True):
    devices: AllocatedDevices = AllocatedDevices()
    node_selector: NodeSelector | None = None  # nodes that can use the devices; None means all


class ClaimUser(Wire, frozen=True):
    resource: str = ""  # `pods` for a pod


class ClaimStatus(Wire, frozen=True):
    allocation: Allocation | None = None
    reserved_for: list[ClaimUser] | None = None


class ResourceClaim(Wire, frozen=True):
    metadata: Meta
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()
