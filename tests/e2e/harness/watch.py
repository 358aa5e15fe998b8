"""Stream of one watch, and the errors of the API."""

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import urllib3

Json = dict[str, Any]


class ApiError(Exception):
    """Answer of the API that is no success."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Watch:
    """Watch, which ends with the server's answer or by `close`."""

    def __init__(self, pool: urllib3.HTTPConnectionPool, path: str, headers: dict[str, str]) -> None:
        self._pool = pool
        timeout = urllib3.Timeout(connect=10, read=None)
        self._answer = pool.request("GET", path, headers=headers, timeout=timeout, preload_content=False)

    def __iter__(self) -> Iterator[tuple[str, Json]]:
        """Yield pairs of type and object. Raises ApiError for an ERROR event."""
        with self._opened():
            yield from map(_event, self._lines())

    def pieces(self) -> Generator[bytes, None, None]:
        """Yield the received bytes, in the requested form."""
        with self._opened():
            yield from self._stream()

    def close(self) -> None:
        """Close the stream; may be called in any thread."""
        with suppress(ValueError, OSError):  # the stream has just ended
            self._answer.shutdown()

    @contextmanager
    def _opened(self) -> Iterator[None]:
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
        rest = b""
        for chunk in self._stream():
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines


def _event(line: bytes) -> tuple[str, Json]:
    event = json.loads(line)
    if event["type"] == "ERROR":
        raise ApiError(event["object"].get("code", 500), event["object"].get("message", ""))
    return event["type"], event["object"]


def error_message(data: bytes) -> str:
    """Return the message of a Status, followed by the codes of its causes."""
    try:
        status = json.loads(data)
        causes = (status.get("details") or {}).get("causes") or ()
        return " ".join([str(status.get("message", "")), *(str(cause.get("reason")) for cause in causes)])
    except (ValueError, AttributeError):
        return data.decode(errors="replace")[:500]
