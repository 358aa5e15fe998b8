"""Authentication for a dashboard on the user's machine, by a printed address. The kubeconfig's rights apply.

A printed address can be used once. Then a cookie replaces it, and a new address is printed. Other users of
the machine and pages of other sites have neither the address nor the cookie. All pages are below a path that
is secret. A browser sends the cookies of a host to all ports, even to servers of other users, but only
to paths below the path of the cookie.
"""

import hmac
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from flask import Blueprint, Flask, Request, redirect, request, url_for
from flask.sansio.app import App
from werkzeug.exceptions import NotFound, Unauthorized
from werkzeug.wrappers import Response

from extender.dashboard.source import Viewer
from extender.dashboard.viewers import Grants, ReviewedViewer
from extender.domain.admission.access import Subject
from extender.kube.access import AccessApi, Right
from extender.kube.connection import Connection
from extender.kube.errors import ApiError
from extender.kube.errors import NotFound as NotServed
from extender.ports.connection import refuse_web_pages

_COOKIE = "muster"


class LocalLogin:
    """Authentication by a secret path. After a path was used, `on_renewal` is called with the next path."""

    def __init__(
        self,
        connection: Connection,
        on_renewal: Callable[[str], None] = lambda path: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._api = AccessApi(connection)
        self._on_renewal = on_renewal
        self._grants = Grants(self._review, clock)
        self._secret, self._token = secrets.token_urlsafe(32), _short_secret()
        self._root = f"/{secrets.token_urlsafe(9)}"
        self._lock = Lock()
        self._subject: Subject | None = None
        self.login = self._pages()

    @property
    def path(self) -> str:
        """Return the path that logs in one browser."""
        return f"{self._root}/login?token={self._token}"

    def identify(self, request: Request) -> Viewer | None:
        if not self._has_cookie(request):
            return None
        return ReviewedViewer(self._user(), self._secret, self._grants, self._connect)

    def _user(self) -> Subject:
        if self._subject is None:
            with suppress(ApiError):  # before Kubernetes 1.28, the name is unknown
                self._subject = Subject(self._api.my_name())
        return self._subject or Subject("")

    def _review(self, user: Subject, right: Right) -> bool:
        try:
            return self._api.has_own_right(right)
        except NotServed:  # a cluster without such reviews forbids nothing
            return True

    @contextmanager
    def _connect(self) -> Iterator[Connection]:
        yield self._connection

    def _has_cookie(self, request: Request) -> bool:
        cookie = request.cookies.get(_COOKIE, "")
        return hmac.compare_digest(cookie.encode(), self._secret.encode())

    def _pages(self) -> Blueprint:
        blueprint = Blueprint("login", __name__)
        blueprint.record(lambda state: _move_below(state.app, self._root))

        @blueprint.before_app_request
        def refuse_other_names() -> None:
            """Refuse requests for other host names: any site may let its name resolve to 127.0.0.1."""
            refuse_web_pages(None, request.host)

        @blueprint.get("/login")
        def enter() -> Response:
            token = request.args.get("token", "").encode()
            with self._lock:
                is_valid = request.method == "GET" and hmac.compare_digest(token, self._token.encode())
                if is_valid:
                    self._token = _short_secret()
            if not is_valid and not self._has_cookie(request):
                raise Unauthorized("This address was used before, or is not the one that was printed last")
            answer = redirect(url_for("pages.jobs"), 303)
            if is_valid:
                answer.set_cookie(_COOKIE, self._secret, path=self._root, httponly=True, samesite="Strict")
                self._on_renewal(self.path)
            return answer

        return blueprint


def _move_below(app: App, root: str) -> None:
    """Move all paths of the application below `root`. All other paths are answered with 404."""
    assert isinstance(app, Flask)
    inner_app: WSGIApplication = app.wsgi_app

    def serve_below(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        first, _, rest = environ["PATH_INFO"].removeprefix("/").partition("/")
        if not hmac.compare_digest(f"/{first}".encode(), root.encode()):
            return NotFound("Open the address that was printed")(environ, start_response)
        return inner_app({**environ, "SCRIPT_NAME": root, "PATH_INFO": f"/{rest}"}, start_response)

    app.wsgi_app = serve_below  # type: ignore[method-assign]


def _short_secret() -> str:
    """Return a secret of 128 bits. It is short, so that the address fits into a line and a click opens it."""
    return secrets.token_urlsafe(16)
