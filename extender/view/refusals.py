"""Answers of the view's own, as the API server writes its refusals: Status objects."""

from http import HTTPStatus

import msgspec
from aiohttp import hdrs, web

_AGAIN = {hdrs.RETRY_AFTER: "1"}  # seconds

_REASONS = {
    HTTPStatus.BAD_REQUEST: "BadRequest",
    HTTPStatus.FORBIDDEN: "Forbidden",
    HTTPStatus.NOT_FOUND: "NotFound",
    HTTPStatus.REQUEST_TIMEOUT: "Timeout",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "RequestEntityTooLarge",
    HTTPStatus.TOO_MANY_REQUESTS: "TooManyRequests",
    HTTPStatus.INTERNAL_SERVER_ERROR: "InternalError",
}


def refusal(code: HTTPStatus, message: str) -> web.Response:
    """An answer that refuses a request."""
    status: dict[str, object] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": _REASONS.get(code, ""),
        "code": code.value,
    }
    headers = {hdrs.CONTENT_TYPE: "application/json", hdrs.SERVER: "muster"}
    if code is HTTPStatus.TOO_MANY_REQUESTS:
        headers |= _AGAIN
    return web.Response(status=code, headers=headers, body=msgspec.json.encode(status))


def gone(why: str) -> web.Response:
    """The API server cannot be asked now.

    client-go repeats the request, and its reflector keeps its version: for any other answer but a refused
    connection it would read everything again (facts of client-go's reflector.go).
    """
    return refusal(HTTPStatus.TOO_MANY_REQUESTS, f"the API server cannot be reached: {why}")
