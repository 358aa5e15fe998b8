"""Autoscalers are asked for no more nodes than queues may use, next to a real scheduler and controllers."""

from typing import Any

import pytest

from tests.e2e.harness import objects
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import DEPLOYMENTS, PODS
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for
from tests.e2e.test_pod_conditions import autoscalers_see, condition

pytestmark = [pytest.mark.view, pytest.mark.usefixtures("job_rights")]


def full(stage: Stage) -> None:
    """Create one node, filled by a pod of another queue."""
    stage.nodes(1, cpu="2")
    stage.wait_phase(stage.gang("filler", 1, cpu="2", queue="default"))


def wait_said(stage: Stage, pods: int) -> None:
    """Wait until so many waiting pods have the reason in their condition."""

    def said() -> bool:
        names = [pod["metadata"]["name"] for pod in stage.api.items(PODS, stage.namespace)]
        reasons = [condition(stage, name).get("reason") for name in names]
        return sum(reason in ("Unschedulable", "NoRoom", "QueueCeiling") for reason in reasons) == pods

    wait_for(said, what=f"{pods} pods say why they wait")


@pytest.mark.parametrize("by", ["capability", "limits", "parent"])
def test_groups_request_nodes_within_the_limits_of_their_queue(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, by: str
) -> None:
    """Case 4710 of Volcano."""
    ceiling: dict[str, Any] = {"limits": {"pods": 2}} if by == "limits" else {"capability": {"cpu": "4"}}
    if by == "parent":
        stage.queue("dept", **ceiling)
        stage.queue("team", parent="dept")
    else:
        stage.queue("team", **ceiling)
    full(stage)
    for number in range(10):
        stage.gang(f"g{number}", 1, cpu="2", queue="team")
    wait_said(stage, 10)
    assert autoscalers_see(stage) == {"g0-0", "g1-0"}


def test_pods_of_a_deployment_request_nodes_within_the_limits_of_their_queue(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    stage.queue("team", capability={"cpu": "4"})
    full(stage)
    stage.start_controller_manager()
    pod = objects.pod("", namespace=stage.namespace, queue="team", cpu="2", labels={"app": "web"})
    meta = {key: pod["metadata"][key] for key in ("labels", "annotations")}
    spec = {
        "replicas": 10,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": meta, "spec": pod["spec"]},
    }
    named = {"name": "web", "namespace": stage.namespace}
    stage.api.create(
        DEPLOYMENTS, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": named, "spec": spec}
    )
    wait_said(stage, 10)
    assert len(autoscalers_see(stage)) == 2


def test_executors_of_a_running_application_request_what_its_queue_may_use(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Case 4710 of Volcano: the pool of the executors grows from zero."""
    stage.queue("team", capability={"cpu": "6"})
    stage.nodes(1, prefix="driver", cpu="2", labels={"pool": "drivers"})
    stage.group("spark", 1, queue="team")
    stage.wait_phase(stage.pods("driver", 1, group="spark", cpu="2", nodeSelector={"pool": "drivers"}))
    stage.nodes(1, prefix="executor", cpu="2", labels={"pool": "executors"})
    stage.wait_phase(stage.pods("exec", 1, group="spark", cpu="2", nodeSelector={"pool": "executors"}))
    stage.pods("exec", 4, first=1, group="spark", cpu="2", nodeSelector={"pool": "executors"})
    wait_said(stage, 4)
    assert autoscalers_see(stage) == {"exec-1"}


def test_a_gang_larger_than_the_cluster_asks_for_nodes(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Case 3976 of Volcano."""
    stage.nodes(1, cpu="2")
    gang = stage.gang("g", 3, cpu="2")
    wait_for(lambda: autoscalers_see(stage) == set(gang), what="all three ask for nodes")
