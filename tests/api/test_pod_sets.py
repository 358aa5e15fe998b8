"""Pods-to-be of jobs, as sets: what the table of kinds makes of a job one by one, without making it."""

import json
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from extender.api.workloads.children import SHAPE_ERRORS, children
from extender.api.workloads.pod_sets import JobPodSet, pod_sets
from extender.api.workloads.shape import Json
from tests.api.job_files import NAMES, put, resumed, waiting
from tests.rows import each_of

OTHERS = Path(__file__).parents[1] / "sim" / "workloads"
UNSUSPENDED = {name: resumed(waiting(name)) for name in NAMES} | {
    path.name: yaml.load(path.read_text(), yaml.CSafeLoader)
    for path in sorted(OTHERS.glob("*.yaml"))
    if path.stem != "workflow"  # its steps may be of one template: several sets of one name
}
SETS: dict[str, list[tuple[str, int, Any]]] = {
    "job": [("", 3, "1")],
    "jobset": [("driver", 1, "500m"), ("workers", 8, "1")],
    "rayjob": [("head", 1, "1"), ("small-group", 4, "200m")],
    "raycluster": [("head", 1, "1"), ("small-group", 4, "200m")],
    "pytorchjob": [("master", 1, "500m"), ("worker", 2, "1500m")],
    "tfjob": [("chief", 1, "250m"), ("ps", 2, "500m"), ("worker", 3, "1500m")],
    "mpijob": [("worker", 2, "1"), ("launcher", 1, "500m")],
    "mpijob-v1": [("worker", 2, 2), ("launcher", 1, "500m")],
    "xgboostjob": [("master", 1, "500m"), ("worker", 2, "1500m")],
    "paddlejob": [("worker", 2, "1500m")],
    "jaxjob": [("worker", 2, "1500m")],
    "trainjob": [("node", 4, "3")],
    "sparkapplication": [("driver", 1, "1"), ("executor", 2, "2")],
    "leaderworkerset": [("leader", 2, "200m"), ("worker", 4, "100m")],
    "volcanojob": [("mpimaster", 1, "1"), ("mpiworker", 2, "2")],
}


def cpu_of(each: JobPodSet) -> Any:
    return each.template["spec"]["containers"][0]["resources"]["requests"]["cpu"]


@each_of(*NAMES)
def test_the_pods_to_be_of_a_suspended_job(name: str) -> None:
    assert [(each.role, each.count, cpu_of(each)) for each in pod_sets(waiting(name))] == SETS[name]


# ---- as the pods that are made one by one


def pods_of(obj: Json) -> Iterator[Json]:
    if (obj["apiVersion"], obj["kind"]) == ("v1", "Pod"):
        yield obj
    for child in children(obj):
        yield from pods_of(child)


def similar(spec: Json) -> str:
    return json.dumps(spec, sort_keys=True)


def as_template(obj: Json) -> Json:
    meta = obj["metadata"]
    return {"spec": obj["spec"], **{field: meta.get(field) or {} for field in ("labels", "annotations")}}


@each_of(*UNSUSPENDED)
def test_pod_sets_are_the_pods_that_controllers_create(name: str) -> None:
    obj = UNSUSPENDED[name]
    pods = list(pods_of(obj))
    counted = Counter[str]()
    for each in pod_sets(obj):
        counted[similar(each.template["spec"])] += each.count
        assert as_template(each.template) in map(as_template, pods)
    assert counted == Counter(similar(pod["spec"]) for pod in pods)


COUNTS = {
    "job": ("spec", "parallelism"),
    "jobset": ("spec", "replicatedJobs", "1", "replicas"),
    "pytorchjob": ("spec", "pytorchReplicaSpecs", "Worker", "replicas"),
    "raycluster": ("spec", "workerGroupSpecs", "0", "replicas"),
    "rayjob": ("spec", "rayClusterSpec", "workerGroupSpecs", "0", "numOfHosts"),
    "sparkapplication": ("spec", "executor", "instances"),
    "trainjob": ("spec", "trainer", "numNodes"),
    "leaderworkerset": ("spec", "replicas"),
}


@given(st.sampled_from(sorted(COUNTS)), st.one_of(st.none(), st.integers(-3, 12)))
def test_the_counts_of_pod_sets_are_those_that_controllers_create(name: str, count: int | None) -> None:
    try:
        obj = put(resumed(waiting(name)), COUNTS[name], count)
        made = sum(1 for _ in pods_of(obj))
    except ValueError:
        with pytest.raises(ValueError, match="missing"):
            pod_sets(obj)
        return
    assert sum(each.count for each in pod_sets(obj)) == made


# ---- what is still to come


@each_of(
    ({}, 3),
    ({"succeeded": 1}, 3),  # of 5, at most 3 at once
    ({"succeeded": 4}, 1),
    ({"succeeded": 5}, 0),
    ({"succeeded": 1, "failedIndexes": "0,2-3"}, 1),
    ({"succeeded": 9}, 0),
)
def test_a_job_that_ran_before_creates_the_remaining_pods(status: Json, count: int) -> None:
    job = {**waiting("job"), "status": status}
    assert sum(each.count for each in pod_sets(job)) == count


@each_of({"succeeded": "3"}, {"failedIndexes": "x"}, {"failedIndexes": [1]})
def test_a_status_that_cannot_be_read_is_malformed(status: Json) -> None:
    with pytest.raises(SHAPE_ERRORS):
        pod_sets({**waiting("job"), "status": status})


def test_jobs_of_a_set_that_succeeded_are_not_made_again() -> None:
    status = {
        "replicatedJobsStatus": [{"name": "workers", "succeeded": 1}, {"name": "driver", "succeeded": 0}]
    }
    found = pod_sets({**waiting("jobset"), "status": status})
    assert [(each.role, each.count) for each in found] == [("driver", 1), ("workers", 4)]


def test_pods_that_wait_for_the_end_of_others_come_later() -> None:
    job = waiting("jobset")
    driver, workers = job["spec"]["replicatedJobs"]
    ready = {**workers, "name": "parallel", "dependsOn": [{"name": "driver", "status": "Ready"}]}
    after = {**workers, "name": "after", "dependsOn": [{"name": "driver", "status": "Complete"}]}
    last = {**workers, "name": "last", "dependsOn": [{"name": "after", "status": "Ready"}]}
    job["spec"]["replicatedJobs"] = [driver, ready, after, last]
    found = pod_sets(job)
    assert {each.role: each.starts_later for each in found} == {
        "driver": False,
        "parallel": False,
        "after": True,
        "last": True,
    }
    job["status"] = {"replicatedJobsStatus": [{"name": "driver", "succeeded": 1}]}
    assert {each.role: each.starts_later for each in pod_sets(job)} == dict.fromkeys(
        ("parallel", "after", "last"), False
    )


# ---- odd counts and templates

MANY = 10**9


@each_of(
    ("job", 5),  # as many as completions
    ("jobset", 4 * MANY + 1),
    ("pytorchjob", MANY + 1),
    ("raycluster", 5 * 2 + 1),  # maxReplicas
    ("rayjob", 2 * MANY + 1),
    ("sparkapplication", MANY + 1),
    ("trainjob", MANY),
    ("leaderworkerset", 3 * MANY),
)
def test_a_thousand_million_pods_are_only_counted(name: str, count: int) -> None:
    found = pod_sets(put(waiting(name), COUNTS[name], MANY))
    assert sum(each.count for each in found) == count
    assert len(found) == len(SETS[name])


@each_of(*product(COUNTS, ["3", "", 1.0, [], {}, True, 2**31, -(2**70), 1e300]))
def test_an_invalid_count_is_malformed(name: str, count: Any) -> None:
    with pytest.raises(SHAPE_ERRORS):
        pod_sets(put(waiting(name), COUNTS[name], count))


@each_of(*product(sorted({*COUNTS} - {"leaderworkerset"}), [0, -1, -(10**9)]))
def test_a_count_of_zero_makes_no_pod_set(name: str, count: int) -> None:
    found = pod_sets(put(waiting(name), COUNTS[name], count))
    left_out = 0 if name == "raycluster" else 1  # not below minReplicas
    assert len(found) == len(SETS[name]) - left_out
    assert all(each.count > 0 for each in found)


TEMPLATE = ("spec", "template")


@each_of(
    "x",
    [],
    {"spec": {"containers": "x"}},
    {"spec": {"containers": []}},
    {"spec": {"containers": ["x"]}},
    {"spec": None},
    {"metadata": "x", "spec": {"containers": [{}]}},
    {"metadata": {"labels": {"a": 3}}, "spec": {"containers": [{}]}},
    {"spec": {"containers": [{"resources": {"requests": {"cpu": "much"}}}]}},
    {"spec": {"containers": [{"resources": {"requests": {"cpu": "9" * 500}}}]}},
    {"spec": {"containers": [{}], "initContainers": [{"resources": {"requests": {"cpu": "x"}}}]}},
    {"spec": {"containers": [{}], "overhead": {"cpu": "x"}}},
    {"spec": {"containers": [{}], "resources": {"requests": {"memory": "x"}}}},
    {"spec": {"containers": [{}], "affinity": {"podAffinity": 1}}},
    {"spec": {"containers": [{}], "priority": 1e300}},
)
def test_a_template_that_no_pod_can_be_made_of_is_malformed(template: Any) -> None:
    with pytest.raises(SHAPE_ERRORS):
        pod_sets(put(waiting("job"), TEMPLATE, template))


def test_a_template_nested_too_deeply_is_malformed() -> None:
    nested: Any = {}
    for _ in range(5000):
        nested = {"a": nested}
    with pytest.raises(ValueError, match="nested too deeply"):
        pod_sets(put(waiting("job"), (*TEMPLATE, "spec", "more"), nested))


def test_two_sets_of_one_name_are_malformed() -> None:
    job = waiting("jobset")
    first, second = job["spec"]["replicatedJobs"]
    job["spec"]["replicatedJobs"] = [first, {**second, "name": first["name"]}]
    with pytest.raises(ValueError, match="several sets of pods are called 'driver'"):
        pod_sets(job)


def test_a_kind_without_pods_has_no_pod_sets() -> None:
    assert pod_sets({"apiVersion": "v1", "kind": "ConfigMap"}) == []


ODD: tuple[Any, ...] = (None, [], {}, -1, 2**70, 1.5, True, "", "x" * 300, "{x}", [None], [[]], {"a": []})


def places(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ())
    for key, part in inside:
        yield from places(part, (*path, str(key)))


PLACES = [(name, path) for name in NAMES for path in places(waiting(name)) if path]


@given(st.sampled_from(PLACES), st.sampled_from(ODD))
def test_anything_in_any_place_is_malformed_or_sets(place: tuple[str, tuple[str, ...]], value: Any) -> None:
    name, path = place
    try:
        found = pod_sets(put(waiting(name), path, value))
    except SHAPE_ERRORS:
        return
    assert all(each.count > 0 for each in found)
