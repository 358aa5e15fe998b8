"""Jobs that wait as jobs in the cluster of `muster run`: Muster lets them go, its job controller follows."""

import json
from pathlib import Path

import pytest

from extender.api.keys import QUEUE
from extender.api.objects.base import OwnerReference
from extender.api.objects.queues import ABORT, RESUME, new_command
from extender.api.workloads.shape import VOLCANO_JOB
from extender.apimachinery.errors import StatusError
from extender.apimachinery.kinds import (
    COMMANDS,
    JOBS,
    KIND_BY_NAME,
    POD_GROUPS,
    PODS,
    RESOURCE_QUOTAS,
    VOLCANO_JOBS,
    Json,
)
from extender.apimachinery.managed_fields import UPDATE, Manager
from extender.apimachinery.service import Service, WriteOptions
from extender.domain.model.reasons import Verdict
from extender.files.creation import Creation
from extender.files.manifests import load
from extender.files.offspring import with_times_on_pods
from extender.sim.embedded import Embedded
from extender.sim.kubelets import RUN_SECONDS
from extender.sim.show.cluster_state import ShownObjects, observe
from tests.e2e.harness.jobs import job
from tests.e2e.harness.waiting import wait_for


@pytest.fixture
def cluster(embedded: Embedded) -> Embedded:
    embedded.make_nodes(1, "4", "16Gi")
    return embedded


def submit(cluster: Embedded, name: str, pods: int, **annotations: str) -> None:
    new_job = job(
        name, namespace="default", parallelism=pods, completions=pods, suspend=True, queue="default", cpu="1"
    )
    new_job["spec"]["template"]["metadata"].setdefault("annotations", {}).update(annotations)
    cluster.service.create(JOBS, "", new_job)


def create(cluster: Embedded, file: Path) -> None:
    """Create the objects of a file with their pods, while no controller makes the same pods."""
    with cluster.controllers.creation_lock:
        Creation(cluster.service).create(load([file]).objects)


def job_named(cluster: Embedded, name: str) -> Json:
    return cluster.service.get(JOBS, "default", name)


def pods(cluster: Embedded, name: str) -> list[Json]:
    return [each for each in cluster.store.all(PODS) if each["metadata"]["name"].startswith(f"{name}-")]


def reason(cluster: Embedded, name: str) -> str:
    return reason_of(cluster, f"podgroup-{job_named(cluster, name)['metadata']['uid']}")


def reason_of(cluster: Embedded, unit: str) -> str:
    group = cluster.store.get(POD_GROUPS, "default", unit)
    conditions = ((group or {}).get("status") or {}).get("conditions", [])
    return next((condition["reason"] for condition in conditions if condition["type"] == "Scheduled"), "")


def test_the_second_of_two_suspended_jobs_waits_without_pods_and_runs_after_the_first(
    cluster: Embedded,
) -> None:
    submit(cluster, "first", 3, **{RUN_SECONDS: "20"})
    wait_for(lambda: len(pods(cluster, "first")) == 3)
    submit(cluster, "second", 2, **{RUN_SECONDS: "10"})
    wait_for(lambda: reason(cluster, "second") == "NoRoom")
    assert job_named(cluster, "second")["spec"]["suspend"] is True
    assert pods(cluster, "second") == []
    wait_for(lambda: job_named(cluster, "second").get("status", {}).get("succeeded") == 2)
    wait_for(cluster.has_settled)


# ---- kinds whose pods others own

MPI = Path(__file__).parents[2] / "examples/frameworks/mpi.yaml"  # 5 cpus
LEADER_WORKER_SET: Json = {  # as the API has it, whose controller nothing plays here
    "apiVersion": "leaderworkerset.x-k8s.io/v1",
    "kind": "LeaderWorkerSet",
    "metadata": {"name": "served"},
    "spec": {
        "replicas": 1,
        "leaderWorkerTemplate": {
            "size": 5,
            "workerTemplate": {
                "spec": {
                    "schedulerName": "muster",
                    "containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}],
                }
            },
        },
    },
}


@pytest.mark.parametrize("group", ["podgroup-mpijob-pi", "podgroup-leaderworkerset-served.0"])
def test_gangs_whose_pods_others_own_do_not_start_in_pieces(
    cluster: Embedded, tmp_path: Path, group: str
) -> None:
    written = tmp_path / "set.yaml"
    written.write_text(json.dumps(LEADER_WORKER_SET))
    create(cluster, MPI if "mpijob" in group else written)
    wait_for(lambda: reason_of(cluster, group) == "NeverFits")
    assert len(cluster.store.all(PODS)) in (3, 5)
    assert not any(pod["spec"].get("nodeName") for pod in cluster.store.all(PODS))


def test_pods_enter_the_queue_that_their_owner_names(cluster: Embedded, tmp_path: Path) -> None:
    pod = {"schedulerName": "muster", "containers": [{"name": "main", "image": "x"}]}
    workflow = {
        "schedulerName": "muster",
        "entrypoint": "a",
        "templates": [{"name": "a", "container": {"image": "x"}}],
    }
    service = {"rayClusterConfig": {"headGroupSpec": {"template": {"spec": pod}}}}
    meta = {"name": "a", "annotations": {QUEUE: "research"}}
    objects = [
        {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "research"}},
        {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": meta, "spec": workflow},
        {"apiVersion": "ray.io/v1", "kind": "RayService", "metadata": meta, "spec": service},
    ]
    written = tmp_path / "owners.json"
    written.write_text(json.dumps({"kind": "List", "items": objects}))
    create(cluster, written)

    def entered() -> list[str]:
        return [group["spec"]["queue"] for group in cluster.store.all(POD_GROUPS)]

    wait_for(lambda: entered() == ["research", "research"])


def test_a_kind_without_a_controller_here_is_refused_from_clients(service: Service) -> None:
    kind = KIND_BY_NAME["leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"]
    client = WriteOptions(Manager("kubectl", UPDATE, kind.api_version))
    with pytest.raises(StatusError, match="no controller makes its pods here"):
        service.create(kind, "default", LEADER_WORKER_SET, client)


def volcano_job(cluster: Embedded, name: str, pods: int, seconds: str) -> None:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    meta = {"name": name, "namespace": "default", "annotations": {RUN_SECONDS: seconds}}
    spec = {"schedulerName": "muster", "tasks": [{"name": "a", "replicas": pods, "template": template}]}
    cluster.service.create(VOLCANO_JOBS, "", with_times_on_pods({"metadata": meta, "spec": spec}))


def phase(cluster: Embedded, name: str) -> str:
    found = cluster.service.get(VOLCANO_JOBS, "default", name)
    return str(((found.get("status") or {}).get("state") or {}).get("phase", ""))


def command(cluster: Embedded, name: str, action: str) -> None:
    meta = cluster.service.get(VOLCANO_JOBS, "default", name)["metadata"]
    owner = OwnerReference(*VOLCANO_JOB, name, meta["uid"], controller=True)
    made = new_command(owner, action)
    cluster.service.create(COMMANDS, "", made | {"metadata": {**made["metadata"], "namespace": "default"}})


def test_volcano_jobs_wait_without_pods_are_stopped_by_commands_and_run_to_their_end(
    cluster: Embedded,
) -> None:
    volcano_job(cluster, "first", 3, "1000")
    wait_for(lambda: phase(cluster, "first") == "Running")
    volcano_job(cluster, "second", 2, "10")
    uid = cluster.service.get(VOLCANO_JOBS, "default", "second")["metadata"]["uid"]
    wait_for(lambda: reason_of(cluster, f"second-{uid}") == "NoRoom")
    wait_for(lambda: phase(cluster, "second") == "Pending")
    assert pods(cluster, "second") == []
    command(cluster, "first", ABORT)
    wait_for(lambda: phase(cluster, "second") == "Completed")
    assert (phase(cluster, "first"), pods(cluster, "first")) == ("Aborted", [])
    command(cluster, "first", RESUME)
    wait_for(lambda: phase(cluster, "first") == "Running")
    assert len(pods(cluster, "first")) == 3


def test_a_volcano_job_whose_pods_a_quota_refuses_goes_back_until_they_are_taken(cluster: Embedded) -> None:
    quota = {"metadata": {"name": "two", "namespace": "default"}, "spec": {"hard": {"pods": "2"}}}
    cluster.service.create(RESOURCE_QUOTAS, "", quota)
    volcano_job(cluster, "cut", 3, "10")
    uid = cluster.service.get(VOLCANO_JOBS, "default", "cut")["metadata"]["uid"]
    wait_for(lambda: reason_of(cluster, f"cut-{uid}") == "BackingOff" and cluster.has_settled())
    assert (pods(cluster, "cut"), phase(cluster, "cut")) == ([], "Pending")
    cluster.service.delete(RESOURCE_QUOTAS, "default", "two", {})
    wait_for(lambda: phase(cluster, "cut") == "Completed")


def test_a_job_that_waits_is_shown_with_the_pods_that_it_will_have(cluster: Embedded) -> None:
    submit(cluster, "large", 5)
    wait_for(lambda: reason(cluster, "large") in ("NoRoom", "NeverFits"))
    (gang,) = observe(ShownObjects.in_store(cluster.store), cluster.muster.debug_page).gangs
    assert (gang.title, gang.state, gang.size) == ("default/job/large", Verdict.WAITING, 5)
    assert not gang.pods


def test_a_job_whose_pods_a_quota_refuses_frees_its_capacity_and_the_cluster_settles(
    cluster: Embedded,
) -> None:
    """It is refused again and again, until the quota or what counts for it changes."""
    quota = {"metadata": {"name": "two", "namespace": "default"}, "spec": {"hard": {"pods": "2"}}}
    cluster.service.create(RESOURCE_QUOTAS, "", quota)
    submit(cluster, "cut", 3)
    wait_for(lambda: len(pods(cluster, "cut")) == 2)
    submit(cluster, "next", 2, **{RUN_SECONDS: "10"})
    wait_for(lambda: job_named(cluster, "next").get("status", {}).get("succeeded") == 2)
    wait_for(lambda: reason(cluster, "cut") == "BackingOff" and cluster.has_settled())
    cluster.service.delete(RESOURCE_QUOTAS, "default", "two", {})
    wait_for(lambda: not cluster.has_settled())
    wait_for(lambda: len(pods(cluster, "cut")) == 3)
