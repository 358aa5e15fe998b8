"""The states of a queue: Open, Closing while groups are left, Closed; and the bus Commands that change them.

A queue that is being deleted is closed. Otherwise spec.state decides; if that is empty, the last state in the
status stays in force. Closing a queue also closes those below it, whatever their own spec says. Each of these
gets the closed-by-parent annotation before its status changes. When the parent opens, so do the queues with
the annotation; queues closed by their own spec or a Command stay closed.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from extender.api.keys import ROOT_QUEUE
from extender.api.objects.queues import Command
from extender.domain.queues.records import QueueRecord


class QueueState(StrEnum):
    OPEN = "Open"
    CLOSING = "Closing"
    CLOSED = "Closed"
    UNKNOWN = "Unknown"  # unknown state in spec or status: it admits no groups until that is corrected


class QueueAction(StrEnum):
    """Action of a Command on a queue."""

    OPEN = "OpenQueue"
    CLOSE = "CloseQueue"

    @property
    def spec_state(self) -> QueueState:
        """Return the value of spec.state by which the action takes effect."""
        return QueueState.OPEN if self is QueueAction.OPEN else QueueState.CLOSED


class AnnotationStep(StrEnum):
    """Step for the closed-by-parent annotation of a queue."""

    KEEP = "keep"
    PUT = "put"
    TAKE = "take"


def read_state(text: str) -> QueueState | None:
    """Return the state that status.state names, Open for a new queue; None for an unknown text."""
    if not text:
        return QueueState.OPEN
    return QueueState(text) if text in {*QueueState} else None


def desired_state(queue: QueueRecord) -> QueueState:
    """Return the state of the queue without regard to its ancestors. A deletion cannot be undone."""
    if queue.deleting:
        return QueueState.CLOSED
    if queue.spec_state:
        desired = read_state(queue.spec_state)
        return desired if desired in (QueueState.OPEN, QueueState.CLOSED) else QueueState.UNKNOWN
    if queue.closed_by_parent:
        return QueueState.OPEN
    stored = read_state(queue.status_state) or QueueState.UNKNOWN
    return QueueState.CLOSED if stored is QueueState.CLOSING else stored


def state_of(desired: QueueState, has_groups: bool, is_closed_above: bool = False) -> QueueState:
    """Return the state to publish.

    Args:
        desired: The state that spec.state or a Command asks for.
        has_groups: Whether the queue has groups, in any phase.
        is_closed_above: The queue has the closed-by-parent annotation, and its parent is closed.
    """
    if desired is QueueState.UNKNOWN or (desired is QueueState.OPEN and not is_closed_above):
        return desired
    return QueueState.CLOSING if has_groups else QueueState.CLOSED


def closed_above(name: str, queues: Mapping[str, QueueRecord]) -> str:
    """Return the closed ancestor that keeps this queue and all between them closed, or an empty name.

    A queue that is its own ancestor counts as having none.
    """
    below: set[str] = set()
    while True:
        below.add(name)
        above = parent_of(name, queues[name])
        parent = queues.get(above)
        if parent is None or above in below:
            return ""
        if (desired := desired_state(parent)) is QueueState.CLOSED:
            return above
        if desired is not QueueState.OPEN or not parent.closed_by_parent:
            return ""
        name = above


def parent_of(name: str, queue: QueueRecord) -> str:
    """Return the name of the parent queue; empty for `root`."""
    return "" if name == ROOT_QUEUE else queue.parent or ROOT_QUEUE


def annotation_step(queue: QueueRecord, below_closed: bool) -> AnnotationStep:
    """Return the step for the closed-by-parent annotation.

    `below_closed`: an ancestor is closed. The annotation is removed once it has no effect: if the queue is
    to be closed, or if no ancestor is closed and spec.state or the status says that the queue is open.
    """
    desired = desired_state(queue)
    if not queue.closed_by_parent:
        return AnnotationStep.PUT if below_closed and desired is QueueState.OPEN else AnnotationStep.KEEP
    settled = bool(queue.spec_state) or queue.status_state == QueueState.OPEN
    if desired is QueueState.CLOSED or (not below_closed and settled):
        return AnnotationStep.TAKE
    return AnnotationStep.KEEP


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
    """Step for a Command."""

    EXECUTE = "execute"
    REMOVE = "remove"  # the Command has taken effect
    REFUSE = "refuse"
    LOOK_FOR_QUEUE = "look for its queue"  # the watch has not shown the queue: it is new, or gone


class CommandReview(msgspec.Struct, frozen=True):
    """Review of a Command. `state`: the new spec.state; `why`: the cause of a refusal, for users."""

    step: CommandStep
    state: str = ""
    why: str = ""


def command_record(command: Command) -> CommandRecord | None:
    """Return the record of a Command; None if its target is not a queue."""
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
    """Return the first Command of each queue: they are executed in the order of their creation."""
    heads: dict[str, CommandRecord] = {}
    for command in sorted(commands, key=lambda command: (command.created, command.version, command.name)):
        heads.setdefault(command.queue, command)
    return list(heads.values())


def review(command: CommandRecord, queue: QueueRecord | None) -> CommandReview:
    """Return the step for a Command of `bus.volcano.sh`, which a user creates to open or close a queue.

    A Command is executed once, even if Muster is stopped halfway: one write to the queue records the new
    state and the UID of the Command, and then the Command is deleted. An invalid Command is refused and
    deleted, since no other controller would delete it.
    """
    if command.action not in {*QueueAction}:
        return _refuse(f"action is {command.action!r}: must be {' or '.join(QueueAction)}")
    state = QueueAction(command.action).spec_state
    if command.queue == ROOT_QUEUE and state is QueueState.CLOSED:
        return _refuse("a Command cannot close queue root; to close all queues, set its spec.state to Closed")
    if queue is None or not queue.uid or queue.uid != command.queue_uid:
        return CommandReview(CommandStep.LOOK_FOR_QUEUE)
    if queue.last_command == command.uid:
        return CommandReview(CommandStep.REMOVE)
    return CommandReview(CommandStep.EXECUTE, state)


def lost_target(command: CommandRecord) -> str:
    """Return why a Command is refused if its queue does not exist."""
    return f"target: there is no queue {command.queue} with the UID {command.queue_uid!r}"


def _refuse(why: str) -> CommandReview:
    return CommandReview(CommandStep.REFUSE, why=why)
