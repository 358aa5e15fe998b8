"""Muster beside the cluster's own scheduler: it decides on marked pods, and nobody else depends on it."""

from collections.abc import Iterator

import pytest

from tests.e2e.harness import objects
from tests.e2e.harness.access import User
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import NAMESPACES, PODS, QUEUES
from tests.e2e.harness.scheduler import KubeScheduler, load
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

DEFAULT = "default-scheduler"
MARKS = {"kube-muster.io/place": "1", "kube-muster.io/bind": "1"}
QUEUE_NAME = "scheduling.volcano.sh/queue-name"


@pytest.fixture
def muster(stage: Stage, muster_user: User) -> Iterator[Muster]:
    """With the policy that marks pods in force."""
    with stage.policy("default-scheduler/admission-policy.yaml"):
        yield stage.start_muster(user=muster_user, scheduler_names=(DEFAULT, "muster"))


@pytest.fixture
def scheduler(stage: Stage, muster: Muster) -> KubeScheduler:
    """The cluster's own, with its own account; Muster is its extender for marked pods."""
    return stage.start_scheduler("default-scheduler.yaml", muster=muster.address)


def test_marked_gangs_start_whole_beside_pods_of_nobody(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    stage.nodes(3, cpu="4")
    plain = stage.pods("plain", 3, scheduler=DEFAULT)
    gang = stage.gang("a", 3, cpu="3", scheduler=DEFAULT)
    named = stage.pods("own-name", 1, cpu="0", scheduler="muster")
    stage.wait_phase([*plain, *gang, *named], "Running")
    assert [_marks(stage, name) for name in (*gang, *named)] == [MARKS] * 4
    assert [_marks(stage, name) for name in plain] == [{}] * 3
    assert muster.metric("muster_verb_calls_total", verb="bind") == 4


def test_with_muster_dead_only_its_own_pods_wait(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Whether they wait at their gate or, already let in, in the scheduler: they start when it is back."""
    stage.nodes(3, cpu="5")
    stage.pods("filler", 3, cpu="4", scheduler="nobody")
    for number in range(3):
        stage.api.bind(stage.namespace, f"filler-{number}", f"n{number}")
    let_in = stage.gang("a", 2, cpu="2", scheduler=DEFAULT)
    muster.wait_decision(stage.namespace, "a", verdict="Waiting")
    muster.kill()
    for name in let_in:
        _open_gate(stage, name)
    stage.delete_pods(["filler-0", "filler-1", "filler-2"])
    at_the_gate = stage.gang("b", 2, cpu="2", scheduler=DEFAULT)
    plain = stage.pods("plain", 3, scheduler=DEFAULT)
    stage.wait_phase(plain, "Running")
    wait_for(lambda: all(_refused(stage, name) for name in let_in), what="marked pods tried in vain")
    assert stage.bound([*let_in, *at_the_gate]) == {}
    muster.start()
    stage.wait_phase([*let_in, *at_the_gate], "Running")


def test_after_muster_an_ignorable_entry_lets_marked_pods_go(stage: Stage) -> None:
    """The way out of docs/uninstall.md: the entries stay, so marks are ignored, and nobody has to answer."""
    config = load("default-scheduler.yaml")
    for entry in config["extenders"]:
        entry["ignorable"] = True
    stage.nodes(2, cpu="4")
    with stage.policy("default-scheduler/admission-policy.yaml"):
        pods = stage.gang("a", 3, scheduler=DEFAULT)
    stage.start_scheduler(config, muster="127.0.0.1:1")
    for name in pods:
        assert _marks(stage, name) == MARKS
        _open_gate(stage, name)
    stage.wait_phase(pods, "Running")


def test_a_namespace_names_the_queue_of_its_pods(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Its plain pods are ours then: two fit under the queue's ceiling, the third waits until that rises."""
    stage.nodes(2, cpu="4")
    stage.queue("team", capability={"cpu": "2"})
    stage.api.patch(NAMESPACES, stage.namespace, {"metadata": {"annotations": {QUEUE_NAME: "team"}}})
    wait_for(lambda: _gated_at_birth(stage), what="the namespace's pods gated")
    pods = stage.pods("p", 3, scheduler=DEFAULT)
    wait_for(lambda: len(stage.bound(pods)) == 2, what="two of three bound")
    (third,) = {*pods} - stage.bound(pods).keys()
    decided = muster.wait_decision(stage.namespace, stage.own_group(third), reason="QueueCeiling")
    assert decided["queue"] == "team"
    stage.api.patch(QUEUES, "team", {"spec": {"capability": {"cpu": "3"}}})
    stage.wait_phase(pods, "Running")


def _marks(stage: Stage, name: str) -> dict[str, str]:
    requests = stage.pod(name)["spec"]["containers"][0]["resources"]["requests"]
    return {key: value for key, value in requests.items() if key in MARKS}


def _refused(stage: Stage, name: str) -> bool:
    conditions = stage.pod(name)["status"].get("conditions", [])
    return any(each.get("reason") == "SchedulerError" for each in conditions)


def _open_gate(stage: Stage, name: str) -> None:
    stage.api.patch(PODS, name, {"spec": {"schedulingGates": []}}, stage.namespace)


def _gated_at_birth(stage: Stage) -> bool:
    shown = objects.pod("for-show", namespace=stage.namespace, scheduler=DEFAULT)
    made = stage.api.request("POST", f"{PODS.path(stage.namespace)}?dryRun=All", shown)
    return {"name": objects.GATE} in made["spec"].get("schedulingGates", [])
