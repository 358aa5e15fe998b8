"""The cycle: decides when something changed or time matters, and calls all listeners."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition, Event, RLock

import pytest
from structlog.testing import capture_logs

from extender.controllers.cycle import DecisionLoop, Listener
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.ownership import Ownership
from extender.domain.model.reasons import Verdict
from extender.domain.scheduling.decide import decide as decide_truly
from extender.domain.snapshot.decisions import Decisions
from extender.domain.snapshot.snapshot import Snapshot
from tests.domain.builders import SCHEDULER, node, pod
from tests.domain.world import gang, key

PATIENCE = 10.0
SECONDS = 1000.0


class Wheel:
    """A cycle over a ledger; `seen` are the decisions that a listener got."""

    def __init__(self, *others: Listener) -> None:
        self.now = SECONDS
        self.isready = True
        self.seen: list[Decisions] = []
        self.ledger = Ledger(
            Ownership(frozenset({SCHEDULER})),
            clock=lambda: self.now,
            lock=RLock(),
            on_change=lambda: self.cycle.wake_up(),
        )
        self.changed = Condition()
        self.cycle = DecisionLoop(
            self.ledger, (*others, self._look), is_ready=lambda: self.isready, clock=lambda: self.now
        )

    def _look(self, decisions: Decisions) -> None:
        with self.changed:
            self.seen.append(decisions)
            self.changed.notify_all()

    def once(self) -> Decisions:
        self.cycle.run_once()
        return self.seen[-1]

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, PATIENCE)

    @contextmanager
    def turning(self) -> Iterator[None]:
        self.cycle.start()
        try:
            yield
        finally:
            self.cycle.stop()


def settled(wheel: Wheel) -> Decisions:
    """Return the decisions after the cycle that follows the publishing of a plan, which is a change too."""
    wheel.once()
    return wheel.once()


def test_what_changed_is_decided_and_shown() -> None:
    wheel = Wheel()
    wheel.ledger.intake.set_node(node("a"))
    wheel.ledger.pods.set_pod(pod("p"))
    assert wheel.once().groups[key("pod:p")].verdict is Verdict.STARTING


def test_without_changes_listeners_run_but_nothing_is_decided_again() -> None:
    wheel = Wheel()
    wheel.ledger.pods.set_pod(pod("p"))
    before = settled(wheel)
    assert wheel.once() is before
    assert len(wheel.seen) == 3


def test_many_changes_cause_one_decision() -> None:
    wheel = Wheel()
    for n in range(100):
        wheel.ledger.pods.set_pod(pod(f"p{n}"))
    assert len(wheel.once().groups) == 100
    assert len({id(each) for each in wheel.seen}) == 1


def test_before_the_cluster_is_read_nothing_is_decided() -> None:
    wheel = Wheel()
    wheel.isready = False
    wheel.ledger.pods.set_pod(pod("p"))
    assert wheel.once().groups == {}
    wheel.isready = True
    assert len(wheel.once().groups) == 1


def test_a_passed_deadline_causes_another_decision() -> None:
    wheel = Wheel()
    wheel.ledger.intake.set_node(node("a", cpu="1"))
    group, _, missing = gang("g", 2, admitted=True)
    wheel.ledger.intake.set_group(group)
    wheel.ledger.pods.set_pod(pod("g-0", "g", on="a"))
    wheel.ledger.pods.set_pod(missing)
    before = settled(wheel)
    assert before.requeue_at is not None
    wheel.now = before.requeue_at - 0.1
    assert wheel.once() is before
    wheel.now = before.requeue_at
    assert wheel.once() is not before


# ---- the thread


def test_a_change_starts_a_cycle() -> None:
    wheel = Wheel()
    with wheel.turning():
        wheel.wait_for(lambda: bool(wheel.seen))
        wheel.ledger.pods.set_pod(pod("p"))
        wheel.wait_for(lambda: key("pod:p") in wheel.seen[-1].groups)


def test_listeners_run_regularly_without_any_change() -> None:
    wheel = Wheel()
    with wheel.turning():
        wheel.wait_for(lambda: len(wheel.seen) >= 3)
    assert len({id(each) for each in wheel.seen}) <= 2


def test_a_change_during_a_decision_is_seen_by_the_next() -> None:
    inside, outside = Event(), Event()

    def dawdle(decisions: Decisions) -> None:
        if not inside.is_set():
            inside.set()
            assert outside.wait(PATIENCE)

    wheel = Wheel(dawdle)
    with wheel.turning():
        assert inside.wait(PATIENCE)
        for n in range(50):
            wheel.ledger.pods.set_pod(pod(f"p{n}"))
        outside.set()
        wheel.wait_for(lambda: len(wheel.seen[-1].groups) == 50 if wheel.seen else False)
    assert {len(each.groups) for each in wheel.seen} == {0, 50}


def raises(decisions: Decisions) -> None:
    raise RuntimeError("ouch")


def test_a_listener_that_raises_stops_neither_the_cycle_nor_other_listeners() -> None:
    wheel = Wheel(raises)
    with capture_logs() as logs, wheel.turning():
        wheel.wait_for(lambda: len(wheel.seen) >= 2)
    assert [line["log_level"] for line in logs] == ["error"]


def test_a_decision_that_raises_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [RuntimeError("ouch"), RuntimeError("from nothing, too")]

    def decide(snapshot: Snapshot, previous: Decisions | None = None) -> Decisions:
        if failures:
            raise failures.pop()
        return decide_truly(snapshot, previous)

    monkeypatch.setattr("extender.controllers.cycle.decide", decide)
    wheel = Wheel()
    wheel.ledger.pods.set_pod(pod("p"))
    with capture_logs() as logs:
        assert wheel.once().groups == {}
        assert key("pod:p") in wheel.once().groups
    assert [line["object"] for line in logs] == ["remembered decisions", "decide"]


def test_a_fault_in_the_record_of_decisions_stops_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """It saves work only: where it cannot be used, all is decided from nothing, at once."""

    def decide(snapshot: Snapshot, previous: Decisions | None = None) -> Decisions:
        if previous is not None:
            raise KeyError("a group that is gone")
        return decide_truly(snapshot)

    monkeypatch.setattr("extender.controllers.cycle.decide", decide)
    wheel = Wheel()
    with capture_logs() as logs:
        for number in range(3):
            wheel.ledger.pods.set_pod(pod(f"p{number}"))
            wheel.now += 1
            assert key(f"pod:p{number}") in wheel.once().groups
    assert [line["object"] for line in logs] == ["remembered decisions"]
    assert wheel.cycle.last_run_at == wheel.now


def test_the_time_of_its_last_run_is_known_also_if_a_listener_raises() -> None:
    """A restart, for a liveness probe that fails, would meet the same object again."""
    for wheel in (Wheel(), Wheel(raises)):
        wheel.now += 7
        assert wheel.cycle.last_run_at == SECONDS
        with capture_logs():
            wheel.once()
        assert wheel.cycle.last_run_at == SECONDS + 7


def test_a_cycle_that_cannot_decide_fails_the_liveness_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    def decide(snapshot: Snapshot, previous: Decisions | None = None) -> Decisions:
        raise RuntimeError("ouch")

    monkeypatch.setattr("extender.controllers.cycle.decide", decide)
    wheel = Wheel()
    wheel.now += 7
    with capture_logs():
        wheel.once()
    assert wheel.cycle.last_run_at == SECONDS
