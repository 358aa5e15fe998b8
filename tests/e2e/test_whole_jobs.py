"""Jobs whose pods work together, without a user's PodGroup, on nodes of 8 GPUs each.

All of a job runs, or none of it; whether its pods are there or it waits suspended.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.harness import manifests, objects
from tests.e2e.harness.access import User
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.jobset import JOB_SET, JOB_SETS, job_set
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.operators import install_kind
from tests.e2e.harness.resources import EVENTS, POD_GROUPS, PODS, Resource
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.webhooks import Port, configured, wait_in_force

Json = dict[str, Any]
GPUS = {"nvidia.com/gpu": "8"}
PYTORCH_JOBS = Resource("/apis/kubeflow.org/v1", "pytorchjobs")
INDEXED_SPEC = {"completionMode": "Indexed"}
MIN_MEMBER = "kube-muster.io/min-member"

pytestmark = [pytest.mark.view, pytest.mark.usefixtures("job_rights")]


@pytest.fixture
def kubeflow(cluster: ControlPlane, stage: Stage) -> Iterator[None]:
    """Install the kind and the rights to change it before Muster looks for them."""
    install_kind(stage.api, training(stage, workers=0))
    with manifests.applied(cluster.admin, "jobs/kubeflow/rbac.yaml"):
        yield


@pytest.fixture
def gpus(stage: Stage, muster: Muster, scheduler: KubeScheduler) -> Stage:
    stage.start_controller_manager()
    stage.nodes(4, **GPUS)
    return stage


def training(stage: Stage, *, workers: int, suspend: bool = False, **annotations: str) -> Json:
    pod = objects.pod("", namespace=stage.namespace, limits=GPUS)
    template = {"metadata": {"annotations": {}}, "spec": pod["spec"]}
    replicas = {
        "Master": {"replicas": 1, "template": template},
        "Worker": {"replicas": workers, "template": template},
    }
    metadata = {"name": "train", "namespace": stage.namespace}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {**metadata, "annotations": {objects.QUEUE_NAME: "default", **annotations}},
        "spec": {"runPolicy": {"suspend": suspend}, "pytorchReplicaSpecs": replicas},
    }


def make_pods(stage: Stage) -> list[str]:
    """Create pods as the training operator does, and return their names."""
    made = stage.api.get(PYTORCH_JOBS, "train", stage.namespace)
    owner = {
        "apiVersion": made["apiVersion"],
        "kind": made["kind"],
        "name": "train",
        "uid": made["metadata"]["uid"],
    }
    names = []
    for role, replica in made["spec"]["pytorchReplicaSpecs"].items():
        for index in range(replica["replicas"]):
            names.append(f"train-{role.lower()}-{index}")
            meta = {
                "name": names[-1],
                "namespace": stage.namespace,
                "ownerReferences": [{**owner, "controller": True}],
            }
            template = replica["template"]
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                **template,
                "metadata": {**template["metadata"], **meta},
            }
            stage.api.create(PODS, pod)
    return names


def stays_out(stage: Stage, group: str, pods: list[str]) -> None:
    wait_for(lambda: stage.api.find(POD_GROUPS, group, stage.namespace), what=f"the group {group}")
    stage.wait_reason(group, "NeverFits", "NoRoom", "Fragmented")
    assert stage.bound(pods) == {}


def test_a_pytorch_job_of_twice_the_gpus_waits_and_then_runs_whole(kubeflow: None, gpus: Stage) -> None:
    uid = gpus.api.create(PYTORCH_JOBS, training(gpus, workers=7))["metadata"]["uid"]
    pods = make_pods(gpus)
    stays_out(gpus, f"podgroup-{uid}", pods)
    assert gpus.pod_group(f"podgroup-{uid}")["spec"]["minMember"] == 8
    gpus.nodes(4, prefix="more", **GPUS)
    gpus.wait_phase(pods)


def test_a_suspended_pytorch_job_runs_whole(kubeflow: None, gpus: Stage) -> None:
    uid = gpus.api.create(PYTORCH_JOBS, training(gpus, workers=7, suspend=True))["metadata"]["uid"]
    stays_out(gpus, f"podgroup-{uid}", [])
    gpus.nodes(4, prefix="more", **GPUS)
    wait_for(lambda: not is_suspended(gpus), what="the job is admitted")
    gpus.wait_phase(make_pods(gpus))


@pytest.mark.parametrize("suspend", [False, True])
def test_an_indexed_job_waits_and_then_runs_whole(gpus: Stage, suspend: bool) -> None:
    uid = gpus.job(
        "ranks",
        parallelism=8,
        completions=8,
        suspend=suspend,
        queue="default",
        limits=GPUS,
        more=INDEXED_SPEC,
    )["metadata"]["uid"]
    pods = gpus.jobs.wait_pods("ranks", 0 if suspend else 8)
    stays_out(gpus, f"podgroup-{uid}", pods)
    gpus.nodes(4, prefix="more", **GPUS)
    gpus.jobs.wait_pods("ranks", 8, "Running")


def test_a_plain_job_starts_pod_by_pod_unless_it_asks_for_a_gang(gpus: Stage) -> None:
    gpus.job("plain", parallelism=8, completions=8, limits=GPUS)
    gpus.jobs.wait_pods("plain", 4, "Running")
    gpus.jobs.delete("plain")
    gpus.jobs.wait_pods("plain", 0)
    uid = gpus.job("whole", parallelism=8, limits=GPUS, annotations={MIN_MEMBER: "all"})["metadata"]["uid"]
    stays_out(gpus, f"podgroup-{uid}", gpus.jobs.wait_pods("whole", 8))


@pytest.mark.jobset
def test_the_jobs_of_a_job_set_run_together(stage: Stage, muster_user: User) -> None:
    stage.nodes(4, **GPUS)
    stage.start_controller_manager()
    stage.start_operator(JOB_SET)
    stage.start_sidecar(stage.start_muster(user=muster_user, view=True), user=muster_user)
    made = job_set(
        "train", namespace=stage.namespace, replicas=2, parallelism=4, queue="default", limits=GPUS
    )
    uid = stage.api.create(JOB_SETS, made)["metadata"]["uid"]
    pods = [pod for number in range(2) for pod in stage.jobs.wait_pods(f"train-workers-{number}", 4)]
    stays_out(stage, f"podgroup-{uid}", pods)
    stage.nodes(4, prefix="more", **GPUS)
    stage.wait_phase(pods)


def test_a_job_whose_queue_is_mistyped_says_so_and_goes_once_it_is_there(
    kubeflow: None, stage: Stage, muster_user: User
) -> None:
    """Report the mistake where the webhooks review the PodGroup that Muster makes of the job."""
    port, named = Port(), {objects.QUEUE_NAME: "mistyped"}
    stage.nodes(2, **GPUS)
    with configured(stage.api, port):
        muster = stage.start_muster(*port.flags("self-signed"), user=muster_user, view=True)
        wait_in_force(stage.api)
        stage.start_sidecar(muster, user=muster_user)
        made = stage.api.create(PYTORCH_JOBS, training(stage, workers=1, suspend=True, **named))
        group = f"podgroup-{made['metadata']['uid']}"
        wait_for(lambda: stage.api.find(POD_GROUPS, group, stage.namespace), what="its group")
        stage.wait_reason(group, "QueueNotFound")
        wait_for(lambda: "QueueNotFound" in reported(stage, "train"), what="its event")
        stage.queue("mistyped")
        wait_for(lambda: not is_suspended(stage), what="the job is admitted")


def reported(stage: Stage, job: str) -> set[str]:
    """Return the reasons of the events of a job."""
    return {
        each["reason"]
        for each in stage.api.items(EVENTS, stage.namespace)
        if each["involvedObject"]["name"] == job
    }


def is_suspended(stage: Stage) -> bool:
    found = stage.api.get(PYTORCH_JOBS, "train", stage.namespace)
    return bool(found["spec"]["runPolicy"]["suspend"])
