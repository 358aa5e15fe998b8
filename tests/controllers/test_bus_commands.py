"""Bus commands: executed once, in order, and removed once they took effect.

Invalid ones are refused and removed.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from extender.api import keys
from extender.api.objects.queues import Command
from extender.controllers.queue_lifecycle import BusCommandsController
from extender.domain.queues.states import command_record, first_of_each_queue
from extender.kube.errors import Forbidden, ServerFault
from tests.controllers.queue_desk import QueueDesk, command, gone
from tests.domain.builders import queue


class Desk(QueueDesk):
    def __init__(self) -> None:
        super().__init__()
        self.begin()

    def begin(self) -> None:
        """Start a new process, which reads the existing objects."""
        self.commander = BusCommandsController(self.means(self.store), self.recorder)
        for each in self.store.commands.values():
            self.commander.upsert(each)

    def order(self, *commands: Command) -> None:
        for each in commands:
            self.store.commands[each.metadata.name] = each
            self.commander.upsert(each)

    def look(self, seconds: float = 1.0) -> list[Any]:
        self.now += seconds
        before = dict(self.store.commands)
        self.store.calls = []
        self.commander.on_decisions(self.settle().decisions)
        self.flush()
        self.show_all()
        for name in before.keys() - self.store.commands.keys():
            self.commander.remove(gone(before[name]))
        return [call[:2] for call in self.store.calls]

    def state(self, name: str = "q") -> str:
        return self.copy(name).spec.state


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    with made.writing():
        made.put_queues(queue("q"), queue("root"))
        yield made


def test_a_command_takes_effect_in_one_write_with_its_record_and_is_removed_then(desk: Desk) -> None:
    desk.order(command("c", "CloseQueue", "q"))
    assert desk.look() == [("patch_queue", "q")]
    ((_, patch),) = desk.store.done("patch_queue")
    assert patch["spec"] == {"state": "Closed"}
    assert patch["metadata"]["annotations"] == {keys.LAST_COMMAND: "uid-c"}
    assert (desk.state(), {*desk.store.commands}) == ("Closed", {"c"})
    assert desk.look() == [("delete_command", "c")]
    assert desk.look() == []
    desk.order(command("d", "OpenQueue", "q"))
    desk.look()
    assert desk.state() == "Open"


def test_commands_for_one_queue_are_followed_in_their_order(desk: Desk) -> None:
    late = command("a", "OpenQueue", "q", version=12)
    early = command("b", "CloseQueue", "q", version=9)
    desk.order(late, early)
    seen = [desk.state() for _ in range(4) if desk.look()]
    assert seen == ["Closed", "Closed", "Open", "Open"]


def test_each_queue_has_its_own_order() -> None:
    given = [command("a", "CloseQueue", "p"), command("b", "CloseQueue", "q")]
    given.append(command("c", "OpenQueue", "p", version=2))
    records = [record for each in given if (record := command_record(each))]
    assert [each.name for each in first_of_each_queue(records)] == ["a", "b"]


def test_a_restart_between_effect_and_removal_does_not_repeat_it(desk: Desk) -> None:
    desk.order(command("c", "CloseQueue", "q"))
    desk.look()
    desk.edit("q", state="Open")  # by a user
    desk.begin()
    assert desk.look() == [("delete_command", "c")]
    assert desk.state() == "Open"


def test_a_restart_before_the_effect_loses_nothing(desk: Desk) -> None:
    desk.order(command("c", "CloseQueue", "q"))
    desk.begin()
    desk.look()
    assert desk.state() == "Closed"


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (command("c", "DrainQueue", "q"), "action is 'DrainQueue': must be OpenQueue or CloseQueue"),
        (command("c", "CloseQueue", "root"), "queue root"),
        (command("c", "CloseQueue", "none"), "no queue none"),
        (command("c", "CloseQueue", "q", uid="its-predecessor"), "'its-predecessor'"),
        (command("c", "CloseQueue", "q", uid=""), "no queue q with the UID ''"),
    ],
)
def test_an_invalid_command_is_refused_and_removed(desk: Desk, bad: Command, why: str) -> None:
    desk.order(bad)
    with capture_logs() as logs:
        desk.look()
    assert (desk.store.commands, desk.store.done("patch_queue")) == ({}, [])
    (refusal,) = [log for log in logs if "refused" in log["event"]]
    assert why in refusal["why"]
    refusals = [(name, reason) for name, reason, message in desk.events() if why in message]
    assert refusals == [(bad.target.name, "CommandRefused")][: bad.target.name != "none"]  # type: ignore[union-attr]


def test_a_queue_that_the_watch_has_not_shown_yet_is_waited_for(desk: Desk) -> None:
    desk.store.put(queue("new"))
    desk.order(command("c", "CloseQueue", "new"))
    desk.now += 1
    desk.commander.on_decisions(desk.settle().decisions)
    desk.flush()
    assert {*desk.store.commands} == {"c"}
    desk.show("new")
    desk.look()
    assert desk.state("new") == "Closed"


def test_commands_for_other_controllers_are_left_alone(desk: Desk) -> None:
    theirs = command("c", "AbortJob", "q", kind="Job")
    desk.order(theirs, Command(theirs.metadata, "OpenQueue"))
    assert desk.look() == []


def test_a_step_that_failed_is_tried_again(desk: Desk) -> None:
    desk.store.fail("patch_queue", Forbidden(403, "Forbidden"))
    desk.order(command("c", "CloseQueue", "q"))
    desk.look()
    assert desk.state() == ""
    assert desk.look(seconds=0.4) == []
    desk.look(seconds=0.2)
    assert desk.state() == "Closed"
    desk.store.fail("delete_command", ServerFault(500), ServerFault(500))
    for _ in range(3):
        desk.look(seconds=60)
    assert desk.store.commands == {}
