"""Before 1.36 no policy of the API server gates pods: Muster's webhook does. Tried on each release."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.harness import objects
from tests.e2e.harness.access import User
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.policy import gates_pods
from tests.e2e.harness.resources import PODS
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.webhooks import POD_WEBHOOK, Port, configured

DEFAULT = "default-scheduler"
MARKERS = {"kube-muster.io/place": "1", "kube-muster.io/bind": "1"}
LEFT_ALONE = ("kube-system", "kube-muster")
RESTRICTED_CONTEXT = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.fixture
def port(stage: Stage) -> Iterator[Port]:
    """Yield Muster's port; the configurations name it, and wait for the CA that Muster makes."""
    port = Port()
    with configured(stage.api, port, POD_WEBHOOK):
        yield port


@pytest.fixture
def muster(stage: Stage, muster_user: User, port: Port) -> Muster:
    """Start the Muster of the sidecar pair, with a certificate that it makes itself."""
    muster = stage.start_muster(*port.flags("self-signed"), user=muster_user)
    _wait_in_force(stage)
    return muster


@pytest.mark.usefixtures("scheduler")
def test_a_gang_is_born_gated_and_starts_whole(stage: Stage) -> None:
    stage.nodes(2, cpu="4")
    filler = stage.pods("filler", 1, cpu="4")
    stage.wait_phase(filler)
    gang = stage.gang("a", 3, cpu="2")
    assert _gates(stage, *gang) == [[objects.GATE]] * 3
    stage.wait_reason("a", "NoRoom")
    assert stage.bound(gang) == {}
    stage.finish(filler)
    stage.wait_phase(gang)


@pytest.mark.usefixtures("muster")
def test_the_pod_webhook_leaves_other_pods_alone(stage: Stage) -> None:
    """Pods of other schedulers, pods that have a node, and the namespaces of Muster and of the cluster."""
    stage.nodes(1)
    assert _born(stage, stage.namespace) == [objects.GATE]
    assert _born(stage, stage.namespace, scheduler=DEFAULT) == []
    assert _born(stage, stage.namespace, nodeName="n0") == []
    assert [_born(stage, each) for each in LEFT_ALONE] == [[], []]
    theirs = [{"name": "example.com/theirs"}]
    assert _born(stage, stage.namespace, schedulingGates=theirs) == ["example.com/theirs", objects.GATE]


@pytest.mark.usefixtures("scheduler")
def test_pods_come_without_a_gate_while_muster_is_down_and_are_served(stage: Stage, muster: Muster) -> None:
    stage.nodes(2, cpu="4")
    stage.group("a", 3)
    before = stage.pods("before", 1, group="a")
    muster.wait_decision(stage.namespace, "a", reason="NotEnoughMembers")
    assert _gates(stage, *before) == [[objects.GATE]]
    muster.kill()
    meanwhile = stage.pods("meanwhile", 2, group="a")
    assert _gates(stage, *meanwhile) == [[], []]
    muster.start()
    stage.wait_phase([*before, *meanwhile])


def test_gangs_of_the_default_scheduler_get_marker_resources(
    stage: Stage, muster_user: User, port: Port
) -> None:
    """Leave pods from the time while Muster is down unmarked: the scheduler places them as any others."""
    flags = port.flags("self-signed")
    muster = stage.start_muster(*flags, user=muster_user, scheduler_names=(DEFAULT, "muster"))
    _wait_in_force(stage)
    stage.start_scheduler("default-scheduler.yaml", muster=muster.address)
    stage.nodes(3, cpu="4")
    plain = stage.pods("plain", 3, scheduler=DEFAULT)
    gang = stage.gang("a", 3, cpu="3", scheduler=DEFAULT)
    stage.wait_phase([*plain, *gang])
    assert _marks(stage, *plain, *gang) == [{}] * 3 + [MARKERS] * 3
    muster.wait_calls("bind", 3)
    stage.delete_pods(gang)
    muster.kill()
    meanwhile = stage.pods("meanwhile", 1, queue="default", scheduler=DEFAULT)
    stage.wait_phase(meanwhile)
    assert _marks(stage, *meanwhile) == [{}]


def _wait_in_force(stage: Stage) -> None:
    wait_for(lambda: gates_pods(stage.api, stage.namespace), what="the pod webhook in force")


def _gates(stage: Stage, *names: str) -> list[list[str]]:
    return [_gates_of(stage.pod(name)) for name in names]


def _born(stage: Stage, namespace: str, **pod: Any) -> list[str]:
    """Return the gates with which such a pod would be born.

    It keeps to the rules of Muster's own namespace.
    """
    container = {"name": "main", "image": objects.PAUSE_IMAGE, "securityContext": RESTRICTED_CONTEXT}
    shown = objects.pod("sample", namespace=namespace, containers=[container], **pod)
    return _gates_of(stage.api.request("POST", f"{PODS.path(namespace)}?dryRun=All", shown))


def _gates_of(pod: dict[str, Any]) -> list[str]:
    return [each["name"] for each in pod["spec"].get("schedulingGates", [])]


def _marks(stage: Stage, *names: str) -> list[dict[str, str]]:
    asked = [stage.pod(name)["spec"]["containers"][0]["resources"]["requests"] for name in names]
    return [{key: value for key, value in each.items() if key in MARKERS} for each in asked]
