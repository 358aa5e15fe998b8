"""Connections to the API server for short requests: the Event that the scheduler posts for each pod.

A request is written to its socket in one piece, and the answer goes to the client as it came. With aiohttp
each takes a task, timers, a URL and two dictionaries of headers, and TLS is done in Python: that was most of
the cost of a pod in the proxy (figures: `ports/light_connection`). aiohttp's parser reads only answers that
Go's server would not give to a short request.

    dial ──► idle ◄──► in use      ends with a fault, at its deadline, or with the request that gave up
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
_REQUESTS_PER_DIAL = 8  # waiting requests for each connection that is dialled after the first
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


def read_answer(received: bytes, ended: bool) -> Reply | None:
    """Return the answer in these bytes; None if it is incomplete. `ended`: no more bytes will come.

    Raises:
        ConnectionError: The bytes are no answer, or too many.
    """
    if len(received) > _LONGEST:
        raise ConnectionError(f"an answer has more than {_LONGEST} bytes")
    end = received.find(b"\r\n\r\n") + 4
    head = received[:end].lower()
    status, length = _STATUS.match(head), _LENGTH.search(head)
    is_plain = head.count(b"\r\ncontent-length") == 1 and not _SPECIAL.search(head)
    if status and length and is_plain:
        end += int(length[1])
        if len(received) < end:
            return None
        return Reply(int(status[1]), received[:end], last=len(received) > end)
    return _parsed(received, ended) if end >= 4 else None


def _parsed(received: bytes, ended: bool) -> Reply | None:
    """Return an answer of any form: chunked, after 100 Continue, or until the connection ends."""
    loop = asyncio.get_running_loop()
    protocol = BaseProtocol(loop)
    parser = HttpResponseParser(protocol, loop, _LONGEST, read_until_eof=True, auto_decompress=False)
    try:
        messages, _, _ = parser.feed_data(received)
        if ended:
            parser.feed_eof()
    except HttpProcessingError as fault:
        raise ConnectionError(f"malformed answer: {fault.message}") from fault
    final = [(message, body) for message, body in messages if message.code >= 200]
    if not final or not final[0][1].is_eof():
        return None
    message, body = final[0]
    headers = for_client(message.headers)
    headers.popall(hdrs.CONTENT_LENGTH, None)
    answer = encode_answer(message.code, message.reason, headers.items(), body.read_nowait())
    return Reply(message.code, answer, message.should_close or len(final) > 1)


class RequestConnection:
    """Connection with one request at a time. It closes itself when it cannot be used any more."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._received = b""
        self._reply: asyncio.Future[Reply] | None = None
        self.deadline = self._loop.time() + OLDEST_IDLE
        self._loop.add_reader(sock.fileno(), self._read)

    async def send(self, request: bytes) -> Reply:
        """Return the answer to a request.

        Raises:
            Unsent: The request was not sent.
            OSError: The request may have taken effect, and has no answer.
        """
        try:
            sent_bytes = self._sock.send(request)
            if sent_bytes < len(request):  # a short request fits into the buffer while the peer lives
                raise OSError("the API server does not read")
        except OSError as fault:
            self.close()
            raise Unsent(str(fault)) from fault
        self._reply = self._loop.create_future()
        self.deadline = self._loop.time() + ANSWER
        try:
            reply = await self._reply
        except BaseException:
            self.close()
            raise
        self._reply, self._received = None, b""
        self.deadline = self._loop.time() + OLDEST_IDLE
        if reply.last:
            self.close()
        return reply

    def close(self, fault: OSError | None = None) -> None:
        """Close the connection; `fault` is raised for a waiting request."""
        if self.is_open:
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()
        if fault and self._reply and not self._reply.done():
            self._reply.set_exception(fault)

    @property
    def is_open(self) -> bool:
        return self._sock.fileno() >= 0

    def _read(self) -> None:
        try:
            data = self._sock.recv(_PIECE)
            if not self._reply:  # the connection has ended, or sends data without a request
                return self.close()
            self._received += data
            reply = read_answer(self._received, ended=not data)
            if not reply and not data:
                raise ConnectionError("the API server closed the connection")
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except OSError as fault:
            return self.close(fault)
        if reply and not self._reply.done():
            self._reply.set_result(reply)


class RequestConnections:
    """Few connections for many requests. `close_expired` is to be called about every second.

    A gang's Events come all at once. Few connections are opened at a time: before a handshake is over, most
    of the waiting requests have got one that became free.
    """

    def __init__(self, endpoint: ApiEndpoint, limit: int) -> None:
        self._endpoint, self._limit = endpoint, limit
        self._all: list[RequestConnection] = []  # some may be closed
        self._idle: list[RequestConnection] = []  # the last used one at the end, so that the others expire
        self._waiting: deque[asyncio.Future[RequestConnection]] = deque()  # empty while connections are idle
        self._dialling: set[asyncio.Task[None]] = set()

    async def send(self, request: bytes) -> Reply:
        """Return the answer to a request, as `RequestConnection.send`.

        A request that may have taken effect is sent once.
        """
        while self._idle:
            with suppress(Unsent):  # the connection has died meanwhile
                return await self._send(self._idle.pop(), request)
        return await self._send(await self._next(), request)

    def close_expired(self) -> None:
        """Close the connections past their deadline."""
        now = asyncio.get_running_loop().time()
        for connection in self._all:
            if connection.deadline < now:
                connection.close(TimeoutError(f"no answer within {ANSWER:.0f} s"))
        self._all = [connection for connection in self._all if connection.is_open]
        self._idle = [connection for connection in self._idle if connection.is_open]

    def drop_idle(self) -> None:
        """Close idle connections: they may use an old client certificate."""
        while self._idle:
            self._idle.pop().close()

    async def close(self) -> None:
        """Close all connections, once no request is left."""
        if self._dialling:
            await asyncio.wait(self._dialling)  # cancelled dials would leave open sockets
        self.drop_idle()

    async def _send(self, connection: RequestConnection, request: bytes) -> Reply:
        try:
            return await connection.send(request)
        finally:
            self._give_to_waiting(connection)

    async def _next(self) -> RequestConnection:
        """Return the first connection that becomes free or is opened."""
        waiter: asyncio.Future[RequestConnection] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._dial()
        try:
            async with asyncio.timeout(TURN):
                return await waiter
        except BaseException as fault:
            if waiter.done() and not waiter.cancelled() and not waiter.exception():
                self._give_to_waiting(waiter.result())
            if isinstance(fault, TimeoutError):
                raise Unsent("all connections are in use") from fault
            raise

    def _give_to_waiting(self, connection: RequestConnection) -> None:
        is_given = False
        while self._waiting and connection.is_open and not is_given:
            waiter = self._waiting.popleft()
            is_given = not waiter.done()
            if is_given:
                waiter.set_result(connection)
        if connection.is_open and not is_given:
            self._idle.append(connection)
        self._dial()

    def _dial(self) -> None:
        """Open one connection for every `_REQUESTS_PER_DIAL` waiting requests, and at least one."""
        while self._waiting and len(self._dialling) <= len(self._waiting) // _REQUESTS_PER_DIAL:
            if sum(connection.is_open for connection in self._all) + len(self._dialling) >= self._limit:
                return
            dialling = asyncio.create_task(self._open())
            self._dialling.add(dialling)
            dialling.add_done_callback(self._dialled)

    async def _open(self) -> None:
        metrics.view_dials.inc()
        try:
            connection = RequestConnection(await asyncio.to_thread(self._endpoint.dial, DIAL))
        except Exception as fault:  # errors of the network, TLS, a proxy, or certificate files
            while self._waiting:
                waiter = self._waiting.popleft()
                if not waiter.done():
                    waiter.set_exception(Unsent(str(fault) or type(fault).__name__))
        else:
            self._all.append(connection)
            self._give_to_waiting(connection)

    def _dialled(self, done: "asyncio.Task[None]") -> None:
        self._dialling.discard(done)
        self._dial()
