"""Limits of requests: a viewer who asks without end has to wait, and no other viewer."""

from itertools import count

from flask import Flask, Request
from werkzeug.test import Client

from extender.dashboard.app import create_dashboard_app, limit_costs
from tests.clock import Clock
from tests.dashboard.standins import SomeSource, SomeViewer


def app(clock: Clock, cost: float) -> Flask:
    """Return an app whose pages cost `cost` seconds of a processor each."""

    def identify(request: Request) -> SomeViewer:
        return SomeViewer(name=request.headers["Who"])

    dashboard_app = create_dashboard_app(SomeSource(), identify)
    ticks = count()
    limit_costs(dashboard_app, lambda: next(ticks) * cost, clock)
    return dashboard_app


def asks(client: Client, who: str, times: int) -> int:
    """Return the number of answered requests."""
    return sum(client.get("/queues", headers={"Who": who}).status_code == 200 for _ in range(times))


def test_a_viewer_has_a_quarter_of_a_core_and_others_have_theirs() -> None:
    clock = Clock()
    client = Client(app(clock, cost=0.1))
    assert asks(client, "ann", 300) < 110
    assert asks(client, "bob", 10) == 10
    clock.now += 40
    assert 90 < asks(client, "ann", 300) < 110
    answer = client.get("/queues", headers={"Who": "ann"})
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "2")


def test_a_rejected_request_is_answered_with_its_refusal() -> None:
    client = Client(app(Clock(), cost=0.1))
    assert client.post("/queues/q/close", headers={"Who": "ann"}).status_code == 403


def test_pages_that_are_left_open_are_always_answered() -> None:
    clock = Clock()
    client = Client(app(clock, cost=0.02))
    for _ in range(60):
        clock.now += 1.5
        assert asks(client, "ann", 10) == 10
