"""Queues looked up by name: never an answer older than the question, and never a flood of requests."""

from concurrent.futures import ThreadPoolExecutor
from threading import BoundedSemaphore, Event, Semaphore

import pytest

from extender.api.objects.queues import Queue
from extender.kube.access import AdmissionApi
from extender.kube.errors import NotFound, Unreachable
from extender.webhooks.lookups import LOOKUP_PERIOD, MAX_LOOKUPS, LookUps
from extender.webhooks.reviews import NotKnown
from tests.domain.builders import queue

PATIENCE = 10.0


class Api(AdmissionApi):
    """API that answers with the objects at the start of a look-up, once `answers` lets it."""

    def __init__(self) -> None:
        self.queues: dict[str, Queue] = {}
        self.looks: list[str] = []
        self.asked = Semaphore(0)
        self.answers = Event()
        self.answers.set()
        self.away = False

    def queue(self, name: str, timeout: float = 10) -> Queue:
        self.looks.append(name)
        found = self.queues.get(name)
        self.asked.release()
        assert self.answers.wait(PATIENCE)
        if self.away:
            raise Unreachable("away")
        if found is None:
            raise NotFound(404, "NotFound")
        return found


class LookupBench:
    """LookupBench whose time stands still except for pauses, each of which waits for `resumed`."""

    def __init__(self) -> None:
        self.api = Api()
        self.now = 0.0
        self.pausing = Semaphore(0)
        self.resumed = Event()
        self.resumed.set()
        self.look_ups = LookUps(self.api.queue, lambda: self.now, self._pause)

    def _pause(self, seconds: float) -> None:
        self.pausing.release()
        assert self.resumed.wait(PATIENCE)
        self.now += seconds

    def ask(self, name: str = "q") -> Queue | None:
        return self.look_ups.find(name, PATIENCE)


@pytest.fixture
def bench() -> LookupBench:
    return LookupBench()


def test_existing_and_missing_objects_are_distinguished(bench: LookupBench) -> None:
    bench.api.queues["q"] = queue("q")
    assert bench.ask("q") == queue("q")
    assert bench.ask("other") is None


def test_one_name_is_looked_up_at_most_once_per_interval(bench: LookupBench) -> None:
    for _ in range(3):
        bench.ask()
    assert bench.api.looks == ["q"] * 3
    assert bench.now == pytest.approx(2 * LOOKUP_PERIOD)


def test_many_reviews_share_one_look_up(bench: LookupBench) -> None:
    bench.ask()
    bench.resumed.clear()
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(bench.ask)
        bench.pausing.acquire(timeout=PATIENCE), bench.pausing.acquire(timeout=PATIENCE)
        second = threads.submit(bench.look_ups.find, "q", 0.05)
        with pytest.raises(NotKnown, match="did not answer in time"):  # it waits with the first
            second.result(PATIENCE)
        bench.resumed.set()
        assert first.result(PATIENCE) is None
    assert bench.api.looks == ["q"] * 2


def test_an_answer_is_never_older_than_its_request(bench: LookupBench) -> None:
    """The queue is created after the first look-up began and before the second review asks."""
    bench.api.answers.clear()
    with ThreadPoolExecutor(2) as threads:
        before = threads.submit(bench.ask)
        assert bench.api.asked.acquire(timeout=PATIENCE)
        bench.api.queues["q"] = queue("q")
        after = threads.submit(bench.ask)
        assert bench.api.asked.acquire(timeout=PATIENCE)
        bench.api.answers.set()
        assert before.result(PATIENCE) is None
        assert after.result(PATIENCE) == queue("q")


def test_many_names_are_looked_up_a_few_at_a_time(bench: LookupBench) -> None:
    bench.api.answers.clear()
    with ThreadPoolExecutor(MAX_LOOKUPS + 1) as threads:
        busy = [threads.submit(bench.ask, f"q-{number}") for number in range(MAX_LOOKUPS)]
        for _ in busy:
            assert bench.api.asked.acquire(timeout=PATIENCE)
        with pytest.raises(NotKnown, match="too many names are being looked up"):
            bench.look_ups.find("late", 0)
        bench.api.answers.set()
        assert {answer.result(PATIENCE) for answer in busy} == {None}
    assert bench.ask("late") is None


def test_a_failed_look_up_does_not_count_as_missing(bench: LookupBench) -> None:
    bench.api.away = True
    with pytest.raises(NotKnown, match="away"):
        bench.ask()
    bench.api.away = False
    assert bench.ask() is None


def test_reviews_that_wait_for_look_ups_leave_threads_for_others() -> None:
    """Answer the third kind at once while two kinds share a limit of two."""
    api, waiting = Api(), BoundedSemaphore(2)
    queues, others = (LookUps(api.queue, waiting_slots=waiting) for _ in range(2))
    api.answers.clear()
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.submit(queues.find, "a", PATIENCE), threads.submit(others.find, "b", PATIENCE)
        for _ in range(2):
            assert api.asked.acquire(timeout=PATIENCE)
        with pytest.raises(NotKnown, match="too many reviews wait for it"):
            queues.find("c", PATIENCE)
        api.answers.set()
        assert (first.result(PATIENCE), second.result(PATIENCE)) == (None, None)
    assert queues.find("c", PATIENCE) is None
