"""Event stream of one watch, and the errors of the API."""

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import urllib3

Json = dict[str, Any]


class ApiError(Exception):
    """Error answer of the API server, with the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Watch:
    """Watch that ends when the server ends its answer, or when the test calls `close`."""

    def __init__(self, pool: urllib3.HTTPConnectionPool, path: str, headers: dict[str, str]) -> None:
        self._pool = pool
        timeout = urllib3.Timeout(connect=10, read=None)
        self._answer = pool.request("GET", path, headers=headers, timeout=timeout, preload_content=False)

    def __iter__(self) -> Iterator[tuple[str, Json]]:
        """Yield each event as a pair of type and object. Raise ApiError for an ERROR event."""
        with self._opened():
            yield from map(_event, self._lines())

    def pieces(self) -> Generator[bytes, None, None]:
        """Yield the bytes of the answer as they arrive, in the requested media type."""
        with self._opened():
            yield from self._stream()

    def close(self) -> None:
        """Close the stream. Any thread may call this method."""
        with suppress(ValueError, OSError):  # The stream may have ended just now.
            self._answer.shutdown()

    @contextmanager
    def _opened(self) -> Iterator[None]:
        """Raise ApiError if the server refused the watch, and close the connection at the end."""
        try:
            if self._answer.status >= 300:
                raise ApiError(self._answer.status, error_message(self._answer.read()))
            yield
        finally:
            self._answer.close()
            self._pool.close()

    def _stream(self) -> Iterator[bytes]:
        return self._answer.stream(1 << 16)

    def _lines(self) -> Iterator[bytes]:
        """Yield the complete lines of the stream."""
        incomplete_line = b""
        for chunk in self._stream():
            *lines, incomplete_line = (incomplete_line + chunk).split(b"\n")
            yield from lines


def _event(line: bytes) -> tuple[str, Json]:
    """Return type and object of an event. Raise ApiError for an ERROR event."""
    event = json.loads(line)
    if event["type"] == "ERROR":
        raise ApiError(event["object"].get("code", 500), event["object"].get("message", ""))
    return event["type"], event["object"]


def error_message(data: bytes) -> str:
    """Return the message of a Status object, followed by the reasons of its causes.

    If the data are not a Status object, return the first 500 characters.
    """
    try:
        status = json.loads(data)
        causes = (status.get("details") or {}).get("causes") or ()
        return " ".join([str(status.get("message", "")), *(str(cause.get("reason")) for cause in causes)])
    except (ValueError, AttributeError):
        return data.decode(errors="replace")[:500]
