"""Bodies that are read and written as they come: watches, uploads, slow clients, the ends of connections."""

import socket
from contextlib import closing
from threading import Event, Thread

import pytest

from tests.e2e.harness.waiting import wait_for
from tests.kube.server import Lines, Reply, Server
from tests.view import ANSWER_TIME
from tests.view.conftest import SECRET, Start
from tests.view.raw import CHUNKED, RawConnection, RawServer, chunk, dial

WATCH = f"GET /{SECRET}/api/v1/nodes?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n".encode()
HEAD_END = b"\r\n\r\n"


def watch(raw: RawServer, start: Start) -> tuple[RawConnection, RawConnection]:
    """The two ends of a watch through the view: the API server's and the client's."""
    client = dial(start(raw.url).port)
    client.send(WATCH)
    upstream = raw.accept()
    upstream.read_until(HEAD_END)
    upstream.send(CHUNKED)
    assert client.read_until(HEAD_END).startswith(b"HTTP/1.1 200 OK")
    return upstream, client


def read_chunks(client: RawConnection, size: int) -> bytes:
    """So many bytes of a chunked body, however they are cut."""
    found = b""
    while len(found) < size:
        length = int(client.read_until(b"\r\n"), 16)
        found += client.read(length)
        assert client.read(2) == b"\r\n"
    return found


def test_every_piece_is_passed_on_while_the_next_is_awaited(raw: RawServer, start: Start) -> None:
    upstream, client = watch(raw, start)
    event = b'{"type":"ADDED","object":{"kind":"Node","metadata":{"name":"n"}}}\n'
    for cut in range(1, len(event)):
        upstream.send(chunk(event[:cut]))
        assert read_chunks(client, cut) == event[:cut]
        upstream.send(chunk(event[cut:]))
        assert read_chunks(client, len(event) - cut) == event[cut:]
    client.close()


def test_a_watch_that_ends_upstream_ends_for_the_client(raw: RawServer, start: Start) -> None:
    upstream, client = watch(raw, start)
    upstream.send(chunk(b"last") + b"0\r\n\r\n")
    assert read_chunks(client, 4) == b"last"
    assert client.read_until(HEAD_END) == b"0\r\n\r\n"
    client.close()


@pytest.mark.parametrize("sent", [b"", b"4\r\nlast\r\n", b"9\r\nhalf", b"9\r", b"4\r\nlast\r\n0\r\n"])
def test_a_watch_that_is_cut_upstream_is_cut_for_the_client(
    raw: RawServer, start: Start, sent: bytes
) -> None:
    """A chunked body without its end tells the client that something is missing."""
    upstream, client = watch(raw, start)
    upstream.send(sent)
    upstream.close()
    assert not client.read_to_end().endswith(b"0\r\n\r\n")
    client.close()


def test_a_client_that_hangs_up_ends_its_watch_upstream(raw: RawServer, start: Start) -> None:
    upstream, client = watch(raw, start)
    client.close()
    assert upstream.read_to_end() == b""


def test_a_client_that_hangs_up_ends_its_request_upstream(raw: RawServer, start: Start) -> None:
    client = dial(start(raw.url).port)
    client.send(f"GET /{SECRET}/api/v1/nodes HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    upstream = raw.accept()
    upstream.read_until(HEAD_END)
    client.close()
    assert upstream.read_to_end() == b""


def test_a_large_body_is_passed_on_as_it_comes(raw: RawServer, start: Start) -> None:
    client = dial(start(raw.url).port)
    path = f"/{SECRET}/api/v1/namespaces/a/events"
    client.send(f"POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
    client.send(chunk(b"first"))
    upstream = raw.accept()
    upstream.read_until(b"first\r\n")
    client.send(chunk(b"second") + b"0\r\n\r\n")
    upstream.read_until(b"second\r\n0\r\n\r\n")
    upstream.send(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
    assert client.read_until(b"\r\n") == b"HTTP/1.1 201 Created\r\n"
    client.close()


def test_a_client_may_ask_before_it_sends_a_large_body(raw: RawServer, start: Start) -> None:
    client = dial(start(raw.url).port)
    path = f"/{SECRET}/api/v1/namespaces/a/events"
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\nExpect: 100-continue\r\n\r\n"
    client.send(head.encode())
    assert client.read_until(HEAD_END) == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.send(b"x" * 100_000)
    upstream = raw.accept()
    head_there = upstream.read_until(HEAD_END).lower()
    assert b"content-length: 100000" in head_there
    assert b"expect" not in head_there
    assert upstream.read(100_000) == b"x" * 100_000
    client.close()


def test_a_body_that_is_too_large_is_413(server: Server, start: Start) -> None:
    client = start(server.url).client()
    path = f"/{SECRET}/api/v1/namespaces/a/events"
    client.putrequest("POST", path)
    client.putheader("Content-Length", str(16 * 1024 * 1024 + 1))
    client.endheaders()
    assert client.getresponse().status == 413
    assert not server.requests


def test_a_body_that_turns_out_to_be_too_large_is_413(raw: RawServer, start: Start) -> None:
    front = start(raw.url)
    with closing(dial(front.port)) as client:
        path = f"/{SECRET}/api/v1/namespaces/a/events"
        client.send(f"POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        Thread(target=_send_much, args=[client.sock, 17], daemon=True).start()
        assert not raw.accept().read_to_end().endswith(b"0\r\n\r\n")
        assert client.read_until(b"\r\n") == b"HTTP/1.1 413 Request Entity Too Large\r\n"


def _send_much(sock: socket.socket, mebibytes: int) -> None:
    try:
        for _ in range(mebibytes):
            sock.sendall(chunk(b"x" * (1 << 20)))
    except OSError:
        return


def test_a_body_that_does_not_come_is_408(
    server: Server, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("extender.view.upstream._PATIENCE", 0.05)
    front = start(server.url)
    for length in (10, 100_000):
        with closing(dial(front.port)) as client:
            path = f"/{SECRET}/api/v1/namespaces/a/events"
            client.send(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\nx".encode())
            assert client.read_until(b"\r\n") == b"HTTP/1.1 408 Request Timeout\r\n"


def test_a_client_that_does_not_read_is_waited_for_and_delays_nobody(server: Server, start: Start) -> None:
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
    front = start(server.url)
    with closing(dial(front.port)) as client:
        client.send(WATCH)
        wait_for(lambda: sent, what="the stream flows")
        other = front.client()
        other.request("GET", f"/{SECRET}/api/v1/nodes")
        assert other.getresponse().read() == b"{}"
        assert stalled.wait(ANSWER_TIME)
        assert sent < much / 4
