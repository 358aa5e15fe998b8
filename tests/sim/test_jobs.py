"""Jobs on the embedded cluster: what the real job controller does with pods that end, and with suspension."""

from typing import Any

import pytest

from extender.apimachinery.kinds import JOBS, PODS, Json
from extender.apimachinery.service import Service
from extender.sim.controllers.workloads import WorkloadControllers
from tests.e2e.harness.waiting import wait_for
from tests.sim.test_controllers import create, settled, workload

RUNNING = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


class Jobs:
    """One Job, and what is done to it and its pods."""

    def __init__(self, service: Service, controllers: WorkloadControllers) -> None:
        self._service = service
        self._controllers = controllers

    def create(self, **spec: Any) -> list[Json]:
        create(self._service, workload("Job", "work", "batch/v1", **spec))
        return self.active()

    def change(self, **spec: Any) -> None:
        def changed(before: Json) -> Json:
            return {**before, "metadata": {**before["metadata"]}, "spec": {**before["spec"], **spec}}

        self._service.amend(JOBS, "default", "work", changed)

    def set_status(self, pod: Json, **status: Any) -> None:
        """Set the status of one of its pods, as a kubelet does."""

        def ready(before: Json) -> Json:
            uid = {"uid": before["metadata"]["uid"]}
            return {**before, "metadata": uid, "status": {**before["status"], **status}}

        self._service.amend(PODS, "default", pod["metadata"]["name"], ready, "status")

    def end(self, *pods: Json, phase: str = "Succeeded") -> None:
        for pod in pods:
            self.set_status(pod, phase=phase)

    def pods(self) -> list[Json]:
        return settled(self._controllers, self._service)

    def active(self) -> list[Json]:
        return [pod for pod in self.pods() if pod["status"]["phase"] in ("Pending", "Running")]

    def status(self) -> Json:
        wait_for(lambda: not self._controllers.is_behind)
        return dict(self._service.get(JOBS, "default", "work").get("status") or {})

    def conditions(self) -> dict[str, str]:
        return {each["type"]: f"{each['status']} {each['reason']}" for each in self.status()["conditions"]}

    def wait_active(self, count: int) -> list[Json]:
        wait_for(lambda: len(self.active()) == count and self.status().get("active", 0) == count)
        return self.active()


@pytest.fixture
def jobs(service: Service, controllers: WorkloadControllers) -> Jobs:
    return Jobs(service, controllers)


def indexes(pods: list[Json]) -> list[int]:
    key = "batch.kubernetes.io/job-completion-index"
    return sorted(int(pod["metadata"]["annotations"][key]) for pod in pods)


def test_later_pods_come_as_earlier_ones_succeed(jobs: Jobs) -> None:
    first = jobs.create(parallelism=2, completions=5)
    assert len(first) == 2
    jobs.end(*first)
    second = jobs.wait_active(2)
    jobs.end(*second)
    (last,) = jobs.wait_active(1)
    assert "conditions" not in jobs.status()
    jobs.end(last)
    wait_for(lambda: jobs.status().get("succeeded") == 5)
    assert jobs.conditions() == {
        "SuccessCriteriaMet": "True CompletionsReached",
        "Complete": "True CompletionsReached",
    }
    assert {"startTime", "completionTime"} < jobs.status().keys()
    assert "active" not in jobs.status()
    assert len(jobs.pods()) == 5


def test_a_suspended_job_waits_without_pods_and_starts_when_it_is_resumed(jobs: Jobs) -> None:
    assert jobs.create(parallelism=2, completions=2, suspend=True) == []
    assert jobs.conditions() == {"Suspended": "True JobSuspended"}
    assert "startTime" not in jobs.status()
    jobs.change(suspend=False)
    pods = jobs.wait_active(2)
    assert jobs.conditions() == {"Suspended": "False JobResumed"}
    assert "startTime" in jobs.status()
    jobs.end(*pods)
    wait_for(lambda: "Complete" in jobs.conditions())


def test_a_job_suspended_while_it_runs_loses_its_active_pods_and_counts_none_of_them(jobs: Jobs) -> None:
    first, second = jobs.create(parallelism=2, completions=3, backoffLimit=0)
    jobs.set_status(second, **RUNNING)
    jobs.end(first)
    wait_for(lambda: jobs.status().get("ready") == 1)
    jobs.change(suspend=True)
    jobs.wait_active(0)
    status = jobs.status()
    assert (status.get("succeeded"), status.get("failed"), status["ready"]) == (1, None, 0)
    assert "startTime" not in status
    assert jobs.conditions() == {"Suspended": "True JobSuspended"}
    jobs.change(suspend=False)
    jobs.end(*jobs.wait_active(2))
    wait_for(lambda: jobs.status().get("succeeded") == 3)


def test_a_failed_pod_is_made_again_up_to_the_limit(jobs: Jobs) -> None:
    pod, _ = jobs.create(parallelism=2, completions=2, backoffLimit=1)
    jobs.end(pod, phase="Failed")
    wait_for(lambda: jobs.status().get("failed") == 1)
    pod, _ = jobs.wait_active(2)
    jobs.end(pod, phase="Failed")
    wait_for(lambda: "Failed" in jobs.conditions())
    assert jobs.conditions() == {
        "FailureTarget": "True BackoffLimitExceeded",
        "Failed": "True BackoffLimitExceeded",
    }
    assert jobs.wait_active(0) == []


def test_a_deleted_pod_counts_as_failed(jobs: Jobs, service: Service) -> None:
    (pod,) = jobs.create(completions=1)
    service.delete(PODS, "default", pod["metadata"]["name"], {})
    (another,) = jobs.wait_active(1)
    assert another["metadata"]["uid"] != pod["metadata"]["uid"]
    assert jobs.status()["failed"] == 1


def test_a_pod_that_succeeded_counts_although_it_is_deleted(jobs: Jobs, service: Service) -> None:
    (pod,) = jobs.create(parallelism=1, completions=2)
    jobs.end(pod)
    (last,) = jobs.wait_active(1)
    service.delete(PODS, "default", pod["metadata"]["name"], {})
    jobs.end(last)
    wait_for(lambda: jobs.status().get("succeeded") == 2)
    assert "Complete" in jobs.conditions()


def test_indexes_are_made_once_each_and_again_when_they_fail(jobs: Jobs) -> None:
    first = jobs.create(parallelism=3, completions=5, completionMode="Indexed")
    assert indexes(first) == [0, 1, 2]
    zero, _, two = sorted(first, key=lambda pod: str(pod["metadata"]["name"]))
    jobs.end(two)
    jobs.end(zero, phase="Failed")
    wait_for(lambda: indexes(jobs.active()) == [0, 1, 3])
    assert jobs.status()["completedIndexes"] == "2"
    jobs.end(*jobs.active())
    wait_for(lambda: indexes(jobs.active()) == [4])
    jobs.end(*jobs.active())
    wait_for(lambda: "Complete" in jobs.conditions())
    assert jobs.status()["completedIndexes"] == "0-4"


def test_changed_parallelism_is_followed(jobs: Jobs) -> None:
    assert len(jobs.create(parallelism=3, completions=9)) == 3
    jobs.change(parallelism=5)
    jobs.wait_active(5)
    jobs.change(parallelism=1)
    jobs.wait_active(1)
    assert "failed" not in jobs.status()


def test_without_completions_one_success_ends_it_once_the_others_have_ended(jobs: Jobs) -> None:
    first, second = jobs.create(parallelism=2)
    jobs.end(first)
    wait_for(lambda: jobs.status().get("succeeded") == 1)
    assert jobs.active() == [second]
    assert "conditions" not in jobs.status()
    jobs.end(second, phase="Failed")
    wait_for(lambda: "Complete" in jobs.conditions())


def test_a_job_that_wants_no_success_is_complete(jobs: Jobs) -> None:
    assert jobs.create(parallelism=2, completions=0) == []
    wait_for(lambda: "Complete" in jobs.conditions())
