"""A request passed on as it is, and its answer."""

from collections.abc import AsyncIterator

import aiohttp
from aiohttp import web

from extender.view.body import Upload, read_body
from extender.view.headers import for_client
from extender.view.target import ViewTarget
from extender.view.upstream import Unanswered, Upstream, UpstreamGone

_SMALL = 64 * 1024  # bytes


class CutOff(Exception):
    """The API server ended an answer of which the client has the beginning: the client has to see that."""


async def pass_on(upstream: Upstream, request: web.BaseRequest, target: ViewTarget) -> web.StreamResponse:
    """The API server's answer to the client's request. Raises BadBody, UpstreamGone, Unanswered, CutOff."""
    return await send_on(upstream, request, target, await read_body(request))


async def send_on(
    upstream: Upstream, request: web.BaseRequest, target: ViewTarget, body: bytes | Upload
) -> web.StreamResponse:
    """As `pass_on`, with the body of the request, which has been read."""
    try:
        async with upstream.open(target, request.headers, body) as answer:
            return await hand_over(upstream, answer, request, target)
    except (UpstreamGone, Unanswered):
        if isinstance(body, Upload) and body.fault:
            raise body.fault from None
        raise


async def hand_over(
    upstream: Upstream, answer: aiohttp.ClientResponse, request: web.BaseRequest, target: ViewTarget
) -> web.StreamResponse:
    """An answer as it is. Raises UpstreamGone, Unanswered, CutOff."""
    if answer.content_length is not None and answer.content_length <= _SMALL:
        return await _whole(upstream, answer, target)
    return await _streamed(answer, request)


async def _whole(upstream: Upstream, answer: aiohttp.ClientResponse, target: ViewTarget) -> web.Response:
    try:
        body = await answer.read()
    except (aiohttp.ClientError, OSError, TimeoutError) as fault:
        raise upstream.failure(target, fault) from fault
    return web.Response(
        status=answer.status, reason=answer.reason, headers=for_client(answer.headers), body=body
    )


async def _streamed(answer: aiohttp.ClientResponse, request: web.BaseRequest) -> web.StreamResponse:
    """Piece by piece, each as soon as it is there, and not faster than the client reads."""
    response = web.StreamResponse(
        status=answer.status, reason=answer.reason, headers=for_client(answer.headers)
    )
    await response.prepare(request)
    async for piece in pieces(answer):
        await response.write(piece)
    await response.write_eof()
    return response


async def pieces(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The body as it arrives. Raises CutOff if it ends before its end."""
    try:
        async for piece in answer.content.iter_any():
            yield piece
    except (aiohttp.ClientError, TimeoutError) as fault:
        raise CutOff(str(fault)) from fault
