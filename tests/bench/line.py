"""One kept-alive HTTP connection, cheap enough that the client does not become what is measured."""

import http.client
import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit

from tests.e2e.harness.client import Access
from tests.e2e.harness.watch import ApiError, error_message

JSON = "application/json"
MERGE = "application/merge-patch+json"


class Line:
    """`Line(access)` speaks to the API server as somebody, `Line.plain(address)` to Muster."""

    def __init__(self, connection: http.client.HTTPConnection, headers: dict[str, str]) -> None:
        self.connection = connection
        self._headers = {"Content-Type": JSON, "Accept": JSON, **headers}

    @classmethod
    def to(cls, access: Access, timeout: float = 120, content: str = JSON) -> "Line":
        """Return a line to a server. `content`: the type of the bodies that are sent."""
        place = urlsplit(access.server)
        trust = ssl.create_default_context(cafile=str(access.authority))
        connection = http.client.HTTPSConnection(
            str(place.hostname), place.port, timeout=timeout, context=trust
        )
        return cls(connection, {"Authorization": f"Bearer {access.token}", "Content-Type": content})

    @classmethod
    def plain(cls, address: str) -> "Line":
        return cls(http.client.HTTPConnection(address, timeout=60), {})

    def send(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        self.connection.request(method, path, body, self._headers)
        with self.connection.getresponse() as answer:
            return answer.status, answer.read()

    def want(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Return the body of a success; raise ApiError for any other answer."""
        status, answer = self.send(method, path, body)
        if status >= 300:
            raise ApiError(status, error_message(answer))
        return answer

    def stream(self, path: str, accept: str = JSON) -> Iterator[bytes]:
        """Yield the lines of a streamed answer; closing the generator ends it."""
        self.connection.request("GET", path, headers={**self._headers, "Accept": accept})
        with self.connection.getresponse() as answer:
            if answer.status >= 300:
                raise ApiError(answer.status, error_message(answer.read()))
            while line := answer.readline():
                yield line

    def close(self) -> None:
        self.connection.close()
