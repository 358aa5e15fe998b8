"""The conditions of a queue: whether it takes new groups, and whether its specification is valid.

Messages contain no counts, so that they stay the same while nothing changes.
"""

from collections.abc import Iterator

import msgspec

from extender.domain.decisions.decisions import QueueDecision
from extender.domain.queues.queue_states import QueueState

OPEN, VALID = "Open", "Valid"


class QueueCondition(msgspec.Struct, frozen=True):
    """A condition without the time of its last transition."""

    type: str  # OPEN or VALID
    holds: bool  # whether its status is True
    reason: str  # a code
    message: str  # for people


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
        return "Closed", "it takes no new groups; existing groups continue"
    return (
        "ParentClosed",
        f"queue {queue.closed_above} above it is closed; this queue opens when that one does",
    )
