"""Number of pods of a job that start together, by its kind and by annotations."""

from typing import Any

from msgspec.structs import replace

from extender.api import keys
from extender.api.workloads.gangs import Defaults, MadePods, gang_of, gang_of_replicas, gang_size_of
from extender.api.workloads.pod_sets import pod_sets
from extender.api.workloads.shape import Json
from tests.api.job_files import put, row_of, waiting
from tests.rows import each_of

KUBEFLOW = {
    "pytorchjob": 3,
    "tfjob": 6,
    "xgboostjob": 3,
    "paddlejob": 2,
    "jaxjob": 2,
    "mpijob": 3,
    "mpijob-v1": 3,
}
WHOLE = KUBEFLOW | {"jobset": 9, "raycluster": 5, "rayjob": 5}


def gang(obj: Json) -> MadePods:
    return gang_of(
        row_of(obj), obj, {part.role: part.count for part in pod_sets(obj) if not part.starts_later}
    )


def members(obj: Json, waits: bool = False) -> int:
    return gang_size_of(gang(obj), "", Defaults(), waits).members


@each_of(*WHOLE.items())
def test_pods_that_work_together_start_together(name: str, pods: int) -> None:
    assert members(waiting(name)) == members(waiting(name), waits=True) == pods


def job(**spec: Any) -> Json:
    return {**waiting("job"), "spec": {**waiting("job")["spec"], **spec}}


@each_of(
    ({"parallelism": 3, "completions": 3, "completionMode": "Indexed"}, 3),
    ({"parallelism": None, "completions": 1, "completionMode": "Indexed"}, 1),
    ({"parallelism": 2, "completions": 3, "completionMode": "Indexed"}, 1),
    ({"parallelism": 3, "completions": 3, "completionMode": "NonIndexed"}, 1),
    ({"parallelism": 3, "completions": None}, 1),
)
def test_a_job_is_a_gang_if_each_pod_has_its_index_and_all_run_at_once(
    spec: dict[str, Any], together: int
) -> None:
    assert members(job(**spec)) == together


def test_a_suspended_job_waits_for_the_capacity_of_all_its_pods() -> None:
    assert members(job(parallelism=3, completions=3), waits=True) == 3


@each_of(
    ("sparkapplication", {}, 1, 3),  # the driver asks for the executors once it runs
    ("mpijob", {"launcherCreationPolicy": "WaitForWorkersReady"}, 2, 3),
    ("jobset", {"startupPolicy": {"startupPolicyOrder": "InOrder"}}, 1, 9),
    ("leaderworkerset", {}, 3, 6),
    ("leaderworkerset", {"startupPolicy": "LeaderReady"}, 1, 6),
)
def test_pods_created_only_after_others_run_are_not_part_of_the_gang(
    name: str, change: dict[str, Any], at_once: int, pods: int
) -> None:
    obj = waiting(name)
    obj = put(obj, ("spec",), {**obj["spec"], **change})
    assert (members(obj), gang(obj).pods) == (at_once, pods)


def test_dependent_jobs_of_a_job_set_are_not_part_of_the_gang() -> None:
    obj = waiting("jobset")
    driver, workers = obj["spec"]["replicatedJobs"]
    after = {**workers, "dependsOn": [{"name": driver["name"], "status": "Ready"}]}
    obj = put(obj, ("spec", "replicatedJobs"), [driver, after])
    assert (members(obj), members(obj, waits=True)) == (1, 9)


def test_the_minimum_of_an_autoscaled_ray_cluster_is_part_of_the_gang() -> None:
    obj = put(waiting("raycluster"), ("spec", "enableInTreeAutoscaling"), True)
    (workers,) = obj["spec"]["workerGroupSpecs"]
    assert members(obj) == 1 + workers["minReplicas"] * workers["numOfHosts"] < gang(obj).pods


# ---- annotations

EIGHT = MadePods(pods=8, at_once=8)
TRAINING = replace(EIGHT, is_together=True)
NOTHING = Defaults()


@each_of(
    (EIGHT, "", NOTHING, False, 1),
    (TRAINING, "", NOTHING, False, 8),
    (EIGHT, "", NOTHING, True, 8),
    (None, "", NOTHING, False, 1),
    (replace(EIGHT, requested="all"), "", NOTHING, False, 8),
    (replace(TRAINING, requested="1"), "", NOTHING, False, 1),
    (replace(TRAINING, requested="6"), "3", Defaults("2", "1"), False, 6),
    (replace(TRAINING, requested="6"), "", NOTHING, True, 6),
    (TRAINING, "3", Defaults("2", "1"), False, 3),
    (TRAINING, "", Defaults("2", "1"), False, 2),
    (TRAINING, "", Defaults("", "1"), False, 1),
    (EIGHT, "", Defaults("all"), False, 8),
    (EIGHT, "", Defaults("99"), False, 8),
    (None, "", Defaults("all", "4"), False, 1),
    (None, "4", NOTHING, False, 4),
    (replace(EIGHT, volcano=2), "", Defaults("all"), False, 2),
    (replace(EIGHT, volcano=20), "", NOTHING, False, 20),
    (replace(EIGHT, volcano=2, requested="4"), "", NOTHING, False, 4),
    (replace(EIGHT, volcano=2), "3", NOTHING, False, 3),
    (replace(EIGHT, volcano=2), "", NOTHING, True, 8),
    (MadePods(pods=3, at_once=1, is_together=True, requested="all"), "", NOTHING, False, 1),
    (MadePods(pods=3, at_once=1, is_together=True, requested="2"), "", NOTHING, False, 1),
    (MadePods(pods=3, at_once=1, is_together=True), "", NOTHING, True, 3),
    (MadePods(pods=0, at_once=0, is_together=True), "", NOTHING, False, 1),
)
def test_the_first_object_with_the_annotation_decides(
    given: MadePods | None, template: str, defaults: Defaults, waits: bool, expected: int
) -> None:
    assert gang_size_of(given, template, defaults, waits) == (expected, "")


@each_of(
    ("some", "invalid value 'some': must be all, or a whole number from 1"),
    ("0", "invalid value '0': "),
    ("-1", "invalid value '-1'"),
    ("²", "invalid value '²'"),
    ("9" * 100, "must be all"),
    ("9", "invalid value 9: it makes 8 at once"),
)
def test_an_impossible_gang_is_reported(text: str, words: str) -> None:
    found = gang_size_of(replace(TRAINING, requested=text), "", NOTHING, waits=False)
    assert found.fault.startswith(f"annotation {keys.MIN_MEMBER}: ")
    assert words in found.fault
    assert found.members == 8


def test_the_message_names_the_object_with_the_annotation() -> None:
    assert "of its namespace: invalid value 'x'" in gang_size_of(EIGHT, "", Defaults("x"), waits=False).fault
    assert "of its queue: invalid value 'x'" in gang_size_of(EIGHT, "", Defaults("", "x"), waits=False).fault
    assert "write a number" in gang_size_of(None, "all", NOTHING, waits=False).fault


# ---- controllers whose number of pods changes while they run

OURS, VOLCANOS = keys.MIN_MEMBER, keys.VOLCANO_MIN_MEMBER


@each_of(
    ({OURS: "all"}, "", 3, 3),
    ({OURS: "all"}, "", 1, 1),  # a new revision in a rolling update
    ({OURS: "all"}, "", 0, 1),  # an old revision
    ({OURS: "2"}, "", 3, 2),
    ({OURS: "2"}, "", 1, 1),
    ({OURS: "2"}, "", 0, 1),
    ({VOLCANOS: "2"}, "", 3, 2),
    ({VOLCANOS: "2"}, "", 1, 1),
    ({VOLCANOS: "2"}, "", None, 2),  # of a Job or a DaemonSet
    ({}, "2", 1, 1),
    ({}, "all", 3, 3),
    ({}, "", 3, 1),
)
def test_a_number_above_the_replicas_means_all_of_them(
    asked: dict[str, str], template: str, replicas: int | None, members: int
) -> None:
    assert gang_size_of(gang_of_replicas(asked, replicas, ""), template, NOTHING, waits=False) == (
        members,
        "",
    )


@each_of(
    ({OURS: "all"}, 3, NOTHING, 1, True),
    ({OURS: "2"}, 3, NOTHING, 1, True),
    ({VOLCANOS: "2"}, 3, NOTHING, 1, True),
    ({OURS: "1"}, 3, NOTHING, 1, False),
    ({OURS: "all"}, 1, NOTHING, 1, False),
    ({}, 3, Defaults("all"), 1, False),
)
def test_pods_that_are_created_in_turn_cannot_start_together(
    asked: dict[str, str], replicas: int, defaults: Defaults, members: int, is_fault: bool
) -> None:
    found = gang_size_of(gang_of_replicas(asked, replicas, "OrderedReady"), "", defaults, waits=False)
    assert (found.members, "created one after another" in found.fault) == (members, is_fault)
