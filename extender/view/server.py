"""The view's port: one event loop in one thread, and the connections of its clients.

The socket is opened before the worker process is forked, and the parent keeps it: connections made while a
worker restarts wait in its backlog instead of being refused.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from threading import Thread
from typing import Any, NamedTuple

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.web_protocol import RequestHandler

from extender.api.setting_kinds import Address
from extender.kube.endpoint import ApiEndpoint
from extender.telemetry import metrics
from extender.telemetry.logs import logger
from extender.view.relay import Handlers, Relay
from extender.view.target import refusal
from extender.view.upstream import LARGEST, Upstream

log = logger(__name__)

_IDLE = 120.0  # seconds; above the 90 of Go's transport: if the server closes first, a POST may fail
_LONGEST_TARGET = 64 * 1024  # bytes: selectors and continue tokens are long
_LONGEST_HEADER = 16 * 1024
_MOST_HEADERS = 64
_LINGERING = 2.0  # seconds to read the rest of a body that is refused, so that the client reads the answer
_LAST_ANSWERS = 0.2  # seconds to finish requests when stopping; streams end then
_STOPPED = 2.0  # seconds until the thread is left alone


class ViewLimits(NamedTuple):
    """What clients may use at most. A scheduler has about fifty connections."""

    connections: int = 256
    head: float = 10.0  # seconds until the head of a request is complete


LIMITS = ViewLimits()


class _Caller(RequestHandler):
    """One connection, which remembers since when an incomplete head is there."""

    __slots__ = ("answering", "begun")

    def __init__(self, server: web.Server, **options: Any) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self.answering = False
        self.begun: float | None = None

    def is_late(self, begun_before: float) -> bool:
        return not self.answering and self.begun is not None and self.begun < begun_before

    def data_received(self, data: bytes) -> None:
        if self.begun is None:
            self.begun = self._loop.time()
        super().data_received(data)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """For what is no HTTP. aiohttp would log each with a traceback."""
        metrics.view_requests.labels("refused").inc()
        answer = refusal(HTTPStatus.BAD_REQUEST, message or "malformed request")
        answer.force_close()
        return answer


class Callers:
    """All connections: how many, and how long an incomplete request may take."""

    def __init__(self, relay: Relay, limits: ViewLimits) -> None:
        self._relay = relay
        self._limits = limits
        self._server = web.Server(self._answer, request_factory=_request, handler_cancellation=True)

    def admit(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
        if len(self._server.connections) >= self._limits.connections:
            metrics.connections_dropped.labels("view", "full").inc()
            return _Refused()
        return _Caller(
            self._server,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=_IDLE,
            lingering_time=_LINGERING,
            max_line_size=_LONGEST_TARGET,
            max_field_size=_LONGEST_HEADER,
            max_headers=_MOST_HEADERS,
        )

    def show(self) -> dict[str, object]:
        """For the debug page. Any thread."""
        return {"connections": len(self._server.connections), "watches": self._relay.watches.show()}

    async def watch_over(self, ending: asyncio.Event) -> None:
        """Drop connections whose request does not become complete, until the end."""
        while not ending.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(ending.wait(), min(1.0, self._limits.head))
            metrics.view_connections.set(len(self._server.connections))
            begun_before = asyncio.get_running_loop().time() - self._limits.head
            for caller in self._server.connections:
                if isinstance(caller, _Caller) and caller.is_late(begun_before) and caller.transport:
                    metrics.connections_dropped.labels("view", "head").inc()
                    caller.transport.abort()

    async def close(self, grace: float) -> None:
        """End all connections; requests have `grace` seconds to end by themselves, streams too."""
        transports = [connection.transport for connection in self._server.connections]
        await self._server.shutdown(grace)
        for transport in transports:
            if transport:
                transport.abort()  # whatever the client has not read
        metrics.view_connections.set(0)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        caller = request.protocol
        assert isinstance(caller, _Caller)
        caller.answering = True
        try:
            return await self._relay(request)
        finally:
            caller.answering, caller.begun = False, None


class _Refused(asyncio.Protocol):
    """A connection too many: it is closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: RequestHandler,
    writer: AbstractStreamWriter,
    task: "asyncio.Task[None]",
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=LARGEST)


class ViewServer:
    """Serves from its creation on. `handlers` is called in the loop."""

    def __init__(
        self,
        listener: socket.socket,
        endpoint: ApiEndpoint,
        secret: str,
        handlers: Callable[[Upstream], Handlers] = lambda _: Handlers(),
        limits: ViewLimits = LIMITS,
    ) -> None:
        listener.setblocking(False)
        self.address = Address(*listener.getsockname()[:2])
        self._listener = listener
        self._endpoint = endpoint
        self._secret = secret
        self._handlers = handlers
        self._limits = limits
        self._loop = asyncio.new_event_loop()
        self._callers: Callers | None = None
        self._ending = asyncio.Event()
        self._thread = Thread(target=self._run, name="view", daemon=True)
        self._thread.start()
        log.info("serving the scheduler's view", listen=str(self.address))

    def stop(self) -> None:
        """End all streams and connections, within a second."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(_STOPPED)

    def show(self) -> dict[str, object]:
        """For the debug page. Any thread."""
        callers = self._callers
        return {"listen": str(self.address), **(callers.show() if callers else {})}

    def fault(self) -> str | None:
        """Why it does not serve, for /livez."""
        return None if self._thread.is_alive() else "the view's thread has ended"

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except Exception:
            log.exception("the view has ended")

    async def _serve(self) -> None:
        upstream = Upstream(self._endpoint)
        relay = Relay(upstream, self._secret, self._handlers(upstream))
        self._callers = callers = Callers(relay, self._limits)
        listening = await self._loop.create_server(callers.admit, sock=self._listener)
        try:
            await callers.watch_over(self._ending)
        finally:
            listening.close()
            await callers.close(_LAST_ANSWERS)
            await upstream.close()
