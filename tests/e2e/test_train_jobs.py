"""TrainJobs with pods from a runtime: the CRDs and a stand-in for the controller of Kubeflow Trainer.

The real JobSet controller makes the pods.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.harness import manifests, objects
from tests.e2e.harness.access import ADMIN, User
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.jobset import JOB_SET, JOB_SETS
from tests.e2e.harness.releases import Release
from tests.e2e.harness.resources import CRDS, POD_GROUPS, Resource
from tests.e2e.harness.shell import Shell
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

Json = dict[str, Any]
GROUP = "trainer.kubeflow.org"
TRAIN_JOBS = Resource(f"/apis/{GROUP}/v1alpha1", "trainjobs")
RUNTIMES = Resource(f"/apis/{GROUP}/v1alpha1", "clustertrainingruntimes")
KINDS = ("TrainJob", "TrainingRuntime", "ClusterTrainingRuntime")
TORCH = "torch-distributed"
RETENTION = {"v2.1.0": "podTemplateOverrides", "v2.2.0": "runtimePatches"}
STEP = {f"{GROUP}/trainjob-ancestor-step": "trainer"}


@pytest.fixture(params=["v2.1.0"])
def release(request: pytest.FixtureRequest, cluster: ControlPlane) -> Iterator[str]:
    """Yield a release of the Trainer, with its kinds served, and the rights to them."""
    trainer = Release(f"github.com/kubeflow/trainer/v2@{request.param}", "manifests/base/crds")
    crds = [trainer.crd(GROUP, kind) for kind in KINDS]
    rights = manifests.apply(cluster.admin, *(f"jobs/{kinds}/rbac.yaml" for kinds in ("trainer", "batch")))
    for crd in crds:  # a stand-in of this kind may have been left by other tests
        _remove_crd(cluster, crd)
    manifests.install(cluster.admin, crds)
    yield request.param
    for crd in crds:
        _remove_crd(cluster, crd)
    manifests.remove(cluster.admin, rights)


def _remove_crd(cluster: ControlPlane, crd: Json) -> None:
    name = crd["metadata"]["name"]
    if cluster.admin.find(CRDS, name):
        cluster.admin.delete(CRDS, name)
        wait_for(lambda: cluster.admin.find(CRDS, name) is None, what=f"{name} gone")


def runtime(nodes: int) -> Json:
    """Return a runtime as in kubeflow/trainer v2.1.0, manifests/base/runtimes/torch_distributed.yaml."""
    spec = objects.pod("", namespace="", cpu="1", restartPolicy="Never")["spec"]
    spec["containers"][0]["name"] = "node"
    template = {"metadata": {"labels": STEP}, "spec": {"template": {"spec": spec}}}
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": TORCH},
        "spec": {
            "mlPolicy": {"numNodes": nodes, "torch": {}},
            "template": {"spec": {"replicatedJobs": [{"name": "node", "template": template}]}},
        },
    }


def create_train_job(stage: Stage, **spec: Any) -> str:
    """Create a TrainJob and return the name of its PodGroup."""
    job = {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "TrainJob",
        "metadata": {
            "name": "train",
            "namespace": stage.namespace,
            "annotations": {objects.QUEUE_NAME: "default"},
        },
        "spec": {"suspend": True, "runtimeRef": {"name": TORCH}, **spec},
    }
    return f"podgroup-{stage.api.create(TRAIN_JOBS, job)['metadata']['uid']}"


def train_job(stage: Stage) -> Json:
    return stage.api.get(TRAIN_JOBS, "train", stage.namespace)


def wait_admitted(stage: Stage) -> Json:
    wait_for(lambda: not train_job(stage)["spec"]["suspend"], what="the TrainJob is admitted")
    return train_job(stage)


@pytest.mark.parametrize("release", RETENTION, indirect=True)
def test_a_train_job_waits_for_its_runtime_and_then_for_capacity(
    stage: Stage, release: str, muster_user: User
) -> None:
    stage.nodes(2, cpu="2")
    stage.start_muster(user=muster_user)
    unit = create_train_job(stage)
    wait_for(lambda: stage.api.find(POD_GROUPS, unit, stage.namespace), what="its PodGroup")
    stage.wait_reason(unit, "InvalidSpec")
    conditions = stage.pod_group(unit)["status"]["conditions"]
    assert any(f"ClusterTrainingRuntime {TORCH}" in condition["message"] for condition in conditions)

    stage.api.create(RUNTIMES, runtime(nodes=5))
    wait_for(lambda: stage.pod_group(unit)["spec"]["minMember"] == 5, what="its nodes are counted")
    assert stage.pod_group(unit)["spec"]["minResources"]["cpu"] == "5"
    stage.wait_reason(unit, "NoRoom", "NeverFits", "Fragmented")
    described = Shell(stage.cluster, ADMIN, stage.namespace).output("job", "describe", "trainjob/train")
    assert re.search(r"node +5 +cpu 1", described), described
    assert train_job(stage)["spec"]["suspend"]

    stage.api.patch(RUNTIMES, TORCH, {"spec": {"mlPolicy": {"numNodes": 4}}})
    admitted = wait_admitted(stage)["spec"]
    stage.wait_group(unit, phase="Inqueue")
    assert stage.pod_group(unit)["spec"]["minMember"] == 4
    other = next(field for field in RETENTION.values() if field != RETENTION[release])
    assert other not in admitted, "the API server keeps what its release knows"
    assert len(admitted[RETENTION[release]]) == 1
    assert unit in str(admitted[RETENTION[release]])


@pytest.mark.jobset
def test_the_pods_of_a_train_job_are_one_gang(stage: Stage, release: str, muster_user: User) -> None:
    stage.nodes(2, cpu="2")
    stage.start_controller_manager()
    stage.start_operator(JOB_SET)
    muster = stage.start_muster(user=muster_user)
    stage.start_sidecar(muster, user=muster_user)
    filler = stage.pods("filler", 1, cpu="1")
    stage.wait_phase(filler)
    given = runtime(nodes=1)
    stage.api.create(RUNTIMES, given)
    unit = create_train_job(stage, trainer={"numNodes": 4, "resourcesPerNode": {"requests": {"cpu": "1"}}})
    found = stage.wait_group(unit, phase="Pending")
    assert found["spec"]["minMember"] == 4
    assert found["spec"]["minResources"]["cpu"] == "4"
    stage.wait_reason(unit, "NoRoom", "Fragmented")
    _apply_as_the_trainer(stage, given)
    stage.jobs.wait_condition("train-node-0", "Suspended")
    groups = {each["metadata"]["name"] for each in stage.api.items(POD_GROUPS, stage.namespace)}
    assert groups == {unit}, "its JobSet does not wait on its own"

    stage.finish(filler)
    wait_admitted(stage)
    _apply_as_the_trainer(stage, given)
    stage.jobs.wait_pods("train-node-0", 4, "Running")
    stage.wait_group(unit, phase="Running", running=4)


def _apply_as_the_trainer(stage: Stage, given: Json) -> None:
    path = f"{JOB_SETS.path(stage.namespace, 'train')}?fieldManager=trainer&force=true"
    stage.api.request("PATCH", path, _job_set(stage, given), "application/apply-patch+yaml")


def _job_set(stage: Stage, given: Json) -> Json:
    """Return the JobSet by pkg/runtime/framework/plugins/jobset of v2.1.0, also for a suspended TrainJob."""
    job = train_job(stage)
    (node,) = given["spec"]["template"]["spec"]["replicatedJobs"]
    pod = node["template"]["spec"]["template"]
    notes: Json = {}
    for override in job["spec"].get("podTemplateOverrides", ()):
        assert override["targetJobs"] == [{"name": "node"}]
        notes |= override["metadata"]["annotations"]
    numbers = dict.fromkeys(("parallelism", "completions"), job["spec"]["trainer"]["numNodes"])
    spec = {**numbers, "template": {**pod, "metadata": {"annotations": notes}}}
    owner = {"apiVersion": job["apiVersion"], "kind": "TrainJob", "name": "train", "controller": True}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": "train",
            "namespace": stage.namespace,
            "ownerReferences": [{**owner, "uid": job["metadata"]["uid"], "blockOwnerDeletion": True}],
        },
        "spec": {
            "suspend": job["spec"]["suspend"],
            "replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": spec}}],
        },
    }
