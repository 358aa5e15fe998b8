"""One round of decisions: the state that is used up while groups are judged one after the other.

Groups take room, a place in the window and a part of their queue's share; what one takes the next one lacks.
"""

from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from math import inf

from extender.domain.decisions.decisions import GroupDecision
from extender.domain.lifecycle.quorum import missing
from extender.domain.model.records import GroupKey, PodRecord
from extender.domain.model.resources import PODS, Resources, add, show
from extender.domain.model.shapes import requests_of
from extender.domain.placement.planner import Space
from extender.domain.queues.queue_view import QueueView
from extender.domain.shares.comparisons import EPSILON, Portions, exceeded, share
from extender.domain.shares.demand import QueueDemand
from extender.domain.shares.deserved import divide
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.snapshot import Snapshot

_NO_LIMIT = 10**9
_NOT_SHARED = frozenset({PODS})  # the share gate compares what is asked for, not the count of pods


class Round:
    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.limits = snapshot.limits
        self.space = Space.of(snapshot)
        self._cluster = total_of(snapshot)
        self.shares = divide(self._cluster, [_demand(queue) for queue in snapshot.queues.values()])
        self.window_left = snapshot.limits.window
        self.decided: dict[GroupKey, GroupDecision] = {}
        self.claimants: list[GroupView] = []  # groups within their share that only lack room
        self._room_is_kept = False
        self.taken = 0  # how often somebody took something; while it stands still, so does all else
        self.wake_at = [] if snapshot.expires_at is None else [snapshot.expires_at]
        self._ceilings: dict[str, Portions] = {}
        self._allocated = {name: dict(queue.allocated) for name, queue in snapshot.queues.items()}

    def settle(self, decision: GroupDecision) -> None:
        self.decided[decision.key] = decision

    def is_due(self, moment: float) -> bool:
        """Whether a moment has come; if not, it is looked at again when it does."""
        if self.snapshot.now >= moment:
            return True
        self.wake_at.append(moment)
        return False

    def charge(self, group: GroupView, pods: Iterable[PodRecord]) -> None:
        """Count newly planned `pods` to the group's queue."""
        self.charge_for(group, requests_of(Counter(pod.shape for pod in pods)))

    def charge_for(self, group: GroupView, asked: Resources) -> None:
        """The same, where it is known what they ask for."""
        if asked:
            self.taken += 1
            add(self._allocated.setdefault(group.queue, {}), asked)

    def queue_share(self, name: str) -> float:
        given = self.shares.get(name)
        return share(self._allocated.get(name, {}), given.deserved) if given else 0.0

    def keep_room_of_claimants(self) -> None:
        """Take out of the room, once, what groups within their share could stand on already: nobody may
        borrow that."""
        for group in () if self._room_is_kept else self.claimants:
            wanted = missing(group)
            if any(self.space.room.total(shape) for shape in wanted.shapes):
                self.space.place(wanted.members, partly=True)
        self._room_is_kept = True

    @cached_property
    def in_flight(self) -> int:
        """Pods that the scheduler has, or soon will have, on its hands for us."""
        return sum(len(group.planned) + len(group.pinned) for group in self.snapshot.groups.values())

    @cached_property
    def empty(self) -> Space:
        """The room if nothing ran at all."""
        return Space.empty(self.snapshot)

    def deserved(self, queue: str) -> Portions:
        """What a queue deserves: nothing where there is no such queue."""
        return self.shares[queue].deserved if queue in self.shares else {}

    def ceiling(self, queue: str) -> Portions:
        """What limits a queue besides the room. A ceiling as high as the whole cluster is none: whoever
        reaches that lacks room. Nor has a queue one that is gone."""
        if queue not in self._ceilings:
            given = self.shares[queue].ceiling if queue in self.shares else {}
            self._ceilings[queue] = {
                name: most if (most := given.get(name, inf)) < there else inf
                for name, there in self._cluster.items()
            }
        return self._ceilings[queue]

    def headroom(self, queue: str, requests: Resources, limit: Portions) -> int:
        """How many more of `requests` keep the queue within `limit`."""
        held = self._allocated.get(queue, {})
        most = min(
            (limit.get(name, 0.0) - held.get(name, 0) + EPSILON) / amount
            for name, amount in self._there(requests).items()
        )
        return int(min(max(most, 0.0), _NO_LIMIT))

    def never_below_ceiling(self, queue: str, asked: Resources) -> bool:
        """Whether `asked` is above the ceiling even if the queue held nothing."""
        return bool(exceeded(self._there(asked), {}, self.ceiling(queue)))

    def over_ceiling(self, queue: str, asked: Resources) -> str:
        """In words, how `asked` would break the queue's ceiling; empty when it would not."""
        return self._exceeds(queue, self._there(asked), self.ceiling(queue))

    def over_share(self, queue: str, asked: Resources) -> bool:
        held = self._allocated.get(queue, {})
        return bool(exceeded(self._there(asked), held, self.deserved(queue), _NOT_SHARED))

    def _there(self, asked: Resources) -> Resources:
        """Without what no node offers: that is no question of shares, the pods never fit."""
        return {name: amount for name, amount in asked.items() if name in self._cluster}

    def _exceeds(self, queue: str, asked: Resources, limit: Portions) -> str:
        held = self._allocated.get(queue, {})
        return ", ".join(
            f"{name}: {show(name, held.get(name, 0))} held + {show(name, asked[name])} asked"
            f" > {show(name, limit.get(name, 0))}"
            for name in exceeded(asked, held, limit)
        )


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
