"""Fault proxy: its effect on requests, and on watches, where a fault says so."""

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import ClassVar

import pytest
import urllib3

from tests.e2e.harness.fault_proxy import FaultProxy
from tests.e2e.harness.faults import Fault
from tests.e2e.harness.waiting import wait_for
from tests.storm.faults.on_watches import Echo


class Server(BaseHTTPRequestHandler):
    """Server that answers ok to every POST, and sends the same to every watch."""

    protocol_version = "HTTP/1.1"
    came: ClassVar[list[bytes]] = []
    reported: ClassVar[list[bytes]] = []  # by each watch, in these pieces

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in [*self.reported, b""]:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))

    def do_POST(self) -> None:
        self.came.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Write no log."""


@pytest.fixture
def proxy() -> Iterator[FaultProxy]:
    Server.came.clear()
    Server.reported.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        with FaultProxy(f"http://127.0.0.1:{server.server_address[1]}") as proxy:
            yield proxy
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("stays", "status"), [(True, 200), (False, 0)])
def test_an_answer_without_a_waiting_caller_is_dropped(proxy: FaultProxy, stays: bool, status: int) -> None:
    released = threading.Event()
    fault = Fault("POST", "/x", before=released.wait, while_awaited=True)
    proxy.inject(fault)
    caller = socket.create_connection(("127.0.0.1", int(proxy.server.rpartition(":")[2])))
    caller.sendall(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi")
    wait_for(fault.hit.is_set)
    if not stays:
        caller.close()
    released.set()
    wait_for(lambda: proxy.calls)
    assert [call.status for call in proxy.calls] == [status]
    caller.close()


def test_a_repeated_request_is_answered_once(proxy: FaultProxy) -> None:
    proxy.inject(Fault("POST", "/x", twice=True))
    for body in ("one", "two"):
        assert urllib3.request("POST", f"{proxy.server}/x", body=body, retries=False).status == 200
    assert Server.came == [b"one", b"one", b"two"]


def test_a_watch_gets_events_again_at_once_or_from_an_earlier_watch(proxy: FaultProxy) -> None:
    """Send whole events, in whatever pieces they come; an error is the end, and not repeated."""
    echo = Echo(Random(1))
    watched = Fault("GET", "/pods$", query="watch=", pieces=echo, times=4)
    proxy.inject(watched)
    Server.reported[:] = [b'{"type":"ADD', b'ED"}\n{"type":"DELETED"}\n', b'{"type":"ERROR"}\n']
    added, deleted, error = b"".join(Server.reported).splitlines(keepends=True)
    assert _watched(proxy) == added + deleted + error
    echo.doubles = True
    heard = Counter(_watched(proxy).splitlines(keepends=True))
    assert (heard[error], max(heard.values())) == (1, 2), "some came twice"
    echo.doubles, echo.repeats_last = False, True
    assert _watched(proxy) == (added + deleted) * 3 + error
    echo.repeats_last = False
    assert _watched(proxy) == added + deleted + error


def _watched(proxy: FaultProxy) -> bytes:
    return urllib3.request("GET", f"{proxy.server}/pods?watch=1", retries=False).data
