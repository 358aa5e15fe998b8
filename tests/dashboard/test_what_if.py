"""Page of a waiting job with what-if terms, for viewers who may see all objects of the decision.

Nothing is written.
"""

import re

import pytest
from flask.testing import FlaskClient

from extender.dashboard.app import create_dashboard_app, csrf_token
from extender.dashboard.overviews import DecisionSource
from extender.host.dashboard import what_if_source
from tests.dashboard.standins import SomeViewer
from tests.domain.builders import foreign_pod, node
from tests.domain.world import gang
from tests.verbs.stage import Stage

GROUP = "/groups/team/first"


@pytest.fixture
def viewer() -> SomeViewer:
    return SomeViewer()


def two_that_wait() -> Stage:
    """Return two waiting gangs and a node that fits one member."""
    groups = (gang("first", 2, created="2026-01-01"), gang("second", 2, created="2026-01-02"))
    return Stage(node("a", cpu="4"), foreign_pod("s", on="a", cpu="3"), *groups)


@pytest.fixture
def client(viewer: SomeViewer) -> FlaskClient:
    stage = two_that_wait()
    source = DecisionSource(lambda: stage.decisions, list)
    app = create_dashboard_app(source, lambda _: viewer, trials=what_if_source(stage.ledger))
    return app.test_client()


def asks(
    client: FlaskClient, viewer: SomeViewer, term: str, number: str, group: str = GROUP
) -> tuple[int, str]:
    """Return the status, and the readable text of the page."""
    chosen = {"term": term, "number": number}
    answer = client.post(f"{group}/what-if", data={"csrf": csrf_token(viewer), **chosen})
    return answer.status_code, re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.text))


def test_a_what_if_page_shows_the_effects_on_the_job_and_on_others(
    client: FlaskClient, viewer: SomeViewer
) -> None:
    page = client.get(GROUP).text
    assert "What if?" in page
    assert {"nodes=+", "priority=", "queue.capability.cpu=default:"} <= {
        *re.findall('option value="([^"]+)"', page)
    }
    status, page = asks(client, viewer, "nodes=+", "1")
    assert status == 200
    assert "If nodes=+1" in page
    assert "team/first would start now." in page
    status, page = asks(client, viewer, "priority=", "-1", "/groups/team/second")
    assert "If priority=-1" in page
    assert "team/second would still wait" in page
    assert "Nothing changes for them." in page
    assert viewer.patched == []


@pytest.mark.parametrize(
    ("term", "number", "group", "status", "says"),
    [
        ("", "", GROUP, 400, "must be nodes=+N"),
        ("nodes=+", "", GROUP, 400, "What if: &#39;nodes=+&#39;: must be"),
        ("nodes=", "<b>", GROUP, 400, "What if: &#39;nodes=&lt;b&gt;&#39;: must be"),
        ("queue.weight=lab:", "2", GROUP, 400, "no queue lab"),
        ("nodes=+", "1", "/groups/team/none", 404, "There is no job team/none"),
    ],
)
def test_an_invalid_term_is_named(
    client: FlaskClient, viewer: SomeViewer, term: str, number: str, group: str, status: int, says: str
) -> None:
    answered, page = asks(client, viewer, term, number, group)
    assert answered == status
    assert says in page


@pytest.mark.parametrize("plural", ["queues", "podgroups", "pods", "nodes"])
def test_a_user_who_does_not_see_everything_gets_no_what_if(
    client: FlaskClient, viewer: SomeViewer, plural: str
) -> None:
    viewer.refused = {("list", plural, "")}
    assert "What if?" not in client.get(GROUP).text
    status, page = asks(client, viewer, "nodes=+", "1")
    assert status == 403
    assert "you may not list all" in page


def test_a_page_of_another_site_cannot_ask(client: FlaskClient) -> None:
    assert client.post(f"{GROUP}/what-if", data={"term": "nodes=+", "number": "1"}).status_code == 403
