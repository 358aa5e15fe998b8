"""Objects as people write them: which pods they become, and how those are named, labelled and owned."""

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from extender.api.workloads.table import WORKLOADS
from extender.apimachinery.kinds import POD_GROUPS, PODS, Json
from extender.apimachinery.service import Service
from extender.apimachinery.store import Store
from extender.files.creation import Creation
from extender.files.manifests import Manifests, load
from tests.rows import each_of

FOLDER = Path(__file__).parent / "workloads"
TAIL = "-[a-z0-9]{5}"  # the random letters of a name
HASH = "-[a-z0-9]{10}"  # the hash of a template
SPEC = "{spec: {restartPolicy: Never, containers: [{name: c, image: x}]}}"


def created(*paths: Path, create_namespaces: bool = False) -> tuple[Creation, Manifests]:
    found = load(paths, create_namespaces)
    creation = Creation(Service(Store(), random.Random(7)))
    creation.create(found.objects)
    assert not creation.faults
    return creation, found


def pods_of(creation: Creation) -> list[Json]:
    return [obj for obj, _ in creation.objects if obj["kind"] == PODS.name]


def owner_of(obj: Json) -> Json:
    (owner,) = obj["metadata"]["ownerReferences"]
    assert owner["controller"] is True
    return dict(owner)


PODS_OF = {
    "job": [f"pi{TAIL}"] * 2,
    "indexed-job": [f"indexed-{index}{TAIL}" for index in range(3)],
    "cronjob": [f"hello{HASH}{TAIL}"],
    "deployment": [f"nginx{HASH}{TAIL}"] * 2,
    "statefulset": ["web-5", "web-6"],
    "replicaset": [f"frontend{TAIL}"],
    "jobset": [
        f"js-driver-0-0{TAIL}",
        *(f"js-workers-{job}-{index}{TAIL}" for job in (0, 1) for index in (0, 1)),
    ],
    "leaderworkerset": ["lws-0", "lws-1", "lws-0-1", "lws-0-2", "lws-1-1", "lws-1-2"],
    "raycluster": [
        f"rc-head{TAIL}",
        f"rc-small-worker{TAIL}",
        f"rc-small-worker{TAIL}",
        *[f"rc-tpu-worker{TAIL}"] * 2,
    ],
    "raycluster-volcano": [f"rc-head{TAIL}", f"rc-worker-worker{TAIL}", f"rc-worker-worker{TAIL}"],
    "rayjob": [f"sample{TAIL}-head{TAIL}", f"sample{TAIL}-small-worker{TAIL}"],
    "pytorchjob": ["simple-master-0", "simple-worker-0", "simple-worker-1"],
    "tfjob": ["tf-chief-0", "tf-ps-0"],
    "mpijob": ["pi-worker-0", "pi-worker-1", f"pi-launcher{TAIL}"],
    "mpijob-v1": ["mnist-worker-0", "mnist-launcher"],
    "sparkapplication": ["spark-pi-driver", f"spark-pi{HASH}-exec-1", f"spark-pi{HASH}-exec-2"],
    "spark-volcano": ["spark-pi-driver", f"spark-pi{HASH}-exec-1"],
    "volcano-job": ["test-job-ps-0", "test-job-ps-1", "test-job-default1-0", "test-job-default1-1"],
    "workflow": [f"dag{TAIL}-echo{TAIL}"] * 3,
}


@each_of(*PODS_OF)
def test_the_names_of_pods(name: str) -> None:
    names = [pod["metadata"]["name"] for pod in pods_of(created(FOLDER / f"{name}.yaml")[0])]
    assert len(names) == len(PODS_OF[name])
    for found, pattern in zip(names, PODS_OF[name], strict=True):
        assert re.fullmatch(pattern, found)


def test_each_file_is_checked() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(PODS_OF)


JOB, OWNER_KINDS = "batch/v1 Job", {
    "job": {"batch/v1 Job"},
    "cronjob": {"batch/v1 Job"},
    "deployment": {"apps/v1 ReplicaSet"},
    "jobset": {"batch/v1 Job"},
    "leaderworkerset": {"apps/v1 StatefulSet"},
    "rayjob": {"ray.io/v1 RayCluster"},
    "pytorchjob": {"kubeflow.org/v1 PyTorchJob"},
    "mpijob": {"kubeflow.org/v2beta1 MPIJob", "batch/v1 Job"},
    "sparkapplication": {"sparkoperator.k8s.io/v1beta2 SparkApplication", "v1 Pod"},
    "workflow": {"argoproj.io/v1alpha1 Workflow"},
}  # fmt: skip


@each_of(*OWNER_KINDS)
def test_pods_are_owned_by_their_controllers(name: str) -> None:
    owners = [owner_of(pod) for pod in pods_of(created(FOLDER / f"{name}.yaml")[0])]
    assert {f"{owner['apiVersion']} {owner['kind']}" for owner in owners} == OWNER_KINDS[name]
    assert all(owner["uid"] for owner in owners)


LABELS = {
    "job": {"job-name": "pi", "batch.kubernetes.io/job-name": "pi"},
    "indexed-job": {"batch.kubernetes.io/job-completion-index": "2"},
    "statefulset": {"apps.kubernetes.io/pod-index": "6", "statefulset.kubernetes.io/pod-name": "web-6"},
    "jobset": {
        "batch.kubernetes.io/job-completion-index": "1",
        "job-name": "js-workers-1",
        "jobset.sigs.k8s.io/global-replicas": "3",
        "jobset.sigs.k8s.io/job-global-index": "2",
        "jobset.sigs.k8s.io/job-index": "1",
        "jobset.sigs.k8s.io/jobset-name": "js",
        "jobset.sigs.k8s.io/replicatedjob-name": "workers",
        "jobset.sigs.k8s.io/replicatedjob-replicas": "2",
    },
    "leaderworkerset": {
        "leaderworkerset.sigs.k8s.io/group-index": "1",
        "leaderworkerset.sigs.k8s.io/name": "lws",
        "leaderworkerset.sigs.k8s.io/worker-index": "2",
    },
    "raycluster": {"ray.io/cluster": "rc", "ray.io/node-type": "worker", "ray.io/group": "tpu"},
    "pytorchjob": {
        "training.kubeflow.org/job-name": "simple",
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/replica-index": "1",
        "training.kubeflow.org/replica-type": "worker",
    },
    "mpijob": {"training.kubeflow.org/job-role": "launcher", "job-name": "pi-launcher"},
    "sparkapplication": {"spark-role": "executor", "sparkoperator.k8s.io/app-name": "spark-pi"},
    "volcano-job": {"volcano.sh/job-name": "test-job", "volcano.sh/task-spec": "default1"},
    "workflow": {"workflows.argoproj.io/completed": "false", "team": "research"},
}  # fmt: skip


@each_of(*LABELS)
def test_the_last_pod_has_the_labels_of_its_controller(name: str) -> None:
    labels = pods_of(created(FOLDER / f"{name}.yaml")[0])[-1]["metadata"]["labels"]
    assert LABELS[name].items() <= labels.items()


def test_a_deployment_makes_a_replica_set_of_its_template_and_annotations() -> None:
    creation, _ = created(FOLDER / "deployment.yaml")
    deployment, replica_set, first, second = (obj for obj, _ in creation.objects)
    assert owner_of(replica_set)["uid"] == deployment["metadata"]["uid"]
    assert owner_of(first) == owner_of(second) | {"uid": replica_set["metadata"]["uid"]}
    suffix = replica_set["metadata"]["labels"]["pod-template-hash"]
    assert replica_set["metadata"]["name"] == f"nginx-{suffix}"
    assert replica_set["metadata"]["annotations"] == {"scheduling.volcano.sh/group-min-member": "2"}
    assert first["metadata"]["labels"] == {"app": "nginx", "pod-template-hash": suffix}


GROUPS = {
    "volcano-job": ("test-job-.+", {"minMember": 3, "queue": "default"}),
    "raycluster-volcano": ("ray-rc-pg", {"minMember": 3, "queue": "kuberay-test-queue"}),
    "spark-volcano": ("spark-spark-pi-pg", {"minMember": 1, "queue": "spark"}),
}


@each_of(*GROUPS)
def test_jobs_of_volcano_and_objects_that_ask_for_it_have_their_group(name: str) -> None:
    creation, _ = created(FOLDER / f"{name}.yaml")
    (group,) = (obj for obj, _ in creation.objects if obj["kind"] == POD_GROUPS.name)
    pattern, spec = GROUPS[name]
    assert re.fullmatch(pattern, group["metadata"]["name"])
    assert group["spec"] == spec
    for pod in pods_of(creation):
        assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == group["metadata"]["name"]
        assert pod["spec"]["schedulerName"] == "volcano"


def test_cores_and_memory_of_spark_become_requests() -> None:
    driver, executor, _ = pods_of(created(FOLDER / "sparkapplication.yaml")[0])
    assert driver["metadata"]["labels"]["version"] == "4.0.0"
    requests = [pod["spec"]["containers"][0]["resources"]["requests"] for pod in (driver, executor)]
    assert requests == [{"cpu": "1", "memory": "896Mi"}, {"cpu": "1", "memory": "9011Mi"}]


# ---- numbers and reports


def written(folder: Path, kind: str, spec: str, meta: str = "name: j") -> Path:
    path = folder / "object.yaml"
    path.write_text(f"apiVersion: {kind}\nkind: {kind and KINDS[kind]}\nmetadata: {{{meta}}}\nspec: {spec}\n")
    return path


KINDS = {"batch/v1": "Job", "apps/v1": "StatefulSet", "ray.io/v1": "RayCluster"}


@each_of(
    ("", 1),
    ("parallelism: 3, ", 3),
    ("completions: 3, ", 1),
    ("parallelism: 5, completions: 3, ", 3),
    ("parallelism: 0, ", 0),
    ("suspend: true, ", 0),
)
def test_a_job_makes_as_many_pods_as_run_at_once(spec: str, count: int, *, tmp_path: Path) -> None:
    creation, _ = created(written(tmp_path, "batch/v1", f"{{{spec}template: {SPEC}}}"))
    assert len(pods_of(creation)) == count


def notes(path: Path) -> Iterator[str]:
    for record in created(path)[1].notes:
        file, line, message = record.split(":", 2)
        assert Path(file) == path
        yield f"{line}:{message}"


@each_of(
    ("cronjob", '2: CronJob "hello": one run of it is made, as if it were due now'),
    ("workflow", '2: Workflow "dag-": only the pods that it begins with are made'),
)
def test_differences_from_a_real_cluster_are_named(name: str, message: str) -> None:
    assert list(notes(FOLDER / f"{name}.yaml")) == [message]


@each_of(("suspend: true", []), ("parallelism: 0", ['1: Job "j": asks for no pods']))
def test_a_job_without_pods_says_why_unless_it_is_suspended(
    spec: str, message: list[str], *, tmp_path: Path
) -> None:
    path = written(tmp_path, "batch/v1", f"{{{spec}, template: {SPEC}}}")
    assert list(notes(path)) == message


def test_how_long_pods_run_may_stand_on_the_workload(tmp_path: Path) -> None:
    spec = f"{{parallelism: 1, template: {SPEC}}}"
    meta = 'name: j, annotations: {sim.kube-muster.io/run-seconds: "5", other: x}'
    (pod,) = pods_of(created(written(tmp_path, "batch/v1", spec, meta))[0])
    assert pod["metadata"]["annotations"] == {"sim.kube-muster.io/run-seconds": "5"}


def test_kinds_that_make_pods_name_them() -> None:
    """Each row leads to pods, over kinds that are in the table, too."""
    for kind in WORKLOADS.values():
        made: list[Any] = [offspring.kind for offspring in kind.offspring]
        assert ("v1", "Pod") in made or any(each in WORKLOADS for each in made)
