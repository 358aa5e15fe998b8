"""Inventory of devices: what slices, classes and allocated claims leave on each node."""

from typing import Any

from extender.api.device_selectors import selects
from extender.api.objects.base import Meta
from extender.api.objects.devices import (
    AllocatedDevice,
    AllocatedDevices,
    Allocation,
    CelSelector,
    ClaimSpec,
    ClaimStatus,
    ClaimUser,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClaim,
    DeviceClass,
    DeviceClassSpec,
    DeviceRequest,
    DeviceSelector,
    ExactRequest,
    ResourceClaim,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from extender.domain.ledger.devices import DeviceInventory
from extender.domain.model.reasons import Reason
from tests.domain.builders import node
from tests.domain.world import World, gang
from tests.rows import each_of

DRIVER = "gpu.example.com"
GPU, LARGE = "deviceclass/gpu", "deviceclass/large"
IS_LARGE = f'device.attributes["{DRIVER}"].model == "large"'
Amounts = dict[str, int]


class Cluster:
    """Two nodes, a and b, and a class of all devices."""

    def __init__(self) -> None:
        self.world = World(node("a"), node("b"))
        self.inventory = DeviceInventory(self.world.ledger.intake)
        self.add_class("gpu")

    def add_class(self, name: str, *expressions: str, extended: str = "") -> None:
        selectors = [DeviceSelector(CelSelector(each)) for each in expressions]
        self.inventory.set_class(DeviceClass(Meta(name=name), DeviceClassSpec(selectors, extended)))

    def add_slice(self, name: str, node: str, devices: str, generation: int = 1, of: int = 1) -> None:
        """Add a slice of the pool of its node; upper-case names are large devices."""
        named = [
            Device(each, {"model": DeviceAttribute(string="large" if each.isupper() else "small")})
            for each in devices
        ]
        spec = ResourceSliceSpec(DRIVER, node, ResourcePool(node, generation, of), named)
        self.inventory.set_slice(ResourceSlice(Meta(name=name), spec))

    def claim(
        self, name: str, node: str, device: str, of: str = "gpu", user: str = "pods", **more: Any
    ) -> None:
        """Allocate a device to a claim."""
        asked = [DeviceRequest("r", ExactRequest(of))]
        held = AllocatedDevices([AllocatedDevice("r", DRIVER, node, device, **more)])
        meta = Meta(name=name, namespace="team", uid=name)
        status = ClaimStatus(Allocation(held), [ClaimUser(user)] if user else None)
        self.inventory.set_claim(ResourceClaim(meta, ClaimSpec(DeviceClaim(asked)), status))

    def on(self, name: str) -> Amounts:
        """Return the amounts of devices that pods can have on a node."""
        found = self.world.ledger.snapshot()
        free = dict(zip(found.dimensions, found.capacity[found.nodes.row[name]].tolist(), strict=True))
        return {resource: n for resource, n in free.items() if "/" in resource and n}


def test_devices_of_a_node_are_an_amount_of_their_class() -> None:
    cluster = Cluster()
    cluster.add_slice("s", "a", "xyz")
    assert (cluster.on("a"), cluster.on("b")) == ({GPU: 3}, {})
    cluster.add_class("gpu", extended="example.com/gpu")
    assert cluster.on("a") == {"example.com/gpu": 3}
    cluster.inventory.drop_slice("s")
    assert cluster.on("a") == {}


def test_a_pool_counts_in_its_newest_generation_once_it_is_complete() -> None:
    cluster = Cluster()
    cluster.add_slice("one", "a", "xy", of=2)
    assert cluster.on("a") == {}
    cluster.add_slice("two", "a", "z", of=2)
    assert cluster.on("a") == {GPU: 3}
    cluster.add_slice("three", "a", "w", generation=2)
    assert cluster.on("a") == {GPU: 1}


def test_a_class_has_the_devices_that_its_selectors_admit() -> None:
    cluster = Cluster()
    cluster.add_slice("s", "a", "xyZ")
    cluster.add_class("large", IS_LARGE)
    assert cluster.on("a") == {GPU: 3, LARGE: 1}
    cluster.add_class("large", f"!({IS_LARGE})")
    assert cluster.on("a") == {GPU: 3, LARGE: 2}
    cluster.inventory.drop_class("large")
    assert cluster.on("a") == {GPU: 3}


def test_an_allocated_device_counts_for_the_class_of_its_request_only() -> None:
    """The pod that has it requests this class, so the amount stays and the pod uses it."""
    cluster = Cluster()
    cluster.add_slice("s", "a", "XY")
    cluster.add_class("large", IS_LARGE)
    cluster.claim("c", "a", "X", of="large")
    assert cluster.on("a") == {GPU: 1, LARGE: 2}
    cluster.inventory.drop_claim("team", "c", "c")
    assert cluster.on("a") == {GPU: 2, LARGE: 2}


def test_a_device_of_a_claim_that_no_pod_uses_is_gone_for_all_classes() -> None:
    cluster = Cluster()
    cluster.add_slice("s", "a", "XY")
    cluster.claim("c", "a", "X", user="")
    cluster.claim("admin", "a", "Y", user="", admin_access=True)
    assert cluster.on("a") == {GPU: 1}


def test_a_class_with_devices_that_are_not_of_one_node_limits_no_pod() -> None:
    cluster = Cluster()
    cluster.add_slice("s", "a", "x")
    cluster.world.add(gang("g", 1, more={"deviceclass.resource.kubernetes.io/gpu": "2"})).settle()
    assert cluster.world.reason("g") is Reason.NEVER_FITS
    cluster.add_slice("fabric", "", "yz")
    assert cluster.world.settle().plan("g")


def test_a_partition_counts_while_the_allocated_ones_leave_capacity_for_it() -> None:
    """A GPU of two slices: as a whole, or as two halves."""
    cluster = Cluster()

    def slices(number: int) -> CounterSet:
        return CounterSet(counter_set="gpu-0", counters={"slices": DeviceCapacity(str(number))})

    shared = [CounterSet("gpu-0", counters={"slices": DeviceCapacity("2")})]
    devices = [
        Device(name, {}, consumes_counters=[slices(number)])
        for name, number in (("whole", 2), ("half-0", 1), ("half-1", 1))
    ]
    spec = ResourceSliceSpec(DRIVER, "a", ResourcePool("a", 1, 1), devices, shared)
    cluster.inventory.set_slice(ResourceSlice(Meta(name="s"), spec))
    assert cluster.on("a")[GPU] == 3
    cluster.claim("c", "a", "half-0")
    assert cluster.on("a")[GPU] == 2, "the whole GPU cannot be had any more"
    cluster.claim("d", "a", "half-1")
    assert cluster.on("a")[GPU] == 2
    cluster.inventory.drop_claim("team", "c", "c")
    cluster.inventory.drop_claim("team", "d", "d")
    cluster.claim("e", "a", "whole")
    assert cluster.on("a")[GPU] == 1


DEVICE = Device(
    "g0",
    {
        "model": DeviceAttribute(string="a100"),
        "other.io/index": DeviceAttribute(integer=3),
        "driverVersion": DeviceAttribute(version="1.10.0"),
        "mig": DeviceAttribute(boolean=True),
        "firmware": DeviceAttribute(version="one"),
    },
    {"memory": DeviceCapacity("40Gi")},
)
OWN = f'device.attributes["{DRIVER}"]'
MEMORY = f'device.capacity["{DRIVER}"].memory'


@each_of(
    (f'device.driver == "{DRIVER}"', True),
    ('device.driver == "other"', False),
    (f'{OWN}.model == "h100"', False),
    (f"{OWN}.mig", True),
    ('device.attributes["other.io"].index > 3', False),
    (f'{OWN}.driverVersion.compareTo(semver("1.9.0")) > 0', True),
    (f'{OWN}.driverVersion.isLessThan(semver("1.10.0-rc.1"))', False),
    (f'{MEMORY}.compareTo(quantity("80Gi")) >= 0', False),
    (f'{MEMORY} == quantity("40960Mi")', True),
    ('has(device.attributes["none"].index)', False),
    (f'{OWN}.exists(name, name == "none")', False),
    # Not evaluated here: the scheduler decides.
    (f"cel.bind(own, {OWN}, own.model == 'h100')", True),
    ("this is no expression", True),
    (f"{OWN}.model < 3", True),
    (f'{OWN}.firmware.isLessThan(semver("1.0.0"))', True),
)
def test_selectors_are_evaluated_as_the_scheduler_does(expression: str, admitted: bool) -> None:
    assert selects(expression, DRIVER, DEVICE) is admitted
