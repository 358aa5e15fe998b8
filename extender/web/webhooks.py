"""The webhook port: AdmissionReviews over TLS, on threads of its own.

The API server keeps its connections open and sends thousands of small reviews over them, and a user's request
waits for each of these. So this is not the verbs' port, whose threads may all be held by bind calls.
"""

import socket
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Protocol
from wsgiref.types import StartResponse

from extender.api.setting_kinds import Address
from extender.telemetry.logs import logger
from extender.web.answers import readable
from extender.web.exchange import Exchange
from extender.web.identity import Identity
from extender.web.port import PortLimits, ServedPort
from extender.webhooks.reviews import Malformed

LARGEST_BODY = 8 * 1024 * 1024  # bytes: an object of 1.5 MiB, old and new, escaped
# API servers open one connection for each of the reviews that they send at the same time.
LIMITS = PortLimits(connections=2048, threads=64, body=LARGEST_BODY, unread=8 * LARGEST_BODY)
_LAST_ANSWERS = 2.0  # seconds to finish answers when stopping

log = logger(__name__)


class Answerer(Protocol):
    @property
    def paths(self) -> frozenset[str]: ...

    def answer(self, path: str, body: bytes) -> bytes:
        """The answer as JSON. Raises Malformed."""


class WebhookServer:
    """Serves from its creation on; connections before the first certificate are closed."""

    def __init__(
        self, listener: socket.socket, answerer: Answerer, identity: Identity, limits: PortLimits = LIMITS
    ) -> None:
        self.address = Address(*listener.getsockname()[:2])
        self._exchange = Exchange(_Application(answerer), self.address)
        self._port = ServedPort("webhooks", listener, limits, self._exchange, secure=lambda: identity.context)
        log.info("serving webhooks", listen=str(self.address))

    def stop(self) -> None:
        """Take no new connection, and finish the answers to complete requests."""
        self._exchange.ending = True
        self._port.stop(_LAST_ANSWERS)


class _Application:
    """Reviews are counted but not logged, since there are thousands of them."""

    def __init__(self, answerer: Answerer) -> None:
        self._answerer = answerer

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        status, body = self._answer(environ)
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        start_response(f"{status.value} {status.phrase}", headers)
        return [body]

    def _answer(self, environ: dict[str, Any]) -> tuple[HTTPStatus, bytes]:
        path = environ["PATH_INFO"]
        if environ["REQUEST_METHOD"] != "POST":
            return _fault(HTTPStatus.METHOD_NOT_ALLOWED, "allowed is POST")
        if path not in self._answerer.paths:
            return _fault(HTTPStatus.NOT_FOUND, f"allowed are {', '.join(sorted(self._answerer.paths))}")
        try:
            return HTTPStatus.OK, self._answerer.answer(path, environ["wsgi.input"].read())
        except Malformed as fault:
            return _fault(HTTPStatus.BAD_REQUEST, str(fault))


def _fault(status: HTTPStatus, text: str) -> tuple[HTTPStatus, bytes]:
    return status, readable({"error": text})
