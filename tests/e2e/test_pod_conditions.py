"""Conditions of waiting pods, for people and autoscalers, on a real API server next to a real scheduler."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from extender.domain.model.reasons import Reason
from tests.e2e.harness.access import User
from tests.e2e.harness.fault_proxy import FaultProxy
from tests.e2e.harness.faults import before_request
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import EVENTS, PODS, QUEUES
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

Json = dict[str, Any]
CAPACITY_REASONS = ("Unschedulable", f"muster: NoRoom: {Reason.NO_ROOM.meaning}")
AS_CREATED = ("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")


def condition(stage: Stage, name: str) -> Json:
    conditions = stage.pod(name)["status"].get("conditions", [])
    return next((each for each in conditions if each["type"] == "PodScheduled"), {})


def conditions(stage: Stage, names: Iterable[str]) -> set[tuple[str, str]]:
    """Return the reasons and messages of these pods."""
    found = (condition(stage, name) for name in names)
    return {(each.get("reason", ""), each.get("message", "")) for each in found}


def wait_conditions(stage: Stage, names: Sequence[str], condition: tuple[str, str]) -> None:
    wait_for(lambda: conditions(stage, names) == {condition}, what=f"{names[0]}.. say {condition[0]}")


def wait_event(stage: Stage, pod: str) -> None:
    """Wait until an Event has a pod's reason to wait: it is written after the same time, and in any case."""

    def recorded() -> bool:
        events = stage.api.items(EVENTS, stage.namespace)
        about = [event for event in events if event["source"].get("component") == "kube-muster"]
        return any(each["involvedObject"]["name"] == pod for each in about)

    wait_for(recorded, what=f"an event on {pod}")


def written(muster: Muster) -> float:
    return muster.metric("muster_pod_conditions_total")


def wait_written(muster: Muster, count: int) -> None:
    """Wait for the count of writes, which follows shortly after the write can be read."""
    wait_for(lambda: written(muster) >= count, what=f"{count} conditions counted")
    assert written(muster) == count


def autoscalers_see(stage: Stage) -> set[str]:
    """Return the pods for which cluster autoscaler and Karpenter add nodes, by their own rules.

    Sources: isUnschedulable, IsProvisionable.
    """
    waiting = [
        pod
        for pod in stage.api.items(PODS, stage.namespace)
        if "nodeName" not in pod["spec"] and not pod["status"].get("nominatedNodeName")
    ]
    names = [pod["metadata"]["name"] for pod in waiting]
    return {name for name in names if condition(stage, name).get("reason") == "Unschedulable"}


@pytest.mark.gates
def test_gated_pods_that_lack_capacity_request_nodes_and_those_that_wait_for_their_turn_do_not(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    stage.queue("small", capability={"cpu": "2"})
    stage.nodes(3, cpu="4")
    first = stage.gang("first", 2, cpu="1", queue="small", gated=True)
    stage.wait_phase([*first, *stage.pods("filler", 1, cpu="3")])
    hungry = stage.gang("hungry", 3, cpu="3", gated=True)
    second = stage.gang("second", 2, cpu="1", queue="small", gated=True)
    stage.wait_reason("hungry", "NoRoom")
    stage.wait_reason("second", "QueueCeiling")
    since = condition(stage, hungry[0])["lastTransitionTime"]
    wait_conditions(stage, hungry, CAPACITY_REASONS)
    wait_event(stage, second[0])
    assert conditions(stage, second) == {AS_CREATED}
    assert autoscalers_see(stage) == {*hungry}
    assert condition(stage, hungry[0])["lastTransitionTime"] == since, "it was false all the time"
    wait_written(muster, len(hungry))
    stage.nodes(3, cpu="4", prefix="added")
    stage.wait_phase(hungry)
    assert {condition(stage, name)["status"] for name in hungry} == {"True"}
    assert autoscalers_see(stage) == set()
    assert written(muster) == len(hungry), "a start costs nothing"
    stage.finish(first)
    stage.wait_phase(second)


@pytest.mark.gates
def test_a_gated_pod_requests_no_more_nodes_once_its_queue_blocks_it(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    stage.queue("team")
    stage.nodes(1, cpu="4")
    stage.wait_phase(stage.pods("filler", 1, cpu="3"))
    gang = stage.gang("a", 2, cpu="2", queue="team", gated=True)
    wait_conditions(stage, gang, CAPACITY_REASONS)
    stage.api.patch(QUEUES, "team", {"spec": {"capability": {"cpu": "1"}}})
    stage.wait_reason("a", "NeverFits")
    wait_conditions(stage, gang, AS_CREATED)
    stage.api.patch(QUEUES, "team", {"spec": {"capability": {"cpu": "9"}}})
    wait_conditions(stage, gang, CAPACITY_REASONS)
    wait_written(muster, 3 * len(gang))


def test_after_a_restart_nothing_is_written_that_is_written_already(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    stage.nodes(1, cpu="4")
    stage.wait_phase(stage.pods("filler", 1, cpu="3"))
    before = stage.gang("before", 2, cpu="2", gated=True)
    wait_conditions(stage, before, CAPACITY_REASONS)
    versions = [stage.pod(name)["metadata"]["resourceVersion"] for name in before]
    muster.restart(hard=True)
    after = stage.gang("after", 2, cpu="2", gated=True)
    wait_conditions(stage, after, CAPACITY_REASONS)
    wait_written(muster, len(after))
    assert [stage.pod(name)["metadata"]["resourceVersion"] for name in before] == versions


def test_a_write_that_comes_late_does_not_meet_a_pod_that_is_bound(
    stage: Stage, proxy: FaultProxy, muster_behind_proxy: Muster, muster_user: User
) -> None:
    stage.start_scheduler("sidecar-gates.yaml", muster=muster_behind_proxy.address, user=muster_user)
    stage.nodes(1, cpu="4")
    stage.wait_phase(stage.pods("filler", 1, cpu="3"))

    def meanwhile() -> None:
        stage.nodes(1, cpu="4", prefix="added")
        stage.wait_bound(["late-0"])

    late = before_request(meanwhile, "PATCH", "/pods/late-0/status$")
    proxy.inject(late)
    gang = stage.gang("late", 1, cpu="2", gated=True)
    wait_for(late.hit.is_set, what="the condition sent")
    wait_for(lambda: [call.status for call in proxy.calls if call.path.endswith("late-0/status")] == [409])
    stage.wait_phase(gang)
    assert condition(stage, "late-0")["status"] == "True"
    assert written(muster_behind_proxy) == 0


@pytest.mark.muster_flags("--waiting-for-room=hide")
def test_gated_pods_say_nothing_where_that_is_hidden(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    stage.nodes(1, cpu="4")
    stage.wait_phase(stage.pods("filler", 1, cpu="3"))
    gangs = []
    for name in ("a", "b"):  # when b has waited long enough, a has waited longer
        gangs += stage.gang(name, 2, cpu="2", gated=True)
        stage.wait_reason(name, "NoRoom")
        wait_event(stage, f"{name}-0")
    assert conditions(stage, gangs) == {AS_CREATED}
    assert written(muster) == 0


def test_the_condition_of_a_pod_without_a_gate_stays_the_schedulers(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    stage.nodes(1, cpu="4")
    stage.wait_phase(stage.pods("filler", 1, cpu="3"))
    gangs = []
    for name in ("a", "b"):
        gangs += stage.gang(name, 2, cpu="2")
        wait_event(stage, f"{name}-0")
    assert {reason for reason, _ in conditions(stage, gangs)} == {"Unschedulable"}
    assert all(message.startswith("0/1 nodes") for _, message in conditions(stage, gangs))
    assert written(muster) == 0


@pytest.mark.muster_flags("--never-fits=show")
def test_pods_for_which_larger_nodes_may_come_ask_for_those_but_not_if_their_queue_is_too_small(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    stage.queue("small", capability={"cpu": "2"})
    stage.nodes(1, cpu="4")
    queued = stage.gang("queued", 2, cpu="2", queue="small", gated=True)
    large = stage.gang("large", 2, cpu="6", gated=True)
    for name in ("queued", "large"):
        stage.wait_reason(name, "NeverFits")
        wait_event(stage, f"{name}-0")
    wait_for(lambda: autoscalers_see(stage) == {*large}, what="they ask for nodes")
    assert conditions(stage, queued) == {AS_CREATED}
    stage.nodes(2, cpu="8", prefix="large")
    stage.wait_phase(large)
