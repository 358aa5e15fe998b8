"""How fairly siblings of a tree of queues share, by Jain's index: (sum of x)² / (n · sum of x²).

x is held/deserved in the dominant resource, of the n siblings that want more than they hold: 1 where all of
them have the same part of what they deserve, 1/n where one has all.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from extender.api.keys import ROOT_QUEUE
from extender.domain.decisions.decisions import QueueDecision


def jain(shares: Sequence[float]) -> float:
    """1 where nobody has anything."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


class Fairness:
    """The mean over time of each level of the tree, 1 being the children of root. Moments count at which at
    least two siblings want more."""

    def __init__(self) -> None:
        self._sums: defaultdict[int, float] = defaultdict(float)
        self._seconds: defaultdict[int, float] = defaultdict(float)

    def add(self, queues: Mapping[str, QueueDecision], seconds: float) -> None:
        siblings: dict[str, list[float]] = {}
        for queue in queues.values():
            if queue.parent and _wants_more(queue):
                siblings.setdefault(queue.parent, []).append(queue.share)
        for parent, shares in siblings.items():
            if len(shares) > 1:
                level = _depth(parent, queues) + 1
                self._sums[level] += jain(shares) * seconds
                self._seconds[level] += seconds

    def means(self) -> dict[int, float]:
        return {level: self._sums[level] / self._seconds[level] for level in sorted(self._sums)}


def _wants_more(queue: QueueDecision) -> bool:
    return any(amount > queue.allocated.get(name, 0) for name, amount in queue.requested.items())


def _depth(name: str, queues: Mapping[str, QueueDecision]) -> int:
    depth = 0
    while name != ROOT_QUEUE and name in queues:
        name, depth = queues[name].parent, depth + 1
    return depth
