"""A request that hangs in the fault proxy is dropped with its caller, where the fault says so."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest
import urllib3

from tests.e2e.harness.fault_proxy import FaultProxy
from tests.e2e.harness.faults import Fault
from tests.e2e.harness.waiting import wait_for


class Server(BaseHTTPRequestHandler):
    """Says ok to every POST."""

    protocol_version = "HTTP/1.1"
    came: ClassVar[list[bytes]] = []

    def do_POST(self) -> None:
        self.came.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def proxy() -> Iterator[FaultProxy]:
    Server.came.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        with FaultProxy(f"http://127.0.0.1:{server.server_address[1]}") as proxy:
            yield proxy
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("stays", "status"), [(True, 200), (False, 0)])
def test_what_nobody_waits_for_is_dropped(proxy: FaultProxy, stays: bool, status: int) -> None:
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


def test_what_comes_twice_is_answered_once(proxy: FaultProxy) -> None:
    proxy.inject(Fault("POST", "/x", twice=True))
    for body in ("one", "two"):
        assert urllib3.request("POST", f"{proxy.server}/x", body=body, retries=False).status == 200
    assert Server.came == [b"one", b"one", b"two"]
