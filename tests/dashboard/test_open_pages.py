"""Whether an open page is up to date is told without the application, and only to whom it was told before."""

from dataclasses import dataclass, field

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from flask import Request

from extender.dashboard.answers import OpenPages
from extender.dashboard.app import create_dashboard_app
from extender.dashboard.source import Viewer
from tests.dashboard.authority import Clock
from tests.dashboard.standins import SomeSource, SomeViewer

ANN = {"Host": "muster.example", "Authorization": "Bearer of-ann", "Cookie": "a=1"}


@dataclass
class Port:
    """Both ways of an answer."""

    source: SomeSource = field(default_factory=SomeSource)
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.open = OpenPages(lambda version: version == self.source.seen.version, self.clock)

        def identify(request: Request) -> Viewer:
            return SomeViewer(request.headers.get("Authorization", ""))

        app = create_dashboard_app(self.source, identify, open_pages=self.open)
        self.client = app.test_client(use_cookies=False)

    def loaded(self, path: str, headers: dict[str, str] = ANN) -> str:
        """The ETag by which an open page asks."""
        answer = self.client.get(path, headers=headers, environ_overrides={"REQUEST_URI": path})
        return f'W/"{answer.headers["ETag"][3:-1].partition(".")[0]}"'

    def is_known(self, path: str, etag: str, headers: dict[str, str] = ANN, method: str = "GET") -> bool:
        self.clock.now += 1
        asked = make_mocked_request(method, path, {**headers, "If-None-Match": etag})
        answer: web.Response | None = self.open.unchanged(asked)
        assert answer is None or (answer.status, answer.headers["ETag"]) == (304, etag)
        return answer is not None


def test_a_page_that_has_not_changed_is_known_for_seconds() -> None:
    port = Port()
    etag = port.loaded("/queues?sort=name")
    assert [port.is_known("/queues?sort=name", etag) for _ in range(5)] == [True] * 3 + [False] * 2
    port.loaded("/queues?sort=name")
    assert port.is_known("/queues?sort=name", etag)


@pytest.mark.parametrize(
    ("path", "headers", "method"),
    [
        ("/queues", {**ANN, "Authorization": "Bearer of-bob"}, "GET"),
        ("/queues", {**ANN, "Cookie": "a=2"}, "GET"),
        ("/queues", {**ANN, "Host": "evil.example"}, "GET"),
        ("/queues", {}, "GET"),
        ("/queues", ANN, "POST"),
        ("/nodes", ANN, "GET"),
        ("/queues?", ANN, "GET"),
    ],
)
def test_nobody_else_and_no_other_page_is_known_by_it(
    path: str, headers: dict[str, str], method: str
) -> None:
    port = Port()
    etag = port.loaded("/queues")
    assert not port.is_known(path, etag, headers, method)
    assert port.is_known("/queues", etag)


def test_what_may_have_changed_is_asked_once_for_all() -> None:
    port, bob = Port(), {**ANN, "Authorization": "Bearer of-bob"}
    etag = port.loaded("/queues")
    assert port.loaded("/queues", bob) == etag
    port.source.seen = type(port.source.seen)(version="2", at="")
    assert not port.is_known("/queues", etag)
    port.loaded("/queues")
    assert port.is_known("/queues", etag)
    assert port.is_known("/queues", etag, bob)


def test_another_state_is_not_known() -> None:
    port = Port()
    port.loaded("/queues")
    assert not port.is_known("/queues", 'W/"0123456789abcdef"')
    assert not port.is_known("/queues", "*")
    assert not port.is_known("/queues", "")


def test_who_asks_without_end_has_it_counted() -> None:
    port = Port()
    etag = port.loaded("/queues")
    assert port.is_known("/queues", etag)
    port.clock.now -= 0.9
    assert not port.is_known("/queues", etag)
