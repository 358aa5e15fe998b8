"""The webhook port: AdmissionReviews over TLS, on threads of its own.

The API server keeps its connections open and sends thousands of small reviews over them, each of which holds
up somebody's request. So this is neither gunicorn, whose threads bind calls may hold, nor werkzeug, which
closes after every answer; each connection has a thread, and the handshake is made in it, so that a client
which falls silent holds up nobody else.
"""

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn
from threading import Condition, Thread
from typing import Any, Protocol
from urllib.parse import urlsplit

from extender.api.configuration import Address
from extender.telemetry.logs import logger
from extender.web.answers import readable
from extender.web.identity import Identity
from extender.webhooks.reviews import Malformed

LARGEST_BODY = 8 * 1024 * 1024  # an object of 1.5 MiB, before and after, escaped
_HANDSHAKE = 5.0  # seconds
_IDLE = 120.0  # above the 90 s of Go's transport: who closes first makes the other's POST fail
_LINGER = 1.0
_LOOK = 0.1  # how soon a stop is noticed
_LAST_ANSWERS = 2.0
_CHUNK = 64 * 1024

log = logger(__name__)


class Answerer(Protocol):
    @property
    def paths(self) -> frozenset[str]: ...

    def answer(self, path: str, body: bytes) -> bytes:
        """JSON. Raises Malformed."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE
    wbufsize = _CHUNK  # head and body leave together
    disable_nagle_algorithm = True
    server: "_Listener"

    def do_POST(self) -> None:
        with self.server.answering():
            self._post()
            self.wfile.flush()

    def _post(self) -> None:
        path, length = urlsplit(self.path).path, self.headers.get("Content-Length", "")
        if not length.isdecimal():
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "a Content-Length is needed")
        elif int(length) > LARGEST_BODY:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is larger than {LARGEST_BODY} bytes")
        elif path not in self.server.answerer.paths:
            self._refuse(HTTPStatus.NOT_FOUND, f"allowed are {', '.join(sorted(self.server.answerer.paths))}")
        else:
            self._answer(path, self.rfile.read(int(length)))

    def _answer(self, path: str, body: bytes) -> None:
        try:
            self._send(HTTPStatus.OK, self.server.answerer.answer(path, body))
        except Malformed as fault:
            self._send(HTTPStatus.BAD_REQUEST, readable({"error": str(fault)}))
        except Exception:
            log.exception("a review failed", path=path)
            failed = {"error": "Muster failed to answer; its log says why"}
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, readable(failed))

    def do_GET(self) -> None:
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "allowed is POST")

    do_PUT = do_PATCH = do_DELETE = do_HEAD = do_GET

    def _refuse(self, status: HTTPStatus, words: str) -> None:
        """The body is not read, so the connection ends with the answer. Who still sends while we hang up
        would never see that: more is taken, for a moment."""
        self.close_connection = True
        self._send(status, readable({"error": words}))
        self.wfile.flush()
        left = 4 * LARGEST_BODY
        self.connection.settimeout(_LINGER)
        with suppress(OSError):
            while left > 0 and (piece := self.rfile.read1(_CHUNK)):
                left -= len(piece)

    def _send(self, status: HTTPStatus, body: bytes) -> None:
        self.close_connection = self.close_connection or self.server.stopping
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Reviews are counted, not logged: there are thousands of them."""


class _Listener(ThreadingMixIn, HTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, listener: socket.socket, answerer: Answerer, identity: Identity) -> None:
        super().__init__(listener.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.answerer = answerer
        self.stopping = False
        self._identity = identity
        self._answering = 0
        self._changed = Condition()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """In the thread of the connection."""
        if self._identity.context is None:
            return
        request.settimeout(_HANDSHAKE)
        with self._identity.context.wrap_socket(request, server_side=True) as secured:
            _Handler(secured, client_address, self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Handshakes that fail and connections that break are the other side's affair."""
        log.debug("a webhook connection broke", client=str(client_address), error=str(sys.exc_info()[1]))

    @contextmanager
    def answering(self) -> Iterator[None]:
        with self._changed:
            self._answering += 1
        try:
            yield
        finally:
            with self._changed:
                self._answering -= 1
                self._changed.notify_all()

    def wait_answered(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._answering, _LAST_ANSWERS)


class WebhookServer:
    """Serves from now on; connections before the first certificate are closed."""

    def __init__(self, listener: socket.socket, answerer: Answerer, identity: Identity) -> None:
        self.address = Address(*listener.getsockname()[:2])
        self._listener = _Listener(listener, answerer, identity)
        self._thread = Thread(target=self._listener.serve_forever, args=[_LOOK], name="webhooks", daemon=True)
        self._thread.start()
        log.info("serving webhooks", listen=str(self.address))

    def stop(self) -> None:
        """Take no new connection, and answer what was asked."""
        self._listener.stopping = True
        self._listener.shutdown()
        self._listener.socket.close()
        self._listener.wait_answered()
