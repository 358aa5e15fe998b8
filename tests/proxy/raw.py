"""API server and clients whose raw bytes a test writes."""

import socket
from contextlib import suppress

from tests.proxy import ANSWER_TIME

PROTOBUF = "application/vnd.kubernetes.protobuf"
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


class RawConnection:
    """End of a connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sock.settimeout(ANSWER_TIME)
        self._read = bytearray()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def read_until(self, end: bytes) -> bytes:
        """Read until `end`, inclusive. Raises EOFError if the other side closes before."""
        position = 0
        while (index := self._read.find(end, position)) < 0:
            position = max(len(self._read) - len(end), 0)
            self._receive()
        return self._take(index + len(end))

    def read(self, size: int) -> bytes:
        while len(self._read) < size:
            self._receive()
        return self._take(size)

    def read_to_end(self) -> bytes:
        """Read until the other side closes, or resets."""
        with suppress(EOFError, ConnectionError):
            while True:
                self._receive()
        return self._take(len(self._read))

    def close(self) -> None:
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()

    def _receive(self) -> None:
        if not (data := self.sock.recv(65536)):
            raise EOFError(bytes(self._read))
        self._read += data

    def _take(self, size: int) -> bytes:
        data = bytes(self._read[:size])
        del self._read[:size]
        return data


class RawServer:
    """Listening server; `accept` returns the next connection of the proxy."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(ANSWER_TIME)
        self._accepted: list[RawConnection] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def accept(self, until: bytes = b"") -> RawConnection:
        """Return the next connection, after its bytes up to `until` have been read."""
        connection = RawConnection(self._listener.accept()[0])
        self._accepted.append(connection)
        connection.read_until(until)
        return connection

    def close(self) -> None:
        for connection in self._accepted:
            connection.close()
        self._listener.close()


def event(path: str, body: bytes = b"{}") -> bytes:
    """Return a POST as the scheduler writes it."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: kube-apiserver.muster\r\nUser-Agent: kube-scheduler/v1.37.2\r\n"
        f"Content-Length: {len(body)}\r\nAccept: {PROTOBUF}, */*\r\nContent-Type: {PROTOBUF}\r\n\r\n"
    )
    return head.encode() + body


def dial(port: int) -> RawConnection:
    return RawConnection(socket.create_connection(("127.0.0.1", port)))


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)
