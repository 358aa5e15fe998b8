"""Claims of devices that go while a gang starts, and requests that the scheduler alone decides on."""

from collections.abc import Iterator

import pytest

from tests.e2e.harness.access import User
from tests.e2e.harness.devices import Devices, Json
from tests.e2e.harness.fault_proxy import FaultProxy
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import RESOURCE_CLAIMS
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.standstill import LastCall
from tests.e2e.harness.waiting import wait_for

pytestmark = [pytest.mark.view, pytest.mark.muster_flags("--start-backoff", "3s")]


@pytest.fixture
def verbs(stage: Stage, muster: Muster) -> FaultProxy:
    return stage.start_verbs_proxy(muster)


@pytest.fixture
def scheduler(stage: Stage, muster: Muster, verbs: FaultProxy, muster_user: User) -> KubeScheduler:
    return stage.start_sidecar(muster, muster=verbs.address, user=muster_user)


@pytest.fixture
def devices(stage: Stage) -> Iterator[Devices]:
    stage.start_controller_manager()
    made = Devices(stage)
    yield made
    made.end()


@pytest.mark.parametrize("is_replaced", [False, True], ids=["deleted", "replaced"])
def test_a_claim_that_goes_ends_the_start_of_its_gang(
    stage: Stage,
    muster: Muster,
    scheduler: KubeScheduler,
    verbs: FaultProxy,
    devices: Devices,
    is_replaced: bool,
) -> None:
    (node,) = stage.nodes(1, cpu="16")
    devices.on(node, 4)
    gang = LastCall(stage, muster, verbs, **devices.claimed("four", 4))
    if is_replaced:
        stage.api.patch(RESOURCE_CLAIMS, "four", {"metadata": {"finalizers": None}}, stage.namespace)
    stage.api.delete(RESOURCE_CLAIMS, "four", stage.namespace)
    if is_replaced:
        devices.claimed("four", 4)
    words = "ResourceClaim four was deleted"
    wait_for(lambda: words in stage.message("a"), what=f"the group says that {words}")
    gang.release()
    if not is_replaced:
        stage.wait_reason("a", "NotEnoughMembers")
        assert "3 held back: ResourceClaim four" in stage.message("a")
        gone = "no claim is left"
        wait_for(lambda: not stage.api.find(RESOURCE_CLAIMS, "four", stage.namespace), what=gone)
        assert stage.bound(gang.pods) == {}
        devices.claimed("four", 4)
    stage.wait_phase(gang.pods)
    scheduler.wait_agrees()


@pytest.mark.parametrize("offered", [True, False], ids=["first", "second"])
def test_a_gang_starts_with_either_of_two_classes(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, devices: Devices, offered: bool
) -> None:
    *_, last = stage.nodes(3, cpu="16")
    devices.on(last, 2, {"attributes": {"large": {"bool": offered}}})
    classes = devices.device_class("large", "large"), devices.device_class("small", "!large")
    options = [{"name": f"o{n}", "deviceClassName": name} for n, name in enumerate(classes)]
    asked = [{"name": "gpu", "firstAvailable": options}]
    gang = stage.gang("a", 2, **devices.template("either", 1, requests=asked))
    stage.wait_phase(gang)
    assert set(stage.bound(gang).values()) == {last}


ON_ONE_BOARD: Json = {"attributes": {"board": {"int": 0}}}
TAINTED_DEVICE: Json = {"taints": [{"key": "example.com/broken", "effect": "NoSchedule"}]}


def test_a_gang_finds_the_node_whose_devices_have_equal_attributes(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, devices: Devices
) -> None:
    *others, last = stage.nodes(3, cpu="16")
    for node in others:
        devices.on(node, 2, ON_ONE_BOARD, {"attributes": {"board": {"int": 1}}})
    devices.on(last, 2, ON_ONE_BOARD)
    equal = [{"requests": ["gpu"], "matchAttribute": f"{devices.driver}/board"}]
    gang = stage.gang("a", 1, **devices.template("pair", 2, constraints=equal))
    stage.wait_phase(gang)
    assert set(stage.bound(gang).values()) == {last}


def test_a_gang_does_not_stay_with_tainted_devices(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, devices: Devices
) -> None:
    *others, last = stage.nodes(3, cpu="16")
    for node in others:
        devices.on(node, 4, TAINTED_DEVICE)
    devices.on(last, 4)
    gang = stage.gang("a", 2, **devices.template("two", 2))
    stage.wait_phase(gang)
    assert set(stage.bound(gang).values()) == {last}


def test_devices_that_several_claims_share_are_no_limit(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, devices: Devices
) -> None:
    """Three pods have a part of one device each."""
    (node,) = stage.nodes(1, cpu="16")
    shared: Json = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "8"}}}
    devices.on(node, 1, shared)
    part = {"deviceClassName": devices.name, "capacity": {"requests": {"memory": "2"}}}
    template = devices.template("part", 1, requests=[{"name": "gpu", "exactly": part}])
    stage.wait_phase(stage.gang("a", 3, **template))


def test_a_selector_that_only_the_scheduler_evaluates_refuses_no_gang(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, devices: Devices
) -> None:
    (node,) = stage.nodes(1, cpu="16")
    devices.on(node, 2)
    chosen = devices.selected("odd", f"cel.bind(d, device.driver, d == '{devices.driver}')")
    stage.wait_phase(stage.gang("a", 2, **devices.template("one", 1, chosen)))
