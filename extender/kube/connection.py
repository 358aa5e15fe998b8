"""Requests to an API server over a few persistent HTTP/1.1 connections, which all threads share.

Requests and answers are raw bytes; errors are the types in errors.py. Redirects are not followed. Only
requests with outdated credentials are repeated, because only the sender knows whether other requests may be
sent twice. The server may close an idle connection at any time. An idle connection is therefore reused only
for a short time, and only if the server has sent nothing.

Muster writes three times for every pod of a gang. Meanwhile, a filter call has to be answered within
milliseconds under the same interpreter lock. In the bench case `wire`, a small write with http.client costs
three times the processor time of this module, and with urllib3 eight times, because both parse headers as
e-mail.
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
from extender.kube.errors import Ambiguous, Refused, ServerFault, Unreachable, parse_refusal

_DIAL_TIMEOUT = 5.0
_MAX_IDLE_SECONDS = 60.0  # seconds; the API server closes idle connections after 90
_MAX_HEAD_BYTES = 65_536  # bytes
_READ_SIZE = 65_536  # most bytes of a read; with TLS, a read returns one record
JSON = "application/json"
_USER_AGENT = f"User-Agent: kube-muster/{__version__}"

_MAX_UNSTORED = 60.0  # seconds without a stored write after which /readyz fails
_FAULT_SECONDS = 120.0  # seconds for which a failure counts; failed writes are retried within 30 seconds
_MAX_FAULT_LENGTH = 300  # most characters of a fault
_REVIEW_PREFIXES = ("/apis/authentication.k8s.io/", "/apis/authorization.k8s.io/")

QueryParams = Mapping[str, str | int]


class NotHttp(ConnectionError):
    """Error: the peer does not speak HTTP/1.1, or stopped in the middle of an answer."""


class HttpWire:
    """Connected socket with the bytes that it has received. Every failure is an OSError."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._received = b""  # last received bytes, which are read up to `_offset`
        self._offset = 0
        self.idle_since = 0.0

    def send(self, request: bytes, timeout: float) -> None:
        """Send a request. From now on, a read raises if the peer is silent for `timeout` seconds."""
        self._sock.settimeout(timeout)
        self._sock.sendall(request)

    def is_idle(self) -> bool:
        """Return whether no byte can be read.

        Between two requests, this means that the connection is alive.
        """
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return self._offset == len(self._received) and not poll.poll(0)

    def read_until(self, end: bytes) -> bytes:
        """Return the bytes before `end`, and skip `end`."""
        while (position := self._received.find(end, self._offset)) < 0:
            if len(self._received) - self._offset > _MAX_HEAD_BYTES:
                raise NotHttp("a head that does not end")
            self._received, self._offset = self._received[self._offset :] + self._receive(), 0
        start, self._offset = self._offset, position + len(end)
        return self._received[start:position]

    def read_exactly(self, length: int) -> bytes:
        """Return this number of bytes."""
        start, self._offset = self._offset, min(self._offset + length, len(self._received))
        pieces = [self._received[start : self._offset]]
        missing_count = length - len(pieces[0])
        while missing_count:
            self._received = self._receive()
            self._offset = min(missing_count, len(self._received))
            pieces.append(self._received[: self._offset])
            missing_count -= self._offset
        return b"".join(pieces)

    def read_rest(self) -> bytes:
        """Return all bytes until the peer closes the connection."""
        pieces = [self._received[self._offset :]]
        while piece := self._sock.recv(_READ_SIZE):
            pieces.append(piece)
        return b"".join(pieces)

    def _receive(self) -> bytes:
        if piece := self._sock.recv(_READ_SIZE):
            return piece
        raise NotHttp("the connection was cut")

    def abort(self) -> None:
        """End the connection while another thread reads from it.

        The read returns, and the other thread closes the socket.
        """
        with suppress(OSError):
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def close(self) -> None:
        self._sock.close()


class _StoreFailures(NamedTuple):
    """Failures of the API server to store writes, since the last stored write."""

    first_at: float
    last_at: float
    fault: str


class Connection:
    """Connections to one API server.

    `request` returns a complete answer; `stream` returns an answer that is read as it arrives.
    """

    def __init__(
        self, endpoint: ApiEndpoint, pool_size: int = 32, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.endpoint = endpoint
        self._pool_size = pool_size
        self._clock = clock
        self._idle_wires: list[HttpWire] = []
        self._lock = threading.Lock()
        self._is_closed = False
        self._server_date: tuple[str, float] | None = None  # last Date header, and the time when it came
        self._store_failures: _StoreFailures | None = None  # failures since the last stored write

    def server_time(self) -> float:
        """Return the time of the API server, in seconds since 1970.

        Before the first answer, return the time of this machine.
        """
        if date_and_time := self._server_date:
            date, received_at = date_and_time
            with suppress(ValueError, TypeError):
                return parsedate_to_datetime(date).timestamp() + self._clock() - received_at
        return time.time()

    @classmethod
    def load(cls, kubeconfig: str | None = None, context: str | None = None, pool: int = 32) -> "Connection":
        """Return a connection to the cluster that the kubeconfig, the environment or the pod names.

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
        """Send a request and return the body of the answer.

        Raises:
            ApiError: The request failed.
        """
        with self._send(method, path, query, timeout, body, content_type) as stream:
            return stream.read()

    def stream(
        self, path: str, query: QueryParams | None = None, read_timeout: float = 60, accept: str = JSON
    ) -> "Stream":
        """Send a GET whose answer is read as it arrives: `with connection.stream(…) as lines: …`."""
        return self._send("GET", path, query, read_timeout, accept=accept)

    def write_fault(self) -> str | None:
        """Return why no write has been stored for a while, for /readyz; None without recent failures."""
        failures, now = self._store_failures, self._clock()
        if failures is None or now - failures.last_at > _FAULT_SECONDS:
            return None
        age, fault = now - failures.first_at, failures.fault
        return f"the API server has stored nothing for {age:.0f} s: {fault}" if age >= _MAX_UNSTORED else None

    def _record_write(self, path: str, fault: Refused | None) -> None:
        """Record whether the API server has stored a write.

        Reviews are not stored, and Events are often stored elsewhere. The failure of a webhook does not count
        as a failure of the storage, since the webhook may be Muster's own.
        """
        if path.startswith(_REVIEW_PREFIXES) or path.endswith("/events") or "/events/" in path:
            return
        if fault is None:
            self._store_failures = None
        elif isinstance(fault, ServerFault) and "webhook" not in fault.message:
            failures, now = self._store_failures, self._clock()
            first_at = failures.first_at if failures and now - failures.last_at <= _FAULT_SECONDS else now
            self._store_failures = _StoreFailures(first_at, now, str(fault)[:_MAX_FAULT_LENGTH])

    def close(self) -> None:
        """Close all idle connections, and all connections that become idle later."""
        self._is_closed = True
        self._drop_idle()

    def return_wire(self, wire: HttpWire) -> None:
        """Return a connection that is ready for another request to the pool."""
        wire.idle_since = self._clock()
        with self._lock:
            has_space = not self._is_closed and len(self._idle_wires) < self._pool_size
            if has_space:
                self._idle_wires.append(wire)
        if not has_space:
            wire.close()

    def _drop_idle(self) -> None:
        with self._lock:
            wires, self._idle_wires = self._idle_wires, []
        for wire in wires:
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
        """Send a request, and send it again with new credentials if the old credentials are refused.

        Raises:
            ApiError: The request failed.
        """
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
        """Send a request with these headers; return the answer, whatever its status.

        Raises:
            Unreachable: The request was not sent.
            Ambiguous: The request has no complete answer.
        """
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
            self._server_date = stream.headers.get("date", ""), self._clock()
            return stream
        except OSError as fault:
            wire.close()
            raise Ambiguous(_text(fault)) from fault

    def _reuse(self) -> HttpWire | None:
        """Return the idle connection that was used last; None if no connection is idle.

        The others stay unused, so that they expire if they are not needed.
        """
        while True:
            with self._lock:
                if not self._idle_wires:
                    return None
                wire = self._idle_wires.pop()
            if self._clock() - wire.idle_since < _MAX_IDLE_SECONDS and wire.is_idle():
                return wire
            wire.close()


class Stream:
    """Answer that is read as it arrives.

    On exit, the connection is reused; if a part of the answer is unread, the connection is closed.
    """

    def __init__(self, connection: Connection, wire: HttpWire) -> None:
        self._connection = connection
        self._wire = wire
        self._has_ended = False
        self._is_complete = False  # whether the body was read to its end
        status_line, *lines = wire.read_until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        version, _, status_text = status_line.partition(" ")
        if not version.startswith("HTTP/1.") or not status_text[:3].isdecimal():
            raise NotHttp("the answer is not HTTP/1.1")
        self.status = int(status_text[:3])
        fields = (line.partition(":") for line in lines)
        self.headers = {name.lower(): value.strip() for name, _, value in fields}
        self._is_chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        self._has_length = self._is_chunked or "content-length" in self.headers

    def __enter__(self) -> "Stream":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._has_ended = True
        stays_open = self._has_length and self.headers.get("connection", "").lower() != "close"
        if self._is_complete and stays_open:
            self._connection.return_wire(self._wire)
        else:
            self._wire.close()

    def __iter__(self) -> Iterator[bytes]:
        """Yield the lines of the body, each line as soon as it is complete."""
        incomplete = b""
        for piece in self.pieces():
            *lines, incomplete = (incomplete + piece).split(b"\n")
            yield from lines

    def read(self) -> bytes:
        return b"".join(self.pieces())

    def abort(self) -> None:
        """Abort the stream from any thread. The reader gets the error Ambiguous at once."""
        if not self._has_ended:
            self._wire.abort()

    def pieces(self) -> Iterator[bytes]:
        """Yield the body as it arrives: chunk by chunk, or in one piece if its length is known."""
        wire = self._wire
        try:
            if self._is_chunked:
                while size := _number(wire.read_until(b"\r\n").partition(b";")[0].decode("latin-1"), base=16):
                    yield wire.read_exactly(size)
                    wire.read_until(b"\r\n")
                while wire.read_until(b"\r\n"):
                    pass  # trailers
            elif self._has_length:
                yield wire.read_exactly(_number(self.headers["content-length"], base=10))
            else:
                yield wire.read_rest()
            self._is_complete = True
        except OSError as fault:
            raise Ambiguous(_text(fault)) from fault


def _refusal(stream: Stream) -> Refused:
    """Return the error that a refusing answer describes."""
    with stream:
        return parse_refusal(stream.read(), stream.status, stream.headers.get("retry-after", ""))


def _number(text: str, base: int) -> int:
    """Return the length that a text names.

    Raises:
        NotHttp: The text is not a number.
    """
    try:
        return int(text, base)
    except ValueError:
        raise NotHttp(f"{text[:40]!r} is not a length") from None


def _text(fault: OSError) -> str:
    return str(fault) or type(fault).__name__
