"""Application of the dashboard: the routes of all pages, and the same data as JSON.

Each request is authenticated first, and each answer has security headers. Refusals of the API server and
internal errors become pages with a sentence.
"""

import hmac
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from threading import Lock
from typing import Any

import msgspec
from cachetools import LRUCache
from flask import Blueprint, Flask, Request, Response, g, make_response, render_template, request, url_for
from msgspec.structs import replace
from werkzeug.exceptions import (
    BadGateway,
    Forbidden,
    HTTPException,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
    default_exceptions,
)
from werkzeug.wrappers import Response as BaseResponse

from extender.api.summaries import VERSION
from extender.api.workloads.shape import Kinds
from extender.api.workloads.table import WORKLOADS
from extender.dashboard import texts
from extender.dashboard.actions import GROUP_PATHS, KINDS, actions
from extender.dashboard.history_page import History, HistoryPage
from extender.dashboard.job_pages import JobPages, missing_group
from extender.dashboard.node_pages import NodePages
from extender.dashboard.queue_pages import QueuePages
from extender.dashboard.rendering import HEADERS, OpenPages, Renderer
from extender.dashboard.source import UNNAMED, ClusterName, RightsUnknown, Source, Viewer
from extender.dashboard.visible_overviews import PARTS, VisibleOverviews
from extender.dashboard.what_if_page import WhatIfPage, WhatIfTrials
from extender.kube.errors import ApiError, Refused, message_for_user
from extender.kube.errors import Unauthorized as TokenRefused
from extender.kube.writers import TokenBucket


class JsonPages:
    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer

    def overview_json(self) -> BaseResponse:
        visible = self._renderer.visible_overview()
        state = (visible.state(*PARTS), visible.overview.silent_since)
        return self._renderer.json(
            visible, state, lambda: replace(visible.overview, capacity=visible.capacity())
        )

    def group_json(self, namespace: str, name: str) -> BaseResponse:
        visible = self._renderer.visible_overview()
        details = self._renderer.overviews.details(namespace, name, g.viewer)
        if details is None:
            raise missing_group(namespace, name)
        raw = msgspec.json.encode(details)
        return self._renderer.json(visible, raw, lambda: {"apiVersion": VERSION, **msgspec.json.decode(raw)})

    def items_json(self, part: str) -> BaseResponse:
        visible = self._renderer.visible_overview()
        part = part.replace("-", "_")
        items: Sequence[Any] = getattr(visible.overview, part)
        namespace = request.args.get("namespace")
        if part in ("groups", "local_queues") and namespace:
            items = [item for item in items if item.namespace == namespace]
        return self._renderer.json(
            visible,
            visible.state(part),
            lambda: {"apiVersion": VERSION, "version": visible.since[part], "items": items},
        )


def pages(
    source: Source,
    history: History | None = None,
    clock: Callable[[], float] = time.time,
    trials: WhatIfTrials | None = None,
    open_pages: OpenPages | None = None,
) -> Blueprint:
    """Return the blueprint of all pages.

    If `history` or `trials` is None, the pages of history or of what-ifs do not exist.
    """
    blueprint = Blueprint("pages", __name__)
    texts.install(blueprint, clock)
    renderer = Renderer(VisibleOverviews(source), clock, open_pages)
    blueprint.app_context_processor(lambda: {"has_history": history is not None})
    what_ifs = WhatIfPage(renderer, trials)
    jobs, queues = JobPages(renderer, what_ifs.buttons), QueuePages(renderer, source.shares, source.usages)
    nodes, past_pages, json_pages = NodePages(renderer), HistoryPage(renderer, history), JsonPages(renderer)
    routes: Mapping[str, Callable[..., BaseResponse]] = {
        "/": jobs.jobs,
        "/namespaces/<namespace>": jobs.jobs,
        "/queues": queues.queues,
        "/queues/<name>": queues.queue,
        "/local-queues": queues.local_queues,
        "/nodes": nodes.nodes,
        "/history": past_pages.history,
        "/api/v1/history": past_pages.history_json,
        "/api/v1/overview": json_pages.overview_json,
        f"/api/v1/<any({_PARTS}):part>": json_pages.items_json,
        "/api/v1/groups/<namespace>/<name>": json_pages.group_json,
    }
    for path, view in routes.items():
        blueprint.add_url_rule(path, view.__name__, view)
    for group in GROUP_PATHS:
        blueprint.add_url_rule(group, "group", jobs.group)
        blueprint.add_url_rule(f"{group}/what-if", "what_if", what_ifs.what_if, methods=["POST"])
    return blueprint


_PARTS = "groups, queues, 'local-queues', nodes, reservations, decisions"
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_OPEN_ENDPOINTS = ("static", "healthz")  # endpoints that need no login
_CORE_SHARE, _BURST_SECONDS = 0.25, 10.0  # processor time for each viewer: cores, and seconds at once
_MAX_VIEWERS = 4096  # maximum of viewers with a recorded cost
_MAX_ADDRESSES = 4096  # maximum of cached addresses; a page has a hundred, of 20 µs each

Identify = Callable[[Request], Viewer | None]  # None if the API server knows no such user


def create_dashboard_app(
    source: Source,
    identify: Identify,
    login: Blueprint | None = None,
    history: History | None = None,
    clock: Callable[[], float] = time.time,
    trials: WhatIfTrials | None = None,
    open_pages: OpenPages | None = None,
    cluster: ClusterName = UNNAMED,
    kinds: Kinds = WORKLOADS,
) -> Flask:
    """Return the application of the dashboard.

    Args:
        source: The state that pages show.
        identify: Returns the viewer of a request.
        login: The pages that log a browser in. Like static files, they need no login.
        history: Returns the report of a period; None if there is no history.
        clock: Returns the seconds since the epoch.
        trials: Computes the decisions for a what-if; None if what-ifs are not possible.
        open_pages: Records which pages are open.
        cluster: The name of the cluster.
        kinds: The kinds of jobs that viewers may stop and resume.
    """
    app = Flask(__name__)
    app.config[KINDS] = kinds
    app.url_map.merge_slashes = False  # no redirects to similar paths
    if login:
        app.register_blueprint(login)  # its checks of every request must come before the authentication
    app.jinja_env.globals["csrf_token"] = lambda: csrf_token(g.viewer)
    app.jinja_env.globals["url_for"] = lambda page, **parts: _address(request.script_root, page, **parts)

    @app.before_request
    def authenticate() -> None:
        g.viewer = None
        if request.method not in _SAFE_METHODS:
            _refuse_other_sites()
        if request.endpoint in _OPEN_ENDPOINTS or (login and request.blueprint == login.name):
            return
        g.viewer = identify(request)
        if g.viewer is None:
            raise Unauthorized("You are not logged in, or no longer")
        if request.method not in _SAFE_METHODS:
            _refuse_forged(g.viewer)

    @app.context_processor
    def template_variables() -> dict[str, object]:
        return {"viewer": g.get("viewer"), "cluster_name": cluster}

    @app.after_request
    def add_headers(answer: Response) -> Response:
        answer.headers.update(HEADERS)
        if request.endpoint != "static":
            answer.headers.setdefault("Cache-Control", "private, no-cache")
            answer.vary.update(("Cookie", "Authorization"))
        return answer

    app.add_url_rule("/healthz", "healthz", lambda: "ok")
    app.register_error_handler(HTTPException, _error_page)
    app.register_error_handler(ApiError, lambda fault: _error_page(_as_http(fault)))
    app.register_error_handler(RightsUnknown, lambda fault: _error_page(ServiceUnavailable(str(fault))))
    app.register_blueprint(pages(source, history, clock, trials, open_pages))
    app.register_blueprint(actions(source))
    return app


@lru_cache(_MAX_ADDRESSES)
def _address(root: str, page: str, **parts: Any) -> str:
    """Return the address of a page below `root`, the script root of the request."""
    return url_for(page, **parts)


# ---- forged requests: a page of another site can make a browser send any request, but cannot read our forms


def csrf_token(viewer: Viewer) -> str:
    """Return the value of the field `csrf`, which every form must send."""
    return hmac.digest(viewer.secret.encode(), b"csrf", "sha256").hex()


def _refuse_other_sites() -> None:
    """Refuse requests from pages of other sites.

    Raises:
        Forbidden: The request comes from another site.
    """
    origin, site = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site", "none")
    is_foreign = origin is not None and origin.partition("://")[2].casefold() != request.host.casefold()
    if is_foreign or site not in ("same-origin", "none"):
        raise Forbidden("This was sent by a page of another site")


def _refuse_forged(viewer: Viewer) -> None:
    """Refuse a form without the viewer's token.

    Raises:
        Forbidden: The form has no valid token.
    """
    if not hmac.compare_digest(request.form.get("csrf", "").encode(), csrf_token(viewer).encode()):
        raise Forbidden("This form is too old, or not from here: go back, load the page again, and repeat it")


# ---- limit for each viewer: pages are made in the process that decides, so no viewer may keep it busy


def limit_costs(
    app: Flask, read_cpu: Callable[[], float] = time.thread_time, clock: Callable[[], float] = time.monotonic
) -> None:
    """Limit the processor time of each viewer. A viewer who exceeds the limit gets 429 for a while.

    `read_cpu` returns the processor seconds of the current thread.
    """
    buckets: LRUCache[str, TokenBucket] = LRUCache(_MAX_VIEWERS)
    lock = Lock()

    @app.before_request
    def begin() -> None:
        g.began = read_cpu()
        viewer = g.get("viewer")
        if viewer is None:
            return
        with lock:
            limit = buckets.setdefault(viewer.name, TokenBucket(_CORE_SHARE, _BURST_SECONDS, clock()))
            if limit.tokens_at(clock()) < _CORE_SHARE:
                raise TooManyRequests("You have asked for very much: wait a moment", retry_after=2)

    @app.after_request
    def end(answer: Response) -> Response:
        viewer, began = g.get("viewer"), g.get("began")  # a refused request has no start time
        with lock:
            limit = buckets.get(viewer.name) if viewer else None
            if limit is not None and began is not None:
                limit.take(clock(), min(read_cpu() - began, limit.tokens_at(clock())))
        return answer


# ---- errors, as pages


def _error_page(fault: HTTPException) -> Response:
    """Return a page with a sentence about the error. A viewer who is not logged in gets the login page."""
    if fault.response is not None or not fault.code or fault.code < 400:  # a redirect is no error
        return make_response(fault.get_response())
    page = "login.html" if isinstance(fault, Unauthorized) else "error.html"
    path = request.full_path if request.method == "GET" else "/"
    answer = make_response(render_template(page, fault=fault, to=path), fault.code)
    for name, value in fault.get_headers():
        if name not in ("Content-Type", "Content-Length"):
            answer.headers[name] = value
    if isinstance(fault, Unauthorized):
        answer.headers["WWW-Authenticate"] = "Bearer"
    return answer


def _as_http(fault: ApiError) -> HTTPException:
    if isinstance(fault, TokenRefused):
        return Unauthorized("The API server does not accept your credentials any more")
    status = fault.status if isinstance(fault, Refused) and fault.status < 500 else 502
    return default_exceptions.get(status, BadGateway)(message_for_user(fault))
