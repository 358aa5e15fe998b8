"""The queues that the API has, and the state of each: open, closed, or kept closed by its parent."""

from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType

from extender.api import keys
from extender.domain.model.resources import Resources
from extender.domain.queues.faults import fault_of
from extender.domain.queues.queue_records import QueueRecord
from extender.domain.queues.queue_states import QueueState, closed_above, mark_of, parent_of, state_of, wish
from extender.domain.queues.queue_view import QueueView


class Queues:
    def __init__(self) -> None:
        self._records: dict[str, QueueRecord] = {}
        self._children: defaultdict[str, set[str]] = defaultdict(set)
        self.uids: set[str] = set()
        self.gone: set[str] = set()  # UIDs of queues that were seen here and are gone
        self._faults: dict[str, str] = {}  # of queues in this tree, as far as they were asked for

    def put(self, record: QueueRecord) -> set[str]:
        """A queue is new or has changed. Returns the names of all queues that this may open or close."""
        before = self._records.get(record.name)
        if before == record:
            return set()
        self._records[record.name] = record
        self._place(before, record)
        return self._family(record.name)

    def drop(self, name: str) -> set[str]:
        """A queue is gone. Returns the names of all queues that this may open."""
        gone = self._records.pop(name, None)
        self._place(gone, None)
        return self._family(name)

    def get(self, name: str) -> QueueRecord | None:
        """A queue; `default` counts as existing before it is created."""
        return self._records.get(name) or (QueueRecord(name) if name == keys.DEFAULT_QUEUE else None)

    @property
    def names(self) -> set[str]:
        """The queues that the API has; `default` may be missing."""
        return set(self._records)

    @property
    def records(self) -> dict[str, QueueRecord]:
        """A copy of all records."""
        return dict(self._records)

    def is_open(self, name: str) -> bool:
        record = self.get(name)
        return record is not None and self._state(record, has_groups=True) is QueueState.OPEN

    def view(
        self,
        name: str,
        groups: int,
        allocated: Resources,
        requested: Resources,
        by_flavor: Mapping[str, Resources] = MappingProxyType({}),
    ) -> QueueView:
        record = self.get(name)
        above = closed_above(name, self._records) if name in self._records else ""
        return QueueView(
            record=record or QueueRecord(name),
            exists=record is not None,
            state=str(self._state(record, groups > 0)) if record else "",
            groups=groups,
            allocated=allocated,
            requested=allocated if record and record.stop_policy else requested,
            closed_above=above,
            mark=mark_of(record or QueueRecord(name), bool(above)),
            fault=self._fault(name),
            by_flavor=by_flavor,
        )

    def _fault(self, name: str) -> str:
        """Each view asks for it, and it only changes with the tree."""
        if name not in self._records:
            return ""
        if name not in self._faults:
            self._faults[name] = fault_of(name, self._records)
        return self._faults[name]

    def _state(self, record: QueueRecord, has_groups: bool) -> QueueState:
        held_shut = record.marked and bool(closed_above(record.name, self._records))
        return state_of(wish(record), has_groups, held_shut)

    def _place(self, before: QueueRecord | None, now: QueueRecord | None) -> None:
        """Update the tree and the UIDs for a queue that is new, has changed or is gone."""
        self._faults = {}
        if before is not None:
            self._children[parent_of(before.name, before)].discard(before.name)
            self.uids.discard(before.uid)
            self.gone.add(before.uid)
        if now is not None:
            self._children[parent_of(now.name, now)].add(now.name)
            self.uids.add(now.uid)
            self.gone.discard(now.uid)

    def _family(self, name: str) -> set[str]:
        """A queue and all queues below it."""
        found, left = {name}, [name]
        while left:
            below = self._children.get(left.pop(), set()) - found
            found |= below
            left += below
        return found
