"""Queues are told what was decided: on change, at a pace, and again when a write was lost."""

from collections.abc import Hashable
from typing import Any

from extender.controllers.queue_reporting import QueueReporter
from extender.kube.errors import ApiError, Fenced, Unreachable
from extender.kube.writers import Ended, Job
from tests.domain.builders import node, queue
from tests.domain.world import World, gang


class Desk:
    """Remembers what is written to which queue, and runs writes when the test says so."""

    def __init__(self) -> None:
        self.world = World(node("a", cpu="4"), queue("q"), gang("g", 2, queue="q"))
        self.statuses: list[dict[str, Any]] = []
        self.jobs: dict[Hashable, tuple[Job, Ended]] = {}
        self.leading = True
        self.broken = False
        self.reporter = QueueReporter(
            self.world.ledger,
            self,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            lambda: self.leading,
            lambda: self.world.now,
        )

    def submit(self, key: Hashable, job: Job, ended: Ended) -> None:
        self.jobs[key] = (job, ended)

    def patch_queue_status(self, name: str, patch: dict[str, Any]) -> None:
        if self.broken:
            raise Unreachable("down")
        self.statuses.append(patch["status"])

    def look(self, seconds: float = 2.0) -> None:
        self.world.now += seconds
        self.reporter.look(self.world.settle().decisions)

    def write(self) -> None:
        jobs, self.jobs = self.jobs, {}
        for job, ended in jobs.values():
            fault = None
            try:
                job()
            except ApiError as raised:
                fault = raised
            ended(fault)

    def drop(self) -> None:
        """As the fence does."""
        jobs, self.jobs = self.jobs, {}
        for _, ended in jobs.values():
            ended(Fenced())


def test_a_queue_is_told_its_state_and_counts_once() -> None:
    desk = Desk()
    desk.look()
    desk.look()
    desk.write()
    desk.look()
    assert not desk.jobs
    (status,) = desk.statuses
    assert (status["state"], status["inqueue"], status["pending"]) == ("Open", 1, 0)


def test_a_change_waits_for_its_second() -> None:
    desk = Desk()
    desk.look()
    desk.write()
    desk.world.delete("g-0", "g-1")
    desk.look(seconds=0.5)
    assert not desk.jobs
    desk.look(seconds=0.6)
    assert desk.jobs


def test_amounts_that_are_gone_are_written_as_zero() -> None:
    desk = Desk()
    desk.look()
    desk.write()
    deserved = desk.statuses[0]["deserved"]
    assert deserved["cpu"] == "2"
    desk.world.ledger.drop_group(desk.world.decision("g").key)
    desk.world.delete("g-0", "g-1")
    desk.look()
    desk.write()
    assert desk.statuses[-1]["deserved"] == dict.fromkeys(deserved, "0")


def test_a_write_that_failed_is_made_again() -> None:
    desk = Desk()
    desk.look()
    desk.broken = True
    desk.write()
    desk.broken = False
    desk.look()
    desk.write()
    assert len(desk.statuses) == 1


def test_what_the_fence_dropped_is_written_later() -> None:
    """Also when the lapse was too short for a look."""
    desk = Desk()
    desk.look()
    desk.drop()
    desk.look()
    assert desk.jobs


def test_what_another_leader_may_have_written_is_written_by_the_next_term() -> None:
    desk = Desk()
    desk.look()
    desk.write()
    desk.leading = False
    desk.look()
    desk.leading = True
    desk.look()
    assert desk.jobs
