"""Authentication for a dashboard on the user's machine: a printed address, used once; a kubeconfig's rights.

Once it is used, a cookie replaces it, and another address is made. Other users of the machine and pages of
other sites have neither. All pages are below an unguessable path: a browser sends the cookies of a host to
all its ports, also to servers of other users, but only below the path of the cookie.
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
from extender.ports.connection import refuse_pages

_COOKIE = "muster"


class LocalLogin:
    """Authentication by a secret path. `renewed` is called with the next path when one was used."""

    def __init__(
        self,
        connection: Connection,
        renewed: Callable[[str], None] = lambda path: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._api = AccessApi(connection)
        self._renewed = renewed
        self._grants = Grants(self._review, clock)
        self._secret, self._token = secrets.token_urlsafe(32), _short()
        self._below = f"/{secrets.token_urlsafe(9)}"
        self._lock = Lock()
        self._who: Subject | None = None
        self.login = self._pages()

    @property
    def path(self) -> str:
        """Return the path that logs a browser in, once."""
        return f"{self._below}/login?token={self._token}"

    def identify(self, request: Request) -> Viewer | None:
        if not self._is_known(request):
            return None
        return ReviewedViewer(self._me(), self._secret, self._grants, self._connect)

    def _me(self) -> Subject:
        if self._who is None:
            with suppress(ApiError):  # Kubernetes before 1.28: no name is shown
                self._who = Subject(self._api.my_name())
        return self._who or Subject("")

    def _review(self, who: Subject, right: Right) -> bool:
        try:
            return self._api.grants_me(right)
        except NotServed:  # without an answer of the cluster, nothing is forbidden
            return True

    @contextmanager
    def _connect(self) -> Iterator[Connection]:
        yield self._connection

    def _is_known(self, request: Request) -> bool:
        given = request.cookies.get(_COOKIE, "")
        return hmac.compare_digest(given.encode(), self._secret.encode())

    def _pages(self) -> Blueprint:
        made = Blueprint("login", __name__)
        made.record(lambda state: _move(state.app, self._below))

        @made.before_app_request
        def refuse_other_names() -> None:
            """Refuse requests for other host names: any site may give its name the address 127.0.0.1."""
            refuse_pages(None, request.host)

        @made.get("/login")
        def enter() -> Response:
            given = request.args.get("token", "").encode()
            with self._lock:
                fits = request.method == "GET" and hmac.compare_digest(given, self._token.encode())
                if fits:
                    self._token = _short()
            if not fits and not self._is_known(request):
                raise Unauthorized("This address was used before, or is not the one that was printed last")
            answer = redirect(url_for("pages.jobs"), 303)
            if fits:
                answer.set_cookie(_COOKIE, self._secret, path=self._below, httponly=True, samesite="Strict")
                self._renewed(self.path)
            return answer

        return made


def _move(app: App, below: str) -> None:
    """Move all paths of the application below `below`. All other paths are not found."""
    assert isinstance(app, Flask)
    inner: WSGIApplication = app.wsgi_app

    def moved(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        first, _, rest = environ["PATH_INFO"].removeprefix("/").partition("/")
        if not hmac.compare_digest(f"/{first}".encode(), below.encode()):
            return NotFound("Open the address that was printed")(environ, start_response)
        return inner({**environ, "SCRIPT_NAME": below, "PATH_INFO": f"/{rest}"}, start_response)

    app.wsgi_app = moved  # type: ignore[method-assign]


def _short() -> str:
    """Return 128 bits: the whole address fits into a line of a terminal, so that a click opens it."""
    return secrets.token_urlsafe(16)
