"""The webhook port: AdmissionReviews over TLS.

The API server keeps its connections open and sends thousands of small reviews over them, and a user's request
waits for each of these. So this is not the verbs' port, and it has more threads than others: a review may
wait for the API server. Reviews are counted but not logged.
"""

import socket
from typing import Protocol

from aiohttp import web
from werkzeug.exceptions import BadRequest, MethodNotAllowed, NotFound

from extender.web.connections import Limits
from extender.web.listen import Identity
from extender.web.side import SideServer
from extender.webhooks.reviews import Malformed

LARGEST_BODY = 8 * 1024 * 1024  # bytes: an object of 1.5 MiB, old and new, escaped
# API servers open one connection for each of the reviews that they send at the same time.
LIMITS = Limits(connections=2048, body=LARGEST_BODY, unread=8 * LARGEST_BODY)
_THREADS = 64
_JSON = {"Content-Type": "application/json", "Server": "muster"}


class Reviews(Protocol):
    @property
    def paths(self) -> frozenset[str]: ...

    def answer(self, path: str, body: bytes) -> bytes:
        """The answer as JSON. Raises Malformed."""


class WebhookServer(SideServer):
    """Serves from its creation on; connections before the first certificate are closed."""

    def __init__(
        self, listener: socket.socket, reviews: Reviews, identity: Identity, limits: Limits = LIMITS
    ) -> None:
        def answer(request: web.BaseRequest, body: bytes) -> web.Response:
            if request.method != "POST":
                raise MethodNotAllowed(["POST"], "allowed is POST")
            if request.path not in reviews.paths:
                raise NotFound(f"allowed are {', '.join(sorted(reviews.paths))}")
            try:
                return web.Response(body=reviews.answer(request.path, body), headers=_JSON)
            except Malformed as fault:
                raise BadRequest(str(fault)) from fault

        super().__init__("webhooks", listener, answer, limits, _THREADS, lambda: identity.context)
