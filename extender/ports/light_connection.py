"""Light connection: an accepted connection that is silent, or sends short requests.

A light connection costs only a socket, so thousands of silent connections need no parser, transport or task.
The kernel keeps received data, and wakes the process only when more data arrives (SO_RCVLOWAT), until the
data is worth reading:

    handshake ──► the first record of TLS is there ───┐
    idle ──► head ──► body ──► the request is there ──┼──► a connection of aiohttp's takes over
     ▲                                                └──► served ──► [answer ──►] idle ──► …
     └──────── short, and as Go's client writes it ───────┘

The scheduler keeps two idle connections to its extender, and the bind calls of a gang are open at the same
time. Nearly each call therefore has a connection of its own, as does a quarter of the Events through the
proxy. So a port may answer short requests here, without the objects that aiohttp creates for a connection and
for a request. aiohttp reads, and refuses, all other requests; after the answer, the connection is light
again.

Short answers here and in `proxy/short_requests` halve the cost of a gang's pod through the scheduler proxy:
1.2 instead of 2.3 ms (`make bench ARGS="makespan --variants view"`).
"""

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

from extender.ports.connection import Caller
from extender.ports.connections import NEVER, Connections

_MAX_PEEK_BYTES = 4096  # number of bytes at which aiohttp reads an incomplete request
_LENGTH_HEADER = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,4})[ \t]*\r\n", re.IGNORECASE)
_HEADER, _HANDSHAKE_BYTE = 5, 0x16  # TLS: bytes of a record's header, and first byte of a handshake
# Head of a request with a body, with the headers in the order of Go's net/http. aiohttp reads other heads.
_GO_HEAD = re.compile(
    rb"(?P<method>POST|PUT|PATCH) (?P<target>[!-~]+) HTTP/1\.1\r\nHost: (?P<host>[!-~]+)\r\n"
    rb"(?P<fields>User-Agent: [ -~]*\r\nContent-Length: (?P<length>[0-9]{1,4})\r\n"
    rb"(?:Accept: [ -~]*\r\n)?(?:Content-Type: [ -~]*\r\n)?)(?:Accept-Encoding: [ -~]*\r\n)?\r\n"
)


class ShortRequest(NamedTuple):
    """Complete short request."""

    method: str
    target: str
    host: str
    fields: bytes  # User-Agent, Content-Length, Accept and Content-Type, unchanged
    body: bytes


# Returns the bytes of the answer (empty to end the connection), and whether it is the last. Must not raise.
ShortAnswer = Callable[[Caller], Awaitable[tuple[bytes, bool]]]
FindAnswer = Callable[[ShortRequest], ShortAnswer | None]  # None means that aiohttp reads the request


class LightConnection:
    """Connection without aiohttp's objects.

    It is a member of `connections` until it is dropped or handed over. `hand_over` gets the socket, and the
    size of the request if exactly one request is complete. `find_answer` returns the handler of a short
    request; None means that aiohttp reads the request. An answer is cancelled when the caller hangs up.
    """

    __slots__ = ("_caller", "_connections", "_find_answer", "_hand_over", "_is_last", "_loop",
                 "_received_size", "_secure", "_sock", "_task", "_unsent", "address", "answer_count",
                 "deadline", "size", "state")  # fmt: skip

    def __init__(
        self,
        sock: socket.socket,
        connections: Connections,
        secure: bool,
        hand_over: Callable[[socket.socket, int], object],
        address: str = "",
        find_answer: FindAnswer | None = None,
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._connections, self.address = connections, address
        self._secure = secure
        self._hand_over, self._find_answer = hand_over, find_answer
        self._caller = Caller(sock.fileno())
        self._received_size = 0  # number of received bytes at the last check
        self._task: asyncio.Task[None] | None = None  # task that serves a request
        self._unsent = b""  # part of the answer that is not sent yet
        self._is_last = False  # whether the connection closes after this answer
        self._loop = asyncio.get_running_loop()
        self.answer_count = self.size = 0
        self._enter("handshake" if secure else "idle")
        connections.add(self)
        self._loop.add_reader(sock.fileno(), self._check)  # faster than with the socket

    def end(self) -> None:
        """Close the connection in any state."""
        self._caller.is_lost = True
        if self._task:
            self._task.cancel()
        self._loop.remove_reader(self._sock.fileno())
        self._loop.remove_writer(self._sock.fileno())
        with suppress(OSError):  # otherwise unread data would reset the connection
            self._sock.recv(self._received_size)
        self._sock.close()

    def _enter(self, state: str) -> None:
        self.state = state
        self.deadline = self._loop.time() + getattr(self._connections.limits.timeouts, state)

    def _check(self) -> None:
        """Look at the received bytes; serve them, wait for more, or hand the connection over."""
        try:
            data = self._sock.recv(_MAX_PEEK_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or (len(data) == self._received_size and self._caller.has_hung_up()):
            return self._connections.drop(self)
        if self.state in ("served", "answer"):  # the bytes of the next request stay unread
            if len(data) < _MAX_PEEK_BYTES:
                return self._wait_for_more_than(len(data))
            self._connections.count_drop("memory")
            self._connections.drop(self)
        elif self._find_answer and not self._secure and self._serve(data):
            return
        elif next_state := self._next_state(data):
            self._wait_for_more_than(len(data))
            if next_state != self.state:
                self._enter(next_state)
        else:
            self._wait_for_more_than(0)
            self._loop.remove_reader(self._sock.fileno())
            self._connections.remove(self)
            self._hand_over(self._sock, _size_of_request(data))

    def _wait_for_more_than(self, length: int) -> None:
        """Let the kernel wake the process when more than `length` bytes have been received."""
        if length != self._received_size:
            self._received_size = length
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, length + 1)

    def _next_state(self, data: bytes) -> str:
        """Return the state in which the connection waits for more bytes; empty if aiohttp is to read them."""
        if len(data) in (_MAX_PEEK_BYTES, self._received_size):
            return ""
        if self._secure:
            has_header = len(data) >= _HEADER
            is_complete = has_header and len(data) >= _HEADER + int.from_bytes(data[3:_HEADER], "big")
            return "" if is_complete or data[0] != _HANDSHAKE_BYTE else "handshake"
        head, end, body = data.partition(b"\r\n\r\n")
        if not end:
            return "head" if data[:1].isalpha() else ""
        length, limits = _LENGTH_HEADER.search(head + b"\r\n"), self._connections.limits
        is_short = length is not None and len(body) < int(length[1]) <= limits.max_body
        return "body" if is_short and not limits.timeouts.has_streams else ""

    def _serve(self, data: bytes) -> bool:
        """Serve the request if it is complete, short, and has a handler; return whether it is served."""
        head = _GO_HEAD.match(data)
        if head is None:
            return False
        length = int(head["length"])
        end = head.end() + length
        if len(data) < end or length > self._connections.limits.max_body:
            return False
        method, target, host = (head[name].decode() for name in ("method", "target", "host"))
        assert self._find_answer is not None
        answer = self._find_answer(ShortRequest(method, target, host, head["fields"], data[head.end() : end]))
        if answer is None:
            return False
        self._sock.recv(end)
        self._wait_for_more_than(0)
        self.state, self.deadline = "served", NEVER
        self._connections.serve(self)
        self._task = self._loop.create_task(self._respond(answer))
        return True

    async def _respond(self, answer: ShortAnswer) -> None:
        self._unsent, self._is_last = await answer(self._caller)
        self._task = None
        self.answer_count += 1
        self._send()

    def _send(self) -> None:
        """Send as much of the answer as the socket accepts now."""
        try:
            self._unsent = self._unsent[self._sock.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            return self._connections.drop(self)
        if self._unsent and self.state == "served":
            self._enter("answer")
            self._connections.wait(self)
            self._loop.add_writer(self._sock.fileno(), self._send)
            self._connections.add_unread(self, len(self._unsent))
        elif not self._unsent and self._is_last:
            self._connections.drop(self)
        elif not self._unsent:
            self._listen()

    def _listen(self) -> None:
        """Wait for the next request, which may have arrived already."""
        if self.state == "answer":
            self._loop.remove_writer(self._sock.fileno())
            self._connections.forget_unread(self)
        self._enter("idle")
        self._connections.wait(self)
        if self._received_size:
            self._wait_for_more_than(0)
            self._check()


def _size_of_request(data: bytes) -> int:
    """Return the number of bytes if `data` is exactly one request, else 0."""
    head, end, body = data.partition(b"\r\n\r\n")
    length = _LENGTH_HEADER.search(head + b"\r\n")
    body_length = int(length[1]) if length else 0
    return len(data) if end and len(body) == body_length else 0
