"""Volcano Jobs at admission: what is filled in, what is refused, and what may change."""

from graphlib import TopologicalSorter
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from extender.api.objects.volcano import VolcanoJob
from extender.volcano.admission import job_warnings, review_change, review_new, with_defaults
from tests.rows import each_of

Json = dict[str, Any]
FAILED = {"event": "PodFailed", "action": "RestartJob"}
ANY_EVENT_POLICY = {"event": "*", "action": "AbortJob"}
PARTS = {"totalPartitions": 2, "partitionSize": 2}


def job(name: str = "train", **spec: Any) -> VolcanoJob:
    given = {"tasks": [{"name": "a", "replicas": 2}], **spec}
    return msgspec.convert({"metadata": {"name": name}, "spec": given}, VolcanoJob)


def faults(thing: VolcanoJob) -> list[str]:
    return [f"{fault.code} {fault.field}" for fault in review_new(thing)]


def task(**more: Any) -> Json:
    return {"tasks": [{"name": "a", "replicas": 4, **more}]}


@each_of(
    ({}, []),
    ({"tasks": []}, ["JobNotValid spec.tasks"]),
    ({"tasks": [{"name": f"a{n}", "replicas": 1} for n in range(256)]}, []),
    ({"tasks": [{"name": f"a{n}", "replicas": 1} for n in range(257)]}, ["JobNotValid spec.tasks"]),
    (task(replicas=0), []),
    (task(replicas=1_000_000), []),
    (task(minAvailable=4), []),
    (task(minAvailable=5), ["MinAvailableAboveReplicas spec.tasks[0].minAvailable"]),
    (task(name="Upper"), ["JobNotValid spec.tasks[0].name"]),
    (task(name="x" * 64), ["JobNotValid spec.tasks[0].name"]),
    ({"tasks": [{}, {"name": "default0"}]}, ["DuplicateTaskName spec.tasks[1].name"]),
    (task(partitionPolicy=PARTS), []),
    (
        task(partitionPolicy={**PARTS, "totalPartitions": 3}),
        ["JobNotValid spec.tasks[0].partitionPolicy"],
    ),
    (
        task(minAvailable=3, partitionPolicy={**PARTS, "minPartitions": 1}),
        ["JobNotValid spec.tasks[0].partitionPolicy.minPartitions"],
    ),
    (
        task(partitionPolicy={**PARTS, "minPartitions": 3}),
        ["JobNotValid spec.tasks[0].partitionPolicy.minPartitions"],
    ),
    (
        task(
            partitionPolicy={
                **PARTS,
                "networkTopology": {"highestTierAllowed": 0, "highestTierName": "rack"},
            }
        ),
        ["TopologyBothTiers spec.tasks[0].partitionPolicy.networkTopology"],
    ),
    (task(dependsOn={"name": ["a"]}), ["DependsOnInvalid spec.tasks"]),
    (
        {"tasks": [{"name": each, "dependsOn": {"name": [other]}} for each, other in ("ab", "ba")]},
        ["DependsOnInvalid spec.tasks"],
    ),
    (task(dependsOn={"iteration": "all"}), []),
    (task(dependsOn={"iteration": "few"}), ["DependsOnInvalid spec.tasks[0].dependsOn.iteration"]),
    ({"policies": [FAILED, {"exitCode": 137, "action": "AbortJob"}]}, []),
    ({"policies": [{**FAILED, "exitCode": 1}]}, ["PolicyBoth spec.policies[0]"]),
    ({"policies": [{"action": "AbortJob"}]}, ["PolicyNeither spec.policies[0]"]),
    ({"policies": [{**FAILED, "event": "CommandIssued"}]}, ["PolicyInvalidEvent spec.policies[0].event"]),
    ({"policies": [{**FAILED, "action": "SyncJob"}]}, ["PolicyInvalidAction spec.policies[0].action"]),
    ({"policies": [{"exitCode": 3, "action": "Stop"}]}, ["PolicyInvalidAction spec.policies[0].action"]),
    ({"policies": [{**FAILED, "events": ["PodFailed"]}]}, []),  # one policy may say it twice
    ({"policies": [FAILED, FAILED]}, ["DuplicatePolicyEvent spec.policies[1].event"]),
    (task(policies=[FAILED, FAILED]), ["DuplicatePolicyEvent spec.tasks[0].policies[1].event"]),
    ({"policies": [FAILED], **task(policies=[FAILED])}, []),  # a task's come before those of its job
    ({"policies": [ANY_EVENT_POLICY, FAILED]}, ["PolicyAnyExclusive spec.policies"]),
    ({"policies": [ANY_EVENT_POLICY]}, []),
    ({"policies": [{"exitCode": 0}]}, ["PolicyExitCodeZero spec.policies[0].exitCode"]),
    ({"policies": [{**FAILED, "timeout": "1h30m"}]}, []),
    ({"policies": [{**FAILED, "timeout": "soon"}]}, ["JobNotValid spec.policies[0].timeout"]),
    ({"plugins": {"svc": [], "env": []}}, []),
    ({"plugins": {"svc": [], "warp": []}}, ["UnknownJobPlugin spec.plugins"]),
    ({"volumes": [{"mountPath": "/a", "volumeClaimName": "data"}]}, []),
    ({"volumes": [{"mountPath": "/a", "volumeClaim": {}}]}, []),
    ({"volumes": [{"mountPath": "/a"}]}, ["JobNotValid spec.volumes[0]"]),
    (
        {"volumes": [{"mountPath": "/a", "volumeClaimName": "data", "volumeClaim": {}}]},
        ["JobNotValid spec.volumes[0]"],
    ),
    (
        {"volumes": [{"mountPath": "", "volumeClaimName": "No"}]},
        ["JobNotValid spec.volumes[0].mountPath", "JobNotValid spec.volumes[0].volumeClaimName"],
    ),
    (
        {"volumes": [{"mountPath": "/a", "volumeClaim": {}}] * 2},
        ["JobNotValid spec.volumes[1].mountPath"],
    ),
)
def test_a_new_job(spec: Json, expected: list[str]) -> None:
    assert faults(job(**spec)) == expected


@each_of(
    ("x" * 63, {}, []),
    ("x" * 64, {}, ["JobNotValid metadata.name"]),
    ("a.b", {}, []),
    ("a.b", {"plugins": {"mpi": []}}, ["JobNotValid metadata.name"]),  # it implies svc
    ("", {"plugins": {"svc": []}}, []),
    ("x" * 60, {"plugins": {"svc": []}}, ["JobNotValid spec.tasks[0].name"]),
    ("x" * 59, {"plugins": {"svc": []}}, []),
)
def test_names_are_valid_labels_and_host_names(name: str, spec: Json, expected: list[str]) -> None:
    assert faults(job(name, **spec)) == expected


def test_messages_name_the_allowed_values() -> None:
    (fault,) = review_new(job(policies=[{"event": "PodFailed", "action": "Explode"}]))
    assert str(fault) == (
        "spec.policies[0].action: invalid value 'Explode': must be one of AbortJob, RestartJob, RestartTask, "
        "RestartPod, RestartPartition, TerminateJob, CompleteJob, ResumeJob"
    )
    circle = [{"name": name, "dependsOn": {"name": [needed]}} for name, needed in ("ab", "bc", "ca")]
    (fault,) = review_new(job(tasks=circle))
    assert "these tasks wait for one another" in fault.message


def test_a_job_of_many_faults_gets_an_answer_of_bounded_length() -> None:
    many = [{"name": "x" * 1000, "replicas": -1, "dependsOn": {"name": ["y" * 1000]}}] * 200
    found = review_new(job(tasks=many, policies=[{}] * 1000))
    assert len(found) == 20
    assert sum(len(str(fault)) for fault in found) < 10_000


def test_plugins_without_effect_warn() -> None:
    (warning,) = job_warnings(job(plugins={"mpi": []}))
    assert warning.startswith("spec.plugins: plugin mpi: the job has no task")


@each_of(
    ({}, []),
    ({"minAvailable": 1}, []),
    ({"priorityClassName": "high"}, []),
    ({"tasks": [{"name": "a", "replicas": 5}]}, []),
    ({"tasks": [{"name": "a", "replicas": 5, "minAvailable": 2}]}, []),
    ({"tasks": [{"name": "a", "replicas": 1}]}, ["MinAvailableAboveReplicas spec.minAvailable"]),
    ({"tasks": [{"name": "b", "replicas": 2}]}, ["JobImmutable spec.tasks"]),
    ({"tasks": [{"name": "a", "replicas": 2}] * 2}, ["JobImmutable spec.tasks"]),
    ({"tasks": [{"name": "a", "replicas": 2, "template": {"spec": {}}}]}, ["JobImmutable spec.tasks"]),
    ({"queue": "other", "maxRetry": 9}, ["JobImmutable spec.maxRetry", "JobImmutable spec.queue"]),
    ({"volumes": [{"mountPath": "/a", "volumeClaim": {}, "volumeClaimName": "made"}]}, []),
    ({"volumes": [{"mountPath": "/b", "volumeClaim": {}}]}, ["JobImmutable spec.volumes"]),
)
def test_fields_that_may_change(change: Json, expected: list[str]) -> None:
    spec: Json = {"minAvailable": 2, "queue": "team", "volumes": [{"mountPath": "/a", "volumeClaim": {}}]}
    found = review_change(job(**spec), job(**{**spec, **change}))
    assert [f"{fault.code} {fault.field}" for fault in found] == expected


def test_an_object_with_an_old_fault_may_change_in_other_fields() -> None:
    """Allow changes elsewhere, such as Muster's changes of annotations."""
    bad = job(tasks=[{"name": "a", "replicas": -1}] * 2)
    assert review_new(bad)
    assert review_change(bad, bad) == []


COUNTS = st.none() | st.integers(-1, 3)
NAMES = st.sampled_from(["", "a", "b", "default1"])
TASKS = st.lists(
    st.fixed_dictionaries(
        {
            "name": NAMES,
            "replicas": st.integers(0, 3),
            "minAvailable": COUNTS,
            "dependsOn": st.none() | st.fixed_dictionaries({"name": st.lists(NAMES, max_size=1)}),
        }
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda task: task["name"],
)


@given(TASKS, COUNTS)
def test_an_accepted_job_can_become_whole_in_the_order_of_its_tasks(
    tasks: list[Json], needed: int | None
) -> None:
    new_job = job(tasks=tasks, minAvailable=needed)
    if review_new(new_job):
        return
    spec = with_defaults(new_job).spec
    assert len(spec.tasks) == len(tasks)
    assert 0 <= (spec.min_available or 0) <= sum(task.replicas for task in spec.tasks)
    needs = {task.name: (task.depends_on and task.depends_on.name) or () for task in spec.tasks}
    assert {*TopologicalSorter(needs).static_order()} == needs.keys()
