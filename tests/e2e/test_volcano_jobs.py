"""Volcano Jobs without Volcano: Muster's own controller, on real API servers and a stock kube-scheduler."""

import json

import pytest

from tests.e2e.harness import rights
from tests.e2e.harness.access import User
from tests.e2e.harness.fault_proxy import FaultProxy
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import (
    COMMANDS,
    CONFIG_MAPS,
    EVENTS,
    POD_GROUPS,
    PODS,
    SECRETS,
    SERVICES,
    VOLCANO_JOBS,
    VOLUME_CLAIMS,
)
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.volcano_jobs import VolcanoJobs, policy, task, volcano_at_work
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


def test_a_job_of_two_tasks_waits_without_pods_starts_whole_and_completes(
    stage: Stage, jobs: VolcanoJobs, muster: Muster
) -> None:
    jobs.create("first", task("all", 3))
    jobs.wait_pods("first", 3, "Running")
    jobs.create("second", task("ps", 1), task("worker", 2, minAvailable=1), minAvailable=3)
    jobs.wait_phase("second", "Pending")
    stage.wait_group(jobs.group("second"), phase="Pending")
    stage.wait_reason(jobs.group("second"), "NoRoom", "Fragmented")
    assert jobs.pods("second") == {}
    muster.wait_decision(stage.namespace, jobs.group("second"), verdict="Waiting")
    jobs.finish("first")
    done = jobs.wait_phase("first", "Completed")
    assert (done["succeeded"], done.get("running", 0)) == (3, 0)
    assert done["runningDuration"]
    assert jobs.wait_pods("second", 3, "Running").keys() == {
        "second-ps-0",
        "second-worker-0",
        "second-worker-1",
    }
    jobs.wait_status("second", running=3, minAvailable=3)
    assert jobs.phase("second") == "Running"
    jobs.finish("second")
    jobs.wait_phase("second", "Completed")
    phases = [each["status"] for each in jobs.status("second")["conditions"]]
    assert phases == ["Pending", "Running", "Completed"]


def test_a_failed_pod_restarts_the_job_until_it_has_failed_too_often(jobs: VolcanoJobs) -> None:
    jobs.create("job", maxRetry=2, policies=[policy("PodFailed", "RestartJob")])
    before = jobs.wait_pods("job", 2, "Running")
    jobs.finish("job", "job-work-0", phase="Failed")
    before = jobs.wait_others("job", before)
    jobs.wait_status("job", retryCount=1, running=2)
    jobs.finish("job", "job-work-1", phase="Failed")
    assert jobs.wait_phase("job", "Failed")["retryCount"] == 2
    assert jobs.wait_pods("job", 1).items() <= before.items()  # its log has the cause


def test_an_exit_code_completes_the_job_and_its_other_pods_go(jobs: VolcanoJobs) -> None:
    chief = task("chief", 1, policies=[policy(3, "CompleteJob")])
    jobs.create("job", chief, task("worker", 2))
    jobs.wait_pods("job", 3, "Running")
    jobs.finish("job", "job-chief-0", phase="Failed", code=3)
    jobs.wait_phase("job", "Completed")
    assert jobs.wait_pods("job", 1).keys() == {"job-chief-0"}  # what has ended stays


@pytest.mark.parametrize(
    ("action", "restarted"),
    [
        ("RestartPod", {"job-work-0"}),
        ("RestartPartition", {"job-work-0", "job-work-1"}),
        ("RestartTask", {"job-work-0", "job-work-1", "job-work-2", "job-work-3"}),
    ],
)
def test_the_restart_of_a_part_leaves_the_others_running(
    jobs: VolcanoJobs, action: str, restarted: set[str]
) -> None:
    """It is no eviction of pods, whatever its policies say of that."""
    rules = [policy("PodFailed", action), policy("PodEvicted", "TerminateJob")]
    parts = {"totalPartitions": 2, "partitionSize": 2}
    jobs.create("job", task("work", 4, policies=rules, partitionPolicy=parts))
    before = jobs.wait_pods("job", 4, "Running")
    jobs.finish("job", "job-work-0", phase="Failed")
    jobs.wait_status("job", retryCount=1, running=4)
    after = jobs.wait_pods("job", 4, "Running")
    assert {name for name, uid in after.items() if uid != before[name]} == restarted
    assert jobs.wait_phase("job", "Running").get("version", 0) == 0


def test_a_partitioned_volcano_job_starts_and_grows_by_whole_partitions(
    stage: Stage, jobs: VolcanoJobs
) -> None:
    parts = {"totalPartitions": 6, "partitionSize": 2, "minPartitions": 2}
    restarts = policy("PodFailed", "RestartPartition")
    jobs.create("job", task("work", 12, partitionPolicy=parts, policies=[restarts]))
    before = jobs.wait_pods("job", 4, "Running")
    assert before.keys() == {f"job-work-{index}" for index in range(4)}
    (policies,) = stage.api.get(POD_GROUPS, jobs.group("job"), stage.namespace)["spec"]["subGroupPolicy"]
    assert (policies["subGroupSize"], policies["minSubGroups"]) == (2, 2)
    stage.nodes(1, prefix="more", cpu="2")
    assert jobs.wait_pods("job", 6, "Running").keys() == {f"job-work-{index}" for index in range(6)}
    stage.nodes(1, prefix="last", cpu="6")
    before = jobs.wait_pods("job", 12, "Running")
    jobs.finish("job", "job-work-10", phase="Failed")
    jobs.wait_status("job", retryCount=1, running=12)
    after = jobs.wait_pods("job", 12, "Running")
    assert {name for name, uid in after.items() if uid != before[name]} == {"job-work-10", "job-work-11"}


def test_a_completed_task_completes_the_job(jobs: VolcanoJobs) -> None:
    chief = task("chief", 2, policies=[policy("TaskCompleted", "CompleteJob")])
    jobs.create("job", chief, task("worker", 2))
    jobs.wait_pods("job", 4, "Running")
    jobs.finish("job", "job-chief-0")
    jobs.wait_status("job", succeeded=1)
    assert jobs.phase("job") == "Running"
    jobs.finish("job", "job-chief-1")
    jobs.wait_phase("job", "Completed")
    assert jobs.wait_pods("job", 2).keys() == {"job-chief-0", "job-chief-1"}


def test_containers_that_restart_too_often_fail_their_task(stage: Stage, jobs: VolcanoJobs) -> None:
    jobs.create("job", task("work", 2, maxRetry=3, policies=[policy("TaskFailed", "TerminateJob")]))
    jobs.wait_pods("job", 2, "Running")
    for index, count in enumerate((1, 2)):
        container = {"name": "main", "image": "i", "imageID": "", "ready": True, "restartCount": count}
        status = {"status": {"containerStatuses": [container]}}
        stage.api.patch(PODS, f"job-work-{index}", status, stage.namespace, "status")
    jobs.wait_phase("job", "Terminated")


def test_a_pod_that_stays_pending_too_long_aborts_the_job(stage: Stage, jobs: VolcanoJobs) -> None:
    stage.kubelet.pull("job-work-1")
    jobs.create("job", policies=[policy("PodPending", "AbortJob", timeout="3s")])
    jobs.wait_pods("job", 1, "Running")
    state = jobs.wait_phase("job", "Aborted")["state"]
    assert (state["reason"], "job-work-1 is pending" in state["message"]) == ("AbortJob", True)
    jobs.wait_pods("job", 0)


def test_a_task_waits_for_another(stage: Stage, jobs: VolcanoJobs) -> None:
    stage.kubelet.pull("job-data-0")
    jobs.create("job", task("data", 1), task("work", 2, dependsOn={"name": ["data"]}))
    jobs.wait_status("job", pending=1)
    assert jobs.pods("job").keys() == {"job-data-0"}
    jobs.finish("job", "job-data-0")
    jobs.wait_pods("job", 2, "Running")
    jobs.wait_phase("job", "Running")
    jobs.finish("job")
    jobs.wait_phase("job", "Completed")


def test_an_evicted_pod_aborts_the_job_which_a_command_resumes(stage: Stage, jobs: VolcanoJobs) -> None:
    jobs.create("job", policies=[policy("PodEvicted", "AbortJob")])
    before = jobs.wait_pods("job", 2, "Running")
    stage.api.delete(PODS, "job-work-0", stage.namespace)
    jobs.wait_phase("job", "Aborted")
    jobs.wait_pods("job", 0)
    command = jobs.command("job", "ResumeJob")
    jobs.wait_others("job", before)
    jobs.wait_phase("job", "Running")
    wait_for(lambda: stage.api.find(COMMANDS, command, stage.namespace) is None, what="the Command is gone")


def test_a_command_terminates_a_job(stage: Stage, jobs: VolcanoJobs) -> None:
    jobs.create("job")
    jobs.wait_pods("job", 2, "Running")
    jobs.command("job", "TerminateJob")
    jobs.wait_phase("job", "Terminated")
    jobs.wait_pods("job", 0)
    nonsense = jobs.command("job", "Explode")
    wait_for(lambda: stage.api.find(COMMANDS, nonsense, stage.namespace) is None, what="it is refused")
    wait_for(lambda: _events(stage, "job", "CommandRefused"), what="an Event on the job")


def test_a_job_grows_and_shrinks(jobs: VolcanoJobs) -> None:
    jobs.create("job", task("work", 2), minAvailable=1)
    before = jobs.wait_pods("job", 2, "Running")
    jobs.scale("job", 4)
    assert before.items() <= jobs.wait_pods("job", 4, "Running").items()
    jobs.scale("job", 1)
    reserved = jobs.wait_pods("job", 1)
    assert reserved.items() <= before.items()
    jobs.wait_status("job", running=1)


def test_an_ended_job_is_deleted_after_its_time(stage: Stage, jobs: VolcanoJobs) -> None:
    jobs.create("job", ttlSecondsAfterFinished=1)
    jobs.wait_pods("job", 2, "Running")
    jobs.finish("job")
    wait_for(lambda: stage.api.find(VOLCANO_JOBS, "job", stage.namespace) is None, what="the job is gone")


def test_a_foreign_pod_with_the_name_of_a_task_pod_is_left_alone(stage: Stage, jobs: VolcanoJobs) -> None:
    (taken,) = stage.pods("job-work", 1, cpu="1")
    stage.wait_phase([taken])
    uid = stage.pod(taken)["metadata"]["uid"]
    jobs.create("job")
    assert jobs.wait_pods("job", 1).keys() == {"job-work-1"}
    wait_for(lambda: _events(stage, "job", "PodNameTaken"), what="it is said")
    assert stage.pod(taken)["metadata"]["uid"] == uid
    stage.delete_pods([taken])


def test_a_running_job_of_volcano_is_taken_over_with_its_pods(
    stage: Stage, jobs: VolcanoJobs, muster: Muster
) -> None:
    """Its status and its pods are as Volcano's controller leaves them; it was restarted once."""
    muster.stop()
    jobs.create("job", policies=[policy("PodEvicted", "RestartJob")])
    jobs.leave_running("job", "n0", version=1)
    before = jobs.wait_pods("job", 2, "Running")
    jobs.command("job", "ResumeJob")  # no change; the controller that runs the job obeys it
    with volcano_at_work(stage.api):
        muster.start()
        stage.wait_phase(stage.gang("a", 2))
        assert len(stage.api.items(COMMANDS, stage.namespace)) == 1
    wait_for(lambda: not stage.api.items(COMMANDS, stage.namespace), what="Muster runs the job")
    assert jobs.pods("job", "Running") == before
    assert jobs.phase("job") == "Running"
    jobs.finish("job")
    assert jobs.wait_phase("job", "Completed")["version"] == 1
    assert jobs.pods("job", "Succeeded") == before


def test_a_running_job_goes_back_to_volcano_with_its_pods(
    stage: Stage, jobs: VolcanoJobs, muster: Muster
) -> None:
    """Leave the job alone while Volcano's controllers run."""
    jobs.create("job")
    before = jobs.wait_pods("job", 2, "Running")
    with volcano_at_work(stage.api):
        wait_for(lambda: "left to Volcano" in muster.readyz(), what="Muster leaves the job")
        assert jobs.pods("job", "Running") == before
        stage.delete_pods(["job-work-0"])
        stage.wait_phase(stage.gang("a", 2))
        assert jobs.pods("job").keys() == {"job-work-1"}
    assert jobs.wait_pods("job", 2, "Running")["job-work-1"] == before["job-work-1"]


def test_a_job_continues_after_muster_was_killed(stage: Stage, jobs: VolcanoJobs, muster: Muster) -> None:
    jobs.create("job", maxRetry=5, policies=[policy("PodFailed", "RestartJob")])
    before = jobs.wait_pods("job", 2, "Running")
    jobs.finish("job", "job-work-0", phase="Failed")
    jobs.wait_status("job", retryCount=1)
    muster.restart(hard=True)
    before = jobs.wait_others("job", before)
    jobs.finish("job", "job-work-1", phase="Failed")
    muster.restart(hard=True)
    jobs.wait_others("job", before)
    assert jobs.wait_status("job", running=2)["retryCount"] == 2


def test_objects_for_plugins_and_volumes_are_created_with_the_rights_of_the_components(
    stage: Stage, proxy: FaultProxy, muster_behind_proxy: Muster, muster_user: User
) -> None:
    stage.start_sidecar(muster_behind_proxy, user=muster_user)
    stage.nodes(2, cpu="2")
    jobs = VolcanoJobs(stage.api, stage.namespace, stage.kubelet)
    plugins: dict[str, list[str]] = {
        "svc": [],
        "ssh": [],
        "env": [],
        "mpi": ["--master=master", "--worker=worker"],
    }
    jobs.create("mpi", task("master", 1), task("worker", 2), plugins=plugins)
    jobs.wait_pods("mpi", 3, "Running")
    uid = jobs.get("mpi")["metadata"]["uid"]
    secret = jobs.status("mpi")["controlledResources"]["plugin-ssh"]
    for kind, name in ((SERVICES, "mpi"), (CONFIG_MAPS, "mpi-svc"), (SECRETS, secret)):
        (owner,) = stage.api.get(kind, name, stage.namespace)["metadata"]["ownerReferences"]
        assert owner["uid"] == uid
    jobs.finish("mpi")
    jobs.wait_phase("mpi", "Completed")
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    jobs.create("data", volumes=[{"mountPath": "/data", "volumeClaim": claim}])
    wait_for(lambda: stage.api.items(VOLUME_CLAIMS, stage.namespace), what="its claim")
    jobs.wait_pods("data", 2)
    assert rights.refused(proxy.calls) == set()


def _events(stage: Stage, job: str, reason: str = "") -> list[str]:
    return [
        each["message"]
        for each in stage.api.items(EVENTS, stage.namespace)
        if each["involvedObject"]["name"] == job and reason in ("", each["reason"])
    ]


def test_a_job_that_is_nested_too_deeply_costs_no_other_job_its_start(
    stage: Stage, jobs: VolcanoJobs, muster: Muster
) -> None:
    """Read the job by a watch, then by a list, as the API server accepts it without a webhook."""
    head = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
    meta = {"name": "deep", "namespace": stage.namespace}
    spec = {"schedulerName": "volcano", "tasks": [{**task(), "template": {"spec": {"more": "DEEP"}}}]}
    body = json.dumps({**head, "metadata": meta, "spec": spec}).encode()
    deep = body.replace(b'"DEEP"', b'{"a":' * 2000 + b"1" + b"}" * 2000)
    path, kind = VOLCANO_JOBS.path(stage.namespace), "application/json"

    def is_shown() -> bool:
        return f"{stage.namespace}/deep" in muster.debug("/debug/bad-objects")["jobs"]

    assert stage.api.exchange("POST", path, deep, kind)[0] == 201
    try:
        wait_for(is_shown, what="the job is shown")
        jobs.create("first", task("all", 1))
        jobs.wait_pods("first", 1, "Running")
        muster.restart()
        jobs.create("second", task("all", 1))
        jobs.wait_pods("second", 1, "Running")
        wait_for(is_shown, what="the job is shown")
    finally:
        stage.api.exchange("DELETE", f"{path}/deep", None, kind)
