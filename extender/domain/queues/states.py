"""States of a queue (Open, Closing while it has groups, Closed, Unknown), and Commands that change them.

A queue that is being deleted is closed. Otherwise spec.state decides. If spec.state is empty, the last state
in the status stays in force.

Closing a queue also closes all queues below it, whatever their own spec says. Each queue below gets the
closed-by-parent annotation before its status changes. When the parent opens, the queues with the annotation
open, too. Queues that were closed by their own spec or by a Command stay closed.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from extender.api.keys import ROOT_QUEUE
from extender.api.objects.queues import Command
from extender.domain.queues.records import QueueRecord


class QueueState(StrEnum):
    """State of a queue."""

    OPEN = "Open"
    CLOSING = "Closing"
    CLOSED = "Closed"
    UNKNOWN = "Unknown"  # spec or status has another value: no groups are admitted until it is corrected


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
    ADD = "put"
    REMOVE = "take"


def read_state(text: str) -> QueueState | None:
    """Return the state that the text of status.state names; None for an unknown text.

    An empty text means a new queue, which is open.
    """
    if not text:
        return QueueState.OPEN
    return QueueState(text) if text in {*QueueState} else None


def desired_state(queue: QueueRecord) -> QueueState:
    """Return the state that a queue would have without ancestors.

    A queue that is being deleted is closed, because a deletion cannot be undone.
    """
    if queue.is_deleting:
        return QueueState.CLOSED
    if queue.spec_state:
        state = read_state(queue.spec_state)
        return state if state in (QueueState.OPEN, QueueState.CLOSED) else QueueState.UNKNOWN
    if queue.was_closed_by_parent:
        return QueueState.OPEN
    last_state = read_state(queue.status_state) or QueueState.UNKNOWN
    return QueueState.CLOSED if last_state is QueueState.CLOSING else last_state


def state_of(own_state: QueueState, has_groups: bool, is_closed_above: bool = False) -> QueueState:
    """Return the state of a queue to publish.

    Args:
        own_state: The state that spec.state or a Command asks for.
        has_groups: Whether the queue has groups, in any phase.
        is_closed_above: Whether the queue has the closed-by-parent annotation and its parent is closed.
    """
    if own_state is QueueState.UNKNOWN or (own_state is QueueState.OPEN and not is_closed_above):
        return own_state
    return QueueState.CLOSING if has_groups else QueueState.CLOSED


def closing_ancestor(name: str, queues: Mapping[str, QueueRecord]) -> str:
    """Return the name of the ancestor that keeps a queue closed; empty if there is no such ancestor.

    The spec or status of the ancestor itself says that it is closed, and all queues in between have the
    closed-by-parent annotation. If spec.parent leads back to the queue itself, the queue counts as a queue
    without ancestors.
    """
    visited_names: set[str] = set()
    while True:
        visited_names.add(name)
        parent_name = parent_of(name, queues[name])
        parent = queues.get(parent_name)
        if parent is None or parent_name in visited_names:
            return ""
        if (parent_state := desired_state(parent)) is QueueState.CLOSED:
            return parent_name
        if parent_state is not QueueState.OPEN or not parent.was_closed_by_parent:
            return ""
        name = parent_name


def parent_of(name: str, queue: QueueRecord) -> str:
    """Return the name of the parent queue; empty for `root`."""
    return "" if name == ROOT_QUEUE else queue.parent or ROOT_QUEUE


def annotation_step(queue: QueueRecord, is_below_closed: bool) -> AnnotationStep:
    """Return the step for the closed-by-parent annotation.

    The annotation is removed once it has no effect. This is the case for a queue that is to be closed by its
    own spec, and for a queue below open queues whose spec.state or status already says that it is open.

    Args:
        queue: The queue.
        is_below_closed: Whether an ancestor is closed.
    """
    state = desired_state(queue)
    if not queue.was_closed_by_parent:
        return AnnotationStep.ADD if is_below_closed and state is QueueState.OPEN else AnnotationStep.KEEP
    is_reported_open = bool(queue.spec_state) or queue.status_state == QueueState.OPEN
    if state is QueueState.CLOSED or (not is_below_closed and is_reported_open):
        return AnnotationStep.REMOVE
    return AnnotationStep.KEEP


_QUEUE_GROUP = "scheduling.volcano.sh/"


class CommandRecord(msgspec.Struct, frozen=True):
    """Record of a Command on a queue."""

    namespace: str
    name: str
    uid: str
    action: str  # action as written; a QueueAction if it is valid
    queue: str  # name of the target
    queue_uid: str  # UID of the target
    created_at: str = ""  # metadata.creationTimestamp
    version: int = 0  # metadata.resourceVersion, to order Commands of the same second


class CommandStep(StrEnum):
    """Next step for a Command."""

    EXECUTE = "execute"
    REMOVE = "remove"  # the Command has taken effect
    REFUSE = "refuse"
    LOOK_FOR_QUEUE = "look for its queue"  # the watch does not show the queue: it is new or gone


class CommandReview(msgspec.Struct, frozen=True):
    """Result of the review of a Command.

    Attributes:
        step: The next step for the Command.
        state: The new spec.state of the queue.
        why: The cause of a refusal, for users.
    """

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
        created_at=meta.creation_timestamp or "",
        version=int(meta.resource_version) if meta.resource_version.isdecimal() else 0,
    )


def first_of_each_queue(commands: Iterable[CommandRecord]) -> list[CommandRecord]:
    """Return the oldest Command of each queue: Commands are executed in the order of their creation."""
    first_commands: dict[str, CommandRecord] = {}
    for command in sorted(commands, key=lambda command: (command.created_at, command.version, command.name)):
        first_commands.setdefault(command.queue, command)
    return list(first_commands.values())


def review(command: CommandRecord, queue: QueueRecord | None) -> CommandReview:
    """Return the step for a Command of `bus.volcano.sh`, which a user creates to open or close a queue.

    A Command is executed once, even if Muster stops halfway. One write to the queue records both the new
    state and the UID of the Command; then the Command is deleted. An invalid Command is refused and also
    deleted, because no other controller would delete it.
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


def lost_target_text(command: CommandRecord) -> str:
    """Return why a Command is refused if its queue does not exist."""
    return f"target: there is no queue {command.queue} with the UID {command.queue_uid!r}"


def _refuse(why: str) -> CommandReview:
    return CommandReview(CommandStep.REFUSE, why=why)
