"""Inventory of devices: what slices, classes and allocated claims leave on each node."""

from typing import Any

from msgspec.structs import replace

from extender.api.device_selectors import selects
from extender.api.objects.base import Meta
from extender.api.objects.devices import (
    AllocatedDevice,
    AllocatedDevices,
    Allocation,
    CelSelector,
    ClaimSpec,
    ClaimStatus,
    ClaimTemplateSpec,
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
    ResourceClaimTemplate,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from extender.api.objects.pods import Pod, PodClaim
from extender.domain.ledger.devices import DeviceInventory
from extender.domain.model.device_requests import selections_of
from extender.domain.model.reasons import Reason
from tests.domain.builders import NAMESPACE, group, node, pod
from tests.domain.world import World, gang
from tests.rows import each_of

DRIVER = "gpu.example.com"
GPU, LARGE = "deviceclass/gpu", "deviceclass/large"
IS_LARGE = f'device.attributes["{DRIVER}"].model == "large"'
Amounts = dict[str, int]


class Cluster:
    """Two nodes, a and b, and a class of all devices."""

    def __init__(self, *logical: str) -> None:
        self.world = World(node("a"), node("b"), logical=logical)
        self.inventory = DeviceInventory(self.world.ledger.intake)
        self.add_class("gpu")

    def add_class(self, name: str, *expressions: str, extended: str = "") -> None:
        selectors = [DeviceSelector(CelSelector(each)) for each in expressions]
        self.inventory.set_class(DeviceClass(Meta(name=name), DeviceClassSpec(selectors, extended)))

    def add_slice(self, name: str, node: str, devices: str, generation: int = 1, of: int = 1) -> None:
        """Add a slice of the pool of its node; upper-case names are large devices."""
        named = [
            Device(
                each,
                {"model": DeviceAttribute(string="large" if each.isupper() else "small")},
                {"memory": DeviceCapacity("80" if each.isupper() else "40")},
            )
            for each in devices
        ]
        spec = ResourceSliceSpec(DRIVER, node, ResourcePool(node, generation, of), named)
        self.inventory.set_slice(ResourceSlice(Meta(name=name), spec))

    def claim(
        self, name: str, node: str, device: str, of: str = "gpu", user: str = "pods", **more: Any
    ) -> None:
        """Allocate a device to a claim."""
        requests = [DeviceRequest("r", ExactRequest(of))]
        held = AllocatedDevices([AllocatedDevice("r", DRIVER, node, device, **more)])
        meta = Meta(name=name, namespace="team", uid=name)
        status = ClaimStatus(Allocation(held), [ClaimUser(user)] if user else None)
        self.inventory.set_claim(ResourceClaim(meta, ClaimSpec(DeviceClaim(requests)), status))

    def on(self, name: str) -> Amounts:
        """Return the amounts of devices that pods can have on a node."""
        found = self.world.ledger.snapshot()
        free = dict(zip(found.dimensions, found.capacity[found.nodes.row_of[name]].tolist(), strict=True))
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


def selecting(*expressions: str, number: int = 1) -> ClaimSpec:
    """Return a claim for devices of class gpu that have to meet all expressions."""
    selectors = [DeviceSelector(CelSelector(each)) for each in expressions]
    exact_request = ExactRequest("gpu", count=number, selectors=selectors)
    return ClaimSpec(DeviceClaim([DeviceRequest("r", exact_request)]))


def template(cluster: Cluster, name: str, spec: ClaimSpec, namespace: str = NAMESPACE) -> None:
    meta = Meta(name=name, namespace=namespace)
    cluster.inventory.set_template(ResourceClaimTemplate(meta, ClaimTemplateSpec(spec)))


def claiming(template: str, group: str) -> Pod:
    """Return the pod of a group, with a claim of a template."""
    new_pod = pod(f"{group}-0", group)
    claims = [PodClaim("c", resource_claim_template_name=template)]
    return replace(new_pod, spec=replace(new_pod.spec, resource_claims=claims))


def test_a_request_with_selectors_needs_a_node_with_such_devices() -> None:
    cluster = Cluster()
    cluster.add_slice("on-a", "a", "xxyyZ")
    cluster.add_slice("on-b", "b", "XY")
    template(cluster, "large", selecting(IS_LARGE))
    for number in range(4):
        cluster.world.add(group(f"g{number}", 1), claiming("large", f"g{number}"))
    cluster.world.settle()
    placed = [node for number in range(4) for node in cluster.world.plan(f"g{number}").values()]
    assert sorted(placed) == ["a", "b", "b"]
    assert cluster.world.detail("g3").startswith(f"{GPU} where {IS_LARGE}: 1 needed, 0 left")
    assert {name for name in cluster.world.queue("default").requested if "/" in name} == {GPU}


def test_a_selected_device_that_another_pod_has_is_gone() -> None:
    cluster = Cluster()
    cluster.add_slice("s", "a", "xYZ")
    template(cluster, "large", selecting(IS_LARGE))
    selected = f"{GPU} where {IS_LARGE}"
    assert cluster.on("a") == {GPU: 3, selected: 2}
    cluster.claim("c", "a", "Y")
    assert cluster.on("a") == {GPU: 3, selected: 1}, "the pod that has it selects nothing"
    cluster.add_class("gpu", extended="example.com/gpu")
    assert cluster.on("a") == {"example.com/gpu": 3, f"example.com/gpu where {IS_LARGE}": 1}
    cluster.inventory.drop_template(NAMESPACE, "large")
    assert cluster.on("a") == {"example.com/gpu": 3}


@each_of(
    # many selections of one namespace, and how many of another one count beside them
    (0, 3),
    (100, 3),
)
def test_selections_of_a_namespace_are_limited(hostile: int, counted: int) -> None:
    cluster = Cluster()
    cluster.add_slice("s", "a", "X")
    for number in range(hostile):
        template(cluster, f"t{number}", selecting(f"{IS_LARGE} || {number} > 0"), "hostile")
    for number in range(3):
        template(cluster, f"t{number}", selecting(f"{IS_LARGE} && {number} >= 0"))
    names = [name for name in cluster.on("a") if "where" in name]
    assert sum("&&" in name for name in names) == counted
    assert len(names) <= counted + 8


@each_of(
    ("model == 'a  b'", "model == 'a b'"),
    ("model == 'a b' || true", "model == 'a b'"),
    ("x" * 130 + "1", "x" * 130 + "2"),
)
def test_different_selections_have_different_names(one: str, other: str) -> None:
    """Otherwise a tenant could name a selection as that of another one, and have it counted first."""
    names = [list(selections_of(selecting(each))) for each in (one, other)]
    assert names[0] != names[1]
    assert list(selections_of(selecting("a || b", "c"))) != list(selections_of(selecting("a || b && c")))


@each_of(
    "no such language",
    "x" * 1000,
    'device.attributes["a of b"].model == "c"',
)
def test_a_selection_that_cannot_be_evaluated_here_is_left_to_the_scheduler(expression: str) -> None:
    cluster = Cluster()
    cluster.add_slice("s", "a", "xy")
    template(cluster, "odd", selecting(expression, number=2))
    cluster.world.add(group("g", 1), claiming("odd", "g"))
    assert cluster.world.settle().plan("g")


def test_a_device_may_stand_for_its_capacity() -> None:
    """A request counts for the largest device that it may get."""
    memory = "example.com/memory"
    cluster = Cluster(f"{memory}=capacity.memory*{GPU}")
    template(cluster, "any", selecting(number=2))
    template(cluster, "small", selecting(f"!({IS_LARGE})", number=2))
    cluster.add_slice("on-a", "a", "wxyz")
    assert cluster.on("a")[memory] == 160
    cluster.add_slice("on-b", "b", "XYZ")
    assert (cluster.on("a")[memory], cluster.on("b")[memory]) == (320, 240)
    for name in ("any", "small"):
        cluster.world.add(group(name, 1), claiming(name, name))
    cluster.world.settle()
    assert cluster.world.plan("small") == {"small-0": "a"}
    assert cluster.world.queue("default").requested[memory] == 2 * 80 + 2 * 40
    cluster.inventory.drop_slice("on-b")
    assert cluster.on("a")[memory] == 160


@each_of(True, False)
def test_a_selection_that_tells_each_device_apart_is_left_to_the_scheduler(is_first: bool) -> None:
    """It comes before the devices, or after them."""
    cluster = Cluster()
    index = f'device.attributes["{DRIVER}"].index'
    if is_first:
        template(cluster, "one", selecting(f"{index} == 3"))
        cluster.world.add(group("g", 1), claiming("one", "g"))
    devices = [Device(f"d{at}", {"index": DeviceAttribute(integer=at)}) for at in range(5000)]
    spec = ResourceSliceSpec(DRIVER, "a", ResourcePool("a", 1, 1), devices)
    cluster.inventory.set_slice(ResourceSlice(Meta(name="s"), spec))
    if not is_first:
        template(cluster, "one", selecting(f"{index} == 3"))
        cluster.world.add(group("g", 1), claiming("one", "g"))
    (pod,) = cluster.world.ledger.pods.by_uid.values()
    assert {name for name in pod.shape.requests if "/" in name} == {GPU}
    assert cluster.world.settle().plan("g")
