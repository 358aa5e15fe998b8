"""Reverse proxy in front of the API server that applies faults to requests.

Bodies of answers are streamed. Each connection has a thread, and a separate connection to the API server.
"""

import http.client
import json
import re
import select
import ssl
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.e2e.harness import loopback
from tests.e2e.harness.faults import ACCESS_REVIEWS, BINDING, Fault, Pieces

CHUNK = 1 << 16
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "upgrade", "te"}


@dataclass(frozen=True)
class Call:
    """Request that went through the proxy.

    The status 0 means that the caller got no answer. A second call with the status 0 for the same request
    means that the answer was cut.
    """

    method: str
    path: str
    status: int
    body: bytes = b""


class FaultProxy:
    """Proxy that applies faults to requests, and records the requests.

    Example: `with stage.start_fault_proxy() as proxy: proxy.inject(answer(409), answer(500), lose_answer())`.
    """

    def __init__(
        self,
        server: str,
        certificate: Path | None = None,
        key: Path | None = None,
        remember: int | None = None,
    ) -> None:
        """Prepare a proxy in front of `server`.

        Without a certificate, the proxy uses plain HTTP. `remember` is the number of latest calls that the
        proxy records; None means all calls.
        """
        self.target = server.rpartition("/")[2]
        self.trust = ssl.create_default_context(cafile=str(certificate)) if certificate else None
        self.calls: deque[Call] = deque(maxlen=remember)
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._server = _Server(self, certificate, key)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="fault-proxy")

    def __enter__(self) -> "FaultProxy":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.hang_up()
        self._server.server_close()

    @property
    def server(self) -> str:
        """Return the address of the API server as a client of this proxy sees it."""
        scheme = "https" if self.trust else "http"
        return f"{scheme}://{self.address}"

    @property
    def address(self) -> str:
        return loopback.at(self._server.server_address[1])

    def inject(self, *faults: Fault) -> None:
        """Add faults.

        A request gets the first fault that matches it. A fault ends after `times` requests.
        """
        with self._lock:
            self._faults = [fault for fault in (*self._faults, *faults) if fault.times > 0]

    def pending_faults(self) -> list[Fault]:
        """Return the faults that may still apply to further requests."""
        with self._lock:
            return [fault for fault in self._faults if fault.times > 0]

    def cut(self, watches: Fault) -> int:
        """End the streams whose requests match `watches`, and return the number of streams."""
        return self._server.cut(watches)

    def use_fault(self, method: str, path: str, body: bytes = b"", agent: str = "") -> Fault | None:
        """Return the fault for a request, or None without a matching fault.

        The fault's `times` goes down by one.
        """
        with self._lock:
            fault = next((fault for fault in self._faults if fault.matches(method, path, body, agent)), None)
            if fault is not None:
                fault.times -= 1
                fault.hit.set()
        return fault

    def record(self, call: Call) -> None:
        with self._lock:
            self.calls.append(call)

    def writes(self) -> list[Call]:
        """Return all calls except reads and access reviews."""
        with self._lock:
            return [call for call in self.calls if call.method != "GET" and ACCESS_REVIEWS not in call.path]

    def bindings(self) -> dict[str, list[str]]:
        """Return the nodes of all binding requests, keyed by pod.

        Each request adds a node, also a repeated request.
        """
        nodes: dict[str, list[str]] = defaultdict(list)
        for call in self.writes():
            if re.search(BINDING, call.path):
                nodes[call.path.split("/")[-2]].append(json.loads(call.body)["target"]["name"])
        return dict(nodes)


class _Server(ThreadingHTTPServer):
    """HTTP server that makes the TLS handshake in the thread of the connection.

    A caller that is slow in its handshake then does not delay other callers.
    """

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, proxy: FaultProxy, certificate: Path | None, key: Path | None) -> None:
        self.address_family = loopback.family()
        super().__init__((loopback.host(), 0), _Handler)
        self.proxy = proxy
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if certificate else None
        if self._context and certificate:
            self._context.load_cert_chain(certificate, key)
        self._open_connections: set[Any] = set()
        self.streams: set[_Handler] = set()

    def get_request(self) -> tuple[Any, Any]:
        caller, address = super().get_request()
        if self._context:
            caller = self._context.wrap_socket(caller, server_side=True, do_handshake_on_connect=False)
        self._open_connections.add(caller)
        return caller, address

    def shutdown_request(self, request: Any) -> None:
        self._open_connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors, since many callers hang up in these tests."""

    def hang_up(self) -> None:
        """Close all connections of callers."""
        for request in list(self._open_connections):
            with suppress(OSError):
                request.shutdown(2)

    def cut(self, watches: Fault) -> int:
        """End the streams whose requests match `watches`, and return the number of streams."""
        matching_streams = [stream for stream in list(self.streams) if stream.matches(watches)]
        for stream in matching_streams:
            stream.hang_up()
        return len(matching_streams)


class _Handler(BaseHTTPRequestHandler):
    """Connection of one caller, with a connection to the API server."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        proxy = self.server.proxy
        self._upstream = (
            http.client.HTTPSConnection(proxy.target, context=proxy.trust)
            if proxy.trust
            else http.client.HTTPConnection(proxy.target)
        )

    def finish(self) -> None:
        self._upstream.close()
        with suppress(OSError):
            super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        """Ignore the message, since `FaultProxy.calls` records all calls."""

    def _serve_request(self) -> None:
        """Answer one request. A matching fault changes what happens to the request."""
        body = self._body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.server.proxy.use_fault(self.command, self.path, body, self._user_agent)
        try:
            status = self._pass_on(body) if fault is None else self._apply_fault(fault, body)
        except (OSError, http.client.HTTPException):
            status = 0
        if status == 0:
            self.close_connection = True
            self._record(status)

    @property
    def _user_agent(self) -> str:
        return self.headers.get("User-Agent") or ""

    def matches(self, fault: Fault) -> bool:
        """Return whether a fault matches the current request."""
        return fault.matches(self.command, self.path, self._body, self._user_agent)

    def hang_up(self) -> None:
        """Close the connections on both sides, since the thread may wait for data from either side."""
        for sock in (self.connection, self._upstream.sock):
            with suppress(OSError):
                sock.shutdown(2)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve_request

    def _apply_fault(self, fault: Fault, body: bytes) -> int:
        """Apply a fault to a request. Return the status of the answer, or 0 if the caller gets no answer."""
        fault.before()
        if fault.while_awaited and self._has_caller_hung_up():
            return 0
        if fault.status is not None:
            return self._send_answer(fault.status, [("Content-Type", "application/json")], fault.body())
        if fault.twice:
            self._forward(body, self.path).read()
        answer = self._forward(body, fault.instead(self.path))
        if _is_streamed(answer) and fault.answered:
            return self._send_stream(answer, fault.pieces)
        content = answer.read()
        fault.after()
        return self._send_answer(answer.status, answer.getheaders(), content) if fault.answered else 0

    def _has_caller_hung_up(self) -> bool:
        """Return whether the caller has closed the connection.

        A caller sends nothing while it waits for an answer. If the connection is readable, the caller has
        closed it.
        """
        return bool(select.select([self.connection], [], [], 0)[0])

    def _pass_on(self, body: bytes) -> int:
        """Pass a request on to the API server and its answer back, and return the status."""
        answer = self._forward(body, self.path)
        if _is_streamed(answer):
            return self._send_stream(answer)
        return self._send_answer(answer.status, answer.getheaders(), answer.read())

    def _forward(self, body: bytes, target: str) -> http.client.HTTPResponse:
        """Send a request to the API server, and return the answer. `target` is the path with the query."""
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
        self._upstream.request(self.command, target, body or None, headers)
        return self._upstream.getresponse()

    def _send_answer(self, status: int, headers: Iterable[tuple[str, str]], content: bytes) -> int:
        self._send_head(status, headers, ("Content-Length", str(len(content))))
        self.wfile.write(content)
        return status

    def _send_stream(
        self, answer: http.client.HTTPResponse, change: Callable[[Pieces], Pieces] = iter
    ) -> int:
        """Send a chunked answer to the caller piece by piece, after `change` has changed the pieces."""
        self._send_head(answer.status, answer.getheaders(), ("Transfer-Encoding", "chunked"))
        self.server.streams.add(self)
        try:
            for data in change(iter(lambda: answer.read1(CHUNK), b"")):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        finally:
            self.server.streams.discard(self)
        self.wfile.write(b"0\r\n\r\n")
        return answer.status

    def _record(self, status: int) -> None:
        self.server.proxy.record(Call(self.command, self.path, status, self._body))

    def _send_head(self, status: int, headers: Iterable[tuple[str, str]], length: tuple[str, str]) -> None:
        """Record the call, and then send the status line and the headers.

        A caller that has the answer therefore finds the call in `calls`.
        """
        self._record(status)
        self.send_response_only(status)
        kept_headers = [(name, value) for name, value in headers if name.lower() not in HOP_BY_HOP]
        for name, value in (*kept_headers, length):
            self.send_header(name, value)
        self.end_headers()


def _is_streamed(answer: http.client.HTTPResponse) -> bool:
    return answer.getheader("Transfer-Encoding") == "chunked"
