"""Where bars go in the room: the smallest gap that is high enough, or else several, the largest first."""

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from extender.sim.virtual.gantt.bars import Bar

Gap = tuple[int, int]  # from, to


class Piece(NamedTuple):
    bar: Bar
    low: int
    high: int


def pack(bars: Iterable[Bar], most: int) -> Iterator[Piece]:
    """Pieces of all bars; whatever runs together never overlaps, and what is left free is idle."""
    gaps: list[Gap] = [(0, most)]
    running: list[tuple[float, int, list[Gap]]] = []
    order = count()
    for bar in sorted(bars, key=lambda bar: (bar.start, -bar.amount)):
        while running and running[0][0] <= bar.start:
            gaps = _joined(gaps + heappop(running)[-1])
        taken, gaps = _take(gaps, bar.amount)
        heappush(running, (bar.end, next(order), taken))
        yield from (Piece(bar, low, high) for low, high in taken)


def _take(gaps: list[Gap], amount: int) -> tuple[list[Gap], list[Gap]]:
    """What is taken, and what is left."""
    whole = min((gap for gap in gaps if _height(gap) >= amount), key=_height, default=None)
    order = [whole] if whole else sorted(gaps, key=_height, reverse=True)
    taken: list[Gap] = []
    for low, high in order:
        if amount > 0:
            taken.append((low, min(high, low + amount)))
            amount -= taken[-1][1] - low
    ends = dict(taken)
    left = [(ends.get(low, low), high) for low, high in gaps]
    return taken, [(low, high) for low, high in left if low < high]


def _height(gap: Gap) -> int:
    return gap[1] - gap[0]


def _joined(gaps: list[Gap]) -> list[Gap]:
    joined: list[Gap] = []
    for low, high in sorted(gaps):
        if joined and joined[-1][1] == low:
            joined[-1] = (joined[-1][0], high)
        else:
            joined.append((low, high))
    return joined
