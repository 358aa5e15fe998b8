"""Watches, bodies of requests, slow clients, the ends of connections."""

from http.client import HTTPResponse
from itertools import cycle
from threading import Event

import pytest

from tests.e2e.harness.waiting import wait_for
from tests.kube.server import Lines, Reply, Server
from tests.ports.clock import Clock
from tests.proxy import ANSWER_TIME
from tests.proxy.conftest import SECRET, Start, status_and_reason
from tests.proxy.raw import CHUNKED, RawConnection, RawServer, chunk

WATCH = f"GET /{SECRET}/api/v1/nodes?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n".encode()
HEAD_END = b"\r\n\r\n"
EVENTS = f"/{SECRET}/api/v1/namespaces/a/events"
MOST = 3 * 1024 * 1024  # bytes of a body
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
BEGUN = (
    ("Content-Length: 10", b"x"),
    ("Content-Length: 100000", b"x" * 70_000),
    ("Transfer-Encoding: chunked", chunk(b"x")),
)


def post(*fields: str) -> bytes:
    return "\r\n".join((f"POST {EVENTS} HTTP/1.1", "Host: x", *fields, "", "")).encode()


def watch(raw: RawServer, start: Start) -> tuple[RawConnection, RawConnection]:
    """Return the two ends of a watch through the proxy: the API server's and the client's."""
    client = start(raw.url).dial(WATCH)
    upstream = raw.accept(HEAD_END)
    upstream.send(CHUNKED)
    assert client.read_until(HEAD_END).startswith(b"HTTP/1.1 200 OK")
    return upstream, client


def read_chunks(client: RawConnection, size: int) -> bytes:
    """Return `size` bytes of a chunked body, however they are cut."""
    found = b""
    while len(found) < size:
        length = int(client.read_until(b"\r\n"), 16)
        found += client.read(length)
        assert client.read(2) == b"\r\n"
    return found


def test_each_chunk_is_passed_on_before_the_next_arrives(raw: RawServer, start: Start) -> None:
    upstream, client = watch(raw, start)
    event = b'{"type":"ADDED","object":{"kind":"Node","metadata":{"name":"n"}}}\n'
    for cut in range(1, len(event)):
        upstream.send(chunk(event[:cut]))
        assert read_chunks(client, cut) == event[:cut]
        upstream.send(chunk(event[cut:]))
        assert read_chunks(client, len(event) - cut) == event[cut:]


def test_a_watch_that_ends_upstream_ends_for_the_client(raw: RawServer, start: Start) -> None:
    upstream, client = watch(raw, start)
    upstream.send(chunk(b"last") + b"0\r\n\r\n")
    assert read_chunks(client, 4) == b"last"
    assert client.read_until(HEAD_END) == b"0\r\n\r\n"


@pytest.mark.parametrize("sent", [b"", b"4\r\nlast\r\n", b"9\r\nhalf", b"9\r", b"4\r\nlast\r\n0\r\n"])
def test_a_watch_that_is_cut_upstream_is_cut_for_the_client(
    raw: RawServer, start: Start, sent: bytes
) -> None:
    """A chunked body without its end shows the client that something is missing."""
    upstream, client = watch(raw, start)
    upstream.send(sent)
    upstream.close()
    assert not client.read_to_end().endswith(b"0\r\n\r\n")


def test_a_client_that_hangs_up_ends_its_watch_upstream(raw: RawServer, start: Start) -> None:
    upstream, client = watch(raw, start)
    client.close()
    assert upstream.read_to_end() == b""


def test_a_client_that_hangs_up_ends_its_request_upstream(raw: RawServer, start: Start) -> None:
    client = start(raw.url).dial(f"GET /{SECRET}/api/v1/nodes HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    upstream = raw.accept(HEAD_END)
    client.close()
    assert upstream.read_to_end() == b""


def test_a_body_in_chunks_is_passed_on_whole(raw: RawServer, start: Start) -> None:
    client = start(raw.url).dial(post("Transfer-Encoding: chunked") + chunk(b"first"))
    client.send(chunk(b"second") + b"0\r\n\r\n")
    upstream = raw.accept()
    head = upstream.read_until(HEAD_END).lower()
    assert b"content-length: 11\r\n" in head
    assert b"transfer-encoding" not in head
    assert upstream.read(11) == b"firstsecond"
    upstream.send(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
    assert client.read_until(b"\r\n") == b"HTTP/1.1 201 Created\r\n"


def test_a_client_may_ask_before_it_sends_a_body(raw: RawServer, start: Start) -> None:
    client = start(raw.url).dial(post("Content-Length: 100000", "Expect: 100-continue"))
    assert client.read_until(HEAD_END) == CONTINUE
    client.send(b"x" * 100_000)
    upstream = raw.accept()
    head = upstream.read_until(HEAD_END).lower()
    assert b"content-length: 100000" in head
    assert b"expect" not in head
    assert upstream.read(100_000) == b"x" * 100_000


def test_a_body_may_be_as_large_as_for_the_api_server(server: Server, start: Start) -> None:
    client = start(server.url).client()
    server.script.append(Reply(201))
    client.request("POST", EVENTS, b"x" * MOST)
    assert client.getresponse().read() == b"{}"
    assert len(server.requests[0].body) == MOST
    client.putrequest("POST", EVENTS)
    client.putheader("Content-Length", str(MOST + 1))
    client.endheaders()
    assert status_and_reason(client.getresponse()) == (413, "RequestEntityTooLarge")
    assert len(server.requests) == 1


def test_a_body_that_turns_out_to_be_too_large_is_413(server: Server, start: Start) -> None:
    client = start(server.url).dial(post("Transfer-Encoding: chunked") + chunk(b"x" * MOST) + b"1\r\n")
    assert not server.connections
    client.send(b"x")
    assert _answer(client) == (413, "RequestEntityTooLarge")
    assert not server.connections


@pytest.mark.parametrize("sent", [b"zz\r\n", b"1\r\nxx\r\n"])
def test_malformed_chunks_are_400(server: Server, start: Start, sent: bytes) -> None:
    client = start(server.url).dial(post("Transfer-Encoding: chunked") + sent)
    assert _answer(client) == (400, "BadRequest")
    assert not server.connections


def test_late_bodies_are_408_and_delay_no_other_request(
    server: Server, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are more than there are connections to the API server for what is like them."""
    clock = Clock()
    monkeypatch.setattr("asyncio.new_event_loop", lambda: clock)
    bench = start(server.url)
    server.script.append(Reply(201))
    stalled = [bench.dial() for _ in range(10)]
    for client, (length, begun) in zip(stalled, cycle(BEGUN), strict=False):
        client.send(post(length, "Expect: 100-continue"))
        assert client.read_until(HEAD_END) == CONTINUE
        client.send(begun)
    other = bench.client()
    other.request("POST", EVENTS, b"x" * 100_000)
    assert other.getresponse().read() == b"{}"
    clock.skipped += 20
    clock.call_soon_threadsafe(lambda: None)  # it looks at its time again
    assert [_answer(client) for client in stalled] == [(408, "Timeout")] * len(stalled)
    assert len(server.requests) == 1


def _answer(client: RawConnection) -> tuple[int, str]:
    answer = HTTPResponse(client.sock)
    answer.begin()
    return status_and_reason(answer)


def test_a_client_that_does_not_read_delays_no_other_client(server: Server, start: Start) -> None:
    """The API server gets no further than the buffers on the way; other requests are answered meanwhile."""
    sent, stalled, much = 0, Event(), 512 << 20

    def pieces() -> object:
        nonlocal sent
        server.connections[0].settimeout(3.0)  # an endless write is over, which the script takes for a cut
        try:
            while sent < much:
                yield b"x" * (1 << 18)
                sent += 1 << 18
        finally:
            stalled.set()

    server.script.append(Lines(pieces()))  # type: ignore[arg-type]
    server.script.append(Reply())
    bench = start(server.url)
    bench.dial(WATCH)
    wait_for(lambda: sent, what="the stream flows")
    other = bench.client()
    other.request("GET", f"/{SECRET}/api/v1/nodes")
    assert other.getresponse().read() == b"{}"
    assert stalled.wait(ANSWER_TIME)
    assert sent < much / 4
