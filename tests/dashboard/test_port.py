"""The dashboard behind a real port: forms come with an Origin, and what is too large is refused."""

import re
import socket
from collections.abc import Iterator
from http.client import HTTPConnection
from urllib.parse import urlencode

import pytest
from flask import Request
from kubernetes.client import Configuration

from extender.api.summaries import GroupSummary, Overview
from extender.dashboard.app import create_dashboard_app, csrf_token
from extender.dashboard.rendering import AGAIN_HEADER, OpenPages
from extender.dashboard.token_login import TokenLogin
from extender.kube.endpoint import ApiEndpoint
from extender.web.side_ports import SideServer, pages
from tests.clock import Clock
from tests.dashboard.authority import Authority
from tests.dashboard.standins import SomeSource, SomeViewer
from tests.rows import each_of


@pytest.fixture
def viewer() -> SomeViewer:
    return SomeViewer()


@pytest.fixture
def port(viewer: SomeViewer) -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    app = create_dashboard_app(SomeSource(), lambda request: viewer)
    server = SideServer("dashboard", listener, pages(app), allows_web_pages=True)
    yield server.address.port
    server.stop()


def send(port: int, path: str, body: str = "", **headers: str) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        connection.request("POST" if body else "GET", path, body, {**form, **headers})
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_form_comes_from_our_own_pages_only(port: int, viewer: SomeViewer) -> None:
    form = urlencode({"csrf": csrf_token(viewer), "confirmed": "yes"})
    for origin, status in (
        (f"http://127.0.0.1:{port}", 303),
        (f"http://127.0.0.1:{port + 1}", 403),
        (f"http://localhost:{port}", 403),
        ("https://evil.example", 403),
        ("null", 403),
    ):
        assert send(port, "/queues/q/close", form, Origin=origin) == status
    assert len(viewer.patched) == 1


def test_a_request_with_two_tokens_is_refused() -> None:
    authority, listener = Authority(), socket.create_server(("127.0.0.1", 0))
    login = TokenLogin(authority, ApiEndpoint(Configuration))
    app = create_dashboard_app(SomeSource(), login.identify, login.login)
    server = SideServer("dashboard", listener, pages(app), allows_web_pages=True)
    answers = []
    for tokens in (("of-ann",), ("of-ann", "of-bob"), ("of-bob", "of-bob")):
        connection = HTTPConnection("127.0.0.1", server.address.port, timeout=30)
        connection.putrequest("GET", "/queues")
        for token in tokens:
            connection.putheader("Authorization", f"Bearer {token}")
        connection.endheaders()
        answers.append(connection.getresponse().status)
        connection.close()
    server.stop()
    assert answers == [200, 401, 401]


@each_of("/", "/queues?q=%C3%BC%20x", "/groups/team/train")
def test_an_open_page_is_answered_without_the_application(path: str) -> None:
    source, asked, clock = SomeSource(Overview("1", "", groups=[GroupSummary("team", "train")])), [0], Clock()

    def identify(_: Request) -> SomeViewer:
        asked[0] += 1
        return SomeViewer()

    open_pages = OpenPages(source, clock)
    app = create_dashboard_app(source, identify, open_pages=open_pages)
    listener = socket.create_server(("127.0.0.1", 0))
    server = SideServer(
        "dashboard", listener, pages(app), allows_web_pages=True, immediate_answer=open_pages.news_for
    )
    connection = HTTPConnection("127.0.0.1", server.address.port, timeout=30)
    etag, seen = "", []
    for _ in range(9):
        clock.now += 1
        connection.request("GET", path, headers={"Cookie": "a=1", "If-None-Match": etag})
        answer = connection.getresponse()
        if found := re.search(r'data-state="([^"]+)"', answer.read().decode()):
            etag = f'W/"{found[1]}"'
        assert float(answer.headers[AGAIN_HEADER]) == source.seconds_to_next_change()
        assert "frame-ancestors" in answer.headers["Content-Security-Policy"]
        seen.append((answer.status, asked[0]))
    connection.close()
    server.stop()
    assert seen == [(200, 1), *[(304, 1)] * 5, (304, 2), (304, 2), (304, 2)]


@pytest.mark.parametrize("host", [64 * "x", "a..b", ".x"])
def test_a_host_that_no_name_can_be_is_a_bad_request(port: int, host: str) -> None:
    """Anybody may send it: a fault would fill the log."""
    assert [send(port, path, Host=host) for path in ("/", "/healthz", "/queues/q")] == [400, 400, 400]


def test_a_request_that_is_too_large_or_no_path_is_refused(port: int, viewer: SomeViewer) -> None:
    assert send(port, f"/?{'x' * 9000}") == 414
    assert send(port, "/", "x" * 100_000) == 413
    assert send(port, "/", Large="x" * 9000) == 431
    for path in ("//evil.example/", "/groups/a/%2e%2e", "/static/%2e%2e%2fapp.py", "/%00", "/%7f"):
        assert send(port, path) == 404
    form = urlencode({"csrf": csrf_token(viewer), "confirmed": "yes"})
    for path in ("/groups/team/%2e%2e/hold", "/groups/team/a%2fb/hold", "/groups/team/a%0d%0aX:%20y/hold"):
        assert send(port, path, form) == 404
    assert not viewer.patched
