"""Port: accepts connections in an event loop, and answers their requests by a handler.

aiohttp parses and writes, except for requests that `light_connection` can answer. `connection` and
`connections` limit the number of connections, their times and their memory.
"""

import asyncio
import socket
import ssl
import time
from asyncio import sslproto
from collections.abc import Awaitable, Callable
from functools import partial

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.web_protocol import RequestHandler
from werkzeug.exceptions import HTTPException, InternalServerError

from extender.ports.connection import (
    FAILURE_TEXT,
    Caller,
    CallerConnection,
    Refuse,
    error_as_bytes,
    is_loopback,
    refusal,
    refuse_web_pages,
)
from extender.ports.connections import ConnectionLimits, Connections
from extender.ports.light_connection import LightConnection, ShortAnswer, ShortRequest
from extender.telemetry.logs import logger

_CHECK_PERIOD = 1.0  # most seconds between two checks of deadlines
_SHORT_PERIOD = 0.01  # seconds between checks while expired connections are left
_ACCEPT_BATCH = 16  # connections accepted at a time, so that a flood leaves time for requests
_SHUTDOWN_TIME = 0.1  # seconds for an answer to notice its end
_ACCEPT_PAUSE = 0.02  # seconds until the next try after a failed accept

# asyncio's default TLS buffer of 256 KiB lets a flood fill half a GiB. A TLS record has at most 16 KiB.
sslproto.SSLProtocol.max_size = 32 * 1024

log = logger(__name__)

ReadTlsContext = Callable[[], ssl.SSLContext | None]  # None means that there is no certificate yet
# An `Answer` reads the body from the connection, calls the connection's `serve`, and returns the answer. It
# may raise HTTPException, and is cancelled when the caller hangs up.
Answer = Callable[[web.BaseRequest, CallerConnection], Awaitable[web.StreamResponse]]
# Returns the handler of a short request; None means that `Answer` handles the request. The handler returns
# the complete answer, or empty bytes to end the connection.
FindShortHandler = Callable[[ShortRequest], Callable[[Caller], Awaitable[bytes]] | None]


class Pulse:
    """Pulse of an event loop, which counts as stuck after `timeout` seconds without a sign of life."""

    def __init__(self, timeout: float = 30.0) -> None:
        self._timeout = timeout
        self._last_sign: float | None = None  # None before the loop has started

    def record(self) -> None:
        """Record a sign of life. The event loop calls this method often."""
        self._last_sign = time.monotonic()

    def fault(self) -> str | None:
        """Return the fault for /livez; None if the event loop works."""
        seconds = time.monotonic() - self._last_sign if self._last_sign is not None else 0.0
        return f"its event loop has been stuck for {seconds:.0f} s" if seconds > self._timeout else None


class ServedPort:
    """Port that serves `listener` as soon as it is created, in the event loop.

    Requests of web pages are refused, unless the port `allows_web_pages`: its paths then contain a secret, or
    `answer` refuses such requests.
    """

    def __init__(
        self,
        name: str,
        listener: socket.socket,
        limits: ConnectionLimits,
        answer: Answer,
        secure: ReadTlsContext | None = None,
        pulse: Pulse | None = None,
        refuse: Refuse = refusal,
        allows_web_pages: bool = False,
        find_handler: FindShortHandler | None = None,
    ) -> None:
        listener.setblocking(False)
        self._name = name
        self._listener = listener
        self._answer = answer
        self._secure = secure
        self._pulse = pulse or Pulse()
        self._refuse = refuse
        self._for_web_pages = allows_web_pages
        self._find_short_handler = find_handler
        self._is_local = is_loopback(listener.getsockname()[0])
        self._is_stopping = False
        self._loop = asyncio.get_running_loop()
        self.connections = Connections(name, limits)
        self._check_period = min(_CHECK_PERIOD, min(limits.timeouts) / 2)
        self._server = web.Server(self._respond, request_factory=self._begin, handler_cancellation=True)
        self._loop.add_reader(listener, self._accept)
        self._check()

    async def stop(self, grace: float) -> None:
        """Accept no new requests, and wait up to `grace` seconds for answers to complete requests."""
        self._is_stopping = True
        self._loop.remove_reader(self._listener)
        self._listener.close()
        self.connections.drop_waiting()
        end = self._loop.time() + grace
        while self.connections.is_busy and self._loop.time() < end:
            await asyncio.sleep(_SHORT_PERIOD)
        await self._server.shutdown(_SHUTDOWN_TIME)
        self.connections.drop_all()  # end answers that callers have not read

    def _accept(self) -> None:
        """Accept the waiting connections, a few at a time."""
        for _ in range(_ACCEPT_BATCH):
            try:
                sock, (address, *_) = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:  # the caller has hung up, or there are too many open files
                self._loop.remove_reader(self._listener)
                self._loop.call_later(_ACCEPT_PAUSE, self._accept_again)
                return
            context = self._secure() if self._secure else None
            if (self._secure and context is None) or not self.connections.admit(address):
                sock.close()
                continue
            self._begin_connection(context, address, 0, sock)

    def _accept_again(self) -> None:
        if not self._is_stopping:
            self._loop.add_reader(self._listener, self._accept)

    def _begin_connection(
        self, context: ssl.SSLContext | None, address: str, answer_count: int, sock: socket.socket
    ) -> None:
        """Begin a light connection on a socket."""
        hand_over = partial(self._hand_over, context, address)
        find_answer = self._find_short_answer if self._find_short_handler else None
        connection = LightConnection(sock, self.connections, bool(context), hand_over, address, find_answer)
        connection.answer_count = answer_count

    def _hand_over(
        self, context: ssl.SSLContext | None, address: str, sock: socket.socket, request_size: int
    ) -> None:
        """Hand a connection over to aiohttp. After a short request, it becomes a light connection again."""
        is_short = self._find_short_handler and request_size and not context
        receive_socket = partial(self._begin_connection, None, address, 1) if is_short else None
        connection = CallerConnection(
            self._server, self.connections, bool(context), self._refuse, address, receive_socket, request_size
        )
        # When Muster closes a TLS connection, the caller has this time to confirm the end.
        closing_time = self.connections.limits.timeouts.discard if context else None

        async def open_() -> None:
            await self._loop.connect_accepted_socket(
                lambda: connection, sock, ssl=context, ssl_shutdown_timeout=closing_time
            )

        def on_opened(opening: asyncio.Task[None]) -> None:
            """Record that the opening has ended. If it failed or was cancelled, remove the connection."""
            connection.opening = None
            fault = asyncio.CancelledError() if opening.cancelled() else opening.exception()
            if fault:
                log.debug("a connection ended", port=self._name, error=str(fault))
                self.connections.remove(connection)
                # A handshake may end just after its opening was cancelled. asyncio would then wait for the
                # caller, on a descriptor that belongs to another connection.
                connection.end()
                sock.close()

        connection.opening = self._loop.create_task(open_())
        connection.opening.add_done_callback(on_opened)

    def _check(self) -> None:
        """Record a sign of life, and close late connections, at intervals."""
        self._pulse.record()
        has_more = self.connections.drop_late(self._loop.time())
        if not self._is_stopping:
            self._loop.call_later(_SHORT_PERIOD if has_more else self._check_period, self._check)

    def _begin(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: "asyncio.Task[None]",
    ) -> web.BaseRequest:
        """Return the request for aiohttp once its head is complete."""
        assert isinstance(protocol, CallerConnection)
        protocol.begin(payload)
        max_size = self.connections.limits.max_body
        return web.BaseRequest(message, payload, protocol, writer, task, self._loop, client_max_size=max_size)

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request, even if the handler fails. The answer is sent before this method returns."""
        connection = request.protocol
        assert isinstance(connection, CallerConnection)
        checks_host = self._is_local and not connection.secure
        headers, is_last = request.headers, False
        try:
            if not self._for_web_pages:
                refuse_web_pages(headers.get("Origin"), headers.get("Host", "") if checks_host else "")
            response = await self._answer(request, connection)
        except HTTPException as fault:
            response, is_last = self._refuse(fault), not request.content.is_eof()
        except Exception:
            log.exception("a response failed", path=request.raw_path)
            response, is_last = self._refuse(InternalServerError(FAILURE_TEXT)), True
        if is_last or self._is_stopping:
            response.force_close()
        try:
            await connection.send(request, response)
        except ConnectionError:
            connection.end()
        return response

    def _find_short_answer(self, request: ShortRequest) -> ShortAnswer | None:
        assert self._find_short_handler is not None
        handler = self._find_short_handler(request)
        return partial(self._answer_short, request, handler) if handler else None

    async def _answer_short(
        self, request: ShortRequest, handler: Callable[[Caller], Awaitable[bytes]], caller: Caller
    ) -> tuple[bytes, bool]:
        """Return the answer to a short request, and whether the connection then ends, as after an error."""
        try:
            if not self._for_web_pages:
                refuse_web_pages(None, request.host if self._is_local else "")
            answer = await handler(caller)
        except HTTPException as fault:
            return error_as_bytes(fault), True
        except Exception:
            log.exception("a response failed", path=request.target)
            return error_as_bytes(InternalServerError(FAILURE_TEXT)), True
        if self._is_stopping:
            answer = answer.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
        return answer, self._is_stopping or not answer
