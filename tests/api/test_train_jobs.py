"""Pods-to-be of TrainJobs, as the controller of Kubeflow Trainer makes them of a runtime.

Sources: pkg/runtime/core/trainingruntime.go and pkg/runtime/framework/plugins (jobset, plainml, torch, mpi,
volcano and coscheduling) of kubeflow/trainer v2.1.0, and v2.3.0 where it says so.
"""

import contextlib
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.api.keys import GROUP_ANNOTATION
from extender.api.workloads.children import SHAPE_ERRORS
from extender.api.workloads.kubeflow import TRAIN_JOB
from extender.api.workloads.pod_sets import JobPodSet, pod_sets
from extender.api.workloads.shape import (
    Json,
    RuntimeName,
    runtime_named_by,
    value_at,
    with_runtime,
    with_spec,
)
from tests.api.job_files import put, waiting
from tests.rows import each_of

RUNTIMES = Path(__file__).parent / "runtimes"
TORCH, MPI, TUNE = "torch-distributed", "deepspeed-distributed", "torchtune"
NODE = ("template", "spec", "replicatedJobs", "0")


def runtime(name: str) -> Json:
    spec: Json = yaml.safe_load((RUNTIMES / f"{name}.yaml").read_text())["spec"]
    return spec


def train_job(**trainer: Any) -> Json:
    return with_spec(waiting("trainjob"), trainer=trainer)


def sets(job: Json, spec: Json) -> list[JobPodSet]:
    return pod_sets(with_runtime(job, spec))


def counts(job: Json, spec: Json) -> dict[str, int]:
    return {each.role: each.count for each in sets(job, spec)}


def resources(each: JobPodSet) -> Any:
    return each.template["spec"]["containers"][0].get("resources")


def test_fields_of_a_train_job_override_its_runtime() -> None:
    """Requests are merged by resource since v2.3.0; before, those of the job took the place of all."""
    (nodes,) = sets(waiting("trainjob"), runtime(TORCH))
    assert (nodes.role, nodes.count) == ("node", 4)
    assert resources(nodes) == {"requests": {"cpu": "3", "memory": "1Gi"}}
    assert nodes.template["spec"]["schedulerName"] == "muster"
    assert nodes.template["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] == "torch"


def test_fields_that_a_train_job_omits_come_from_its_runtime() -> None:
    (nodes,) = sets(train_job(), runtime(TORCH))
    assert (nodes.count, resources(nodes)["requests"]["cpu"]) == (2, "1")
    with pytest.raises(ValueError, match=r"spec\.trainer\.numNodes: missing"):
        pod_sets(train_job())


def test_a_missing_runtime_is_named() -> None:
    with pytest.raises(ValueError, match="there is no ClusterTrainingRuntime torch-distributed"):
        pod_sets(with_runtime(waiting("trainjob"), None))


@each_of(
    (None, True, {"launcher": 1, "node": 1}),
    (1, True, {"launcher": 1, "node": 1}),
    (5, True, {"launcher": 1, "node": 4}),
    (5, False, {"launcher": 1, "node": 5}),
)
def test_the_nodes_of_mpi_are_the_job_of_this_name_and_the_launcher_if_it_is_one_of_them(
    nodes: int | None, is_node: bool, expected: dict[str, int]
) -> None:
    spec = runtime(MPI) if is_node else put(runtime(MPI), ("mlPolicy", "mpi", "runLauncherAsNode"), False)
    assert counts(train_job(numNodes=nodes), spec) == expected


def test_the_launcher_and_the_nodes_of_mpi_get_the_resources_of_nodes() -> None:
    requested = {"requests": {"cpu": "2"}}
    assert [resources(each) for each in sets(train_job(resourcesPerNode=requested), runtime(MPI))] == [
        requested
    ] * 2


def test_several_replicas_of_the_trainer_are_one() -> None:
    assert counts(train_job(numNodes=3), put(runtime(TORCH), (*NODE, "replicas"), 7)) == {"node": 3}


def test_other_jobs_have_as_many_pods_as_they_say_and_one_at_least() -> None:
    spec = runtime(TUNE)
    spec["template"]["spec"]["replicatedJobs"][1]["template"]["spec"]["parallelism"] = 3
    assert counts(train_job(numNodes=2), spec) == {
        "dataset-initializer": 1,
        "model-initializer": 3,
        "node": 2,
    }


def test_nodes_come_after_the_initializers_have_ended() -> None:
    job = train_job(numNodes=2)
    assert [each.role for each in sets(job, runtime(TUNE)) if not each.starts_later] == [
        "dataset-initializer",
        "model-initializer",
    ]
    ended = [{"name": f"{each}-initializer", "succeeded": 1} for each in ("dataset", "model")]
    left = sets({**job, "status": {"jobsStatus": ended}}, runtime(TUNE))
    assert [(each.role, each.count, each.starts_later) for each in left] == [("node", 2, False)]


# ---- what the TrainJob changes of its runtime


GPU, FAST = {"nvidia.com/gpu.product": "A100"}, {"key": "fast", "operator": "Exists"}
ON_GPU = {"nodeSelector": GPU, "tolerations": [FAST], "containers": [{"name": "node", "env": []}]}
TARGETS = {"targetJobs": [{"name": "node"}, {"name": "unknown"}]}
POD = {"metadata": {"annotations": {"note": "x"}}, "spec": ON_GPU}
OF_NODE = {"name": "node", "template": {"spec": {"template": POD}}}
PATCH = {"template": {"spec": {"replicatedJobs": [OF_NODE]}}}


@each_of(  # pkg/apis/trainer/v1alpha1/trainjob_types.go
    ("podSpecOverrides", {**TARGETS, **ON_GPU}, None),  # v2.0.1
    ("podTemplateOverrides", {**TARGETS, **POD}, "x"),  # v2.1.0
    ("runtimePatches", {"manager": "a.example/b", "trainingRuntimeSpec": PATCH}, "x"),  # v2.2.0
)
def test_changes_of_the_runtime_by_field(field: str, value: Json, record: str | None) -> None:
    job = with_spec(waiting("trainjob"), **{field: [value]})
    (nodes,) = sets(job, runtime(TORCH))
    spec = nodes.template["spec"]
    assert (spec["nodeSelector"], spec["tolerations"], spec["schedulerName"]) == (GPU, [FAST], "muster")
    assert [each["name"] for each in spec["containers"]] == ["node"]
    assert resources(nodes) == {"requests": {"cpu": "3", "memory": "1Gi"}}
    assert value_at(nodes.template, ("metadata", "annotations", "note")) == record


def test_later_changes_come_on_top_of_earlier_ones() -> None:
    both = [{**TARGETS, "spec": {"nodeSelector": {"zone": zone, zone: "x"}}} for zone in ("a", "b")]
    (nodes,) = sets(with_spec(waiting("trainjob"), podTemplateOverrides=both), runtime(TORCH))
    assert nodes.template["spec"]["nodeSelector"] == {"zone": "b", "a": "x", "b": "x"}


# ---- the group of its pods


def test_a_runtime_may_have_groups_made_by_somebody_else() -> None:
    for policy, field, key in (
        ({"volcano": {}}, "annotations", GROUP_ANNOTATION),
        ({"coscheduling": {"scheduleTimeoutSeconds": 9}}, "labels", "scheduling.x-k8s.io/pod-group"),
    ):
        (nodes,) = sets(waiting("trainjob"), {**runtime(TORCH), "podGroupPolicy": policy})
        assert nodes.template["metadata"][field][key] == "torch"


@each_of(*product(["podTemplateOverrides", "runtimePatches"], [TORCH, MPI, TUNE]))
def test_all_pods_get_an_annotation_by_the_field_that_the_api_server_keeps(reserved: str, name: str) -> None:
    mine = {reserved: [{"manager": "a.example/b", **TARGETS}]}
    job = with_spec(waiting("trainjob"), **mine)
    fields = TRAIN_JOB.annotate(with_runtime(job, runtime(name)), GROUP_ANNOTATION, "g")
    completed = with_runtime(with_spec(job, **{reserved: fields[reserved]}), runtime(name))
    assert {
        value_at(each.template, ("metadata", "annotations", GROUP_ANNOTATION)) for each in pod_sets(completed)
    } == {"g"}
    assert TRAIN_JOB.annotate(completed, GROUP_ANNOTATION, "g") == {}
    assert completed["spec"][reserved][:1] == mine[reserved], "what others wrote stays"
    changed = TRAIN_JOB.annotate(completed, GROUP_ANNOTATION, "other")
    assert len(changed[reserved]) <= 3


# ---- which runtime


@each_of(
    ({"name": "x"}, RuntimeName("ClusterTrainingRuntime", "", "x")),
    ({"name": "x", "kind": "TrainingRuntime"}, RuntimeName("TrainingRuntime", "ours", "x")),
    ({"name": "x", "kind": "Other"}, RuntimeName("Other.trainer.kubeflow.org", "", "x")),
    ({"name": "x", "apiGroup": "a.example"}, RuntimeName("ClusterTrainingRuntime.a.example", "", "x")),
    ({}, RuntimeName("ClusterTrainingRuntime", "", "")),
    ([], RuntimeName("ClusterTrainingRuntime", "", "")),
)
def test_the_runtime_that_a_train_job_names(reference: Any, named: RuntimeName) -> None:
    job = {"metadata": {"namespace": "ours"}, "spec": {"runtimeRef": reference}}
    assert runtime_named_by(TRAIN_JOB, job) == named


@each_of(
    {"mlPolicy": []},
    {"template": []},
    {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": None}]}}},
    {"template": {"spec": {"replicatedJobs": {}}}},
    {"template": {"spec": {"replicatedJobs": [[]]}}},
)
def test_odd_runtimes_are_malformed_or_make_no_pods(spec: Json) -> None:
    with contextlib.suppress(*SHAPE_ERRORS):
        assert sets(train_job(), spec) == []
