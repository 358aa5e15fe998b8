"""Sign-in to the dashboard, and the headers of every answer to a browser."""

from itertools import product

from flask import Request
from werkzeug.test import Client

from extender.dashboard.app import create_dashboard_app
from extender.dashboard.source import RightsUnknown, Viewer
from tests.dashboard.standins import SomeSource, SomeViewer
from tests.rows import each_of


def client(viewer: Viewer | None) -> Client:
    return Client(create_dashboard_app(SomeSource(), lambda request: viewer))


@each_of(
    *product(
        ["/", "/nothing", "/groups/team/train/hold", "//", "/%00"], ["GET", "HEAD", "POST", "OPTIONS", "PUT"]
    )
)
def test_a_stranger_learns_nothing_not_even_which_pages_there_are(path: str, method: str) -> None:
    answer = client(None).open(path, method=method)
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")


@each_of(*product(["/", "/nothing"], [None, SomeViewer()]))
def test_every_answer_has_the_security_headers(path: str, viewer: Viewer | None) -> None:
    headers = client(viewer).get(path).headers
    policy = headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "private, no-cache"
    assert {"Cookie", "Authorization"} <= set(headers["Vary"].split(", "))


def test_an_unanswered_token_review_is_reported_and_admits_no_user() -> None:
    says = "the API server does not answer"

    def identify(request: Request) -> Viewer | None:
        raise RightsUnknown(says)

    answer = Client(create_dashboard_app(SomeSource(), identify)).get("/")
    assert answer.status_code == 503
    assert says in answer.text
