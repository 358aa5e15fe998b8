"""Work queue: each key once, urgent ones first, backoff after failures, and no keys of deleted objects."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.controllers.work_queue import MAX_PAUSE, WorkQueue


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


def drained(queue: WorkQueue[str]) -> list[str]:
    found = []
    while (key := queue.get()) is not None:
        found.append(key)
    return found


def test_a_key_is_due_once_however_often_it_was_added(time: Time) -> None:
    queue = WorkQueue[str](time)
    for key in "abab":
        queue.add(key)
    assert drained(queue) == ["a", "b"]


def test_a_key_is_due_at_the_earlier_of_two_times(time: Time) -> None:
    queue = WorkQueue[str](time)
    queue.add("a", 5.0)
    queue.add("a", 2.0)
    queue.add("a", 9.0)
    assert drained(queue) == []
    time.now = 2.0
    assert drained(queue) == ["a"]


def test_a_key_can_be_put_off(time: Time) -> None:
    queue = WorkQueue[str](time)
    queue.add("a")
    queue.move("a", 3.0)
    assert drained(queue) == []
    time.now = 3.0
    assert drained(queue) == ["a"]


def test_the_urgent_lane_comes_first_and_a_key_rises_to_it(time: Time) -> None:
    queue = WorkQueue[str](time, lane_count=3)
    queue.add("number", lane=2)
    queue.add("course", lane=1)
    queue.add("turned", lane=2)
    queue.add("turned", lane=0)
    assert queue.get(last_lane=0) == "turned"
    assert queue.get(last_lane=0) is None
    assert drained(queue) == ["course", "number"]


def test_the_longest_waiting_key_of_a_lane_comes_first_even_if_moved_within_it(time: Time) -> None:
    queue = WorkQueue[str](time, lane_count=2)
    queue.move("a", 1.0, lane=1)
    queue.move("b", 2.0, lane=1)
    time.now = 10.0
    queue.move("a", 1.0 - time.now, lane=1)
    assert drained(queue) == ["a", "b"]


def test_a_failing_key_is_due_after_growing_pauses_until_it_succeeds(time: Time) -> None:
    queue = WorkQueue[str](time)
    pauses = []
    for _ in range(9):
        began = time.now
        queue.retry("a")
        while queue.get() is None:
            time.now += 0.5
        pauses.append(time.now - began)
    assert pauses == [0.5, 1, 2, 4, 8, 16, MAX_PAUSE, MAX_PAUSE, MAX_PAUSE]
    queue.reset_backoff("a")
    queue.retry("a")
    time.now += 0.5
    assert drained(queue) == ["a"]


def test_a_deleted_key_is_forgotten_with_its_failures(time: Time) -> None:
    queue = WorkQueue[str](time)
    queue.retry("a")
    queue.retry("a")
    queue.forget("a")
    assert len(queue) == 0
    time.now = 100.0
    assert drained(queue) == []
    queue.retry("a")
    time.now += 0.5
    assert drained(queue) == ["a"]


def change(queue: WorkQueue[str], step: str, key: str, number: int) -> None:
    match step:
        case "add":
            queue.add(key, number, number % 2)
        case "move":
            queue.move(key, number, number % 2)
        case _:
            queue.retry(key)


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.sampled_from(["add", "move", "retry", "forget", "take"]),
            st.integers(0, 3),
        ),
        max_size=60,
    )
)
def test_the_queue_holds_at_most_one_place_for_a_key(steps: list[tuple[str, str, int]]) -> None:
    time = Time()
    queue, wanted = WorkQueue[str](time, lane_count=2), set[str | None]()
    for key, step, number in steps:
        if step == "take":
            wanted -= {queue.get()}
        elif step == "forget":
            queue.forget(key)
            wanted -= {key}
        else:
            change(queue, step, key, number)
            wanted |= {key}
        assert len(queue) == len(wanted)
        time.now += 0.5
    time.now += 100.0
    assert {*drained(queue)} == wanted
