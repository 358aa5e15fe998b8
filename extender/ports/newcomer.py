"""A caller that was let in and has not asked anything yet.

It costs a socket and no more: of thousands that come at once and say nothing, or half of it, none gets a
parser, a transport or a task. What arrives stays with the kernel, which is asked to wake us only for more
than is there already (SO_RCVLOWAT), until it is worth reading:

    handshake ──► the first record of TLS is there ───┐
    idle ──► head ──► body ──► the request is there ──┴──► a connection of aiohttp's takes over

Nothing is decided here about what is there: what is long, or no HTTP at all, is left to aiohttp as well.
"""

import asyncio
import re
import socket
from collections.abc import Callable
from contextlib import suppress

from extender.ports.connection import Caller
from extender.ports.connections import Connections

_MOST = 4096  # bytes: more is worth reading
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,4})[ \t]*\r\n", re.IGNORECASE)
_RECORD, _HANDSHAKE = 5, 0x16  # of TLS: the length of a record's head, and its first byte


class Newcomer:
    """A member of `connections` until it is dropped, or `begin` is called with its socket, which no longer is
    its own then."""

    __slots__ = ("_begin", "_connections", "_loop", "_secure", "_seen", "_sock", "answered", "deadline",
                 "size", "state")  # fmt: skip

    def __init__(
        self,
        sock: socket.socket,
        connections: Connections,
        secure: bool,
        begin: Callable[[socket.socket], object],
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._connections = connections
        self._secure = secure
        self._begin = begin
        self._seen = 0  # how many bytes were there at the last look
        self._loop = asyncio.get_running_loop()
        self.answered = self.size = 0
        self._enter("handshake" if secure else "idle")
        connections.add(self)
        self._loop.add_reader(sock.fileno(), self._look)  # of a socket, asyncio would ask the addresses

    def end(self) -> None:
        self._loop.remove_reader(self._sock.fileno())
        with suppress(OSError):  # what nobody has read makes the end a reset
            self._sock.recv(self._seen)
        self._sock.close()

    def _enter(self, state: str) -> None:
        self.state = state
        self.deadline = self._loop.time() + getattr(self._connections.limits.patience, state)

    def _look(self) -> None:
        try:
            there = self._sock.recv(_MOST, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            there = b""
        has_ended = len(there) == self._seen and Caller(self._sock.fileno()).gone()
        if not there or has_ended:
            return self._connections.drop(self)
        missing = "" if len(there) in (_MOST, self._seen) else self._missing(there)
        self._seen = len(there) if missing else 0
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, self._seen + 1)
        if not missing:
            self._loop.remove_reader(self._sock.fileno())
            self._connections.remove(self)
            self._begin(self._sock)
        elif missing != self.state:
            self._enter(missing)

    def _missing(self, there: bytes) -> str:
        """The state in which it waits for more; empty if what is there is worth reading."""
        if self._secure:
            has_length = len(there) >= _RECORD
            has_all = has_length and len(there) >= _RECORD + int.from_bytes(there[3:_RECORD], "big")
            return "" if has_all or there[0] != _HANDSHAKE else "handshake"
        head, end, body = there.partition(b"\r\n\r\n")
        if not end:
            return "head" if there[:1].isalpha() else ""
        length, limits = _LENGTH.search(head + b"\r\n"), self._connections.limits
        is_short = length is not None and len(body) < int(length[1]) <= limits.body
        return "body" if is_short and not limits.patience.streams else ""
