"""What decide() sees of one queue."""

from collections.abc import Mapping

import msgspec

from extender.domain.model.resources import Resources
from extender.domain.queues.queue_records import QueueRecord
from extender.domain.queues.queue_states import Mark, QueueState, wish


class QueueView(msgspec.Struct, frozen=True, gc=False):
    record: QueueRecord
    exists: bool  # whether the API has it; `default` always counts as existing
    state: str  # a QueueState; empty if the queue does not exist
    groups: int  # how many the queue has, of any phase
    allocated: Resources  # what its pods on nodes, and those pinned to nodes, ask for
    requested: Resources  # the same, and what its groups wait for that may start
    closed_above: str = ""  # the ancestor that keeps it closed; empty if none does
    mark: Mark = Mark.KEEP  # what is to be done about its mark
    fault: str = ""  # what is wrong with it, or with its place in the tree, for people; empty if nothing is
    by_flavor: Mapping[str, Resources] = {}  # of what is allocated, the amounts on each of its flavors

    @property
    def to_open(self) -> str:
        """The queue that has to be opened for this one to be open."""
        is_held = self.closed_above and wish(self.record) is QueueState.OPEN
        return self.closed_above if is_held else self.record.name
