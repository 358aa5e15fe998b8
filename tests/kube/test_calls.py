"""Calls on the wire: the request of each, and how it reads the answer."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from extender.api.objects.queues import PodGroup
from extender.kube.calls import MARKERS_POLICY, ApiClient
from extender.kube.connection import Connection
from extender.kube.errors import Ambiguous, Conflict, Invalid, NotFound, Refused
from extender.kube.resources import POD_TEMPLATES, PROVISIONING_REQUESTS
from tests.kube.server import Reply, Server, status

POD = "/api/v1/namespaces/ns/pods/p"
GROUP = "/apis/scheduling.volcano.sh/v1beta1/namespaces/ns/podgroups/g"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

WRITES: list[tuple[Callable[[ApiClient], None], str, str, str, object]] = [
    (
        lambda cluster: cluster.bind("ns", "p", "u", "n", {}),
        "POST",
        f"{POD}/binding",
        "application/json",
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "n"},
        },
    ),
    (
        lambda cluster: cluster.open_gate("ns", "p", "u"),
        "PATCH",
        POD,
        STRATEGIC,
        {
            "metadata": {"uid": "u"},
            "spec": {"schedulingGates": [{"$patch": "delete", "name": "kube-muster.io/admission"}]},
        },
    ),
    (
        lambda cluster: cluster.nominate("ns", "p", "u", "n"),
        "PATCH",
        f"{POD}/status",
        MERGE,
        {"metadata": {"uid": "u"}, "status": {"nominatedNodeName": "n"}},
    ),
    (
        lambda cluster: cluster.set_unscheduled("ns", "p", "u", "7", {"status": "False"}, False),
        "PATCH",
        f"{POD}/status",
        STRATEGIC,
        {
            "metadata": {"uid": "u", "resourceVersion": "7"},
            "status": {"conditions": [{"type": "PodScheduled", "status": "False"}]},
        },
    ),
    (
        lambda cluster: cluster.set_unscheduled("ns", "p", "u", "7", {"reason": "R"}, True),
        "PATCH",
        f"{POD}/status",
        STRATEGIC,
        {
            "metadata": {"uid": "u", "resourceVersion": "7"},
            "status": {"conditions": [{"type": "PodScheduled", "reason": "R"}], "nominatedNodeName": None},
        },
    ),
    (
        lambda cluster: cluster.trigger_retry("ns", "p", "u", "7"),
        "PATCH",
        POD,
        MERGE,
        {"metadata": {"uid": "u", "annotations": {"kube-muster.io/nudge": "7"}}},
    ),
    (
        lambda cluster: cluster.create_queue("q", {"weight": 1}, {"a": "b"}),
        "POST",
        "/apis/scheduling.volcano.sh/v1beta1/queues",
        "application/json",
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": "q", "annotations": {"a": "b"}},
            "spec": {"weight": 1},
        },
    ),
    (
        lambda cluster: cluster.delete_queue("q", "u"),
        "DELETE",
        "/apis/scheduling.volcano.sh/v1beta1/queues/q",
        "application/json",
        {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "u"}},
    ),
    (
        lambda cluster: cluster.patch_queue_status("q", {"status": {"state": "Open"}}),
        "PATCH",
        "/apis/scheduling.volcano.sh/v1beta1/queues/q/status",
        MERGE,
        {"status": {"state": "Open"}},
    ),
]


QUEUE = "/apis/scheduling.volcano.sh/v1beta1/queues/q"
AS_QUEUE_CONTROLLER = {"fieldManager": "queue-controller", "force": "true"}


@pytest.fixture
def cluster(connection: Connection) -> ApiClient:
    return ApiClient(connection)


@pytest.mark.parametrize(("write", "method", "path", "content_type", "body"), WRITES)
def test_a_write(
    server: Server,
    cluster: ApiClient,
    write: Callable[[ApiClient], None],
    method: str,
    path: str,
    content_type: str,
    body: object,
) -> None:
    server.script.append(Reply(201, b"an answer that is not decoded"))
    write(cluster)
    (request,) = server.requests
    assert (request.method, request.path) == (method, path)
    assert request.headers["content-type"] == content_type
    assert request.json == body


def patch_group(cluster: ApiClient) -> PodGroup:
    patch = {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"}}
    return cluster.patch_group("ns", "g", "u", patch)


def test_a_patch_returns_the_changed_group(server: Server, cluster: ApiClient) -> None:
    server.script.append(Reply(200, b'{"metadata": {"name": "g", "resourceVersion": "8"}}'))
    assert patch_group(cluster).metadata.resource_version == "8"
    (request,) = server.requests
    assert (request.method, request.path) == ("PATCH", GROUP)
    assert request.headers["content-type"] == MERGE
    assert request.json == {
        "metadata": {"labels": {"a": "b"}, "uid": "u"},
        "status": {"phase": "Running"},
    }


@pytest.mark.parametrize("write", [*(case[0] for case in WRITES), patch_group])
def test_a_write_that_is_refused_raises(
    server: Server, cluster: ApiClient, write: Callable[[ApiClient], object]
) -> None:
    server.script.append(status(409, "Conflict"))
    with pytest.raises(Conflict):
        write(cluster)


def test_an_eviction_names_the_uid_of_the_pod(server: Server, cluster: ApiClient) -> None:
    server.script.extend([Reply(200, b'{"metadata": {"uid": "u"}, "spec": {}}'), Reply(201)])
    cluster.evict("ns", "p", "u")
    request = server.requests[-1]
    assert (request.method, request.path) == ("POST", f"{POD}/eviction")
    assert request.json == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "p", "namespace": "ns"},
        "deleteOptions": {"preconditions": {"uid": "u"}},
    }


@pytest.mark.parametrize(
    ("asks", "most", "gets"),
    [
        ({"spec": {"terminationGracePeriodSeconds": 2_000_000_000}}, 240.0, 240),
        ({"spec": {"terminationGracePeriodSeconds": 30}}, 240.0, None),
        ({"spec": {"terminationGracePeriodSeconds": 30}}, 0.0, 1),  # 0 would not wait for the kubelet
        ({"spec": {"terminationGracePeriodSeconds": 300}}, None, None),
        (
            {"metadata": {"deletionGracePeriodSeconds": 9999}, "spec": {"terminationGracePeriodSeconds": 1}},
            240.0,
            240,
        ),
        ({"spec": {}}, 240.0, None),
    ],
)
@pytest.mark.parametrize("way", ["evict", "delete_pod"])
def test_a_deletion_limits_the_grace_period(
    server: Server, cluster: ApiClient, way: str, asks: Any, most: float | None, gets: int | None
) -> None:
    pod = {**asks, "metadata": {"uid": "u", **asks.get("metadata", {})}}
    server.script.extend([Reply(200, json.dumps(pod).encode()), Reply(201)])
    getattr(cluster, way)("ns", "p", "u", most)
    request = server.requests[-1]
    options = request.json["deleteOptions"] if way == "evict" else request.json
    assert (request.method, options.get("gracePeriodSeconds")) == (
        "POST" if way == "evict" else "DELETE",
        gets,
    )
    assert options["preconditions"] == {"uid": "u"}


def test_a_pod_with_the_same_name_and_another_uid_is_not_evicted(server: Server, cluster: ApiClient) -> None:
    server.script.append(Reply(200, b'{"metadata": {"uid": "successor"}, "spec": {}}'))
    with pytest.raises(Conflict):
        cluster.evict("ns", "p", "u")
    assert [request.method for request in server.requests] == ["GET"]


@pytest.mark.parametrize(("field", "kind"), [("metadata.uid", Conflict), ("spec.nodeName", Invalid)])
def test_a_patch_of_an_object_with_another_uid_is_a_conflict(
    server: Server, cluster: ApiClient, field: str, kind: type[Refused]
) -> None:
    body = {"reason": "Invalid", "details": {"causes": [{"reason": "FieldValueInvalid", "field": field}]}}
    server.script.append(Reply(422, json.dumps(body).encode()))
    with pytest.raises(Refused) as caught:
        cluster.trigger_retry("ns", "p", "u", "7")
    assert type(caught.value) is kind


def test_a_pod_is_read(server: Server, cluster: ApiClient) -> None:
    server.script.append(Reply(200, b'{"metadata": {"name": "p"}, "spec": {"nodeName": "n"}}'))
    assert cluster.pod("ns", "p").spec.node_name == "n"
    assert (server.requests[0].method, server.requests[0].path) == ("GET", POD)


def test_a_lease_is_read(server: Server, cluster: ApiClient) -> None:
    server.script.append(Reply(200, b'{"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}'))
    assert cluster.lease("kube-system", "l").spec.holder_identity == "me"
    assert server.requests[0].path == "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/l"


@pytest.mark.parametrize("body", [b"<html>", b'{"metadata": {}, "spec": {"nodeName": 7}}'])
def test_an_answer_that_is_no_pod_is_refused(server: Server, cluster: ApiClient, body: bytes) -> None:
    server.script.append(Reply(200, body))
    with pytest.raises(Ambiguous, match="not the expected object"):
        cluster.pod("ns", "p")


def test_names_cannot_leave_their_place_in_the_path(server: Server, cluster: ApiClient) -> None:
    server.script.append(Reply())
    cluster.bind("ns", "p?x", "u", "n", {})
    assert server.requests[0].path == "/api/v1/namespaces/ns/pods/p%3Fx/binding"


@pytest.mark.parametrize("name", ["../nodes", "p/status", ".."])
def test_a_name_with_a_slash_is_not_sent(server: Server, cluster: ApiClient, name: str) -> None:
    """The API server decodes %2F before it reads the path."""
    with pytest.raises(NotFound):
        cluster.bind("ns", name, "u", "n", {})
    assert not server.requests


def test_a_call_respects_its_timeout(server: Server, cluster: ApiClient) -> None:
    with pytest.raises(Ambiguous, match="timed out"):
        cluster.bind("ns", "p", "u", "n", {}, timeout=0.05)


def test_the_state_of_a_queue_is_applied_as_volcanos_queue_controller_does(
    server: Server, cluster: ApiClient
) -> None:
    server.script.append(Reply(200, b'{"metadata": {"name": "q", "resourceVersion": "8"}}'))
    assert cluster.set_queue_status_state("q", "u", "Closed", "7") == "8"
    (request,) = server.requests
    assert (request.method, request.path, request.query) == ("PATCH", f"{QUEUE}/status", AS_QUEUE_CONTROLLER)
    assert request.headers["content-type"] == "application/apply-patch+yaml"
    assert request.json == {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": "q", "uid": "u", "resourceVersion": "7"},
        "status": {"state": "Closed"},
    }


@pytest.mark.parametrize(
    ("reserved", "writes"),
    [
        ({"state": "Closed"}, [(QUEUE, {"dryRun": "All"}), (QUEUE, {})]),
        ({}, [(QUEUE, {"dryRun": "All"}), (f"{QUEUE}/status", AS_QUEUE_CONTROLLER), (QUEUE, {})]),
    ],
    ids=["ours", "volcano's"],
)
def test_a_queue_is_closed_in_its_status_where_its_kind_drops_spec_state(
    server: Server, cluster: ApiClient, reserved: dict[str, str], writes: list[tuple[str, dict[str, str]]]
) -> None:
    """Muster's own CRD keeps spec.state, Volcano's does not have the field."""
    answer = {"metadata": {"name": "q", "uid": "u"}, "spec": reserved}
    server.script.extend([Reply(200, json.dumps(answer).encode())] * len(writes))
    cluster.set_queue_state("q", "u", "Closed", "command")
    assert [(request.path, request.query) for request in server.requests] == writes
    assert server.requests[-1].json == {
        "metadata": {"uid": "u", "annotations": {"kube-muster.io/last-command": "command"}},
        "spec": {"state": "Closed"},
    }
    statuses = [request.json["status"] for request in server.requests if request.path.endswith("/status")]
    assert statuses == ([] if reserved else [{"state": "Closing"}])


POLICY = {"spec": {"failurePolicy": "Fail"}}
BOUND = {"spec": {"policyName": "kube-muster-marks", "validationActions": ["Deny"]}}


@pytest.mark.parametrize(
    ("answers", "is_enforced"),
    [
        ((POLICY, BOUND), True),
        (({"spec": {"failurePolicy": "Ignore"}}, BOUND), False),
        ((POLICY, {"spec": {**BOUND["spec"], "validationActions": ["Warn", "Audit"]}}), False),
        ((POLICY, {"spec": {**BOUND["spec"], "policyName": "another"}}), False),
        ((POLICY, {"spec": {**BOUND["spec"], "matchResources": {"namespaceSelector": {}}}}), False),
        ((404,), False),
        ((403,), False),
        ((POLICY, 404), False),
    ],
)
def test_a_policy_is_enforced_that_is_bound_and_refuses(
    answers: tuple[object, ...], is_enforced: bool, server: Server, cluster: ApiClient
) -> None:
    for answer in answers:
        server.script.append(
            status(answer) if isinstance(answer, int) else Reply(body=json.dumps(answer).encode())
        )
    assert cluster.enforces(MARKERS_POLICY) is is_enforced
    assert server.requests[0].path.endswith("/validatingadmissionpolicies/kube-muster-marks")


# ---- asking for nodes


REQUEST = {"metadata": {"name": "r", "namespace": "ns"}}
TEMPLATE = {"metadata": {"name": "r-0"}}


def test_an_existing_request_for_nodes_is_found(server: Server, cluster: ApiClient) -> None:
    there = Reply(body=json.dumps({"metadata": {"name": "r", "uid": "theirs"}}).encode())
    server.script.extend([status(409, "Conflict"), there])
    assert cluster.create_provisioning_request("ns", REQUEST) == "theirs"
    path = "/apis/autoscaling.x-k8s.io/v1/namespaces/ns/provisioningrequests"
    assert [request.path for request in server.requests] == [path, f"{path}/r"]


@pytest.mark.parametrize(("owner", "fails"), [("mine", False), ("before", True)])
def test_an_existing_template_must_belong_to_the_owner(
    owner: str, fails: bool, server: Server, cluster: ApiClient
) -> None:
    there = {"metadata": {"name": "r-0", "ownerReferences": [{"uid": owner}]}}
    server.script.extend([status(409, "Conflict"), Reply(body=json.dumps(there).encode())])
    with pytest.raises(Conflict) if fails else nullcontext():
        cluster.create_owned(POD_TEMPLATES, "ns", TEMPLATE, "mine")


@pytest.mark.parametrize("allowed", [True, False])
def test_muster_reviews_its_own_rights(allowed: bool, server: Server, cluster: ApiClient) -> None:
    server.script.append(Reply(201, json.dumps({"status": {"allowed": allowed}}).encode()))
    assert cluster.has_right("watch", PROVISIONING_REQUESTS) is allowed
    (request,) = server.requests
    asked = {"verb": "watch", "group": "autoscaling.x-k8s.io", "resource": "provisioningrequests"}
    assert request.json["spec"] == {"resourceAttributes": asked}


def test_events_are_read_a_few_at_a_time(server: Server, cluster: ApiClient) -> None:
    """Limit the reads: any author of events decides how large they are, and how many there are."""

    def few(following: str) -> Reply:
        events = [{"metadata": {}, "reason": "FailedCreate", "message": "no"}] * 25
        return Reply(body=json.dumps({"metadata": {"continue": following}, "items": events}).encode())

    server.script.extend(few(f"t{number}") for number in range(1, 30))
    assert len(cluster.warnings("ns", "reason=FailedCreate")) == 200
    assert [each.query.get("continue", "") for each in server.requests] == [
        "",
        *(f"t{n}" for n in range(1, 8)),
    ]
    assert {each.query["limit"] for each in server.requests} == {"25"}
