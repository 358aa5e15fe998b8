"""Requests to one API server over a few persistent connections, shared by all threads.

Raw bytes in, raw bytes out, and the error tree of errors.py. Nothing is retried and nothing is redirected
here: only the sender knows whether a request may be sent twice. To make that question rare, an idle
connection is reused only for a short time and while the server has sent nothing: if a request crosses with
the server's closing of the connection, it is unknown whether the request took effect.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from urllib.parse import urlencode

from extender import __version__
from extender.kube.endpoint import ApiEndpoint, find
from extender.kube.errors import Ambiguous, Refused, Unreachable, refused
from extender.kube.wire import HttpAnswer, HttpWire

_DIAL_TIMEOUT = 5.0
_OLDEST_IDLE = 60.0  # the API server closes after 90

QueryParams = Mapping[str, str | int]


class Connection:
    """`request` for one answer, `stream` for an answer that is read as it arrives."""

    def __init__(
        self, endpoint: ApiEndpoint, pool: int = 32, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._endpoint = endpoint
        self._pool = pool
        self._clock = clock
        self._idle: list[HttpWire] = []
        self._lock = threading.Lock()
        self._closed = False

    @property
    def endpoint(self) -> ApiEndpoint:
        """The API server."""
        return self._endpoint

    @classmethod
    def load(cls, kubeconfig: str | None = None, context: str | None = None, pool: int = 32) -> "Connection":
        """The cluster named by the kubeconfig, the environment or the pod. Raises NoConfiguration."""
        return cls(find(kubeconfig, context), pool)

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
        request = self._encode(method, path, query, body, content_type)
        with self._send(request, timeout) as stream:
            return stream.read()

    def stream(self, path: str, query: QueryParams | None = None, read_timeout: float = 60) -> "Stream":
        """Open a GET whose answer is read as it arrives: `with connection.stream(…) as lines: …`."""
        return self._send(self._encode("GET", path, query), read_timeout)

    def close(self) -> None:
        """Close all idle connections, now and whenever another becomes idle."""
        with self._lock:
            self._closed, idle, self._idle = True, self._idle, []
        for wire in idle:
            wire.close()

    def keep(self, wire: HttpWire) -> None:
        """Take back a connection that is ready for another request."""
        wire.idle_since = self._clock()
        with self._lock:
            if keep := not self._closed and len(self._idle) < self._pool:
                self._idle.append(wire)
        if not keep:
            wire.close()

    def _send(self, request: bytes, timeout: float) -> "Stream":
        wire = self._reuse() or self._dial(timeout)
        try:
            answer = wire.exchange(request, timeout)
        except OSError as fault:
            wire.close()
            raise Ambiguous(_text(fault)) from fault
        stream = Stream(self, wire, answer)
        if answer.status >= 400:
            raise self._refusal(stream)
        return stream

    def _refusal(self, stream: "Stream") -> Refused:
        if stream.answer.status == 401:
            self._endpoint.expire()
        with stream:
            return refused(stream.read(), stream.answer.status, stream.answer.headers.get("retry-after", ""))

    def _encode(
        self,
        method: str,
        path: str,
        query: QueryParams | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        target = f"{self._endpoint.prefix}{path}" + (f"?{urlencode(query)}" if query else "")
        head = [f"{method} {target} HTTP/1.1", f"Host: {self._endpoint.netloc}", _CONSTANT_HEADERS]
        if authorization := self._endpoint.authorization:
            head.append(f"Authorization: {authorization}")
        if body is not None:
            head.append(f"Content-Type: {content_type}\r\nContent-Length: {len(body)}")
        return "\r\n".join([*head, "\r\n"]).encode("latin-1") + (body or b"")

    def _reuse(self) -> HttpWire | None:
        """The connection used last, so that unneeded ones stay idle and expire."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                wire = self._idle.pop()
            if self._clock() - wire.idle_since < _OLDEST_IDLE and wire.quiet():
                return wire
            wire.close()

    def _dial(self, timeout: float) -> HttpWire:
        try:
            return HttpWire(self._endpoint.dial(min(timeout, _DIAL_TIMEOUT)))
        except OSError as fault:
            raise Unreachable(f"{self._endpoint.netloc}: {_text(fault)}") from fault


class Stream:
    """An answer being read. Leaving it gives the connection back, or closes it if something is unread."""

    def __init__(self, connection: Connection, wire: HttpWire, answer: HttpAnswer) -> None:
        self._connection = connection
        self._wire = wire
        self._has_ended = False
        self.answer = answer

    def __enter__(self) -> "Stream":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._has_ended = True
        if self.answer.reusable:
            self._connection.keep(self._wire)
        else:
            self._wire.close()

    def __iter__(self) -> Iterator[bytes]:
        """The lines of the body, each as soon as it is complete."""
        begun = b""
        for piece in self._pieces():
            *whole, begun = (begun + piece).split(b"\n")
            yield from whole

    def read(self) -> bytes:
        """The whole body."""
        return b"".join(self._pieces())

    def cut(self) -> None:
        """From any thread: the reader gets Ambiguous at once."""
        if not self._has_ended:
            self._wire.cut()

    def _pieces(self) -> Iterator[bytes]:
        try:
            yield from self.answer.pieces()
        except OSError as fault:
            raise Ambiguous(_text(fault)) from fault


_CONSTANT_HEADERS = f"User-Agent: kube-muster/{__version__}\r\nAccept: application/json"


def _text(fault: OSError) -> str:
    return str(fault) or type(fault).__name__
