"""What a simulation comes to: makespan, waits, utilisation, and how fair it was, by queue."""

import math
from collections.abc import Sequence
from statistics import mean, median

import msgspec

from extender.api.keys import DEFAULT_QUEUE, ROOT_QUEUE
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.resources import PODS
from extender.sim.files.unasked import Unasked
from extender.sim.virtual.measurements import GroupTimeline, Measurements
from extender.terminal.text import did_you_mean, names_in, near_misses, pods_that_name

_DIGITS = 4
NOT_ASKED = "NotAsked"  # the reason of what Muster leaves alone


class Part(msgspec.Struct, frozen=True, rename="camel"):
    """Base of what is printed as JSON or YAML."""


class Waits(Part, frozen=True):
    """Seconds from the moment when the members that a group needs were there until they ran."""

    mean: float
    median: float
    p95: float
    max: float


class SizeReport(Part, frozen=True):
    """The groups of so many pods."""

    pods: str
    groups: int
    started: int
    done: int
    waits: Waits | None


class LevelReport(Part, frozen=True):
    """`jain`: Jain's index of held/deserved among siblings that want more, averaged over time; `level` 1:
    the queues directly below root."""

    level: int
    jain: float


class QueueReport(Part, frozen=True):
    """`allocated` and `deserved` are parts of the whole cluster, averaged over the time with work."""

    name: str
    weight: int
    groups: int
    started: int
    done: int
    waits: Waits | None
    allocated: dict[str, float]
    deserved: dict[str, float]


class Unstarted(Part, frozen=True):
    """A group that still waits when nothing changes any more, and why. `hint`: the name that was probably
    meant, if the group or its queue does not exist. `pods`: of one that has started, its members that have
    not; 0: it has not."""

    group: str
    queue: str
    reason: str
    detail: str
    hint: str = ""
    pods: int = 0


class SimulationReport(Part, frozen=True):
    makespan: float
    nodes: int
    pods: int
    groups: int
    started: int
    """Groups of which the members that they need have run."""
    done: int
    """Groups of which all have ended."""
    decisions: int
    outsiders: int
    waits: Waits | None
    utilisation: dict[str, float]
    fairness: list[LevelReport]
    evictions: int
    """Pods that gave their room back to others, and came again."""
    reservations: int
    """Groups for which nodes were reserved."""
    sizes: list[SizeReport]
    queues: list[QueueReport]
    never_started: list[Unstarted]
    compared: "SimulationReport | None" = None
    """The same trace with traverse only; None unless that was asked for."""


def report(
    measured: Measurements, nodes: int, decisions: int, end: float, unasked: Sequence[Unasked] = ()
) -> SimulationReport:
    timelines = list(measured.timelines.values())
    used = {timeline.queue for timeline in timelines}
    return SimulationReport(
        makespan=_rounded(end - (measured.first or 0.0)),
        nodes=nodes,
        pods=sum(timeline.present for timeline in timelines),
        groups=len(timelines),
        started=_started(timelines),
        done=_done(timelines),
        decisions=decisions,
        outsiders=measured.outsiders,
        waits=_waits(timelines),
        utilisation=_utilisation(measured),
        fairness=[LevelReport(level, _rounded(mean)) for level, mean in measured.fairness.means().items()],
        evictions=sum(timeline.reclaimed.total() for timeline in timelines),
        reservations=sum(bool(timeline.reserved) for timeline in timelines),
        sizes=_sizes(timelines),
        queues=[_queue(measured, name) for name in sorted(measured.decisions.queues) if name in used],
        never_started=[
            *(_unstarted(measured, timeline) for timeline in timelines if timeline.unstarted),
            *(Unstarted(job.title, "", NOT_ASKED, job.missing) for job in unasked if job.suspended),
        ],
    )


def _sizes(timelines: Sequence[GroupTimeline]) -> list[SizeReport]:
    """In classes, each four times as large as the one before; empty ones are left out."""
    by_size: dict[int, list[GroupTimeline]] = {}
    for timeline in timelines:
        by_size.setdefault((max(timeline.present, 1).bit_length() - 1) // 2, []).append(timeline)
    return [
        SizeReport(
            pods=f"{4**size}-{4 ** (size + 1) - 1}",
            groups=len(of_size),
            started=_started(of_size),
            done=_done(of_size),
            waits=_waits(of_size),
        )
        for size, of_size in sorted(by_size.items())
    ]


def _queue(measured: Measurements, name: str) -> QueueReport:
    timelines = [timeline for timeline in measured.timelines.values() if timeline.queue == name]
    sums, resources = measured.sums[name], _resources(measured)
    return QueueReport(
        name=name,
        weight=measured.decisions.queues[name].weight,
        groups=len(timelines),
        started=_started(timelines),
        done=_done(timelines),
        waits=_waits(timelines),
        allocated={resource: _part(measured, resource, sums.allocated[resource]) for resource in resources},
        deserved={resource: _part(measured, resource, sums.deserved[resource]) for resource in resources},
    )


def _utilisation(measured: Measurements) -> dict[str, float]:
    queues = measured.decisions.queues
    sums = [queue_sums for name, queue_sums in measured.sums.items() if queues[name].parent == ROOT_QUEUE]
    return {
        name: _part(measured, name, sum(queue_sums.allocated[name] for queue_sums in sums))
        for name in _resources(measured)
    }


def _resources(measured: Measurements) -> list[str]:
    """What was asked for, and is there."""
    asked = {name for sums in measured.sums.values() for name in sums.allocated}
    return [name for name, most in measured.capacity.items() if most and name in asked and name != PODS]


def _part(measured: Measurements, name: str, held: float) -> float:
    return _rounded(held / measured.capacity[name] / measured.busy) if measured.busy else 0.0


def _started(timelines: Sequence[GroupTimeline]) -> int:
    return sum(timeline.started is not None for timeline in timelines)


def _done(timelines: Sequence[GroupTimeline]) -> int:
    return sum(timeline.over is not None for timeline in timelines)


def _waits(timelines: Sequence[GroupTimeline]) -> Waits | None:
    waits = sorted(timeline.wait for timeline in timelines if timeline.wait is not None)
    if not waits:
        return None
    p95 = waits[math.ceil(0.95 * len(waits)) - 1]
    return Waits(*map(_rounded, (mean(waits), median(waits), p95, waits[-1])))


def _unstarted(measured: Measurements, timeline: GroupTimeline) -> Unstarted:
    decision = measured.decisions.groups.get(timeline.key)
    pods = 0 if timeline.started is None else timeline.unstarted
    if decision is None or (decision.verdict is not Verdict.WAITING and not pods):
        return Unstarted(timeline.name, timeline.queue, "", "", pods=pods)
    hint = ""
    if decision.reason is Reason.QUEUE_NOT_FOUND:
        hint = did_you_mean(near_misses(timeline.queue, {*measured.known_queues, DEFAULT_QUEUE}, 1))
    elif decision.reason is Reason.GROUP_NOT_FOUND:
        namespace, _, named = timeline.name.partition("/")
        if meant := did_you_mean(near_misses(named, names_in(namespace, measured.known_groups), 1)):
            hint = f"{pods_that_name(timeline.present)} {named}: {meant}"
    reason = str(decision.reason or "")
    return Unstarted(timeline.name, timeline.queue, reason, decision.detail, hint, pods)


def _rounded(value: float) -> float:
    return round(value, _DIGITS)
