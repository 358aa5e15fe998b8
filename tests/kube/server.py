"""HTTP server on loopback that answers requests in the order of a script.

After the end of the script it does not answer, as on a half-open connection.
"""

import json
import socket
import ssl
import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """Answer. `raw`: bytes that are sent instead, before the connection is cut."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None


@dataclass(frozen=True)
class Lines:
    """Chunked answer in lines. `then`: what follows the last line."""

    lines: Iterable[bytes]
    then: str = "end"  # end | cut | silence


def status(code: int, reason: str = "", message: str = "", **headers: str) -> Reply:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return Reply(code, json.dumps(body).encode(), headers)


class Server:
    """`with Server() as server: server.script.append(Reply(…))`; the requests are in `server.requests`."""

    def __init__(self, certificate: Path | None = None, key: Path | None = None, port: int = 0) -> None:
        self.script: deque[Reply | Lines] = deque()
        self.requests: list[Request] = []
        self.connections: list[socket.socket] = []
        self.closing = threading.Event()
        self._http = _Listener(self, port)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        self.port: int = self._http.server_address[1]
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))

    def __enter__(self) -> "Server":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._http.shutdown()
        self._thread.join()
        self.hang_up()
        self._http.server_close()

    def answers(self, *steps: "Reply | Lines") -> None:
        self.script.extend(steps)

    def hang_up(self) -> None:
        """End every connection, as a restart does."""
        for connection in self.connections:
            with suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)


class _Listener(ThreadingHTTPServer):
    daemon_threads = False  # so that closing waits for every handler, and no socket stays open

    def __init__(self, server: Server, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.scripted = server


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Listener

    def setup(self) -> None:
        super().setup()
        self.server.scripted.connections.append(self.request)

    def handle(self) -> None:
        with suppress(OSError):
            super().handle()

    def do_GET(self) -> None:
        scripted = self.server.scripted
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        scripted.requests.append(
            Request(self.command, self.path, url.path, dict(parse_qsl(url.query)), headers, body)
        )
        self._play(scripted.script.popleft() if scripted.script else Lines([], "silence"))

    do_POST = do_PUT = do_PATCH = do_DELETE = do_CONNECT = do_GET

    def _play(self, step: Reply | Lines) -> None:
        if isinstance(step, Lines):
            self._play_lines(step)
        elif step.raw is not None:
            self.wfile.write(step.raw)
            self.close_connection = True
        else:
            self._play_reply(step)

    def _play_reply(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(reply.body)

    def _play_lines(self, step: Lines) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in step.lines:
            self.wfile.write(b"%x\r\n%s\n\r\n" % (len(line) + 1, line))
        if step.then == "end":
            self.wfile.write(b"0\r\n\r\n")
            return
        if step.then == "silence":
            self.server.scripted.closing.wait()
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass
