"""Commands of `bus.volcano.sh`: objects by whose creation a queue is opened or closed.

A Command is executed once, even if Muster is stopped halfway: what it asks for and its UID are written to
the queue in one step, so once that UID is on the queue, only the Command itself is left to be removed.
Commands for one queue are executed in the order in which they were created. An invalid Command is refused
and removed too, because nothing else would remove it; Commands for other kinds are left to the controllers
of those kinds.
"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from extender.api.keys import ROOT_QUEUE
from extender.api.objects.queues import Command
from extender.domain.queues.queue_records import QueueRecord
from extender.domain.queues.queue_states import QueueAction, QueueState

_QUEUE_GROUP = "scheduling.volcano.sh/"


class CommandRecord(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    uid: str
    action: str  # as written; a QueueAction if it is valid
    queue: str  # the target's name
    queue_uid: str  # the target's UID
    created: str = ""  # metadata.creationTimestamp
    version: int = 0  # metadata.resourceVersion: orders Commands created in the same second


class CommandStep(StrEnum):
    """What is to be done about a Command."""

    EXECUTE = "execute"
    REMOVE = "remove"  # it has taken effect
    REFUSE = "refuse"
    LOOK_FOR_QUEUE = "look for its queue"  # the watch has not shown it: it is new, or gone


class Judgement(msgspec.Struct, frozen=True):
    """`state`: what to write to spec.state. `why`: the cause of a refusal, for people."""

    step: CommandStep
    state: str = ""
    why: str = ""


def command_record(command: Command) -> CommandRecord | None:
    """None for a Command that is not about a queue."""
    meta, target = command.metadata, command.target
    if target is None or target.kind != "Queue" or not target.api_version.startswith(_QUEUE_GROUP):
        return None
    return CommandRecord(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        action=command.action,
        queue=target.name,
        queue_uid=target.uid,
        created=meta.creation_timestamp or "",
        version=int(meta.resource_version) if meta.resource_version.isdecimal() else 0,
    )


def first_of_each_queue(commands: Iterable[CommandRecord]) -> list[CommandRecord]:
    heads: dict[str, CommandRecord] = {}
    for command in sorted(commands, key=lambda each: (each.created, each.version, each.name)):
        heads.setdefault(command.queue, command)
    return list(heads.values())


def judge(command: CommandRecord, queue: QueueRecord | None) -> Judgement:
    """What is to be done about a Command, given the queue that it names."""
    if command.action not in {*QueueAction}:
        return _refuse(f"action is {command.action!r}; allowed are {' and '.join(QueueAction)}")
    state = QueueAction(command.action).spec_state
    if command.queue == ROOT_QUEUE and state is QueueState.CLOSED:
        return _refuse("a Command cannot close queue root; to close all queues, set its spec.state to Closed")
    if queue is None or not queue.uid or queue.uid != command.queue_uid:
        return Judgement(CommandStep.LOOK_FOR_QUEUE)
    if queue.last_command == command.uid:
        return Judgement(CommandStep.REMOVE)
    return Judgement(CommandStep.EXECUTE, state)


def lost_target(command: CommandRecord) -> str:
    """Why a Command is refused if its queue does not exist."""
    return f"target: there is no queue {command.queue} with the UID {command.queue_uid!r}"


def _refuse(why: str) -> Judgement:
    return Judgement(CommandStep.REFUSE, why=why)
