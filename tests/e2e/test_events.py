"""Events in `kubectl describe`: few, on the objects that people look at."""

from functools import partial
from typing import Any

import pytest

from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import BUDGETS, EVENTS, NODES, POD_GROUPS
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

Json = dict[str, Any]
NOTED = "kube-muster.io/start-timeouts"


def test_a_waiting_and_then_running_gang_gets_events(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    stage.nodes(2, cpu="2")
    first = stage.gang("a", 4, gated=True)
    stage.wait_phase(first, "Running")
    second = stage.gang("b", 4, gated=True)
    wait_for(lambda: _messages(stage, "PodGroup", "b") == ["NoRoom"], what="the wait reported")
    wait_for(lambda: _messages(stage, "Pod", "b-2") == ["NoRoom"], what="the wait reported to members")
    assert _messages(stage, "Pod", "b-3") == []
    stage.finish(first)
    stage.wait_phase(second, "Running")
    wait_for(lambda: _messages(stage, "PodGroup", "b") == ["NoRoom", "Running"], what="the start reported")
    assert _messages(stage, "PodGroup", "a") == []
    assert [_messages(stage, "Pod", name) for name in first] == [[]] * 4
    (event,) = [event for event in _events(stage, "PodGroup", "b") if event["reason"] == "Running"]
    assert event["involvedObject"]["uid"] == stage.pod_group("b")["metadata"]["uid"]
    assert (event["type"], event["count"]) == ("Normal", 1)


def test_a_wait_that_is_reported_again_is_the_same_event(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    (node,) = stage.nodes(1, cpu="2")
    stage.wait_phase(stage.pods("first", 1, group=None, cpu="2", gated=True), "Running")
    stage.gang("b", 1, cpu="2", gated=True)
    for cpu, counts in (("2", {"NoRoom": 1}), ("1", {"NoRoom": 1, "NeverFits": 1}), ("2", {"NoRoom": 2})):
        stage.api.patch(NODES, node, {"status": {"allocatable": {"cpu": cpu}}}, sub="status")
        wait_for(partial(_counted, stage, "b", counts), what=f"{counts} reported")
    assert _counts(stage, "b") == {"NoRoom": 2, "NeverFits": 1}


@pytest.mark.muster_flags("--bind-deadline", "4s", "--start-backoff", "1s")
def test_a_start_that_is_undone_gets_an_event(stage: Stage, muster: Muster, scheduler: KubeScheduler) -> None:
    stage.nodes(3, cpu="2")
    stage.kubelet.refuse("a-1")
    stage.gang("a", 3, cpu="2", gated=True)
    stage.wait_phase(["a-0", "a-2"], "Gone")
    wait_for(lambda: "Undone" in _messages(stage, "PodGroup", "a"), what="the undoing reported")
    (event,) = [event for event in _events(stage, "PodGroup", "a") if event["reason"] == "Undone"]
    assert event["type"] == "Warning"
    assert event["message"].startswith("evicting 2 bound members: ")
    assert "Undone" not in _messages(stage, "Pod", "a-0")


@pytest.mark.muster_flags("--bind-deadline", "4s", "--start-backoff", "1s")
def test_a_gang_that_is_undone_again_and_again_is_held_until_it_is_resumed(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    stage.nodes(3, cpu="2")
    stage.kubelet.refuse("a-1")
    stage.group("a", 3)
    for undone in ("1", "2", "3"):
        stage.pods("a", 3, group="a", cpu="2", gated=True)
        stage.wait_phase(["a-0", "a-2"], "Gone", timeout=60)
        stage.delete_pods(["a-1"])
        wait_for(partial(_records, stage, undone), what=f"{undone} noted")
    pods = stage.pods("a", 3, group="a", cpu="2", gated=True)
    stage.wait_reason("a", "StartTimedOut")
    muster.restart(hard=True)
    stage.kubelet.refuse_none()
    stage.wait_reason("a", "StartTimedOut")
    assert stage.bound(pods) == {}
    stage.api.patch(POD_GROUPS, "a", {"metadata": {"annotations": {NOTED: None}}}, stage.namespace)
    stage.wait_phase(pods)


def _records(stage: Stage, undone: str) -> bool:
    return (stage.pod_group("a")["metadata"].get("annotations") or {}).get(NOTED) == undone


@pytest.mark.gang_deadline(120)
@pytest.mark.muster_flags("--bind-deadline", "4s", "--start-backoff", "1s")
def test_a_refused_eviction_is_reported_again_within_limits(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """The PodGroup hears of both pods, so it has used up its allowance first."""
    _forbid_disruption(stage, app="guarded")
    stage.nodes(3, cpu="2")
    stage.kubelet.refuse("a-1")
    stage.gang("a", 3, cpu="2", gated=True, labels={"app": "guarded"})
    wait_for(lambda: muster.metric("muster_events_total", outcome="dropped") > 0, what="one too many")
    (of_group,) = _refused(stage, "PodGroup", "a")
    (of_pod,) = _refused(stage, "Pod", "a-0")
    assert of_group["type"] == of_pod["type"] == "Warning"
    assert "disruption budget" in of_group["message"]
    assert of_pod["message"].startswith("a-0 has to be evicted because the start of its group failed, but: ")
    # Ten at once, and one for each half a minute; other Events about the group count as well.
    assert 2 <= of_group["count"] <= sum(_counts(stage, "a").values()) <= 10 + 4
    stage.api.delete(BUDGETS, "guarded", stage.namespace)
    stage.wait_phase(["a-0", "a-2"], "Gone")


def _forbid_disruption(stage: Stage, **labels: str) -> None:
    """Create a budget with the status that its controller, which runs nowhere here, would set."""
    metadata = {"name": "guarded", "namespace": stage.namespace}
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": labels}}
    kind = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
    made = stage.api.create(BUDGETS, {**kind, "metadata": metadata, "spec": spec})
    amounts = dict.fromkeys(("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"), 0)
    status = {**amounts, "observedGeneration": made["metadata"]["generation"]}
    stage.api.patch(BUDGETS, "guarded", {"status": status}, stage.namespace, "status")


def _refused(stage: Stage, kind: str, name: str) -> list[Json]:
    return [event for event in _events(stage, kind, name) if event["reason"] == "EvictionRefused"]


def _events(stage: Stage, kind: str, name: str) -> list[Json]:
    """Return Muster's events about an object."""
    about = f"involvedObject.kind={kind},involvedObject.name={name},source=kube-muster"
    return list(stage.api.items(EVENTS, stage.namespace, fieldSelector=about))


def _messages(stage: Stage, kind: str, name: str) -> list[str]:
    """Return the reasons of the events; they come within one second, so their order says nothing."""
    return sorted(event["reason"] for event in _events(stage, kind, name))


def _counts(stage: Stage, group: str) -> dict[str, int]:
    return {event["reason"]: event["count"] for event in _events(stage, "PodGroup", group)}


def _counted(stage: Stage, group: str, counts: dict[str, int]) -> bool:
    return counts.items() <= _counts(stage, group).items()
