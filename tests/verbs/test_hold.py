"""One held bind call: woken once, with one result, whichever comes first."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier as StartingLine

import pytest

from extender.domain.cache.ledger import Ledger
from extender.domain.model.records import PodRecord
from extender.verbs.hold import Hold
from tests.domain.builders import pod
from tests.domain.world import World
from tests.verbs.stage import PATIENCE, Patient


def record(ledger: Ledger) -> PodRecord:
    found = ledger.find_pod("team", "p")
    assert found is not None
    return found


@pytest.fixture
def hold() -> Hold:
    return Hold(record(World(pod("p")).ledger), "a", Patient(), 1000.0)


def test_a_hold_has_no_verdict_while_it_waits(hold: Hold) -> None:
    assert hold.waiting
    assert hold.wait(0) is None
    assert hold.wait(-5) is None


def test_a_hold_is_given_up_once(hold: Hold) -> None:
    assert hold.give_up("first")
    assert not hold.give_up("second")
    assert not hold.begin_posting()
    assert [hold.wait(0), hold.wait(0), hold.waiting] == ["first", "first", False]


def test_a_hold_is_posted_once_and_then_not_given_up(hold: Hold) -> None:
    assert hold.begin_posting()
    assert not hold.begin_posting()
    assert not hold.give_up("too late")
    assert hold.wait(0) is None
    hold.finish("")
    assert hold.wait(0) == ""
    assert not hold.give_up("too late")


def test_its_verdict_wakes_the_thread_that_waits(hold: Hold) -> None:
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(hold.wait, PATIENCE)
        hold.give_up("over")
        assert waiting.result(PATIENCE) == "over"


def test_of_giving_up_and_posting_exactly_one_happens() -> None:
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
            outcomes.add(hold.wait(0))
            assert hold.wait(0) == ("posted", "x", "y")[won.index(True)]
    assert None not in outcomes
