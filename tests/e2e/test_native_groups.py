"""Kubernetes' own PodGroup, on an API server that serves it: alpha, and off, in the pinned release."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.conftest import KUBERNETES
from tests.e2e.harness import manifests
from tests.e2e.harness.access import ADMIN, User
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.kubelet import Kubelet
from tests.e2e.harness.objects import namespace
from tests.e2e.harness.observer import Observer
from tests.e2e.harness.resources import NAMESPACES, NATIVE_POD_GROUPS, POD_GROUPS
from tests.e2e.harness.shell import Shell
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

ALPHA = ("--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1alpha2=true")
NAMESPACE = "native"
STOOD_WHOLE = "kube-muster.io/stood-whole"

pytestmark = pytest.mark.skipif(KUBERNETES != "1.36", reason="v1alpha2 is served by 1.36 alone")


@pytest.fixture
def native_stage() -> Iterator[Stage]:
    """On a control plane of its own, whose scheduler knows nothing of groups."""
    users = manifests.service_accounts()
    with ControlPlane(kubernetes=KUBERNETES, users=users, apiserver_flags=ALPHA) as cluster:
        manifests.apply(cluster.admin, *manifests.INSTALLED)
        cluster.admin.create(NAMESPACES, namespace(NAMESPACE))
        with Observer(cluster.admin) as observer, Kubelet(cluster.admin) as kubelet:
            made = Stage(cluster, NAMESPACE, kubelet, observer)
            with made.started:
                yield made


def test_a_native_group_starts_whole(native_stage: Stage, muster_user: User) -> None:
    stage = native_stage
    body: dict[str, Any] = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "a", "namespace": NAMESPACE},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}},
    }
    stage.api.create(NATIVE_POD_GROUPS, body)
    muster = stage.start_muster(user=muster_user)
    stage.start_sidecar(muster, user=muster_user)
    stage.nodes(1, cpu="2")
    gang = stage.pods("a", 3, schedulingGroup={"podGroupName": "a"})
    muster.wait_decision(NAMESPACE, "a", verdict="Waiting", minMember=3)
    assert stage.bound(gang) == {}
    admin = Shell(stage.cluster, ADMIN, NAMESPACE)
    message = "The pod's group a is a PodGroup of Kubernetes itself"
    wait_for(
        lambda: message in " ".join(admin.output("why", "a-0").split()), what="why knows the native group"
    )
    stage.nodes(1, prefix="more")
    stage.wait_phase(gang)

    def noted() -> bool:
        found = stage.api.get(NATIVE_POD_GROUPS, "a", NAMESPACE)
        return STOOD_WHOLE in found["metadata"].get("annotations", {})

    wait_for(noted, what="it is noted that the group stood whole")
    assert stage.api.items(POD_GROUPS, NAMESPACE) == []
