"""Connections to the API server for short requests: the Event that the scheduler posts for each pod.

A request is written to its socket in one piece, and the answer goes to the client as it came. With aiohttp
each takes a task, timers, a URL and two dictionaries of headers, and TLS is done in Python: that was most of
the cost of a pod in the proxy (figures: `ports/newcomer`). aiohttp's parser reads only answers that Go's
server would not give to a short request.

    dial ──► idle ◄──► asked       ends with a fault, at its deadline, or with the request that gave up
"""

import asyncio
import re
import socket
import ssl
from collections import deque
from contextlib import suppress
from typing import NamedTuple

from aiohttp import hdrs
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpProcessingError, HttpResponseParser

from extender.kube.endpoint import ApiEndpoint
from extender.ports.connection import encode_answer
from extender.proxy.target import for_client
from extender.telemetry import metrics

DIAL = 5.0  # seconds
TURN = 30.0  # seconds to wait for a connection
ANSWER = 90.0  # seconds of silence; the API server gives up after 60
OLDEST_IDLE = 60.0  # seconds; the API server closes after 90
_WAIT_FOR_ONE = 8  # waiting requests for each connection that is dialled
_PIECE = 64 * 1024  # bytes read at a time: a record of TLS has fewer, so the library holds nothing back
_LONGEST = 1024 * 1024  # bytes of an answer
# Patterns for the head of an answer, in lower case.
_STATUS = re.compile(rb"http/1\.1 (?!204|304)([2-5][0-9]{2}) ")  # 204 and 304 never have a body
_LENGTH = re.compile(rb"\r\ncontent-length: ([0-9]{1,6})\r\n")
_SPECIAL = re.compile(rb"\r\n(?:connection|keep-alive|proxy-|te:|trailer|transfer-encoding|upgrade|[ \t])")


class Unsent(Exception):
    """Error: the API server has not received the whole request, and will not."""


class Reply(NamedTuple):
    status: int
    answer: bytes  # as it is written to the client
    last: bool  # whether the API server closes after it


def read_answer(came: bytes, ended: bool) -> Reply | None:
    """Return the answer in these bytes; None if it is incomplete.

    Raises:
        ConnectionError: It is no answer, or too long.
    """
    if len(came) > _LONGEST:
        raise ConnectionError(f"an answer has more than {_LONGEST} bytes")
    end = came.find(b"\r\n\r\n") + 4
    head = came[:end].lower()
    status, length = _STATUS.match(head), _LENGTH.search(head)
    plain = head.count(b"\r\ncontent-length") == 1 and not _SPECIAL.search(head)
    if status and length and plain:
        end += int(length[1])
        return Reply(int(status[1]), came[:end], len(came) > end) if len(came) >= end else None
    return _parsed(came, ended) if end >= 4 else None


def _parsed(came: bytes, ended: bool) -> Reply | None:
    """Return an answer of any form: chunked, after 100 Continue, or until the connection ends."""
    loop = asyncio.get_running_loop()
    parser = HttpResponseParser(
        BaseProtocol(loop), loop, _LONGEST, read_until_eof=True, auto_decompress=False
    )
    try:
        messages, _, _ = parser.feed_data(came)
        if ended:
            parser.feed_eof()
    except HttpProcessingError as fault:
        raise ConnectionError(f"malformed answer: {fault.message}") from fault
    final = [each for each in messages if each[0].code >= 200]
    if not final or not final[0][1].is_eof():
        return None
    message, body = final[0]
    headers = for_client(message.headers)
    headers.popall(hdrs.CONTENT_LENGTH, None)
    answer = encode_answer(message.code, message.reason, headers.items(), body.read_nowait())
    return Reply(message.code, answer, message.should_close or len(final) > 1)


class Line:
    """Connection with one request at a time. It closes itself when it cannot be used any more."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._came = b""
        self._asked: asyncio.Future[Reply] | None = None
        self.deadline = self._loop.time() + OLDEST_IDLE
        self._loop.add_reader(sock.fileno(), self._read)

    async def ask(self, request: bytes) -> Reply:
        """Return the answer to a request.

        Raises:
            Unsent: The request was not sent.
            OSError: The request may have taken effect, and has no answer.
        """
        try:
            sent = self._sock.send(request)
            if sent < len(request):  # a short request fits into the kernel's buffer while the peer lives
                raise OSError("the API server does not read")
        except OSError as fault:
            self.close()
            raise Unsent(str(fault)) from fault
        self._asked = self._loop.create_future()
        self.deadline = self._loop.time() + ANSWER
        try:
            reply = await self._asked
        except BaseException:
            self.close()
            raise
        self._asked, self._came = None, b""
        self.deadline = self._loop.time() + OLDEST_IDLE
        if reply.last:
            self.close()
        return reply

    def close(self, fault: OSError | None = None) -> None:
        """Close the connection; `fault` is raised for a waiting request."""
        if self.open:
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()
        if fault and self._asked and not self._asked.done():
            self._asked.set_exception(fault)

    @property
    def open(self) -> bool:
        return self._sock.fileno() >= 0

    def _read(self) -> None:
        try:
            data = self._sock.recv(_PIECE)
            if not self._asked:  # the connection has ended, or sends data without a request
                return self.close()
            self._came += data
            reply = read_answer(self._came, ended=not data)
            if not reply and not data:
                raise ConnectionError("the API server closed the connection")
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except OSError as fault:
            return self.close(fault)
        if reply and not self._asked.done():
            self._asked.set_result(reply)


class LinePool:
    """Few connections for many requests. `close_expired` is to be called about every second.

    A gang's Events come all at once. Few connections are opened at a time: before a handshake is over, most
    of the waiting requests have got one that became free.
    """

    def __init__(self, endpoint: ApiEndpoint, most: int) -> None:
        self._endpoint, self._most = endpoint, most
        self._all: list[Line] = []  # including some that were closed since the last look
        self._idle: list[Line] = []  # the one used last at the end, so that surplus ones expire
        self._waiting: deque[asyncio.Future[Line]] = deque()  # not while there are idle ones
        self._dialling: set[asyncio.Task[None]] = set()

    async def ask(self, request: bytes) -> Reply:
        """Return the answer to a request, as `Line.ask`.

        A request that may have taken effect is sent once.
        """
        while self._idle:
            with suppress(Unsent):  # the connection has died meanwhile
                return await self._ask(self._idle.pop(), request)
        return await self._ask(await self._next(), request)

    def close_expired(self) -> None:
        """Close the connections past their deadline."""
        now = asyncio.get_running_loop().time()
        for line in self._all:
            if line.deadline < now:
                line.close(TimeoutError(f"no answer within {ANSWER:.0f} s"))
        self._all = [line for line in self._all if line.open]
        self._idle = [line for line in self._idle if line.open]

    def drop_idle(self) -> None:
        """Close idle connections: they may use an old client certificate."""
        while self._idle:
            self._idle.pop().close()

    async def close(self) -> None:
        """Close all connections, once no request is left."""
        if self._dialling:
            await asyncio.wait(self._dialling)  # cancelled dials would leave open sockets
        self.drop_idle()

    async def _ask(self, line: Line, request: bytes) -> Reply:
        try:
            return await line.ask(request)
        finally:
            self._give_to_waiting(line)

    async def _next(self) -> Line:
        """Return the line that is free or open first."""
        turn: asyncio.Future[Line] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._dial()
        try:
            async with asyncio.timeout(TURN):
                return await turn
        except BaseException as fault:
            if turn.done() and not turn.cancelled() and not turn.exception():
                self._give_to_waiting(turn.result())
            if isinstance(fault, TimeoutError):
                raise Unsent("all connections are in use") from fault
            raise

    def _give_to_waiting(self, line: Line) -> None:
        while self._waiting and line.open:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(line)
                break
        else:
            if line.open:
                self._idle.append(line)
        self._dial()

    def _dial(self) -> None:
        """Open one more connection for each few waiting requests."""
        while self._waiting and len(self._dialling) <= len(self._waiting) // _WAIT_FOR_ONE:
            if sum(line.open for line in self._all) + len(self._dialling) >= self._most:
                return
            dialling = asyncio.create_task(self._open())
            self._dialling.add(dialling)
            dialling.add_done_callback(self._dialled)

    async def _open(self) -> None:
        metrics.view_dials.inc()
        try:
            line = Line(await asyncio.to_thread(self._endpoint.dial, DIAL))
        except Exception as fault:  # errors of the network, TLS, a proxy, or certificate files
            while self._waiting:
                turn = self._waiting.popleft()
                if not turn.done():
                    turn.set_exception(Unsent(str(fault) or type(fault).__name__))
        else:
            self._all.append(line)
            self._give_to_waiting(line)

    def _dialled(self, done: "asyncio.Task[None]") -> None:
        self._dialling.discard(done)
        self._dial()
