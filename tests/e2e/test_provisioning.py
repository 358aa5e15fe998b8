"""Queues whose groups ask for nodes by ProvisioningRequests; the test plays the autoscaler."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.harness import manifests, objects, rights
from tests.e2e.harness.access import User
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.fault_proxy import FaultProxy
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import NODES, POD_TEMPLATES, PROVISIONING_REQUESTS, QUEUES
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for
from tests.e2e.test_pod_conditions import CAPACITY_REASONS, wait_conditions

pytestmark = pytest.mark.view

Json = dict[str, Any]
KIND = Path(__file__).parent / "data" / "provisioning-requests.yaml"
RIGHTS = "provisioning/rbac.yaml"
CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
PROVISIONING = {"className": CLASS, "parameters": {"ValidUntilSeconds": "60"}}
BY_REQUEST = (CAPACITY_REASONS[0].replace("Unschedulable", "NoRoom"), CAPACITY_REASONS[1])


@pytest.fixture(scope="module", autouse=True)
def kind(cluster: ControlPlane) -> Iterator[None]:
    """Install the kind before Muster, which looks for it every 30 s."""
    written = manifests.install(cluster.admin, list(yaml.safe_load_all(KIND.read_text())))
    yield
    manifests.remove(cluster.admin, written)


@pytest.fixture
def component(cluster: ControlPlane) -> Iterator[None]:
    """Install the rights, before Muster looks for them."""
    with manifests.applied(cluster.admin, RIGHTS):
        yield


@pytest.fixture
def far_scheduler(stage: Stage, muster_behind_proxy: Muster, muster_user: User) -> KubeScheduler:
    """Start a scheduler next to a Muster that reaches the API server through `proxy`."""
    return stage.start_sidecar(muster_behind_proxy, user=muster_user)


def full(stage: Stage) -> None:
    """Create a queue that asks for nodes, and fill the cluster with its pods; nothing is reclaimed."""
    stage.queue("team", provisioning=PROVISIONING)
    stage.nodes(2, cpu="4")
    stage.wait_phase(stage.pods("filler", 2, cpu="4", queue="team"))


def requests(stage: Stage) -> list[Json]:
    return list(stage.api.items(PROVISIONING_REQUESTS, stage.namespace))


def wait_request(stage: Stage) -> Json:
    (found,) = wait_for(lambda: requests(stage), what="a ProvisioningRequest")
    return found


def report(stage: Stage, request: Json, kind: str, message: str) -> None:
    """Write a condition as the autoscaler."""
    condition = {
        "type": kind,
        "status": "True",
        "reason": kind,
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    name = request["metadata"]["name"]
    stage.api.patch(
        PROVISIONING_REQUESTS, name, {"status": {"conditions": [condition]}}, stage.namespace, "status"
    )


def provide(stage: Stage, request: Json) -> None:
    """Create a node for each pod as an autoscaler does, as large as its template in the API asks."""
    for pod_set in request["spec"]["podSets"]:
        template = stage.api.get(POD_TEMPLATES, pod_set["podTemplateRef"]["name"], stage.namespace)
        (container,) = template["template"]["spec"]["containers"]
        cpu = container["resources"]["requests"]["cpu"]
        for number in range(pod_set["count"]):
            stage.api.create(NODES, objects.node(f"{template['metadata']['name']}-{number}", cpu=cpu))
    report(stage, request, "Provisioned", "nodes are there")


@pytest.mark.usefixtures("component")
def test_a_gang_that_lacks_capacity_gets_its_nodes_by_one_request(
    stage: Stage, proxy: FaultProxy, muster_behind_proxy: Muster, far_scheduler: KubeScheduler
) -> None:
    stage.start_controller_manager()
    full(stage)
    stage.group("a", 3, queue="team")
    gang = [*stage.pods("a", 2, group="a", cpu="2"), *stage.pods("a", 1, first=2, group="a", cpu="3")]
    request = wait_request(stage)
    assert request["spec"]["provisioningClassName"] == CLASS
    assert request["spec"]["parameters"] == PROVISIONING["parameters"]
    assert sorted(each["count"] for each in request["spec"]["podSets"]) == [1, 2]
    (owner,) = request["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("PodGroup", "a")
    wait_conditions(stage, gang, BY_REQUEST)
    wait_for(lambda: len(stage.api.items(POD_TEMPLATES, stage.namespace)) == 2, what="both templates")
    provide(stage, request)
    stage.wait_phase(gang)
    wait_for(lambda: not requests(stage), what="the request is deleted")
    wait_for(lambda: not stage.api.items(POD_TEMPLATES, stage.namespace), what="its templates go with it")
    assert rights.refused(proxy.calls) == set()


@pytest.mark.usefixtures("component")
def test_a_failure_of_the_autoscaler_is_in_the_condition_of_the_group(
    stage: Stage, muster_behind_proxy: Muster, far_scheduler: KubeScheduler
) -> None:
    full(stage)
    stage.gang("a", 2, queue="team", cpu="2")
    request = wait_request(stage)
    report(stage, request, "Failed", "no quota is left in zone a")
    failure = f"; ProvisioningRequest {request['metadata']['name']} failed: no quota is left in zone a"

    def message() -> str:
        (scheduled,) = [
            each for each in stage.pod_group("a")["status"]["conditions"] if each["type"] == "Scheduled"
        ]
        return str(scheduled["message"])

    wait_for(lambda: message().endswith(failure), what="the PodGroup reports why")
    assert stage.reason("a") == "NoRoom"
    stage.start_controller_manager()
    stage.api.delete(PROVISIONING_REQUESTS, request["metadata"]["name"], stage.namespace)
    wait_for(lambda: requests(stage) and templates_are_its_own(stage), what="another one with its template")
    wait_for(lambda: failure not in message(), what="the PodGroup no longer reports the first failure")


def templates_are_its_own(stage: Stage) -> bool:
    """Return whether all templates are of existing requests; those of a deleted one have its UID."""
    owners = {
        owner["uid"]
        for each in stage.api.items(POD_TEMPLATES, stage.namespace)
        for owner in each["metadata"]["ownerReferences"]
    }
    return owners == {request["metadata"]["uid"] for request in requests(stage)}


@pytest.mark.usefixtures("component")
def test_a_restart_requests_nothing_twice_and_withdraws_what_is_not_needed(
    stage: Stage, proxy: FaultProxy, muster_behind_proxy: Muster, far_scheduler: KubeScheduler
) -> None:
    full(stage)
    gang = stage.gang("a", 2, queue="team", cpu="2")
    request = wait_request(stage)
    muster_behind_proxy.restart(hard=True)
    later = stage.gang("b", 2, queue="team", cpu="2")
    wait_for(lambda: len(requests(stage)) == 2, what="the request of the second gang")
    assert request["metadata"]["uid"] in {request["metadata"]["uid"] for request in requests(stage)}
    stage.api.patch(QUEUES, "team", {"spec": {"capability": {"cpu": "1"}}})
    stage.wait_reason("a", "NeverFits")
    wait_for(lambda: not requests(stage), what="both are withdrawn")
    assert stage.bound([*gang, *later]) == {}


def test_without_the_rights_pods_ask_as_in_other_queues(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    full(stage)
    gang = stage.gang("a", 2, queue="team", cpu="2")
    wait_conditions(stage, gang, CAPACITY_REASONS)
    assert requests(stage) == []
