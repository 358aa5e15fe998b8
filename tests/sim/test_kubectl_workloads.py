"""Workloads made, scaled, changed and deleted by the real kubectl; their controllers and kubelets run."""

from collections.abc import Iterator

import pytest

from extender.apimachinery.kinds import NODES, PODS, STATEFUL_SETS
from extender.apimachinery.service import Service
from extender.sim.controllers.workloads import WorkloadControllers
from extender.sim.kubelets import Kubelets
from extender.sim.scheduler.extender import Extender
from extender.sim.scheduler.loop import Scheduler
from tests.e2e.harness import objects
from tests.e2e.harness.waiting import wait_for
from tests.sim.kubectl import Kubectl

LABEL = "app=web"
NOT_SERVED = "the server could not find the requested resource"


@pytest.fixture(autouse=True)
def running(service: Service) -> Iterator[None]:
    service.create(NODES, "", objects.node("n0", cpu="64"))
    parts = WorkloadControllers(service), Kubelets(service), Scheduler(service, Extender("127.0.0.1:9"))
    for part in parts:
        part.start()
    yield
    for part in parts:
        part.stop()


def pods(service: Service) -> list[str]:
    """Return the phases of pods that are not being deleted."""
    found = service.store.all(PODS)
    return [each["status"]["phase"] for each in found if "deletionTimestamp" not in each["metadata"]]


def test_a_deployment_is_created_scaled_followed_changed_and_deleted(
    kubectl: Kubectl, service: Service
) -> None:
    made = kubectl("create", "deployment", "web", "--image=x", "--replicas=2")
    assert made == "deployment.apps/web created\n"
    assert "successfully rolled out" in kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    assert pods(service) == ["Running"] * 2
    (replica_set,) = kubectl("get", "replicasets", "-o", "name").split()
    assert kubectl("scale", "deployment/web", "--replicas=3") == "deployment.apps/web scaled\n"
    kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    assert pods(service) == ["Running"] * 3
    kubectl("scale", "deployment/web", "--current-replicas=3", "--replicas=1")
    wait_for(lambda: pods(service) == ["Running"])
    assert kubectl("get", "replicasets", "-o", "name").split() == [replica_set]
    kubectl("label", "deployment/web", "team=a")
    kubectl("annotate", "deployment/web", "why=so")
    kubectl("set", "image", "deployment/web", "x=y")
    kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    wait_for(lambda: images(service) == ["y"])
    assert "deployment.apps/web" in kubectl("get", "all", "-o", "name")
    kubectl("delete", "deployment", "web")
    wait_for(lambda: pods(service) == [])
    assert kubectl("get", "all", "-o", "name") == ""


def images(service: Service) -> list[str]:
    return [pod["spec"]["containers"][0]["image"] for pod in service.store.all(PODS)]


def test_a_pod_of_a_deployment_that_is_deleted_is_made_again(kubectl: Kubectl, service: Service) -> None:
    kubectl("create", "deployment", "web", "--image=x")
    kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    (first,) = kubectl("get", "pods", "-o", "name").split()
    kubectl("delete", first)
    wait_for(lambda: pods(service) == ["Running"])
    assert kubectl("get", "pods", "-o", "name").split() != [first]


def test_pods_of_an_orphaned_deployment_stay(kubectl: Kubectl, service: Service) -> None:
    kubectl("create", "deployment", "web", "--image=x")
    kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    kubectl("delete", "deployment", "web", "--cascade=orphan")
    kubectl("create", "job", "after", "--image=x")
    wait_for(lambda: pods(service) == ["Running"] * 2)


def test_jobs_and_cron_jobs_make_their_pods(kubectl: Kubectl, service: Service) -> None:
    assert kubectl("create", "job", "once", "--image=x", "--", "true") == "job.batch/once created\n"
    kubectl("create", "cronjob", "nightly", "--image=x", "--schedule=0 3 * * *")
    wait_for(lambda: pods(service) == ["Running"] * 2)
    assert kubectl("get", "job", "once", "--no-headers").split()[1:3] == ["Running", "0/1"]
    kubectl("annotate", "pods", "--all", "sim.kube-muster.io/run-seconds=0")
    kubectl("wait", "job/once", "--for=condition=complete", "--timeout=30s")
    assert kubectl("get", "job", "once", "--no-headers").split()[1:3] == ["Complete", "1/1"]
    kubectl("delete", "job", "once")
    kubectl("delete", "cronjob", "nightly")
    wait_for(lambda: service.store.all(PODS) == [])


def test_all_fields_of_a_deployment_in_protobuf_stay(kubectl: Kubectl) -> None:
    """Keep each field, as if kubectl had written it in JSON."""
    command = ("create", "deployment", "web", "--image=x", "--image=y", "--replicas=0")
    names = ("-o", "jsonpath={.spec.replicas} {.spec.selector} {.spec.template.spec} {.metadata.labels}")
    output = kubectl(*command, "--dry-run=client", *names)
    assert kubectl(*command, *names) == output


def test_a_pod_is_run(kubectl: Kubectl, service: Service) -> None:
    arguments = ("--image=x", "--port=80", "--env=A=b", "--labels=app=web", "--restart=Never")
    assert kubectl("run", "one", *arguments) == "pod/one created\n"
    wait_for(lambda: pods(service) == ["Running"])
    shown = kubectl(
        "get", "pod", "one", "-o", "jsonpath={.spec.containers[0].env} {.spec.containers[0].ports}"
    )
    assert shown == '[{"name":"A","value":"b"}] [{"containerPort":80}]'


@pytest.mark.parametrize(
    "command",
    [
        "configmap x --from-literal=a=b",
        "secret generic x --from-literal=a=b",
        "service clusterip x --tcp=80",
        "role x --verb=get --resource=pods",
        "serviceaccount x",
        "pdb x --selector=app=web --min-available=1",
        "ingress x --rule=a/=b:80",
    ],
)
def test_kinds_that_are_not_served_are_not_found(kubectl: Kubectl, command: str) -> None:
    """Answer as a server that lacks them, without an error about the form of the body."""
    assert NOT_SERVED in kubectl.refused("create", *command.split())


def test_kinds_without_a_scale_are_not_scaled(kubectl: Kubectl) -> None:
    kubectl("create", "job", "once", "--image=x")
    assert NOT_SERVED in kubectl.refused("scale", "job/once", "--replicas=3")
    kubectl("create", "deployment", "web", "--image=x")
    refused = kubectl.refused("scale", "deployment/web", "--replicas=20000")
    assert "the embedded cluster makes at most 10000 pods, not 20000" in refused


def test_stateful_sets_keep_their_names(kubectl: Kubectl, service: Service) -> None:
    template = {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    spec = {
        "selector": {"matchLabels": {"app": "db"}},
        "replicas": 3,
        "serviceName": "",
        "template": template,
    }
    service.create(STATEFUL_SETS, "", {"metadata": {"name": "db"}, "spec": spec})
    kubectl("rollout", "status", "statefulset/db", "--timeout=30s")
    kubectl("scale", "statefulset", "db", "--replicas=2")
    wait_for(lambda: len(pods(service)) == 2)
    assert kubectl("get", "pods", "-o", "name").split() == ["pod/db-0", "pod/db-1"]
