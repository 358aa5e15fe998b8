"""Undoing starts that failed for good, by eviction."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from extender.controllers.evictions import EvictionsController
from extender.domain.model.reasons import Reason
from extender.kube.errors import NotFound, TooManyRequests
from tests.controllers.api import Call
from tests.controllers.bench import Bench
from tests.domain.builders import pod
from tests.domain.world import gang, nodes
from tests.rows import each_of

AGAIN = 3.0  # seconds between two evictions of the same pod


class Undoing(Bench):
    """A gang of three with two bound members and no capacity for the third, long after its deadline."""

    def __init__(self) -> None:
        bound = [pod("g-0", "g", on="a"), pod("g-1", "g", on="b")]
        record, *_, last = gang("g", 3, admitted=True)
        super().__init__(nodes("a", "b", cpu="1"), record, bound, last)
        self.settle()
        self.undoer = EvictionsController(self.means(), self.recorder)

    def fail_the_start(self) -> "Undoing":
        self.pass_time(self.ledger.limits.deadline(3) + 1)
        assert self.reason("g") is Reason.BACKING_OFF
        return self

    def look(self) -> list[Call]:
        self.undoer.on_decisions(self.decisions)
        self.flush()
        calls, self.api.calls = self.api.calls, []
        return calls


@contextmanager
def undoing() -> Iterator[tuple[Undoing, list[Any]]]:
    bench = Undoing()
    with bench.writing(), capture_logs() as logs:
        yield bench, logs


def evictions(outcome: str) -> float:
    return REGISTRY.get_sample_value("muster_evictions_total", {"outcome": outcome, "cause": "Undo"}) or 0.0


def test_bound_members_of_a_start_that_failed_are_evicted_at_most_once_per_interval() -> None:
    before = evictions("done")
    with undoing() as (bench, logs):
        assert bench.look() == [], "it is under way"
        assert bench.fail_the_start().look() == [("evict", "g-0"), ("evict", "g-1")]
        assert evictions("done") - before == 2
        assert [(line["pod"], line["group"]) for line in logs] == [
            ("team/g-0", "team/g"),
            ("team/g-1", "team/g"),
        ]
        assert bench.look() == []
        bench.advance(AGAIN - 0.1)
        assert bench.look() == []
        bench.advance(0.2)
        assert bench.look() == [("evict", "g-0"), ("evict", "g-1")]


def test_a_pod_that_terminates_or_is_gone_is_not_evicted_again() -> None:
    with undoing() as (bench, _):
        bench.fail_the_start().look()
        bench.mark_deleted("g-0")
        bench.delete("g-1").advance(AGAIN)
        assert bench.look() == []


def test_a_refused_eviction_is_reported_and_retried() -> None:
    before = evictions("refused")
    with undoing() as (bench, logs):
        bench.api.fail("evict", TooManyRequests(429, "TooManyRequests", "not now"))
        calls = bench.fail_the_start().look()
        refusals = [line for line in logs if line["event"] == "an eviction was refused"]
        assert [(line["pod"], line["group"]) for line in refusals] == [("team/g-0", "team/g")]
        assert "not now" in refusals[0]["error"]
        events = [call[2] for call in calls if call[0] == "event"]
        assert [(event["involvedObject"]["name"], event["reason"]) for event in events] == [
            ("g-0", "EvictionRefused"),
            ("g", "EvictionRefused"),
        ]
        assert all("not now" in event["message"] for event in events)
        bench.advance(AGAIN)
        assert ("evict", "g-0") in bench.look()
    assert evictions("refused") - before == 1


def test_an_eviction_that_a_disruption_budget_refuses_is_retried_with_growing_pauses() -> None:
    """A budget may be exhausted for hours: 1,000 refusals are 1,000 requests, Events and log lines."""
    with undoing() as (bench, _):
        bench.api.fail("evict", *[TooManyRequests(429, "TooManyRequests", "a budget says no")] * 1000)
        bench.fail_the_start()
        eviction_seconds = []
        for second in range(300):
            eviction_seconds += [second for call in bench.look() if call == ("evict", "g-0")]
            bench.advance(1.0)
        assert eviction_seconds[:5] == [0, 3, 9, 21, 45]
        assert len(eviction_seconds) <= 14


def test_a_pod_that_turns_out_gone_is_no_refusal() -> None:
    with undoing() as (bench, logs):
        bench.api.fail("evict", NotFound(404))
        bench.fail_the_start().look()
        assert [line for line in logs if "refused" in line["event"]] == []


@each_of(True, False)
def test_only_the_leader_evicts(leading: bool) -> None:
    with undoing() as (bench, _):
        bench.leading = leading
        assert bool(bench.fail_the_start().look()) is leading
