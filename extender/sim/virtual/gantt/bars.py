"""What is drawn, out of the stories of the groups: who held how much of one resource, from when to when."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from extender.sim.virtual.tally import Story


class Bar(NamedTuple):
    """Members of a group that ran together."""

    story: Story
    start: float
    end: float
    amount: int
    members: int


class Scene(NamedTuple):
    """`resource`: what heights mean, of which the cluster has `most`. `colours`: by queue."""

    stories: Sequence[Story]
    bars: Sequence[Bar]
    resource: str
    most: int
    begin: float
    end: float
    colours: Mapping[str, str]

    def colour(self, story: Story) -> str:
        return self.colours[story.queue]


def bars(stories: Iterable[Story], resource: str, end: float) -> list[Bar]:
    """What runs still does so until the `end`."""
    return [bar for story in stories for bar in _of(story, resource, end)]


def _of(story: Story, resource: str, end: float) -> Iterable[Bar]:
    amounts: Counter[tuple[float, float]] = Counter()
    members: Counter[tuple[float, float]] = Counter()
    for stint, count in story.stints.items():
        span = (stint.start, end if stint.end is None else stint.end)
        amounts[span] += count * stint.shape.requests.get(resource, 0)
        members[span] += count
    return [Bar(story, *span, amounts[span], count) for span, count in members.items() if count]
