"""Devices and claims as no driver or user should write them: their group has a reason, and others start."""

from extender.api.device_selectors import selects
from extender.api.objects.base import Meta
from extender.api.objects.devices import (
    CelSelector,
    ClaimTemplateSpec,
    Device,
    DeviceAttribute,
    DeviceSelector,
    ExactRequest,
    ResourceClaimTemplate,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from extender.domain.model.device_requests import ClaimKey
from extender.domain.model.reasons import Reason
from tests.domain.builders import NAMESPACE, group, node, pod
from tests.domain.test_device_inventory import DEVICE, DRIVER, GPU, Cluster
from tests.domain.test_devices import asking, claim
from tests.domain.world import World
from tests.rows import each_of

OF_A_SLICE = 128  # the API takes no more


def cluster(*templates: ExactRequest) -> Cluster:
    """Return a cluster with a group that needs a claim of these requests, and one that needs none."""
    new_cluster = Cluster()
    new_cluster.world.add(
        group("g", 1), group("other", 1), asking("g-0", "g", ["t"]), pod("other-0", "other")
    )
    new_cluster.world.ledger.intake.expect_claims(lambda: True)
    if templates:
        new_cluster.world.ledger.intake.set_claim(ClaimKey(NAMESPACE, "t"), claim(*templates))
    return new_cluster


def waits(found: Cluster) -> tuple[Reason | None, str]:
    """Return why the group waits, once the other one has started."""
    found.world.settle()
    assert found.world.plan("other")
    return found.world.reason("g"), found.world.detail("g")


def put_slice(found: Cluster, number: int, of: int, driver: str = DRIVER) -> None:
    devices = [Device(f"d{number}-{n}") for n in range(OF_A_SLICE)]
    spec = ResourceSliceSpec(driver, "a", ResourcePool("p", 1, of), devices)
    found.inventory.set_slice(ResourceSlice(Meta(name=f"{driver}-{number}"), spec))


def test_a_pool_of_a_hundred_thousand_devices_counts_once_it_is_complete() -> None:
    found, slices = cluster(ExactRequest("gpu", count=100_000)), 782
    for number in range(slices - 1):
        put_slice(found, number, slices)
    assert waits(found) == (Reason.NEVER_FITS, f"no node has {GPU}")
    put_slice(found, slices - 1, slices)
    assert found.on("a") == {GPU: slices * OF_A_SLICE}
    assert found.world.settle().plan("g")


def test_pools_of_two_drivers_with_one_name_are_two_pools() -> None:
    found = cluster(ExactRequest("gpu", count=2 * OF_A_SLICE))
    put_slice(found, 0, 1)
    assert waits(found)[0] is Reason.NEVER_FITS
    put_slice(found, 0, 1, driver="other.example.com")
    assert found.world.settle().plan("g")


LIST = "[" + ",".join("1" for _ in range(2_000)) + "]"


@each_of(
    "(" * 5_000 + "true" + ")" * 5_000,
    "!" * 10_000 + "true",
    "[" * 5_000 + "]" * 5_000 + " == []",
    f"{LIST}.all(x, {LIST}.all(y, x + y < 0))",
    "device.driver.orderly()",
    "\x00",
)
def test_a_selector_that_is_wrong_huge_or_endless_admits_each_device(expression: str) -> None:
    """The scheduler has the last word, so no group is refused for it."""
    assert selects(expression, DRIVER, DEVICE)
    found = cluster(ExactRequest("gpu"))
    found.add_class("gpu", expression)
    found.add_slice("s", "a", "x")
    assert found.world.settle().plan("g")


def test_a_class_that_is_deleted_under_running_pods_stops_no_other_group() -> None:
    found = cluster(ExactRequest("gpu"))
    found.add_slice("s", "a", "x")
    found.world.start("g")
    found.inventory.drop_class("gpu")
    found.world.add(group("next", 1), asking("next-0", "next", ["t"])).settle()
    assert found.world.detail("next") == f"no node has {GPU}"
    assert found.world.plan("other")
    found.add_class("gpu")
    found.world.settle()
    assert found.world.detail("next").startswith(f"{GPU}: 1 needed, 0 left"), "the running pod has it"


def test_of_a_claim_with_ten_thousand_requests_the_first_ones_count() -> None:
    found = cluster(*(ExactRequest("gpu") for _ in range(10_000)))
    found.add_slice("s", "a", "xyz")
    assert waits(found) == (Reason.NEVER_FITS, f"no node can hold cpu 1 {GPU} 256 (suitable nodes: 2)")


def test_a_template_of_no_request_needs_no_device() -> None:
    found = cluster()
    assert waits(found)[1].endswith("1 held back: ResourceClaimTemplate t does not exist")
    found.world.ledger.intake.set_claim(ClaimKey(NAMESPACE, "t"), claim())
    assert found.world.settle().plan("g")


def test_a_request_whose_selector_has_loops_inside_loops_is_left_to_the_scheduler() -> None:
    """With 32 attributes it would take 2**40 steps."""
    attributes = f'device.attributes["{DRIVER}"]'
    endless = "true"
    for name in "abcdefgh":
        endless = f"{attributes}.all({name}, {endless})"
    found = cluster(ExactRequest("gpu", selectors=[DeviceSelector(CelSelector(endless))]))
    many = {f"a{n}": DeviceAttribute(integer=n) for n in range(32)}
    spec = ResourceSliceSpec(DRIVER, "a", ResourcePool("a", 1, 1), [Device("d", many)])
    found.inventory.set_slice(ResourceSlice(Meta(name="s"), spec))
    template = ClaimTemplateSpec(claim(ExactRequest("gpu", selectors=[DeviceSelector(CelSelector(endless))])))
    found.inventory.set_template(ResourceClaimTemplate(Meta(name="t", namespace=NAMESPACE), template))
    assert found.world.settle().plan("g")


def test_an_amount_that_stands_for_more_than_any_node_has_never_fits() -> None:
    cluster = World(node("a", more={"x.com/gpu": "8"}), logical=["x.com/memory=80Gi*x.com/gpu"])
    cluster.add(
        group("g", 1), pod("g-0", "g", more={"x.com/gpu": str(2**62)}), group("o", 1), pod("o-0", "o")
    )
    assert cluster.settle().reason("g") is Reason.NEVER_FITS
    assert cluster.plan("o")
