"""The body of a request: small ones are read whole, larger ones pass through in pieces."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from http import HTTPStatus

from aiohttp import web

LARGEST = 16 * 1024 * 1024  # bytes
_SMALL = 64 * 1024  # bytes
_PATIENCE = 30.0  # seconds for the next piece


class BadBody(Exception):
    """The client's fault, as a status and a message."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class Upload:
    """The pieces of a large body, for one sending only: what was sent is gone."""

    def __init__(self, request: web.BaseRequest) -> None:
        self._request = request
        self._begun = False
        self.fault: BadBody | None = None  # why it ended before its end

    def __aiter__(self) -> AsyncIterator[bytes]:
        if self._begun:
            raise OSError("the body has been sent already")
        self._begun = True
        return self._pieces()

    async def _pieces(self) -> AsyncIterator[bytes]:
        size = 0
        try:
            while piece := await _in_time(self._request.content.readany()):
                if (size := size + len(piece)) > LARGEST:
                    raise _too_large()
                yield piece
        except BadBody as fault:
            self.fault = fault
            raise


async def read_body(request: web.BaseRequest) -> bytes | Upload:
    """Raises BadBody."""
    if not request.body_exists:
        return b""
    length = request.content_length
    if length is not None and length > LARGEST:
        raise _too_large()
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # the answer has not begun
    if length is None or length > _SMALL:
        return Upload(request)
    if request.content.is_eof():
        return await request.read()
    return await _in_time(request.read())


async def _in_time(reading: Awaitable[bytes]) -> bytes:
    try:
        async with asyncio.timeout(_PATIENCE):
            return await reading
    except TimeoutError:
        raise BadBody(HTTPStatus.REQUEST_TIMEOUT, "the body did not arrive in time") from None
    except web.RequestPayloadError as fault:
        raise BadBody(HTTPStatus.BAD_REQUEST, f"malformed body: {fault}") from fault


def _too_large() -> BadBody:
    return BadBody(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body may have {LARGEST} bytes")
