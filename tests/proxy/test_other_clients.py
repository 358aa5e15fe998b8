"""A view that somebody else's client asks, kubectl or curl: it answers as the API server does, or 403."""

import json
from http.client import HTTPConnection
from typing import Any

import pytest

from tests.kube.server import Reply, Server
from tests.proxy.conftest import SECRET, ProxyBench, Start
from tests.proxy.releases import DrivenAppearances
from tests.proxy.sample_pods import pod, without_kind

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
JSON = "application/json"
_NS = "/api/v1/namespaces/team-a"

# Requests for pods; the proxy changes only those of a scheduler: what is typed, the path and Accept.
RELAYED_PATHS = [
    ("kubectl get pods", f"{_NS}/pods?limit=500", TABLE),
    ("kubectl get pods -w", f"{_NS}/pods?resourceVersion=7&watch=true", TABLE),
    ("kubectl get pods -A --chunk-size=1", "/api/v1/pods?limit=1&continue=abc", TABLE),
    ("kubectl get pod a -o yaml", f"{_NS}/pods/a", JSON),
]


@pytest.fixture
def viewed(server: Server, start: Start) -> ProxyBench:
    """Return a proxy that hides each pod of Muster's."""
    return start(server.url, handlers=DrivenAppearances().handlers)


def ask(bench: ProxyBench, method: str, path: str, accept: str) -> tuple[int, bytes]:
    client: HTTPConnection = bench.client()
    body = b"{}" if method in ("POST", "PUT", "PATCH") else None
    client.request(method, f"/{SECRET}{path}", body, {"Accept": accept, "User-Agent": "kubectl/v1.36.3"})
    answer = client.getresponse()
    return answer.status, answer.read()


@pytest.mark.parametrize(("typed", "path", "accept"), RELAYED_PATHS, ids=[each[0] for each in RELAYED_PATHS])
def test_the_proxy_answers_like_the_api_server(
    server: Server, viewed: ProxyBench, typed: str, path: str, accept: str
) -> None:
    server.script.append(Reply(200, b'{"kind":"Any"}', {"Content-Type": "application/json"}))
    assert ask(viewed, "GET", path, accept) == (200, b'{"kind":"Any"}')
    (request,) = server.requests
    assert (request.method, request.target, request.headers["accept"]) == ("GET", path, accept)


def test_the_proxy_refuses_requests_that_a_scheduler_does_not_send(
    server: Server, viewed: ProxyBench
) -> None:
    status, body = ask(viewed, "DELETE", f"{_NS}/pods/a", JSON)
    found = json.loads(body)
    assert (status, found["kind"], found["reason"]) == (403, "Status", "Forbidden")
    assert "the scheduler proxy refuses" in found["message"]
    assert not server.requests


def test_a_list_in_json_leaves_hidden_pods_out_and_nothing_else(server: Server, viewed: ProxyBench) -> None:
    """Send a scheduler's list, also to `curl` and `kubectl get pods -o json`, which asks for no Table."""
    pods = [pod("ours", "7"), pod("bound", "8", node="n"), pod("theirs", "9")]
    pods[2]["spec"]["schedulerName"] = "default-scheduler"
    items = [without_kind(each) for each in pods]
    listed: dict[str, Any] = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}}
    body = json.dumps({**listed, "items": items}).encode()
    server.script.append(Reply(200, body, {"Content-Type": "application/json"}))
    status, got = ask(viewed, "GET", f"{_NS}/pods?labelSelector=a%3Db", JSON)
    assert (status, json.loads(got)) == (200, {**listed, "items": items[1:]})
