"""The rows of nodes, the cheapest first.

What queues hold changes with each unit that is taken, and with it the order of all rows where they would have
to give. So rows are kept by the queue that gives, and of each queue only the first row is compared with those
of the others.
"""

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import NamedTuple


class Cost(NamedTuple):
    """What it costs to make room on a row for one more member; smallest first, but for the queue, which is
    compared by its share."""

    tier: int
    pods: int
    queue: str
    """The one that gives; of several, that with the smallest share."""
    last_first: tuple[int, ...]
    """The rank of the units, inverted."""
    row: int


class _Turn(NamedTuple):
    tier: int
    pods: int
    share: float  # negative: the queue furthest above its share gives first
    last_first: tuple[int, ...]
    row: int
    queue: str


def free(row: int) -> Cost:
    """Nothing needs to go."""
    return Cost(-1, 0, "", (), row)


class CheapestFirst:
    """`costs`: what rows cost at least. `share`: what a queue holds by now of what it deserves."""

    def __init__(self, costs: Iterable[Cost], share: Callable[[str], float]) -> None:
        self._share = share
        self._lines: dict[str, list[Cost]] = {}
        for cost in costs:
            self._lines.setdefault(cost.queue, []).append(cost)
        self._turns: list[_Turn] = []
        for queue, line in self._lines.items():
            heapify(line)
            self._note(queue)

    def push(self, cost: Cost) -> None:
        line = self._lines.setdefault(cost.queue, [])
        heappush(line, cost)
        if line[0] is cost:
            self._note(cost.queue)

    def renew(self, rows: Iterable[int]) -> None:
        """What was known of these rows may be too much."""
        for row in rows:
            self.push(free(row))

    def pop(self) -> Cost | None:
        """The cheapest as far as is known; None: there is none left."""
        while self._turns:
            turn = heappop(self._turns)
            if turn == self._turn(turn.queue):
                cost = heappop(self._lines[turn.queue])
                self._note(turn.queue)
                return cost
            if not self._turns or self._turns[0].queue != turn.queue:
                self._note(turn.queue)
        return None

    def _note(self, queue: str) -> None:
        if (turn := self._turn(queue)) is not None:
            heappush(self._turns, turn)

    def _turn(self, queue: str) -> _Turn | None:
        line = self._lines[queue]
        if not line:
            return None
        tier, pods, _, last_first, row = line[0]
        return _Turn(tier, pods, -self._share(queue), last_first, row, queue)
