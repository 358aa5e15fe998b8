"""What the Gantt chart draws: bars from the timelines of groups, packed into the room, and sums over time."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from extender.sim.virtual.measurements import GroupTimeline

Change = tuple[float, float]  # at which moment, by how much
Columns = npt.NDArray[np.float64]


def averages(changes: Iterable[Change], begin: float, end: float, columns: int) -> Columns:
    """The mean of a sum in each column, where it starts at 0 and takes these changes."""
    width = (end - begin) / columns
    part, rest = np.zeros(columns + 1), np.zeros(columns + 2)
    for moment, amount in changes:
        place = min(max((moment - begin) / width, 0.0), float(columns))
        column = int(place)
        part[column] += amount * (column + 1 - place)
        rest[column + 1] += amount
    means: Columns = (part + np.cumsum(rest)[:-1])[:columns]
    return means


class Bar(NamedTuple):
    """Members of a group that ran together."""

    timeline: GroupTimeline
    start: float
    end: float
    amount: int
    members: int


class Scene(NamedTuple):
    timelines: Sequence[GroupTimeline]
    bars: Sequence[Bar]
    resource: str  # what heights mean
    most: int  # what the cluster has of it
    begin: float
    end: float
    colours: Mapping[str, str]  # by queue

    def colour(self, timeline: GroupTimeline) -> str:
        return self.colours[timeline.queue]


def bars(timelines: Iterable[GroupTimeline], resource: str, end: float) -> list[Bar]:
    """Runs that have not ended last until `end`."""
    found: list[Bar] = []
    for timeline in timelines:
        amounts: Counter[tuple[float, float]] = Counter()
        members: Counter[tuple[float, float]] = Counter()
        for run, number in timeline.runs_of_members.items():
            span = (run.start, end if run.end is None else run.end)
            amounts[span] += number * run.shape.requests.get(resource, 0)
            members[span] += number
        found += [Bar(timeline, *span, amounts[span], number) for span, number in members.items() if number]
    return found


# ---- packing

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
        begin = joined.pop()[0] if joined and joined[-1][1] == low else low
        joined.append((begin, high))
    return joined
