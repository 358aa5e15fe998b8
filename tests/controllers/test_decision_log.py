"""The decision log: each change of a group's verdict or reason is logged, and the latest ones are kept."""

from itertools import count
from typing import Any

import pytest
from structlog.testing import capture_logs

from extender.controllers import cycle as module
from extender.controllers.cycle import DecisionLog
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.snapshot.decisions import Decisions, GroupDecision
from extender.telemetry import metrics
from tests.domain.builders import foreign_pod, node
from tests.domain.world import World, gang, key, names
from tests.rows import each_of


def written(chronicle: DecisionLog, world: World) -> list[Any]:
    with capture_logs() as logs:
        chronicle.on_decisions(world.decisions)
    return logs


def turns(chronicle: DecisionLog) -> list[tuple[str, Verdict, Reason | None]]:
    return [
        (each.decision.key, each.decision.verdict, each.decision.reason) for each in chronicle.latest(1000)
    ]


def test_a_changed_verdict_is_logged_with_its_group_queue_and_reason_or_number_of_members() -> None:
    world = World(node("a"), gang("g", 5)).settle()
    (line,) = written(DecisionLog(), world)
    assert (line["event"], line["group"], line["queue"]) == ("a group waits", "team/g", "default")
    assert (line["reason"], line["detail"]) == (Reason.NEVER_FITS, world.detail("g"))
    (line,) = written(DecisionLog(), World(node("a"), gang("g", 3)).settle())
    assert line["members"] == 3


def test_all_changes_of_a_group_are_listed_newest_first() -> None:
    chronicle, world = DecisionLog(), World(node("a"), gang("g", 5)).settle()
    lines = written(chronicle, world)
    lines += written(chronicle, world.add(node("b")).settle())
    lines += written(chronicle, world.start("g"))
    assert [line["event"] for line in lines] == ["a group waits", "a group starts", "a group runs"]
    assert turns(chronicle) == [
        (key("g"), Verdict.RUNNING, None),
        (key("g"), Verdict.STARTING, None),
        (key("g"), Verdict.WAITING, Reason.NEVER_FITS),
    ]


def test_a_changed_number_alone_is_not_recorded() -> None:
    chronicle = DecisionLog()
    world = World(node("a"), gang("g", 4), foreign_pod("s", on="a", cpu="1")).settle()
    assert len(written(chronicle, world)) == 1
    before = world.detail("g")
    assert written(chronicle, world.add(foreign_pod("t", on="a", cpu="1")).settle()) == []
    assert [each.decision.detail for each in chronicle.latest(10)] == [before] != [world.detail("g")]


def test_an_unchanged_verdict_is_not_recorded_again() -> None:
    chronicle, world = DecisionLog(), World(node("a"), gang("g", 5), gang("h", 5)).settle()
    written(chronicle, world)
    written(chronicle, world)
    world.delete(*names("h", 5)).settle()
    written(chronicle, world)
    assert [group for group, *_ in turns(chronicle)].count(key("g")) == 1


def test_the_number_of_recorded_changes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_ENTRIES", 3)
    chronicle, world = DecisionLog(), World()
    for n in range(5):
        written(chronicle, world.add(gang(f"g{n}", 1)).settle())
    shown = chronicle.latest(2)
    assert [each.decision.key for each in shown] == [key("g4"), key("g3")]
    assert len(chronicle.latest(1000)) == 3
    assert chronicle.latest(0) == []
    assert shown[0].time >= shown[1].time


def test_groups_that_ran_before_a_restart_are_not_logged() -> None:
    world = World(node("a", cpu="8"), gang("g", 2)).settle()
    world.bind("g-0", "a")
    world.bind("g-1", "a")
    world.settle()
    assert world.verdict("g") is Verdict.RUNNING
    restarted = DecisionLog()
    assert written(restarted, world) == []
    assert turns(restarted) == []


def decided(serial: int, version: int, reason: Reason) -> Decisions:
    decision = GroupDecision(key("g"), "q", Verdict.WAITING, reason, "")
    return Decisions(version, {key("g"): decision}, serial=serial, changed_groups=[key("g")])


@each_of((0, 4), (1, 0))
def test_a_decision_that_goes_back_and_forth_without_an_event_is_counted_and_logged_once(
    events: int, flips: int
) -> None:
    """Each decision is published, which grows the version by one."""
    version = count(1, 1 + events)
    chronicle, at = DecisionLog(lambda: at + 1), 0
    before = metrics.decision_flips._value.get()
    with capture_logs() as logs:
        for serial, reason in enumerate([Reason.NO_ROOM, Reason.NEVER_FITS] * 3):
            at = next(version)
            chronicle.on_decisions(decided(serial, at, reason))
    assert chronicle.flip_count(key("g")) == flips == metrics.decision_flips._value.get() - before
    assert [line["event"] for line in logs].count("decisions on a group do not settle") == bool(flips)
