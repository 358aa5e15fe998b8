"""Amounts that no machine has, resources that no node offers: only the pods that name them are affected."""

import json
from typing import Any

from tests.e2e.harness import objects
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import QUEUES
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

Json = dict[str, Any]
FOREIGN_SCHEDULER = "somebody"  # a scheduler that is neither ours nor at work


def _containers(*memory: str) -> list[Json]:
    return [
        {
            "name": f"c{number}",
            "image": objects.PAUSE_IMAGE,
            "resources": {"requests": {"cpu": "10m", "memory": amount}},
        }
        for number, amount in enumerate(memory)
    ]


def _idle(muster: Muster, node: str) -> Json:
    """Return the idle amounts of a node, empty while Muster does not know the node."""
    return next((each["idle"] for each in muster.debug("/debug/nodes") if each["name"] == node), {})


def test_a_pod_too_large_to_count_delays_no_other_pod(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Two containers of 9E each: their sum is larger than 64 bits hold."""
    stage.nodes(2, cpu="4")
    stage.group("huge", 1)
    huge = stage.pods("huge", 1, group="huge", gated=True, containers=_containers("9E", "9E"))
    stage.wait_reason("huge", "NeverFits")
    stage.wait_phase(stage.gang("a", 3, gated=True))
    muster.restart()
    stage.wait_phase(stage.gang("b", 3, gated=True))
    assert muster.live()
    assert stage.bound(huge) == {}


def test_a_pod_too_large_to_count_leaves_a_node_as_it_found_it(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """The test binds the pod without a scheduler."""
    stage.nodes(1, cpu="4")
    before = wait_for(lambda: _idle(muster, "n0"), what="the node is known")
    for cycle in range(2):
        huge = stage.pods(
            f"huge{cycle}", 3, scheduler=FOREIGN_SCHEDULER, containers=_containers("9E", "9E"), nodeName="n0"
        )
        wait_for(lambda: _idle(muster, "n0")["memory"] < -(10**14), what="the pods are counted")
        stage.delete_pods(huge)
        wait_for(lambda: _idle(muster, "n0") == before, what="the free capacity is as before")
    stage.wait_phase(stage.gang("a", 3, gated=True))


def test_resources_that_no_node_offers_make_no_status_longer(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Twenty pods of somebody else with 4,000 resources each, and a gang that asks for 4,000 more."""
    stage.nodes(2, cpu="4")
    for number in range(20):
        names = {f"x{number}.example.com/r{n}": "1" for n in range(4000)}
        stage.pods(f"wide{number}", 1, cpu="10m", scheduler=FOREIGN_SCHEDULER, limits=names, nodeName="n0")
    ours = {f"ours.example.com/r{n}": "1" for n in range(4000)}
    stage.gang("wide", 1, gated=True, limits=ours)
    stage.wait_reason("wide", "TooComplex")
    stage.wait_phase(stage.gang("a", 3, gated=True))
    wait_for(lambda: _allocated(stage).get("cpu") == "3", what="the queue's status counts the gang")
    status = stage.api.get(QUEUES, "default")["status"]
    assert {*status["allocated"], *status["deserved"]} <= {"cpu", "memory", "pods", "ephemeral-storage"}
    assert len(json.dumps(status)) < 5_000
    assert len(json.dumps(stage.pod_group("wide")["status"])) < 5_000
    assert len(json.dumps(muster.debug("/debug/queues"))) < 20_000


def _allocated(stage: Stage) -> Json:
    status: Json = stage.api.get(QUEUES, "default").get("status", {}).get("allocated", {})
    return status
