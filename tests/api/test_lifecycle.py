"""States that jobs of each kind report: suspended, succeeded, failed."""

from itertools import product
from typing import Any

from extender.api import keys
from extender.api.workloads.shape import JobOutcome, Json, is_stopped, is_suspended, outcome_of
from extender.api.workloads.table import WORKLOADS
from tests.api.job_files import NAMES, documents, put, resumed, row_of, waiting
from tests.rows import each_of

ENDLESS = {"raycluster", "leaderworkerset"}
MANAGEABLE = {
    "batch/v1 Job",
    "batch.volcano.sh/v1alpha1 Job",
    "jobset.x-k8s.io/v1alpha2 JobSet",
    *(f"kubeflow.org/v1 {kind}Job" for kind in ("JAX", "MPI", "Paddle", "PyTorch", "TF", "XGBoost")),
    "kubeflow.org/v2beta1 MPIJob",
    "ray.io/v1 RayCluster",
    "ray.io/v1 RayJob",
    "sparkoperator.k8s.io/v1beta2 SparkApplication",
    "trainer.kubeflow.org/v1alpha1 TrainJob",
}


def test_kinds_that_can_wait_suspended() -> None:
    assert {" ".join(key) for key, row in WORKLOADS.items() if row.manageable} == MANAGEABLE


def test_each_of_them_has_a_file() -> None:
    found = {row_of(waiting(name)).key for name in NAMES}
    assert {key for key, row in WORKLOADS.items() if row.manageable} <= found


@each_of(*NAMES)
def test_a_job_waits_suspended(name: str) -> None:
    job = waiting(name)
    row = row_of(job)
    assert is_suspended(row, job) is row.manageable is (name != "leaderworkerset")
    assert not is_suspended(row, resumed(job))
    assert outcome_of(row, job) is None


@each_of(*sorted({*NAMES} - ENDLESS))
def test_how_a_job_ended(name: str) -> None:
    job, succeeded, *failed = documents(name)
    row = row_of(job)
    assert outcome_of(row, {**job, **succeeded}) is JobOutcome.SUCCEEDED
    assert failed
    assert {outcome_of(row, {**job, **each}) for each in failed} == {JobOutcome.FAILED}


@each_of(*product(NAMES, [None, [], "x", 7, {"conditions": {}}, {"conditions": [None, 3, {}, {"type": []}]}]))
def test_a_status_of_another_form_says_nothing(name: str, status: Any) -> None:
    job = {**waiting(name), "status": status}
    assert outcome_of(row_of(job), job) is None


def test_a_condition_that_is_not_true_does_not_count() -> None:
    job = waiting("job")
    for status in ("False", "Unknown", True):
        conditions = [{"type": "Complete", "status": status}]
        assert outcome_of(row_of(job), {**job, "status": {"conditions": conditions}}) is None
    values: tuple[Any, ...] = (None, "true", 1, {})
    for value in values:
        assert not is_suspended(row_of(job), put(job, ("spec", "suspend"), value))


STARTED = {"annotations": {keys.STARTED: "2026-01-01T00:00:00Z"}}
SUSPENDED_AGAIN = {"annotations": {keys.STARTED: ""}}


@each_of(
    ({}, {}, "waits"),
    ({}, {"state": {}}, "waits"),
    ({}, {"state": {"phase": "Pending"}, "pending": 0}, "waits"),
    ({}, {"state": {"phase": "Pending"}, "pending": 1}, "continues"),  # Volcano has made its pods
    ({}, {"state": {"phase": "Running"}, "running": 2}, "continues"),
    ({}, {"state": {"phase": "Restarting"}}, "continues"),
    ({}, {"state": {"phase": "Aborting"}, "terminating": 2}, "stopped"),
    ({}, {"state": {"phase": "Aborted"}}, "stopped"),
    (STARTED, {}, "continues"),
    (STARTED, {"state": {"phase": "Pending"}}, "continues"),
    (STARTED, {"state": {"phase": "Aborted"}}, "stopped"),
    (SUSPENDED_AGAIN, {"state": {"phase": "Running"}, "running": 2}, "waits"),
    (SUSPENDED_AGAIN, {"state": {"phase": "Pending"}, "pending": 2}, "waits"),
    (SUSPENDED_AGAIN, {"state": {"phase": "Aborting"}}, "stopped"),
    (SUSPENDED_AGAIN, {"state": {"phase": "Completed"}}, "continues"),
    ({"annotations": None}, {"state": "Pending", "pending": None}, "waits"),
)
def test_the_state_of_a_volcano_job_from_its_phase(meta: Json, status: Json, state: str) -> None:
    job = waiting("volcanojob") | {"metadata": {"name": "j", **meta}, "status": status}
    row, stands = row_of(job), {"waits": (True, False), "stopped": (True, True), "continues": (False, False)}
    assert (is_suspended(row, job), is_stopped(row, job)) == stands[state]


@each_of(
    ("rayjob", {"jobDeploymentStatus": "Retrying", "jobStatus": "FAILED"}),
    *(
        ("sparkapplication", {"applicationState": {"state": state}})
        for state in ("", "PENDING_RERUN", "SUBMISSION_FAILED", "FAILING", "SUSPENDED")
    ),
    *(
        ("volcanojob", {"state": {"phase": phase}})
        for phase in ("", "Pending", "Aborting", "Aborted", "Restarting", "Completing")
    ),
)
def test_a_job_that_may_run_again_has_not_ended(name: str, status: Json) -> None:
    job = {**waiting(name), "status": status}
    assert outcome_of(row_of(job), job) is None


def test_names_in_the_paths_of_the_api() -> None:
    assert {row.plural for row in WORKLOADS.values()} >= {"jobs", "rayclusters", "trainjobs", "mpijobs"}
