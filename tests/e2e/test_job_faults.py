"""Jobs with impossible fields, and faults between the decision on a job and its first pod.

No capacity is lost, none is given twice, and no other job suffers.
"""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import manifests, training_runs
from tests.e2e.harness.access import User
from tests.e2e.harness.fault_proxy import FaultProxy
from tests.e2e.harness.faults import before_request, hold_request, lose_answer
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import POD_GROUPS
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.training_runs import TRAINING_RUNS
from tests.e2e.harness.waiting import wait_for

pytestmark = [pytest.mark.view, pytest.mark.usefixtures("job_rights")]
UNSUSPENDING_WRITE = ("PATCH", r"/jobs/train$")  # the write that unsuspends the job


@pytest.fixture
def jobs(stage: Stage, proxy: FaultProxy, muster_user: User) -> Stage:
    """Return a stage with capacity for four pods; Muster reaches the API server through the proxy."""
    stage.nodes(2, cpu="2")
    stage.start_controller_manager()
    stage.start_sidecar(start(stage, proxy, muster_user), user=muster_user)
    return stage


def start(stage: Stage, proxy: FaultProxy, user: User) -> Muster:
    return stage.start_muster("--start-backoff=1s", user=user, server=proxy.server)


def wait_reason(stage: Stage, job: str, *reasons: str) -> None:
    wait_podgroup(stage, f"podgroup-{stage.jobs.get(job)['metadata']['uid']}", *reasons)


def wait_podgroup(stage: Stage, name: str, *reasons: str) -> None:
    wait_for(lambda: stage.api.find(POD_GROUPS, name, stage.namespace), what=f"the unit {name}")
    stage.wait_reason(name, *reasons)


def make(stage: Stage, name: str, parallelism: int) -> None:
    stage.job(name, parallelism=parallelism, suspend=True, queue="default")


@pytest.mark.parametrize(
    ("parallelism", "reason"), [(10**9, "InvalidSpec"), (10_001, "InvalidSpec"), (0, "")]
)
def test_absurd_counts_cost_their_own_job_only(jobs: Stage, parallelism: int, reason: str) -> None:
    make(jobs, "odd", parallelism)
    if reason:
        wait_reason(jobs, "odd", reason)
    make(jobs, "train", 4)
    jobs.jobs.wait_pods("train", 4, "Running")
    assert jobs.jobs.get("odd")["spec"]["suspend"]
    assert jobs.jobs.pods("odd") == []


@pytest.mark.parametrize(
    "change",
    [lambda stage: stage.jobs.delete("train"), lambda stage: stage.jobs.change("train", parallelism=5)],
    ids=["deleted", "grown"],
)
def test_a_job_that_changes_during_its_admission_frees_its_capacity(
    jobs: Stage, proxy: FaultProxy, change: Callable[[Stage], object]
) -> None:
    """The job has another version by then: the write is refused, and its capacity is free."""
    proxy.inject(before_request(lambda: change(jobs), *UNSUSPENDING_WRITE))
    make(jobs, "train", 4)
    wait_for(lambda: not proxy.pending_faults(), what="the write sent")
    make(jobs, "next", 4)
    jobs.jobs.wait_pods("next", 4, "Running")
    assert jobs.jobs.pods("train") == []


def test_a_job_with_an_irrelevant_change_is_still_admitted(jobs: Stage, proxy: FaultProxy) -> None:
    proxy.inject(before_request(lambda: jobs.jobs.change("train", backoffLimit=3), *UNSUSPENDING_WRITE))
    make(jobs, "train", 4)
    jobs.jobs.wait_pods("train", 4, "Running")


def test_a_job_suspended_by_its_user_right_after_its_admission_stays_suspended(
    jobs: Stage, proxy: FaultProxy
) -> None:
    released = threading.Event()
    proxy.inject(hold_request(released, "PATCH", r"/podgroups/"))
    make(jobs, "train", 4)
    wait_for(lambda: not jobs.jobs.get("train")["spec"]["suspend"], what="the job is admitted")
    jobs.jobs.suspend("train")
    released.set()
    jobs.jobs.wait_pods("train", 0)
    make(jobs, "next", 4)
    jobs.jobs.wait_pods("next", 4, "Running")


def test_an_answer_that_is_lost_changes_nothing(jobs: Stage, proxy: FaultProxy) -> None:
    proxy.inject(lose_answer(*UNSUSPENDING_WRITE))
    make(jobs, "train", 4)
    jobs.jobs.wait_pods("train", 4, "Running")
    make(jobs, "next", 1)
    wait_reason(jobs, "next", "NoRoom", "Fragmented")


def test_muster_killed_between_the_claim_and_the_write(
    stage: Stage, proxy: FaultProxy, muster_user: User
) -> None:
    """Nothing was written, so nothing is left of it: the job starts again, once and whole."""
    stage.nodes(2, cpu="2")
    stage.start_controller_manager()
    first = start(stage, proxy, muster_user)
    proxy.inject(before_request(first.kill, *UNSUSPENDING_WRITE))
    make(stage, "train", 4)
    wait_for(lambda: not proxy.pending_faults(), what="the write sent")
    second = start(stage, proxy, muster_user)
    stage.start_sidecar(second, user=muster_user)
    stage.jobs.wait_pods("train", 4, "Running")
    make(stage, "next", 1)
    wait_reason(stage, "next", "NoRoom", "Fragmented")


def test_a_template_that_cannot_be_read_is_its_own_jobs_reason(
    stage: Stage, muster_user: User, runs: Path
) -> None:
    """The API server lets through what the schema of a kind does not describe."""
    stage.nodes(1, cpu="4")
    stage.start_muster(f"--config={runs}", user=muster_user)
    odd = training_runs.training_run("odd", namespace=stage.namespace, replicas=2)
    odd["spec"]["template"] = {"spec": {"containers": "none"}}
    name = f"podgroup-{stage.api.create(TRAINING_RUNS, odd)['metadata']['uid']}"
    wait_podgroup(stage, name, "InvalidSpec")
    fine = training_runs.training_run("fine", namespace=stage.namespace, replicas=1)
    stage.api.create(TRAINING_RUNS, fine)
    wait_for(
        lambda: not stage.api.get(TRAINING_RUNS, "fine", stage.namespace)["spec"]["suspend"],
        what="the other one is admitted",
    )


@pytest.fixture
def runs(stage: Stage, tmp_path: Path) -> Iterator[Path]:
    """Install the kind, the rights, and the configuration that describes it."""
    written = manifests.install(stage.api, training_runs.rights())
    training_runs.install(stage.api)
    yield training_runs.configuration(tmp_path)
    training_runs.remove(stage.api)
    manifests.remove(stage.api, written)
