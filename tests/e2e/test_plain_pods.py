"""Pods without a group name or controller: most start at once, and have no PodGroup.

Waiting ones get one, whatever happens to Muster meanwhile.
"""

from itertools import chain
from typing import Any

import pytest

from tests.e2e.harness.access import ADMIN, User
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.objects import GROUP_NAME
from tests.e2e.harness.resources import POD_GROUPS, PODS, QUEUES
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.shell import Shell
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

MANY = 300
SETTING = "--podgroups-for-plain-pods"


def podgroup_names(stage: Stage) -> set[str]:
    return {each["metadata"]["name"] for each in stage.api.items(POD_GROUPS, stage.namespace)}


def wait_queue(stage: Stage, name: str, **status: Any) -> None:
    def says() -> bool:
        found: dict[str, Any] = stage.api.get(QUEUES, name).get("status", {})
        return status.items() <= found.items()

    wait_for(says, what=f"queue {name} says {status}")


def test_hundreds_of_plain_pods_that_start_at_once_get_no_podgroup_and_are_counted(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    stage.nodes(10, cpu="32")
    stage.queue("team")
    pods = stage.pods("p", MANY, queue="team", cpu="1")
    stage.wait_phase(pods)
    assert podgroup_names(stage) == set()
    notes = (pod["metadata"].get("annotations", {}) for pod in stage.api.items(PODS, stage.namespace))
    assert GROUP_NAME not in chain.from_iterable(notes)
    wait_queue(stage, "team", running=MANY)
    assert stage.api.get(QUEUES, "team")["status"]["allocated"]["cpu"] == str(MANY)


def test_a_pending_plain_pod_gets_a_podgroup_with_its_reason_and_keeps_it(
    stage: Stage, scheduler: KubeScheduler
) -> None:
    stage.nodes(1, cpu="1")
    filler, (late,) = stage.pods("filler", 1, cpu="1"), ("late-0",)
    stage.wait_phase(filler)
    assert stage.pods("late", 1, cpu="1") == [late]
    name = stage.own_group(late)
    stage.wait_group(name, phase="Pending")
    stage.wait_reason(name, "NoRoom")
    wait_for(
        lambda: stage.pod(late)["metadata"].get("annotations", {}).get(GROUP_NAME) == name,
        what="the pod bears the name of its group",
    )
    assert podgroup_names(stage) == {name}
    stage.finish(filler)
    stage.wait_phase([late])
    stage.wait_group(name, phase="Running", running=1)
    assert podgroup_names(stage) == {name}


def test_a_restart_in_the_middle_changes_no_number_and_ends_nothing(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Some run without a PodGroup, others wait with theirs; then the queue is closed and runs dry."""
    stage.nodes(1, cpu="8")
    stage.queue("team", deserved={"cpu": "8"})
    running = stage.pods("early", 8, queue="team", cpu="1")
    stage.wait_phase(running)
    waiting = stage.pods("late", 3, queue="team", cpu="1")
    for pod in waiting:
        stage.wait_group(stage.own_group(pod), phase="Pending")
    own = {stage.own_group(pod) for pod in waiting}
    wait_queue(stage, "team", running=8, pending=3)
    before = stage.api.get(QUEUES, "team")["status"]
    nodes = stage.bound(running)
    muster.kill()
    muster.start()
    muster.wait_decision(stage.namespace, stage.own_group("early-0"), verdict="Running")
    wait_queue(stage, "team", **{key: before[key] for key in ("running", "pending", "allocated", "deserved")})
    assert (stage.phases(running), stage.bound(running), podgroup_names(stage)) == ({"Running"}, nodes, own)
    stage.set_queue_state("team", "Closed")
    wait_queue(stage, "team", state="Closing", running=8)
    muster.kill()
    muster.start()
    stage.delete_pods(running)
    stage.wait_phase(waiting)
    assert podgroup_names(stage) == own
    wait_queue(stage, "team", state="Closing", running=3, pending=0)
    stage.delete_pods(waiting)
    stage.api.delete_all(POD_GROUPS, stage.namespace)  # no garbage collector is here
    wait_queue(stage, "team", state="Closed")


@pytest.mark.view
@pytest.mark.muster_flags(SETTING, "never")
def test_with_never_the_condition_of_the_pod_has_the_reason(stage: Stage, scheduler: KubeScheduler) -> None:
    stage.nodes(1, cpu="1")
    stage.queue("team")
    filler, shell = stage.pods("filler", 1, cpu="1"), Shell(stage.cluster, ADMIN, stage.namespace)
    stage.wait_phase(filler)
    (late,) = stage.pods("late", 1, queue="team", cpu="1")
    wait_for(lambda: "NoRoom" in shell.output("why", late), what="why knows the reason")
    wait_queue(stage, "team", pending=1)
    assert podgroup_names(stage) == set()
    stage.finish(filler)
    stage.wait_phase([late])


def test_a_changed_setting_makes_podgroups_after_a_restart(
    stage: Stage, scheduler: KubeScheduler, muster: Muster, muster_user: User
) -> None:
    """Make PodGroups for running pods with `always`."""
    stage.nodes(1, cpu="4")
    pods = stage.pods("p", 2, cpu="1")
    stage.wait_phase(pods)
    assert podgroup_names(stage) == set()
    muster.stop()
    stage.start_muster(SETTING, "always", user=muster_user)
    own = {stage.own_group(pod) for pod in pods}
    wait_for(lambda: podgroup_names(stage) == own, what="a PodGroup each")
    for name in own:
        stage.wait_group(name, phase="Running", running=1)
