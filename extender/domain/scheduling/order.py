"""The order of groups: queues take turns, inside a queue the first is served first.

The queue of the highest priority is next, among equals the one with the smallest share of what it deserves,
then the oldest. A queue's share rises with what its groups take, so that none has everything because it came
first. Inside a queue: priority, then age, then name.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import Generic, NamedTuple, TypeVar

from extender.domain.queues.queue_view import QueueView
from extender.domain.scheduling.queue_shares import QueueShares
from extender.domain.snapshot.group_view import GroupView

T = TypeVar("T")


class QueueTurn(NamedTuple):
    """Smallest first."""

    priority: int  # negative: high ones come first
    share: float
    created: str
    queue: str


class TurnOrder(Generic[T]):
    """Lines of gangs, or of members that come one by one, by queue."""

    def __init__(
        self, shares: QueueShares, queues: Mapping[str, QueueView], lines: Mapping[str, deque[T]]
    ) -> None:
        self._shares = shares
        self._queues = queues
        self._lines = lines
        self._turns = [self._turn(queue) for queue, line in lines.items() if line]
        heapify(self._turns)

    def __iter__(self) -> Iterator[tuple[str, deque[T]]]:
        """A queue and its line, again and again until all lines are empty."""
        while self._turns:
            queue = heappop(self._turns).queue
            yield queue, self._lines[queue]
            if self._lines[queue]:
                heappush(self._turns, self._turn(queue))

    def share_of_next(self, queue: str) -> float | None:
        """The share of the queue that comes after this one; None if no queue of its priority does."""
        following = self._turns[0] if self._turns else None
        if following is None or following.priority != self._turn(queue).priority:
            return None
        return following.share

    def _turn(self, queue: str) -> QueueTurn:
        record = self._queues[queue].record
        return QueueTurn(-record.priority, self._shares.of(queue), record.created, queue)


def by_priority(group: GroupView) -> tuple[float | str, ...]:
    """Priority, then age, then name."""
    return group.order


def in_lines(
    things: Iterable[T],
    group_of: Callable[[T], GroupView],
    rank: Callable[[GroupView], tuple[float | str, ...]] = by_priority,
) -> dict[str, deque[T]]:
    """By queue, in the order inside it: smallest rank first."""
    lines: dict[str, deque[T]] = {}
    for thing in sorted(things, key=lambda each: rank(group_of(each))):
        lines.setdefault(group_of(thing).queue, deque()).append(thing)
    return lines
