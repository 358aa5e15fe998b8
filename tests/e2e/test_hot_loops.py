"""Refused pods rest: what an extender must never do is to keep a stock scheduler busy with them."""

import time
from typing import Any

import pytest

from tests.e2e.harness import objects
from tests.e2e.harness.cleanup import empty
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import NAMESPACES, POD_GROUPS, PODS
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

Json = dict[str, Any]
NODES, REFUSED = 300, 50
OBSERVED_SECONDS = 8.0  # a rate takes time to measure: the one place where time has to pass
AT_MOST = 3 * REFUSED  # three calls a pod: its first, the one that its own condition causes, and one to spare


@pytest.mark.gates
@pytest.mark.parametrize("every_second", ["2", "4"], ids=["half-full", "half-of-them-full"])
def test_refused_pods_do_not_come_again_and_again(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, every_second: str
) -> None:
    """Limit the retries on 300 nodes of 4 cpus, each with pods of lower priority that take 2 cpus.

    Every second node may have 4: there the scheduler itself has no capacity, and looks for victims.
    """
    low, high = stage.priority("low", 10), stage.priority("high", 1000)
    standing = _standing(stage, low, every_second)
    refused = stage.gang("a", REFUSED, min_member=REFUSED + 1, cpu="2", priorityClassName=high)
    reason = "NotEnoughMembers"
    stage.wait_reason("a", reason)
    wait_for(lambda: all(reason in message for message in _messages(stage, refused)), what="all refused")
    before = _filter_calls(muster)
    time.sleep(OBSERVED_SECONDS)
    calls = _filter_calls(muster)
    rates = f"{before:g} at first, {calls - before:g} in {OBSERVED_SECONDS:g} s"
    print(f"\nfilter calls of {REFUSED} refused pods: {rates}")  # noqa: T201
    assert calls >= REFUSED, "the pods were seen"
    assert calls - before <= AT_MOST
    assert stage.bound(refused) == {}
    assert stage.phases(standing) == {"Running"}, "a refused pod evicts no pod"


def test_a_gang_that_lacks_capacity_evicts_no_pod_and_costs_nothing(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Evict no pod of lower priority: no queue is owed anything, and this one does not preempt."""
    low, high = stage.priority("low", 10), stage.priority("high", 1000)
    stage.queue("q", preemption={"withinQueue": "Never"})
    stage.nodes(3, cpu="4")
    standing = stage.pods("standing", 6, cpu="2", queue="q", priorityClassName=low)
    stage.wait_phase(standing)
    gang = stage.gang("a", 2, cpu="3", queue="q", priorityClassName=high)
    stage.wait_reason("a", "NoRoom")
    wait_for(lambda: all(_messages(stage, gang)), what="the scheduler has tried")
    before = _filter_calls(muster)
    time.sleep(OBSERVED_SECONDS / 2)
    assert _filter_calls(muster) - before <= len(gang)
    assert stage.bound(gang) == {}
    assert stage.phases(standing) == {"Running"}
    stage.finish(standing)
    stage.wait_phase(gang)


def _standing(stage: Stage, priority: str, every_second: str) -> list[str]:
    """Create one pod on each node."""
    names = stage.nodes(NODES, cpu="4")
    made = [
        objects.pod(
            f"standing-{number}",
            namespace=stage.namespace,
            scheduler="nobody",
            cpu=every_second if number % 2 else "2",
            nodeName=name,
            priorityClassName=priority,
        )
        for number, name in enumerate(names)
    ]
    pods = [each["metadata"]["name"] for each in stage.api.create_many(PODS, made)]
    stage.wait_phase(pods)
    return pods


def _messages(stage: Stage, names: list[str]) -> list[str]:
    """Return the scheduler's messages about each of these pods."""
    wanted = set(names)
    pods = [pod for pod in stage.api.items(PODS, stage.namespace) if pod["metadata"]["name"] in wanted]
    return [_condition(pod).get("message", "") for pod in pods]


def _condition(pod: Json) -> Json:
    conditions = pod["status"].get("conditions", [])
    return next((condition for condition in conditions if condition["type"] == "PodScheduled"), {})


def _filter_calls(muster: Muster) -> float:
    return muster.metric("muster_verb_calls_total", verb="filter")


def test_the_terms_of_one_tenant_do_not_hold_up_another(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """120 gangs of three bring 64 anti-affinity terms each, all different, that all select all of them."""
    stage.nodes(40, cpu="4")
    for number in range(120):
        stage.gang(f"g{number}", 3, cpu="10m", labels={"z": "u"}, affinity=_apart(f"g{number}"))
    name = f"{stage.namespace}-other"
    stage.api.create(NAMESPACES, objects.namespace(name))
    for resource in (PODS, POD_GROUPS):  # of callbacks the last one comes first: owners before what they own
        stage.started.callback(empty, stage.api, resource, name)
    other = Stage(stage.cluster, name, stage.kubelet, stage.observer)
    other.wait_phase(other.gang("plain", 3))


def _apart(name: str) -> Json:
    selectors = [
        [
            {"key": f"k{name}-{number}", "operator": "NotIn", "values": [f"v{name}"]},
            {"key": "z", "operator": "In", "values": [name, str(number), "u"]},
        ]
        for number in range(64)
    ]
    terms = [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchExpressions": each}}
        for each in selectors
    ]
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
