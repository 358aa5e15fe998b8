"""What a queue's conditions say of it: whether it takes new groups, and whether its specification makes
sense.

Messages are constant while nothing changes: no counts.
"""

from collections.abc import Iterator

import msgspec

from extender.domain.decisions.decisions import QueueDecision
from extender.domain.queues.queue_states import QueueState

OPEN, VALID = "Open", "Valid"


class QueueCondition(msgspec.Struct, frozen=True):
    """A condition without the moment since when it holds."""

    type: str
    holds: bool
    reason: str
    message: str


def conditions_of(queue: QueueDecision) -> Iterator[QueueCondition]:
    yield QueueCondition(OPEN, queue.state == QueueState.OPEN, *_why(queue))
    yield QueueCondition(VALID, not queue.fault, "InvalidSpec" if queue.fault else "Valid", queue.fault)


def _why(queue: QueueDecision) -> tuple[str, str]:
    match queue.state:
        case QueueState.OPEN:
            return "Open", "it takes new groups"
        case QueueState.UNKNOWN:
            return "UnknownState", "its state is not a known state; set spec.state to Open or Closed"
    if queue.wish is QueueState.CLOSED:
        return "Closed", "it takes no new groups; those that came before go on"
    return "ParentClosed", f"queue {queue.closed_above} above it is closed; it opens with that one"
