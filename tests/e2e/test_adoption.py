"""Adopted namespaces: pods that name no scheduler get Muster's, by a policy or, before 1.36, a webhook."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.harness import manifests, objects, policy
from tests.e2e.harness.access import User
from tests.e2e.harness.jobs import job
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.policy import WITHOUT_POLICIES
from tests.e2e.harness.resources import DAEMON_SETS, DEPLOYMENTS, JOBS, NAMESPACES, PODS, QUEUES
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.webhooks import POD_WEBHOOK, Port, configured

pytestmark = pytest.mark.usefixtures("job_rights")

DEFAULT, MANAGED = "default-scheduler", "kube-muster.io/managed"
POLICY = "adoption/admission-policy.yaml"
Json = dict[str, Any]


@pytest.fixture(params=["policy", "webhook"])
def muster(stage: Stage, muster_user: User, request: pytest.FixtureRequest) -> Iterator[Muster]:
    """Yield a Muster next to a scheduler, in whose cluster namespaces can be adopted."""
    port = Port()
    if request.param == "policy":
        if stage.cluster.kubernetes in WITHOUT_POLICIES:
            pytest.skip("no MutatingAdmissionPolicy")
        means, flags = manifests.applied(stage.api, POLICY), []
    else:
        means, flags = configured(stage.api, port, POD_WEBHOOK), [*port.flags("self-signed")]
    with means:
        muster = stage.start_muster(*flags, user=muster_user)
        stage.start_sidecar(muster, user=muster_user)
        stage.start_controller_manager()
        yield muster


def _adopt(stage: Stage, queue: str) -> None:
    wanted = {"labels": {MANAGED: "true"}, "annotations": {objects.QUEUE_NAME: queue}}
    stage.api.patch(NAMESPACES, stage.namespace, {"metadata": wanted})
    wait_for(lambda: _scheduler(stage) == "muster", what="the namespace is adopted")


def _scheduler(stage: Stage, **pod: Any) -> str:
    """Return the scheduler with which such a pod would be born."""
    return str(_born(stage, **pod)["schedulerName"])


def _born(stage: Stage, **pod: Any) -> Json:
    """Return the spec with which such a pod would be born."""
    given = {"namespace": stage.namespace, "scheduler": DEFAULT, **pod}
    shown = objects.pod("sample", **given)
    made = stage.api.request("POST", f"{PODS.path(given['namespace'])}?dryRun=All", shown)
    spec: Json = made["spec"]
    return spec


def _scheduler_of_daemon(stage: Stage) -> str:
    """Return the scheduler of a pod that the DaemonSet controller makes; both are gone afterwards."""
    controller = stage.cluster.start_controller_manager(("daemonset-controller",))
    stage.api.create(DAEMON_SETS, _without_scheduler(_of_apps(stage, "DaemonSet", "agent")))

    def pods() -> list[Json]:
        return list(stage.api.items(PODS, stage.namespace, labelSelector="app=agent"))

    try:
        (agent,) = wait_for(pods, what="its pod")
    finally:
        controller.kill()
        stage.api.delete(DAEMON_SETS, "agent", stage.namespace)
    wait_for(lambda: not pods(), what="its pod is collected")
    return str(agent["spec"]["schedulerName"])


def _without_scheduler(workload: Json) -> Json:
    del workload["spec"]["template"]["spec"]["schedulerName"]
    return workload


def _of_apps(stage: Stage, kind: str, name: str, **spec: Any) -> Json:
    template = objects.pod("", namespace=stage.namespace, labels={"app": name}, scheduler=DEFAULT)
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": stage.namespace},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": template["spec"]},
            **spec,
        },
    }


@pytest.mark.usefixtures("muster")
def test_unchanged_manifests_wait_in_the_queue_of_their_namespace(stage: Stage) -> None:
    """Run a Deployment in the capacity of the queue, and a suspended Job whole after it."""
    stage.nodes(2, cpu="8")
    stage.queue("team", capability={"cpu": "2"})
    _adopt(stage, "team")
    stage.api.create(DEPLOYMENTS, _without_scheduler(_of_apps(stage, "Deployment", "web", replicas=2)))
    held = {"cpu": "2", "pods": "2"}
    wait_for(
        lambda: held.items() <= stage.api.get(QUEUES, "team").get("status", {}).get("allocated", {}).items(),
        what="the queue counts the Deployment",
    )
    made = stage.api.create(
        JOBS, _without_scheduler(job("train", namespace=stage.namespace, suspend=True, parallelism=2))
    )
    stage.wait_group(f"podgroup-{made['metadata']['uid']}")
    stage.wait_reason(f"podgroup-{made['metadata']['uid']}", "QueueCeiling")
    stage.api.delete(DEPLOYMENTS, "web", stage.namespace)
    stage.jobs.wait_pods("train", 2, "Running")


@pytest.mark.usefixtures("muster")
def test_excluded_pods_stay_with_the_clusters_scheduler(stage: Stage) -> None:
    stage.nodes(1)
    stage.queue("team")
    assert _scheduler(stage) == DEFAULT, "before it is adopted"
    _adopt(stage, "team")
    assert _scheduler(stage, annotations={MANAGED: "false"}) == DEFAULT
    assert _scheduler(stage, scheduler="other") == "other"
    assert _scheduler(stage, nodeName="n0") == DEFAULT
    assert _scheduler(stage, namespace="kube-system") == DEFAULT
    assert _scheduler_of_daemon(stage) == DEFAULT
    stage.api.patch(NAMESPACES, stage.namespace, {"metadata": {"labels": {MANAGED: None}}})
    wait_for(lambda: _scheduler(stage) == DEFAULT, what="the namespace is released")


def test_adopted_pods_get_the_gate_as_well(stage: Stage) -> None:
    """Add the gate in whichever order the API server applies the policies, which is random."""
    if stage.cluster.kubernetes in WITHOUT_POLICIES:
        pytest.skip("no MutatingAdmissionPolicy")
    with (
        manifests.applied(stage.api, POLICY),
        policy.in_force(stage.api, stage.namespace, "gates/admission-policy.yaml"),
    ):
        _adopt(stage, "team")
        gates = [{"name": objects.GATE}]
        wait_for(lambda: _born(stage).get("schedulingGates") == gates, what="an adopted pod has one gate")
