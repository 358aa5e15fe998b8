"""Jobs of operators on the embedded cluster: their kinds are served, and suspension is heeded."""

import pytest

from extender.api.workloads.shape import outcome_of
from extender.apimachinery.kinds import JOBS, KIND_BY_NAME, OPERATOR_KINDS, PODS, Json, ResourceKind
from extender.apimachinery.service import Service
from extender.kube.connection import Connection
from extender.sim.controllers.workloads import WorkloadControllers
from tests.api import job_files
from tests.e2e.harness.waiting import wait_for
from tests.sim.requests import JSON_PATCH, get, patch
from tests.sim.test_controllers import settled

PODS_OF = {
    "jaxjob": 2,
    "jobset": 9,
    "mpijob": 3,
    "mpijob-v1": 3,
    "paddlejob": 2,
    "pytorchjob": 3,
    "raycluster": 5,
    "rayjob": 5,
    "tfjob": 6,
    "trainjob": 4,
    "xgboostjob": 3,
}


class OperatorJob:
    """One of the files, created suspended."""

    def __init__(self, service: Service, controllers: WorkloadControllers, file: str) -> None:
        self._service = service
        self._controllers = controllers
        given = job_files.waiting(file)
        self.row = job_files.row_of(given)
        self.kind: ResourceKind = KIND_BY_NAME[self.row.key]
        given["metadata"] = {**given["metadata"], "uid": "", "namespace": "default"}
        self.name: str = service.create(self.kind, "", given)["metadata"]["name"]

    def object(self) -> Json:
        wait_for(lambda: not self._controllers.is_behind)
        return self._service.get(self.kind, "default", self.name)

    def suspend(self, value: bool) -> None:
        def changed(before: Json) -> Json:
            return {
                **dict(job_files.put(before, self.row.suspend, value)),
                "metadata": {**before["metadata"]},
            }

        self._service.amend(self.kind, "default", self.name, changed)

    def pods(self) -> list[Json]:
        return settled(self._controllers, self._service)

    def wait_pods(self, count: int) -> list[Json]:
        wait_for(lambda: len(self.pods()) == count, what=f"{self.name}: {count} pods")
        return self.pods()

    def end(self, pods: list[Json], phase: str) -> None:
        for pod in pods:

            def ready(before: Json) -> Json:
                status = {**before["status"], "phase": phase}
                return {**before, "metadata": {"uid": before["metadata"]["uid"]}, "status": status}

            self._service.amend(PODS, "default", pod["metadata"]["name"], ready, "status")


def test_each_kind_has_a_file() -> None:
    files = {job_files.row_of(job_files.waiting(name)).key for name in PODS_OF}
    assert files == {(kind.api_version, kind.name) for kind in OPERATOR_KINDS}


@pytest.mark.parametrize("file", PODS_OF)
def test_pods_are_there_while_a_job_is_not_suspended(
    service: Service, controllers: WorkloadControllers, file: str
) -> None:
    job = OperatorJob(service, controllers, file)
    assert job.pods() == []
    job.suspend(False)
    first = job.wait_pods(PODS_OF[file])
    job.suspend(True)
    job.wait_pods(0)
    job.suspend(False)
    second = job.wait_pods(PODS_OF[file])
    assert not {pod["metadata"]["uid"] for pod in first} & {pod["metadata"]["uid"] for pod in second}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("file", [name for name in PODS_OF if name != "raycluster"])
def test_a_job_ends_as_its_pods_do(
    service: Service, controllers: WorkloadControllers, file: str, phase: str
) -> None:
    job = OperatorJob(service, controllers, file)
    job.suspend(False)
    pods = job.wait_pods(PODS_OF[file])

    def ended() -> bool:
        job.end([pod for pod in job.pods() if pod["status"]["phase"] == "Pending"], phase)
        return outcome_of(job.row, job.object()) is not None

    assert len(pods) == PODS_OF[file]
    wait_for(ended, what=f"{job.name} has ended")
    outcome = outcome_of(job.row, job.object())
    assert outcome is not None
    assert outcome.value == phase


def test_a_suspended_jobset_says_so(service: Service, controllers: WorkloadControllers) -> None:
    job = OperatorJob(service, controllers, "jobset")

    def conditions() -> dict[str, str]:
        found = (job.object().get("status") or {}).get("conditions", ())
        return {each["type"]: each["status"] for each in found}

    wait_for(lambda: conditions() == {"Suspended": "True"})
    job.suspend(False)
    wait_for(lambda: conditions() == {"Suspended": "False"})


def test_finished_jobs_of_a_jobset_stay_when_it_is_suspended(
    service: Service, controllers: WorkloadControllers
) -> None:
    job = OperatorJob(service, controllers, "jobset")
    job.suspend(False)
    pods = job.wait_pods(PODS_OF["jobset"])
    owner = pods[0]["metadata"]["ownerReferences"][0]["name"]
    mine = [pod for pod in pods if pod["metadata"]["ownerReferences"][0]["name"] == owner]
    job.end(mine, "Succeeded")
    wait_for(lambda: service.get(JOBS, "default", owner)["status"].get("succeeded") == len(mine))
    job.suspend(True)
    wait_for(lambda: [each["metadata"]["name"] for each in settled(controllers, service, JOBS)] == [owner])


def test_the_api_serves_them(connection: Connection, service: Service) -> None:
    given = job_files.waiting("pytorchjob")
    made = service.create(
        KIND_BY_NAME[given["apiVersion"], given["kind"]], "default", {**given, "metadata": {"name": "p"}}
    )
    path = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/p"
    assert get(connection, path)["spec"] == given["spec"]
    operations = [
        {"op": "test", "path": "/metadata/uid", "value": made["metadata"]["uid"]},
        {"op": "replace", "path": "/spec/runPolicy/suspend", "value": False},
    ]
    changed = patch(connection, path, operations, JSON_PATCH)
    assert changed["spec"]["runPolicy"]["suspend"] is False
    assert changed["metadata"]["generation"] == 2
