"""Warnings about workloads whose pods cannot follow what the object itself says."""

from itertools import product
from typing import Any

from extender.api.keys import GROUP_ANNOTATION, LOCAL_QUEUE, MIN_MEMBER, QUEUE, VOLCANO_MIN_MEMBER
from extender.api.objects.base import Meta
from extender.api.objects.cluster import Namespace
from tests.domain.builders import NAMESPACE, SCHEDULER
from tests.rows import each_of
from tests.webhooks.desk import Desk, pod

Json = dict[str, Any]


def workload(kind: str, annotations: Json, scheduler: str = SCHEDULER, queue: str = "", **spec: Any) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "w", "uid": "u", "annotations": annotations},
        "spec": {"replicas": 3, "template": pod(queue, scheduler=scheduler), **spec},
    }


def pytorch_job(suspend: bool) -> Json:
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "w", "uid": "u", "annotations": {QUEUE: "q"}},
        "spec": {
            "runPolicy": {"suspend": suspend},
            "pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": pod()}},
        },
    }


def warnings(obj: Json) -> list[str]:
    desk = Desk()
    of_namespace = Meta(name=NAMESPACE, annotations={QUEUE: "of-namespace"})
    desk.ledger.intake.set_namespace(Namespace(of_namespace))
    answer = desk.ask("/workloads/validate", obj)
    assert answer["allowed"]
    found: list[str] = answer.get("warnings", [])
    return found


def labelled(obj: Json, **labels: str) -> Json:
    return {**obj, "metadata": {**obj["metadata"], "labels": labels}}


def workflow(queue: str, pods: Json) -> Json:
    container = {"image": "x", "resources": {"requests": {"cpu": "1"}}}
    spec = {"schedulerName": SCHEDULER, "entrypoint": "a", "podMetadata": {"annotations": pods}}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "w", "uid": "u", "annotations": {QUEUE: queue}},
        "spec": {**spec, "templates": [{"name": "a", "container": container}]},
    }


@each_of(
    workload("Deployment", {QUEUE: "q"}),
    workload("StatefulSet", {QUEUE: "q"}),
    workload("Deployment", {QUEUE: "q"}, queue="other"),
    labelled(workload("Deployment", {}), **{QUEUE: "q"}),
    labelled(workload("Deployment", {}), **{LOCAL_QUEUE: "q"}),
    workflow("q", {}),
    pytorch_job(suspend=False),
)
def test_a_queue_that_only_the_workload_names_is_warned_of(obj: Json) -> None:
    (found,) = warnings(obj)
    assert "invalid value 'q', which its pods do not follow" in found
    assert QUEUE in found or LOCAL_QUEUE in found


@each_of(
    workload("Deployment", {QUEUE: "q"}, queue="q"),
    workload("Deployment", {}, queue="q"),
    workload("Deployment", {QUEUE: "q"}, "default-scheduler"),
    workload("Deployment", {QUEUE: "of-namespace"}),
    workflow("q", {QUEUE: "q"}),
    workflow("q", {GROUP_ANNOTATION: "g"}),
    pytorch_job(suspend=True),  # which waits in it
    {"apiVersion": "example.com/v1", "kind": "Other", "metadata": {"name": "x"}},
)
def test_one_that_its_pods_follow_is_not(obj: Json) -> None:
    assert warnings(obj) == []


@each_of(
    *product(
        [{MIN_MEMBER: "all"}, {MIN_MEMBER: "2"}, {VOLCANO_MIN_MEMBER: "3"}],
        [{}, {"podManagementPolicy": "OrderedReady"}],
    )
)
def test_a_gang_of_pods_that_are_created_in_turn_is_warned_of(annotations: Json, policy: Json) -> None:
    (found,) = warnings(workload("StatefulSet", annotations, **policy))
    assert "created one after another" in found
    assert "Parallel" in found


@each_of(
    workload("StatefulSet", {MIN_MEMBER: "all"}, podManagementPolicy="Parallel"),
    workload("StatefulSet", {MIN_MEMBER: "all"}, replicas=1),
    workload("StatefulSet", {MIN_MEMBER: "1"}),
    workload("StatefulSet", {MIN_MEMBER: "all"}, "default-scheduler"),
    workload("Deployment", {MIN_MEMBER: "all"}),
    {**workload("StatefulSet", {MIN_MEMBER: "all"}), "spec": {"replicas": "x"}},
)
def test_all_others_are_not(obj: Json) -> None:
    assert warnings(obj) == []
