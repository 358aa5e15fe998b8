"""Report of a simulation: makespan, waits, utilisation and fairness, by queue."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import mean, median
from typing import Any

import msgspec

from extender.api.keys import DEFAULT_QUEUE, ROOT_QUEUE
from extender.api.units import and_more, two_units
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.resources import PODS
from extender.files.unasked import Unasked
from extender.sim.virtual.measurements import GroupTimeline, Measurements
from extender.sim.virtual.simulation import RefusedPod
from extender.sim.virtual.workload import key_of_group
from extender.terminal.text import (
    columns,
    did_you_mean,
    many,
    names_in,
    near_misses,
    pods_that_name,
    shortened,
)

_DIGITS = 4
NOT_ASKED = "NotAsked"  # the reason of objects that Muster is not asked to start
FAILED_CREATE = "FailedCreate"  # reason of groups whose pods a quota refuses, as in Kubernetes' own event


class Part(msgspec.Struct, frozen=True, rename="camel"):
    """Base of all parts of the printed document."""


class Waits(Part, frozen=True):
    """Waits in seconds, from the time when the needed members existed until they ran."""

    mean: float
    median: float
    p95: float
    max: float


class SizeReport(Part, frozen=True):
    """Groups of one size, in pods."""

    pods: str
    groups: int
    started: int
    done: int
    waits: Waits | None


class GroupCounts(Part, frozen=True):
    groups: int
    started: int
    done: int


class LevelReport(Part, frozen=True):
    """Report of a level: `jain` is Jain's index of held/deserved among unmet siblings, over time.

    `level` 1: the queues directly below root.
    """

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
    """Unstarted group at the end, with its reason.

    Attributes:
        hint: A similar name, if the group or its queue does not exist.
        pods: Members that have not started, if the group has; 0 if it has not.
    """

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
    started: int  # groups of which the members that they need have run
    done: int  # groups of which all have ended
    one_by_one: GroupCounts  # the part of them whose pods need not start together
    decisions: int
    outsiders: int
    waits: Waits | None
    utilisation: dict[str, float]
    fairness: list[LevelReport]
    evictions: int  # pods evicted for others, and created again
    reservations: int  # groups for which nodes were reserved
    sizes: list[SizeReport]
    queues: list[QueueReport]
    never_started: list[Unstarted]
    compared: "SimulationReport | None" = None  # with traverse only, if that was asked for


def report(
    measured: Measurements,
    nodes: int,
    decisions: int,
    end: float,
    unasked: Sequence[Unasked] = (),
    refused: Sequence[RefusedPod] = (),
) -> SimulationReport:
    lacking = {key_of_group(pod.member.pod) for pod in refused}
    timelines, queues = list(measured.timelines.values()), measured.decisions.queues
    by_queue = defaultdict[str, list[GroupTimeline]](list)
    by_size = defaultdict[int, list[GroupTimeline]](list)
    for timeline in timelines:
        by_queue[timeline.queue].append(timeline)
        by_size[(max(timeline.present, 1).bit_length() - 1) // 2].append(timeline)
    top = [sums.allocated for name, sums in measured.sums.items() if queues[name].parent == ROOT_QUEUE]
    return SimulationReport(
        makespan=_rounded(end - (measured.first or 0.0)),
        nodes=nodes,
        pods=sum(timeline.present for timeline in timelines),
        decisions=decisions,
        outsiders=measured.outsiders,
        **_counts(timelines),
        one_by_one=GroupCounts(**_numbers([each for each in timelines if each.needed <= 1])),
        utilisation=_parts(measured, *top),
        fairness=[LevelReport(level, _rounded(mean)) for level, mean in measured.fairness.means().items()],
        evictions=sum(timeline.reclaimed.total() for timeline in timelines),
        reservations=sum(bool(timeline.reserved) for timeline in timelines),
        sizes=[  # in classes, each four times as large as the one before; empty ones are left out
            SizeReport(f"{4**size}-{4 ** (size + 1) - 1}", **_counts(by_size[size]))
            for size in sorted(by_size)
        ],
        queues=[
            QueueReport(
                name=name,
                weight=queues[name].weight,
                **_counts(by_queue[name]),
                allocated=_parts(measured, measured.sums[name].allocated),
                deserved=_parts(measured, measured.sums[name].deserved),
            )
            for name in sorted(queues.keys() & by_queue.keys())
        ],
        never_started=[
            *_refused(measured, refused),
            *(
                _unstarted(measured, timeline)
                for timeline in timelines
                if timeline.unstarted and timeline.key not in lacking
            ),
            *(Unstarted(job.title, "", NOT_ASKED, job.missing) for job in unasked if job.suspended),
        ],
    )


def _parts(measured: Measurements, *held: Mapping[str, float]) -> dict[str, float]:
    """Return the parts of the cluster, for each requested resource that exists."""
    asked = {name for sums in measured.sums.values() for name in sums.allocated}
    return {
        name: _rounded(sum(each.get(name, 0.0) for each in held) / most / (measured.busy or math.inf))
        for name, most in measured.capacity.items()
        if most and name in asked and name != PODS
    }


def _counts(timelines: Sequence[GroupTimeline]) -> dict[str, Any]:
    waits = sorted(timeline.wait for timeline in timelines if timeline.wait is not None)
    p95 = waits[math.ceil(0.95 * len(waits)) - 1] if waits else 0.0
    return _numbers(timelines) | {
        "waits": Waits(*map(_rounded, (mean(waits), median(waits), p95, waits[-1]))) if waits else None,
    }


def _numbers(timelines: Sequence[GroupTimeline]) -> dict[str, int]:
    return {
        "groups": len(timelines),
        "started": sum(timeline.started is not None for timeline in timelines),
        "done": sum(timeline.over is not None for timeline in timelines),
    }


def _refused(measured: Measurements, refused: Sequence[RefusedPod]) -> Iterator[Unstarted]:
    left = Counter(key_of_group(pod.member.pod) for pod in refused)
    first = {key_of_group(pod.member.pod): pod for pod in reversed(refused)}
    for key, number in left.items():
        name, total = measured.name_of(key), measured.members_of[key]
        timeline = measured.timelines.get(key)
        pods = number if timeline is not None and timeline.started is not None else 0
        queue = timeline.queue if timeline is not None else ""
        created = f"{total - number} of {many(total, 'pod')}"
        is_owned = bool(first[key].member.pod.metadata.owner_references)
        said = f"its controller has created {created}" if is_owned else f"{created} created"
        detail = f"{said}: {first[key].why}"
        yield Unstarted(name, queue, FAILED_CREATE, detail, pods=pods)


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


# ---- as plain lines, alone or next to the report with traverse only, as wide as the terminal

_SHORTEST_NAME = 12
Cells = tuple[object, ...]


def fitting(head: Sequence[str], rows: Sequence[Cells], width: int) -> list[str]:
    """Return a table in which names are shortened to fit, and numbers are not."""
    made = columns(head, rows, right=len(head) - 1)
    over = max(map(len, made)) - width
    if not width or over <= 0:
        return made
    longest = max(len(str(row[0])) for row in rows)
    capacity = max(longest - over, _SHORTEST_NAME)
    cut = [(shortened(str(name), capacity, unicode=False), *rest) for name, *rest in rows]
    return columns(head, cut, right=len(head) - 1)


# ---- two reports side by side


def comparison(given: SimulationReport, other: SimulationReport, width: int) -> list[str]:
    both = given, other
    rows: list[Cells] = [("makespan", *(two_units(report.makespan) for report in both))]
    for name in given.utilisation:
        held = (report.utilisation.get(name, 0.0) for report in both)
        rows.append((f"utilisation of {name}", *(f"{part:.1%}" for part in held)))
    levels = [{found.level: f"{found.jain:.2f}" for found in report.fairness} for report in both]
    rows += [(f"fairness of level {level}", *(of.get(level, "-") for of in levels)) for level in levels[0]]
    rows.append(("evicted pods", given.evictions, other.evictions))
    waits = [("", given.waits, other.waits)]
    for mine, its in zip(given.sizes, other.sizes, strict=True):
        waits.append((f" of {mine.pods} pods", mine.waits, its.waits))
    for of_what, *pair in waits:
        rows.append((f"mean wait{of_what}", *(two_units(each.mean) if each else "-" for each in pair)))
        rows.append((f"longest wait{of_what}", *(two_units(each.max) if each else "-" for each in pair)))
    title = "against traverse only, without reservations and reclaim"
    return ["", title, *fitting(("", "as given", "traverse"), rows, width)]


# ---- one report

_MOST_UNSTARTED = 10


def lines(report: SimulationReport, width: int = 0) -> Iterator[str]:
    """Return the report as lines. `width`: the columns of the terminal; 0: no limit."""
    apart = report.one_by_one
    gangs = report.groups - apart.groups
    counts = {"pod": report.pods, "gang": gangs, "other group": apart.groups}
    counts |= {"queue": len(report.queues), "node": report.nodes, "decision": report.decisions}
    yield ", ".join(many(n, noun) for noun, n in counts.items() if n or noun not in ("gang", "other group"))
    if report.outsiders:
        yield f"{many(report.outsiders, 'pod')} of other schedulers left alone"
    yield ""
    yield f"makespan     {two_units(report.makespan)}"
    if gangs or not apart.groups:
        started, done = report.started - apart.started, report.done - apart.done
        yield f"started      {started:,} of {many(gangs, 'gang')}, {done:,} done"
    if apart.groups:
        of = many(apart.groups, "group")
        yield f"one by one   {apart.started:,} of {of} started, {apart.done:,} done"
    used = ", ".join(f"{name} {part:.1%}" for name, part in report.utilisation.items())
    if not used:  # all pods requested nothing, or started at the end of the simulation
        held = "no resources were held for any time" if report.makespan else "no time passed"
        used = f"not measured: {held}" if report.started else "nothing ran"
    yield f"utilisation  {used}"
    if report.fairness:
        levels = (f"level {level.level} {level.jain:.2f}" for level in report.fairness)
        yield f"fairness     {', '.join(levels)}"
    if report.evictions:
        yield f"evicted      {many(report.evictions, 'pod')}, which came again"
    if report.reservations:
        yield f"reserved     nodes for {many(report.reservations, 'group')}"
    yield from _waits(report, width)
    yield from _sizes(report, width)
    yield from _shares(report, width)
    if report.compared is not None:
        yield from comparison(report, report.compared, width)
    if report.never_started:
        yield ""
        yield from _never_started(report)


def _waits(report: SimulationReport, width: int) -> list[str]:
    if not report.groups:
        none_came = any(each.reason == FAILED_CREATE for each in report.never_started)
        return [] if none_came else ["", "nothing in there is for Muster to start"]
    head = ("queue", "weight", "groups", "started", "done", "mean", "median", "p95", "max")
    rows = [_wait(queue.name, queue.weight, queue) for queue in report.queues]
    if len(rows) > 1:
        rows.append(_wait("all", "", report))
    return ["", "time that groups waited", *fitting(head, rows, width)]


def _wait(name: str, weight: int | str, of: QueueReport | SizeReport | SimulationReport) -> Cells:
    waits = of.waits
    times = (waits.mean, waits.median, waits.p95, waits.max) if waits else ()
    durations = tuple(map(two_units, times)) or ("-",) * 4
    return (name, weight, f"{of.groups:,}", f"{of.started:,}", f"{of.done:,}", *durations)


def _sizes(report: SimulationReport, width: int) -> list[str]:
    if len(report.sizes) < 2:
        return []
    head = ("pods", "groups", "started", "done", "mean", "median", "p95", "max")
    rows = [(size.pods, *_wait("", "", size)[2:]) for size in report.sizes]
    return ["", "time that groups waited, by size", *fitting(head, rows, width)]


def _shares(report: SimulationReport, width: int) -> list[str]:
    """Return the lines of the most used resource."""
    name = max(report.utilisation, key=lambda resource: report.utilisation[resource], default="")
    if not name:
        return []
    head = ("queue", "weight", "held", "deserved", "held/due")
    rows: list[Cells] = []
    for queue in report.queues:
        held, due = queue.allocated[name], queue.deserved[name]
        ratio = f"{held / due:.2f}" if due else "-"
        rows.append((queue.name, queue.weight, f"{held:.1%}", f"{due:.1%}", ratio))
    return ["", f"shares of {name}, on average", *fitting(head, rows, width)]


def _never_started(report: SimulationReport) -> Iterator[str]:
    yield "never started:"
    for group in report.never_started[:_MOST_UNSTARTED]:
        reason = ": ".join(filter(None, (group.reason, group.detail))) or "no reason was given"
        name = f"{many(group.pods, 'pod')} of {group.group}" if group.pods else group.group
        yield f"  {name}: {reason}" + (f"; {group.hint}" if group.hint else "")
    rest = and_more(len(report.never_started) - _MOST_UNSTARTED, " (-o json has them all)")
    yield from (f"  {text}" for text in rest)
