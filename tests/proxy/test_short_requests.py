"""Short Events, as the scheduler posts them: what arrives at the API server, and what comes back."""

import asyncio
import socket
from pathlib import Path

import pytest

from extender.proxy import short_requests
from extender.proxy import upstream as upstreams
from extender.proxy.short_requests import Reply, read_answer
from extender.telemetry import metrics
from tests.kube.server import Reply as Answer
from tests.kube.server import Server, status
from tests.proxy.conftest import SECRET, ProxyBench, Start
from tests.proxy.raw import PROTOBUF, RawServer, event
from tests.rows import each_of

NOWHERE = "http://127.0.0.1:1"
EVENTS = "/apis/events.k8s.io/v1/namespaces/a/events"
POSTED = event(f"http://kube-apiserver.muster/{SECRET}{EVENTS}", b"\x00\x01an event")
CREATED = b"HTTP/1.1 201 Created\r\nAudit-Id: x\r\nContent-Length: 4\r\n\r\n\x00\x01ok"
IN_CHUNKS = (
    b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\nAudit-Id: x\r\n\r\n"
    b"2\r\n\x00\x01\r\n2\r\nok\r\n0\r\n\r\n"
)
RELAYED_ANSWER = (
    b"HTTP/1.1 201 Created\r\nAudit-Id: x\r\nServer: muster\r\nContent-Length: 4\r\n\r\n\x00\x01ok"
)
LAST_ANSWER = CREATED.replace(b"Audit", b"Connection: close, X-Hop\r\nX-Hop: 1\r\nAudit")
TO_THE_END = b"HTTP/1.0 201 Created\r\nAudit-Id: x\r\n\r\n\x00\x01ok"
NOT_MODIFIED = b"HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\n"
REWRITTEN_UNCHANGED = b"HTTP/1.1 304 Not Modified\r\nServer: muster\r\nContent-Length: 0\r\n\r\n"


@each_of(
    (CREATED, False, Reply(201, CREATED, False)),
    (
        CREATED.replace(b"Content", b"CONTENT"),
        False,
        Reply(201, CREATED.replace(b"Content", b"CONTENT"), False),
    ),
    (IN_CHUNKS, False, Reply(201, RELAYED_ANSWER, False)),
    (b"HTTP/1.1 100 Continue\r\n\r\n" + CREATED, False, Reply(201, RELAYED_ANSWER, False)),
    (LAST_ANSWER, False, Reply(201, RELAYED_ANSWER, True)),
    (TO_THE_END, True, Reply(201, RELAYED_ANSWER, True)),
    (b"\r\n\r\n" + CREATED, False, Reply(201, RELAYED_ANSWER, False)),
    (NOT_MODIFIED, False, Reply(304, REWRITTEN_UNCHANGED, False)),
)
def test_an_answer_is_complete_with_its_last_byte(sent: bytes, ends: bool, read: Reply) -> None:
    async def cut_anywhere() -> None:
        for cut in range(len(sent)):
            assert read_answer(sent[:cut], False) is None
        assert read_answer(sent, ends) == read

    asyncio.run(cut_anywhere())


@each_of(CREATED, IN_CHUNKS)
def test_bytes_after_an_answer_are_not_part_of_it(first: bytes) -> None:
    async def read() -> None:
        found = read_answer(first + CREATED.replace(b"201 Created", b"409 Conflict"), False)
        assert found is not None
        assert (found.status, found.closes_connection) == (201, True)

    asyncio.run(read())


@each_of(
    b"nonsense\r\n\r\n",
    IN_CHUNKS.replace(b"\r\n2\r\n", b"\r\nx\r\n"),
    CREATED + b"x" * short_requests._MAX_ANSWER_BYTES,
)
def test_malformed_answers_are_refused(sent: bytes) -> None:
    async def read() -> None:
        with pytest.raises(ConnectionError):
            read_answer(sent, False)

    asyncio.run(read())


def test_an_event_and_its_answer_are_passed_on_as_they_are(raw: RawServer, start: Start) -> None:
    client = start(raw.url).dial(POSTED)
    upstream = raw.accept()
    assert upstream.read_until(b"an event").decode().split("\r\n") == [
        f"POST {EVENTS} HTTP/1.1",
        f"Host: {raw.url.removeprefix('http://')}",
        "Authorization: Bearer secret",
        "User-Agent: kube-scheduler/v1.37.2",
        "Content-Length: 10",
        f"Accept: {PROTOBUF}, */*",
        f"Content-Type: {PROTOBUF}",
        "",
        "\x00\x01an event",
    ]
    upstream.send(CREATED)
    assert client.read(len(CREATED)) == CREATED


def test_connections_are_reused_and_serve_other_requests_in_between(raw: RawServer, start: Start) -> None:
    client = start(raw.url).dial(POSTED)
    upstream = raw.accept()
    others = None
    for _ in range(3):
        upstream.read_until(b"an event")
        upstream.send(CREATED)
        assert client.read(len(CREATED)) == CREATED
        client.send(f"GET /{SECRET}/livez HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        others = others or raw.accept()
        others.read_until(b"\r\n\r\n")
        others.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine")
        client.read_until(b"\r\n\r\nfine")
        client.send(POSTED)


@pytest.mark.parametrize("answer", [b"", CREATED[:-1], IN_CHUNKS[:-1], b"nonsense\r\n\r\n"])
def test_a_request_that_may_have_been_executed_is_not_sent_twice(
    raw: RawServer, start: Start, answer: bytes
) -> None:
    """The client sees what it would see without the proxy: the end of the connection."""
    bench = start(raw.url)
    cut = metrics.view_requests.labels("cut")
    before = cut._value.get()
    for _ in range(2):
        client = bench.dial(POSTED)
        upstream = raw.accept(b"an event")
        upstream.send(answer)
        upstream.close()
        assert client.read_to_end() == b""
    assert cut._value.get() == before + 2


def test_a_request_on_a_dead_connection_is_sent_on_another(raw: RawServer, start: Start) -> None:
    client = start(raw.url).dial()
    for _ in range(3):
        client.send(POSTED)
        upstream = raw.accept(b"an event")
        upstream.send(CREATED)
        assert client.read(len(CREATED)) == CREATED
        upstream.sock.shutdown(socket.SHUT_WR)
        assert upstream.read_to_end() == b""  # the proxy has noticed


def test_one_connection_is_opened_at_a_time_and_the_next_request_gets_the_first_free_one(
    raw: RawServer, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dial through a proxy, which reports open connections: one opens, and a second one never does."""
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("NO_PROXY", "")
    before = metrics.view_dials._value.get()
    bench = start("http://cluster.example", **{"proxy-url": raw.url})
    clients = [bench.dial(POSTED) for _ in range(5)]
    upstream = raw.accept(b"\r\n\r\n")
    upstream.send(b"HTTP/1.1 200 OK\r\n\r\n")
    for _ in clients:
        upstream.read_until(b"an event")
        upstream.send(CREATED)
    for client in clients:
        assert client.read(len(CREATED)) == CREATED
    assert metrics.view_dials._value.get() - before <= 2
    raw.close()  # so that nothing is dialled any more


def test_a_client_that_waits_too_long_for_a_connection_gets_429(
    raw: RawServer, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let the client come again where the proxy does not report an open connection."""
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setattr(short_requests, "TURN", 0.01)
    client = start("http://cluster.example", **{"proxy-url": raw.url}).dial(POSTED)
    raw.accept()
    assert client.read_until(b"\r\n") == b"HTTP/1.1 429 Too Many Requests\r\n"
    raw.close()


def test_a_client_that_hangs_up_ends_its_event_upstream(raw: RawServer, start: Start) -> None:
    client = start(raw.url).dial(POSTED)
    upstream = raw.accept(b"an event")
    client.close()
    assert upstream.read_to_end() == b""


def test_silent_connections_time_out(raw: RawServer, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the silence of an idle connection, and of one with a request."""
    monkeypatch.setattr(upstreams, "_REFRESH_PERIOD", 0.05)
    client = start(raw.url).dial(POSTED)
    upstream = raw.accept(b"an event")
    monkeypatch.setattr(short_requests, "MAX_IDLE", 0.01)
    upstream.send(CREATED)
    assert client.read(len(CREATED)) == CREATED
    assert upstream.read_to_end() == b""
    monkeypatch.undo()
    monkeypatch.setattr(short_requests, "ANSWER", 0.01)
    client.send(POSTED)
    upstream = raw.accept(b"an event")
    assert upstream.read_to_end() == client.read_to_end() == b""


def test_a_rotated_token_is_used_at_once(
    server: Server, start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(upstreams, "_REFRESH_PERIOD", 3600.0)  # only the refusal reports it
    token = tmp_path / "token"
    token.write_text("old")
    bench = start(server.url, user={"tokenFile": str(token)})
    server.script.extend([Answer(201), status(401), Answer(201)])
    client = bench.dial()
    for text in ("new", "newer"):
        client.send(POSTED)
        assert client.read_until(b"{}").startswith(b"HTTP/1.1 201 ")
        token.write_text(text)
    shown = [request.headers["authorization"] for request in server.requests]
    assert (shown[0], shown[-1], len(server.connections)) == ("Bearer old", "Bearer new", 2)


@pytest.mark.parametrize("proxied", [False, True])
def test_a_request_that_does_not_reach_the_api_server_gets_429(
    server: Server, start: Start, monkeypatch: pytest.MonkeyPatch, proxied: bool
) -> None:
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("NO_PROXY", "")
    server.script.append(status(503))
    url, proxy = ("https://cluster.example:6443", {"proxy-url": server.url}) if proxied else (NOWHERE, {})
    client = start(url, **proxy).dial(POSTED)
    assert client.read_until(b"\r\n") == b"HTTP/1.1 429 Too Many Requests\r\n"
    assert b"\r\nRetry-After: 1\r\n" in client.read_until(b"\r\n\r\n")
    assert b"cannot be reached" in client.read_until(b'"code":429}')


@each_of(
    (f"/{SECRET}/api/v1/namespaces/a/pods", 403),
    (f"/{SECRET}/api/v1//events", 400),
    (EVENTS, 404),
)
def test_forbidden_requests_are_refused_on_short_connections_too(
    path: str, reported: int, *, bench: ProxyBench
) -> None:
    assert bench.dial(event(path)).read_until(b"\r\n").split()[1] == b"%d" % reported
