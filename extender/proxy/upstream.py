"""Requests to the API server on behalf of the scheduler, and requests that are passed on unchanged.

A scheduler posts each Event in a separate goroutine, so many requests share a few connections. Each class of
requests has its own connections. Otherwise an API server that is slow with Events, for example because a
webhook hangs, could cost the scheduler its Lease.

Short Events use `short_requests`; all other requests use aiohttp. The body of a request is complete before
the request gets a connection. Large answers are passed on in pieces.
"""

import asyncio
import math
import socket
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from io import BytesIO
from typing import Any, TypeVar

import aiohttp
from aiohttp import hdrs, web
from multidict import CIMultiDictProxy
from yarl import URL

from extender.kube.endpoint import ApiEndpoint, keep_alive
from extender.ports.light_connection import ShortRequest
from extender.proxy.short_requests import ANSWER, DIAL, MAX_IDLE, TURN, Reply, RequestConnections, Unsent
from extender.proxy.target import ApiTarget, RequestClass, headers_for_client, headers_for_upstream
from extender.telemetry import metrics
from extender.telemetry.logs import logger

log = logger(__name__)

_MAX_PIECE_BYTES = 64 * 1024  # most bytes of a body that is sent in one piece
# Number of connections by class. Further requests wait until a connection is free.
_CONNECTION_COUNTS = {
    RequestClass.WATCHING: 256,
    RequestClass.LEADING: 4,
    RequestClass.REPORTING: 4,  # Events that are not short
    RequestClass.SCHEDULING: 24,
}
_SHORT_CONNECTION_COUNT = 24  # number of connections for short Events
_MAX_EVENTS = 128  # most Events in progress: half of the port's connection limit
_HANG_TIME = 1.0  # after so many seconds without an answer to any Event, clients should not repeat Events
_MAX_HEADER_BYTES = 64 * 1024  # most bytes of a header
_REFRESH_PERIOD = 1.0  # seconds between two checks of the credentials
_IDEMPOTENT_METHODS = frozenset({"GET", "HEAD", "PUT", "DELETE"})
_UNSENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError, Unsent)

Answer = TypeVar("Answer", aiohttp.ClientResponse, Reply)


class UpstreamGone(Exception):
    """Error: the API server did not answer, and the client can repeat the request.

    Either the API server has not received the request, or the request is idempotent.
    """


class TooManyEvents(Exception):
    """Error: Events come faster than the API server accepts them.

    `may_repeat` says whether the client should send this Event again.
    """

    def __init__(self, may_repeat: bool) -> None:
        self.may_repeat = may_repeat


class Unanswered(Exception):
    """Error: the API server may have executed the request, but did not answer."""


class Upstream:
    """Sender of requests to the API server, in one event loop."""

    def __init__(self, endpoint: ApiEndpoint) -> None:
        self._endpoint = endpoint
        self._route = _route(endpoint)
        self._is_gone = False  # whether the last attempt to connect failed
        self._sessions = {class_: _session(class_, limit) for class_, limit in _CONNECTION_COUNTS.items()}
        self._connections = RequestConnections(endpoint, _SHORT_CONNECTION_COUNT)
        self._progress_counts = Counter[RequestClass]()
        self._event_answered_at = -math.inf  # time of the last answer to an Event
        self._refresh_task = asyncio.create_task(self._stay_current())

    async def close(self) -> None:
        self._refresh_task.cancel()
        with suppress(asyncio.CancelledError):
            await self._refresh_task
        for session in self._sessions.values():
            await session.close()
        await self._connections.close()

    @asynccontextmanager
    async def open(
        self, target: ApiTarget, headers: CIMultiDictProxy[str], body: bytes = b""
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request with the headers of the client; yield the answer before its body is read.

        aiohttp repeats an idempotent request once if an idle connection was closed meanwhile. Reading the
        body may raise aiohttp.ClientError.

        Raises:
            UpstreamGone: The API server does not answer.
            Unanswered: The request may have taken effect, but has no answer.
            TooManyEvents: No connection is free for an Event.
        """
        request_class = target.request_class

        async def send() -> aiohttp.ClientResponse:
            sent_headers = headers_for_upstream(headers, self._endpoint.current_header)
            if not body:  # with this header, the API server would wait
                sent_headers.popall(hdrs.CONTENT_LENGTH, None)
            return await self._sessions[request_class].request(
                target.method,
                URL(f"{self._endpoint.url}{target.url}", encoded=True),
                headers=sent_headers,
                # A large body is sent in pieces, so that other tasks run in between.
                data=BytesIO(body) if len(body) > _MAX_PIECE_BYTES else (body or None),
                allow_redirects=False,
                **self._route,
            )

        with self._counting(request_class):
            async with await self._send(target, send) as answer:
                if request_class is RequestClass.REPORTING:
                    self._event_answered_at = time.monotonic()
                yield answer

    async def send_event(self, target: ApiTarget, request: ShortRequest) -> bytes:
        """Return the answer to an Event, in bytes for the client; raise the errors of `open`."""

        async def send() -> Reply:
            endpoint, authorization = self._endpoint, self._endpoint.current_header
            head = f"{target.method} {endpoint.prefix}{target.url} HTTP/1.1\r\nHost: {endpoint.netloc}\r\n"
            if authorization:
                head += f"Authorization: {authorization}\r\n"
            return await self._connections.send(b"%b%b\r\n%b" % (head.encode(), request.fields, request.body))

        with self._counting(RequestClass.REPORTING):
            reply = await self._send(target, send)
            self._event_answered_at = time.monotonic()
            return reply.answer

    @contextmanager
    def _counting(self, request_class: RequestClass) -> Iterator[None]:
        """Count a request while it is in progress.

        Raises:
            TooManyEvents: Too many Events are in progress.
        """
        if request_class is RequestClass.REPORTING and self._progress_counts[request_class] == _MAX_EVENTS:
            raise TooManyEvents(may_repeat=time.monotonic() - self._event_answered_at < _HANG_TIME)
        self._progress_counts[request_class] += 1
        try:
            yield
        finally:
            self._progress_counts[request_class] -= 1

    async def _send(self, target: ApiTarget, send: Callable[[], Awaitable[Answer]]) -> Answer:
        """Call `send`, and call it again if the API server refused old credentials."""
        authorization = self._endpoint.current_header
        try:
            answer = await send()
            if answer.status == 401 and await self._renew(authorization):
                if isinstance(answer, aiohttp.ClientResponse):
                    answer.close()
                answer = await send()
        except (aiohttp.ClientError, OSError, TimeoutError, Unsent) as fault:
            raise self.failure(target, fault) from fault
        if self._is_gone:
            log.info("the scheduler proxy reaches the API server again")
        self._is_gone = False
        if answer.status != 401:
            self._endpoint.record_accepted()
        return answer

    def failure(self, target: ApiTarget, fault: Exception) -> Exception:
        """Return the error to raise for a failed request. Its type determines the client's answer."""
        if isinstance(fault, aiohttp.ClientSSLError | ssl.SSLError):
            self._reroute()
        reason = str(fault) or type(fault).__name__
        if isinstance(fault, _UNSENT):
            if not self._is_gone:
                log.warning("the scheduler proxy cannot reach the API server", error=reason)
            self._is_gone = True
            return UpstreamGone(reason)
        return UpstreamGone(reason) if target.method in _IDEMPOTENT_METHODS else Unanswered(reason)

    async def _renew(self, refused_header: str) -> bool:
        """Reload rotated credentials; return whether the token has changed."""
        has_changed = await asyncio.to_thread(self._endpoint.renew, refused_header)
        self._reroute()
        self._connections.drop_idle()
        return has_changed

    def _reroute(self) -> None:
        """Load the certificates and the proxy of the endpoint again, if possible."""
        with suppress(OSError, ssl.SSLError):
            self._route = _route(self._endpoint)

    async def _stay_current(self) -> None:
        """Keep the token current in the background, because reading it may run a program."""
        while True:
            await asyncio.sleep(_REFRESH_PERIOD)
            self._connections.close_expired()
            await asyncio.to_thread(lambda: self._endpoint.authorization)


def _session(request_class: RequestClass, limit: int) -> aiohttp.ClientSession:
    """Return a session of aiohttp with its own connections."""
    read_timeout = None if request_class is RequestClass.WATCHING else ANSWER
    timeout = aiohttp.ClientTimeout(connect=TURN, sock_read=read_timeout, sock_connect=DIAL)
    connector = aiohttp.TCPConnector(limit=limit, keepalive_timeout=MAX_IDLE, socket_factory=_new_socket)
    return aiohttp.ClientSession(
        connector=connector,
        timeout=timeout,
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        max_line_size=_MAX_HEADER_BYTES,
        max_field_size=_MAX_HEADER_BYTES,
    )


def _new_socket(address: Any) -> socket.socket:
    """Return a socket that detects a dead peer, and count it."""
    family, kind, protocol, _, _ = address
    sock = socket.socket(family, kind, protocol)
    keep_alive(sock)
    metrics.view_dials.inc()
    return sock


def _route(endpoint: ApiEndpoint) -> dict[str, Any]:
    """Return the route to the API server (proxy and TLS), as arguments of a request."""
    proxy = endpoint.proxy
    route: dict[str, Any] = {"proxy": proxy.url, "proxy_headers": proxy.headers} if proxy else {}
    if tls := endpoint.tls():
        route |= {"ssl": tls, "server_hostname": endpoint.server_name}
    return route


class CutOff(Exception):
    """Error: the API server ended an answer in the middle.

    The proxy then closes the client's connection, so that the client does not use an incomplete answer.
    """


async def pass_on(
    upstream: Upstream, request: web.BaseRequest, target: ApiTarget, body: bytes
) -> web.StreamResponse:
    """Send the client's request to the API server, and return the answer.

    Raise the errors of `open` and `hand_over`.
    """
    async with upstream.open(target, request.headers, body) as answer:
        return await hand_over(upstream, answer, request, target)


async def hand_over(
    upstream: Upstream, answer: aiohttp.ClientResponse, request: web.BaseRequest, target: ApiTarget
) -> web.StreamResponse:
    """Pass on an answer unchanged.

    Raises:
        UpstreamGone: The API server does not answer.
        Unanswered: The request may have taken effect, but its answer is incomplete.
        CutOff: The answer ended early.
    """
    headers = headers_for_client(answer.headers)
    if answer.content_length is not None and answer.content_length <= _MAX_PIECE_BYTES:
        try:
            body = await answer.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as fault:
            raise upstream.failure(target, fault) from fault
        return web.Response(status=answer.status, reason=answer.reason, headers=headers, body=body)
    # A large answer passes piece by piece, without delay, and not faster than the client reads.
    response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=headers)
    await response.prepare(request)
    async for piece in pieces(answer):
        await response.write(piece)
    await response.write_eof()
    return response


async def pieces(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield the body of an answer as it arrives.

    Raises:
        CutOff: The body is incomplete.
    """
    try:
        async for piece in answer.content.iter_any():
            yield piece
    except (aiohttp.ClientError, TimeoutError) as fault:
        raise CutOff(str(fault)) from fault
