"""Renderer of the dashboard. A page is rendered once for viewers with the same rights and content.

A browser that has the current answer gets 304 by its ETag, and the page is not rendered.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Hashable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import urlencode

import msgspec
from aiohttp import web
from cachetools import LRUCache, TTLCache
from flask import Response, g, make_response, render_template, request, url_for
from markupsafe import Markup
from werkzeug.wrappers import Response as BaseResponse

from extender.dashboard.actions import Button
from extender.dashboard.visible_overviews import VisibleOverview, VisibleOverviews

_TICK_SECONDS = 15  # seconds for which a page is cached, because it shows ages
_MODEL_SIZE, _MAX_BODY_BYTES, _MAX_DERIVED = 16 << 20, 16 << 20, 16  # of caches: bytes, bytes, entries
_OVERHEAD_BYTES = 1 << 13  # bytes that count for a cached value in addition to its content
_MODEL_SECONDS = 10.0  # seconds for which a model is cached; it keeps old groups in memory
_MAX_PAGES, _MAX_NEWS = 4096, 64  # maximum of recorded open pages, and of pages with cached news
_RIGHTS_SECONDS = 6.0  # seconds until the rights of an open page are checked again
_MIN_GAP = 0.5  # seconds between requests of a page; an earlier request counts for the viewer's limit

_JSON = "application/json"
AGAIN_HEADER = "Muster-Again"  # a header with the seconds until an open page asks again
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",  # for browsers without frame-ancestors
    "Referrer-Policy": "same-origin",  # without it, browsers would send the Origin `null`
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

T = TypeVar("T")


@dataclass(frozen=True)
class Screen:
    """Content of a page. `make` returns the values for the template.

    `state` identifies these values: it changes when they change.
    """

    title: str
    template: str
    section: str
    state: Hashable
    make: Callable[[], Mapping[str, Any]]
    crumbs: Sequence[tuple[str, str]] = ()
    badge: str = ""
    buttons: Sequence[Button] = ()
    is_shared: bool = False  # whether viewers with equal rights see the same page


class Freshness(Protocol):
    """Changes of a source: whether a version is current, and when the source may change next."""

    def is_current(self, version: str) -> bool:
        """Return whether the version is the newest. This check does not compute a new version."""

    def seconds_to_next_change(self) -> float:
        """Return the seconds until the next possible change."""


class OpenPages:
    """Pages that are open in browsers: whether each page is current, and the news for the page.

    The event loop answers requests for news itself, without a thread and without the application. Once the
    viewer's rights must be checked again, the application answers. If a page is the same for all viewers with
    equal rights, the state of the page begins with these rights. All these viewers then get the news that the
    application has rendered for one of them.
    """

    def __init__(self, source: Freshness, clock: Callable[[], float] = time.monotonic) -> None:
        self._source, self._clock = source, clock
        self._lock = threading.Lock()
        self._pages: LRUCache[bytes, tuple[str, float]] = LRUCache(_MAX_PAGES)  # rights, and their expiry
        self._request_times: LRUCache[bytes, float] = LRUCache(_MAX_PAGES)  # time of the last request
        self._states: LRUCache[str, tuple[str, str]] = LRUCache(_MAX_PAGES)  # state and version, by rights
        self._news_by_state: LRUCache[str, bytes] = LRUCache(_MAX_NEWS)  # news, by state

    def record(self, state: str, version: str, answer: BaseResponse, news: bytes | None = None) -> None:
        """Record that the sender of the current request has the right to this answer.

        `news` is the changed part for open pages. None means that it differs among viewers with equal rights.
        """
        headers, path = request.headers, request.environ.get("REQUEST_URI", "")
        page = _page_key(path, *(headers.get(name, "") for name in ("Host", "Cookie", "Authorization")))
        answer.headers[AGAIN_HEADER] = f"{self._source.seconds_to_next_change():.3f}"
        with self._lock:
            self._pages[page] = (_rights_part(state), self._clock() + _RIGHTS_SECONDS)
            self._states[_rights_part(state)] = (state, version)
            if news is not None:
                self._news_by_state[state] = news

    def news_for(self, page_request: web.BaseRequest) -> web.Response | None:
        """Return the news for an open page; None if the application must answer."""
        headers, now = page_request.headers, self._clock()
        last_state = headers.get("If-None-Match", "")[3:-1]  # the ETag without W/" and "
        if page_request.method != "GET" or not last_state or "." in last_state:
            return None
        cookie = "; ".join(headers.getall("Cookie", ()))
        token = ", ".join(headers.getall("Authorization", ()))
        page = _page_key(page_request.raw_path, headers.get("Host", ""), cookie, token)
        with self._lock:
            rights, expires_at = self._pages.get(page, ("", 0.0))
            state, version = self._states.get(rights, ("", ""))
            news = self._news_by_state.get(state)
            is_too_soon = now - self._request_times.get(page, -_MIN_GAP) < _MIN_GAP
            self._request_times[page] = now
        if is_too_soon or now >= expires_at or rights != _rights_part(last_state):
            return None
        if not self._source.is_current(version):
            return None
        news_headers = {
            **HEADERS,
            "ETag": f'W/"{state}"',
            AGAIN_HEADER: f"{self._source.seconds_to_next_change():.3f}",
            "Server": "muster",
        }
        if last_state == state:
            return web.Response(status=304, headers=news_headers)
        if news is None:
            return None
        return web.Response(body=news, content_type="text/html", charset="utf-8", headers=news_headers)


def _rights_part(state: str) -> str:
    return state.partition("-")[0]


def _page_key(*parts: str) -> bytes:
    """Return the key of a page in one browser. The key is a hash, so that no token is stored."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).digest()


class _Model(NamedTuple):
    """Values for a page's template. `content` is a hash of the values, `size` their approximate bytes."""

    values: Mapping[str, Any]
    content: bytes
    size: int


class Renderer:
    """Renderer of pages and JSON, shared by all threads of the port."""

    def __init__(
        self, overviews: VisibleOverviews, clock: Callable[[], float], open_pages: OpenPages | None = None
    ) -> None:
        self.overviews = overviews
        self.clock = clock
        self._open_pages = open_pages
        self._models = _Shared[_Model](TTLCache(_MODEL_SIZE, _MODEL_SECONDS, clock, lambda model: model.size))
        self._bodies = _Shared[Markup](LRUCache(_MAX_BODY_BYTES, lambda body: _OVERHEAD_BYTES + len(body)))
        self._derived_values = _Shared[Any](LRUCache(_MAX_DERIVED))

    def visible_overview(self) -> VisibleOverview:
        """Return the overview for the viewer of the request.

        Raises:
            RightsUnknown: A right cannot be checked now.
        """
        return self.overviews.visible_overview(g.viewer)

    def derive(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return a value that several pages derive from the same state.

        It is the cached value, else the result of `make`.
        """
        value: T = self._derived_values.get(key, make)
        return value

    def page(self, visible: VisibleOverview, screen: Screen) -> BaseResponse:
        """Return the answer with a page.

        An open page sends its `state` and gets only the changed part. It counts ages on its own.
        """
        overview = visible.overview
        address = (request.script_root, request.full_path)
        model = self._models.get((screen.state, address), lambda: _model(screen))
        content = (address, visible.rights, model.content)
        state = _hash_of((content, screen.buttons, screen.badge, overview.silent_since, overview.by))
        if screen.is_shared:
            state = f"{_hash_of((address, visible.rights))}-{state}"
        browser_etags = set(filter(None, request.if_none_match.as_set(include_weak=True)))
        is_open = any("." not in tag for tag in browser_etags)
        tick = 0 if is_open else int(self.clock() // _TICK_SECONDS)
        etag = f"{state}.{_hash_of((g.viewer.name, g.viewer.secret, tick))}"  # forms differ by viewer

        def make(template: str) -> str:
            body = self._bodies.get((content, tick), lambda: _body(screen, model))
            return render_template(template, screen=screen, body=body, overview=overview, state=state)

        if not browser_etags.isdisjoint((state, etag)):
            return self._record(visible, state, etag, Response(status=304))
        if not is_open:
            return self._record(visible, state, etag, make_response(make("layout.html")))
        news = make("open.html").encode()
        return self._record(visible, state, state, Response(news), news if screen.is_shared else None)

    def json(self, visible: VisibleOverview, state: Hashable, make: Callable[[], Any]) -> BaseResponse:
        etag = _hash_of((state, request.full_path))
        is_known = request.if_none_match.contains_weak(etag)
        answer = Response(status=304) if is_known else Response(msgspec.json.encode(make()), mimetype=_JSON)
        return self._record(visible, etag, etag, answer)

    def _record(
        self, visible: VisibleOverview, state: str, etag: str, answer: BaseResponse, news: bytes | None = None
    ) -> BaseResponse:
        answer.set_etag(etag, weak=True)
        if self._open_pages is not None:
            self._open_pages.record(state, visible.overview.version, answer, news)
        return answer


class _Shared(Generic[T]):
    """Cache whose values are computed once: the first thread computes a value, other threads wait for it."""

    def __init__(self, cache: MutableMapping[Hashable, T]) -> None:
        self._lock, self._cache = threading.Lock(), cache
        self._key_locks: dict[Hashable, threading.Lock] = {}  # locks of values in computation

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the cached value of a key, else the result of `make`."""
        with self._lock:
            value = self._cache.get(key)
            if value is not None:
                return value
            key_lock = self._key_locks.setdefault(key, threading.Lock())
        with key_lock:
            try:
                with self._lock:
                    value = self._cache.get(key)
                if value is None:
                    value = make()
                    with self._lock, suppress(ValueError):  # the value is larger than the cache
                        self._cache[key] = value
            finally:
                with self._lock:
                    self._key_locks.pop(key, None)
        return value


def _model(screen: Screen) -> _Model:
    values = screen.make()
    text = msgspec.json.encode(values, enc_hook=_encode_function)
    return _Model(values, hashlib.sha256(text).digest(), _OVERHEAD_BYTES + len(text))


def _encode_function(value: object) -> None:
    """Encode a function as null. Templates call functions, and their results depend on the other values."""
    if not callable(value):
        raise TypeError(f"{type(value).__name__} is not known to be shown")


def _body(screen: Screen, model: _Model) -> Markup:
    return Markup(render_template(screen.template, link=link, **model.values))


def _hash_of(key: Hashable) -> str:
    return f"{hash(key) & (1 << 64) - 1:016x}"


def address_with(page: str, /, **changes: str | int) -> str:
    """Return the address of a page with the current parameters and changes; empty parameters are left out.

    The parameters are not passed to `url_for`, where `endpoint` and `_scheme` could lead to other pages and
    sites.
    """
    parameters = {**request.args.to_dict(), **changes}
    query = urlencode({key: value for key, value in parameters.items() if value != ""})
    return f"{page}?{query}" if query else page


def link(**changes: str | int) -> str:
    """Return the address of the current page with changed parameters."""
    return address_with(url_for(request.endpoint or "", **(request.view_args or {})), **changes)
