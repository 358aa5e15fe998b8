"""Requests to the API server on behalf of the scheduler, by aiohttp.

A few connections are shared by all requests, however many arrive at once: a scheduler posts each Event in a
goroutine of its own. Watches have connections of their own, so that they cannot fill the pool.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
from aiohttp import hdrs
from multidict import CIMultiDictProxy
from yarl import URL

from extender.kube.endpoint import ApiEndpoint, keep_alive
from extender.telemetry import metrics
from extender.telemetry.logs import logger
from extender.view.headers import for_upstream
from extender.view.target import ViewTarget

POOL = 32  # connections for requests; further requests wait for one
STREAMS = 256  # connections for watches
_LONGEST_HEADER = 64 * 1024  # bytes
_OLDEST_IDLE = 60.0  # seconds; the API server closes after 90
_REFRESH = 5.0  # seconds between two looks at the credentials
_DIAL = 5.0  # seconds
_TURN = 30.0  # seconds to wait for a connection of the pool
_ANSWER = 90.0  # seconds of silence; the API server gives up after 60
_IDEMPOTENT = frozenset({"GET", "HEAD", "PUT", "DELETE"})

log = logger(__name__)
Body = bytes | AsyncIterable[bytes]


class UpstreamGone(Exception):
    """The API server did not get the request, or may get it again: the client should repeat it."""


class Unanswered(Exception):
    """The API server may have done what was asked, and did not say so."""


class Upstream:
    """Made and used in one event loop."""

    def __init__(self, endpoint: ApiEndpoint, pool: int = POOL, streams: int = STREAMS) -> None:
        self._endpoint = endpoint
        self._route = _route(endpoint)
        self._gone = False  # whether the last dial failed
        self._authorization = endpoint.authorization
        self._requests = _session(pool, aiohttp.ClientTimeout(None, _TURN, _ANSWER, _DIAL))
        self._streams = _session(streams, aiohttp.ClientTimeout(None, _TURN, None, _DIAL))
        self._refreshing = asyncio.create_task(self._stay_current())

    async def close(self) -> None:
        self._refreshing.cancel()
        with suppress(asyncio.CancelledError):
            await self._refreshing
        await self._requests.close()
        await self._streams.close()

    @asynccontextmanager
    async def open(
        self, target: ViewTarget, headers: CIMultiDictProxy[str], body: Body = b""
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer to a request with the headers of the client, its body unread.

        aiohttp repeats an idempotent request once if it met an idle connection that had died. Raises
        UpstreamGone and Unanswered; reading the body raises aiohttp.ClientError.
        """
        session = self._streams if target.watches else self._requests
        sent = for_upstream(headers, self._authorization)
        if not body:  # a body that the client announced would be waited for, or be read from the next request
            sent.popall(hdrs.CONTENT_LENGTH, None)
        try:
            answer = await session.request(
                target.method,
                self._url(target),
                headers=sent,
                data=body or None,
                allow_redirects=False,
                **self._route,
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as fault:
            raise self.failure(target, fault) from fault
        self._note_reached()
        if answer.status == 401:
            self._expire()
        async with answer:
            yield answer

    def _url(self, target: ViewTarget) -> URL:
        query = f"?{target.query}" if target.query else ""
        return URL(f"{self._endpoint.url}{target.path}{query}", encoded=True)

    def failure(self, target: ViewTarget, fault: Exception) -> Exception:
        """What the client has to know of a request that failed."""
        if isinstance(fault, aiohttp.ClientSSLError | ssl.SSLError):
            self._expire()
        why = str(fault) or type(fault).__name__
        if isinstance(fault, _UNSENT):
            self._note_gone(why)
            return UpstreamGone(why)
        if target.method in _IDEMPOTENT:
            return UpstreamGone(why)
        return Unanswered(why)

    def _note_gone(self, why: str) -> None:
        if not self._gone:
            log.warning("the view cannot reach the API server", error=why)
        self._gone = True

    def _note_reached(self) -> None:
        if self._gone:
            log.info("the view reaches the API server again")
        self._gone = False

    def _expire(self) -> None:
        """Certificates and tokens rotate: look for new ones soon."""
        self._endpoint.expire()
        with suppress(OSError, ssl.SSLError):
            self._route = _route(self._endpoint)

    async def _stay_current(self) -> None:
        """The look at a token may run a program, for which nobody waits here."""
        while True:
            await asyncio.sleep(_REFRESH)
            self._authorization = await asyncio.to_thread(lambda: self._endpoint.authorization)


_UNSENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError)


def _session(limit: int, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=limit, keepalive_timeout=_OLDEST_IDLE, socket_factory=_dialled)
    return aiohttp.ClientSession(
        connector=connector,
        timeout=timeout,
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        max_line_size=_LONGEST_HEADER,
        max_field_size=_LONGEST_HEADER,
    )


def _dialled(address: Any) -> socket.socket:
    family, kind, protocol, _, _ = address
    dialled = socket.socket(family, kind, protocol)
    keep_alive(dialled)
    metrics.view_dials.inc()
    return dialled


def _route(endpoint: ApiEndpoint) -> dict[str, Any]:
    """How the API server is dialled, as arguments of a request."""
    proxy = endpoint.proxy
    route: dict[str, Any] = {"proxy": proxy.url, "proxy_headers": proxy.headers} if proxy else {}
    if tls := endpoint.tls():
        route |= {"ssl": tls, "server_hostname": endpoint.server_name}
    return route
