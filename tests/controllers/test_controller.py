"""Common rules of all controllers: one guarded reconciliation for each key.

Failures are retried, and only the leader reconciles.
"""

from collections.abc import Iterable
from functools import partial
from inspect import getsource
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from extender.controllers.controller import Controller
from extender.controllers.cycle import DecisionLog, QueueWaits
from extender.controllers.estimates import Estimates
from extender.controllers.events import GroupEvents, StartChanges
from extender.controllers.evictions import EvictionsController
from extender.controllers.quota_queues import QuotaObjects
from extender.controllers.scheduling_gates import Releaser
from extender.domain.model.records import Uid
from extender.domain.snapshot import decisions as transitions
from extender.domain.snapshot.decisions import ConditionPolicy, Decisions, GroupDecision
from extender.host.controllers import Controllers
from extender.kube.errors import ApiError, Conflict, Forbidden, NotFound, ServerFault
from tests.controllers.bench import Bench
from tests.domain.world import gang, key, nodes
from tests.rows import each_of


class Keeper(Controller[str]):
    """Controller of `objects`: it writes each but those in `gone`, and raises for those in `poison`."""

    name = "test"

    def prepare(self) -> None:
        self.objects: list[str] = []
        self.poison: set[str] = set()
        self.gone: set[str] = set()
        self.faults: list[Exception] = []
        self.reconciled: list[str] = []
        self.written: list[str] = []

    def due_keys(self, decisions: Decisions) -> Iterable[str]:
        objects, self.objects = self.objects, []
        return objects

    def reconcile(self, name: str) -> None:
        self.reconciled.append(name)
        if name in self.poison:
            raise ValueError("indigestible")
        if name not in self.gone:
            self.write(name, partial(self._job, name))

    def _job(self, name: str) -> None:
        self.written.append(name)
        if self.faults:
            raise self.faults.pop(0)


def faults() -> float:
    return REGISTRY.get_sample_value("muster_faults_total", {"part": "test"}) or 0.0


def looked(bench: Bench, keeper: Keeper, *objects: str, seconds: float = 0.0) -> list[str]:
    """Return the keys that one look reconciled."""
    keeper.objects, keeper.reconciled = list(objects), []
    bench.now += seconds
    keeper.on_decisions(bench.decisions)
    bench.flush()
    return keeper.reconciled


def test_an_object_that_raises_delays_no_other_and_is_retried_with_growing_pauses() -> None:
    bench, before = Bench(), faults()
    keeper = Keeper(bench.means())
    keeper.poison = {"b"}
    with bench.writing(), capture_logs() as logs:
        assert looked(bench, keeper, "a", "b", "c") == ["a", "b", "c"]
        assert [looked(bench, keeper, seconds=each) for each in (0.4, 0.1, 0.9, 0.1)] == [
            [],
            ["b"],
            [],
            ["b"],
        ]
        assert keeper.written == ["a", "c"]
        assert [line["object"] for line in logs] == ["b"]
        assert faults() - before == 3
        keeper.poison.clear()
        assert looked(bench, keeper, "b") == ["b"]
        keeper.poison = {"b"}
        looked(bench, keeper, "b")
    assert [line["object"] for line in logs] == ["b", "b"]


def test_a_write_with_an_unexpected_exception_is_counted_logged_once_and_retried() -> None:
    bench = Bench()
    keeper = Keeper(bench.means())
    keeper.faults = [ValueError("ouch"), ValueError("ouch")]
    with bench.writing(), capture_logs() as logs:
        looked(bench, keeper, "a")
        looked(bench, keeper, seconds=0.5)
        looked(bench, keeper, seconds=1.0)
    assert keeper.written == ["a"] * 3
    assert len([line for line in logs if line["event"] == "an object could not be reconciled"]) == 1


@each_of(Conflict(409), Forbidden(403), NotFound(404))
def test_a_refused_write_is_retried_after_a_pause(fault: ApiError) -> None:
    bench = Bench()
    keeper = Keeper(bench.means())
    keeper.faults = [fault]
    with bench.writing(), capture_logs():
        looked(bench, keeper, "a")
        assert looked(bench, keeper, seconds=0.4) == []
        assert looked(bench, keeper, seconds=0.1) == ["a"]


def test_a_deleted_object_is_not_written_again_and_its_failures_are_forgotten() -> None:
    bench = Bench()
    keeper = Keeper(bench.means())
    keeper.faults = [NotFound(404)] * 3
    with bench.writing(), capture_logs():
        looked(bench, keeper, "a")
        assert looked(bench, keeper, seconds=0.5) == ["a"]
        keeper.gone = {"a"}
        assert looked(bench, keeper, seconds=1.0) == ["a"]
        assert looked(bench, keeper, seconds=1000.0) == []
        keeper.gone.clear()
        looked(bench, keeper, "a")
        assert looked(bench, keeper, seconds=0.5) == ["a"], "the first pause again"
    assert len(keeper.written) == 4


def test_an_outage_is_followed_by_a_write_within_half_a_minute() -> None:
    bench = Bench()
    keeper = Keeper(bench.means())
    keeper.faults = [ServerFault(500)] * 400
    with bench.writing(), capture_logs():
        looked(bench, keeper, "a")
        for _ in range(100):
            looked(bench, keeper, seconds=30.0)
        keeper.faults, keeper.written = [], []
        for _ in range(3):
            looked(bench, keeper, seconds=30.0)
        assert keeper.written


def test_a_follower_writes_nothing_and_remembers_no_failures() -> None:
    bench = Bench()
    keeper = Keeper(bench.means())
    bench.leading = False
    with bench.writing():
        assert looked(bench, keeper, "a", "b") == []
        assert keeper.waiting_count == 0
        bench.leading = True
        assert looked(bench, keeper, "a") == ["a"]
    assert keeper.written == ["a"]


def test_a_write_dropped_by_the_fence_is_due_at_once() -> None:
    """Write it even if the lapse was too short for a look."""
    bench = Bench()
    keeper = Keeper(bench.means())
    with bench.writing():
        bench.fence.append(False)
        looked(bench, keeper, "a")
        assert keeper.written == []
        assert looked(bench, keeper) == ["a"]
    assert keeper.written == ["a"]


def test_the_queue_of_pending_writes_is_shown() -> None:
    bench = Bench()
    keeper = Keeper(bench.means())
    keeper.poison = {"a", "b"}
    with bench.writing(), capture_logs():
        looked(bench, keeper, "a", "b", "c")
    assert REGISTRY.get_sample_value("muster_work_queue_depth", {"part": "test"}) == 2
    bench.leading = False
    keeper.on_decisions(bench.decisions)
    assert REGISTRY.get_sample_value("muster_work_queue_depth", {"part": "test"}) == 0


def all_controllers() -> list[type[Any]]:
    found = list(Controller.__subclasses__())
    for each in found:
        found += each.__subclasses__()
    return [each for each in found if each.__module__.startswith("extender.")]


@each_of(*all_controllers())
def test_all_controllers_run_in_the_loop_that_catches_exceptions(controller: type[Any]) -> None:
    """It knows who leads, and each write passes its fence and is retried."""
    assert controller.on_decisions is Controller.on_decisions
    assert controller.write is Controller.write
    assert "reconcile" in vars(controller) or controller.__subclasses__()
    assert "_writers.submit" not in getsource(controller)


def controllers_of(bench: Bench, runs_volcano_jobs: bool = False) -> Controllers:
    work = (bench.ledger, bench.api, bench.writers, bench.leads)
    return Controllers(*work, "volcano-system", ConditionPolicy(), {}, 5, runs_volcano_jobs)


def test_every_listener_is_a_controller_or_guards_each_group_itself() -> None:
    bench = Bench()
    controllers = controllers_of(bench)
    owners = [listener.__self__ for listener in controllers.listeners]  # type: ignore[attr-defined]
    guarded = (Controller, GroupEvents, DecisionLog, QueueWaits, QuotaObjects, Releaser, Estimates)
    assert all(isinstance(owner, guarded) for owner in owners)
    assert len({type(owner) for owner in owners}) == len(owners) == 20


def test_a_group_that_breaks_its_event_or_log_line_delays_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    truly = transitions.verdict_of

    def poisoned(decision: GroupDecision) -> Any:
        if decision.key == key("bad"):
            raise RuntimeError("ouch")
        return truly(decision)

    bench = Bench(nodes("a", cpu="1"), gang("bad", 5), gang("good", 5))
    events = GroupEvents(bench.ledger, bench.recorder, bench.leads, StartChanges(), lambda: bench.now)
    reserved = DecisionLog()
    with bench.writing(), capture_logs():
        for each in (events, reserved):
            each.on_decisions(bench.decisions)
        monkeypatch.setattr(transitions, "verdict_of", poisoned)
        monkeypatch.setattr("extender.controllers.cycle.verdict_of", poisoned)
        bench.add(nodes("b", "c", "d", "e", "f", cpu="2")).settle()
        for each in (events, reserved):
            each.on_decisions(bench.decisions)
    assert {entry.decision.key for entry in reserved.latest(1)} == {key("good")}


def test_an_eviction_never_keeps_a_gate_waiting() -> None:
    """A budget that refuses a thousand evictions keeps the threads that write statuses busy."""
    bench = Bench(nodes("a", "b", cpu="1"), gang("g", 3))
    bench.bind("g-0", "a")
    bench.bind("g-1", "b")
    bench.settle()
    controllers = controllers_of(bench)
    bench.pass_time(bench.ledger.limits.deadline(3) + 1)
    assert bench.decision("g").undo
    with capture_logs():
        for look in controllers.listeners:
            if isinstance(look.__self__, EvictionsController):  # type: ignore[attr-defined]
                look(bench.decisions)
    gates, statuses = controllers.all_writers
    assert (gates.pending_count, statuses.pending_count) == (0, 2)


def test_the_pods_of_volcano_jobs_never_keep_a_gate_waiting() -> None:
    """A tenant's job that restarts all the time writes hundreds of them, again and again."""
    controllers = controllers_of(Bench(), runs_volcano_jobs=True)
    assert controllers.volcano_jobs is not None
    controllers.volcano_jobs.jobs.write(Uid("job"), lambda: None)
    assert [writers.pending_count for writers in controllers.all_writers] == [0, 0, 1]


def test_the_docs_name_every_part_that_faults_are_counted_for() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text()
    named = [controller.name for controller in all_controllers() if hasattr(controller, "name")]
    assert len(named) >= 16
    assert [
        name
        for name in (*named, "cycle", "group-events", "decision-log", "quotas")
        if f"`{name}`" not in page
    ] == []
