"""Flavors of a queue on a real kube-scheduler: amounts by the labels of nodes, with fallback."""

from typing import Any

from tests.e2e.harness.resources import NODES, QUEUES
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

KIND = "example.com/lifecycle"
TAINT = {"key": "spot", "value": "yes", "effect": "NoSchedule"}
TOLERATES = [{"key": "spot", "operator": "Exists"}]


def flavor(name: str, **amounts: Any) -> dict[str, Any]:
    return {"name": name, "nodeLabels": {KIND: name}, **amounts}


def cluster(stage: Stage) -> None:
    """Two tainted spot nodes and two others, 4 cpus each; the queue may hold 6 cpus of spot and 4 of the
    others."""
    stage.nodes(2, prefix="spot", cpu="4", labels={KIND: "spot"}, taints=[TAINT])
    stage.nodes(2, prefix="ondemand", cpu="4", labels={KIND: "ondemand"})
    stage.nodes(1, prefix="none", cpu="4")
    spot, ondemand = flavor("spot", capability={"cpu": 6}), flavor("ondemand", capability={"cpu": "4"})
    stage.queue("q", flavors=[spot, ondemand])


def kinds(stage: Stage, pods: list[str]) -> set[str]:
    """The prefixes of the nodes that pods are on."""
    return {node.rstrip("0123456789") for node in stage.wait_bound(pods).values()}


def test_flavors_with_fallback(stage: Stage, scheduler: KubeScheduler) -> None:
    """Spot first, then the others; who finds both used up waits and starts on what is given back."""
    cluster(stage)
    first = stage.gang("first", 4, queue="q", gated=True, tolerations=TOLERATES)
    assert kinds(stage, first) == {"spot"}
    second = stage.gang("second", 3, queue="q", gated=True, tolerations=TOLERATES)
    assert kinds(stage, second) == {"ondemand"}
    third = stage.gang("third", 3, queue="q", gated=True, tolerations=TOLERATES)
    stage.wait_reason("third", "QueueCeiling")
    conditions = stage.pod_group("third")["status"]["conditions"]
    assert conditions[0]["message"] == (
        "flavor spot: QueueCeiling (cpu: 4 held + 3 asked > 6); "
        "flavor ondemand: QueueCeiling (cpu: 3 held + 3 asked > 4); position 1 in queue q"
    )
    wait_for(
        lambda: (
            {
                each["name"]: each["allocated"]["cpu"]
                for each in stage.api.get(QUEUES, "q")["status"].get("flavors", [])
                if "cpu" in each.get("allocated", {})
            }
            == {"spot": "4", "ondemand": "3"}
        ),
        what="the queue says what it holds of each flavor",
    )
    stage.finish(first)
    assert kinds(stage, third) == {"spot"}


def test_pods_that_do_not_tolerate_a_flavor_take_the_next(stage: Stage, scheduler: KubeScheduler) -> None:
    cluster(stage)
    assert kinds(stage, stage.gang("g", 3, queue="q", gated=True)) == {"ondemand"}
    assert kinds(stage, stage.pods("single", 1, queue="q", gated=True)) == {"ondemand"}


def test_roles_on_flavors_of_their_own(stage: Stage, scheduler: KubeScheduler) -> None:
    """Both fit on spot alone, together they do not: the workers fit nowhere else."""
    cluster(stage)
    stage.group("g", 7, queue="q", minTaskMember={"driver": 2, "worker": 5})
    roles = {"driver": 2, "worker": 5}
    pods = {
        role: stage.pods(role, members, group="g", task=role, gated=True, tolerations=TOLERATES)
        for role, members in roles.items()
    }
    assert kinds(stage, pods["worker"]) == {"spot"}
    assert kinds(stage, pods["driver"]) == {"ondemand"}


def test_a_node_whose_label_changes_counts_for_the_other_flavor(
    stage: Stage, scheduler: KubeScheduler
) -> None:
    cluster(stage)
    first = stage.gang("first", 4, queue="q", gated=True)
    assert kinds(stage, first) == {"ondemand"}
    late = stage.gang("late", 2, queue="q", gated=True)
    stage.wait_reason("late", "QueueCeiling", "NeverFits")
    for node in set(stage.bound(first).values()):
        stage.api.patch(NODES, node, {"metadata": {"labels": {KIND: "spot"}}})
    assert kinds(stage, late) == {"ondemand"}
