"""Gangs on a real kube-scheduler: whole or not at all."""

from tests.e2e.harness.muster import Muster
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage


def test_a_gang_of_three_starts_whole(stage: Stage, muster: Muster, scheduler: KubeScheduler) -> None:
    stage.nodes(3, cpu="4")
    gang = stage.gang("a", 3, cpu="2", gated=True)
    stage.wait_bound(gang)
    stage.wait_phase(gang, "Running")
