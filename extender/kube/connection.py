"""Requests to one API server over a few persistent HTTP/1.1 connections, shared by all threads.

Requests and answers are raw bytes; errors are those of errors.py. Redirects are not followed, and only
requests with outdated credentials are repeated: only the sender knows whether a request may be sent twice. To
make that question rare, an idle connection is reused only for a short time and while the server has sent
nothing.

Muster writes three times for every pod of a gang, while a filter call must be answered within milliseconds
under the same interpreter lock. In the bench case `wire`, a small write costs http.client three times the
processor time of this module, and urllib3 eight times: they parse headers as e-mail.
"""

import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import NamedTuple
from urllib.parse import urlencode

from extender import __version__
from extender.kube.endpoint import ApiEndpoint, find_endpoint
from extender.kube.errors import Ambiguous, Refused, ServerFault, Unreachable, refused

_DIAL_TIMEOUT = 5.0
_OLDEST_IDLE = 60.0  # the API server closes after 90
_LONGEST_HEAD = 65_536  # bytes
_AT_ONCE = 65_536  # bytes per read; with TLS, a read returns one record
JSON = "application/json"
_USER_AGENT = f"User-Agent: kube-muster/{__version__}"

_UNSTORED = 60.0  # seconds without a stored write after which /readyz fails
_RECENT = 120.0  # seconds for which a failure counts; failed writes are retried within 30
_LONGEST_FAULT = 300  # characters
_REVIEWS = ("/apis/authentication.k8s.io/", "/apis/authorization.k8s.io/")

QueryParams = Mapping[str, str | int]


class NotHttp(ConnectionError):
    """Error: the peer does not speak HTTP/1.1, or stopped in the middle of an answer."""


class HttpWire:
    """Connected socket, with the received bytes of its answers. Every failure in here is an OSError."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._received = b""  # the last received piece, which is read up to `_offset`
        self._offset = 0
        self.idle_since = 0.0

    def send(self, request: bytes, timeout: float) -> None:
        """Send a request. Reads raise from now on if the peer is silent for `timeout` seconds."""
        self._sock.settimeout(timeout)
        self._sock.sendall(request)

    def is_idle(self) -> bool:
        """Return whether no byte can be read: between requests, the connection is then alive."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return self._offset == len(self._received) and not poll.poll(0)

    def read_until(self, end: bytes) -> bytes:
        """Return the bytes before `end`, and read `end`, too."""
        while (position := self._received.find(end, self._offset)) < 0:
            if len(self._received) - self._offset > _LONGEST_HEAD:
                raise NotHttp("a head that does not end")
            self._received, self._offset = self._received[self._offset :] + self._receive(), 0
        start, self._offset = self._offset, position + len(end)
        return self._received[start:position]

    def read_exactly(self, length: int) -> bytes:
        start, self._offset = self._offset, min(self._offset + length, len(self._received))
        pieces = [self._received[start : self._offset]]
        missing = length - len(pieces[0])
        while missing:
            self._received = self._receive()
            self._offset = min(missing, len(self._received))
            pieces.append(self._received[: self._offset])
            missing -= self._offset
        return b"".join(pieces)

    def read_rest(self) -> bytes:
        pieces = [self._received[self._offset :]]
        while piece := self._sock.recv(_AT_ONCE):
            pieces.append(piece)
        return b"".join(pieces)

    def _receive(self) -> bytes:
        if piece := self._sock.recv(_AT_ONCE):
            return piece
        raise NotHttp("the connection was cut")

    def abort(self) -> None:
        """End the connection while another thread reads from it. The read returns; that thread closes it."""
        with suppress(OSError):
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def close(self) -> None:
        self._sock.close()


class _Unstored(NamedTuple):
    """Failures in a row of the server to store a write."""

    first: float
    last: float
    fault: str


class Connection:
    """Connection: `request` for one answer, `stream` for an answer that is read as it arrives."""

    def __init__(
        self, endpoint: ApiEndpoint, pool: int = 32, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.endpoint = endpoint
        self._pool = pool
        self._clock = clock
        self._idle: list[HttpWire] = []
        self._lock = threading.Lock()
        self._closed = False
        self._dated: tuple[str, float] | None = None  # the Date header of the last answer, and when it came
        self._unstored: _Unstored | None = None  # failed writes since the last stored one

    def server_time(self) -> float:
        """Return the API server's clock, in seconds since 1970; this machine's before the first answer."""
        if dated := self._dated:
            date, received_at = dated
            with suppress(ValueError, TypeError):
                return parsedate_to_datetime(date).timestamp() + self._clock() - received_at
        return time.time()

    @classmethod
    def load(cls, kubeconfig: str | None = None, context: str | None = None, pool: int = 32) -> "Connection":
        """Return a connection to the cluster named by the kubeconfig, the environment or the pod.

        Raises:
            NoConfiguration: No cluster is named, or its description is invalid.
        """
        return cls(find_endpoint(kubeconfig, context), pool)

    def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        query: QueryParams | None = None,
        timeout: float = 10,
    ) -> bytes:
        """Send one request and return the body of its answer. Raises an ApiError."""
        with self._send(method, path, query, timeout, body, content_type) as stream:
            return stream.read()

    def stream(
        self, path: str, query: QueryParams | None = None, read_timeout: float = 60, accept: str = JSON
    ) -> "Stream":
        """Open a GET whose answer is read as it arrives: `with connection.stream(…) as lines: …`."""
        return self._send("GET", path, query, read_timeout, accept=accept)

    def write_fault(self) -> str | None:
        """Return why no write has been stored for a while, for /readyz; None without recent failures."""
        failures, now = self._unstored, self._clock()
        if failures is None or now - failures.last > _RECENT or now - failures.first < _UNSTORED:
            return None
        return f"the API server has stored nothing for {now - failures.first:.0f} s: {failures.fault}"

    def _record_write(self, path: str, fault: Refused | None) -> None:
        """Record whether the API server stored a write.

        Reviews are not stored, and Events often elsewhere. The failure of a webhook, which may be
        Muster's own, is no failure of the storage.
        """
        if path.startswith(_REVIEWS) or path.endswith("/events") or "/events/" in path:
            return
        if fault is None:
            self._unstored = None
        elif isinstance(fault, ServerFault) and "webhook" not in fault.message:
            before, now = self._unstored, self._clock()
            first = before.first if before and now - before.last <= _RECENT else now
            self._unstored = _Unstored(first, now, str(fault)[:_LONGEST_FAULT])

    def close(self) -> None:
        """Close all idle connections, now and whenever another becomes idle."""
        self._closed = True
        self._drop_idle()

    def return_wire(self, wire: HttpWire) -> None:
        """Return a connection to the pool: it is ready for another request."""
        wire.idle_since = self._clock()
        with self._lock:
            is_pooled = not self._closed and len(self._idle) < self._pool
            if is_pooled:
                self._idle.append(wire)
        if not is_pooled:
            wire.close()

    def _drop_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for wire in idle:
            wire.close()

    def _send(
        self,
        method: str,
        path: str,
        query: QueryParams | None,
        timeout: float,
        body: bytes | None = None,
        content_type: str = "",
        accept: str = JSON,
    ) -> "Stream":
        target = f"{self.endpoint.prefix}{path}" + (f"?{urlencode(query)}" if query else "")
        head = [f"{method} {target} HTTP/1.1", f"Host: {self.endpoint.netloc}", _USER_AGENT]
        head.append(f"Accept: {accept}")
        if body is not None:
            head.append(f"Content-Type: {content_type}\r\nContent-Length: {len(body)}")
        authorization = self.endpoint.authorization
        stream = self._exchange(head, authorization, body, timeout)
        if stream.status == 401:
            fault = _refusal(stream)
            self._drop_idle()  # idle connections may use an old client certificate
            if not self.endpoint.renew(authorization):
                raise fault
            stream = self._exchange(head, self.endpoint.current_header, body, timeout)
        if stream.status != 401:
            self.endpoint.record_accepted()
        refusal = None if stream.status < 400 else _refusal(stream)
        if method != "GET":
            self._record_write(path, refusal)
        if refusal is None:
            return stream
        raise refusal

    def _exchange(self, head: list[str], authorization: str, body: bytes | None, timeout: float) -> "Stream":
        """Send a request with these headers; return its answer, whatever the status."""
        credentials = [f"Authorization: {authorization}"] if authorization else []
        request = "\r\n".join([*head, *credentials, "\r\n"]).encode("latin-1") + (body or b"")
        wire = self._reuse()
        try:
            wire = wire or HttpWire(self.endpoint.dial(min(timeout, _DIAL_TIMEOUT)))
        except OSError as fault:
            raise Unreachable(f"{self.endpoint.netloc}: {_text(fault)}") from fault
        try:
            wire.send(request, timeout)
            stream = Stream(self, wire)
            self._dated = stream.headers.get("date", ""), self._clock()
            return stream
        except OSError as fault:
            wire.close()
            raise Ambiguous(_text(fault)) from fault

    def _reuse(self) -> HttpWire | None:
        """Return the idle connection that was used last, so that unneeded ones expire; None without one."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                wire = self._idle.pop()
            if self._clock() - wire.idle_since < _OLDEST_IDLE and wire.is_idle():
                return wire
            wire.close()


class Stream:
    """Answer being read. On exit the connection is reused, or closed if something is unread."""

    def __init__(self, connection: Connection, wire: HttpWire) -> None:
        self._connection = connection
        self._wire = wire
        self._has_ended = False
        self._is_complete = False  # whether the body was read to its end
        first, *lines = wire.read_until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdecimal():
            raise NotHttp("the answer is not HTTP/1.1")
        self.status = int(rest[:3])
        fields = (line.partition(":") for line in lines)
        self.headers = {name.lower(): value.strip() for name, _, value in fields}
        self._chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        self._framed = self._chunked or "content-length" in self.headers

    def __enter__(self) -> "Stream":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._has_ended = True
        stays_open = self._framed and self.headers.get("connection", "").lower() != "close"
        if self._is_complete and stays_open:
            self._connection.return_wire(self._wire)
        else:
            self._wire.close()

    def __iter__(self) -> Iterator[bytes]:
        """Yield the lines of the body, each as soon as it is complete."""
        rest = b""
        for piece in self.pieces():
            *lines, rest = (rest + piece).split(b"\n")
            yield from lines

    def read(self) -> bytes:
        return b"".join(self.pieces())

    def abort(self) -> None:
        """Abort the stream from any thread: the reader gets Ambiguous at once."""
        if not self._has_ended:
            self._wire.abort()

    def pieces(self) -> Iterator[bytes]:
        """Yield the body as it arrives: chunk by chunk, or in one piece."""
        wire = self._wire
        try:
            if self._chunked:
                while size := _number(wire.read_until(b"\r\n").partition(b";")[0].decode("latin-1"), base=16):
                    yield wire.read_exactly(size)
                    wire.read_until(b"\r\n")
                while wire.read_until(b"\r\n"):
                    pass  # trailers
            elif self._framed:
                yield wire.read_exactly(_number(self.headers["content-length"], base=10))
            else:
                yield wire.read_rest()
            self._is_complete = True
        except OSError as fault:
            raise Ambiguous(_text(fault)) from fault


def _refusal(stream: Stream) -> Refused:
    with stream:
        return refused(stream.read(), stream.status, stream.headers.get("retry-after", ""))


def _number(text: str, base: int) -> int:
    try:
        return int(text, base)
    except ValueError:
        raise NotHttp(f"{text[:40]!r} is not a length") from None


def _text(fault: OSError) -> str:
    return str(fault) or type(fault).__name__
