"""Requests through the proxy, one at a time: what arrives at the API server, and what comes back."""

import gzip
from http import HTTPStatus
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest

from tests.kube.server import Reply, Server, status
from tests.proxy.conftest import SECRET, ProxyBench, Start, status_and_reason
from tests.proxy.raw import CHUNKED, RawServer, chunk
from tests.rows import each_of

EVENTS = f"/{SECRET}/apis/events.k8s.io/v1/namespaces/a/events"
NODES = f"/{SECRET}/api/v1/nodes"
PROTOBUF = "application/vnd.kubernetes.protobuf"


def ask(
    client: HTTPConnection,
    path: str = NODES,
    method: str = "GET",
    body: bytes | None = None,
    /,
    **headers: str,
) -> HTTPResponse:
    client.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    return client.getresponse()


def test_a_request_is_passed_on_as_it_is(server: Server, bench: ProxyBench) -> None:
    server.script.append(Reply(201, b"\x00\x01answer", {"Content-Type": PROTOBUF}))
    body = bytes(range(256))
    path = f"{EVENTS}?dryRun=All&fieldSelector=a%3Db%2Cc+d"
    answer = ask(
        bench.client(),
        path,
        "POST",
        body,
        Content_Type=PROTOBUF,
        Accept=f"{PROTOBUF}, */*",
        User_Agent="me/1",
    )
    assert (answer.status, answer.read()) == (201, b"\x00\x01answer")
    assert answer.headers["Content-Type"] == PROTOBUF
    (request,) = server.requests
    assert f"/{SECRET}{request.target}" == path
    assert (request.method, request.body) == ("POST", body)
    reserved = {name: request.headers[name] for name in ("content-type", "accept", "user-agent")}
    assert reserved == {"content-type": PROTOBUF, "accept": f"{PROTOBUF}, */*", "user-agent": "me/1"}


def test_the_proxy_replaces_the_identity_headers_of_a_client(server: Server, bench: ProxyBench) -> None:
    server.script.append(Reply())
    claims = {"Authorization": "Bearer mine", "Impersonate_User": "admin", "Impersonate_Extra_x": "y"}
    answer = ask(bench.client(), X_Remote_User="admin", X_Remote_Group="system:masters", **claims)
    assert answer.status == 200
    headers = server.requests[0].headers
    assert headers["authorization"] == "Bearer secret"
    assert not [name for name in headers if name.startswith(("impersonate", "x-remote"))]


def test_without_a_token_no_authorization_header_is_sent(server: Server, start: Start) -> None:
    """Show no token, not even the client's, which is not the proxy's to use."""
    server.script.append(Reply())
    assert ask(start(server.url, user={"token": ""}).client(), Authorization="Bearer theirs").status == 200
    (request,) = server.requests
    assert "authorization" not in request.headers


def test_a_request_without_a_tunnel_counts_as_unsent(
    server: Server, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Report it as unsent, so that it may be repeated, even an event."""
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("NO_PROXY", "")
    server.script.append(status(503))
    proxy = server.url.replace("//", "//me:secret@")
    bench = start("https://cluster.example:6443", **{"proxy-url": proxy})
    answer = ask(bench.client(), EVENTS, "POST", b"{}")
    assert status_and_reason(answer) == (429, "TooManyRequests")
    (request,) = server.requests
    assert (request.method, request.target) == ("CONNECT", "cluster.example:6443")
    assert request.headers["proxy-authorization"] == "Basic bWU6c2VjcmV0"


def test_a_compressed_body_is_passed_on_as_it_is(server: Server, bench: ProxyBench) -> None:
    server.script.append(Reply(201))
    body = gzip.compress(b"an event")
    assert ask(bench.client(), EVENTS, "POST", body, Content_Encoding="gzip").status == 201
    (request,) = server.requests
    assert (request.body, request.headers["content-encoding"]) == (body, "gzip")


def test_headers_of_one_hop_and_compression_are_not_passed_on(server: Server, bench: ProxyBench) -> None:
    server.script.append(
        Reply(headers={"Keep-Alive": "timeout=9", "Connection": "X-Mine", "X-Mine": "1", "X-Yours": "2"})
    )
    sent = {"Connection": "X-Hop, keep-alive", "X_Hop": "1", "Accept_Encoding": "gzip", "TE": "trailers"}
    answer = ask(bench.client(), Proxy_Connection="keep-alive", Proxy_Authorization="Basic x", **sent)
    hidden = {"x-hop", "accept-encoding", "te", "proxy-connection", "proxy-authorization", "keep-alive"}
    assert not hidden & server.requests[0].headers.keys()
    assert (answer.headers["X-Yours"], answer.headers["X-Mine"], answer.headers["Keep-Alive"]) == (
        "2",
        None,
        None,
    )


def test_an_answer_is_passed_on_as_it_is(raw: RawServer, start: Start) -> None:
    client = start(raw.url).client()
    client.request("GET", NODES)
    upstream = raw.accept(b"\r\n\r\n")
    upstream.send(
        b"HTTP/1.1 409 Conflict\r\nContent-Encoding: gzip\r\nWarning: 299 - one\r\nWarning: 299 - two\r\n"
        b"Audit-Id: x\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x00\x01"
    )
    answer = client.getresponse()
    assert (answer.status, answer.reason, answer.read()) == (409, "Conflict", b"\x1f\x8b\x00\x01")
    assert answer.headers.get_all("Warning") == ["299 - one", "299 - two"]
    assert (answer.headers["Content-Encoding"], answer.headers["Audit-Id"]) == ("gzip", "x")


@pytest.mark.parametrize("code", [500, 503, 504, 429, 410, 404])
def test_the_api_servers_own_refusals_are_passed_on(server: Server, bench: ProxyBench, code: int) -> None:
    server.script.append(status(code, "Its", "own words", Retry_After="7"))
    answer = ask(bench.client())
    assert answer.headers["Retry-After"] == "7"
    assert status_and_reason(answer) == (code, "Its")


def test_a_long_selector_is_passed_on(server: Server, bench: ProxyBench) -> None:
    server.script.append(Reply())
    query = "labelSelector=" + "a" * 30_000
    assert ask(bench.client(), f"{NODES}?{query}").status == 200
    assert server.requests[0].target == f"/api/v1/nodes?{query}"


def test_both_forms_of_a_request_target_are_understood(server: Server, bench: ProxyBench) -> None:
    server.script.extend([Reply(), Reply()])
    assert ask(bench.client(), f"{NODES}?limit=1").status == 200
    assert ask(bench.client(), f"http://kube-apiserver.muster{NODES}?limit=1").status == 200
    assert [request.target for request in server.requests] == ["/api/v1/nodes?limit=1"] * 2


@pytest.mark.parametrize(
    "path",
    ["/api/v1/nodes", "/", f"/{SECRET[:-1]}/api/v1/nodes", f"/{SECRET}x/version", f"//{SECRET}/version"],
)
def test_without_the_secret_nothing_is_found(server: Server, bench: ProxyBench, path: str) -> None:
    assert status_and_reason(ask(bench.client(), path)) == (404, "NotFound")
    assert not server.requests


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/../secrets",
        "/api/v1/%2e%2e/x",
        "/api/v1//nodes",
        "/api/v1/nodes#x",
        "",
        "/api/v1/name%2Fspaces",
        "/./api",
        "/api/v1/nodes?a#b",
    ],
)
def test_a_path_that_could_mean_something_else_is_malformed(
    server: Server, bench: ProxyBench, path: str
) -> None:
    client = bench.dial(f"GET /{SECRET}{path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert client.read_until(b"\r\n") == b"HTTP/1.1 400 Bad Request\r\n"
    assert not server.requests


@pytest.mark.parametrize(
    ("target", "header", "status"),
    [
        (b"/\xff\xfe/api", b"x", b"400"),
        (f"/{SECRET}/api/v1/n\u00f6des".encode(), b"x", b"400"),
        (f"{NODES}?a=\u00f6".encode(), b"x", b"400"),
        (NODES.encode(), b"\xff\xfe", b"200"),
        (NODES.encode(), "n\u00f6".encode(), b"200"),
    ],
)
def test_bytes_that_are_no_text(
    server: Server, bench: ProxyBench, target: bytes, header: bytes, status: bytes
) -> None:
    server.script.append(Reply())
    client = bench.dial(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\nX: " + header + b"\r\n\r\n")
    assert client.read_until(b"\r\n").split(b" ")[1] == status


@each_of(b"NONSENSE\r\n\r\n", b"GET /x HTTP/1.1\r\nHost: x\r\nA: b\r\n c\x00d\r\n\r\n")
def test_text_that_is_no_http_is_malformed(head: bytes, *, bench: ProxyBench) -> None:
    client = bench.dial(head)
    assert b" 400 Bad Request" in client.read_until(b"\r\n")
    assert b'"kind":"Status"' in client.read_to_end()


@each_of((b"/" + b"x" * 70_000, b""), (b"/", b"X: " + b"x" * 17_000 + b"\r\n"), (b"/", b"X: x\r\n" * 70))
def test_the_size_of_a_head_is_limited(target: bytes, headers: bytes, *, bench: ProxyBench) -> None:
    client = bench.dial(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n")
    assert b" 400 Bad Request" in client.read_until(b"\r\n")


def test_requests_that_bypass_the_barrier_are_refused(server: Server, bench: ProxyBench) -> None:
    client = bench.client()
    path = f"/{SECRET}/api/v1/namespaces/a/pods/p"
    for pod in (path, f"{path}2"):
        assert status_and_reason(ask(client, f"{pod}/binding", "POST", b"{}")) == (403, "Forbidden")
    assert status_and_reason(ask(client, path, "DELETE")) == (403, "Forbidden")
    assert status_and_reason(ask(client, f"{path}/exec?command=sh")) == (403, "Forbidden")
    assert status_and_reason(ask(bench.client(), NODES, Upgrade="SPDY/3.1", Connection="Upgrade")) == (
        403,
        "Forbidden",
    )
    assert ask(bench.client(), "kube-apiserver.muster:443", "CONNECT").status == 403
    assert not server.requests


def test_one_connection_serves_many_requests(server: Server, bench: ProxyBench) -> None:
    server.script.extend([Reply()] * 5)
    client = bench.client()
    for _ in range(5):
        assert ask(client).read() == b"{}"
    assert len(server.connections) == 1


def test_an_api_server_that_is_gone_is_429_until_it_is_back(start: Start) -> None:
    with Server() as first:
        bench = start(first.url)
        first.script.append(Reply())
        client = bench.client()
        assert ask(client).read() == b"{}"
    for method, path in (("GET", NODES), ("POST", EVENTS), ("GET", f"{NODES}?watch=1")):
        answer = ask(client, path, method, b"{}" if method == "POST" else None)
        assert answer.headers["Retry-After"] == "1"
        assert status_and_reason(answer) == (HTTPStatus.TOO_MANY_REQUESTS, "TooManyRequests")
    with Server(port=first.port) as again:
        again.script.append(Reply())
        assert ask(client).read() == b"{}"


def test_a_read_on_a_dead_connection_is_repeated(raw: RawServer, start: Start) -> None:
    client = start(raw.url).client()
    client.request("GET", NODES)
    upstream = raw.accept(b"\r\n\r\n")
    upstream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1")
    assert client.getresponse().read() == b"1"
    client.request("GET", NODES)
    upstream.read_until(b"\r\n\r\n")
    upstream.close()
    other = raw.accept(b"\r\n\r\n")
    other.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n2")
    assert client.getresponse().read() == b"2"


def test_a_write_that_may_have_been_executed_is_not_repeated(raw: RawServer, start: Start) -> None:
    """The client sees what it would see without the proxy: the end of the connection."""
    bench = start(raw.url)
    client = bench.dial(f"POST {EVENTS} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{{}}".encode())
    upstream = raw.accept(b"{}")
    upstream.close()
    assert client.read_to_end() == b""
    client.close()
    other = bench.client()
    other.request("GET", NODES)
    assert raw.accept().read_until(b"\r\n").startswith(b"GET ")


def test_a_read_whose_answer_was_cut_off_is_429(raw: RawServer, start: Start) -> None:
    client = start(raw.url).client()
    client.request("GET", NODES)
    upstream = raw.accept(b"\r\n\r\n")
    upstream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegun")
    upstream.close()
    assert status_and_reason(client.getresponse()) == (429, "TooManyRequests")


def test_a_large_answer_that_is_cut_off_is_cut_off(raw: RawServer, start: Start) -> None:
    client = start(raw.url).dial(f"GET {NODES} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    upstream = raw.accept(b"\r\n\r\n")
    upstream.send(CHUNKED + chunk(b"begun"))
    client.read_until(b"begun\r\n")
    upstream.close()
    assert client.read_to_end() == b""


def test_a_rotated_token_is_used_at_once(
    server: Server, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Use it before the next look at the file; the scheduler hears nothing of the refusal."""
    monkeypatch.setattr("extender.proxy.upstream._REFRESH_PERIOD", 3600.0)
    token = tmp_path / "token"
    token.write_text("old")
    bench = start(server.url, user={"tokenFile": str(token)})
    server.script.extend([Reply(), status(401), Reply(201)])
    client = bench.client()
    assert ask(client).read()
    token.write_text("new")
    assert ask(client, EVENTS, "POST", b"{}").status == 201
    assert [request.headers["authorization"] for request in server.requests][::2] == [
        "Bearer old",
        "Bearer new",
    ]
    assert [request.body for request in server.requests] == [b"", b"{}", b"{}"]


def test_a_refusal_is_passed_on_where_there_is_no_other_token(server: Server, bench: ProxyBench) -> None:
    server.script.append(status(401, "Unauthorized"))
    assert status_and_reason(ask(bench.client())) == (401, "Unauthorized")


def test_an_answer_without_a_body(raw: RawServer, start: Start) -> None:
    client = start(raw.url).client()
    client.request("HEAD", NODES)
    upstream = raw.accept(b"\r\n\r\n")
    upstream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
    answer = client.getresponse()
    assert (answer.headers["Content-Length"], answer.read()) == ("5", b"")
    client.request("GET", NODES)
    upstream.read_until(b"\r\n\r\n")
    upstream.send(b"HTTP/1.1 304 Not Modified\r\nEtag: x\r\n\r\n")
    answer = client.getresponse()
    assert (answer.status, answer.headers["Etag"], answer.read()) == (304, "x", b"")
