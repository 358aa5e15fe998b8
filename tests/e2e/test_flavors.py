"""Flavors of a queue on a real kube-scheduler: amounts by the labels of nodes, with fallback."""

from typing import Any

from tests.e2e.harness.resources import NODES, QUEUES, RESOURCE_FLAVORS
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

KIND = "example.com/lifecycle"
TAINT = {"key": "spot", "value": "yes", "effect": "NoSchedule"}
TOLERATES = [{"key": "spot", "operator": "Exists"}]


def flavor(name: str, **amounts: Any) -> dict[str, Any]:
    return {"name": name, "nodeLabels": {KIND: name}, **amounts}


def cluster(stage: Stage) -> None:
    """Create two tainted spot nodes and two others, 4 cpus each.

    The queue may hold 6 cpus of spot and 4 of the others.
    """
    stage.nodes(2, prefix="spot", cpu="4", labels={KIND: "spot"}, taints=[TAINT])
    stage.nodes(2, prefix="ondemand", cpu="4", labels={KIND: "ondemand"})
    stage.nodes(1, prefix="none", cpu="4")
    spot, ondemand = flavor("spot", capability={"cpu": 6}), flavor("ondemand", capability={"cpu": "4"})
    stage.queue("q", flavors=[spot, ondemand])


def kinds(stage: Stage, pods: list[str]) -> set[str]:
    """Return the prefixes of the nodes that pods are on."""
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


def test_roles_on_their_own_flavors(stage: Stage, scheduler: KubeScheduler) -> None:
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


GPU = "nvidia.com/gpu"


def h100(**amounts: Any) -> dict[str, Any]:
    return flavor("h100", **{name: {GPU: amount} for name, amount in amounts.items()})


def gpus_of(stage: Stage, queue: str, what: str) -> str | None:
    """Return the H100 that a queue holds, deserves or borrows, by its status."""
    flavors = stage.api.get(QUEUES, queue).get("status", {}).get("flavors", [])
    found: str | None = next((flavor[what][GPU] for flavor in flavors if GPU in flavor.get(what, {})), None)
    return found


def test_gpus_of_a_flavor_are_reclaimed(stage: Stage, scheduler: KubeScheduler) -> None:
    """Y holds 16 of 16 H100, of which x deserves 8; GPUs of another kind are free. x reclaims after 5 s."""
    stage.nodes(2, prefix="h", cpu="64", labels={KIND: "h100"}, **{GPU: "8"})
    stage.nodes(2, prefix="a", cpu="64", labels={KIND: "a100"}, **{GPU: "8"})
    stage.queue("x", flavors=[h100(deserved=8)], preemption={"after": "5s"})
    stage.queue("y", flavors=[h100()])
    for n in range(4):
        stage.wait_bound(stage.gang(f"y{n}", 4, queue="y", gated=True, limits={GPU: "1"}))
    claimant = stage.gang("x0", 8, queue="x", gated=True, limits={GPU: "1"})
    wait_for(lambda: gpus_of(stage, "y", "borrowed") == "8", what="y is shown as borrowing 8 H100")
    assert kinds(stage, claimant) == {"h"}
    # Each status is written in its turn.
    wait_for(lambda: gpus_of(stage, "x", "allocated") == "8", what="x is shown as holding 8 H100")
    wait_for(lambda: gpus_of(stage, "y", "allocated") == "8", what="y is shown as holding 8 H100")


def test_a_parents_flavor_binds_those_below(stage: Stage, scheduler: KubeScheduler) -> None:
    """They would start 8 pods; of the parent's 2 GPUs they start 2."""
    stage.nodes(1, prefix="h", cpu="64", labels={KIND: "h100"}, **{GPU: "8"})
    stage.queue("p", flavors=[h100(capability=2)])
    for name in ("a", "b"):
        stage.queue(name, parent="p", flavors=[h100()])
    pods = [
        pod
        for n in range(4)
        for queue in ("a", "b")
        for pod in stage.pods(f"{queue}{n}", 1, queue=queue, gated=True, limits={GPU: "1"})
    ]
    wait_for(lambda: gpus_of(stage, "p", "allocated") == "2", what="p holds 2 H100")
    wait_for(lambda: len(stage.bound(pods)) == 2, what="two of eight are bound")
    stage.finish(list(stage.bound(pods)))
    wait_for(lambda: len(stage.bound(pods)) == 4, what="two more are bound")


def resource_flavor(stage: Stage, name: str, **spec: Any) -> None:
    head = {"apiVersion": "kube-muster.io/v1alpha1", "kind": "ResourceFlavor", "metadata": {"name": name}}
    stage.api.create(RESOURCE_FLAVORS, {**head, "spec": {"nodeLabels": {KIND: name}, **spec}})


def test_resource_flavors_of_two_kinds_of_gpus(stage: Stage, scheduler: KubeScheduler) -> None:
    """Give tainted H100 first to pods that tolerate them, and A100 to others.

    A deleted flavor stops no running pod; new ones wait for it.
    """
    taint = {"key": "gpu", "value": "h100", "effect": "NoSchedule"}
    tolerates: dict[str, Any] = {"tolerations": [{"key": "gpu", "operator": "Exists"}], "limits": {GPU: "1"}}
    stage.nodes(2, prefix="h", cpu="64", labels={KIND: "h100"}, taints=[taint], **{GPU: "8"})
    stage.nodes(1, prefix="a", cpu="64", labels={KIND: "a100"}, **{GPU: "8"})
    stage.queue("q", flavors=[{"name": name, "resourceFlavor": name} for name in ("h100", "a100")])
    first = stage.gang("first", 12, queue="q", gated=True, **tolerates)
    stage.wait_reason("first", "InvalidSpec")
    (said,) = [
        condition
        for condition in stage.pod_group("first")["status"]["conditions"]
        if condition["type"] == "Scheduled"
    ]
    assert "flavor h100: InvalidSpec " in said["message"]
    resource_flavor(stage, "h100", nodeTaints=[taint])
    assert kinds(stage, first) == {"h"}
    plain = stage.gang("plain", 4, queue="q", gated=True, limits={GPU: "1"})
    stage.wait_reason("plain", "NeverFits")
    resource_flavor(stage, "a100")
    assert kinds(stage, plain) == {"a"}
    wait_for(lambda: gpus_of(stage, "q", "allocated") == "12", what="q is shown as holding 12 H100")
    stage.api.delete(RESOURCE_FLAVORS, "h100")
    late = stage.gang("late", 6, queue="q", gated=True, **tolerates)
    stage.wait_reason("late", "NoRoom")

    def said_of_q() -> list[tuple[str, str]]:
        conditions = stage.api.get(QUEUES, "q")["status"]["conditions"]
        return [(condition["type"], condition["status"]) for condition in conditions]

    wait_for(lambda: ("FlavorNotFound", "True") in said_of_q(), what="q says that one is missing")
    assert len(stage.bound(first)) == 12
    stage.finish(first)
    resource_flavor(stage, "h100", nodeTaints=[taint])
    assert kinds(stage, late) == {"h"}
