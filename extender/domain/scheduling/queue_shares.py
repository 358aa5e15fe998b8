"""The shares of a round: what each queue holds by now, against what it deserves and may hold at most."""

from math import inf

from extender.domain.model.resources import PODS, Resources, add
from extender.domain.queues.queue_view import QueueView
from extender.domain.shares.comparisons import EPSILON, Portions, exceeded, excess, share
from extender.domain.shares.demand import QueueDemand
from extender.domain.shares.deserved import divide
from extender.domain.snapshot.snapshot import Snapshot

_NO_LIMIT = 10**9
_NOT_SHARED = frozenset({PODS})  # the share gate compares what is asked for, not the count of pods


class QueueShares:
    def __init__(self, snapshot: Snapshot) -> None:
        self._cluster = total_of(snapshot)
        self._shares = divide(self._cluster, [_demand(queue) for queue in snapshot.queues.values()])
        self._ceilings: dict[str, Portions] = {}
        self._allocated = {name: dict(queue.allocated) for name, queue in snapshot.queues.items()}
        self._journal: list[tuple[str, Resources, int]] = []

    # ---- taking

    def take(self, queue: str, asked: Resources, times: int = 1) -> None:
        """The queue holds so much more; -1 times gives it back."""
        add(self._allocated.setdefault(queue, {}), asked, times)
        self._journal.append((queue, asked, times))

    def mark(self) -> int:
        """A moment to roll back to."""
        return len(self._journal)

    def roll_back(self, mark: int) -> None:
        """Undo all takings since a mark."""
        while len(self._journal) > mark:
            queue, asked, times = self._journal.pop()
            add(self._allocated[queue], asked, -times)

    # ---- looking

    def held(self, queue: str) -> Resources:
        """What a queue holds by now."""
        return self._allocated.get(queue, {})

    def of(self, queue: str) -> float:
        """How much of what it deserves a queue holds."""
        given = self._shares.get(queue)
        return share(self._allocated.get(queue, {}), given.deserved) if given else 0.0

    def deserved(self, queue: str) -> Portions:
        """What a queue deserves: nothing where there is no such queue."""
        return self._shares[queue].deserved if queue in self._shares else {}

    def real_capability(self, queue: str) -> Portions:
        """The most that a queue may hold, as the division gives it."""
        return self._shares[queue].ceiling if queue in self._shares else {}

    def ceiling(self, queue: str) -> Portions:
        """What limits a queue apart from the room. One as high as the whole cluster is no ceiling: what is
        lacking there is room. A queue that is gone has none."""
        if queue not in self._ceilings:
            given = self.real_capability(queue)
            self._ceilings[queue] = {
                name: most if (most := given.get(name, inf)) < there else inf
                for name, there in self._cluster.items()
            }
        return self._ceilings[queue]

    def headroom(self, queue: str, requests: Resources, limit: Portions) -> int:
        """How many more of `requests` keep the queue within `limit`."""
        held = self._allocated.get(queue, {})
        parts = (
            (limit.get(name, 0.0) - held.get(name, 0) + EPSILON) / amount
            for name, amount in self._there(requests).items()
        )
        return int(min(max(min(parts, default=inf), 0.0), _NO_LIMIT))

    def is_never_below_ceiling(self, queue: str, asked: Resources) -> bool:
        """Whether `asked` is above the ceiling even if the queue held nothing."""
        return bool(exceeded(self._there(asked), {}, self.ceiling(queue)))

    def above_ceiling(self, queue: str, asked: Resources) -> str:
        """A sentence on how `asked` would break the queue's ceiling; empty when it would not."""
        return excess(self._there(asked), self._allocated.get(queue, {}), self.ceiling(queue))

    def is_above_share(self, queue: str, asked: Resources) -> bool:
        held = self._allocated.get(queue, {})
        return bool(exceeded(self._there(asked), held, self.deserved(queue), _NOT_SHARED))

    def _there(self, asked: Resources) -> Resources:
        """Without what no node offers: that is no question of shares, the pods never fit."""
        return {name: amount for name, amount in asked.items() if name in self._cluster}


def total_of(snapshot: Snapshot) -> Resources:
    """What all nodes offer together."""
    capacity = snapshot.allocatable.sum(axis=0)
    return {name: int(capacity[column]) for column, name in enumerate(snapshot.dimensions)}


def _demand(queue: QueueView) -> QueueDemand:
    """A queue that does not exist takes no part, however many groups name it."""
    record = queue.record
    return QueueDemand(
        record.name,
        record.weight,
        queue.requested,
        record.capability,
        record.guarantee,
        groups=queue.exists and queue.groups > 0,
    )
