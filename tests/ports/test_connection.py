"""Bytes at a port: how it reads them, however they are split and however late they come."""

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial, wraps
from inspect import signature
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY
from werkzeug.exceptions import NotFound

from extender.api.setting_kinds import Address
from extender.ports.connection import Caller, CallerConnection, encode_answer
from extender.ports.connections import MAX_HEAD_BYTES, ConnectionLimits, Timeouts
from extender.ports.light_connection import ShortRequest
from extender.ports.port import ServedPort
from extender.web.side_ports import SideServer
from extender.web.sockets import listen
from tests.fuzz.answers import statuses
from tests.ports.clock import Clock
from tests.rows import each_of

PATIENCE = Timeouts(handshake=5, idle=100, head=5, body=10, answer=30, discard=2)
MAX_BODY = 1000
LIMITS = ConnectionLimits(max_connections=100, max_body=MAX_BODY, max_unread=100_000, timeouts=PATIENCE)
LONG_ANSWER = b"x" * 10_000_000
FIELDS = rb"(?:\r\n[^\r\n]+)"
ANSWER_HEAD = re.compile(rb"HTTP/1\.1 200 OK%b*?\r\nContent-Length: ([0-9]+)%b*\r\n\r\n" % (FIELDS, FIELDS))
Script = Callable[..., Awaitable[None]]


class Stage:
    """A port in its own loop; it echoes bodies, and /long has a long answer."""

    def __init__(self, loop: Clock, limits: ConnectionLimits) -> None:
        listener = listen("--listen", Address("127.0.0.1", 0))
        self.address = listener.getsockname()
        self._loop = loop
        self._writers: list[asyncio.StreamWriter] = []
        self.held = self.gone = self.short = 0
        self.answers: list[web.Response] = []
        self._port = ServedPort("stage", listener, limits, self._answer, find_handler=self._short)

    async def _answer(self, asked: web.BaseRequest, connection: CallerConnection) -> web.Response:
        body = await connection.body(asked)
        connection.serve()
        self.answers.append(web.Response(body=LONG_ANSWER if asked.path == "/long" else body))
        return self.answers[-1]

    def _short(self, asked: ShortRequest) -> Callable[[Caller], Awaitable[bytes]] | None:
        return partial(self._answer_short, asked.target, asked.body)

    async def _answer_short(self, target: str, body: bytes, _: Caller) -> bytes:
        assert self._port.connections.is_busy
        self.short += 1
        if target == "/held":
            self.held += 1
            try:
                await self._loop.create_future()
            finally:
                self.gone += 1
        if target == "/fault":
            raise NotFound("a fault")
        if target == "/failure":
            raise ValueError
        return encode_answer(200, "OK", (), LONG_ANSWER if target == "/long" else body)

    async def say(self, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Send data on a new connection; return when all of it has arrived."""
        reader, writer = await asyncio.open_connection(*self.address, limit=1000)
        self._writers.append(writer)
        await self.say_more(writer, data)
        return reader, writer

    async def meet(self, is_first: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connection without any request, or after one request was answered if not `is_first`."""
        reader, writer = await self.say(b"" if is_first else request(b"before"))
        if not is_first:
            await reader.readuntil(b"before")
        return reader, writer

    async def say_more(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(data)
        await writer.drain()
        await self.works()

    async def later(self, seconds: float) -> None:
        self._loop.skipped += seconds
        await self.works()

    async def works(self) -> None:
        """Check that another caller gets an answer."""
        reader, writer = await asyncio.open_connection(*self.address)
        writer.write(request(b"hello", b"Connection: close"))
        self._writers.append(writer)
        assert (await reader.read()).endswith(b"hello")

    async def stop(self) -> None:
        await self._port.stop(0)
        for writer in self._writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


def played(limits: ConnectionLimits = LIMITS) -> Callable[[Script], Callable[..., None]]:
    """Make a test of a script: play it on its own stage, in virtual time."""

    def decorate(script: Script) -> Callable[..., None]:
        @wraps(script)
        def test(*row: Any, **given: Any) -> None:
            loop = Clock()

            async def play() -> None:
                stage = Stage(loop, limits)
                try:
                    await script(stage, *row, **given)
                finally:
                    await stage.stop()

            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(play())

        _, *parameters = signature(script).parameters.values()
        test.__signature__ = signature(script).replace(parameters=parameters)  # type: ignore[attr-defined]
        return test

    return decorate


@pytest.fixture(scope="module")
def echo() -> Iterator[SideServer]:
    def answer(_: web.BaseRequest, body: bytes) -> web.Response:
        return web.Response(body=body)

    limits = LIMITS._replace(timeouts=PATIENCE._replace(discard=0.2))
    side = SideServer("echo", listen("--listen", Address("127.0.0.1", 0)), answer, limits)
    yield side
    side.stop()


def request(body: bytes, *fields: bytes) -> bytes:
    given = (b"Host: localhost", b"Content-Length: %d" % len(body), *fields)
    return b"POST / HTTP/1.1\r\n" + b"".join(b"%s\r\n" % field for field in given) + b"\r\n" + body


def short(body: bytes = b"", target: bytes = b"/", host: bytes = b"localhost") -> bytes:
    """Return a short request as Go's client writes it."""
    head = b"POST %b HTTP/1.1\r\nHost: %b\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: %d\r\n"
    fields = b"Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
    return head % (target, host, len(body)) + fields + body


def exchanged(echo: SideServer, *pieces: bytes) -> bytes:
    """Return all that comes back, until the end of the connection."""
    with socket.create_connection(echo.address, timeout=30) as caller:
        caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            caller.sendall(piece)
        return caller.makefile("rb").read()


def answers(got: bytes) -> list[bytes]:
    """Return the bodies of answers, all of which have status 200, with nothing else between them."""
    found = []
    while head := ANSWER_HEAD.match(got):
        end = head.end() + int(head[1])
        found.append(got[head.end() : end])
        got = got[end:]
    assert got == b""
    return found


def dropped(reason: str) -> float:
    labels = {"port": "stage", "reason": reason}
    return REGISTRY.get_sample_value("muster_connections_dropped_total", labels) or 0.0


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=4), st.lists(st.integers(1, 40), max_size=30))
def test_requests_are_separated_however_the_bytes_are_cut(
    echo: SideServer, bodies: list[bytes], cuts: list[int]
) -> None:
    """Requests are served in turn, even if the next one has arrived already."""
    sent, pieces = b"".join(map(request, bodies)) + request(b"", b"Connection: close"), []
    for size in [*cuts, len(sent)]:
        pieces.append(sent[:size])
        sent = sent[size:]
    assert answers(exchanged(echo, *pieces)) == [*bodies, b""]


@given(st.binary(max_size=300))
def test_any_bytes_are_a_request_a_fault_or_incomplete(echo: SideServer, data: bytes) -> None:
    with socket.create_connection(echo.address, timeout=30) as caller:
        caller.sendall(data)
        caller.shutdown(socket.SHUT_WR)
        try:
            got = caller.makefile("rb").read()
        except ConnectionResetError:
            got = b""
    assert {*statuses(got, without_body=False)} <= {200, 400, 411, 413}


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (request(b"", b"Transfer-Encoding: chunked"), 400),  # and a length: this is how requests are smuggled
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nfff\r\n", 411),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\ntransfer-encoding : identity\r\n\r\n", 400),
        (request(b"", b"Content-Length: 0"), 400),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1e3\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1001\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * MAX_HEAD_BYTES, 431),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n", 431),
    ],
)
def test_a_refused_request_ends_the_connection(echo: SideServer, sent: bytes, code: int) -> None:
    """A caller that continues to send still sees the cause, and then the end."""
    assert statuses(exchanged(echo, sent, request(b"x" * 500)), without_body=False) == [code]


@each_of(True, False)
@played()
async def test_a_slow_head_has_a_deadline(stage: Stage, is_first: bool) -> None:
    """Its deadline counts from its first byte; further bytes do not extend it."""
    before = dropped("head")
    reader, writer = await stage.meet(is_first)
    await stage.later(90)  # an idle one has longer
    for piece in (b"POST / HTTP/1.1\r\n", b"Host: localhost\r\n", b"A: b\r\n"):
        await stage.say_more(writer, piece)
        await stage.later(1.6)
    assert dropped("head") == before
    await stage.later(1)
    assert (await reader.read(), dropped("head")) == (b"", before + 1)


@each_of(True, False)
@played()
async def test_a_body_has_its_own_deadline(stage: Stage, is_first: bool) -> None:
    before = dropped("body")
    late, just = await stage.meet(is_first), await stage.meet(is_first)
    for _, writer in (late, just):
        await stage.say_more(writer, b"POST / HTTP/1.1\r\nHost: localhost\r\n")
    await stage.later(4)
    for _, writer in (late, just):
        await stage.say_more(writer, b"Content-Length: 3\r\nConnection: close\r\n\r\n")
    for _ in range(2):
        await stage.later(4.5)
        await stage.say_more(late[1], b"a")
    await stage.say_more(just[1], b"abc")
    assert (await just[0].read()).endswith(b"abc")
    assert dropped("body") == before
    await stage.later(2)
    assert (await late[0].read(), dropped("body")) == (b"", before + 1)


@played()
async def test_an_idle_connection_is_closed_without_a_fault(stage: Stage) -> None:
    reader, writer = await stage.say(request(b"fine"))
    assert (await reader.readuntil(b"fine")).endswith(b"fine")
    await stage.later(99)
    await stage.say_more(writer, request(b"again"))
    assert (await reader.readuntil(b"again")).endswith(b"again")
    await stage.later(102)
    assert await reader.read() == b""


@played()
async def test_after_a_refusal_a_connection_is_as_idle_as_after_an_answer(stage: Stage) -> None:
    """It does not wait for the rest of a head."""
    reader, writer = await stage.say(request(b"x").replace(b"localhost", b"evil.example"))
    assert (await reader.readline()).split()[1] == b"403"
    await stage.later(90)
    await stage.say_more(writer, request(b"again"))
    assert (await reader.readuntil(b"again")).endswith(b"again")


@each_of((10_000, b"100"), (10_001, b"413"))
@played(LIMITS._replace(max_body=10_000))
async def test_expect_100_continue_is_answered_with_continue_or_the_fault(
    stage: Stage, length: int, reported: bytes
) -> None:
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n" % length
    reader, writer = await stage.say(head + b"Expect: 100-continue\r\n\r\n")
    assert (await reader.readline()).split()[1] == reported
    if reported == b"100":
        await stage.say_more(writer, b"x" * length)
        assert (await reader.readuntil(b"x")).startswith(b"\r\nHTTP/1.1 200 OK")


@played(LIMITS._replace(max_connections=2))
async def test_a_caller_that_hangs_up_halfway_frees_its_place(stage: Stage) -> None:
    before = dropped("full")
    for _ in range(5):
        _, writer = await stage.say(b"GET /")
        writer.close()
        await writer.wait_closed()
    await stage.works()
    assert dropped("full") == before


@played()
async def test_loopback_names_are_served_and_requests_of_web_pages_are_refused(stage: Stage) -> None:
    for field, code in (
        (b"Host: localhost:1", 200),
        (b"Host: [::1]", 200),
        (b"Host: evil.example", 403),
        (b"Host: [", 403),
        (b"Host: localhost\r\nOrigin: http://evil.example", 403),
    ):
        reader, _ = await stage.say(b"GET / HTTP/1.1\r\n%b\r\nConnection: close\r\n\r\n" % field)
        assert (field, [*statuses(await reader.read(), without_body=False)]) == (field, [code])


@played(LIMITS._replace(max_connections=2))
async def test_a_connection_dropped_before_its_admission_is_closed(stage: Stage) -> None:
    """All callers are accepted in one turn of the loop."""
    with ExitStack() as stack:
        callers = [stack.enter_context(socket.create_connection(stage.address)) for _ in range(5)]
        await stage.works()
        for caller in callers[:4]:
            caller.settimeout(30)
            assert caller.recv(1) == b""


@played(LIMITS._replace(max_unread=100_000_000))
async def test_an_unread_answer_has_a_deadline(stage: Stage) -> None:
    before = dropped("answer")
    reader, _ = await stage.say(b"GET /long HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    await stage.say(b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await stage.later(29)
    assert (await reader.read()).endswith(LONG_ANSWER)
    await stage.later(2)
    assert dropped("answer") == before + 1


@played()
async def test_the_largest_unread_answer_is_dropped_first_above_the_limit_of_bytes(stage: Stage) -> None:
    before = dropped("memory")
    for _ in range(3):
        await stage.say(b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert dropped("memory") == before + 3


@played(LIMITS._replace(max_unread=100_000_000))
async def test_a_connection_that_is_idle_does_not_hold_its_last_answer(stage: Stage) -> None:
    """Free the answer, which each of a thousand connections would keep for two minutes."""
    reader, _ = await stage.say(b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    assert await reader.readexactly(len(LONG_ANSWER)) == LONG_ANSWER
    await stage.works()
    assert stage.answers[0].body is None


# ---- short requests, as Go's client writes them


@given(
    st.lists(st.tuples(st.booleans(), st.binary(max_size=30)), min_size=1, max_size=4),
    st.lists(st.integers(1, 60), max_size=30),
)
@played()
async def test_short_requests_are_recognized_however_the_bytes_are_cut(
    stage: Stage, asked: list[tuple[bool, bytes]], cuts: list[int]
) -> None:
    sent = b"".join(short(body) if is_short else request(body) for is_short, body in asked)
    sent += request(b"", b"Connection: close")
    reader, writer = await stage.say(b"")
    for size in [*cuts, len(sent)]:
        writer.write(sent[:size])
        sent = sent[size:]
        await asyncio.sleep(0)
    assert answers(await reader.read()) == [*(body for _, body in asked), b""]


@played()
async def test_a_connection_with_nothing_to_do_takes_short_requests_again(stage: Stage) -> None:
    """Accept short requests, as any connection of Go's transport may get the next one."""
    reader, writer = await stage.meet(is_first=False)
    for _ in range(3):
        before = stage.short
        await stage.say_more(writer, short(b"short"))
        assert (await reader.readuntil(b"short"))[-5:] == b"short"
        assert stage.short == before + 1
        await stage.say_more(writer, request(b"other"))
        assert (await reader.readuntil(b"other"))[-5:] == b"other"


@each_of(
    (short(target=b"/fault"), 404),
    (short(target=b"/failure"), 500),
    (short(host=b"evil.example"), 403),
    (short(b"x" * (MAX_BODY + 1)), 413),
    (short().replace(b"Content-Type", b"Transfer-Encoding"), 400),
    (short().replace(b"Accept-Encoding: gzip", b"Content-Length: 0"), 400),
    (short().replace(b"Host: localhost\r\n", b"Host: localhost\r\nOrigin: http://localhost\r\n"), 403),
)
@played()
async def test_a_malformed_short_request_is_refused_with_the_fault(
    stage: Stage, sent: bytes, code: int
) -> None:
    reader, _ = await stage.say(sent)
    assert (await reader.readline()).split()[1] == b"%d" % code


@played()
async def test_a_call_ends_when_its_caller_hangs_up_also_with_another_on_the_way(stage: Stage) -> None:
    for more in (b"", short(b"another")):
        _, writer = await stage.say(short(target=b"/held") + more)
        assert stage.held == stage.gone + 1
        writer.close()
        await writer.wait_closed()
        await stage.works()
        assert stage.gone == stage.held


@played()
async def test_a_caller_with_too_many_unanswered_requests_is_closed(stage: Stage) -> None:
    before = dropped("memory")
    await stage.say(short(target=b"/held") + short(b"x" * 900) * 9)
    assert (stage.gone, dropped("memory")) == (1, before + 1)


@played(LIMITS._replace(max_unread=100_000_000))
async def test_a_long_answer_to_a_short_request_has_a_deadline(stage: Stage) -> None:
    before = dropped("answer")
    reader, _ = await stage.say(short(target=b"/long") + request(b"", b"Connection: close"))
    await stage.say(short(target=b"/long"))
    await stage.later(29)
    assert LONG_ANSWER in await reader.read()
    await stage.later(2)
    assert dropped("answer") == before + 1


def test_a_short_call_without_an_answer_is_cut_at_its_deadline() -> None:
    async def stop() -> None:
        stage = Stage(loop, LIMITS)
        reader, _ = await stage.say(short(target=b"/held"))
        await stage.stop()
        assert (await reader.read(), stage.gone) == (b"", 1)

    loop = Clock()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(stop())
