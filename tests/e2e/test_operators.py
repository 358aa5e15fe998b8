"""Operators that write for Volcano, unchanged: their objects, in their order, on a real kube-scheduler."""

from collections.abc import Iterator

import pytest

from tests.e2e.harness.access import User
from tests.e2e.harness.gating import gating_muster
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.operators import Operator
from tests.e2e.harness.resources import POD_GROUPS, PODS
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for


@pytest.fixture(params=["gated", "ungated"])
def muster(request: pytest.FixtureRequest, stage: Stage, muster_user: User) -> Iterator[Muster]:
    """Yield a Muster where pods are born gated, and where they are not: no operator knows of gates."""
    if request.param == "gated":
        with gating_muster(stage, muster_user) as muster:
            yield muster
    else:
        yield stage.start_muster(user=muster_user)


def test_a_ray_cluster_starts_whole_and_its_autoscaled_worker_gets_its_own_capacity(
    stage: Stage, scheduler: KubeScheduler
) -> None:
    stage.nodes(2, cpu="1")
    stage.queue("kuberay-test-queue", capability={"cpu": "4", "memory": "6Gi"})
    ray = Operator(stage, "kuberay-cluster")
    ray.create("RayCluster")
    (group,) = ray.create("PodGroup")
    *needed, surplus = ray.names("Pod")
    ray.create("Pod", *needed)
    stage.wait_reason(group, "NeverFits", "NoRoom")
    assert (stage.bound(needed), _phase(stage, group)) == ({}, "Pending")
    stage.nodes(1, prefix="more", cpu="1")
    stage.wait_phase(needed)
    _wait_phase(stage, group, "Running")

    ray.create("Pod", surplus)
    ray.update_pod_group(group, minResources={"cpu": "3", "memory": "4Gi"})
    stage.nodes(1, prefix="last", cpu="1")
    stage.wait_phase([surplus])
    assert stage.phases(needed) == {"Running"}


def test_a_ray_cluster_is_deleted_by_its_owner_and_frees_its_capacity(
    stage: Stage, scheduler: KubeScheduler
) -> None:
    stage.nodes(3, cpu="1")
    stage.queue("kuberay-test-queue")
    ray = Operator(stage, "kuberay-cluster")
    for kind in ("RayCluster", "PodGroup", "Pod"):
        ray.create(kind)
    wait_for(lambda: len(stage.bound(ray.names("Pod"))) == 3, what="the cluster stands")
    other = stage.gang("other", 3, cpu="1")
    stage.wait_reason("other", "NoRoom", "QueueShare")
    stage.start_controller_manager()
    ray.delete("RayCluster")
    stage.wait_phase(other)
    (group,) = ray.names("PodGroup")
    wait_for(lambda: stage.api.find(POD_GROUPS, group, stage.namespace) is None, what="the PodGroup is gone")


def test_a_ray_job_is_submitted_by_a_pod_that_the_gang_does_not_count(
    stage: Stage, scheduler: KubeScheduler
) -> None:
    """At its end KubeRay sets minMember to 0, and the workers go."""
    stage.nodes(3, cpu="1")
    stage.queue("kuberay-test-queue")
    ray = Operator(stage, "kuberay-job")
    ray.create("RayJob")
    (group,) = ray.create("PodGroup")
    ray.create("RayCluster")
    *cluster, submitter = ray.names("Pod")
    ray.create("Pod", *cluster)
    stage.wait_phase(cluster)
    ray.create("Pod", submitter)
    stage.wait_phase([submitter])
    stage.finish([submitter])
    stage.delete_pods(cluster)
    ray.update_pod_group(group, minMember=0, minResources={})
    wait_for(lambda: stage.phases(cluster) == {"Gone"}, what="the cluster is gone")
    stage.wait_phase(stage.gang("next", 3, cpu="1"))


def test_a_spark_driver_starts_alone_and_its_executors_follow(stage: Stage, scheduler: KubeScheduler) -> None:
    """Start the executors once there is capacity for all of them, which its minResources asks for."""
    stage.nodes(2, cpu="1")
    stage.queue("spark")
    spark = Operator(stage, "spark-operator")
    spark.create("SparkApplication")
    (group,) = spark.create("PodGroup")
    driver, *executors = spark.names("Pod")
    spark.create("Pod", driver)
    stage.wait_reason(group, "NoRoom", "NeverFits")
    stage.nodes(1, prefix="more", cpu="1")
    stage.wait_phase([driver])
    _wait_phase(stage, group, "Running")
    spark.create("Pod", *executors)
    stage.wait_phase(executors)

    stage.delete_pods(executors)
    stage.finish([driver])
    stage.wait_phase([driver], "Succeeded")
    stage.api.delete(POD_GROUPS, group, stage.namespace)
    stage.wait_phase(stage.gang("next", 3, cpu="1"))


def test_a_pytorch_job_whose_pods_are_made_when_its_group_is_admitted(
    stage: Stage, scheduler: KubeScheduler
) -> None:
    """The training operator makes no pod while the phase is empty or Pending."""
    stage.nodes(2, cpu="1")
    stage.queue("training")
    training = Operator(stage, "training-operator")
    training.create("PyTorchJob")
    (group,) = training.create("PodGroup")
    _wait_phase(stage, group, "Inqueue")
    training.update_pod_group(group, minMember=3)
    replicas = training.create("Pod")
    stage.wait_reason(group, "NeverFits", "NoRoom")
    assert stage.bound(replicas) == {}
    stage.nodes(1, prefix="more", cpu="1")
    stage.wait_phase(replicas)
    _wait_phase(stage, group, "Running")

    lost = replicas[-1:]
    stage.delete_pods(lost)
    wait_for(lambda: stage.phases(lost) == {"Gone"}, what="the lost replica is gone")
    assert _phase(stage, group) not in ("", "Pending")
    training.create("Pod", *lost)
    stage.wait_phase(replicas)


def test_a_train_job_whose_pods_come_before_their_group(stage: Stage, scheduler: KubeScheduler) -> None:
    stage.start_controller_manager()
    stage.nodes(3, cpu="1")
    stage.queue("high-priority-queue")
    trainer = Operator(stage, "trainer")
    trainer.create("TrainJob")
    trainer.apply("JobSet", "trainer")
    trainer.create("Job")
    (job,) = trainer.names("Job")
    pods = wait_for(lambda: _pods_of(stage, job, 4), what="the Job's pods")
    trainer.apply("PodGroup", "trainer")
    (group,) = trainer.names("PodGroup")
    stage.wait_reason(group, "NeverFits", "NoRoom")
    assert stage.bound(pods) == {}
    stage.nodes(1, prefix="more", cpu="1")
    stage.wait_phase(pods)
    _wait_phase(stage, group, "Running")
    trainer.apply("PodGroup", "trainer")
    trainer.delete("TrainJob")
    wait_for(lambda: stage.phases(pods) == {"Gone"}, what="the TrainJob's pods are gone")


def test_the_steps_of_a_workflow_in_their_queue(stage: Stage, scheduler: KubeScheduler) -> None:
    """One alone, then two that need each other."""
    stage.nodes(2, cpu="1")
    stage.queue("argo")
    argo = Operator(stage, "argo-workflows")
    argo.create("Workflow")
    first, *workers = argo.names("Pod")
    argo.create("Pod", first)
    stage.wait_phase([first])
    (group,) = argo.create("PodGroup")
    argo.create("Pod", *workers)
    stage.wait_reason(group, "NoRoom")
    assert stage.bound(workers) == {}
    stage.finish([first])
    stage.wait_phase(workers)
    _wait_phase(stage, group, "Running")


def _phase(stage: Stage, group: str) -> str:
    return str(stage.pod_group(group).get("status", {}).get("phase", ""))


def _wait_phase(stage: Stage, group: str, *phases: str) -> None:
    wait_for(lambda: _phase(stage, group) in phases, what=f"PodGroup {group} {phases}")


def _pods_of(stage: Stage, job: str, count: int) -> list[str]:
    """Return the names of a Job's pods once they are that many."""
    chosen = stage.api.items(PODS, stage.namespace, labelSelector=f"batch.kubernetes.io/job-name={job}")
    return [pod["metadata"]["name"] for pod in chosen] if len(chosen) == count else []
