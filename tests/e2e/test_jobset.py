"""JobSets with their real controller: what suspension does to their pods, which Muster starts."""

from collections.abc import Iterator
from typing import Any

import pytest

from extender.api.keys import REQUIRED_TOPOLOGY
from tests.e2e.harness import manifests
from tests.e2e.harness.access import User
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.jobset import JOB_SET, JOB_SETS, job_set
from tests.e2e.harness.resources import POD_GROUPS
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

pytestmark = pytest.mark.jobset

Json = dict[str, Any]
JOB_NAMES = ("train-workers-0", "train-workers-1")


def test_a_suspended_jobset_has_no_pods_until_it_is_resumed_and_again_when_it_is_suspended(
    stage: Stage, scheduler: KubeScheduler
) -> None:
    stage.nodes(2, cpu="2")
    stage.start_controller_manager()
    stage.start_operator(JOB_SET)
    made = job_set("train", namespace=stage.namespace, replicas=2, parallelism=2, suspend=True)
    stage.api.create(JOB_SETS, made)
    for name in JOB_NAMES:
        stage.jobs.wait_condition(name, "Suspended")
    assert not any(stage.jobs.pods(name) for name in JOB_NAMES)

    _suspend(stage, suspended=False)
    for name in JOB_NAMES:
        stage.jobs.wait_pods(name, 2, "Running")
    _suspend(stage, suspended=True)
    for name in JOB_NAMES:
        stage.jobs.wait_pods(name, 0)

    _suspend(stage, suspended=False)
    for name in JOB_NAMES:
        stage.jobs.wait_pods(name, 2, "Running")
        stage.jobs.finish(name)
        stage.jobs.wait_condition(name, "Complete")
    wait_for(lambda: _condition(stage, "Completed") == "True", what="the JobSet has completed")


def _suspend(stage: Stage, *, suspended: bool) -> None:
    stage.api.patch(JOB_SETS, "train", {"spec": {"suspend": suspended}}, stage.namespace)


def _condition(stage: Stage, type_: str) -> str:
    found = stage.api.get(JOB_SETS, "train", stage.namespace).get("status", {}).get("conditions", [])
    return next((each["status"] for each in found if each["type"] == type_), "")


@pytest.fixture
def rights(cluster: ControlPlane, job_rights: None) -> Iterator[None]:
    """Grant the rights before Muster looks for them."""
    with manifests.applied(cluster.admin, "jobs/jobset/rbac.yaml"):
        yield


@pytest.fixture
def jobsets(stage: Stage, rights: None, muster_user: User) -> Stage:
    stage.nodes(2, cpu="2")
    stage.start_controller_manager()
    stage.start_operator(JOB_SET)
    muster = stage.start_muster("--start-backoff=1s", user=muster_user)
    stage.start_sidecar(muster, user=muster_user)
    return stage


def submit(stage: Stage) -> str:
    """Submit a JobSet; return its UID."""
    made = job_set(
        "train", namespace=stage.namespace, replicas=2, parallelism=2, suspend=True, queue="default"
    )
    return str(stage.api.create(JOB_SETS, made)["metadata"]["uid"])


def test_a_jobset_whose_jobs_may_not_make_all_pods_waits_until_they_may(jobsets: Stage) -> None:
    jobsets.limit_pods("3")
    unit = f"podgroup-{submit(jobsets)}"
    jobsets.wait_group(unit)
    said = "refused: exceeded quota: limit"
    wait_for(lambda: said in str(jobsets.pod_group(unit).get("status")), what="the refusal on its unit")
    jobsets.limit_pods("4")
    for name in JOB_NAMES:
        jobsets.jobs.wait_pods(name, 2, "Running")


def test_a_jobset_waits_as_one_job_and_starts_whole(jobsets: Stage) -> None:
    stage, filler = jobsets, jobsets.pods("filler", 1, cpu="1")
    stage.wait_phase(filler)
    uid = submit(stage)
    unit = stage.wait_group(f"podgroup-{uid}", phase="Pending")
    assert unit["spec"]["minMember"] == 4
    stage.wait_reason(f"podgroup-{uid}", "NoRoom", "Fragmented")
    groups = {each["metadata"]["name"] for each in stage.api.items(POD_GROUPS, stage.namespace)}
    assert groups == {f"podgroup-{uid}"}, "its Jobs do not wait on their own"
    stage.finish(filler)
    for name in JOB_NAMES:
        stage.jobs.wait_pods(name, 2, "Running")
    stage.wait_group(f"podgroup-{uid}", phase="Running", running=4)


def test_a_jobset_starts_in_the_one_rack_that_holds_it(jobsets: Stage) -> None:
    for rack, cpu in (("a", "1"), ("b", "2")):
        jobsets.nodes(2, prefix=rack, cpu=cpu, labels={"rack": rack})
    made = job_set(
        "train",
        namespace=jobsets.namespace,
        replicas=2,
        parallelism=2,
        suspend=True,
        queue="default",
        annotations={REQUIRED_TOPOLOGY: "rack"},
    )
    jobsets.api.create(JOB_SETS, made)
    pods = [pod for name in JOB_NAMES for pod in jobsets.jobs.wait_pods(name, 2, "Running")]
    assert {*jobsets.wait_bound(sorted(pods)).values()} == {"b0", "b1"}
