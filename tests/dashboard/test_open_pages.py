"""Freshness of an open page: answered without the application, and only to a viewer that has seen it."""

from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from flask import Request
from msgspec.structs import replace

from extender.api.summaries import NodeSummary, Overview, QueueSummary
from extender.dashboard.app import create_dashboard_app
from extender.dashboard.rendering import OpenPages
from extender.dashboard.source import Viewer
from tests.clock import Clock
from tests.dashboard.standins import SomeSource, SomeViewer
from tests.rows import each_of

ANN = {"Host": "muster.example", "Authorization": "Bearer of-ann", "Cookie": "a=1"}


@dataclass
class Port:
    """Both ways of an answer."""

    source: SomeSource = field(default_factory=SomeSource)
    clock: Clock = field(default_factory=Clock)
    refused: dict[str, set[tuple[str, ...]]] = field(default_factory=dict)  # by token
    text: str = ""

    def __post_init__(self) -> None:
        self.open = OpenPages(self.source, self.clock)

        def identify(request: Request) -> Viewer:
            name = request.headers.get("Authorization", "")
            return SomeViewer(name, refused=self.refused.get(name, set()))

        app = create_dashboard_app(self.source, identify, open_pages=self.open)
        self.client = app.test_client(use_cookies=False)

    def loaded(self, path: str, headers: dict[str, str] = ANN, etag: str = "") -> str:
        """Return the ETag by which an open page asks."""
        conditional = {**headers, "If-None-Match": etag}
        self.text = (
            answer := self.client.get(path, headers=conditional, environ_overrides={"REQUEST_URI": path})
        ).text
        return f'W/"{answer.headers["ETag"][3:-1].partition(".")[0]}"'

    def is_known(self, path: str, etag: str, headers: dict[str, str] = ANN, method: str = "GET") -> bool:
        self.clock.now += 1
        answer = self.reported(path, etag, headers, method)
        assert answer is None or (answer.status, answer.headers["ETag"]) == (304, etag)
        return answer is not None

    def reported(
        self, path: str, etag: str, headers: dict[str, str] = ANN, method: str = "GET"
    ) -> web.Response | None:
        return self.open.news_for(make_mocked_request(method, path, {**headers, "If-None-Match": etag}))


def test_a_page_that_has_not_changed_is_known_for_seconds() -> None:
    port = Port()
    etag = port.loaded("/queues?sort=name")
    assert [port.is_known("/queues?sort=name", etag) for _ in range(7)] == [True] * 5 + [False] * 2
    port.loaded("/queues?sort=name")
    assert port.is_known("/queues?sort=name", etag)


@each_of(
    ("/queues", {**ANN, "Authorization": "Bearer of-bob"}, "GET"),
    ("/queues", {**ANN, "Cookie": "a=2"}, "GET"),
    ("/queues", {**ANN, "Host": "evil.example"}, "GET"),
    ("/queues", {}, "GET"),
    ("/queues", ANN, "POST"),
    ("/nodes", ANN, "GET"),
    ("/queues?", ANN, "GET"),
)
def test_no_other_user_and_no_other_page_matches_a_known_etag(
    path: str, headers: dict[str, str], method: str
) -> None:
    port = Port()
    etag = port.loaded("/queues")
    assert not port.is_known(path, etag, headers, method)
    assert port.is_known("/queues", etag)


BOB = {**ANN, "Authorization": "Bearer of-bob"}


def test_a_possible_change_is_checked_once_for_all_users() -> None:
    port = Port()
    etag = port.loaded("/queues")
    assert port.loaded("/queues", BOB) == etag
    port.source.seen = replace(port.source.seen, version="2", nodes=[NodeSummary("n")])
    assert not port.is_known("/queues", etag)
    assert port.loaded("/queues", etag=etag) == etag
    assert port.is_known("/queues", etag)
    assert port.is_known("/queues", etag, BOB)


def test_a_changed_page_is_rendered_once_for_all_users_with_equal_rights() -> None:
    port = Port(refused={"Bearer of-cid": {("list", "queues", "")}})
    cid = {**ANN, "Authorization": "Bearer of-cid"}
    etag = port.loaded("/queues")
    assert port.loaded("/queues", BOB) == etag != port.loaded("/queues", cid)
    port.source.seen = replace(port.source.seen, version="2", queues=[QueueSummary("brand-new")])
    new = port.loaded("/queues", etag=etag)
    port.clock.now += 1
    reported = port.reported("/queues", etag, BOB)
    assert reported is not None
    assert (reported.status, reported.headers["ETag"], reported.text) == (200, new, port.text)
    assert "brand-new" in port.text
    assert "of-ann" not in port.text, "the name of the first viewer stays private"
    assert port.reported("/queues", etag, cid) is None
    assert port.reported("/queues", f'{new[:-1]}.0123456789abcdef"', BOB) is None, "a page is loaded whole"


def test_a_page_with_forms_is_made_for_each() -> None:
    port = Port(SomeSource(Overview("1", "", queues=[QueueSummary("q")])))
    etag = port.loaded("/queues/q")
    assert port.loaded("/queues/q", BOB) == etag
    assert 'name="csrf"' in port.text
    port.source.seen = replace(port.source.seen, version="2", queues=[QueueSummary("q", waiting=3)])
    port.loaded("/queues/q", etag=etag)
    port.clock.now += 1
    assert port.reported("/queues/q", etag, BOB) is None


def test_an_etag_of_another_state_is_not_known() -> None:
    port = Port()
    port.loaded("/queues")
    assert not port.is_known("/queues", 'W/"0123456789abcdef"')
    assert not port.is_known("/queues", "*")
    assert not port.is_known("/queues", "")


def test_frequent_requests_are_counted() -> None:
    port = Port()
    etag = port.loaded("/queues")
    assert port.is_known("/queues", etag)
    port.clock.now -= 0.9
    assert not port.is_known("/queues", etag)
