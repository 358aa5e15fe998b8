"""What Muster has in the place of Kueue's objects: the table that the command is tried with, too."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.domain.queues.kueue import migrated

Json = dict[str, Any]
CASES = yaml.safe_load((Path(__file__).parent / "data" / "migrations.yaml").read_text())


@pytest.mark.parametrize("case", CASES["counterparts"], ids=lambda case: case["name"])
def test_objects_have_counterparts(case: Json) -> None:
    objects = [made.object for made in migrated(case["kueue"]) if made.object]
    assert {f"{obj['kind']}/{obj['metadata']['name']}": obj["spec"] for obj in objects} == case["muster"]


@pytest.mark.parametrize("case", CASES["comments"], ids=lambda case: case["comment"])
def test_what_has_no_counterpart_is_told(case: Json) -> None:
    lines = [line for made in migrated(case["kueue"]) for line in made.comments]
    assert any(line.startswith(case["comment"]) for line in lines), lines


def test_a_priority_class_keeps_its_name_and_value() -> None:
    meta = {"name": "high", "namespace": "team"}  # which the API server would ignore
    head = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "WorkloadPriorityClass"}
    (made,) = migrated([{**head, "metadata": meta, "value": 7}])
    assert made.object is not None
    assert (made.object["metadata"], made.object["value"]) == ({"name": "high"}, 7)


def test_objects_of_others_are_passed_over() -> None:
    assert list(migrated([{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}, {}])) == []
