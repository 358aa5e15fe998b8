"""Muster on the CRDs of Volcano, as during a move: unknown fields are dropped without harm."""

from collections.abc import Iterator

import pytest

from tests.e2e.harness import manifests, objects, volcano
from tests.e2e.harness.access import ADMIN, User
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import COMMANDS, CRDS, POD_GROUPS, QUEUES
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.shell import Shell
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.webhooks import Port, configured, wait_in_force

pytestmark = pytest.mark.gaps_allowed  # a kind that changes breaks its watches off
Q = "queue.scheduling.volcano.sh"
PLURALS = ("queues", "podgroups", "commands")


@pytest.fixture
def muster(stage: Stage, muster_user: User) -> Iterator[Muster]:
    """Start a Muster on Volcano's kinds; ours come back after the test."""
    ours = [
        document
        for document in manifests.documents("crds/*.yaml")
        if document["spec"]["names"]["plural"] in PLURALS
    ]
    try:
        _put(stage, volcano.crds(*PLURALS), keeps_state=False)
        yield stage.start_muster(user=muster_user)
    finally:
        for resource in (POD_GROUPS, COMMANDS, QUEUES):
            stage.api.delete_all(resource, stage.namespace)
        _put(stage, ours, keeps_state=True)


def test_a_gang_starts_and_its_group_says_so(stage: Stage, scheduler: KubeScheduler) -> None:
    stage.nodes(2, cpu="1")
    stage.queue("q")
    gang = stage.gang("a", 3, queue="q", gated=True)
    stage.wait_reason("a", "NeverFits", "NoRoom")
    stage.nodes(1, prefix="more", cpu="1")
    stage.wait_phase(gang)
    stage.wait_reason("a", "Running")
    wait_for(lambda: stage.pod_group("a")["status"].get("running") == 3, what="all three are counted")
    conditions = {each["type"]: each["status"] for each in stage.pod_group("a")["status"]["conditions"]}
    assert conditions == {"Scheduled": "True", "StoodWhole": "True"}


def test_dropped_fields_are_not_written_again_and_again(stage: Stage, scheduler: KubeScheduler) -> None:
    """Each further gang is a reason to look at every queue and group once more."""
    stage.nodes(8, cpu="1")
    stage.queue("q")
    stage.wait_phase(stage.gang("a", 2, queue="q", gated=True))
    wait_for(lambda: stage.pod_group("a")["status"].get("running") == 2, what="both are counted")
    before = stage.pod_group("a")["metadata"]["resourceVersion"]
    for name in ("b", "c", "d"):
        stage.wait_phase(stage.gang(name, 2, gated=True))
    assert stage.pod_group("a")["metadata"]["resourceVersion"] == before
    wait_for(lambda: _status(stage, "q").get("allocated", {}).get("cpu") == "2", what="the queue's amounts")
    assert _state(stage, "q") == "Open"
    assert not {"deserved", "share", "conditions"} & _status(stage, "q").keys()


def test_queues_are_closed_and_opened_by_commands(stage: Stage, scheduler: KubeScheduler) -> None:
    """There is no spec.state, so the status says it."""
    vcctl = volcano.Vcctl(stage.cluster, ADMIN)
    stage.nodes(1, cpu="1")
    stage.queue("q")
    running = stage.gang("a", 1, queue="q", gated=True)
    stage.wait_phase(running)
    vcctl("queue", "operate", "--name=q", "--action=close")
    wait_for(lambda: _state(stage, "q") == "Closing", what="the queue closes")
    wait_for(lambda: not stage.api.items(COMMANDS, "default"), what="the Command is gone")
    stage.group("late", 1, queue="q")
    stage.wait_reason("late", "QueueNotOpen")
    for group in ("a", "late"):
        stage.api.delete(POD_GROUPS, group, stage.namespace)
    wait_for(lambda: _state(stage, "q") == "Closed", what="the queue is closed")
    vcctl("queue", "operate", "--name=q", "--action=open")
    wait_for(lambda: _state(stage, "q") == "Open", what="the queue is open again")
    assert "state" not in stage.api.get(QUEUES, "q")["spec"]


def test_the_state_that_a_webhook_writes_is_dropped(stage: Stage, muster: Muster, muster_user: User) -> None:
    port = Port()
    with configured(stage.api, port):
        stage.start_muster(*port.flags("self-signed"), user=muster_user)
        wait_in_force(stage.api)
        assert "state" not in stage.queue("q")["spec"]
        assert "state" not in stage.api.get(QUEUES, "q")["spec"]


def test_muster_closes_and_opens_queues_by_commands(stage: Stage, muster: Muster) -> None:
    admin = Shell(stage.cluster, ADMIN)
    waiting = ("--wait", "--timeout", "60s")
    admin.output("queue", "create", "q", "--state", "Closed")
    wait_for(lambda: _state(stage, "q") == "Closed", what="the new queue is closed")
    assert admin.output("queue", "open", "q", *waiting) == f"{Q}/q opened\n"
    stage.group("a", 1, queue="q")
    stage.wait_reason("a", "NotEnoughMembers")
    admin.output("queue", "operate", "q", "--action", "close")
    wait_for(lambda: _state(stage, "q") == "Closing", what="the queue closes")
    assert admin.output("queue", "open", "q", *waiting) == f"{Q}/q opened\n"
    assert admin.output("queue", "delete", "q", "--cascade", "--timeout", "60s").endswith(f"{Q}/q deleted\n")
    assert stage.api.items(COMMANDS, "default") == []


def test_muster_names_a_remedy_if_the_command_api_is_missing(stage: Stage, muster: Muster) -> None:
    stage.queue("q")
    (crd,) = volcano.crds("commands")
    manifests.remove(stage.api, [crd])
    wait_for(lambda: not manifests.find(stage.api, crd), what="Commands gone")
    try:
        refusal = Shell(stage.cluster, ADMIN).refuses("queue", "close", "q")
    finally:
        manifests.install(stage.api, [crd])
    assert "spec.state" in refusal


def _state(stage: Stage, queue: str) -> str:
    return str(_status(stage, queue).get("state", ""))


def _status(stage: Stage, queue: str) -> manifests.Json:
    found: manifests.Json = stage.api.get(QUEUES, queue).get("status", {})
    return found


def _put(stage: Stage, crds: list[manifests.Json], *, keeps_state: bool) -> None:
    """Replace CRDs of the same names, and wait until the API server serves the new ones."""
    for crd in crds:
        name = crd["metadata"]["name"]
        version = stage.api.get(CRDS, name)["metadata"]["resourceVersion"]
        stage.api.replace(CRDS, {**crd, "metadata": {**crd["metadata"], "resourceVersion": version}})
    wait_for(lambda: _keeps_state(stage) == keeps_state, what=f"spec.state kept: {keeps_state}")


def _keeps_state(stage: Stage) -> bool:
    shown = objects.queue("sample", state="Open")
    made = stage.api.request("POST", f"{QUEUES.path()}?dryRun=All", shown)
    return "state" in made["spec"]
