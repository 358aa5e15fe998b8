"""Preemption by pods that are not ours: a running gang is never broken for them.

The scheduler of these tests serves all pods, and asks Muster about all its pods. Only those of Muster's are
bound by it.
"""

from typing import Any

import pytest

from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import PODS
from tests.e2e.harness.scheduler import BOUND_BY_MUSTER, KubeScheduler, for_all_pods
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

Json = dict[str, Any]
DEFAULT_SCHEDULER = "default-scheduler"


@pytest.fixture
def scheduler(stage: Stage, muster: Muster) -> KubeScheduler:
    """Start the sidecar's configuration, with the cluster's default profile in the same process.

    It does not use Muster's account, which deletes no pods.
    """
    return stage.start_scheduler(for_all_pods(DEFAULT_SCHEDULER), muster=muster.address)


@pytest.fixture
def urgent(stage: Stage) -> Json:
    """Return the fields that make a foreign pod important."""
    return {"scheduler": DEFAULT_SCHEDULER, "priorityClassName": stage.priority("urgent", 100_000)}


def test_an_urgent_pod_takes_the_place_of_another_pod_and_of_no_gang(
    stage: Stage, scheduler: KubeScheduler, urgent: Json
) -> None:
    """The gang would be the cheaper victim: its pods are less important than the one that goes."""
    higher = stage.priority("higher", 10)
    stage.nodes(3, cpu="2")
    gang = stage.gang("a", 2, cpu="2", gated=True, **BOUND_BY_MUSTER)
    stage.wait_phase(gang)
    victim = stage.pods("victim", 1, cpu="2", scheduler=DEFAULT_SCHEDULER, priorityClassName=higher)
    stage.wait_phase(victim)
    stage.wait_phase(stage.pods("urgent", 1, cpu="2", **urgent))
    assert stage.phases(victim) == {"Gone"}
    assert stage.phases(gang) == {"Running"}


def test_an_urgent_pod_waits_where_only_gangs_could_give_way(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, urgent: Json
) -> None:
    stage.nodes(3, cpu="2")
    gang = stage.gang("a", 3, cpu="2", gated=True, **BOUND_BY_MUSTER)
    stage.wait_phase(gang)
    pod = stage.pods("urgent", 1, cpu="2", **urgent)
    wait_for(lambda: _preempt_calls(muster) and _is_refused(stage, pod[0]), what="the preemption is refused")
    assert stage.bound(pod) == {}
    assert stage.phases(gang) == {"Running"}
    stage.finish(gang)
    stage.wait_phase(pod)


def test_a_member_that_its_gang_can_spare_gives_way(
    stage: Stage, scheduler: KubeScheduler, urgent: Json
) -> None:
    stage.nodes(3, cpu="2")
    gang = stage.gang("a", 3, min_member=2, cpu="2", gated=True, **BOUND_BY_MUSTER)
    stage.wait_phase(gang)
    stage.wait_phase(stage.pods("urgent", 1, cpu="2", **urgent))
    assert sorted(map(str, (stage.phases([name]) for name in gang))).count("{'Running'}") == 2


def test_two_urgent_pods_evict_no_more_members_than_a_gang_can_spare(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, urgent: Json
) -> None:
    """The second one is evaluated before anything shows that the first one's victim is going."""
    stage.nodes(6, cpu="2")
    gang = stage.gang("a", 6, min_member=4, cpu="2", gated=True, **BOUND_BY_MUSTER)
    stage.wait_phase(gang)
    pods = stage.pods("urgent", 4, cpu="2", **urgent)
    wait_for(lambda: len(stage.bound(pods)) >= 2, what="two are served")
    waiting = [name for name in pods if name not in stage.bound(pods)]
    wait_for(lambda: all(_is_refused(stage, name) for name in waiting), what="the others have been tried")
    assert len([name for name in gang if stage.phases([name]) == {"Running"}]) == 4
    assert len(stage.bound(pods)) == 2


def test_an_urgent_member_evicts_no_pod(stage: Stage, scheduler: KubeScheduler, urgent: Json) -> None:
    """Leave victims of our groups to Muster, whatever their priority.

    Their queue takes nothing from foreign pods.
    """
    stage.queue("q", preemption={"unmanaged": "Never"})
    stage.nodes(2, cpu="2")
    standing = stage.pods("standing", 2, cpu="2", scheduler=DEFAULT_SCHEDULER)
    stage.wait_phase(standing)
    important = {"priorityClassName": urgent["priorityClassName"], **BOUND_BY_MUSTER}
    gated = stage.gang("gated", 2, cpu="2", gated=True, queue="q", **important)
    ungated = stage.gang("ungated", 2, cpu="2", queue="q", **important)
    stage.wait_reason("gated", "NoRoom")
    stage.wait_reason("ungated", "NoRoom")
    wait_for(lambda: all(_is_refused(stage, name) for name in ungated), what="the scheduler has tried")
    assert stage.phases(standing) == {"Running"}
    assert stage.bound([*gated, *ungated]) == {}


def _preempt_calls(muster: Muster) -> float:
    return muster.metric("muster_verb_calls_total", verb="preempt")


def _is_refused(stage: Stage, name: str) -> bool:
    conditions = stage.api.get(PODS, name, stage.namespace)["status"].get("conditions", [])
    return any(
        (condition["type"], condition["status"]) == ("PodScheduled", "False") for condition in conditions
    )
