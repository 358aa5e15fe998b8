"""Jobs wait as jobs, with the job controller of kube-controller-manager."""

import time

import pytest

from tests.e2e.harness.access import User
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import EVENTS, POD_GROUPS, PODS
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

pytestmark = [pytest.mark.view, pytest.mark.usefixtures("job_rights")]


@pytest.fixture
def muster_flags() -> tuple[str, ...]:
    return ("--start-backoff=1s",)


@pytest.fixture
def jobs(stage: Stage, muster: Muster, scheduler: KubeScheduler) -> Stage:
    stage.start_controller_manager()
    stage.nodes(2, cpu="2")
    return stage


def unit(stage: Stage, job: str) -> str:
    return f"podgroup-{stage.jobs.get(job)['metadata']['uid']}"


def wait_podgroup(stage: Stage, job: str, *reasons: str) -> str:
    name = unit(stage, job)
    wait_for(lambda: stage.api.find(POD_GROUPS, name, stage.namespace), what=f"the unit of {job}")
    return stage.wait_reason(name, *reasons)


def test_jobs_wait_without_pods_and_start_whole(jobs: Stage) -> None:
    jobs.job("first", parallelism=4, suspend=True, queue="default")
    jobs.jobs.wait_pods("first", 4, "Running")
    jobs.job("second", parallelism=3, suspend=True, queue="default")
    assert wait_podgroup(jobs, "second", "NoRoom", "Fragmented")
    assert jobs.jobs.pods("second") == []
    jobs.jobs.finish("first")
    jobs.jobs.wait_condition("first", "Complete")
    jobs.jobs.wait_pods("second", 3, "Running")
    jobs.wait_group(unit(jobs, "second"), phase="Running")
    names = {
        each["metadata"]["annotations"]["scheduling.k8s.io/group-name"]
        for each in jobs.api.items(PODS, jobs.namespace)
    }
    assert unit(jobs, "second") in names


def test_the_podgroup_of_a_job_that_waits_is_created_with_the_reason(jobs: Stage) -> None:
    version = jobs.api.listing(POD_GROUPS, jobs.namespace)["metadata"]["resourceVersion"]
    jobs.job("large", parallelism=5, suspend=True, queue="default")
    created = next(
        group for kind, group in jobs.api.watch(POD_GROUPS, version, jobs.namespace) if kind == "ADDED"
    )
    assert created["metadata"]["name"] == unit(jobs, "large")
    (scheduled,) = created["status"]["conditions"]
    assert scheduled["reason"] == "NeverFits"
    assert created["status"]["waiting"]["since"]
    recorded = "kube-muster.io/queue-uid"
    wait_for(
        lambda: (
            recorded
            in jobs.api.get(POD_GROUPS, unit(jobs, "large"), jobs.namespace)["metadata"].get(
                "annotations", {}
            )
        ),
        what="its queue is noted",
    )


def test_jobs_made_while_muster_is_away_start_in_the_order_in_which_they_were_made(
    jobs: Stage, muster: Muster
) -> None:
    """Start jobs by creation time, then by name; all PodGroups are made at the same time."""
    muster.kill()
    names = ["z", "y", *"abcdefg"]
    for name in names:
        jobs.job(name, parallelism=4, suspend=True, queue="default")
        if name in "zy":
            time.sleep(1.1)  # creation has whole seconds
    made = {name: jobs.jobs.get(name)["metadata"]["creationTimestamp"] for name in names}
    muster.start()
    for name in sorted(names, key=lambda name: (made[name], name)):
        jobs.jobs.wait_pods(name, 4, "Running")
        jobs.jobs.finish(name)


def test_the_start_of_a_job_whose_pods_do_not_run_is_given_up(jobs: Stage) -> None:
    jobs.queue("q", startTimeout="5s")
    jobs.kubelet.off()
    jobs.job("pulls", parallelism=2, suspend=True, queue="q")
    wait_podgroup(jobs, "pulls", "BackingOff")
    jobs.jobs.wait_condition("pulls", "Suspended")
    jobs.jobs.wait_pods("pulls", 0)
    jobs.kubelet.on()
    jobs.jobs.wait_pods("pulls", 2, "Running")


def test_a_job_whose_pods_a_quota_refuses_frees_its_capacity_and_starts_once_they_are_accepted(
    jobs: Stage,
) -> None:
    """Free the capacity long before its start times out, which takes five minutes by default."""
    jobs.limit_pods("2", "Terminating")
    gang = {"more": {"completionMode": "Indexed"}, "suspend": True, "queue": "default"}
    jobs.job("cut", parallelism=3, completions=3, activeDeadlineSeconds=600, **gang)
    jobs.jobs.wait_pods("cut", 2)
    jobs.job("next", parallelism=3, completions=3, **gang)
    jobs.jobs.wait_pods("next", 3, "Running")
    jobs.jobs.wait_pods("cut", 0)

    def said() -> set[str]:
        events = jobs.api.items(EVENTS, jobs.namespace, fieldSelector="reason=StartGivenUp")
        of_jobs = [event["message"] for event in events if event["involvedObject"]["kind"] == "Job"]
        return {text.partition(" refused: ")[2] for text in of_jobs}

    assert wait_for(said, what="it is reported") == {
        "exceeded quota: limit, requested: pods=1, used: pods=2, limited: pods=2"
    }
    jobs.limit_pods("3", "Terminating")
    jobs.jobs.finish("next")
    jobs.jobs.wait_pods("cut", 3, "Running")


def test_a_job_is_suspended_to_free_its_capacity(jobs: Stage) -> None:
    jobs.queue("greedy")
    jobs.queue("starved")
    for name in ("old", "young"):
        jobs.job(name, parallelism=2, suspend=True, queue="greedy")
        jobs.jobs.wait_pods(name, 2, "Running")
    jobs.job("due", parallelism=2, suspend=True, queue="starved")
    jobs.jobs.wait_pods("due", 2, "Running")
    (out,) = [name for name in ("old", "young") if jobs.jobs.get(name)["spec"]["suspend"]]
    jobs.jobs.wait_pods(out, 0)
    jobs.jobs.finish("due")
    jobs.jobs.wait_pods(out, 2, "Running")


def test_a_job_that_may_start_with_fewer_pods_takes_the_most_that_fit(jobs: Stage) -> None:
    """A start that is given up leaves nothing of that behind: the next one asks for all."""
    jobs.queue("q", startTimeout="5s")
    jobs.kubelet.off()
    jobs.job(
        "train", parallelism=6, suspend=True, queue="q", annotations={"kube-muster.io/min-parallelism": "2"}
    )
    jobs.jobs.wait_pods("train", 4)
    assert started_with(jobs, "train") == (4, "4/6")
    wait_podgroup(jobs, "train", "BackingOff")
    jobs.jobs.wait_condition("train", "Suspended")
    jobs.nodes(1, prefix="further", cpu="2")
    jobs.kubelet.on()
    jobs.jobs.wait_pods("train", 6, "Running")
    assert started_with(jobs, "train") == (6, None)


def test_a_shrinking_job_above_the_capability_starts_with_as_many_pods_as_that_allows(jobs: Stage) -> None:
    jobs.queue("q", capability={"cpu": "3"})
    jobs.job(
        "first", parallelism=1, suspend=True, queue="q", cpu="2"
    )  # one pod: its capacity is free at once
    jobs.jobs.wait_pods("first", 1, "Running")
    jobs.job(
        "train", parallelism=6, suspend=True, queue="q", annotations={"kube-muster.io/min-parallelism": "2"}
    )
    wait_podgroup(jobs, "train", "QueueCeiling")
    jobs.jobs.finish("first")
    jobs.jobs.wait_pods("train", 3, "Running")
    jobs.wait_group(unit(jobs, "train"), phase="Running", running=3)
    assert started_with(jobs, "train") == (3, "3/6")


def test_a_job_that_runs_with_fewer_pods_is_a_gang_of_that_size(jobs: Stage) -> None:
    jobs.job("first", parallelism=1, suspend=True, queue="default")
    jobs.jobs.wait_pods("first", 1, "Running")
    fewer = {"kueue.x-k8s.io/job-min-parallelism": "2"}
    jobs.job("train", parallelism=6, completions=6, suspend=True, queue="default", annotations=fewer)
    jobs.jobs.wait_pods("train", 3, "Running")
    found = jobs.wait_group(unit(jobs, "train"), phase="Running", running=3)
    assert found["spec"]["minMember"] == 3
    assert started_with(jobs, "train") == (3, "3/6")


def started_with(stage: Stage, job: str) -> tuple[int, str | None]:
    """Return the number of pods that the job makes, and the note of that."""
    found = stage.jobs.get(job)
    return found["spec"]["parallelism"], found["metadata"]["annotations"].get("kube-muster.io/partial-start")


def test_a_job_of_many_completions_keeps_its_capacity_from_one_pod_to_the_next(jobs: Stage) -> None:
    jobs.job("many", parallelism=4, completions=12, suspend=True, queue="default")
    jobs.jobs.wait_pods("many", 4, "Running")
    jobs.job("next", parallelism=1, suspend=True, queue="default")
    wait_podgroup(jobs, "next", "NoRoom", "Fragmented")
    for succeeded in (4, 8):
        jobs.jobs.finish("many")
        jobs.jobs.wait_status("many", succeeded=succeeded, active=4, ready=4)
        assert jobs.jobs.get("next")["spec"]["suspend"]
    jobs.jobs.finish("many")
    jobs.jobs.wait_pods("next", 1, "Running")


@pytest.mark.parametrize("managed", [False, True])
def test_the_place_of_a_failed_pod_is_reserved_until_the_job_controller_makes_the_next(
    jobs: Stage, managed: bool
) -> None:
    """Keep the place for 10 s, while another group waits for capacity (volcano#5805)."""
    indexed = {"completionMode": "Indexed", "backoffLimit": 10}
    jobs.job("train", parallelism=2, completions=2, cpu="2", suspend=managed, queue="default", more=indexed)
    jobs.jobs.wait_pods("train", 2, "Running")
    waits = jobs.gang("waits", 1, cpu="2")
    jobs.wait_reason("waits", "NoRoom")
    jobs.kubelet.finish(jobs.namespace, jobs.jobs.pods("train", "Running")[:1], "Failed")
    wait_for(lambda: jobs.jobs.get("train")["status"].get("failed") == 1, what="one has failed")
    jobs.jobs.wait_pods("train", 2, "Running")
    assert jobs.bound(waits) == {}


def test_a_job_that_runs_longer_than_its_queue_allows_is_suspended_until_it_is_resumed(jobs: Stage) -> None:
    jobs.queue("q", maxRunTime="3s")
    jobs.job("long", parallelism=2, suspend=True, queue="q")

    def said() -> list[str]:
        events = jobs.api.items(EVENTS, jobs.namespace, fieldSelector="reason=JobStopped")
        return [event["message"] for event in events if event["involvedObject"]["name"] == "long"]

    wait_for(said, what="it is suspended")
    assert "jobs of queue q run for 3s at most" in said()[0]
    jobs.jobs.wait_condition("long", "Suspended")
    jobs.jobs.wait_pods("long", 0)
    jobs.job("next", parallelism=4, suspend=True, queue="default")
    jobs.jobs.wait_pods("next", 4, "Running")
    assert jobs.jobs.pods("long") == []


def test_a_job_suspended_by_its_user_stays_out_of_its_queue(jobs: Stage) -> None:
    jobs.job("first", parallelism=4, suspend=True, queue="default")
    jobs.jobs.wait_pods("first", 4, "Running")
    jobs.job("second", parallelism=4, suspend=True, queue="default")
    wait_podgroup(jobs, "second", "NoRoom", "Fragmented")
    jobs.jobs.suspend("first")
    jobs.jobs.wait_pods("second", 4, "Running")
    assert jobs.jobs.get("first")["spec"]["suspend"]


def test_the_podgroup_of_a_waiting_job_is_deleted_with_it(jobs: Stage) -> None:
    jobs.job("large", parallelism=5, suspend=True, queue="default")
    wait_podgroup(jobs, "large", "NeverFits", "NoRoom")
    name = unit(jobs, "large")
    jobs.jobs.delete("large")
    wait_for(lambda: jobs.api.find(POD_GROUPS, name, jobs.namespace) is None, what="the unit gone")
    jobs.job("small", parallelism=4, suspend=True, queue="default")
    jobs.jobs.wait_pods("small", 4, "Running")


def test_the_capacity_of_a_gang_is_reserved_when_muster_is_killed_before_its_first_pod(
    stage: Stage, muster_user: User
) -> None:
    """The job controller is down: the job is admitted, and no pod comes."""
    stage.nodes(2, cpu="2")
    first = stage.start_muster(user=muster_user)
    stage.job("train", parallelism=4, suspend=True, queue="default")
    wait_for(lambda: not stage.jobs.get("train")["spec"]["suspend"], what="the job is admitted")
    stage.wait_group(unit(stage, "train"), phase="Inqueue")
    first.kill()
    second = stage.start_muster(user=muster_user)
    stage.job("late", parallelism=1, suspend=True, queue="default")
    wait_podgroup(stage, "late", "NoRoom")
    assert stage.jobs.get("late")["spec"]["suspend"]
    stage.start_sidecar(second, user=muster_user)
    stage.start_controller_manager()
    stage.jobs.wait_pods("train", 4, "Running")


def test_all_jobs_of_queues_are_suspended_where_the_setting_says_so(stage: Stage, muster_user: User) -> None:
    """A Job that was not created suspended is suspended, and admitted in its turn; one that runs is left."""
    stage.start_controller_manager()
    stage.nodes(2, cpu="2")
    before = stage.start_muster("--manage-jobs=off", user=muster_user)
    scheduler = stage.start_sidecar(before, user=muster_user)
    stage.job("running", parallelism=2, queue="default")
    stage.jobs.wait_pods("running", 2, "Running")
    scheduler.stop()
    before.stop()
    muster = stage.start_muster("--manage-jobs=queue", user=muster_user)
    stage.start_sidecar(muster, user=muster_user)
    stage.job("large", parallelism=3, queue="default")
    stage.jobs.wait_condition("large", "Suspended")
    wait_podgroup(stage, "large", "NoRoom", "Fragmented")
    assert len(stage.jobs.pods("running", "Running")) == 2
    stage.jobs.finish("running")
    stage.jobs.wait_pods("large", 3, "Running")
