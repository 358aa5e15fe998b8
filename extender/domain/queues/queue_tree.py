"""The queues as admission rules see them: which exist, and which is below which."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from extender.api.keys import ROOT_QUEUE
from extender.domain.model.resources import PODS
from extender.domain.queues.queue_records import QueueRecord
from extender.domain.queues.queue_view import QueueView


class QueueTree:
    """All queues at one moment. What a queue holds is looked up on demand: few rules ask, for few queues."""

    def __init__(self, queues: Mapping[str, QueueRecord], look_up: Callable[[str], QueueView | None]) -> None:
        self.queues = queues
        self._look_up = look_up
        self._children: defaultdict[str, list[str]] = defaultdict(list)
        for name, record in queues.items():
            self._children[record.parent].append(name)

    def view(self, name: str) -> QueueView | None:
        """A queue with what it holds; None if there is no such queue."""
        return self._look_up(name) if name in self.queues else None

    def pods(self, name: str) -> int:
        """How many pods of a queue are on nodes."""
        view = self.view(name)
        return view.allocated.get(PODS, 0) if view else 0

    def children(self, name: str) -> list[str]:
        return self._children.get(name, [])

    def ancestry(self, name: str) -> Iterator[QueueRecord]:
        """`name` and the queues above it, nearest first and without root; a cycle ends where it began."""
        seen: set[str] = set()
        while name != ROOT_QUEUE and name not in seen and (record := self.queues.get(name)) is not None:
            seen.add(name)
            yield record
            name = record.parent

    def height(self, name: str, seen: frozenset[str] = frozenset()) -> int:
        """The number of levels from a queue down to the lowest below it, itself included."""
        if name in seen:
            return 0
        below = (self.height(child, seen | {name}) for child in self.children(name))
        return 1 + max(below, default=0)

    def largest(self, resource: str, name: str, seen: frozenset[str] = frozenset()) -> tuple[str, int]:
        """The largest capability of a resource among a queue and those below it, as (queue, amount). A queue
        that lists the resource counts in place of all below it."""
        record = self.queues.get(name)
        own = (record.capability or {}).get(resource) if record else None
        if own is not None or name in seen:
            return name, own or 0
        below = (self.largest(resource, child, seen | {name}) for child in self.children(name))
        return max(below, key=lambda each: each[1], default=(name, 0))
