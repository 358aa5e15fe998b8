"""One held bind call: it ends once, with one result, whichever comes first."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier as StartingLine

import pytest

from extender.domain.ledger.ledger import Ledger
from extender.domain.model.records import PodRecord
from extender.verbs.barrier import Hold
from tests.domain.builders import pod
from tests.domain.world import World
from tests.rows import each_of
from tests.verbs.stage import PATIENCE, Patient


def record(ledger: Ledger) -> PodRecord:
    found = ledger.pods.find("team", "p")
    assert found is not None
    return found


@pytest.fixture
def hold() -> Hold:
    return Hold(record(World(pod("p")).ledger), "a", Patient(), 1000.0)


def test_a_hold_waits_without_a_verdict_and_is_given_up_once(hold: Hold) -> None:
    assert (hold.result, hold.is_waiting) == (None, True)
    assert hold.give_up("first")
    assert not hold.give_up("second")
    assert not hold.begin_posting()
    assert (hold.result, hold.is_waiting) == ("first", False)


def test_a_hold_is_posted_once_and_then_not_given_up(hold: Hold) -> None:
    assert hold.begin_posting()
    assert not hold.begin_posting()
    assert not hold.give_up("too late")
    assert [hold.result] == [None]
    hold.finish("")
    assert [hold.result] == [""]
    assert not hold.give_up("too late")


@each_of(lambda hold: hold.give_up("over"), lambda hold: hold.finish("over"))
def test_the_waiting_caller_gets_one_result(ends: Callable[[Hold], object]) -> None:
    seen: list[str | None] = []
    made = Hold(record(World(pod("p")).ledger), "a", Patient(), 1000.0, lambda: seen.append(made.result))
    ends(made)
    made.give_up("again")
    assert seen == ["over"]


def test_a_hold_is_either_posted_or_given_up() -> None:
    pod_record = record(World(pod("p")).ledger)
    outcomes = set()
    with ThreadPoolExecutor(3) as pool:
        for _ in range(300):
            hold, line = Hold(pod_record, "a", Patient(), 1000.0), StartingLine(3)

            def run(act: str, hold: Hold = hold, line: StartingLine = line) -> bool:
                line.wait(PATIENCE)
                return hold.begin_posting() if act == "post" else hold.give_up(act)

            won = [act.result(PATIENCE) for act in [pool.submit(run, name) for name in ("post", "x", "y")]]
            assert won.count(True) == 1
            if won[0]:
                hold.finish("posted")
            outcomes.add(hold.result)
            assert hold.result == ("posted", "x", "y")[won.index(True)]
    assert None not in outcomes
