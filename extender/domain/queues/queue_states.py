"""The life of a queue: Open, Closing while groups are left, Closed.

What its owner writes to spec.state decides. Where that is silent, what the status said last stays so.
Closing a queue shuts those below it, without a word in their spec: each is marked, durably, before its
status tells. The mark tells a queue that only its parent keeps shut from one that was closed for its own
sake, whatever happens in between: when the parent opens, the one opens with it and the other does not.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

from extender.api.keys import ROOT_QUEUE


class QueueState(StrEnum):
    OPEN = "Open"
    CLOSING = "Closing"
    CLOSED = "Closed"
    UNKNOWN = "Unknown"  # spec or status says another word: it takes nothing in until somebody decides

    @property
    def shut(self) -> bool:
        return self in (QueueState.CLOSING, QueueState.CLOSED)


class QueueAction(StrEnum):
    """What a Command may ask of a queue."""

    OPEN = "OpenQueue"
    CLOSE = "CloseQueue"

    @property
    def spec_state(self) -> QueueState:
        """What takes effect once it is in spec.state."""
        return QueueState.OPEN if self is QueueAction.OPEN else QueueState.CLOSED


class Mark(StrEnum):
    """What is to become of the mark of a queue that its parent keeps shut."""

    KEEP = "keep"
    PUT = "put"
    TAKE = "take"


class Standing(Protocol):
    """What the life of one queue depends on. `marked`: it was open when its parent was closed."""

    @property
    def parent(self) -> str: ...
    @property
    def spec_state(self) -> str: ...
    @property
    def status_state(self) -> str: ...
    @property
    def marked(self) -> bool: ...


def read_state(word: str) -> QueueState | None:
    """What a word in status.state stands for; a queue without one is new, and Open. None: it is no state."""
    if not word:
        return QueueState.OPEN
    return QueueState(word) if word in {*QueueState} else None


def wish(queue: Standing) -> QueueState:
    """What the queue is for its own sake: Open, Closed or Unknown."""
    if queue.spec_state:
        wished = read_state(queue.spec_state)
        return wished if wished in (QueueState.OPEN, QueueState.CLOSED) else QueueState.UNKNOWN
    if queue.marked:
        return QueueState.OPEN
    stored = read_state(queue.status_state) or QueueState.UNKNOWN
    return QueueState.CLOSED if stored.shut else stored


def state_of(wished: QueueState, has_groups: bool, held_shut: bool = False) -> QueueState:
    """`held_shut`: it is marked, and its parent is shut. Groups of any phase count."""
    if wished is QueueState.UNKNOWN or (wished is QueueState.OPEN and not held_shut):
        return wished
    return QueueState.CLOSING if has_groups else QueueState.CLOSED


def closed_above(name: str, queues: Mapping[str, Standing]) -> str:
    """The name of the queue above that is closed for its own sake and shuts this one and all in between;
    else empty. A queue that names no parent is below `root`; one that is its own ancestor has none."""
    return _closed_above(name, queues, frozenset())


def _closed_above(name: str, queues: Mapping[str, Standing], below: frozenset[str]) -> str:
    above = parent_of(name, queues[name])
    parent = queues.get(above)
    if parent is None or above == name or above in below:
        return ""
    wished = wish(parent)
    if wished is QueueState.CLOSED:
        return above
    held = wished is QueueState.OPEN and parent.marked
    return _closed_above(above, queues, below | {name}) if held else ""


def parent_of(name: str, queue: Standing) -> str:
    """The name of the queue above; empty for `root`."""
    return "" if name == ROOT_QUEUE else queue.parent or ROOT_QUEUE


def mark_of(queue: Standing, below_shut: bool) -> Mark:
    """A mark goes when it says nothing any more: the queue is closed for its own sake, or its parent is open
    and the status, which speaks for a queue without spec.state, says so."""
    wished = wish(queue)
    if not queue.marked:
        return Mark.PUT if below_shut and wished is QueueState.OPEN else Mark.KEEP
    settled = bool(queue.spec_state) or queue.status_state == QueueState.OPEN
    if wished is QueueState.CLOSED or (not below_shut and settled):
        return Mark.TAKE
    return Mark.KEEP
