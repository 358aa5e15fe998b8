"""Connection of one caller, with its state, on top of aiohttp's connection.

    handshake ──► idle ──► head ──► body ──► served ──► [answer ──►] idle ──► …
                                     └─► refused ──► further data is discarded ──► closed

All states except `served` have a deadline. A request is served once its body is complete; a port that limits
concurrent answers may first let it wait. If the caller does not read an answer at once, the connection is in
the state `answer`. If a port does not accept chunks, only the Content-Length gives the length of a request.

The refusals of all ports have the body {"error": …}. A request of a web page gets 403. A request counts as
one if it has an Origin. On loopback, it also counts if its Host is not a name of this machine, because a web
page may let its own name point to 127.0.0.1. With TLS, the certificate prevents requests of such pages.
"""

import asyncio
import select
import socket
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import msgspec
from aiohttp import StreamReader, web
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong
from aiohttp.web_protocol import RequestHandler
from werkzeug import exceptions
from werkzeug.exceptions import BadRequest, Forbidden, HTTPException, LengthRequired, RequestEntityTooLarge

from extender.api.setting_kinds import Address
from extender.ports.connections import NEVER, Connections

_MAX_TEXT_LENGTH = 200  # most characters of a message about an error of the caller
_READ_AHEAD_BYTES = 256 * 1024  # bytes of a body that are read ahead: enough for a list of 10,000 nodes
_HANG_UP_EVENT: int = getattr(select, "POLLRDHUP", 0)  # event that only Linux has

Refuse = Callable[[HTTPException], web.Response]


class Caller:
    """Caller that waits for an answer, observed through its connection.

    If a scheduler has given up a call, it has closed the connection and counts the pod as not placed. Muster
    must then not bind the pod for this call any more.
    """

    def __init__(self, descriptor: int = -1) -> None:
        self.is_lost = False  # set before the descriptor is closed
        self._descriptor = descriptor

    def has_hung_up(self) -> bool:
        """Return whether the caller has hung up, even if the connection does not know this yet.

        Safe to call in any thread.
        """
        if self.is_lost or self._descriptor < 0 or not _HANG_UP_EVENT:
            return self.is_lost
        poll = select.poll()
        poll.register(self._descriptor, _HANG_UP_EVENT)
        # `is_lost` is checked again at the end, since the descriptor may belong to another connection by now.
        return bool(poll.poll(0)) or self.is_lost


class CallerConnection(RequestHandler):
    """Connection of a caller, which is a member of `connections` from its creation until it is lost.

    After the answer to a request of `request_size` bytes, `receive_socket` gets the socket, so that a light
    connection can serve the next request. If the caller has sent more bytes, the socket stays here.
    """

    __slots__ = ("_connections", "_content", "_is_discarding", "_limits", "_receive_socket",
                 "_received_size", "_refuse", "_request_size", "_wire", "address", "answer_count", "caller",
                 "deadline", "opening", "secure", "size", "state")  # fmt: skip

    def __init__(
        self,
        server: web.Server,
        connections: Connections,
        secure: bool,
        refuse: Refuse,
        address: str,
        receive_socket: Callable[[socket.socket], object] | None = None,
        request_size: int = 0,
    ) -> None:
        self._limits = connections.limits
        options: dict[str, Any] = {
            "access_log": None,
            "auto_decompress": False,
            "keepalive_timeout": 2 * self._limits.timeouts.idle,  # Muster's own timeout is shorter
            "lingering_time": self._limits.timeouts.discard,
            "max_line_size": self._limits.max_line,
            "max_field_size": self._limits.max_field,
            "max_headers": self._limits.max_fields,
            "read_bufsize": _READ_AHEAD_BYTES,
        }
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self._connections, self.address = connections, address
        self._refuse = refuse
        self._receive_socket, self._request_size, self._received_size = receive_socket, request_size, 0
        self._content: StreamReader | None = None  # body of the last request
        self._wire: asyncio.Transport | None = None
        self.opening: asyncio.Task[None] | None = None  # task that opens the connection; None once connected
        self.secure = secure
        self.caller = Caller()
        self._is_discarding = False  # whether further data is discarded
        self.answer_count = 0  # number of answered requests
        self.size = 0
        self._enter("handshake" if secure else "idle")
        connections.add(self)

    def begin(self, content: StreamReader) -> None:
        """Begin a request whose head is complete."""
        self._content = content
        self._enter("body")
        if not content.is_eof():
            self._connections.forget_unread(self)  # from now on, the body is counted while it is read

    async def body(self, request: web.BaseRequest) -> bytes:
        """Return the whole body of a request.

        Raises:
            HTTPException: The body is too large, late or malformed.
        """
        if "Transfer-Encoding" in request.headers and not self._limits.allows_chunks:
            raise LengthRequired("A Content-Length is required: chunked bodies are not accepted")
        if (request.content_length or 0) > self._limits.max_body:
            raise self._too_large()
        content = request.content
        if content.is_eof():
            return content.read_nowait()
        if request.headers.get("Expect", "").lower() == "100-continue" and self._wire:
            self._wire.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = bytearray()
        try:
            while piece := await content.readany():
                body += piece
                if len(body) > self._limits.max_body:
                    raise self._too_large()
                self._connections.add_unread(self, len(piece))
        except web.RequestPayloadError as fault:
            raise BadRequest(_text(fault)) from fault
        return bytes(body)

    def _too_large(self) -> HTTPException:
        return RequestEntityTooLarge(f"The body is larger than {self._limits.max_body} bytes")

    def serve(self) -> None:
        """End the deadline for the caller, since the caller now waits for the answer."""
        self.state, self.deadline = "served", NEVER
        self._connections.serve(self)

    async def send(self, request: web.BaseRequest, response: web.StreamResponse) -> None:
        """Send a response.

        Raises:
            ConnectionError: The caller has hung up.
        """
        await response.prepare(request)
        await response.write_eof()
        if isinstance(response, web.Response):
            response.body = None  # an idle connection of aiohttp would keep its last answer
        self.answer_count += 1
        if request.content.is_eof():
            if self.state == "body":  # the request was refused at once
                self.serve()
            self._wait("head" if self.size else "idle")  # data that has arrived is another request
            if self._receive_socket and response.keep_alive and self._received_size == self._request_size:
                self._loop.call_soon(self._return_socket, self._receive_socket)
        else:
            self._wait("discard")

    def _return_socket(self, receive_socket: Callable[[socket.socket], object]) -> None:
        """Pass an idle connection's socket to `receive_socket`, and leave `connections`."""
        wire = self._wire
        if wire and self.state == "idle" and not wire.is_closing() and not wire.get_write_buffer_size():
            sock = wire.get_extra_info("socket").dup()  # the transport closes the original socket
            wire.abort()
            self._connections.remove(self)
            receive_socket(sock)

    def end(self) -> None:
        """Close the connection in any state."""
        if self._wire:
            self._wire.abort()
        elif self.opening:
            self.opening.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._wire = transport
        if not self._limits.timeouts.has_streams:
            # Wait until the whole answer is sent. The limit must not be 0: with TLS, asyncio would then treat
            # an empty buffer as full after every other piece.
            transport.set_write_buffer_limits(high=1, low=0)
        self.caller = Caller(transport.get_extra_info("socket").fileno())
        self._enter("idle")
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.caller.is_lost = True
        self._connections.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process received bytes. Bodies are counted while they are read; discarded bytes are not counted."""
        self._received_size += len(data)
        if self.state == "idle":
            self._enter("head")
        if self.state in ("head", "served", "answer") and self.size > self._limits.max_head:
            if not self._wire or self.state != "head":
                self._connections.count_drop("memory")
                return self.force_close()
            text = f"The head is larger than {self._limits.max_head} bytes"
            self._wire.write(error_as_bytes(exceptions.RequestHeaderFieldsTooLarge(text)))
            self._discard()
        if self._is_discarding:
            return
        is_of_body = self.state == "body" and not (self._content and self._content.is_eof())
        if self.state != "discard" and not is_of_body:
            self._connections.add_unread(self, len(data))
        super().data_received(data)

    def pause_writing(self) -> None:
        """Wait in the state `answer` while the caller does not read."""
        super().pause_writing()
        # The state is checked because TLS also writes at the end of a handshake.
        if self._wire and self.state == "served" and not self._limits.timeouts.has_streams:
            self._wait("answer")
            self._connections.add_unread(self, self._wire.get_write_buffer_size())

    def resume_writing(self) -> None:
        if self.state == "answer":
            self.serve()
        super().resume_writing()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the answer to an invalid request, without the traceback that aiohttp would log."""
        fault: HTTPException = BadRequest(_text(exc))
        if isinstance(exc, LineTooLong):
            in_line = exc.args[1] == self._limits.max_line  # the limit that is exceeded
            kind = exceptions.RequestURITooLarge if in_line else exceptions.RequestHeaderFieldsTooLarge
            fault = kind(_text(exc))
        elif isinstance(exc, BadHttpMessage) and exc.message.startswith("Too many headers"):
            fault = exceptions.RequestHeaderFieldsTooLarge(_text(exc))
        if exc:
            exc.__traceback__ = None  # its frames would keep the received data in memory
        self._is_discarding = True
        response = self._refuse(fault)
        response.force_close()
        return response

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send a response. After a refusal, wait for the end of the connection, and discard further data."""
        result = await super().finish_response(request, resp, start_time)
        if self._is_discarding:
            self._discard()
            await self._loop.create_future()  # this is cancelled when the connection is lost
        return result

    def _enter(self, state: str) -> None:
        """Enter a state, and set its deadline."""
        self.state = state
        self.deadline = self._loop.time() + getattr(self._limits.timeouts, state)

    def _discard(self) -> None:
        """Discard further data. A caller that only sends would otherwise never read the answer."""
        self._is_discarding = True
        self._connections.forget_unread(self)
        self._wait("discard")
        if self._wire and self._wire.can_write_eof():
            self._wire.write_eof()

    def _wait(self, state: str) -> None:
        """Enter a state in which the connection waits for the caller."""
        self._enter(state)
        self._connections.wait(self)


def refusal(fault: HTTPException) -> web.Response:
    """Return a refusal with the body {"error": …}."""
    body, status, headers = error_as_json(fault)
    return web.Response(body=body, status=status, headers={**headers, "Server": "muster"})


def _text(fault: BaseException | None) -> str:
    return str(getattr(fault, "message", fault))[:_MAX_TEXT_LENGTH]


FAILURE_TEXT = "Muster failed to answer; its log says why"


def indented_json(data: object) -> bytes:
    """Return `data` as indented JSON for people."""
    return msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n"


def error_as_json(fault: HTTPException) -> tuple[bytes, int, dict[str, str]]:
    """Return the body, status and headers of an error, as JSON instead of werkzeug's page in HTML."""
    page = fault.get_response()
    headers = {name: value for name, value in page.headers if name not in ("Content-Type", "Content-Length")}
    body = indented_json({"error": fault.description or fault.name})
    return body, page.status_code, {**headers, "Content-Type": "application/json"}


def error_as_bytes(fault: HTTPException) -> bytes:
    """Return an error as a complete answer, after which the connection closes."""
    body, status, headers = error_as_json(fault)
    return encode_answer(status, fault.name, {**headers, "Connection": "close"}.items(), body)


def encode_answer(status: int, reason: str, headers: Iterable[tuple[str, str]], body: bytes) -> bytes:
    """Return a complete answer, with its head."""
    fields = (*headers, ("Content-Length", str(len(body))))
    lines = (f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in fields), "", "")
    return "\r\n".join(lines).encode(errors="surrogateescape") + body


def refuse_web_pages(origin: str | None, host: str) -> None:
    """Refuse requests of web pages from other sites. An empty `host` is not checked.

    Raises:
        Forbidden: The request comes from such a page.
    """
    if origin is not None:
        raise Forbidden("This request has an Origin, and requests of web pages are not answered")
    if host and not _names_loopback(host):
        raise Forbidden("The Host of requests to this port must be localhost or a loopback address")


def is_loopback(name: str) -> bool:
    return Address(name, 0).is_on_loopback


@lru_cache(64)  # each caller sends the same host every time
def _names_loopback(host: str) -> bool:
    """Return whether the Host of a request is localhost or a loopback address."""
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False
