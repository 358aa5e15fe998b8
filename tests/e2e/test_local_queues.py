"""LocalQueues and namespaces on a real API server and kube-scheduler: who may enter where."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.harness import objects
from tests.e2e.harness.access import User
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import LOCAL_QUEUES, NAMESPACES, QUEUES
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.watch import ApiError
from tests.e2e.harness.webhooks import Port, configured, wait_in_force

Json = dict[str, Any]
OUR_LABEL, KUEUE_LABEL = "kube-muster.io/local-queue", "kueue.x-k8s.io/queue-name"
AI = {"team": "ai"}


def local_queue(stage: Stage, name: str, queue: str, **spec: Any) -> None:
    made = objects.local_queue(name, namespace=stage.namespace, queue=queue, **spec)
    stage.api.create(LOCAL_QUEUES, made)


def change(stage: Stage, name: str, **spec: Any) -> None:
    stage.api.patch(LOCAL_QUEUES, name, {"spec": spec}, stage.namespace)


def gang(stage: Stage, name: str, size: int, local: str, label: str = OUR_LABEL) -> list[str]:
    stage.group(name, size, labels={label: local})
    return stage.pods(name, size, group=name, gated=True)


def wait_status(stage: Stage, name: str, **wanted: Any) -> None:
    """Wait for a status of a LocalQueue: `active` is the reason of its condition, the others are fields."""

    def status() -> Json:
        status = stage.api.get(LOCAL_QUEUES, name, stage.namespace).get("status", {})
        active = next((each["reason"] for each in status.get("conditions", ())), "")
        return {**status, "active": active}

    try:
        wait_for(lambda: wanted.items() <= status().items())
    except TimeoutError:
        raise TimeoutError(f"LocalQueue {name} says {status()}, never {wanted}") from None


def label_namespace(stage: Stage, labels: dict[str, str | None]) -> None:
    stage.api.patch(NAMESPACES, stage.namespace, {"metadata": {"labels": labels}})


@pytest.mark.parametrize("label", [OUR_LABEL, KUEUE_LABEL])
def test_a_gang_enters_by_its_label(stage: Stage, scheduler: KubeScheduler, label: str) -> None:
    stage.nodes(2, cpu="4")
    stage.queue("q")
    local_queue(stage, "door", "q")
    first = gang(stage, "first", 3, "door", label)
    stage.wait_phase(first)
    gang(stage, "large", 9, "door", label)
    stage.wait_reason("large", "NoRoom", "NeverFits")
    wait_status(
        stage,
        "door",
        active="Ready",
        waiting=1,
        admitted=1,
        reserved={"cpu": "3", "memory": "201326592", "pods": "3"},
    )
    queue = wait_for(
        lambda: stage.api.get(QUEUES, "q").get("status", {}).get("allocated"), what="q allocated"
    )
    assert queue["cpu"] == "3"


@pytest.mark.muster_flags("--podgroups-for-plain-pods", "always")
def test_pods_without_a_group_enter_by_their_own_label(stage: Stage, scheduler: KubeScheduler) -> None:
    stage.nodes(1, cpu="4")
    stage.queue("q")
    local_queue(stage, "door", "q")
    (name,) = stage.pods("alone", 1, labels={OUR_LABEL: "door"}, gated=True)
    stage.wait_phase([name])
    made = stage.wait_group(stage.own_group(name), phase="Running")
    assert made["metadata"]["labels"][OUR_LABEL] == "door"
    wait_status(stage, "door", admitted=1)


def test_a_local_queue_may_come_late_and_be_hung_elsewhere(stage: Stage, scheduler: KubeScheduler) -> None:
    stage.nodes(1, cpu="4")
    stage.queue("q")
    early = gang(stage, "early", 2, "door")
    stage.wait_reason("early", "QueueNotFound")
    local_queue(stage, "door", "later")
    wait_status(stage, "door", active="QueueNotFound", waiting=1)
    assert stage.bound(early) == {}
    change(stage, "door", queue="q")
    stage.wait_phase(early)
    wait_status(stage, "door", active="Ready", waiting=0, admitted=1)


def test_a_local_queue_is_held_and_resumed(stage: Stage, scheduler: KubeScheduler) -> None:
    stage.nodes(1, cpu="4")
    stage.queue("q")
    local_queue(stage, "door", "q", stopPolicy="Hold")
    held = gang(stage, "held", 1, "door")
    stage.wait_reason("held", "QueueStopped")
    wait_status(stage, "door", active="Stopped")
    free = stage.gang("free", 1, queue="q", gated=True)
    stage.wait_phase(free)
    assert stage.bound(held) == {}
    change(stage, "door", stopPolicy="None")
    stage.wait_phase(held)
    change(stage, "door", stopPolicy="HoldAndDrain")
    stage.wait_phase(held, "Gone")
    assert stage.phases(free) == {"Running"}


@pytest.fixture
def review(stage: Stage, muster_user: User) -> Iterator[Muster]:
    """Yield Muster with its webhooks in force."""
    port = Port()
    with configured(stage.api, port):
        muster = stage.start_muster(*port.flags("self-signed"), user=muster_user)
        wait_in_force(stage.api)
        yield muster


def test_a_queue_takes_the_namespaces_that_it_selects(stage: Stage, scheduler: KubeScheduler) -> None:
    stage.nodes(1, cpu="4")
    stage.queue("q", namespaceSelector={"matchLabels": AI})
    local_queue(stage, "door", "q")
    pods = gang(stage, "g", 2, "door")
    stage.wait_reason("g", "NamespaceNotAllowed")
    wait_status(stage, "door", active="NamespaceNotAllowed")
    label_namespace(stage, dict(AI))
    stage.wait_phase(pods)
    label_namespace(stage, {"team": None})
    wait_status(stage, "door", active="NamespaceNotAllowed", admitted=1)
    assert stage.phases(pods) == {"Running"}


def test_a_group_that_may_not_enter_is_refused_where_webhooks_are_installed(
    stage: Stage, review: Muster
) -> None:
    stage.queue("q", namespaceSelector={"matchLabels": AI})
    local_queue(stage, "door", "q")
    for named in ({"queue": "q"}, {"labels": {OUR_LABEL: "door"}}):
        with pytest.raises(ApiError, match="NamespaceNotAllowed"):
            stage.group("g", 1, **named)
    label_namespace(stage, dict(AI))
    stage.group("g", 1, labels={OUR_LABEL: "door"})
    label_namespace(stage, {"team": None})


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"queue": ""}, "spec.queue"),
        ({"queue": "a/b"}, "spec.queue"),
        ({}, "spec.queue"),
        ({"queue": "q", "stopPolicy": "Maybe"}, "spec.stopPolicy"),
    ],
)
def test_the_api_server_refuses_an_invalid_local_queue(stage: Stage, spec: Json, message: str) -> None:
    made = objects.local_queue("bad", namespace=stage.namespace, queue="q")
    with pytest.raises(ApiError, match=message):
        stage.api.create(LOCAL_QUEUES, {**made, "spec": spec})


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ({"key": "team", "operator": "Gt", "values": ["1"]}, "Unsupported value"),
        ({"key": "team", "operator": "In"}, "In and NotIn take values"),
        ({"key": "team", "operator": "Exists", "values": ["x"]}, "In and NotIn take values"),
    ],
)
def test_the_api_server_refuses_selectors_that_make_no_sense(
    stage: Stage, expression: Json, message: str
) -> None:
    with pytest.raises(ApiError, match=message):
        stage.queue("bad", namespaceSelector={"matchExpressions": [expression]})
