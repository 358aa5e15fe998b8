"""Reservations on a real kube-scheduler: a large gang behind small ones, and who may start in front of it."""

from typing import Any

import pytest

from tests.e2e.harness.resources import POD_GROUPS, QUEUES
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

RUN_TIME = "kube-muster.io/run-time"


def small(stage: Stage, name: str, run_time: str = "") -> list[str]:
    """Create a group of one of 1 cpu."""
    notes = {RUN_TIME: run_time} if run_time else {}
    stage.group(name, 1, queue="q", annotations=notes)
    return stage.pods(name, 1, group=name, cpu="1", gated=True)


def full(stage: Stage, run_time: str = "") -> list[str]:
    """Fill two nodes of 2 cpus with two groups of one each."""
    stage.nodes(2, cpu="2")
    stage.queue("q", reserveAfter="3s")
    pods = [pod for number in range(4) for pod in small(stage, f"small-{number}", run_time)]
    stage.wait_phase(pods)
    return pods


def reserved(stage: Stage) -> dict[str, Any]:
    """Return the reservation in the status of the queue, once it is there."""
    found = wait_for(
        lambda: stage.api.get(QUEUES, "q").get("status", {}).get("reservation"), what="a reservation"
    )
    assert found is not None
    return dict(found)


def test_a_large_gang_behind_a_stream_of_small_ones_starts(stage: Stage, scheduler: KubeScheduler) -> None:
    """No pod declares its run time. All freed capacity is reserved."""
    pods = full(stage)
    big = stage.gang("big", 2, queue="q", cpu="2", gated=True)
    stage.wait_reason("big", "NoRoom")
    assert reserved(stage)["nodes"] == ["n0", "n1"]
    late = []
    for number, pod in enumerate(pods[:3]):
        late += small(stage, f"late-{number}")
        stage.finish([pod])
        stage.wait_reason(f"late-{number}", "Reserved")
    assert stage.bound([*big, *late]) == {}
    stage.finish(pods[3:])
    stage.wait_phase(big)
    wait_for(
        lambda: not stage.api.get(QUEUES, "q")["status"].get("reservation"),
        what="nothing is reserved any more",
    )
    stage.finish(big)
    stage.wait_phase(late)


@pytest.mark.usefixtures("job_rights")
def test_only_groups_that_end_before_it_start_in_front_of_it(stage: Stage, scheduler: KubeScheduler) -> None:
    pods = full(stage, run_time="1h")
    stage.gang("big", 2, queue="q", cpu="2", gated=True)
    reservation = reserved(stage)
    assert (reservation["nodes"], reservation["resource"]["cpu"]) == (["n0", "n1"], "4")
    small(stage, "long", run_time="2h")
    stage.finish(pods[:1])
    stage.wait_reason("long", "Reserved")
    short = small(stage, "short", run_time="10m")
    stage.wait_phase(short)
    stage.finish(short)
    stage.job("quick", suspend=True, queue="q", cpu="1", annotations={RUN_TIME: "10m"})
    wait_for(lambda: not stage.jobs.get("quick")["spec"]["suspend"], what="the job starts")
    assert stage.bound(["long-0", "big-0", "big-1"]) == {}
    wait_for(lambda: "to start about" in _message(stage, "big"), what="the message says when")
    stage.api.delete(POD_GROUPS, "big", stage.namespace)
    stage.finish(pods[1:2])
    stage.wait_phase(["long-0"])


def test_a_large_gang_at_its_queues_ceiling_starts_in_front_of_small_ones(
    stage: Stage, scheduler: KubeScheduler
) -> None:
    """The nodes fit all. Capacity freed below the ceiling is reserved, and other queues continue."""
    stage.nodes(2, cpu="8")
    stage.queue("q", reserveAfter="3s", capability={"cpu": "4"})
    stage.queue("r")
    pods = [pod for number in range(4) for pod in small(stage, f"small-{number}")]
    stage.wait_phase(pods)
    big = stage.gang("big", 4, queue="q", cpu="1", gated=True)
    stage.wait_reason("big", "QueueCeiling")
    wait_for(lambda: "headroom in queue q and nodes" in _message(stage, "big"), what="a reservation")
    late = []
    for number, pod in enumerate(pods[:3]):
        late += small(stage, f"late-{number}")
        stage.finish([pod])
        stage.wait_reason(f"late-{number}", "Reserved")
    stage.wait_phase(stage.gang("other", 8, queue="r", cpu="1", gated=True))
    assert stage.bound([*big, *late]) == {}
    stage.finish(pods[3:])
    stage.wait_phase(big)
    stage.finish(big)
    stage.wait_phase(late)


def _message(stage: Stage, group: str) -> str:
    conditions = stage.pod_group(group)["status"]["conditions"]
    return str(next(condition["message"] for condition in conditions if condition["type"] == "Scheduled"))
