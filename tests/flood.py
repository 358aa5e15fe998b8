"""Clients that open connections and send nothing, or part of a request: for tests and measurements."""

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

PARTIAL_HEAD = b"GET /livez HTTP/1.1\r\nHost: local"
PARTIAL_BODY = b"POST /v1/filter HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"
PARTIAL_HANDSHAKE = b"\x16\x03\x01\x02\x00\x01"
PARTIAL_REQUESTS = {
    "verbs": PARTIAL_BODY,
    "health": PARTIAL_HEAD,
    "debug": PARTIAL_HEAD,
    "view": PARTIAL_HEAD,
    "webhooks": PARTIAL_HANDSHAKE,
}
PATIENCE = 60  # seconds


@contextmanager
def many_files() -> Iterator[None]:
    """Allow as many open files as this process may have."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@contextmanager
def flood(port: int, data: bytes, count: int) -> Iterator[list[socket.socket]]:
    """Open connections that only send these bytes; this side does not close them."""
    with ExitStack() as stack:
        callers = []
        for _ in range(count):
            caller = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
            with suppress(ConnectionError):  # closed already
                caller.sendall(data)
            callers.append(caller)
        yield callers
