"""Gangs whose members request devices of a played driver, by claims or as an extended resource."""

from collections.abc import Iterator

import pytest

from tests.e2e.harness.access import User
from tests.e2e.harness.devices import Devices
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import NAMESPACES
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage

pytestmark = pytest.mark.view


@pytest.fixture
def devices(stage: Stage) -> Iterator[Devices]:
    made = Devices(stage)
    yield made
    made.end()


def test_a_gang_starts_on_the_one_node_of_80_that_has_its_devices(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, devices: Devices
) -> None:
    """The scheduler names the node before it reserves the devices: that is no refusal."""
    *_, last = stage.nodes(80, cpu="4")
    devices.on(last, 2)
    stage.group("a", 2)
    gang = [*stage.pods("a", 1, group="a", **devices.claimed("first"))]
    gang += stage.pods("a", 1, first=1, group="a", **devices.claimed("second"))
    stage.wait_phase(gang)
    assert set(stage.bound(gang).values()) == {last}
    scheduler.wait_agrees()


def test_a_gang_waits_until_the_nodes_have_devices_for_all(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, devices: Devices
) -> None:
    """Two nodes of four devices hold one gang of three pods with two devices each, and not a second one."""
    stage.start_controller_manager()
    for node in stage.nodes(2, cpu="16"):
        devices.on(node, 4)
    two = devices.template("two", 2)
    first = stage.gang("first", 3, **two)
    stage.wait_phase(first)
    second = stage.gang("second", 3, **two)
    stage.wait_reason("second", "NoRoom")
    assert f"deviceclass/{devices.name}: 6 needed, 2 left" in stage.message("second")
    stage.finish(first)
    stage.delete_pods(first)
    stage.wait_phase(second)
    scheduler.wait_agrees()


def test_a_gang_gets_the_nodes_with_devices_that_its_requests_select(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, devices: Devices
) -> None:
    """The nodes have one and three devices with an index from 1 on, so the second gang waits."""
    stage.start_controller_manager()
    small, large = stage.nodes(2, cpu="16")
    devices.on(small, 2)
    devices.on(large, 4)
    first = stage.gang("first", 3, **devices.template("one", 1, first=1))
    stage.wait_phase(first)
    assert sorted(stage.bound(first).values()).count(large) >= 2
    second = stage.gang("second", 2, **devices.template("another", 1, first=1))
    stage.wait_reason("second", "NoRoom")
    assert f"deviceclass/{devices.name} where device.attributes" in stage.message("second")
    assert "2 needed, 1 left" in stage.message("second")
    stage.finish(first)
    stage.delete_pods(first)
    stage.wait_phase(second)
    scheduler.wait_agrees()


def test_a_queue_never_holds_more_devices_than_it_may(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, devices: Devices
) -> None:
    stage.start_controller_manager()
    (node,) = stage.nodes(1, cpu="16")
    devices.on(node, 4)
    queue = f"{stage.namespace}-limited"
    stage.queue(queue, capability={f"deviceclass/{devices.name}": "2"})
    two = devices.template("two", 2)
    first = stage.gang("first", 1, queue=queue, **two)
    stage.wait_phase(first)
    stage.gang("second", 1, queue=queue, **two)
    stage.wait_reason("second", "QueueCeiling")


def test_a_queue_limits_different_devices_by_what_they_stand_for(
    stage: Stage, muster_user: User, devices: Devices
) -> None:
    """A device counts for its memory, and a part from a device plugin for 10."""
    memory, queue = "example.com/memory", f"{stage.namespace}-limited"
    formula = f"{memory}=capacity.memory*deviceclass/{devices.name}+10*example.com/part"
    made = stage.start_muster(f"--logical-resource={formula}", user=muster_user, view=True)
    scheduler = stage.start_sidecar(made, user=muster_user)
    stage.start_controller_manager()
    (node,) = stage.nodes(1, cpu="16", **{"example.com/part": "8"})
    devices.on(node, 2, {"capacity": {"memory": {"value": "80"}}})
    stage.queue(queue, capability={memory: "100"})
    whole = stage.gang("whole", 1, queue=queue, **devices.template("one", 1))
    parts = stage.gang("parts", 2, queue=queue, limits={"example.com/part": "1"})
    stage.wait_phase([*whole, *parts])
    stage.gang("more", 1, queue=queue, limits={"example.com/part": "1"})
    stage.wait_reason("more", "QueueCeiling")
    assert f"{memory}: 100 held + 10 asked > 100" in stage.message("more")
    scheduler.wait_agrees()


def test_devices_behind_an_extended_resource_need_no_claim(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    extended = f"{stage.namespace}.example.com/gpu"
    devices = Devices(stage, extended)
    try:
        stage.start_controller_manager()
        for node in stage.nodes(2, cpu="16"):
            devices.on(node, 2)
        gang = stage.gang("a", 2, limits={extended: "2"})
        stage.wait_phase(gang)
        assert len({*stage.bound(gang).values()}) == 2
    finally:
        devices.end()


def test_members_that_share_a_claim_start_where_its_devices_are(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, devices: Devices
) -> None:
    """The claim counts once: a second gang that needs two of the four devices finds none."""
    stage.start_controller_manager()
    (first, _) = stage.nodes(2, cpu="16")
    devices.on(first, 4)
    gang = stage.gang("a", 3, **devices.claimed("four", 4))
    stage.wait_phase(gang)
    assert set(stage.bound(gang).values()) == {first}
    stage.gang("b", 1, **devices.template("two", 2))
    stage.wait_reason("b", "NoRoom")
    assert "2 needed, 0 left" in stage.message("b")


def test_devices_in_use_can_be_monitored(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, devices: Devices
) -> None:
    """A request with access for administrators takes no device from others."""
    label = "resource.kubernetes.io/admin-access"
    stage.api.patch(NAMESPACES, stage.namespace, {"metadata": {"labels": {label: "true"}}})
    stage.start_controller_manager()
    (node,) = stage.nodes(1, cpu="16")
    devices.on(node, 2)
    stage.wait_phase(stage.gang("all", 1, **devices.template("two", 2)))
    exactly = {"deviceClassName": devices.name, "allocationMode": "All", "adminAccess": True}
    requests = [{"name": "gpu", "exactly": exactly}]
    stage.wait_phase(stage.gang("monitors", 2, **devices.template("watched", 0, requests=requests)))
    scheduler.wait_agrees()


def test_devices_are_reclaimed_for_a_starved_queue(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, devices: Devices
) -> None:
    """Each of two queues deserves two of the four devices, and one holds all of them."""
    stage.start_controller_manager()
    (node,) = stage.nodes(1, cpu="16")
    devices.on(node, 4)
    resource = f"deviceclass/{devices.name}"
    for queue in ("rich", "poor"):
        stage.queue(queue, deserved={resource: "2"})
    two = devices.template("two", 2)
    gangs = [stage.gang(name, 1, queue="rich", **two) for name in ("first", "second")]
    for gang in gangs:
        stage.wait_phase(gang)
    stage.wait_phase(stage.gang("poor", 1, queue="poor", **two))
    assert len([gang for gang in gangs if stage.phases(gang) == {"Running"}]) == 1


def test_a_whole_gpu_waits_until_no_pod_has_a_half_of_it(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, devices: Devices
) -> None:
    stage.start_controller_manager()
    (node,) = stage.nodes(1, cpu="16")
    devices.partitioned_on(node)
    whole, half = devices.device_class("whole", "whole"), devices.device_class("half", "!whole")
    halves = stage.gang("halves", 2, **devices.template("half", 1, half))
    stage.wait_phase(halves)
    one = stage.gang("one", 1, **devices.template("whole", 1, whole))
    stage.wait_reason("one", "NoRoom")
    assert f"deviceclass/{whole}: 1 needed, 0 left" in stage.message("one")
    stage.finish(halves)
    stage.delete_pods(halves)
    stage.wait_phase(one)
