"""What a simulation comes to: makespan, waits, utilisation, and how fair it was, by queue."""

import math
from collections.abc import Sequence
from statistics import mean, median

import msgspec

from extender.domain.model.reasons import Verdict
from extender.domain.model.resources import PODS
from extender.sim.virtual.tally import Story, Tally

_DIGITS = 4


class Part(msgspec.Struct, frozen=True, rename="camel"):
    """Base of what is printed as JSON or YAML."""


class Waits(Part, frozen=True):
    """Seconds from the moment when the members that a group needs were there until they ran."""

    mean: float
    median: float
    p95: float
    max: float


class QueueReport(Part, frozen=True):
    """`allocated` and `deserved` are parts of the whole cluster, averaged over the time with work."""

    name: str
    weight: int
    groups: int
    done: int
    waits: Waits | None
    allocated: dict[str, float]
    deserved: dict[str, float]


class Unstarted(Part, frozen=True):
    """A group that waits still when nothing changes any more, and why."""

    group: str
    queue: str
    reason: str
    detail: str


class Report(Part, frozen=True):
    makespan: float
    nodes: int
    pods: int
    groups: int
    done: int
    decisions: int
    outsiders: int
    waits: Waits | None
    utilisation: dict[str, float]
    queues: list[QueueReport]
    never_started: list[Unstarted]


def report(tally: Tally, nodes: int, decisions: int, end: float) -> Report:
    stories = list(tally.stories.values())
    return Report(
        makespan=_rounded(end - (tally.first or 0.0)),
        nodes=nodes,
        pods=sum(story.present for story in stories),
        groups=len(stories),
        done=_done(stories),
        decisions=decisions,
        outsiders=tally.outsiders,
        waits=_waits(stories),
        utilisation=_utilisation(tally),
        queues=[_queue(tally, name) for name in _names(tally)],
        never_started=[_unstarted(tally, story) for story in stories if story.started is None],
    )


def _names(tally: Tally) -> list[str]:
    """The queues that were asked for anything."""
    used = {story.queue for story in tally.stories.values()}
    return sorted(name for name in tally.decisions.queues if name in used)


def _queue(tally: Tally, name: str) -> QueueReport:
    stories = [story for story in tally.stories.values() if story.queue == name]
    sums = tally.sums[name]
    return QueueReport(
        name=name,
        weight=tally.decisions.queues[name].weight,
        groups=len(stories),
        done=_done(stories),
        waits=_waits(stories),
        allocated={each: _part(tally, each, sums.allocated[each]) for each in _resources(tally)},
        deserved={each: _part(tally, each, sums.deserved[each]) for each in _resources(tally)},
    )


def _utilisation(tally: Tally) -> dict[str, float]:
    sums = tally.sums.values()
    return {
        name: _part(tally, name, sum(each.allocated[name] for each in sums)) for name in _resources(tally)
    }


def _resources(tally: Tally) -> list[str]:
    """What was asked for, and is there."""
    asked = {name for sums in tally.sums.values() for name in sums.allocated}
    return [name for name, most in tally.capacity.items() if most and name in asked and name != PODS]


def _part(tally: Tally, name: str, held: float) -> float:
    return _rounded(held / tally.capacity[name] / tally.busy) if tally.busy else 0.0


def _done(stories: Sequence[Story]) -> int:
    return sum(story.over is not None for story in stories)


def _waits(stories: Sequence[Story]) -> Waits | None:
    waits = sorted(story.wait for story in stories if story.wait is not None)
    if not waits:
        return None
    p95 = waits[math.ceil(0.95 * len(waits)) - 1]
    return Waits(*map(_rounded, (mean(waits), median(waits), p95, waits[-1])))


def _unstarted(tally: Tally, story: Story) -> Unstarted:
    decision = tally.decisions.groups.get(story.key)
    if decision is None or decision.verdict is not Verdict.WAITING:
        return Unstarted(story.key, story.queue, "", "")
    return Unstarted(story.key, story.queue, str(decision.reason or ""), decision.detail)


def _rounded(value: float) -> float:
    return round(value, _DIGITS)
