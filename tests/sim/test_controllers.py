"""The controllers of the embedded cluster, without kubelets and a scheduler."""

import time

import pytest

from extender.apimachinery.errors import StatusError
from extender.apimachinery.kinds import KIND_BY_NAME, PODS, REPLICA_SETS, Json, ResourceKind
from extender.apimachinery.service import Service
from extender.files.offspring import children_of, compare_offspring, find_in_store
from extender.kube.connection import Connection
from extender.kube.errors import Refused
from extender.sim.controllers.workloads import WorkloadControllers
from tests.e2e.harness.waiting import wait_for
from tests.sim.requests import ask, get, patch

APPS = "/apis/apps/v1/namespaces/default"


def workload(kind: str, name: str = "web", api_version: str = "apps/v1", **spec: object) -> Json:
    pod = {
        "restartPolicy": "Never" if kind == "Job" else "Always",
        "containers": [{"name": "c", "image": "x"}],
    }
    template = {"metadata": {"labels": {"app": name}}, "spec": pod}
    selector = {} if kind == "Job" else {"selector": {"matchLabels": {"app": name}}}
    given = {**selector, "template": template, **spec}
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": given}


def create(service: Service, obj: Json) -> Json:
    return service.create(KIND_BY_NAME[obj["apiVersion"], obj["kind"]], "", obj)


def settled(controllers: WorkloadControllers, service: Service, kind: ResourceKind = PODS) -> list[Json]:
    """Return the objects of a kind once the controllers have looked at everything."""
    wait_for(lambda: not controllers.is_behind)
    return service.store.all(kind)


def test_the_scale_of_a_deployment_is_read_and_written(connection: Connection, service: Service) -> None:
    create(service, workload("Deployment", replicas=2))
    path = f"{APPS}/deployments/web/scale"
    scale = get(connection, path)
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert (scale["spec"], scale["status"]) == ({"replicas": 2}, {"replicas": 0, "selector": "app=web"})
    changed = ask(connection, "PUT", path, {**scale, "spec": {"replicas": 3}})
    assert changed["spec"] == {"replicas": 3}
    with pytest.raises(Refused, match="has been modified"):
        ask(connection, "PUT", path, scale)
    patch(connection, path, {"spec": {"replicas": 0}})
    assert get(connection, path)["spec"] == {}
    assert get(connection, path.removesuffix("/scale"))["metadata"]["generation"] == 3
    with pytest.raises(Refused, match="could not find the requested resource"):
        get(connection, "/apis/batch/v1/namespaces/default/jobs/a/scale")


def test_an_evicted_pod_of_a_job_is_made_again(controllers: WorkloadControllers, service: Service) -> None:
    create(service, workload("Job", api_version="batch/v1", parallelism=2, completions=2))
    first, second = settled(controllers, service)
    service.evict("default", first["metadata"]["name"], {})
    names = [pod["metadata"]["name"] for pod in settled(controllers, service)]
    assert len(names) == 2
    assert second["metadata"]["name"] in names


def test_pods_that_are_created_with_their_job_are_not_made_twice(
    controllers: WorkloadControllers, service: Service
) -> None:
    """`muster run` creates both at the time at which they arrive."""
    with controllers.creation_lock:
        job = create(service, workload("Job", api_version="batch/v1", parallelism=2, completions=2))
        time.sleep(0.05)  # enough for the controllers to make pods
        for child in children_of(job, find_in_store(service.store)):
            create(service, child)
    assert len(settled(controllers, service)) == 2


def test_a_suspended_job_has_no_pods(controllers: WorkloadControllers, service: Service) -> None:
    job = create(service, workload("Job", api_version="batch/v1", suspend=True))
    assert settled(controllers, service) == []

    def resumed(before: Json) -> Json:
        return {**before, "metadata": {**before["metadata"]}, "spec": {**before["spec"], "suspend": False}}

    service.amend(KIND_BY_NAME["batch/v1", "Job"], "default", job["metadata"]["name"], resumed)
    assert len(settled(controllers, service)) == 1


def test_an_old_replica_set_stays_without_pods(controllers: WorkloadControllers, service: Service) -> None:
    create(service, workload("Deployment", replicas=2))
    settled(controllers, service)
    container = {"name": "c", "image": "y"}

    def changed(before: Json) -> Json:
        template = {**before["spec"]["template"], "spec": {"containers": [container]}}
        return {
            **before,
            "metadata": {**before["metadata"]},
            "spec": {**before["spec"], "template": template},
        }

    service.amend(KIND_BY_NAME["apps/v1", "Deployment"], "default", "web", changed)
    wait_for(lambda: {_image(pod) for pod in settled(controllers, service)} == {"y"})
    counts = [each["spec"]["replicas"] for each in settled(controllers, service, REPLICA_SETS)]
    assert sorted(counts) == [0, 2]


def _image(pod: Json) -> str:
    image: str = pod["spec"]["containers"][0]["image"]
    return image


def test_a_template_without_containers_is_refused(service: Service) -> None:
    with pytest.raises(StatusError, match=r"spec\.template\.spec\.containers: Required value"):
        create(service, workload("Deployment", template={"metadata": {}, "spec": {}}))


def test_a_workload_whose_pods_are_refused_does_not_stop_the_others(
    controllers: WorkloadControllers, service: Service
) -> None:
    classless = {"priorityClassName": "none", "containers": [{"name": "c", "image": "x"}]}
    template = {"metadata": {"labels": {"app": "a"}}, "spec": classless}
    create(service, workload("Deployment", "a", template=template))
    create(service, workload("Deployment", "b"))
    wait_for(lambda: any(pod["metadata"]["name"].startswith("b-") for pod in service.store.all(PODS)))


def test_pods_that_are_on_no_node_go_first() -> None:
    replica_set = workload("ReplicaSet", replicas=1)
    pods = [_pod("old"), _pod("placed", node="n0"), _pod("ended", phase="Failed")]
    found = compare_offspring(replica_set, pods, lambda _: None)
    assert [pod["metadata"]["name"] for pod in found.surplus] == ["placed", "old"]
    assert found.missing == []


def _pod(name: str, node: str = "", phase: str = "Pending") -> Json:
    meta = {"name": name, "generateName": "web-", "resourceVersion": str(len(name))}
    return {"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": phase}}
