"""Connections to the API server for short requests: the Events that the scheduler posts for each pod.

A request is written to its socket in one piece, and the client gets the answer unchanged. With aiohttp, each
request costs a task, timers, a URL and two dictionaries of headers, and TLS is done in Python. These costs
were most of the cost of a pod in the proxy (see the figures in `ports/light_connection`). aiohttp's parser
reads only answers in a form that Go's server does not use for short requests.

    dial ──► idle ◄──► in use      ends after an error, at its deadline, or with a cancelled request
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
from extender.proxy.target import headers_for_client
from extender.telemetry import metrics

DIAL = 5.0  # longest time for opening a connection, in seconds
TURN = 30.0  # longest wait for a connection, in seconds
ANSWER = 90.0  # longest silence in seconds; the API server gives up after 60
MAX_IDLE = 60.0  # longest idle time in seconds; the API server closes after 90
_REQUESTS_PER_DIAL = 8  # waiting requests per connection that is opened besides the first
_PIECE_BYTES = 64 * 1024  # bytes read at a time; more than a TLS record, so that no bytes stay in the library
_MAX_ANSWER_BYTES = 1024 * 1024  # most bytes of an answer
# Patterns for the head of an answer, in lower case.
_STATUS_LINE = re.compile(rb"http/1\.1 (?!204|304)([2-5][0-9]{2}) ")  # 204 and 304 never have a body
_LENGTH_LINE = re.compile(rb"\r\ncontent-length: ([0-9]{1,6})\r\n")
_SPECIAL = re.compile(rb"\r\n(?:connection|keep-alive|proxy-|te:|trailer|transfer-encoding|upgrade|[ \t])")


class Unsent(Exception):
    """Error: the API server has not received the whole request, and will not receive it."""


class Reply(NamedTuple):
    status: int
    answer: bytes  # bytes that are written to the client
    closes_connection: bool  # whether the API server then closes the connection


def read_answer(data: bytes, has_ended: bool) -> Reply | None:
    """Return the answer in these bytes; None if it is incomplete.

    `has_ended` means that no more bytes will come.

    Raises:
        ConnectionError: The bytes are not an answer, or are more than _MAX_ANSWER_BYTES.
    """
    if len(data) > _MAX_ANSWER_BYTES:
        raise ConnectionError(f"an answer has more than {_MAX_ANSWER_BYTES} bytes")
    end = data.find(b"\r\n\r\n") + 4
    head = data[:end].lower()
    status, length = _STATUS_LINE.match(head), _LENGTH_LINE.search(head)
    is_plain = head.count(b"\r\ncontent-length") == 1 and not _SPECIAL.search(head)
    if status and length and is_plain:
        end += int(length[1])
        if len(data) < end:
            return None
        return Reply(int(status[1]), data[:end], closes_connection=len(data) > end)
    return _parse_answer(data, has_ended) if end >= 4 else None


def _parse_answer(data: bytes, has_ended: bool) -> Reply | None:
    """Return an answer in any form: in chunks, after 100 Continue, or until the connection ends."""
    loop = asyncio.get_running_loop()
    protocol = BaseProtocol(loop)
    parser = HttpResponseParser(protocol, loop, _MAX_ANSWER_BYTES, read_until_eof=True, auto_decompress=False)
    try:
        messages, _, _ = parser.feed_data(data)
        if has_ended:
            parser.feed_eof()
    except HttpProcessingError as fault:
        raise ConnectionError(f"malformed answer: {fault.message}") from fault
    final_answers = [(message, body) for message, body in messages if message.code >= 200]
    if not final_answers or not final_answers[0][1].is_eof():
        return None
    message, body = final_answers[0]
    headers = headers_for_client(message.headers)
    headers.popall(hdrs.CONTENT_LENGTH, None)
    answer = encode_answer(message.code, message.reason, headers.items(), body.read_nowait())
    return Reply(message.code, answer, message.should_close or len(final_answers) > 1)


class RequestConnection:
    """Connection that has one request at a time. It closes itself when it can no longer be used."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._received = b""
        self._reply: asyncio.Future[Reply] | None = None
        self.deadline = self._loop.time() + MAX_IDLE
        self._loop.add_reader(sock.fileno(), self._read)

    async def send(self, request: bytes) -> Reply:
        """Send a request and return the answer.

        Raises:
            Unsent: The request was not sent.
            OSError: The request may have taken effect, but has no answer.
        """
        try:
            sent_count = self._sock.send(request)
            if sent_count < len(request):  # a short request fits into the buffer of a live connection
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
        self.deadline = self._loop.time() + MAX_IDLE
        if reply.closes_connection:
            self.close()
        return reply

    def close(self, fault: OSError | None = None) -> None:
        """Close the connection. A waiting request raises `fault`."""
        if self.is_open:
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()
        if fault and self._reply and not self._reply.done():
            self._reply.set_exception(fault)

    @property
    def is_open(self) -> bool:
        return self._sock.fileno() >= 0

    def _read(self) -> None:
        """Read from the socket, and complete the waiting request if its answer is complete."""
        try:
            data = self._sock.recv(_PIECE_BYTES)
            if not self._reply:  # the server has closed the connection, or sends data without a request
                return self.close()
            self._received += data
            reply = read_answer(self._received, has_ended=not data)
            if not reply and not data:
                raise ConnectionError("the API server closed the connection")
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except OSError as fault:
            return self.close(fault)
        if reply and not self._reply.done():
            self._reply.set_result(reply)


class RequestConnections:
    """Small number of connections for many requests. Call `close_expired` about every second.

    The Events of a gang come all at once. Only a few connections are opened at a time, because most
    waiting requests get a connection that becomes free before a handshake ends.
    """

    def __init__(self, endpoint: ApiEndpoint, limit: int) -> None:
        self._endpoint, self._limit = endpoint, limit
        self._opened: list[RequestConnection] = []  # some of them may be closed
        self._idle: list[RequestConnection] = []  # the last is used first, so the others expire
        self._waiters: deque[asyncio.Future[RequestConnection]] = deque()  # empty while a connection is idle
        self._dial_tasks: set[asyncio.Task[None]] = set()

    async def send(self, request: bytes) -> Reply:
        """Send a request and return the answer; raise the errors of `RequestConnection.send`.

        A request that may have taken effect is not sent again.
        """
        while self._idle:
            with suppress(Unsent):  # the connection has ended meanwhile
                return await self._send(self._idle.pop(), request)
        return await self._send(await self._wait_for_connection(), request)

    def close_expired(self) -> None:
        """Close the connections whose deadline has passed."""
        now = asyncio.get_running_loop().time()
        for connection in self._opened:
            if connection.deadline < now:
                connection.close(TimeoutError(f"no answer within {ANSWER:.0f} s"))
        self._opened = [connection for connection in self._opened if connection.is_open]
        self._idle = [connection for connection in self._idle if connection.is_open]

    def drop_idle(self) -> None:
        """Close the idle connections, which may use an old client certificate."""
        while self._idle:
            self._idle.pop().close()

    async def close(self) -> None:
        """Close all connections. The caller ensures that no request is in progress."""
        if self._dial_tasks:
            await asyncio.wait(self._dial_tasks)  # a cancelled dial would leave an open socket
        self.drop_idle()

    async def _send(self, connection: RequestConnection, request: bytes) -> Reply:
        try:
            return await connection.send(request)
        finally:
            self._give_to_waiting(connection)

    async def _wait_for_connection(self) -> RequestConnection:
        """Return the first connection that becomes free or is opened."""
        waiter: asyncio.Future[RequestConnection] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
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
        """Give a free connection to a waiting request. If no request waits, the connection becomes idle."""
        is_given = False
        while self._waiters and connection.is_open and not is_given:
            waiter = self._waiters.popleft()
            is_given = not waiter.done()
            if is_given:
                waiter.set_result(connection)
        if connection.is_open and not is_given:
            self._idle.append(connection)
        self._dial()

    def _dial(self) -> None:
        """Open a connection for every `_REQUESTS_PER_DIAL` waiting requests, and at least one."""
        while self._waiters and len(self._dial_tasks) <= len(self._waiters) // _REQUESTS_PER_DIAL:
            if sum(connection.is_open for connection in self._opened) + len(self._dial_tasks) >= self._limit:
                return
            task = asyncio.create_task(self._open())
            self._dial_tasks.add(task)
            task.add_done_callback(self._on_dial_ended)

    async def _open(self) -> None:
        """Open a connection for a waiting request. After an error, all waiting requests fail."""
        metrics.view_dials.inc()
        try:
            connection = RequestConnection(await asyncio.to_thread(self._endpoint.dial, DIAL))
        except Exception as fault:  # errors of the network, TLS, a proxy, or certificate files
            while self._waiters:
                waiter = self._waiters.popleft()
                if not waiter.done():
                    waiter.set_exception(Unsent(str(fault) or type(fault).__name__))
        else:
            self._opened.append(connection)
            self._give_to_waiting(connection)

    def _on_dial_ended(self, task: "asyncio.Task[None]") -> None:
        self._dial_tasks.discard(task)
        self._dial()
