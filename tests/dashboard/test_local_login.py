"""Sign-in on the local machine: the printed address works once.

No other user on the machine or in a browser gets in.
"""

import msgspec
import pytest
from flask import g
from werkzeug.test import Client

from extender.dashboard.app import create_dashboard_app, csrf_token
from extender.dashboard.local_login import LocalLogin
from extender.kube.connection import Connection
from tests.clock import Clock
from tests.dashboard.standins import SomeSource, SomeViewer
from tests.kube.server import Reply, Server, status
from tests.rows import each_of

HERE = "http://127.0.0.1:8286"


class Machine:
    def __init__(self, connection: Connection) -> None:
        self.printed: list[str] = []
        self.local_login = LocalLogin(connection, self.printed.append, Clock())
        self.app = create_dashboard_app(SomeSource(), self.local_login.identify, self.local_login.login)
        self.app.add_url_rule("/name", view_func=lambda: g.viewer.name)

    @property
    def below(self) -> str:
        return self.local_login.path.partition("/login")[0]

    def browser(self) -> Client:
        return Client(self.app)


@pytest.fixture
def machine(connection: Connection) -> Machine:
    return Machine(connection)


def enter(machine: Machine, browser: Client, path: str = "", here: str = HERE) -> int:
    return browser.get(path or machine.local_login.path, base_url=here).status_code


def test_the_printed_address_lets_one_browser_in(machine: Machine, server: Server) -> None:
    first, browser, late = machine.local_login.path, machine.browser(), machine.browser()
    answer = browser.get(first, base_url=HERE)
    assert answer.status_code == 303
    below = first.partition("/login")[0]
    assert answer.headers["Location"] == f"{below}/"
    _, *flags = answer.headers["Set-Cookie"].split("; ")
    assert set(flags) == {"HttpOnly", f"Path={below}", "SameSite=Strict"}
    assert machine.printed == [machine.local_login.path]
    assert machine.local_login.path != first
    assert enter(machine, late, first) == 401
    assert enter(machine, browser, first) == 303  # a browser that is in may load it again
    server.script.append(Reply(body=msgspec.json.encode({"status": {"userInfo": {"username": "me"}}})))
    assert browser.get(f"{below}/name", base_url=HERE).text == "me"
    assert late.get(f"{below}/name", base_url=HERE).status_code == 401


@each_of("", "?token=", "?token=x", "?token=%C3%A4")
def test_no_browser_gets_in_without_the_secret_address(token: str, *, machine: Machine) -> None:
    assert enter(machine, machine.browser(), f"{machine.below}/login{token}") == 401
    assert not machine.printed


def test_a_server_of_another_user_on_another_port_gets_no_cookie_and_finds_no_page(machine: Machine) -> None:
    """Browsers do not keep the cookies of ports apart, but of paths."""
    browser = machine.browser()
    enter(machine, browser)
    for path in ("/", "/login", "/static/muster.css", f"{machine.below}x/", machine.below.upper(), "//"):
        sent = browser.get(path, base_url="http://127.0.0.1:9999")
        assert (sent.status_code, sent.request.headers.get("Cookie")) == (404, None)


def test_a_head_request_does_not_use_up_the_secret_address(machine: Machine) -> None:
    browser = machine.browser()
    assert browser.head(machine.local_login.path, base_url=HERE).status_code == 401
    assert enter(machine, browser) == 303


@each_of("evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1")
def test_a_request_with_a_foreign_host_name_gets_nothing(name: str, *, machine: Machine) -> None:
    browser = machine.browser()
    enter(machine, browser)
    for path in (machine.local_login.path, f"{machine.below}/", f"{machine.below}/static/none"):
        assert browser.get(path, base_url=f"http://{name}:8286").status_code == 403


@each_of(HERE, "http://localhost:8286", "http://[::1]:8286")
def test_loopback_has_several_names(here: str, *, machine: Machine) -> None:
    assert enter(machine, machine.browser(), here=here) == 303


def test_rights_and_changes_are_those_of_the_kubeconfig(machine: Machine, server: Server) -> None:
    browser = machine.browser()
    secret = (
        browser.get(machine.local_login.path, base_url=HERE)
        .headers["Set-Cookie"]
        .partition("=")[2]
        .partition(";")[0]
    )
    allowed = msgspec.json.encode({"status": {"allowed": True}})
    server.script.extend([status(404), Reply(body=allowed), Reply()])
    form = {"csrf": csrf_token(SomeViewer(secret=secret)), "confirmed": "yes"}
    held = browser.post(f"{machine.below}/groups/team/train/hold", data=form, base_url=HERE)
    assert held.headers["Location"] == f"{machine.below}/groups/team/train"
    name, right, patch = server.requests
    assert name.path == "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    assert right.path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    attributes = right.json["spec"]["resourceAttributes"]
    assert (attributes["verb"], attributes["namespace"], attributes["name"]) == ("patch", "team", "train")
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer secret"}
    assert patch.json == {"metadata": {"annotations": {"kube-muster.io/hold": "true"}}}
