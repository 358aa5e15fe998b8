"""Warnings about workloads whose pods cannot start as the object says."""

from itertools import product
from typing import Any

from extender.api.keys import MIN_MEMBER, VOLCANO_MIN_MEMBER
from tests.domain.builders import SCHEDULER
from tests.rows import each_of
from tests.webhooks.bench import Bench, pod

Json = dict[str, Any]


def workload(kind: str, annotations: Json, scheduler: str = SCHEDULER, **spec: Any) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "w", "uid": "u", "annotations": annotations},
        "spec": {"replicas": 3, "template": pod(scheduler=scheduler), **spec},
    }


def warnings(obj: Json) -> list[str]:
    bench = Bench()
    answer = bench.ask("/workloads/validate", obj)
    assert answer["allowed"]
    found: list[str] = answer.get("warnings", [])
    return found


@each_of(
    *product(
        [{MIN_MEMBER: "all"}, {MIN_MEMBER: "2"}, {VOLCANO_MIN_MEMBER: "3"}],
        [{}, {"podManagementPolicy": "OrderedReady"}],
    )
)
def test_a_gang_of_pods_that_are_created_in_turn_warns(annotations: Json, policy: Json) -> None:
    (found,) = warnings(workload("StatefulSet", annotations, **policy))
    assert "Parallel" in found


@each_of(
    workload("StatefulSet", {MIN_MEMBER: "all"}, podManagementPolicy="Parallel"),
    workload("StatefulSet", {MIN_MEMBER: "all"}, replicas=1),
    workload("StatefulSet", {MIN_MEMBER: "1"}),
    workload("StatefulSet", {MIN_MEMBER: "all"}, "default-scheduler"),
    workload("Deployment", {MIN_MEMBER: "all"}),
    {**workload("StatefulSet", {MIN_MEMBER: "all"}), "spec": {"replicas": "x"}},
)
def test_callers_without_the_certificate_are_not_served(obj: Json) -> None:
    assert warnings(obj) == []
