"""The division of a round, and what queues held when it began: kept for the next one."""

from collections.abc import Mapping

import msgspec

from extender.domain.model.resources import Resources
from extender.domain.queues.queue_view import QueueView
from extender.domain.shares.demand import QueueDemand
from extender.domain.shares.division import Division
from extender.domain.shares.holdings import Holdings
from extender.domain.snapshot.snapshot import Snapshot


class KeptShares(msgspec.Struct, frozen=True, eq=False):
    """Never changed."""

    queues: Mapping[str, QueueView]
    """What it was made from."""
    division: Division
    """What each queue deserves and may hold."""
    holdings: Holdings
    """What each held when the round began."""

    @classmethod
    def of(cls, snapshot: Snapshot, before: "KeptShares | None") -> "KeptShares":
        """The same, whether or not it is made from the one `before`."""
        queues, total, oversell = snapshot.queues, total_of(snapshot), snapshot.limits.oversell
        demands = {name: _demand(queue, oversell) for name, queue in queues.items()}
        own = {name: queue.allocated for name, queue in queues.items()}
        if before is None:
            division = Division.of(total, demands)
            return cls(queues, division, Holdings(division, own))
        division = Division.of(total, demands, before.division)
        return cls(queues, division, before.holdings.after(division, own))


def total_of(snapshot: Snapshot) -> Resources:
    """What all nodes offer together."""
    capacity = snapshot.allocatable.sum(axis=0)
    return {name: int(capacity[column]) for column, name in enumerate(snapshot.dimensions)}


def _demand(queue: QueueView, oversell: float) -> QueueDemand:
    """A queue that does not exist takes no part, however many groups name it. One whose groups cannot start
    asks for no more than what it holds."""
    record = queue.record
    return QueueDemand(
        name=record.name,
        weight=record.weight,
        request=queue.allocated if queue.fault else queue.requested,
        capability=record.capability,
        guarantee=record.guarantee,
        groups=queue.exists and queue.groups > 0,
        parent=record.parent,
        deserved=record.deserved,
        borrowing_limit=record.borrowing_limit,
        lending_limit=record.lending_limit,
        oversell=oversell if record.oversell is None else record.oversell,
    )
