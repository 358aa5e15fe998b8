"""What decide() sees of one queue."""

import msgspec

from extender.domain.model.resources import Resources
from extender.domain.queues.queue_records import QueueRecord
from extender.domain.queues.queue_states import Mark, QueueState, wish


class QueueView(msgspec.Struct, frozen=True):
    """`closed_above`: the queue above that shuts it, if one does. `mark`: what is to become of its mark."""

    record: QueueRecord
    exists: bool
    state: str
    groups: int
    allocated: Resources
    requested: Resources
    closed_above: str = ""
    mark: Mark = Mark.KEEP

    @property
    def to_open(self) -> str:
        """The queue that has to be opened for this one to be open."""
        is_held = self.closed_above and wish(self.record) is QueueState.OPEN
        return self.closed_above if is_held else self.record.name
