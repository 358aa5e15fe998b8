"""The order of groups: queues take turns, inside a queue the first is served first.

Among siblings, from root down, the queue of the highest priority is next, among equals the one with the
smallest share of what it deserves, then the oldest. A queue's share rises with what its groups, and those of
queues below it, take, so that none has everything because it came first. Inside a queue: priority, then age,
then name.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import Generic, NamedTuple, TypeVar

from extender.domain.model.resources import Resources
from extender.domain.queues.queue_view import QueueView
from extender.domain.scheduling.queue_shares import QueueShares
from extender.domain.shares.share_tree import TOP
from extender.domain.snapshot.group_view import GroupView

T = TypeVar("T")


class Turn(NamedTuple):
    """Of a queue among its siblings; smallest first."""

    priority: int  # negative: high ones come first
    share: float
    created: str
    queue: str
    node: int


class TurnOrder(Generic[T]):
    """Lines of gangs, or of members that come one by one, by queue. From root down, the sibling whose turn it
    is; with each taking, the shares on its way change, and no others."""

    def __init__(
        self, shares: QueueShares, queues: Mapping[str, QueueView], lines: Mapping[str, deque[T]]
    ) -> None:
        self._shares = shares
        self._tree = shares.tree
        self._queues = queues
        self._lines = lines
        self._turns: defaultdict[int, list[Turn]] = defaultdict(list)  # of the children of a node
        self._way: list[Turn] = []  # of the queue whose turn it is, from root down
        waiting = {node for queue, line in lines.items() if line for node in self._tree.path(queue)}
        for node in waiting - {TOP}:
            self._turns[self._tree.parents[node]].append(self._turn(node))
        for turns in self._turns.values():
            heapify(turns)

    def __iter__(self) -> Iterator[tuple[str, deque[T]]]:
        """A queue and its line, again and again until all lines are empty."""
        while self._turns[TOP]:
            self._way = self._next_way()
            queue = self._way[-1].queue
            yield queue, self._lines[queue]
            self._put_back()

    def members_until_next(self, queue: str, requests: Resources) -> int | None:
        """How many members that ask for `requests` bring the queue whose turn it is, or one above it, past
        the next of its siblings with the same priority; None where none has any."""
        counts = [
            self._shares.headroom_at(turn.node, requests, following.share) + 1
            for turn in self._way
            if (following := self._following(turn)) is not None
        ]
        return min(counts, default=None)

    def _next_way(self) -> list[Turn]:
        way, node = [], TOP
        while turns := self._turns.get(node):
            way.append(heappop(turns))
            node = way[-1].node
        return way

    def _put_back(self) -> None:
        has_more = bool(self._lines[self._way[-1].queue])
        for turn in reversed(self._way):
            has_more = has_more or bool(self._turns.get(turn.node))
            if has_more:
                heappush(self._turns[self._tree.parents[turn.node]], self._turn(turn.node))

    def _following(self, turn: Turn) -> Turn | None:
        following = self._turns[self._tree.parents[turn.node]][:1]
        return following[0] if following and following[0].priority == turn.priority else None

    def _turn(self, node: int) -> Turn:
        queue = self._tree.queues[node]
        view = self._queues.get(queue)
        priority = -view.record.priority if view is not None and not self._tree.is_seat(node) else 0
        created = view.record.created if view is not None else ""
        return Turn(priority, self._shares.of_node(node), created, queue, node)


def by_priority(group: GroupView) -> tuple[float | str, ...]:
    """Priority, then age, then name."""
    return group.order


def in_lines(
    things: Iterable[T],
    group_of: Callable[[T], GroupView],
    rank: Callable[[GroupView], tuple[float | str, ...]] = by_priority,
) -> dict[str, deque[T]]:
    """By queue, in the order inside it: smallest rank first."""
    lines: defaultdict[str, list[T]] = defaultdict(list)
    for thing in things:
        lines[group_of(thing).queue].append(thing)
    for line in lines.values():
        line.sort(key=lambda each: rank(group_of(each)))
    return {queue: deque(line) for queue, line in lines.items()}
