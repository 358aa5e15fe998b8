"""Evictions of pods whose capacity goes to other groups."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from extender.api.objects.queues import QueueReclaimed, QueueStatus
from extender.controllers.evictions import EvictionsController
from extender.domain.model.reasons import Reason
from extender.kube.errors import ApiError, Forbidden, Invalid, ServerFault, TooManyRequests, Unreachable
from tests.controllers.bench import Bench
from tests.domain.builders import foreign_pod, node, preemption, queue
from tests.domain.world import gang, timestamp
from tests.rows import each_of


class Reclaiming(Bench):
    """World where queue b holds all four cpus, and a group of queue a is below its share."""

    def __init__(self, **rules: Any) -> None:
        super().__init__(node("n"), queue("a"), queue("b", preemption=preemption(**rules)))
        for n in range(4):
            self.add(gang(f"b{n}", 1, queue="b"))
        self.start(*(f"b{n}" for n in range(4)))
        self.add(gang("x", 1, queue="a")).settle()
        self.evictor = EvictionsController(self.means(), self.recorder)

    def look(self) -> list[tuple[object, ...]]:
        self.evictor.on_decisions(self.decisions)
        self.flush()
        calls, self.api.calls = self.api.calls, []
        return calls


def test_a_victim_is_evicted_with_an_event_that_says_why() -> None:
    bench = Reclaiming()
    with bench.writing():
        calls = bench.look()
    (victim,) = [call[1] for call in calls if call[0] == "evict"]
    (disruption,) = [call for call in calls if call[0] == "disrupted"]
    assert disruption[1] == victim
    assert "queue a reclaims its deserved share, for group team/x" in str(disruption[2])
    events = [call[2] for call in calls if call[0] == "event"]
    assert {event["reason"] for event in events} == {"Reclaimed"}  # type: ignore[index]
    assert len(events) == 2


def test_reclaimed_amounts_are_written_before_the_first_eviction() -> None:
    """A new process knows the claimant of the evictions, even if Muster is killed after the first one."""
    bench = Reclaiming()
    with bench.writing():
        calls = [call for call in bench.look() if call[0] in ("queue-status", "evict")]
    assert [call[:2] for call in calls[:1]] == [("queue-status", "a")]
    assert [call[0] for call in calls[1:]] == ["evict"]
    patch: Any = calls[0][2]
    status = msgspec.convert(patch["status"], QueueStatus)
    again = Bench(node("n"), replace(queue("a"), status=status))
    (reclaimed,) = again.ledger.snapshot().queues["a"].record.reclaimed.values()
    assert (reclaimed.group, [each.group for each in reclaimed.unused]) == ("team/x", ["team/x"])
    assert patch["metadata"]["uid"] == queue("a").metadata.uid


def test_reclaimed_amounts_are_written_once() -> None:
    bench = Reclaiming()
    (reclaimed,) = bench.decisions.queues["a"].reclaimed.values()
    recorded = QueueReclaimed("b", reclaimed.group, reclaimed.at, reclaimed.in_vain, reclaimed.unused)
    bench.add(replace(queue("a"), status=QueueStatus(reclaimed=[recorded]))).settle()
    with bench.writing():
        assert [call[0] for call in bench.look() if call[0] in ("queue-status", "evict")] == ["evict"]


@each_of((Unreachable("away"), 0), (Forbidden(403, "Forbidden", "no"), 1))
def test_no_victim_is_evicted_before_the_amounts_are_written_unless_that_write_is_refused(
    fault: ApiError, evicted: int
) -> None:
    bench = Reclaiming()
    with bench.writing(), capture_logs():
        bench.api.fail("queue-status", fault)
        assert len([call for call in bench.look() if call[0] == "evict"]) == evicted


@each_of(
    TooManyRequests(429, "TooManyRequests", "a disruption budget says no"),
    ServerFault(500, "InternalError", "This pod has more than one PodDisruptionBudget"),
    Invalid(422, "Invalid", "metadata.annotations: Too long"),
    Forbidden(403, "Forbidden", "a policy says no"),
)
def test_a_refused_victim_is_spared_for_another(fault: ApiError) -> None:
    """Select the other victim at once, also where the first one will be refused each time."""
    bench = Reclaiming()
    with bench.writing():
        bench.api.fail("evict", fault)
        first = [call[1] for call in bench.look() if call[0] == "evict"]
        bench.settle()
        assert bench.reason("x") is Reason.RECLAIMING
        second = [call[1] for call in bench.look() if call[0] == "evict"]
        assert len(first) == len(second) == 1
        assert first != second


def test_a_victim_of_another_scheduler_gets_an_event_too() -> None:
    bench = Reclaiming()
    bench.add(node("m", cpu="1"), foreign_pod("s", on="m"), gang("high", 1, queue="a", priority=5)).settle()
    with bench.writing():
        evicted = {call[1] for call in bench.look() if call[0] == "evict"}
    assert "s" in evicted or bench.reason("high") is Reason.RECLAIMING


def test_the_rest_of_a_gang_under_eviction_is_requested_repeatedly() -> None:
    bench = Bench(node("n"), queue("q"), gang("low", 2, queue="q"))
    bench.start("low")
    bench.add(gang("high", 4, queue="q", priority=5)).settle()
    evictor = EvictionsController(bench.means(), bench.recorder)
    with bench.writing():
        bench.delete("low-0").settle()
        for _ in range(3):
            bench.api.fail("evict", TooManyRequests(429, "TooManyRequests", "a disruption budget says no"))
            evictor.on_decisions(bench.decisions)
            bench.flush()
            assert bench.settle().reason("high") is Reason.RECLAIMING
            bench.now += 40.0
        evictor.on_decisions(bench.decisions)
        bench.flush()
    assert [call[1] for call in bench.api.calls if call[0] == "evict"] == ["low-1"] * 4


@each_of((["PodDisruptionBudgets"], "evict"), ([], "delete"))
def test_disruption_budgets_are_overruled_by_deletion_where_the_queue_says_so(
    honour: list[str], verb: str
) -> None:
    bench = Reclaiming(honour=honour, max_grace_period="90s")
    with bench.writing():
        (call,) = [call for call in bench.look() if call[0] in ("evict", "delete")]
        assert (call[0], call[2]) == (verb, 90.0)
        bench.mark_deleted(str(call[1]))
        bench.advance(10.0)
        assert [again for again in bench.look() if again[0] in ("evict", "delete")] == []


def test_a_pod_that_terminates_too_slowly_is_deleted_with_a_shorter_grace_period() -> None:
    bench = Reclaiming(honour=[])
    with bench.writing():
        for name in [name for name in bench.pods if name.startswith("b")]:
            before = bench.pods[name]
            going = replace(before.metadata, deletion_timestamp=timestamp(bench.now + 2e9))
            bench.add(replace(before, metadata=going))
        bench.settle()
        evicted = sorted(call[1:] for call in bench.look() if call[0] in ("evict", "delete"))
    assert evicted == [(f"b{n}-0", 240.0) for n in range(4)]
    assert {call[0] for call in bench.api.calls} <= {"evict", "event", "disrupted", "queue-status"}


def test_an_eviction_that_is_under_way_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send an eviction once, even if cycles are faster than the API server's answers (KAI-Scheduler#1620)."""
    bench = Reclaiming()
    evict = bench.api.evict

    def slow(*asked: Any) -> None:
        bench.evictor.on_decisions(bench.decisions)
        evict(*asked)

    monkeypatch.setattr(bench.api, "evict", slow)
    with bench.writing():
        assert [call[0] for call in bench.look()].count("evict") == 1
