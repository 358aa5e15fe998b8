"""One persistent HTTP/1.1 connection, with only what requests to an API server need.

Muster writes three times for every pod of a gang, in bursts, while a filter call must be answered within
milliseconds under the same interpreter lock. urllib3 and http.client spend most of a request on parsing
headers as e-mail: in the bench case `wire`, a small write costs http.client three times the processor time
of this module, and urllib3 eight times.

Every failure in here is an OSError; Connection knows what it means for the request.
"""

import select
import socket
from collections.abc import Iterator
from contextlib import suppress

_LONGEST_LINE = 65_536


class NotHttp(ConnectionError):
    """The peer does not speak HTTP/1.1, or stopped in the middle of an answer."""


class HttpWire:
    """A connected socket and the reader of its answers."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._reader = sock.makefile("rb")
        self.idle_since = 0.0

    def exchange(self, request: bytes, timeout: float) -> "HttpAnswer":
        """Send a request and read the head of its answer. Raises if the peer is silent for `timeout`
        seconds."""
        self._sock.settimeout(timeout)
        self._sock.sendall(request)
        return HttpAnswer(self)

    def quiet(self) -> bool:
        """Whether there is nothing to read. Between two requests, that could only be the end of the
        connection."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return not poll.poll(0)

    def line(self) -> bytes:
        line = self._reader.readline(_LONGEST_LINE)
        if not line.endswith(b"\n"):
            raise NotHttp("the connection was cut")
        return line.rstrip()

    def exactly(self, length: int) -> bytes:
        data = self._reader.read(length)
        if len(data) < length:
            raise NotHttp("the connection was cut")
        return data

    def rest(self) -> bytes:
        return self._reader.read()

    def cut(self) -> None:
        """End the connection while another thread reads: its read returns at once. The owner still closes
        it."""
        with suppress(OSError):
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(OSError):
            self._reader.close()
        self._sock.close()


class HttpAnswer:
    """An answer whose head has been read and whose body has not."""

    def __init__(self, wire: HttpWire) -> None:
        self._wire = wire
        self.status = self._read_status()
        self.headers = dict(self._read_headers())
        self.complete = False

    @property
    def reusable(self) -> bool:
        """Whether the body was read to its end and the peer keeps the connection open."""
        return self.complete and self._framed and self.headers.get("connection", "").lower() != "close"

    def pieces(self) -> Iterator[bytes]:
        """The body as it arrives: chunk by chunk, or in one piece."""
        if self._chunked:
            yield from self._chunks()
        else:
            yield self._plain()
        self.complete = True

    @property
    def _chunked(self) -> bool:
        return self.headers.get("transfer-encoding", "").lower() == "chunked"

    @property
    def _framed(self) -> bool:
        return self._chunked or "content-length" in self.headers

    def _read_status(self) -> int:
        version, _, rest = self._wire.line().partition(b" ")
        if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
            raise NotHttp("the answer is not HTTP/1.1")
        return int(rest[:3])

    def _read_headers(self) -> Iterator[tuple[str, str]]:
        while line := self._wire.line():
            name, _, value = line.decode("latin-1").partition(":")
            yield name.lower(), value.strip()

    def _plain(self) -> bytes:
        if not self._framed:
            return self._wire.rest()
        return self._wire.exactly(_number(self.headers["content-length"], base=10))

    def _chunks(self) -> Iterator[bytes]:
        while size := _number(self._wire.line().partition(b";")[0].decode("latin-1"), base=16):
            yield self._wire.exactly(size)
            self._wire.line()
        while self._wire.line():
            pass  # trailers


def _number(text: str, base: int) -> int:
    try:
        return int(text, base)
    except ValueError:
        raise NotHttp(f"{text[:40]!r} is not a length") from None
