"""One caller's connection to the verbs' port: aiohttp's, which knows its state.

    handshake ──► idle ──► head ──► [body ──►] served ──► [answer ──►] idle ──► …
                                                  └─► refused ──► further data is discarded ──► closed

All but `served` have a deadline. A request's body is complete before the request is served, and an answer
that the caller does not take at once makes the connection wait for it.
"""

import asyncio
from typing import Any

from aiohttp import StreamReader, web
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong
from aiohttp.web_protocol import RequestHandler
from werkzeug.exceptions import (
    BadRequest,
    HTTPException,
    LengthRequired,
    RequestEntityTooLarge,
    RequestHeaderFieldsTooLarge,
    RequestURITooLarge,
)

from extender.web.answers import fault_as_json
from extender.web.caller import Caller
from extender.web.connection import LARGEST_HEAD, Patience, refused
from extender.web.connections import Connections

_LONGEST_LINE = 4094
_LONGEST_FIELD = 8190
_MOST_FIELDS = 100
_LONGEST_TEXT = 200  # characters of a message about a caller's mistake
_BUFFER = 256 * 1024  # bytes of a body that are read ahead: a list of 10,000 nodes
_NEVER = float("inf")


class VerbsConnection(RequestHandler):
    __slots__ = ("_connections", "_patience", "_wire", "answered", "caller", "deadline", "opening", "secure",
                 "size", "state")  # fmt: skip

    def __init__(
        self, server: web.Server, connections: Connections, patience: Patience, secure: bool
    ) -> None:
        options: dict[str, Any] = {
            "access_log": None,
            "auto_decompress": False,
            "keepalive_timeout": 2 * patience.idle,  # ours comes first
            "lingering_time": patience.discard,
            "max_line_size": _LONGEST_LINE,
            "max_field_size": _LONGEST_FIELD,
            "max_headers": _MOST_FIELDS,
            "read_bufsize": _BUFFER,
        }
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self._connections = connections
        self._patience = patience
        self._wire: asyncio.Transport | None = None
        self.opening: asyncio.Task[None] | None = None  # until it is connected
        self.secure = secure
        self.caller = Caller()
        self.answered = 0  # how many requests
        self.size = 0
        self._enter("handshake" if secure else "idle")
        connections.add(self)

    # ---- what a request needs

    def begin(self, body: StreamReader) -> None:
        """The head of a request is complete."""
        if body.is_eof():
            self._serve()
        else:
            self._connections.settle(self)
            self._enter("body")

    async def body(self, request: web.BaseRequest, largest: int) -> bytes:
        """The whole body. Raises HTTPException."""
        _check_length(request, largest)
        content = request.content
        if content.is_eof():
            return content.read_nowait()
        whole = bytearray()
        try:
            while piece := await content.readany():
                whole += piece
                self._connections.grow(self, len(piece))
        except web.RequestPayloadError as fault:
            raise BadRequest(_text(fault)) from fault
        self._serve()
        return bytes(whole)

    async def send(self, request: web.BaseRequest, response: web.Response) -> None:
        """Raises ConnectionError."""
        await response.prepare(request)
        await response.write_eof()
        self.answered += 1
        if request.content.is_eof():
            self._wait("head" if self.size else "idle")  # what arrived meanwhile is another request
        else:
            self._wait("discard")

    def end(self) -> None:
        if self._wire:
            self._wire.abort()
        elif self.opening:
            self.opening.cancel()

    # ---- what the event loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._wire = transport
        # An answer has been taken when nothing of it is left. Not 0: with TLS, asyncio takes an empty buffer
        # for one that is full to such a limit, and says so after every other piece that is written.
        transport.set_write_buffer_limits(high=1, low=0)
        self.caller = Caller(transport.get_extra_info("socket").fileno())
        self._enter("idle")
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.caller.lost = True
        self._connections.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.state == "idle":
            self._enter("head")
        if self.state in ("head", "served", "answer"):
            if self.size > LARGEST_HEAD:
                return self._reject()
            self._connections.grow(self, len(data))
        super().data_received(data)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait("answer")
        assert self._wire is not None
        self._connections.grow(self, self._wire.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._serve()
        super().resume_writing()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what is no request. aiohttp would log each with a traceback."""
        return refusal(_fault(exc), last=True)

    # ---- states

    def _enter(self, state: str) -> None:
        self.state = state
        self.deadline = self._loop.time() + getattr(self._patience, state)

    def _wait(self, state: str) -> None:
        self._enter(state)
        self._connections.wait(self)

    def _serve(self) -> None:
        self.state, self.deadline = "served", _NEVER
        self._connections.settle(self)
        self._connections.serve(self)

    def _reject(self) -> None:
        """Too much has arrived that is no complete head, or behind a request that is being answered."""
        if self._wire and self.state == "head":
            self._wire.write(refused(_too_large_a_head()))
        else:
            self._connections.count("memory")
        self.force_close()


def refusal(fault: HTTPException, *, last: bool) -> web.Response:
    """`last`: the connection is closed afterwards, since the rest of it is not worth reading."""
    answer = fault_as_json(fault)
    headers = {**answer.headers, "Server": "muster"}
    made = web.Response(status=answer.status_code, body=answer.data, headers=headers)
    if last:
        made.force_close()
    return made


def _check_length(request: web.BaseRequest, largest: int) -> None:
    """Only Content-Length gives the length of a body."""
    if "Transfer-Encoding" in request.headers:
        raise LengthRequired("A Content-Length is required: chunked bodies are not accepted")
    if (request.content_length or 0) > largest:
        raise RequestEntityTooLarge(f"The body is larger than {largest} bytes")


def _fault(fault: BaseException | None) -> HTTPException:
    if isinstance(fault, LineTooLong):
        in_line = fault.args[1] == _LONGEST_LINE
        return RequestURITooLarge(_text(fault)) if in_line else RequestHeaderFieldsTooLarge(_text(fault))
    if isinstance(fault, BadHttpMessage) and fault.message.startswith("Too many headers"):
        return RequestHeaderFieldsTooLarge(_text(fault))
    return BadRequest(_text(fault))


def _too_large_a_head() -> HTTPException:
    return RequestHeaderFieldsTooLarge(f"The head is larger than {LARGEST_HEAD} bytes")


def _text(fault: BaseException | None) -> str:
    return str(getattr(fault, "message", fault))[:_LONGEST_TEXT]
