"""How an answer is made: once for all who may see the same, and again when something that it shows has
changed. A browser that has it already is told so by its ETag, which costs no making.
"""

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from cachetools import LRUCache
from flask import Response, g, make_response, render_template, request, url_for
from markupsafe import Markup
from werkzeug.wrappers import Response as Answer

from extender.dashboard.actions import Button
from extender.dashboard.seen import Eyes, Sight

_TICK = 15  # seconds after which a page is made anew for its ages alone
_BODIES, _DERIVED = 128, 16  # that are kept

T = TypeVar("T")


@dataclass(frozen=True)
class Screen:
    """`make` is asked for what the template shows if its body is not kept. `state` is equal while nothing of
    that has changed."""

    title: str
    template: str
    section: str
    state: Hashable
    make: Callable[[], Mapping[str, Any]]
    crumbs: Sequence[tuple[str, str]] = ()
    badge: str = ""
    buttons: Sequence[Button] = ()


class Answers:
    """For all threads of the port."""

    def __init__(self, eyes: Eyes, clock: Callable[[], float]) -> None:
        self.eyes = eyes
        self.clock = clock
        self._lock = threading.Lock()
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
        overview = sight.overview
        address = (request.script_root, request.full_path)
        body_key = (screen.state, int(self.clock() // _TICK), address)
        whose = (g.viewer.name, g.viewer.secret)  # its forms are made of it
        around = (whose, screen.buttons, screen.badge, overview.silent_since, overview.by)

        def make() -> Answer:
            body = self._kept(self._bodies, body_key, lambda: _body(screen))
            return make_response(render_template("layout.html", screen=screen, body=body, overview=overview))

        return _unless_known((body_key, around), make)

    def json(self, state: Hashable, make: Callable[[], Any]) -> Answer:
        return _unless_known(
            (state, request.full_path),
            lambda: Response(msgspec.json.encode(make()), mimetype="application/json"),
        )

    def _kept(self, cache: LRUCache[Hashable, T], key: Hashable, make: Callable[[], T]) -> T:
        with self._lock:
            found = cache.get(key)
        if found is None:
            found = make()
            with self._lock:
                cache[key] = found
        return found


def _body(screen: Screen) -> Markup:
    return Markup(render_template(screen.template, link=link, **screen.make()))


def _unless_known(key: Hashable, make: Callable[[], Answer]) -> Answer:
    etag = f"{hash(key) & (1 << 64) - 1:016x}"
    answer = Response(status=304) if request.if_none_match.contains_weak(etag) else make()
    answer.set_etag(etag, weak=True)
    return answer


def asked(**changes: str | int) -> dict[str, Any]:
    """The parameters of the address with changes; empty ones are left out."""
    return {key: value for key, value in {**request.args.to_dict(), **changes}.items() if value != ""}


def link(**changes: str | int) -> str:
    """This page with other parameters."""
    return url_for(request.endpoint or "", **{**(request.view_args or {}), **asked(**changes)})
