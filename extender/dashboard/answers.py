"""Answers: made once for all viewers with the same rights, and again when their content has changed.

A browser that has the current answer gets 304 by its ETag; the page is not made for that.
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
from werkzeug.wrappers import Response as Answer

from extender.dashboard.actions import Button
from extender.dashboard.visible import VisibleOverview, VisibleOverviews

_TICK = 15  # seconds after which a page that is not open is made again, for its ages
_MODELS, _BODIES, _DERIVED = 16 << 20, 16 << 20, 16  # bytes, bytes, and how many are kept
_LEAST = 1 << 13  # least bytes counted for a value; an address is shorter
_SHOWN = 10.0  # seconds for which a model is kept: it refers to all groups of its time
_OPEN, _PARTS = 4096, 64  # remembered open pages; pages with cached news
_SURE = 6.0  # seconds after which the rights of an open page are checked again
_GAP = 0.5  # seconds: a page that asks again sooner pays for a full answer

_JSON = "application/json"
AGAIN = "Muster-Again"  # a header: seconds after which an open page asks again
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",  # for browsers without frame-ancestors
    "Referrer-Policy": "same-origin",  # with none, browsers would send the Origin `null`
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

T = TypeVar("T")


@dataclass(frozen=True)
class Screen:
    """Content of a page. `make` returns the values for the template; `state` changes with them."""

    title: str
    template: str
    section: str
    state: Hashable
    make: Callable[[], Mapping[str, Any]]
    crumbs: Sequence[tuple[str, str]] = ()
    badge: str = ""
    buttons: Sequence[Button] = ()
    by_rights: bool = False  # whether the page is the same for all viewers with equal rights


class Pace(Protocol):
    """Changes of a source: whether a version is current, and the time of the next one."""

    def is_current(self, version: str) -> bool:
        """Return whether the version is current, without making a newer one."""

    def again(self) -> float:
        """Return the seconds until the next possible change."""


class OpenPages:
    """Open pages of browsers, whether they are current, and their news.

    News is sent in the event loop, without a thread or an application, until the viewer's rights have to
    be checked again. If a page depends on rights alone, its state begins with them, and all viewers with
    equal rights get the news that one of them has asked for.
    """

    def __init__(self, source: Pace, clock: Callable[[], float] = time.monotonic) -> None:
        self._source, self._clock = source, clock
        self._lock = threading.Lock()
        self._pages: LRUCache[bytes, tuple[str, float]] = LRUCache(_OPEN)  # rights, until a time
        self._asked: LRUCache[bytes, float] = LRUCache(_OPEN)  # time of the last request of a page
        self._states: LRUCache[str, tuple[str, str]] = LRUCache(_OPEN)  # state and version, by rights
        self._parts: LRUCache[str, bytes] = LRUCache(_PARTS)  # news, by state

    def record(self, state: str, version: str, answer: Answer, part: bytes | None = None) -> None:
        """Record that the current request has proved that its sender may see this.

        `part` is the news for open pages; None where that is not the same for all.
        """
        headers, path = request.headers, request.environ.get("REQUEST_URI", "")
        page = _page_key(path, *(headers.get(name, "") for name in ("Host", "Cookie", "Authorization")))
        answer.headers[AGAIN] = f"{self._source.again():.3f}"
        with self._lock:
            self._pages[page] = (_rights_part(state), self._clock() + _SURE)
            self._states[_rights_part(state)] = (state, version)
            if part is not None:
                self._parts[state] = part

    def known(self, asked: web.BaseRequest) -> web.Response | None:
        """Return the news; None: the page has to be asked for in full."""
        headers, now = asked.headers, self._clock()
        had = headers.get("If-None-Match", "")[3:-1]
        if asked.method != "GET" or not had or "." in had:
            return None
        cookie = "; ".join(headers.getall("Cookie", ()))
        token = ", ".join(headers.getall("Authorization", ()))
        page = _page_key(asked.raw_path, headers.get("Host", ""), cookie, token)
        with self._lock:
            whose, end = self._pages.get(page, ("", 0.0))
            state, version = self._states.get(whose, ("", ""))
            part = self._parts.get(state)
            often = now - self._asked.get(page, -_GAP) < _GAP
            self._asked[page] = now
        if often or now >= end or whose != _rights_part(had) or not self._source.is_current(version):
            return None
        news_headers = {
            **HEADERS,
            "ETag": f'W/"{state}"',
            AGAIN: f"{self._source.again():.3f}",
            "Server": "muster",
        }
        if had == state:
            return web.Response(status=304, headers=news_headers)
        if part is None:
            return None
        return web.Response(body=part, content_type="text/html", charset="utf-8", headers=news_headers)


def _rights_part(state: str) -> str:
    return state.partition("-")[0]


def _page_key(*parts: str) -> bytes:
    """Return the page of one browser. No token is kept."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).digest()


class _Model(NamedTuple):
    """Model of a page. `content`: a hash, equal for equal ones; `size`: about its bytes."""

    shown: Mapping[str, Any]
    content: bytes
    size: int


class Answers:
    """Maker of pages and JSON, for all threads of the port."""

    def __init__(
        self, overviews: VisibleOverviews, clock: Callable[[], float], open_pages: OpenPages | None = None
    ) -> None:
        self.overviews = overviews
        self.clock = clock
        self._open = open_pages
        self._models = _Shared[_Model](TTLCache(_MODELS, _SHOWN, clock, lambda it: it.size))
        self._bodies = _Shared[Markup](LRUCache(_BODIES, lambda it: _LEAST + len(it)))
        self._derived = _Shared[Any](LRUCache(_DERIVED))

    def see(self) -> VisibleOverview:
        """Return the overview for the viewer.

        Raises:
            RightsUnknown: A right cannot be checked now.
        """
        return self.overviews.see(g.viewer)

    def derived(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return a value that several pages make from the same state."""
        found: T = self._derived.get(key, make)
        return found

    def page(self, visible: VisibleOverview, screen: Screen) -> Answer:
        """Return a page.

        An open page sends its `state` and gets only the changed part: it counts ages itself.
        """
        overview = visible.overview
        address = (request.script_root, request.full_path)
        model = self._models.get((screen.state, address), lambda: _model(screen))
        content = (address, visible.rights, model.content)
        state = _hashed((content, screen.buttons, screen.badge, overview.silent_since, overview.by))
        if screen.by_rights:
            state = f"{_hashed((address, visible.rights))}-{state}"
        had = set(filter(None, request.if_none_match.as_set(include_weak=True)))
        is_open = any("." not in it for it in had)
        tick = 0 if is_open else int(self.clock() // _TICK)
        etag = f"{state}.{_hashed((g.viewer.name, g.viewer.secret, tick))}"  # its forms contain them

        def make(template: str) -> str:
            body = self._bodies.get((content, tick), lambda: _body(screen, model))
            return render_template(template, screen=screen, body=body, overview=overview, state=state)

        if not had.isdisjoint((state, etag)):
            return self._reported(visible, state, etag, Response(status=304))
        if not is_open:
            return self._reported(visible, state, etag, make_response(make("layout.html")))
        part = make("open.html").encode()
        return self._reported(visible, state, state, Response(part), part if screen.by_rights else None)

    def json(self, visible: VisibleOverview, state: Hashable, make: Callable[[], Any]) -> Answer:
        etag = _hashed((state, request.full_path))
        is_known = request.if_none_match.contains_weak(etag)
        answer = Response(status=304) if is_known else Response(msgspec.json.encode(make()), mimetype=_JSON)
        return self._reported(visible, etag, etag, answer)

    def _reported(
        self, visible: VisibleOverview, state: str, etag: str, answer: Answer, part: bytes | None = None
    ) -> Answer:
        answer.set_etag(etag, weak=True)
        if self._open is not None:
            self._open.record(state, visible.overview.version, answer, part)
        return answer


class _Shared(Generic[T]):
    """Values, each made once by the first thread that asks for it, while all others wait."""

    def __init__(self, found: MutableMapping[Hashable, T]) -> None:
        self._lock, self._found = threading.Lock(), found
        self._making: dict[Hashable, threading.Lock] = {}

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        with self._lock:
            if (found := self._found.get(key)) is not None:
                return found
            making = self._making.setdefault(key, threading.Lock())
        with making:
            try:
                with self._lock:
                    found = self._found.get(key)
                if found is None:
                    found = make()
                    with self._lock, suppress(ValueError):  # larger than the whole cache
                        self._found[key] = found
            finally:
                with self._lock:
                    self._making.pop(key, None)
        return found


def _model(screen: Screen) -> _Model:
    shown = screen.make()
    text = msgspec.json.encode(shown, enc_hook=_encode_function)
    return _Model(shown, hashlib.sha256(text).digest(), _LEAST + len(text))


def _encode_function(value: object) -> None:
    """Encode functions as null: they are part of the form, not of the content."""
    if not callable(value):
        raise TypeError(f"{type(value).__name__} is not known to be shown")


def _body(screen: Screen, model: _Model) -> Markup:
    return Markup(render_template(screen.template, link=link, **model.shown))


def _hashed(key: Hashable) -> str:
    return f"{hash(key) & (1 << 64) - 1:016x}"


def address_with(page: str, /, **changes: str | int) -> str:
    """Return a page with the parameters of this address, and changes; empty ones are left out.

    They are not passed to `url_for`, where `endpoint` and `_scheme` would lead to other pages and sites.
    """
    asked = {**request.args.to_dict(), **changes}
    query = urlencode({key: value for key, value in asked.items() if value != ""})
    return f"{page}?{query}" if query else page


def link(**changes: str | int) -> str:
    """Return this page with other parameters."""
    return address_with(url_for(request.endpoint or "", **(request.view_args or {})), **changes)
