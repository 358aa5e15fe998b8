"""A view that somebody else's client asks, kubectl or curl: it answers as the API server does, or 403."""

import json
from http.client import HTTPConnection
from typing import Any

import pytest

from tests.kube.server import Reply, Server
from tests.proxy.conftest import SECRET, Front, Start
from tests.proxy.releases import DrivenAppearances
from tests.proxy.sample_pods import pod, without_kind

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
JSON = "application/json"
_NS = "/api/v1/namespaces/team-a"

# What is typed; the method, path and Accept that come of it.
RELAYED = [
    ("kubectl version", "GET", "/version?timeout=32s", JSON),
    (
        "kubectl api-resources",
        "GET",
        "/api?timeout=32s",
        "application/json;g=apidiscovery.k8s.io;v=v2;as=List",
    ),
    ("kubectl get pods", "GET", f"{_NS}/pods?limit=500", TABLE),
    ("kubectl get pods -w", "GET", f"{_NS}/pods?resourceVersion=7&watch=true", TABLE),
    ("kubectl get pods -A --chunk-size=1", "GET", "/api/v1/pods?limit=1&continue=abc", TABLE),
    ("kubectl get pod a -o yaml", "GET", f"{_NS}/pods/a", JSON),
    ("kubectl get nodes", "GET", "/api/v1/nodes?limit=500", TABLE),
    ("kubectl describe pod a", "GET", f"{_NS}/events?fieldSelector=involvedObject.name%3Da", JSON),
    ("kubectl auth can-i", "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", JSON),
    ("kubectl explain pods", "GET", "/openapi/v3/api/v1?hash=1", JSON),
    ("kubectl get --raw /readyz", "GET", "/readyz?verbose", JSON),
    ("curl .../configmaps", "GET", f"{_NS}/configmaps", "*/*"),
]

REFUSED = [
    ("kubectl delete pod a", "DELETE", f"{_NS}/pods/a", JSON),
    ("kubectl delete pods --all", "DELETE", f"{_NS}/pods", JSON),
    ("kubectl run", "POST", f"{_NS}/pods", JSON),
    ("kubectl apply", "PATCH", f"{_NS}/pods/a?fieldManager=kubectl", JSON),
    ("kubectl apply --subresource=status", "PUT", f"{_NS}/pods/a/status", JSON),
    ("kubectl logs a", "GET", f"{_NS}/pods/a/log?container=main", "*/*"),
    ("kubectl exec a", "POST", f"{_NS}/pods/a/exec?command=sh", "*/*"),
    ("kubectl port-forward a", "GET", f"{_NS}/pods/a/portforward", "*/*"),
    ("kubectl debug a", "PATCH", f"{_NS}/pods/a/ephemeralcontainers", JSON),
    ("kubectl drain", "POST", f"{_NS}/pods/a/eviction", JSON),
    ("kubectl cordon n", "PATCH", "/api/v1/nodes/n", JSON),
    ("kubectl get secrets", "GET", f"{_NS}/secrets?limit=500", TABLE),
    ("kubectl create token", "POST", f"{_NS}/serviceaccounts/default/token", JSON),
    ("kubectl scale", "PATCH", "/apis/apps/v1/namespaces/team-a/deployments/d/scale", JSON),
    ("kubectl get --raw /metrics", "GET", "/metrics", JSON),
    ("curl of a binding", "POST", f"{_NS}/pods/a/binding", "*/*"),
    ("curl of a binding in its old form", "POST", f"{_NS}/bindings", "*/*"),
    ("curl of an old watch", "GET", "/api/v1/watch/pods", "*/*"),
    ("curl of a node's proxy", "GET", "/api/v1/nodes/n/proxy/pods", "*/*"),
]


@pytest.fixture
def viewed(server: Server, start: Start) -> Front:
    """One that hides each pod of ours."""
    return start(server.url, handlers=DrivenAppearances().handlers)


def ask(front: Front, method: str, path: str, accept: str) -> tuple[int, bytes]:
    client: HTTPConnection = front.client()
    body = b"{}" if method in ("POST", "PUT", "PATCH") else None
    client.request(method, f"/{SECRET}{path}", body, {"Accept": accept, "User-Agent": "kubectl/v1.36.3"})
    answer = client.getresponse()
    return answer.status, answer.read()


@pytest.mark.parametrize(("typed", "method", "path", "accept"), RELAYED, ids=[each[0] for each in RELAYED])
def test_the_proxy_answers_like_the_api_server(
    server: Server, viewed: Front, typed: str, method: str, path: str, accept: str
) -> None:
    server.script.append(Reply(200, b'{"kind":"Any"}', {"Content-Type": "application/json"}))
    status, body = ask(viewed, method, path, accept)
    assert (status, body) == (200, b'{"kind":"Any"}')
    (request,) = server.requests
    assert (request.method, request.target, request.headers["accept"]) == (method, path, accept)


@pytest.mark.parametrize(("typed", "method", "path", "accept"), REFUSED, ids=[each[0] for each in REFUSED])
def test_the_proxy_refuses_requests_that_a_scheduler_does_not_send(
    server: Server, viewed: Front, typed: str, method: str, path: str, accept: str
) -> None:
    status, body = ask(viewed, method, path, accept)
    found = json.loads(body)
    assert (status, found["kind"], found["reason"]) == (403, "Status", "Forbidden")
    assert "the scheduler proxy refuses" in found["message"]
    assert not server.requests


def test_a_list_in_json_leaves_hidden_pods_out_and_nothing_else(server: Server, viewed: Front) -> None:
    """Send a scheduler's list, also to `curl` and `kubectl get pods -o json`, which asks for no Table."""
    pods = [pod("ours", "7"), pod("bound", "8", node="n"), pod("theirs", "9")]
    pods[2]["spec"]["schedulerName"] = "default-scheduler"
    items = [without_kind(each) for each in pods]
    listed: dict[str, Any] = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}}
    body = json.dumps({**listed, "items": items}).encode()
    server.script.append(Reply(200, body, {"Content-Type": "application/json"}))
    status, got = ask(viewed, "GET", f"{_NS}/pods?labelSelector=a%3Db", JSON)
    assert (status, json.loads(got)) == (200, {**listed, "items": items[1:]})
