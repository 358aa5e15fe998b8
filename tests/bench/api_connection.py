"""Kept-alive HTTP connection with so little overhead that the client does not distort measurements."""

import http.client
import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit

from tests.e2e.harness.client import Access
from tests.e2e.harness.watch import ApiError, error_message

JSON = "application/json"
MERGE = "application/merge-patch+json"


class ApiConnection:
    """Kept-alive connection.

    `ApiConnection.to(access)` connects to the API server, and `ApiConnection.plain(address)` to Muster.
    """

    def __init__(self, connection: http.client.HTTPConnection, headers: dict[str, str]) -> None:
        self.connection = connection
        self._headers = {"Content-Type": JSON, "Accept": JSON, **headers}

    @classmethod
    def to(cls, access: Access, timeout: float = 120, content: str = JSON) -> "ApiConnection":
        """Return a connection to the API server. `content` is the content type of the requests."""
        url = urlsplit(access.server)
        trust = ssl.create_default_context(cafile=str(access.authority))
        connection = http.client.HTTPSConnection(str(url.hostname), url.port, timeout=timeout, context=trust)
        return cls(connection, {"Authorization": f"Bearer {access.token}", "Content-Type": content})

    @classmethod
    def plain(cls, address: str) -> "ApiConnection":
        """Return a connection over plain HTTP, without a token."""
        return cls(http.client.HTTPConnection(address, timeout=60), {})

    def send(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Send a request, and return the status and the body of the answer."""
        self.connection.request(method, path, body, self._headers)
        with self.connection.getresponse() as answer:
            return answer.status, answer.read()

    def expect_success(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Return the body of a successful answer. Raise ApiError for another answer."""
        status, answer = self.send(method, path, body)
        if status >= 300:
            raise ApiError(status, error_message(answer))
        return answer

    def stream(self, path: str, accept: str = JSON) -> Iterator[bytes]:
        """Yield the lines of a streamed answer. Closing the generator ends the stream."""
        self.connection.request("GET", path, headers={**self._headers, "Accept": accept})
        with self.connection.getresponse() as answer:
            if answer.status >= 300:
                raise ApiError(answer.status, error_message(answer.read()))
            while line := answer.readline():
                yield line

    def close(self) -> None:
        self.connection.close()
