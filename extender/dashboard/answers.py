"""How an answer is made: once for all who may see the same, and again when something that it shows has
changed. A browser that has it already is told so by its ETag, which costs no making.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec
from aiohttp import web
from cachetools import LRUCache
from flask import Response, g, make_response, render_template, request, url_for
from markupsafe import Markup
from werkzeug.wrappers import Response as Answer

from extender.dashboard.actions import Button
from extender.dashboard.seen import Eyes, Sight

_TICK = 15  # seconds after which a page is made anew for its ages, where it is not open already
_MODELS, _BODIES, _DERIVED = 256, 128, 16  # that are kept
_OPEN = 4096  # pages that are remembered as open
_SURE = 4.0  # seconds for which a page need not ask who looks at it, as long as nothing changes
_GAP = 0.5  # seconds: whoever asks more often has their costs counted

T = TypeVar("T")


@dataclass(frozen=True)
class Screen:
    """`make` is asked for what the template shows. `state` is equal while nothing has changed of what that is
    made from."""

    title: str
    template: str
    section: str
    state: Hashable
    make: Callable[[], Mapping[str, Any]]
    crumbs: Sequence[tuple[str, str]] = ()
    badge: str = ""
    buttons: Sequence[Button] = ()


class OpenPages:
    """Pages that browsers look at, and whether they are up to date: told in the event loop, without a thread
    or an application. That takes nothing from anybody's rights: what has changed is another question.
    `current`: whether what is shown is still of this version."""

    def __init__(self, current: Callable[[str], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._current, self._clock = current, clock
        self._lock = threading.Lock()
        self._states: LRUCache[bytes, tuple[str, float]] = LRUCache(_OPEN)  # by page; known until then
        self._asked: LRUCache[bytes, float] = LRUCache(_OPEN)
        self._versions: LRUCache[str, str] = LRUCache(_OPEN)  # by state, in which it was true last

    def note(self, state: str, version: str) -> None:
        """The request that is answered now has proved that this is what its sender may see."""
        headers, path = request.headers, request.environ.get("REQUEST_URI", "")
        page = _page(path, *(headers.get(name, "") for name in ("Host", "Cookie", "Authorization")))
        with self._lock:
            self._states[page] = (state, self._clock() + _SURE)
            self._versions[state] = version

    def unchanged(self, asked: web.BaseRequest) -> web.Response | None:
        """None: it has to be asked for in full."""
        headers, now = asked.headers, self._clock()
        etag = headers.get("If-None-Match", "")
        if asked.method != "GET" or not etag:
            return None
        cookie, token = (
            "; ".join(headers.getall("Cookie", ())),
            ", ".join(headers.getall("Authorization", ())),
        )
        page = _page(asked.raw_path, headers.get("Host", ""), cookie, token)
        with self._lock:
            state, end = self._states.get(page, ("", 0.0))
            version = self._versions.get(state)
            often = now - self._asked.get(page, -_GAP) < _GAP
            self._asked[page] = now
        if often or now >= end or etag != f'W/"{state}"' or version is None or not self._current(version):
            return None
        return web.Response(status=304, headers={"ETag": etag, "Server": "muster"})


def _page(*parts: str) -> bytes:
    """Of one browser. Nobody's token is kept."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).digest()


class _Model(NamedTuple):
    """What a page shows. `content`: equal for equal ones."""

    shown: Mapping[str, Any]
    content: bytes


class Answers:
    """For all threads of the port."""

    def __init__(self, eyes: Eyes, clock: Callable[[], float], open_pages: OpenPages | None = None) -> None:
        self.eyes = eyes
        self.clock = clock
        self._open = open_pages
        self._lock = threading.Lock()
        self._models: LRUCache[Hashable, _Model] = LRUCache(_MODELS)
        self._bodies: LRUCache[Hashable, Markup] = LRUCache(_BODIES)
        self._derived: LRUCache[Hashable, Any] = LRUCache(_DERIVED)

    def see(self) -> Sight:
        """Raises Unsure."""
        return self.eyes.see(g.viewer)

    def derived(self, key: Hashable, make: Callable[[], T]) -> T:
        """What several pages take from the same state of things."""
        found: T = self._kept(self._derived, key, make)
        return found

    def page(self, sight: Sight, screen: Screen) -> Answer:
        """An open page asks for its `state` alone: it counts its ages itself, and has its viewer already."""
        overview = sight.overview
        address = (request.script_root, request.full_path)
        model = self._kept(self._models, (screen.state, address), lambda: _model(screen))
        content = (address, sight.rights, model.content)
        state = _hashed((content, screen.buttons, screen.badge, overview.silent_since, overview.by))
        tick = int(self.clock() // _TICK)

        def make() -> Answer:
            body = self._kept(self._bodies, (content, tick), lambda: _body(screen, model))
            return make_response(
                render_template("layout.html", screen=screen, body=body, overview=overview, state=state)
            )

        whose = (g.viewer.name, g.viewer.secret)  # its forms are made of it
        return self._unless_known(sight, state, f"{state}.{_hashed((whose, tick))}", make)

    def json(self, sight: Sight, state: Hashable, make: Callable[[], Any]) -> Answer:
        etag = _hashed((state, request.full_path))
        return self._unless_known(
            sight, etag, etag, lambda: Response(msgspec.json.encode(make()), mimetype="application/json")
        )

    def _unless_known(self, sight: Sight, state: str, etag: str, make: Callable[[], Answer]) -> Answer:
        known = request.if_none_match
        is_known = known.contains_weak(state) or known.contains_weak(etag)
        answer = Response(status=304) if is_known else make()
        answer.set_etag(etag, weak=True)
        if self._open is not None:
            self._open.note(state, sight.overview.version)
        return answer

    def _kept(self, cache: LRUCache[Hashable, T], key: Hashable, make: Callable[[], T]) -> T:
        with self._lock:
            found = cache.get(key)
        if found is None:
            found = make()
            with self._lock:
                cache[key] = found
        return found


def _model(screen: Screen) -> _Model:
    shown = screen.make()
    return _Model(shown, msgspec.json.encode(shown, enc_hook=_no_content))


def _no_content(value: object) -> None:
    """Functions say how something is shown, and not what."""
    if not callable(value):
        raise TypeError(f"{type(value).__name__} is not known to be shown")


def _body(screen: Screen, model: _Model) -> Markup:
    return Markup(render_template(screen.template, link=link, **model.shown))


def _hashed(key: Hashable) -> str:
    return f"{hash(key) & (1 << 64) - 1:016x}"


def with_asked(page: str, /, **changes: str | int) -> str:
    """A page with the parameters of this address, and changes; empty ones are left out. They are no arguments
    of `url_for`, to which `endpoint` and `_scheme` say another page and another site."""
    asked = {**request.args.to_dict(), **changes}
    query = urlencode({key: value for key, value in asked.items() if value != ""})
    return f"{page}?{query}" if query else page


def link(**changes: str | int) -> str:
    """This page with other parameters."""
    return with_asked(url_for(request.endpoint or "", **(request.view_args or {})), **changes)
