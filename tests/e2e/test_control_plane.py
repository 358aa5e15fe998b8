"""The ground that all scenarios stand on: a stock scheduler, restarts that keep data, obedient kubelets."""

from pathlib import Path

import pytest

from tests.e2e.harness.access import SCHEDULER, User
from tests.e2e.harness.objects import GATE
from tests.e2e.harness.resources import LEASES, PODS
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

pytestmark = pytest.mark.nightly

STOCK = "default-scheduler"


def test_the_stock_scheduler_alone_binds_pods_and_they_run(stage: Stage) -> None:
    stage.nodes(3)
    stage.start_scheduler()
    pods = stage.pods("plain", 9, scheduler=STOCK)
    assert set(stage.wait_bound(pods).values()) <= {"n0", "n1", "n2"}
    stage.wait_phase(pods, "Running")


@pytest.mark.gaps_allowed
def test_a_restart_of_the_api_server_keeps_its_data(stage: Stage) -> None:
    pods = stage.pods("kept", 3, scheduler=STOCK)
    stage.cluster.restart_apiserver()
    assert stage.phases(pods) == {"Pending"}
    stage.nodes(1)
    stage.start_scheduler()
    stage.wait_phase(pods, "Running")


def test_a_scheduler_that_was_killed_continues_after_its_restart(stage: Stage) -> None:
    stage.nodes(1, cpu="2")
    scheduler = stage.start_scheduler()
    stage.wait_phase(stage.pods("before", 1, scheduler=STOCK), "Running")
    scheduler.kill()
    late = stage.pods("after", 2, scheduler=STOCK)
    scheduler.start()
    wait_for(lambda: len(stage.bound(late)) == 1, what="the one pod that fits bound")


def test_a_kubelet_refuses_finishes_and_confirms_deletions(stage: Stage) -> None:
    stage.nodes(1)
    stage.kubelet.refuse("pod-0")
    refused, finished, deleted = stage.pods("pod", 3, scheduler=STOCK)
    for name in (refused, finished, deleted):
        stage.api.bind(stage.namespace, name, "n0")
    stage.wait_phase([refused], "Failed")
    assert stage.pod(refused)["status"]["reason"] == "OutOfcpu"
    stage.wait_phase([finished, deleted], "Running")
    stage.finish([finished])
    stage.wait_phase([finished], "Succeeded")
    stage.delete_pods([deleted])
    stage.wait_phase([deleted], "Gone")


def test_a_kubelet_that_was_off_makes_up_for_it(stage: Stage) -> None:
    stage.nodes(1)
    stage.kubelet.off()
    pods = stage.pods("pod", 2, scheduler=STOCK, terminationGracePeriodSeconds=30)
    for name in pods:
        stage.api.bind(stage.namespace, name, "n0")
    stage.delete_pods(pods[:1])
    assert stage.phases(pods) == {"Pending"}
    stage.kubelet.on()
    stage.wait_phase(pods[:1], "Gone")
    stage.wait_phase(pods[1:], "Running")


@pytest.mark.parametrize("config", ["sidecar-gates.yaml", "default-scheduler.yaml"])
def test_a_stock_scheduler_accepts_our_configuration(
    stage: Stage, config: str, muster_user: User, tls: Path
) -> None:
    """Run the shipped configuration, except for the kubeconfig and the place of the certificates.

    The scheduler becomes leader with the rights that the manifests give.
    """
    user, lease = (
        (muster_user, "muster-scheduler") if config == "sidecar-gates.yaml" else (SCHEDULER, "kube-scheduler")
    )
    shown = tls / "scheduler" if config == "default-scheduler.yaml" else None
    stage.start_scheduler(config, user=user, leader_elect=True, tls=shown)
    wait_for(lambda: stage.api.find(LEASES, lease, "kube-system"), what=f"lease {lease} held")


def test_pods_of_other_schedulers_start_while_muster_is_down(stage: Stage) -> None:
    """Start unmarked pods in the default-scheduler variant, where only marked ones depend on Muster."""
    stage.nodes(1)
    with stage.policy("default-scheduler/admission-policy.yaml"):
        (ours,) = stage.pods("ours", 1, group="g", scheduler=STOCK)
    stage.start_scheduler("default-scheduler.yaml", muster="127.0.0.1:1")
    stage.wait_phase(stage.pods("theirs", 3, scheduler=STOCK))
    assert stage.bound([ours]) == {}
    requests = stage.pod(ours)["spec"]["containers"][0]["resources"]["requests"]
    assert {"kube-muster.io/place", "kube-muster.io/bind"} <= requests.keys()


def test_the_policy_gates_our_pods_only(stage: Stage) -> None:
    with stage.policy("gates/admission-policy.yaml"):
        ours, theirs = stage.pods("ours", 1) + stage.pods("theirs", 1, scheduler=STOCK)
    assert stage.pod(ours)["spec"]["schedulingGates"] == [{"name": GATE}]
    assert "schedulingGates" not in stage.pod(theirs)["spec"]


def test_a_cluster_is_empty_for_each_test(stage: Stage) -> None:
    assert stage.api.items(PODS) == []
    assert stage.nodes(1) == ["n0"]
