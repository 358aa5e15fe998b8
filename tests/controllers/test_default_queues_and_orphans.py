"""Missing default queues are created; groups of a deleted queue are deleted."""

from collections.abc import Iterator
from typing import Any

import pytest

from extender.controllers.queue_lifecycle import DefaultQueuesController, OrphanedPodGroupsController
from extender.domain.snapshot.decisions import Decisions
from extender.kube.errors import ServerFault
from tests.controllers.queue_desk import QueueDesk
from tests.domain.builders import group, queue


class Desk(QueueDesk):
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
def desk() -> Iterator[Desk]:
    made = Desk()
    with made.writing():
        yield made


BOTH = [("create", "default"), ("create", "root")]


def test_the_root_and_default_queues_are_created_and_the_default_one_again(desk: Desk) -> None:
    assert desk.look() == BOTH
    root, default = desk.copy("root").spec, desk.copy("default").spec
    assert (root.weight, root.reclaimable, root.parent) == (1, False, "")
    assert (default.weight, default.reclaimable, default.parent) == (1, True, "root")
    assert desk.look(seconds=10) == []
    del desk.store.queues["default"]
    desk.ledger.intake.drop_queue("default")
    assert desk.look(seconds=10) == [("create", "default")]


def test_existing_queues_are_not_changed(desk: Desk) -> None:
    desk.store.put(queue("default", weight=7))  # which the watch has not shown yet
    assert desk.look() == BOTH
    assert desk.copy("default").spec.weight == 7


def test_nothing_is_created_before_the_queues_are_known_or_by_a_follower(desk: Desk) -> None:
    desk.founder.on_decisions(Decisions())
    desk.leading = False
    assert desk.look() == []


# ---- groups of a queue that is gone


@pytest.fixture
def bereft(desk: Desk) -> Desk:
    """One of two queues with a group each is deleted."""
    desk.put_queues(queue("q"), queue("r"), queue("root"), queue("default"))
    desk.add(group("g", 1, "q", queue_uid="uid-q"), group("h", 1, "r", queue_uid="uid-r"))
    desk.look()
    del desk.store.queues["q"]
    desk.ledger.intake.drop_queue("q")
    return desk


def test_groups_of_a_deleted_queue_are_deleted_once_the_api_server_has_confirmed(bereft: Desk) -> None:
    assert bereft.look() == [("list", "queues")]
    assert bereft.look() == [("delete_group", "g")]
    assert bereft.store.done("delete_group") == [("g", "uid-g")]
    bereft.ledger.intake.drop_group(bereft.decision("g").key)
    assert bereft.look(seconds=60) == []


def test_a_queue_that_the_watch_does_not_show_yet_loses_no_groups(desk: Desk) -> None:
    """Keep a queue's groups that were listed later than the queues, as after a restart."""
    desk.put_queues(queue("root"), queue("default"))
    desk.store.put(queue("q"))
    desk.add(group("g", 1, "q", queue_uid="uid-q"))
    assert [desk.look(shows=False) for _ in range(3)] == [[("list", "queues")], [], []]


def test_a_deletion_that_failed_is_tried_again(bereft: Desk) -> None:
    bereft.store.fail("list", ServerFault(500))
    bereft.look()
    bereft.store.fail("delete_group", *[ServerFault(500)] * 2)
    calls = [call for _ in range(6) for call in bereft.look(seconds=60)]
    assert calls.count(("delete_group", "g")) >= 3
