"""Writes of Muster to pods, and the end of objects."""

from collections.abc import Callable

import pytest

from extender.kube.calls import ApiClient
from extender.kube.connection import Connection
from extender.kube.errors import Conflict, NotFound
from tests.e2e.harness import objects
from tests.sim.requests import (
    POD_GROUPS,
    PODS,
    QUEUES,
    ask,
    create,
    get,
    names,
    patch,
    pod,
)

# ---- what Muster writes


def test_muster_opens_its_gate_nominates_and_nudges(connection: Connection, cluster: ApiClient) -> None:
    made = create(connection, PODS, pod(scheduler="muster", schedulingGates=[{"name": "theirs"}]))
    uid = made["metadata"]["uid"]
    cluster.nominate("default", "a", uid, "n0")
    cluster.open_gate("default", "a", uid)
    cluster.open_gate("default", "a", uid)
    cluster.trigger_retry("default", "a", uid, "token")
    now = get(connection, f"{PODS}/a")
    assert now["spec"]["schedulingGates"] == [{"name": "theirs"}]
    assert now["status"]["nominatedNodeName"] == "n0"
    assert now["metadata"]["annotations"]["kube-muster.io/nudge"] == "token"


def test_a_request_for_another_uid_is_a_conflict(connection: Connection, cluster: ApiClient) -> None:
    create(connection, PODS, pod(scheduler="muster"))
    create(connection, POD_GROUPS, objects.pod_group("g", namespace="default", min_member=1))
    other = "00000000-0000-4000-8000-000000000000"
    writes: tuple[Callable[[], object], ...] = (
        lambda: cluster.open_gate("default", "a", other),
        lambda: cluster.nominate("default", "a", other, "n0"),
        lambda: cluster.bind("default", "a", other, "n0", {}),
        lambda: cluster.evict("default", "a", other),
        lambda: cluster.patch_group("default", "g", other, {"status": {"phase": "Running"}}),
    )
    for write in writes:
        with pytest.raises(Conflict):
            write()


def test_a_pod_is_bound_once(connection: Connection, cluster: ApiClient) -> None:
    uid = create(connection, PODS, pod())["metadata"]["uid"]
    cluster.nominate("default", "a", uid, "n0")
    cluster.bind("default", "a", uid, "n1", {"noted": "here"})
    bound = get(connection, f"{PODS}/a")
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["annotations"] == {"noted": "here"}
    assert "nominatedNodeName" not in bound["status"]
    (condition,) = bound["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    with pytest.raises(Conflict):
        cluster.bind("default", "a", uid, "n1", {})
    with pytest.raises(NotFound):
        cluster.bind("default", "nobody", uid, "n1", {})


def test_a_gated_pod_is_not_bound(connection: Connection, cluster: ApiClient) -> None:
    uid = create(connection, PODS, pod(scheduler="muster"))["metadata"]["uid"]
    with pytest.raises(Conflict):
        cluster.bind("default", "a", uid, "n0", {})


# ---- the end


def test_a_pod_without_a_node_goes_at_once(connection: Connection) -> None:
    create(connection, PODS, pod())
    ask(connection, "DELETE", f"{PODS}/a")
    with pytest.raises(NotFound):
        get(connection, f"{PODS}/a")


def test_a_pod_on_a_node_waits_for_its_kubelet(connection: Connection, cluster: ApiClient) -> None:
    uid = create(connection, PODS, pod(terminationGracePeriodSeconds=30, nodeName="n0"))["metadata"]["uid"]
    cluster.evict("default", "a", uid)
    flagged = get(connection, f"{PODS}/a")["metadata"]
    assert flagged["deletionTimestamp"]
    assert flagged["deletionGracePeriodSeconds"] == 30
    with pytest.raises(Conflict):
        ask(connection, "DELETE", f"{PODS}/a", {"preconditions": {"uid": "another"}})
    ask(connection, "DELETE", f"{PODS}/a", {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}})
    with pytest.raises(NotFound):
        get(connection, f"{PODS}/a")


def test_finalizers_hold_an_object_until_they_are_gone(connection: Connection) -> None:
    new_queue = objects.queue("q")
    new_queue["metadata"]["finalizers"] = ["example.com/mine"]
    create(connection, QUEUES, new_queue)
    ask(connection, "DELETE", f"{QUEUES}/q")
    assert get(connection, f"{QUEUES}/q")["metadata"]["deletionTimestamp"]
    patch(connection, f"{QUEUES}/q", {"metadata": {"finalizers": None}})
    with pytest.raises(NotFound):
        get(connection, f"{QUEUES}/q")


def test_a_collection_is_deleted_by_selector(connection: Connection) -> None:
    for number in range(3):
        create(connection, PODS, pod(f"p{number}", labels={"odd": str(number % 2)}))
    ask(connection, "DELETE", PODS, query={"labelSelector": "odd=0"})
    assert names(get(connection, PODS)) == ["p1"]
