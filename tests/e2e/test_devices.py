"""Gangs whose members claim devices: Muster does not know where these are, and the scheduler finds them."""

from collections.abc import Iterator

import pytest

from tests.e2e.harness.devices import Devices
from tests.e2e.harness.muster import Muster
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
