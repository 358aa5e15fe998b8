"""The verbs' port: one event loop, so that a call costs little and a held call costs no thread.

aiohttp parses and writes. What it leaves open is here and in `connections`: how many connections there may
be, how long each part of a request may take, and how much memory unread bytes may occupy.
"""

import asyncio
import socket
import ssl
from typing import NamedTuple

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.web_protocol import RequestHandler
from werkzeug.exceptions import HTTPException, InternalServerError

from extender.telemetry.logs import logger
from extender.web.app import FAILED, App
from extender.web.connection import Patience
from extender.web.connections import Connections
from extender.web.pages import is_loopback, refuse_pages
from extender.web.port import Secure
from extender.web.pulse import Pulse
from extender.web.verbs_connection import VerbsConnection, refusal

_PERIOD = 1.0  # seconds between two looks at deadlines
_SOON = 0.01  # the same, while more connections are past their deadline than are closed at a time
_ACCEPTED = 16  # connections at a time, so that a flood leaves time for requests
_PAUSE = 0.02  # seconds, after a connection could not be accepted
_JSON = {"Content-Type": "application/json", "Server": "muster"}  # else aiohttp names itself

log = logger(__name__)


class VerbsLimits(NamedTuple):
    """What the callers may use at most."""

    connections: int  # open at the same time
    body: int  # bytes of one request
    unread: int  # bytes of all incomplete requests, and of answers that callers have not read
    patience: Patience = Patience()


class VerbsPort:
    """Serves `listener` from its creation on, which is in the event loop."""

    def __init__(
        self,
        listener: socket.socket,
        app: App,
        limits: VerbsLimits,
        pulse: Pulse,
        secure: Secure | None = None,
    ) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._app = app
        self._limits = limits
        self._pulse = pulse
        self._secure = secure
        self._local = is_loopback(listener.getsockname()[0])
        self._stopping = False
        self._loop = asyncio.get_running_loop()
        self._connections = Connections("verbs", limits.connections, limits.unread)
        self._server = web.Server(self._respond, request_factory=self._begin, handler_cancellation=True)
        self._loop.add_reader(listener, self._accept)
        self._look()

    async def stop(self, grace: float) -> None:
        """Take no new request, and wait at most `grace` seconds for answers to complete ones."""
        self._stopping = True
        self._loop.remove_reader(self._listener)
        self._listener.close()
        self._connections.drop_waiting()
        end = self._loop.time() + grace
        while self._connections.busy and self._loop.time() < end:
            await asyncio.sleep(_SOON)

    # ---- connections

    def _accept(self) -> None:
        for _ in range(_ACCEPTED):
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:  # the caller is gone, or there are too many open files
                self._loop.remove_reader(self._listener)
                self._loop.call_later(_PAUSE, self._accept_again)
                return
            self._admit(sock)

    def _accept_again(self) -> None:
        if not self._stopping:
            self._loop.add_reader(self._listener, self._accept)

    def _admit(self, sock: socket.socket) -> None:
        context = self._secure() if self._secure else None
        if (self._secure and context is None) or not self._connections.admit():
            return sock.close()
        made = VerbsConnection(self._server, self._connections, self._limits.patience, bool(context))
        made.opening = self._loop.create_task(self._open(made, sock, context))

    async def _open(
        self, connection: VerbsConnection, sock: socket.socket, context: ssl.SSLContext | None
    ) -> None:
        # Of TLS: when we close, the caller has so long to confirm it.
        closing_time = self._limits.patience.discard if context else None
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection, sock, ssl=context, ssl_shutdown_timeout=closing_time
            )
        except (OSError, asyncio.CancelledError) as fault:
            log.debug("a connection ended", port="verbs", error=str(fault))
            self._connections.remove(connection)
            sock.close()
        finally:
            connection.opening = None

    def _look(self) -> None:
        self._pulse.beat()
        more = self._connections.look(self._loop.time())
        if not self._stopping:
            self._loop.call_later(_SOON if more else _PERIOD, self._look)

    # ---- requests

    def _begin(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: "asyncio.Task[None]",
    ) -> web.BaseRequest:
        assert isinstance(protocol, VerbsConnection)
        protocol.begin(payload)
        return web.BaseRequest(message, payload, protocol, writer, task, self._loop)

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        """Whatever happens, the caller gets an answer, and it is sent when this returns."""
        connection = request.protocol
        assert isinstance(connection, VerbsConnection)
        response = await self._response(request, connection)
        if self._stopping:
            response.force_close()
        try:
            await connection.send(request, response)
        except ConnectionError:
            connection.end()
        return response

    async def _response(self, request: web.BaseRequest, connection: VerbsConnection) -> web.Response:
        try:
            return web.Response(body=await self._answer(request, connection), headers=_JSON)
        except HTTPException as fault:
            return refusal(fault, last=not request.content.is_eof())
        except Exception:
            log.exception("an answer failed", path=request.raw_path)
            return refusal(InternalServerError(FAILED), last=True)

    async def _answer(self, request: web.BaseRequest, connection: VerbsConnection) -> bytes:
        headers, checks_host = request.headers, self._local and not connection.secure
        refuse_pages(headers.get("Origin"), headers.get("Host", "") if checks_host else "")
        body = await connection.body(request, self._limits.body)
        return await self._app(request.method, request.raw_path, body, connection.caller)
