"""`muster job`, and `muster why` of jobs that wait as jobs, with kube-controller-manager's job controller."""

import pytest

from tests.e2e.harness.access import ADMIN
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.shell import Shell
from tests.e2e.harness.stage import Json, Stage
from tests.e2e.harness.waiting import wait_for

pytestmark = [pytest.mark.view, pytest.mark.usefixtures("job_rights")]


@pytest.fixture
def jobs(stage: Stage, muster: Muster, scheduler: KubeScheduler) -> Stage:
    stage.start_controller_manager()
    stage.nodes(2, cpu="2")
    return stage


def listed(shell: Shell) -> dict[str, Json]:
    return {each["name"]: each for each in shell.json("job", "list")["items"]}


def states(shell: Shell) -> dict[str, str]:
    return {name: each["state"] for name, each in listed(shell).items()}


def test_a_job_is_held_resumed_stopped_and_queues_again_at_its_old_place(jobs: Stage) -> None:
    shell = Shell(jobs.cluster, ADMIN, jobs.namespace)
    jobs.job("first", parallelism=4, suspend=True, queue="default")
    wait_for(lambda: states(shell) == {"first": "Running"}, what="first runs")
    jobs.job("second", parallelism=3, suspend=True, queue="default")
    wait_for(lambda: listed(shell).get("second", {}).get("position") == 1, what="second is in line")
    assert listed(shell)["second"]["reason"] in ("NoRoom", "Fragmented")
    assert shell.json("why", "job/second")["reason"] in ("NoRoom", "Fragmented")
    assert "Running" in shell.output("job", "describe", "first")
    shell.output("job", "hold", "second")
    wait_for(lambda: states(shell)["second"] == "Held", what="second is held")
    shell.output("job", "stop", "job/first")
    jobs.jobs.wait_pods("first", 0)
    assert states(shell)["first"] == "Suspended"
    assert "muster job resume job/first" in shell.output("why", "job/first")
    assert jobs.jobs.pods("second") == [], "it is held, although there is free capacity"
    shell.output("job", "resume", "job/second")
    jobs.jobs.wait_pods("second", 3, "Running")
    shell.output("job", "resume", "first")
    wait_for(lambda: states(shell)["first"] == "Waiting", what="first waits again")
    jobs.jobs.finish("second")
    jobs.jobs.wait_pods("first", 4, "Running")
    assert states(shell)["first"] in ("Starting", "Running")


def test_a_job_without_a_queue_is_explained_as_left_alone(jobs: Stage) -> None:
    jobs.job("free", suspend=True)
    found = Shell(jobs.cluster, ADMIN, jobs.namespace).json("why", "job/free")
    assert (found["verdict"], "no queue" in found["sentence"]) == ("NoPods", True)


def test_a_job_that_is_not_suspended_is_listed_while_its_queue_is_missing(jobs: Stage) -> None:
    shell = Shell(jobs.cluster, ADMIN, jobs.namespace)
    jobs.job("train", parallelism=2, completions=2, queue="mistyped", more={"completionMode": "Indexed"})
    (pod, *_) = jobs.jobs.wait_pods("train", 2)
    found = listed(shell)["train"]
    assert (found["state"], found["queue"], found["reason"]) == ("Waiting", "mistyped", "QueueNotFound")
    why = shell.json("why", f"pod/{pod}")
    assert (why["reason"], "job/train" in why["sentence"]) == ("QueueNotFound", True)
    jobs.queue("mistyped")
    jobs.jobs.wait_pods("train", 2, "Running")
    assert listed(shell)["train"]["reason"] == ""
