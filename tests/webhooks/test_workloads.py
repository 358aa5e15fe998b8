"""Warnings about workloads whose pods cannot follow what the object itself says."""

from typing import Any

import pytest

from extender.api.keys import MIN_MEMBER, VOLCANO_MIN_MEMBER
from tests.domain.builders import SCHEDULER
from tests.webhooks.desk import Desk, pod

Json = dict[str, Any]


def workload(kind: str, annotations: Json, scheduler: str = SCHEDULER, queue: str = "", **spec: Any) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "w", "uid": "u", "annotations": annotations},
        "spec": {"replicas": 3, "template": pod(queue, scheduler=scheduler), **spec},
    }


def warnings(obj: Json) -> list[str]:
    answer = Desk().ask("/workloads/validate", obj)
    assert answer["allowed"]
    found: list[str] = answer.get("warnings", [])
    return found


@pytest.mark.parametrize("annotations", [{MIN_MEMBER: "all"}, {MIN_MEMBER: "2"}, {VOLCANO_MIN_MEMBER: "3"}])
@pytest.mark.parametrize("policy", [{}, {"podManagementPolicy": "OrderedReady"}])
def test_a_gang_of_pods_that_are_created_in_turn_is_warned_of(annotations: Json, policy: Json) -> None:
    (found,) = warnings(workload("StatefulSet", annotations, **policy))
    assert "created one after another" in found
    assert "Parallel" in found


@pytest.mark.parametrize(
    "obj",
    [
        workload("StatefulSet", {MIN_MEMBER: "all"}, podManagementPolicy="Parallel"),
        workload("StatefulSet", {MIN_MEMBER: "all"}, replicas=1),
        workload("StatefulSet", {MIN_MEMBER: "1"}),
        workload("StatefulSet", {MIN_MEMBER: "all"}, "default-scheduler"),
        workload("Deployment", {MIN_MEMBER: "all"}),
        {**workload("StatefulSet", {MIN_MEMBER: "all"}), "spec": {"replicas": "x"}},
    ],
)
def test_all_others_are_not(obj: Json) -> None:
    assert warnings(obj) == []
