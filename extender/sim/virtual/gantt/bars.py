"""What is drawn, made from the timelines of groups: how much of a resource each held, from when to when."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from extender.sim.virtual.measurements import GroupTimeline


class Bar(NamedTuple):
    """Members of a group that ran together."""

    timeline: GroupTimeline
    start: float
    end: float
    amount: int
    members: int


class Scene(NamedTuple):
    """`resource`: what heights mean, of which the cluster has `most`. `colours`: by queue."""

    timelines: Sequence[GroupTimeline]
    bars: Sequence[Bar]
    resource: str
    most: int
    begin: float
    end: float
    colours: Mapping[str, str]

    def colour(self, timeline: GroupTimeline) -> str:
        return self.colours[timeline.queue]


def bars(timelines: Iterable[GroupTimeline], resource: str, end: float) -> list[Bar]:
    """What runs still does so until the `end`."""
    return [bar for timeline in timelines for bar in _of(timeline, resource, end)]


def _of(timeline: GroupTimeline, resource: str, end: float) -> Iterable[Bar]:
    amounts: Counter[tuple[float, float]] = Counter()
    members: Counter[tuple[float, float]] = Counter()
    for run, count in timeline.runs_of_members.items():
        span = (run.start, end if run.end is None else run.end)
        amounts[span] += count * run.shape.requests.get(resource, 0)
        members[span] += count
    return [Bar(timeline, *span, amounts[span], count) for span, count in members.items() if count]
