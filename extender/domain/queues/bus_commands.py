"""Commands of `bus.volcano.sh`: a queue is opened or closed by creating an object that says so.

A Command is obeyed once, whatever ends in between: what it asks for and its UID are written to the queue in
one step, so whoever finds that UID there knows that nothing is left but to remove the Command. Those for one
queue are followed one after the other, in the order in which they came. What makes no sense is refused and
removed as well, because nobody else would; Commands for other kinds are left to those who understand them.
"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from extender.api.keys import ROOT_QUEUE
from extender.api.objects import Command
from extender.domain.queues.queue_records import QueueRecord
from extender.domain.queues.queue_states import QueueAction, QueueState

_QUEUE_GROUP = "scheduling.volcano.sh/"


class CommandRecord(msgspec.Struct, frozen=True):
    """`version` orders those of one second."""

    namespace: str
    name: str
    uid: str
    action: str
    queue: str
    queue_uid: str
    created: str = ""
    version: int = 0


class Fate(StrEnum):
    OBEY = "obey"
    REMOVE = "remove"  # it took effect
    REFUSE = "refuse"
    LOOK_FOR_QUEUE = "look for its queue"  # which we have not seen: it is new, or gone


class Judgement(msgspec.Struct, frozen=True):
    """`state`: what to write to spec.state. `why`: of a refusal, for people."""

    fate: Fate
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
    """What is to become of a Command, given the queue of that name."""
    if command.action not in {*QueueAction}:
        return _refuse(f"action is {command.action!r}; allowed are {' and '.join(QueueAction)}")
    state = QueueAction(command.action).spec_state
    if command.queue == ROOT_QUEUE and state is QueueState.CLOSED:
        return _refuse("no Command closes queue root; to close all queues, set its spec.state to Closed")
    if queue is None or not queue.uid or queue.uid != command.queue_uid:
        return Judgement(Fate.LOOK_FOR_QUEUE)
    if queue.last_command == command.uid:
        return Judgement(Fate.REMOVE)
    return Judgement(Fate.OBEY, state)


def lost_target(command: CommandRecord) -> str:
    """Why a Command is refused whose queue does not exist."""
    return f"target: there is no queue {command.queue} with the UID {command.queue_uid!r}"


def _refuse(why: str) -> Judgement:
    return Judgement(Fate.REFUSE, why=why)
