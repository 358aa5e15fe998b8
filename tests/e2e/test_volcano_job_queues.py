"""Volcano Jobs wait as jobs in queues: they give way whole, stop after their time, and obey `muster job`."""

import pytest

from tests.e2e.harness.access import ADMIN
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import EVENTS
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.shell import Shell
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.volcano_jobs import VolcanoJobs, task
from tests.e2e.harness.volumes import Provisioner
from tests.e2e.harness.waiting import wait_for

pytestmark = [
    pytest.mark.view,
    pytest.mark.muster_flags("--volcano-jobs=on", "--start-backoff=1s"),
    pytest.mark.usefixtures("volcano_kinds"),
]


@pytest.fixture
def jobs(stage: Stage, muster: Muster, scheduler: KubeScheduler) -> VolcanoJobs:
    """Return Volcano Jobs with four cpu."""
    stage.nodes(2, cpu="2")
    return VolcanoJobs(stage.api, stage.namespace, stage.kubelet)


def annotation_of(jobs: VolcanoJobs, name: str) -> str | None:
    notes = jobs.get(name)["metadata"].get("annotations") or {}
    return None if "kube-muster.io/started" not in notes else str(notes["kube-muster.io/started"])


def test_a_volcano_job_is_reclaimed_whole_and_runs_again_later(stage: Stage, jobs: VolcanoJobs) -> None:
    stage.queue("greedy")
    stage.queue("starved")
    for name in ("old", "young"):
        jobs.create(name, queue="greedy")
        jobs.wait_pods(name, 2, "Running")
    jobs.create("due", queue="starved")
    jobs.wait_pods("due", 2, "Running")
    (out,) = [name for name in ("old", "young") if annotation_of(jobs, name) == ""]
    jobs.wait_pods(out, 0)
    jobs.wait_phase(out, "Pending")
    jobs.finish("due")
    jobs.wait_pods(out, 2, "Running")
    assert jobs.status(out).get("retryCount", 0) == 0, "to give way is no failure"


def test_a_volcano_job_beyond_the_run_time_limit_is_stopped_until_it_is_resumed(
    stage: Stage, jobs: VolcanoJobs
) -> None:
    stage.queue("q", maxRunTime="3s")
    jobs.create("long", queue="q")
    jobs.wait_phase("long", "Aborted")
    jobs.wait_pods("long", 0)
    wait_for(lambda: annotation_of(jobs, "long") == "", what="its start is forgotten")
    jobs.create("next", task("all", 4))
    jobs.wait_pods("next", 4, "Running")
    assert jobs.phase("long") == "Aborted"
    jobs.finish("next")
    Shell(stage.cluster, ADMIN, stage.namespace).output("job", "resume", "vcjob/long")
    jobs.wait_pods("long", 2, "Running")


def test_a_volcano_job_whose_claim_is_missing_leaves_its_capacity_to_others_until_there_is_one(
    stage: Stage, jobs: VolcanoJobs
) -> None:
    def given_up() -> str:
        events = stage.api.items(EVENTS, stage.namespace)
        return next((each["message"] for each in events if each["reason"] == "StartGivenUp"), "")

    jobs.create("first", task("all", 4), volumes=[{"mountPath": "/data", "volumeClaimName": "data"}])
    wait_for(given_up, what="first goes back to its queue")
    assert "claim data for its volume /data" in given_up()
    jobs.create("second", task("all", 4))
    jobs.wait_pods("second", 4, "Running")
    jobs.finish("second")
    Provisioner(stage).late("data")
    jobs.wait_pods("first", 4)


def test_commands_hold_explain_stop_and_resume_a_volcano_job(stage: Stage, jobs: VolcanoJobs) -> None:
    shell = Shell(stage.cluster, ADMIN, stage.namespace)

    def states() -> dict[str, str]:
        items = shell.json("job", "list")["items"]
        return {each["name"]: each["state"] for each in items}

    jobs.create("first", task("all", 4))
    jobs.wait_pods("first", 4, "Running")
    jobs.create("second", task("all", 3))
    wait_for(lambda: states() == {"first": "Running", "second": "Waiting"}, what="second waits")
    why = shell.json("why", "vcjob/second")
    assert (why["kind"], why["verdict"]) == ("Job", "Waiting")
    shell.output("job", "hold", "second")
    shell.output("job", "stop", "first")
    jobs.wait_phase("first", "Aborted")
    wait_for(lambda: states() == {"first": "Suspended", "second": "Held"}, what="first is stopped")
    assert (jobs.pods("first"), jobs.pods("second")) == ({}, {})
    shell.output("job", "resume", "second")
    jobs.wait_pods("second", 3, "Running")
    shell.output("job", "resume", "first")
    wait_for(lambda: states()["first"] == "Waiting", what="first waits again")
    assert jobs.pods("first") == {}
    jobs.finish("second")
    jobs.wait_pods("first", 4, "Running")
