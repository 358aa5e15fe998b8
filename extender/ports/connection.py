"""Connection of one caller: aiohttp's, with its state.

    handshake ──► idle ──► head ──► body ──► served ──► [answer ──►] idle ──► …
                                     └─► refused ──► further data is discarded ──► closed

All states but `served` have a deadline. A request is served once its body is complete and, at a port that
limits concurrent answers, once it is its turn; if the caller does not read an answer at once, the connection
waits for it. If chunks are not accepted, only the Content-Length gives the length of a request.

Refusals of any port have the body {"error": …}. Requests of web pages get 403: those with an Origin and, on
loopback, those whose Host is another name, because a page may give its own name the address 127.0.0.1. Over
TLS the certificate stops such pages.
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

_LONGEST_TEXT = 200  # characters of a message about a caller's mistake
_BUFFER = 256 * 1024  # bytes of a body that are read ahead: a list of 10,000 nodes
_HUNG_UP: int = getattr(select, "POLLRDHUP", 0)  # only Linux has it

Refuse = Callable[[HTTPException], web.Response]


class Caller:
    """Caller that waits for an answer, observed through its connection.

    A scheduler that has given up has closed the connection and counts the pod as not placed, so it must not
    be bound for that call any more.
    """

    def __init__(self, descriptor: int = -1) -> None:
        self.lost = False  # set by the connection before the descriptor is closed
        self._descriptor = descriptor

    def has_hung_up(self) -> bool:
        """Return whether the caller hung up, even before the connection noticed. Safe in any thread."""
        if self.lost or self._descriptor < 0 or not _HUNG_UP:
            return self.lost
        poll = select.poll()
        poll.register(self._descriptor, _HUNG_UP)
        # Checked again at the end: the descriptor may belong to another connection by now.
        return bool(poll.poll(0)) or self.lost


class CallerConnection(RequestHandler):
    """Connection of a caller: a member of `connections` from its creation until it is lost.

    After the answer to a request of `request_size` bytes, `receive_socket` gets the socket unless more bytes
    came: the next request may need less than this object.
    """

    __slots__ = ("_arrived", "_connections", "_content", "_limits", "_receive_socket", "_refuse",
                 "_refused", "_request_size", "_wire", "address", "answered", "caller", "deadline",
                 "opening", "secure", "size", "state")  # fmt: skip

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
            "keepalive_timeout": 2 * self._limits.timeouts.idle,  # Muster's own timeout comes first
            "lingering_time": self._limits.timeouts.discard,
            "max_line_size": self._limits.line,
            "max_field_size": self._limits.field,
            "max_headers": self._limits.fields,
            "read_bufsize": _BUFFER,
        }
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self._connections, self.address = connections, address
        self._refuse = refuse
        self._receive_socket, self._request_size, self._arrived = receive_socket, request_size, 0
        self._content: StreamReader | None = None  # the body of the last request
        self._wire: asyncio.Transport | None = None
        self.opening: asyncio.Task[None] | None = None  # the opening task; None once connected
        self.secure = secure
        self.caller = Caller()
        self._refused = False  # whether further data is discarded
        self.answered = 0  # number of answered requests
        self.size = 0
        self._enter("handshake" if secure else "idle")
        connections.add(self)

    def begin(self, content: StreamReader) -> None:
        """Process the complete head of a request."""
        self._content = content
        self._enter("body")
        if not content.is_eof():
            self._connections.forget_unread(self)  # from now on, the body is counted as it is read

    async def body(self, request: web.BaseRequest) -> bytes:
        """Return the whole body.

        Raises:
            HTTPException: The body is too large, late or malformed.
        """
        if "Transfer-Encoding" in request.headers and not self._limits.chunks:
            raise LengthRequired("A Content-Length is required: chunked bodies are not accepted")
        if (request.content_length or 0) > self._limits.body:
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
                if len(body) > self._limits.body:
                    raise self._too_large()
                self._connections.grow(self, len(piece))
        except web.RequestPayloadError as fault:
            raise BadRequest(_text(fault)) from fault
        return bytes(body)

    def _too_large(self) -> HTTPException:
        return RequestEntityTooLarge(f"The body is larger than {self._limits.body} bytes")

    def serve(self) -> None:
        """Stop the timeouts of the caller, which now waits for the answer."""
        self.state, self.deadline = "served", NEVER
        self._connections.serve(self)

    async def send(self, request: web.BaseRequest, response: web.StreamResponse) -> None:
        """Send a response.

        Raises:
            ConnectionError: The caller hung up.
        """
        await response.prepare(request)
        await response.write_eof()
        if isinstance(response, web.Response):
            response.body = None  # aiohttp's idle connections keep their last answer
        self.answered += 1
        if request.content.is_eof():
            if self.state == "body":  # the request was refused at once
                self.serve()
            self._wait("head" if self.size else "idle")  # data that arrived meanwhile is another request
            if self._receive_socket and response.keep_alive and self._arrived == self._request_size:
                self._loop.call_soon(self._return_socket, self._receive_socket)
        else:
            self._wait("discard")

    def _return_socket(self, receive_socket: Callable[[socket.socket], object]) -> None:
        wire = self._wire
        if wire and self.state == "idle" and not wire.is_closing() and not wire.get_write_buffer_size():
            sock = wire.get_extra_info("socket").dup()  # the transport closes the original
            wire.abort()
            self._connections.remove(self)
            receive_socket(sock)

    def end(self) -> None:
        if self._wire:
            self._wire.abort()
        elif self.opening:
            self.opening.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._wire = transport
        if not self._limits.timeouts.streams:
            # Wait until the whole answer is sent. A limit of 0 fails: with TLS, asyncio would take an empty
            # buffer for a full one after every other piece.
            transport.set_write_buffer_limits(high=1, low=0)
        self.caller = Caller(transport.get_extra_info("socket").fileno())
        self._enter("idle")
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.caller.lost = True
        self._connections.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process received bytes. Bodies are counted as they are read; discarded bytes are not counted."""
        self._arrived += len(data)
        if self.state == "idle":
            self._enter("head")
        if self.state in ("head", "served", "answer") and self.size > self._limits.head:
            if not self._wire or self.state != "head":
                self._connections.count("memory")
                return self.force_close()
            too_large = f"The head is larger than {self._limits.head} bytes"
            self._wire.write(as_bytes(exceptions.RequestHeaderFieldsTooLarge(too_large)))
            self._discard()
        if self._refused:
            return
        is_of_body = self.state == "body" and not (self._content and self._content.is_eof())
        if self.state != "discard" and not is_of_body:
            self._connections.grow(self, len(data))
        super().data_received(data)

    def pause_writing(self) -> None:
        super().pause_writing()
        # TLS also writes at the end of a handshake.
        if self._wire and self.state == "served" and not self._limits.timeouts.streams:
            self._wait("answer")
            self._connections.grow(self, self._wire.get_write_buffer_size())

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
        """Return the answer to an invalid request. aiohttp would log each with a traceback."""
        fault: HTTPException = BadRequest(_text(exc))
        if isinstance(exc, LineTooLong):
            in_line = exc.args[1] == self._limits.line  # the limit that the line exceeds
            kind = exceptions.RequestURITooLarge if in_line else exceptions.RequestHeaderFieldsTooLarge
            fault = kind(_text(exc))
        elif isinstance(exc, BadHttpMessage) and exc.message.startswith("Too many headers"):
            fault = exceptions.RequestHeaderFieldsTooLarge(_text(exc))
        if exc:
            exc.__traceback__ = None  # its frames would keep the received data until a garbage collection
        self._refused = True
        response = self._refuse(fault)
        response.force_close()
        return response

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        result = await super().finish_response(request, resp, start_time)
        if self._refused:
            self._discard()
            await self._loop.create_future()  # cancelled when the connection is lost
        return result

    def _enter(self, state: str) -> None:
        self.state = state
        self.deadline = self._loop.time() + getattr(self._limits.timeouts, state)

    def _discard(self) -> None:
        """Discard further data: a caller that is still sending would otherwise never read the answer."""
        self._refused = True
        self._connections.forget_unread(self)
        self._wait("discard")
        if self._wire and self._wire.can_write_eof():
            self._wire.write_eof()

    def _wait(self, state: str) -> None:
        self._enter(state)
        self._connections.wait(self)


def refusal(fault: HTTPException) -> web.Response:
    """Return a refusal with the body {"error": …}."""
    body, status, headers = as_json(fault)
    return web.Response(body=body, status=status, headers={**headers, "Server": "muster"})


def _text(fault: BaseException | None) -> str:
    return str(getattr(fault, "message", fault))[:_LONGEST_TEXT]


FAILED = "Muster failed to answer; its log says why"


def readable(data: object) -> bytes:
    """Return `data` as indented JSON, for people."""
    return msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n"


def as_json(fault: HTTPException) -> tuple[bytes, int, dict[str, str]]:
    """Return the body, status and headers of an error, instead of werkzeug's page of HTML."""
    page = fault.get_response()
    headers = {name: value for name, value in page.headers if name not in ("Content-Type", "Content-Length")}
    body = readable({"error": fault.description or fault.name})
    return body, page.status_code, {**headers, "Content-Type": "application/json"}


def as_bytes(fault: HTTPException) -> bytes:
    """Return the error as a whole answer, the last of its connection."""
    body, status, headers = as_json(fault)
    return encode_answer(status, fault.name, {**headers, "Connection": "close"}.items(), body)


def encode_answer(status: int, reason: str, headers: Iterable[tuple[str, str]], body: bytes) -> bytes:
    """Return a whole answer."""
    fields = (*headers, ("Content-Length", str(len(body))))
    lines = (f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in fields), "", "")
    return "\r\n".join(lines).encode(errors="surrogateescape") + body


def refuse_web_pages(origin: str | None, host: str) -> None:
    """Refuse requests of web pages of other sites. Without a `host`, it is not checked. Raises Forbidden."""
    if origin is not None:
        raise Forbidden("This request has an Origin, and requests of web pages are not answered")
    if host and not _names_loopback(host):
        raise Forbidden("The Host of requests to this port must be localhost or a loopback address")


def is_loopback(name: str) -> bool:
    return Address(name, 0).on_loopback


@lru_cache(64)  # callers send the same host each time
def _names_loopback(host: str) -> bool:
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False
