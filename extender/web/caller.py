"""The other end of a call that is held open."""

import socket
import ssl
from collections.abc import Mapping
from typing import Any


class Caller:
    """The caller that waits for an answer, observed through the socket of its request.

    A scheduler that has given up (its httpTimeout passed, its lease was lost, its process ended) has closed
    the connection, and counts the pod as not placed. Nothing may be bound for it any more.
    """

    def __init__(self, connection: socket.socket | None = None) -> None:
        self._connection = connection

    @classmethod
    def of(cls, environ: Mapping[str, Any]) -> "Caller":
        """The caller of a request that a port serves; Flask's test client has no socket."""
        return cls(environ.get("gunicorn.socket"))

    def fileno(self) -> int:
        """The descriptor to poll for a hang-up, or -1."""
        return -1 if self._connection is None else self._connection.fileno()

    def gone(self) -> bool:
        """Whether the caller hung up. Does not block, and consumes nothing that the caller may have sent.

        Over TLS the end is announced by a message, and a caller sends nothing else before the answer."""
        if self._connection is None:
            return False
        try:
            seen = socket.socket.recv(self._connection, 1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            return not seen or isinstance(self._connection, ssl.SSLSocket)
        except BlockingIOError:
            return False
        except OSError:
            return True
