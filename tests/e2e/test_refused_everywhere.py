"""Pods that the scheduler refuses on every node, again and again: all other pods start meanwhile."""

from typing import Any

import pytest

from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import NODES
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.volumes import ZONE, Provisioner

Json = dict[str, Any]
WINDOW = 4
LONG = 200.0  # seconds, where the scheduler's silence has to be understood


@pytest.mark.timeout(500)
@pytest.mark.muster_flags("--window", str(WINDOW), "--start-backoff", "1s", "--start-backoff-max", "4s")
def test_a_zone_goes_whose_volumes_others_wait_for(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Start gangs that need the whole window one after the other.

    Replacements of one group and elastic members of another are more than the window has places, with
    volumes in the zone that has no nodes. They are not gated: the scheduler's calls for the gangs make
    its silence about the others show.
    """
    volumes = Provisioner(stage)
    _zone(stage, "a", 1)
    _zone(stage, "b", 4)
    there = volumes.in_zone("data", "a")
    elsewhere: Json = {"nodeSelector": {ZONE: "b"}}
    lost = stage.gang("lost", 3, min_member=4, gated=True, **there)
    reserved = [*stage.pods("kept", 1, group="lost", gated=True, **elsewhere)]
    reserved += stage.gang("growing", 1, gated=True, **elsewhere)
    stage.wait_phase([*lost, *reserved])
    stage.api.delete(NODES, "a0")
    stage.delete_pods(lost)
    replacements = stage.pods("lost", 3, first=3, group="lost", gated=True, **there)
    elastic = stage.pods("growing", WINDOW, first=1, group="growing", gated=True, **there)
    stage.wait_reason("growing", "WindowFull")
    for number in range(3):
        gang = stage.gang(f"gang-{number}", WINDOW)
        stage.wait_phase(gang, timeout=LONG)
        stage.finish(gang)
    assert stage.bound([*replacements, *elastic]) == {}
    assert stage.phases(reserved) == {"Running"}
    _zone(stage, "a", 2)
    stage.wait_phase([*replacements, *elastic], timeout=LONG)


def _zone(stage: Stage, name: str, count: int) -> None:
    stage.nodes(count, prefix=name, cpu="4", labels={ZONE: name})
