"""One caller's connection, read and written without blocking.

    handshake ──► idle ──► head ──► body ──► answer ──► idle ──► …
                                     └─► refused ──► further data is discarded ──► closed

Each of these states has a deadline. Only the Content-Length gives the length of a request: a body in chunks
is refused with 411. Everything else about a head is left to gunicorn's parser.
"""

import re
import socket
import ssl
from typing import Any, NamedTuple

from werkzeug.exceptions import (
    BadRequest,
    HTTPException,
    LengthRequired,
    RequestEntityTooLarge,
    RequestHeaderFieldsTooLarge,
)

from extender.web.answers import readable

LARGEST_HEAD = 64 * 1024  # bytes, as below
_PIECE = 256 * 1024  # read at a time
_MOST_DISCARDED = 128 * 1024 * 1024
_END_OF_HEAD = b"\r\n\r\n"
_FRAMING = re.compile(rb"\r\n(content-length|transfer-encoding)[ \t]*:[ \t]*([^\r\n]*)", re.IGNORECASE)


class Patience(NamedTuple):
    """For how many seconds a connection may stay in each state."""

    handshake: float = 5.0  # of TLS
    idle: float = 120.0  # above the 90 s of Go's transport: if the server closes first, a POST may fail
    head: float = 5.0  # from its first byte to its end
    body: float = 10.0  # from the end of the head to its own
    answer: float = 30.0  # until the caller has read it
    discard: float = 2.0  # after a refusal, while the caller still sends


class HungUp(ConnectionError):
    """The caller closed the connection, or has got its last answer."""


class CallerConnection:
    """`client` is its address. Used by one thread at a time."""

    def __init__(
        self, sock: socket.socket, client: tuple[Any, ...], largest_body: int, patience: Patience, now: float
    ) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.client: tuple[str, int] = (client[0], client[1])  # an IPv6 address has two more parts
        self.state = "handshake" if isinstance(sock, ssl.SSLSocket) else "idle"
        self.deadline = now + getattr(patience, self.state)
        self.answered = 0  # how many requests
        self._largest_body = largest_body
        self._patience = patience
        self._received = bytearray()
        self._unsent = bytearray()
        self._last = False  # whether the connection ends with the answer that is being sent
        self._searched = 0  # how many of the received bytes have been searched for the end of a head
        self._length = 0  # of the request, once its head is complete
        self._discarded = 0  # how many bytes

    @property
    def size(self) -> int:
        """Bytes of a request that is not complete yet, and of an answer that the caller has not read yet."""
        return len(self._received) + len(self._unsent)

    @property
    def sending(self) -> bool:
        """Whether it waits for the caller to read more of an answer."""
        return bool(self._unsent)

    def receive(self, now: float) -> bytes | None:
        """A complete request, or None while it has not arrived.

        Raises HTTPException for a request that will not be read, after which `refuse` has to be called, and
        OSError if the connection cannot be used any more."""
        try:
            self._shake_hands(now)
            while not self._whole(now):
                self._take(self.sock.recv(self._wanted()))
        except (BlockingIOError, ssl.SSLWantReadError):
            return None
        request = bytes(self._received[: self._length])
        del self._received[: self._length]
        self._searched = self._length = 0
        return request

    def answer(self, data: bytes, now: float, *, last: bool = False) -> None:
        """Have `flush` send an answer; `last`: the connection ends with it."""
        self._unsent += data
        self._last = last
        self.answered += 1
        self._enter("answer", now)

    def flush(self, now: float) -> bool:
        """Send what can be sent; whether everything has been sent. Raises an OSError, also after the last
        answer."""
        try:
            while self._unsent:
                sent = self.sock.send(self._unsent)
                del self._unsent[:sent]
        except (BlockingIOError, ssl.SSLWantWriteError):
            return False
        if self._last:
            raise HungUp
        if self.state == "answer":
            self._enter("idle", now)
        return True

    def refuse(self, fault: HTTPException, now: float) -> None:
        """Answer with the fault, and discard further data: a caller that still sends while the connection is
        closed would never see the answer."""
        self._unsent += refused(fault)
        if not self.flush(now):
            raise HungUp
        self._received.clear()
        self._enter("discard", now)
        if not isinstance(self.sock, ssl.SSLSocket):
            self.sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.sock.close()

    # ---- inside

    def _enter(self, state: str, now: float) -> None:
        self.state = state
        self.deadline = now + getattr(self._patience, state)

    def _shake_hands(self, now: float) -> None:
        if self.state == "handshake" and isinstance(self.sock, ssl.SSLSocket):
            self.sock.do_handshake()
            self._enter("idle", now)

    def _wanted(self) -> int:
        """How many bytes to read: nothing beyond a request before it is answered."""
        return min(_PIECE, self._length - len(self._received)) if self.state == "body" else _PIECE

    def _take(self, piece: bytes) -> None:
        if not piece:
            raise HungUp
        if self.state != "discard":
            self._received += piece
            return
        self._discarded += len(piece)
        if self._discarded > _MOST_DISCARDED:
            raise HungUp

    def _whole(self, now: float) -> bool:
        if self.state == "idle" and self._received:
            self._enter("head", now)
        if self.state == "head" and (end := self._end_of_head()):
            self._length = end + self._length_of_body(self._received[: end - 2])
            self._enter("body", now)
        return self.state == "body" and len(self._received) >= self._length

    def _end_of_head(self) -> int:
        """Where the body begins, 0 while the head is incomplete. Raises RequestHeaderFieldsTooLarge."""
        found = self._received.find(_END_OF_HEAD, max(0, self._searched - len(_END_OF_HEAD)))
        self._searched = len(self._received)
        if found > LARGEST_HEAD or (found < 0 and self._searched > LARGEST_HEAD):
            raise RequestHeaderFieldsTooLarge(f"The head is larger than {LARGEST_HEAD} bytes")
        return found + len(_END_OF_HEAD) if found >= 0 else 0

    def _length_of_body(self, head: bytearray) -> int:
        fields = [(name.lower(), value) for name, value in _FRAMING.findall(head)]
        lengths = [value.strip() for name, value in fields if name == b"content-length"]
        if len(lengths) < len(fields):
            raise LengthRequired("A Content-Length is required: chunked bodies are not accepted")
        if len(lengths) > 1 or not all(re.fullmatch(rb"[0-9]{1,18}", each) for each in lengths):
            raise BadRequest("Content-Length: allowed is one whole number")
        length = int(lengths[0]) if lengths else 0
        if length > self._largest_body:
            raise RequestEntityTooLarge(f"The body is larger than {self._largest_body} bytes")
        return length


def refused(fault: HTTPException) -> bytes:
    """The answer to a refused request, head and body."""
    body = readable({"error": fault.description or fault.name})
    head = (
        f"HTTP/1.1 {fault.code} {fault.name}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
