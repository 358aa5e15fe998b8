"""Preemption in the embedded loop: victims and the checks before, by the stock scheduler's rules."""

from typing import Any

import pytest

from extender.apimachinery.kinds import EVENTS, PODS, PRIORITY_CLASSES
from extender.sim.kubelets import Kubelets
from extender.sim.scheduler.nodes import (
    Nodes,
    Rejection,
    best_candidate,
    feasible,
    ineligibility,
    no_candidate,
    victims_by_candidate,
)
from tests.e2e.harness import objects
from tests.e2e.harness.waiting import wait_for
from tests.rows import each_of
from tests.sim.requests import Json, pod
from tests.sim.test_scheduler import Loop, loop

__all__ = ["loop"]


def placed(name: str, cpu: str, priority: int, started: str = "2026-01-01T00:00:00Z", **more: Any) -> Json:
    new_pod = pod(name, cpu=cpu, priority=priority, **more)
    new_pod["metadata"]["uid"] = name
    new_pod["status"] = {"startTime": started}
    return new_pod


def cluster(**standing: list[Json]) -> Nodes:
    """Return nodes of 4 cpus by name, with the pods on them."""
    known = Nodes()
    for name, pods in standing.items():
        known.set_node(objects.node(name))
        for each in pods:
            known.place(each, name)
    return known


def chosen(known: Nodes, wanted: Json) -> tuple[str | None, list[str], str]:
    """Return the node to clear, the victims, and why there are none."""
    standing = known.pod_info(wanted)
    rejections = feasible(known, standing, known.names())[1]
    if why := ineligibility(known, wanted, standing, rejections):
        return None, [], why
    found, against = victims_by_candidate(known, standing, rejections)
    outcome = best_candidate(found) if found else no_candidate(len(known.names()), against)
    return outcome.node, [victim.uid for victim in outcome.victims], outcome.message


def test_the_fewest_and_least_important_pods_are_preempted() -> None:
    known = cluster(n0=[placed("low", "1", 1), placed("mid", "2", 2), placed("high", "1", 9)])
    assert chosen(known, placed("new", "1", 5))[:2] == ("n0", ["low"])
    assert chosen(known, placed("new", "3", 5))[:2] == ("n0", ["mid", "low"])
    assert {each.uid for each in known.pods_on("n0")} == {"low", "mid", "high"}, "nothing has happened yet"


@each_of(
    ([("a", "4", 3)], [("b", "4", 2)], "n1"),  # the lowest top priority
    ([("a", "2", 2), ("b", "2", 2)], [("c", "4", 2)], "n1"),  # the lowest sum, so the fewest
    ([("a", "2", 2), ("b", "2", 1)], [("c", "2", 2), ("d", "2", 0)], "n1"),
)
def test_the_node_with_the_least_important_victims_is_cleared(
    n0: list[tuple[str, str, int]], n1: list[tuple[str, str, int]], node: str
) -> None:
    known = cluster(n0=[placed(*each) for each in n0], n1=[placed(*each) for each in n1])
    assert chosen(known, placed("new", "4", 5))[0] == node


def test_among_equals_the_last_started_is_preempted() -> None:
    old, young = (placed(f"s{n}", "4", 1, started=f"2026-01-0{n}T00:00:00Z") for n in (1, 2))
    assert chosen(cluster(n0=[old], n1=[young]), placed("new", "4", 5))[0] == "n1"
    assert chosen(cluster(n0=[young], n1=[old]), placed("new", "4", 5))[0] == "n0"


def test_no_pod_is_preempted_for_an_equal_or_in_vain() -> None:
    known = cluster(n0=[placed("equal", "4", 5)], n1=[placed("low", "1", 1), placed("high", "3", 9)])
    known.set_node(objects.node("n2", taints=[{"key": "k", "value": "", "effect": "NoSchedule"}]))
    node, victims, message = chosen(known, placed("new", "3", 5))
    assert (node, victims) == ("", []), "a nomination would be withdrawn"
    assert message == (
        "preemption: 0/3 nodes are available: 1 Insufficient cpu,"
        " 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."
    )


def test_pods_that_never_preempt_or_wait_for_victims_already() -> None:
    never = placed("new", "4", 5, preemptionPolicy="Never")
    assert "preemptionPolicy=Never" in chosen(cluster(n0=[placed("low", "4", 1)]), never)[2]
    going = placed("low", "4", 1)
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    going["status"]["conditions"] = [
        {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    ]
    waiting = placed("new", "4", 5)
    waiting["status"]["nominatedNodeName"] = "n0"
    assert "terminating pod" in chosen(cluster(n0=[going]), waiting)[2]


def test_a_lasting_fault_is_one_that_others_cannot_cure() -> None:
    known = cluster(n0=[placed("low", "2", 1)])
    assert feasible(known, known.pod_info(placed("a", "5", 5)), ["n0"])[1]["n0"].is_unresolvable
    assert feasible(known, known.pod_info(placed("b", "3", 5)), ["n0"])[1]["n0"] == Rejection(
        ("Insufficient cpu",)
    )


# ---- the loop


@pytest.fixture
def crowded(loop: Loop) -> Loop:
    """Fill n0 and n1 with pods of no importance; `urgent` is a class."""
    loop.nodes(2, cpu="2")
    loop.service.create(PRIORITY_CLASSES, "", {"metadata": {"name": "urgent"}, "value": 1000})
    for number in range(2):
        loop.service.create(PODS, "", pod(f"low-{number}", cpu="2", nodeName=f"n{number}"))
    return loop


def test_the_extender_is_asked_the_victims_go_and_the_pod_follows(crowded: Loop) -> None:
    crowded.answers["preempt"] = lambda args: {
        "NodeNameToMetaVictims": {"n1": args["NodeNameToMetaVictims"]["n1"]}
    }
    kubelets = Kubelets(crowded.service)
    kubelets.start()
    crowded.ours("a", cpu="2", priorityClassName="urgent")
    wait_for(lambda: crowded.node_of("a") == "n1")
    kubelets.stop()
    verbs = [(verb, nodes) for verb, _, nodes in crowded.calls]
    assert verbs == [("preempt", ["n0", "n1"]), ("filter", ["n1"]), ("bind", "n1")]
    assert crowded.service.store.get(PODS, "default", "low-1") is None
    assert crowded.service.store.get(PODS, "default", "low-0") is not None
    assert {"Preempted"} == {
        each["reason"]
        for each in crowded.service.store.all(EVENTS, "default")
        if each["action"] == "Preempting"
    }


def test_an_extender_that_leaves_no_candidate_saves_all(crowded: Loop) -> None:
    crowded.answers["preempt"] = lambda _: {"NodeNameToMetaVictims": {}}
    crowded.ours("a", cpu="2", priorityClassName="urgent")
    wait_for(
        lambda: (
            "no candidate node" in crowded.condition_of("a").get("message", "") and not crowded.scheduler.busy
        )
    )
    assert crowded.count("preempt") == 1, "its own condition is no reason to ask again"
    assert "nominatedNodeName" not in crowded.found("a")["status"]
    assert len(crowded.service.store.all(PODS, "default")) == 2


def test_without_a_candidate_node_the_extender_is_not_called(crowded: Loop) -> None:
    crowded.ours("a", cpu="2")
    crowded.refused("a")
    assert crowded.calls == []


def test_scheduling_and_preemption_of_a_pod_are_recorded_as_events(loop: Loop) -> None:
    loop.ours("a", cpu="2")
    wait_for(lambda: loop.condition_of("a").get("message") == "no nodes available to schedule pods")
    loop.nodes(1)
    wait_for(lambda: len(loop.service.store.all(EVENTS, "kube-system")) == 2)
    events = {each["reason"]: each for each in loop.service.store.all(EVENTS, "kube-system")}
    assert events["FailedScheduling"]["type"] == "Warning"
    assert events["Scheduled"]["message"] == "Successfully assigned kube-system/a to n0"
    assert events["Scheduled"]["involvedObject"]["uid"] == loop.found("a")["metadata"]["uid"]
