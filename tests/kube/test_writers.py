"""Asynchronous writes: their order, their replacement, and the end of their retries.

Jobs block on events of the test, so every interleaving below is chosen, not hoped for.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from extender.kube.errors import ApiError, NotFound, ServerFault, TooManyRequests
from extender.kube.writers import Backoff, Writers
from tests.clock import Clock


class WriterBench:
    """Writers, and a log of the jobs that ran."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.changed = threading.Condition()

    def job(self, name: str, *faults: ApiError) -> Callable[[], None]:
        """Return a job that raises each of `faults` in turn and succeeds after."""
        left = list(faults)

        def run() -> None:
            self.record(name)
            if left:
                raise left.pop(0)

        return run

    def record(self, name: str) -> None:
        with self.changed:
            self.log.append(name)
            self.changed.notify_all()

    def wait_for(self, *log: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.log == list(log), 10), self.log


class Door:
    """A job that has begun, and ends when the test lets it."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self._open = threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        assert self._open.wait(10)

    def open(self) -> None:
        self._open.set()


@contextmanager
def writers(threads: int = 1, **options: Any) -> Iterator[Writers]:
    running = Writers(threads, "test", **{"new_backoff": lambda: Backoff(0.001), **options})
    running.start()
    try:
        yield running
    finally:
        running.stop()


def held(pool: Writers, key: str = "door") -> Door:
    """Submit a job that begins, and keeps its thread until the door is opened."""
    door = Door()
    pool.submit(key, door)
    assert door.begun.wait(10)
    return door


@pytest.fixture
def bench() -> WriterBench:
    return WriterBench()


def test_jobs_run_in_the_order_of_their_submission(bench: WriterBench) -> None:
    with writers() as pool:
        for name in "abcde":
            pool.submit(name, bench.job(name))
        bench.wait_for(*"abcde")


def test_an_urgent_job_runs_before_jobs_that_have_not_begun(bench: WriterBench) -> None:
    with writers() as pool:
        door = held(pool)
        for name in "ab":
            pool.submit(name, bench.job(name))
        pool.submit("c", bench.job("c"), is_urgent=True)
        door.open()
        bench.wait_for(*"cab")


def test_a_newer_job_takes_the_place_of_one_that_has_not_begun(bench: WriterBench) -> None:
    with writers() as pool:
        door = held(pool)
        for name in ("a1", "b1", "a2", "a3"):
            pool.submit(name[0], bench.job(name))
        assert pool.pending_count == 2
        door.open()
        bench.wait_for("a3", "b1")
        assert pool.outcome_counts["coalesced"] == 2


def test_two_jobs_of_one_key_never_run_at_the_same_time(bench: WriterBench) -> None:
    with writers(threads=2) as pool:
        door = held(pool, "a")
        pool.submit("a", bench.job("a2"))
        pool.submit("b", bench.job("b"))
        bench.wait_for("b")
        door.open()
        bench.wait_for("b", "a2")


def test_a_transient_failure_is_retried_while_others_continue(bench: WriterBench) -> None:
    with writers() as pool:
        door = held(pool)
        pool.submit("a", bench.job("a", ServerFault(500), ServerFault(503)))
        pool.submit("b", bench.job("b"))
        door.open()
        bench.wait_for("a", "b", "a", "a")
    assert pool.outcome_counts == {"retried": 2, "done": 3}


def test_the_number_of_attempts_is_bounded(bench: WriterBench) -> None:
    with writers(max_attempts=3) as pool, capture_logs() as logs:
        pool.submit("a", bench.job("a", *[ServerFault(500)] * 10))
        bench.wait_for("a", "a", "a")
    assert pool.outcome_counts == {"retried": 2, "failed": 1}
    assert [entry["attempts"] for entry in logs] == [3]


def test_a_permanent_refusal_is_not_retried(bench: WriterBench) -> None:
    with writers() as pool, capture_logs() as logs:
        pool.submit("a", bench.job("a", NotFound(404, "NotFound", "no such pod")))
        pool.submit("b", bench.job("b"))
        bench.wait_for("a", "b")
    assert pool.outcome_counts == {"failed": 1, "done": 1}
    assert logs[0]["error"] == "404 NotFound: no such pod"


def test_a_job_that_raises_does_not_end_its_thread(bench: WriterBench) -> None:
    with writers() as pool, capture_logs():
        pool.submit("a", lambda: [][0])
        pool.submit("b", bench.job("b"))
        bench.wait_for("b")
    assert pool.outcome_counts == {"failed": 1, "done": 1}


def test_a_newer_job_replaces_a_paused_one(bench: WriterBench) -> None:
    clock = Clock(0)
    with writers(clock=clock) as pool:
        pool.submit("a", bench.job("a1", ServerFault(500)))
        door = held(pool)
        pool.submit("a", bench.job("a2"))
        assert pool.pending_count == 1
        clock.now = 1
        door.open()
        bench.wait_for("a1", "a2")


def test_retry_after_counts_when_it_is_longer_than_the_pause(bench: WriterBench) -> None:
    clock = Clock(0)
    with writers(clock=clock) as pool:
        pool.submit("a", bench.job("a", TooManyRequests(429, retry_after=30)))
        bench.wait_for("a")
        pool.submit("b", bench.job("b"))
        bench.wait_for("a", "b")
        clock.now = 29.9
        pool.submit("c", bench.job("c"))
        bench.wait_for("a", "b", "c")
        clock.now = 30
        pool.submit("d", bench.job("d"))
        bench.wait_for("a", "b", "c", "d", "a")


def test_a_failed_job_does_not_replace_a_newer_one(bench: WriterBench) -> None:
    clock, door = Clock(0), Door()

    def fail_behind_the_door() -> None:
        door()
        raise ServerFault(500)

    with writers(clock=clock) as pool:
        pool.submit("a", fail_behind_the_door)
        assert door.begun.wait(10)
        pool.submit("a", bench.job("a2"))
        door.open()
        bench.wait_for("a2")
        clock.now = 1
        pool.submit("b", bench.job("b"))
        bench.wait_for("a2", "b")
        pool.submit("c", bench.job("c"))
        bench.wait_for("a2", "b", "c")
    assert pool.outcome_counts == {"retried": 1, "done": 3}


def test_a_closed_fence_stops_all_writes(bench: WriterBench) -> None:
    leading = iter([False, False, True])
    with writers(may_write=lambda: next(leading)) as pool:
        for name in "abc":
            pool.submit(name, bench.job(name))
        bench.wait_for("c")
    assert pool.outcome_counts == {"fenced": 2, "done": 1}


def test_the_fence_is_checked_before_each_attempt(bench: WriterBench) -> None:
    clock, leading = Clock(0), [True]

    def fence() -> bool:
        bench.record("asked")
        return leading[0]

    with writers(may_write=fence, clock=clock) as pool:
        pool.submit("a", bench.job("a", ServerFault(500)))
        pool.submit("b", bench.job("b"))
        bench.wait_for("asked", "a", "asked", "b")
        leading[0] = False
        clock.now = 1
        pool.submit("c", bench.job("c"))
        bench.wait_for("asked", "a", "asked", "b", "asked", "asked")
    assert pool.outcome_counts == {"retried": 1, "done": 1, "fenced": 2}


def test_the_callback_of_a_write_is_called_once(bench: WriterBench) -> None:
    leading = iter([True, True, True, True, False, True])
    with writers(max_attempts=2, may_write=lambda: next(leading)) as pool, capture_logs():
        pool.submit("a", bench.job("a"), lambda fault: bench.record(f"a: {fault}"))
        bench.wait_for("a", "a: None")
        pool.submit("b", bench.job("b", *[ServerFault(500)] * 2), lambda fault: bench.record(f"b: {fault}"))
        bench.wait_for("a", "a: None", "b", "b", "b: 500")
        bench.log.clear()
        pool.submit("c", lambda: [][0], lambda fault: bench.record(f"c: {type(fault).__name__}"))
        pool.submit("d", bench.job("d"), lambda fault: bench.record(f"d: {type(fault).__name__}"))
        bench.wait_for("c: ApiError", "d: Fenced")


def test_the_callback_of_a_replaced_write_is_not_called(bench: WriterBench) -> None:
    with writers() as pool:
        door = held(pool)
        pool.submit("a", bench.job("a1"), lambda fault: bench.record("the end of a1"))
        pool.submit("a", bench.job("a2"), lambda fault: bench.record("the end of a2"))
        door.open()
        bench.wait_for("a2", "the end of a2")


def test_the_callback_runs_before_another_write_of_the_key_begins(bench: WriterBench) -> None:
    door, end = Door(), Door()
    with writers(threads=2) as pool:
        pool.submit("a", door, lambda fault: end())
        assert door.begun.wait(10)
        pool.submit("a", bench.job("a2"))
        door.open()
        assert end.begun.wait(10)
        pool.submit("b", bench.job("b"))
        bench.wait_for("b")
        end.open()
        bench.wait_for("b", "a2")


def test_a_callback_that_raises_ends_no_thread(bench: WriterBench) -> None:
    with writers() as pool, capture_logs():
        pool.submit("a", bench.job("a"), lambda fault: [][0])
        bench.wait_for("a")
        pool.submit("a", bench.job("again"))
        bench.wait_for("a", "again")


def test_stopping_begins_no_further_write_and_ends_the_threads(bench: WriterBench) -> None:
    with writers() as pool:
        door = held(pool)
        pool.submit("a", bench.job("a"))
        stopping = threading.Thread(target=pool.stop)
        stopping.start()
        while pool.pending_count:
            pass
        door.open()
        stopping.join()
        pool.submit("late", bench.job("late"))
        assert pool.pending_count == 0
    assert bench.log == []
    assert not any(thread.name.startswith("test-") for thread in threading.enumerate())


def test_stopping_before_the_start_is_no_fault(bench: WriterBench) -> None:
    pool = Writers(1, "test")
    pool.submit("a", bench.job("a"))
    pool.stop()
    assert pool.pending_count == 0
