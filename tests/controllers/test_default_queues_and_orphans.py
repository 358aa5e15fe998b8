"""Missing default queues are created; groups of a deleted queue are deleted."""

from collections.abc import Iterator
from typing import Any

import pytest

from extender.controllers.queue_lifecycle import DefaultQueuesController, OrphanedPodGroupsController
from extender.domain.snapshot.decisions import Decisions
from extender.kube.errors import ServerFault
from tests.controllers.queue_bench import QueueBench
from tests.domain.builders import group, queue


class DefaultQueueBench(QueueBench):
    def __init__(self) -> None:
        super().__init__()
        means = self.means(self.store)
        self.founder, self.clearer = DefaultQueuesController(means), OrphanedPodGroupsController(means)

    def look(self, seconds: float = 1.0, shows: bool = True) -> list[Any]:
        self.now += seconds
        self.store.calls = []
        decisions = self.settle().decisions
        for each in (self.founder, self.clearer):
            each.on_decisions(decisions)
        self.flush()
        if shows:
            self.show_all()
        return sorted(call[:2] for call in self.store.calls)


@pytest.fixture
def bench() -> Iterator[DefaultQueueBench]:
    new_bench = DefaultQueueBench()
    with new_bench.writing():
        yield new_bench


BOTH = [("create", "default"), ("create", "root")]


def test_the_root_and_default_queues_are_created_and_the_default_one_again(bench: DefaultQueueBench) -> None:
    assert bench.look() == BOTH
    root, default = bench.copy("root").spec, bench.copy("default").spec
    assert (root.weight, root.reclaimable, root.parent) == (1, False, "")
    assert (default.weight, default.reclaimable, default.parent) == (1, True, "root")
    assert bench.look(seconds=10) == []
    del bench.store.queues["default"]
    bench.ledger.intake.drop_queue("default")
    assert bench.look(seconds=10) == [("create", "default")]


def test_existing_queues_are_not_changed(bench: DefaultQueueBench) -> None:
    bench.store.put(queue("default", weight=7))  # which the watch has not shown yet
    assert bench.look() == BOTH
    assert bench.copy("default").spec.weight == 7


def test_nothing_is_created_before_the_queues_are_known_or_by_a_follower(bench: DefaultQueueBench) -> None:
    bench.founder.on_decisions(Decisions())
    bench.leading = False
    assert bench.look() == []


# ---- groups of a queue that is gone


@pytest.fixture
def bereft(bench: DefaultQueueBench) -> DefaultQueueBench:
    """Delete one of two queues with a group each."""
    bench.put_queues(queue("q"), queue("r"), queue("root"), queue("default"))
    bench.add(group("g", 1, "q", queue_uid="uid-q"), group("h", 1, "r", queue_uid="uid-r"))
    bench.look()
    del bench.store.queues["q"]
    bench.ledger.intake.drop_queue("q")
    return bench


def test_groups_of_a_deleted_queue_are_deleted_once_the_api_server_has_confirmed(
    bereft: DefaultQueueBench,
) -> None:
    assert bereft.look() == [("list", "queues")]
    assert bereft.look() == [("delete_group", "g")]
    assert bereft.store.done("delete_group") == [("g", "uid-g")]
    bereft.ledger.intake.drop_group(bereft.decision("g").key)
    assert bereft.look(seconds=60) == []


def test_a_queue_that_the_watch_does_not_show_yet_loses_no_groups(bench: DefaultQueueBench) -> None:
    """Keep a queue's groups that were listed later than the queues, as after a restart."""
    bench.put_queues(queue("root"), queue("default"))
    bench.store.put(queue("q"))
    bench.add(group("g", 1, "q", queue_uid="uid-q"))
    assert [bench.look(shows=False) for _ in range(3)] == [[("list", "queues")], [], []]


def test_a_deletion_that_failed_is_tried_again(bereft: DefaultQueueBench) -> None:
    bereft.store.fail("list", ServerFault(500))
    bereft.look()
    bereft.store.fail("delete_group", *[ServerFault(500)] * 2)
    calls = [call for _ in range(6) for call in bereft.look(seconds=60)]
    assert calls.count(("delete_group", "g")) >= 3
