"""The queues as a rule sees them: which there are, and how they hang together."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from extender.api.keys import ROOT_QUEUE
from extender.domain.snapshot import QueueView


class Picture:
    """Of one moment. Queues that groups name but that do not exist are not in it."""

    def __init__(self, views: Mapping[str, QueueView]) -> None:
        self.queues = {name: view for name, view in views.items() if view.exists}
        self._children: defaultdict[str, list[str]] = defaultdict(list)
        for name, view in self.queues.items():
            self._children[view.record.parent].append(name)

    def get(self, name: str) -> QueueView | None:
        return self.queues.get(name)

    def children(self, name: str) -> list[str]:
        return self._children.get(name, [])

    def line(self, name: str) -> Iterator[QueueView]:
        """`name` and the queues above it, without root, each once: a circle ends where it began."""
        seen: set[str] = set()
        while name != ROOT_QUEUE and name not in seen and (view := self.get(name)) is not None:
            seen.add(name)
            yield view
            name = view.record.parent

    def height(self, name: str, seen: frozenset[str] = frozenset()) -> int:
        """How many levels a queue and those below it make."""
        if name in seen:
            return 0
        below = (self.height(child, seen | {name}) for child in self.children(name))
        return 1 + max(below, default=0)

    def largest(self, resource: str, name: str, seen: frozenset[str] = frozenset()) -> tuple[str, int]:
        """The largest capability of a resource from a queue down, and whose it is. A queue that lists it
        answers for all below."""
        view = self.get(name)
        own = (view.record.capability or {}).get(resource) if view else None
        if own is not None or name in seen:
            return name, own or 0
        below = (self.largest(resource, child, seen | {name}) for child in self.children(name))
        return max(below, key=lambda each: each[1], default=(name, 0))
