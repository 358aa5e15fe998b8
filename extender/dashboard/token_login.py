"""Authentication for a dashboard in the cluster, by the bearer token of a user that the API server knows.

A proxy in front of Muster sends the token with each request. The login page sends it once, and a cookie
replaces it. Tokens are stored in memory only. A flood of invalid tokens causes only a few reviews a second,
and does not delay viewers who logged in recently.
"""

import hashlib
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Protocol

from cachetools import TTLCache
from flask import Blueprint, Request, redirect, render_template, request, url_for
from werkzeug.exceptions import TooManyRequests, Unauthorized
from werkzeug.wrappers import Response

from extender.dashboard.source import Viewer
from extender.dashboard.viewers import ExpiringCache, Grants, ReviewedViewer
from extender.domain.admission.access import Subject
from extender.kube.access import Right
from extender.kube.connection import Connection
from extender.kube.endpoint import ApiEndpoint
from extender.kube.writers import TokenBucket

MAX_TOKEN_BYTES = 8000  # bytes; leaves space for the name of the header
COOKIE = "__Host-muster"  # browsers accept cookies with this prefix only from this host, and over TLS
_TOKEN_RE = re.compile(rf"[!-~]{{1,{MAX_TOKEN_BYTES}}}")
_LOCAL_PATH = re.compile(r"/(?:[!-.0-\[\]-~][!-\[\]-~]*)?")  # excludes //host and /\host

_KNOWN_SECONDS, _UNKNOWN_SECONDS = 4.0, 10.0  # seconds for which an owner, or the lack of one, is cached
_MAX_TOKENS = 4096  # maximum of cached tokens
_TRUSTED_SECONDS = 3600.0  # seconds after a successful review in which no limit applies to a token
_RATE, _BURST = 10.0, 20.0  # limit of invalid tokens: each second, and at once
_ADDRESS_RATE, _ADDRESS_BURST = 2.0, 8.0  # the same limit for one address

_MAX_SESSIONS, _MAX_USER_SESSIONS = 1024, 16  # maximum of all sessions, and of one user's
_SESSION_SECONDS = 12 * 3600.0  # seconds until a session ends


class Tokens:
    """Owners of tokens. `review` returns the owner from the API server, and raises ApiError.

    The number of invalid tokens is limited, for each address and in total. Beyond a limit, only tokens with a
    recent successful review are reviewed.
    """

    def __init__(
        self, review: Callable[[str], Subject | None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._review = review
        self._clock = clock
        self._owners: ExpiringCache[bytes, Subject | None] = ExpiringCache(
            _MAX_TOKENS, lambda owner: _KNOWN_SECONDS if owner else _UNKNOWN_SECONDS, clock
        )
        self._trusted_tokens: TTLCache[bytes, bool] = TTLCache(_MAX_TOKENS, _TRUSTED_SECONDS, clock)
        self._shared_limit = TokenBucket(_RATE, _BURST, clock())
        self._address_limits: TTLCache[str, TokenBucket] = TTLCache(_MAX_TOKENS, 60, clock)
        self._lock = Lock()

    def owner(self, token: str, address: str) -> Subject | None:
        """Return the owner of a token; None if the token is invalid.

        Raises:
            RightsUnknown: The API server does not answer.
            TooManyRequests: There were too many invalid tokens.
        """
        if not _TOKEN_RE.fullmatch(token):
            return None
        key = hashlib.sha256(token.encode()).digest()

        def review_token() -> Subject | None:
            with self._lock:
                attempts_left = min(limit.tokens_at(self._clock()) for limit in self._limits(address))
                if attempts_left < 1 and key not in self._trusted_tokens:
                    raise TooManyRequests("Too many tokens are tried: wait a moment", retry_after=2)
            owner = self._review(token)
            with self._lock:
                if owner:
                    self._trusted_tokens[key] = True
                else:
                    self._trusted_tokens.pop(key, None)
                    for limit in self._limits(address):
                        limit.take(self._clock())
            return owner

        return self._owners.get(key, review_token)

    def _limits(self, address: str) -> tuple[TokenBucket, TokenBucket]:
        """Return the limit of all addresses, and the limit of this address."""
        limit = self._address_limits.get(address) or TokenBucket(_ADDRESS_RATE, _ADDRESS_BURST, self._clock())
        self._address_limits[address] = limit
        return self._shared_limit, limit


class Sessions:
    """Tokens by session. If there are too many sessions, the oldest end."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._open_sessions: TTLCache[str, tuple[str, str]] = TTLCache(_MAX_SESSIONS, _SESSION_SECONDS, clock)
        self._lock = Lock()

    def open(self, owner: str, token: str) -> str:
        session = secrets.token_urlsafe(32)
        with self._lock:
            own_sessions = [name for name, (user, _) in self._open_sessions.items() if user == owner]
            for name in own_sessions[: max(0, len(own_sessions) - _MAX_USER_SESSIONS + 1)]:
                del self._open_sessions[name]
            self._open_sessions[session] = (owner, token)
        return session

    def token(self, name: str) -> str:
        """Return the token of a session; empty if there is no such session."""
        with self._lock:
            return self._open_sessions.get(name, ("", ""))[1]

    def close(self, name: str) -> None:
        with self._lock:
            self._open_sessions.pop(name, None)


class TokenReviewer(Protocol):
    """Reviews by the API server: of tokens, and of the rights of their owners.

    Both methods raise ApiError.
    """

    def owner_of(self, token: str) -> Subject | None: ...

    def grants(self, user: Subject, right: Right) -> bool: ...


class TokenLogin:
    """Authentication by bearer tokens.

    `endpoint` is the API server for requests with the viewers' credentials.
    """

    def __init__(
        self, reviewer: TokenReviewer, endpoint: ApiEndpoint, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._endpoint = endpoint
        self._tokens = Tokens(reviewer.owner_of, clock)
        self._grants = Grants(reviewer.grants, clock)
        self._sessions = Sessions(clock)
        self.login = self._pages()

    def identify(self, request: Request) -> Viewer | None:
        """Return the viewer of a request; None if the request has no valid token.

        Raises:
            RightsUnknown: The API server does not answer.
            TooManyRequests: There were too many invalid tokens.
        """
        session = request.cookies.get(COOKIE, "")
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind.casefold() == "bearer":
            session, token = "", token.strip()
        else:
            token = self._sessions.token(session)
        owner = self._tokens.owner(token, request.remote_addr or "")
        if owner is None:
            self._sessions.close(session)
            return None

        @contextmanager
        def connect() -> Iterator[Connection]:
            connection = Connection(self._endpoint.for_token(token), pool_size=1)
            try:
                yield connection
            finally:
                connection.close()

        return ReviewedViewer(owner, session or token, self._grants, connect)

    def _pages(self) -> Blueprint:
        pages = Blueprint("login", __name__)
        pages.app_context_processor(lambda: {"takes_token": True, "has_session": COOKIE in request.cookies})

        @pages.get("/login")
        def show_form() -> str:
            return render_template("login.html")

        @pages.post("/login")
        def enter() -> Response:
            token = request.form.get("token", "").strip()
            owner = self._tokens.owner(token, request.remote_addr or "")
            if owner is None:
                raise Unauthorized("The API server does not know this token, or not any more")
            path = request.form.get("to", "")
            answer = redirect(path if _LOCAL_PATH.fullmatch(path) else "/", 303)
            name = self._sessions.open(owner.user, token)
            answer.set_cookie(COOKIE, name, secure=True, httponly=True, samesite="Strict")
            return answer

        @pages.post("/logout")
        def leave() -> Response:
            self._sessions.close(request.cookies.get(COOKIE, ""))
            answer = redirect(url_for("login.show_form"), 303)
            answer.delete_cookie(COOKIE, secure=True, httponly=True, samesite="Strict")
            return answer

        return pages
