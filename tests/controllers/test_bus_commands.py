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
from tests.controllers.queue_bench import QueueBench, command, gone
from tests.domain.builders import queue


class CommandBench(QueueBench):
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
def bench() -> Iterator[CommandBench]:
    new_bench = CommandBench()
    with new_bench.writing():
        new_bench.put_queues(queue("q"), queue("root"))
        yield new_bench


def test_a_command_takes_effect_in_one_write_with_its_record_and_is_removed_then(bench: CommandBench) -> None:
    bench.order(command("c", "CloseQueue", "q"))
    assert bench.look() == [("patch_queue", "q")]
    ((_, patch),) = bench.store.done("patch_queue")
    assert patch["spec"] == {"state": "Closed"}
    assert patch["metadata"]["annotations"] == {keys.LAST_COMMAND: "uid-c"}
    assert (bench.state(), {*bench.store.commands}) == ("Closed", {"c"})
    assert bench.look() == [("delete_command", "c")]
    assert bench.look() == []
    bench.order(command("d", "OpenQueue", "q"))
    bench.look()
    assert bench.state() == "Open"


def test_commands_for_one_queue_are_followed_in_their_order(bench: CommandBench) -> None:
    late = command("a", "OpenQueue", "q", version=12)
    early = command("b", "CloseQueue", "q", version=9)
    bench.order(late, early)
    seen = [bench.state() for _ in range(4) if bench.look()]
    assert seen == ["Closed", "Closed", "Open", "Open"]


def test_each_queue_has_its_own_order() -> None:
    commands = [command("a", "CloseQueue", "p"), command("b", "CloseQueue", "q")]
    commands.append(command("c", "OpenQueue", "p", version=2))
    records = [record for each in commands if (record := command_record(each))]
    assert [each.name for each in first_of_each_queue(records)] == ["a", "b"]


def test_a_restart_between_effect_and_removal_does_not_repeat_it(bench: CommandBench) -> None:
    bench.order(command("c", "CloseQueue", "q"))
    bench.look()
    bench.edit("q", state="Open")  # by a user
    bench.begin()
    assert bench.look() == [("delete_command", "c")]
    assert bench.state() == "Open"


def test_a_restart_before_the_effect_loses_nothing(bench: CommandBench) -> None:
    bench.order(command("c", "CloseQueue", "q"))
    bench.begin()
    bench.look()
    assert bench.state() == "Closed"


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
def test_an_invalid_command_is_refused_and_removed(bench: CommandBench, bad: Command, why: str) -> None:
    bench.order(bad)
    with capture_logs() as logs:
        bench.look()
    assert (bench.store.commands, bench.store.done("patch_queue")) == ({}, [])
    (refusal,) = [log for log in logs if "refused" in log["event"]]
    assert why in refusal["why"]
    refusals = [(name, reason) for name, reason, message in bench.events() if why in message]
    assert refusals == [(bad.target.name, "CommandRefused")][: bad.target.name != "none"]  # type: ignore[union-attr]


def test_a_queue_that_the_watch_has_not_shown_yet_is_waited_for(bench: CommandBench) -> None:
    bench.store.put(queue("new"))
    bench.order(command("c", "CloseQueue", "new"))
    bench.now += 1
    bench.commander.on_decisions(bench.settle().decisions)
    bench.flush()
    assert {*bench.store.commands} == {"c"}
    bench.show("new")
    bench.look()
    assert bench.state("new") == "Closed"


def test_commands_for_other_controllers_are_left_alone(bench: CommandBench) -> None:
    theirs = command("c", "AbortJob", "q", kind="Job")
    bench.order(theirs, Command(theirs.metadata, "OpenQueue"))
    assert bench.look() == []


def test_a_step_that_failed_is_tried_again(bench: CommandBench) -> None:
    bench.store.fail("patch_queue", Forbidden(403, "Forbidden"))
    bench.order(command("c", "CloseQueue", "q"))
    bench.look()
    assert bench.state() == ""
    assert bench.look(seconds=0.4) == []
    bench.look(seconds=0.2)
    assert bench.state() == "Closed"
    bench.store.fail("delete_command", ServerFault(500), ServerFault(500))
    for _ in range(3):
        bench.look(seconds=60)
    assert bench.store.commands == {}
