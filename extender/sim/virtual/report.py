"""Report of a simulation: makespan, waits, utilisation and fairness, by queue."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import ceil, inf
from statistics import mean, median
from typing import Any

import msgspec

from extender.api.keys import DEFAULT_QUEUE, ROOT_QUEUE
from extender.api.units import and_more, precise_duration
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.resources import PODS
from extender.files.unmanaged_objects import UnmanagedObject
from extender.sim.virtual.measurements import GroupTimeline, Measurements
from extender.sim.virtual.simulation import RefusedPod
from extender.sim.virtual.workload import key_of_group
from extender.terminal.text import (
    columns,
    counted,
    did_you_mean,
    names_in,
    near_misses,
    pods_that_name,
    shorten,
)

_DIGITS = 4
NOT_ASKED = "NotAsked"  # reason of objects that Muster is not asked to start
FAILED_CREATE = "FailedCreate"  # reason of groups whose pods a quota refuses, as in Kubernetes' Event


class ReportPart(msgspec.Struct, frozen=True, rename="camel"):
    """Base of all parts of the printed JSON."""


class Waits(ReportPart, frozen=True):
    """Waits in seconds, from the time when the needed members existed until they ran."""

    mean: float
    median: float
    p95: float
    max: float


class SizeReport(ReportPart, frozen=True):
    """Groups of similar size. `pods` is the range of their sizes."""

    pods: str
    groups: int
    started: int
    done: int
    waits: Waits | None


class GroupCounts(ReportPart, frozen=True):
    groups: int
    started: int
    done: int


class LevelReport(ReportPart, frozen=True):
    """Fairness of a level. Level 1 has the queues directly below root.

    `jain` is Jain's index of held/deserved among siblings with unmet requests, averaged over time.
    """

    level: int
    jain: float


class QueueReport(ReportPart, frozen=True):
    """Report of a queue.

    `allocated` and `deserved` are parts of the whole cluster, averaged over the time with work.
    """

    name: str
    weight: int
    groups: int
    started: int
    done: int
    waits: Waits | None
    allocated: dict[str, float]
    deserved: dict[str, float]


class Unstarted(ReportPart, frozen=True):
    """Group that has not started, or not wholly, at the end of the simulation, with the reason.

    Attributes:
        hint: A similar name, if the group or its queue does not exist.
        pods: The number of waiting members if the group has started; 0 if it has not.
    """

    group: str
    queue: str
    reason: str
    detail: str
    hint: str = ""
    pods: int = 0


class SimulationReport(ReportPart, frozen=True):
    makespan: float
    nodes: int
    pods: int
    groups: int
    started: int  # number of groups whose needed members have run
    done: int  # number of groups whose members have all ended
    one_by_one: GroupCounts  # counts of groups whose pods need not start together
    decisions: int
    outsiders: int
    waits: Waits | None
    utilisation: dict[str, float]
    fairness: list[LevelReport]
    evictions: int  # number of pods that were evicted for others and created again
    reservations: int  # number of groups for which nodes were reserved
    sizes: list[SizeReport]
    queues: list[QueueReport]
    never_started: list[Unstarted]
    compared: "SimulationReport | None" = None  # the same workload with traverse only (--compare)


def report(
    measured: Measurements,
    nodes: int,
    decisions: int,
    end: float,
    unmanaged_objects: Sequence[UnmanagedObject] = (),
    refused: Sequence[RefusedPod] = (),
) -> SimulationReport:
    groups_with_refusals = {key_of_group(pod.member.pod) for pod in refused}
    timelines, queues = list(measured.timelines.values()), measured.decisions.queues
    by_queue = defaultdict[str, list[GroupTimeline]](list)
    by_size = defaultdict[int, list[GroupTimeline]](list)
    for timeline in timelines:
        by_queue[timeline.queue].append(timeline)
        by_size[(max(timeline.present_count, 1).bit_length() - 1) // 2].append(timeline)
    top_usages = [sums.allocated for name, sums in measured.sums.items() if queues[name].parent == ROOT_QUEUE]
    return SimulationReport(
        makespan=_rounded(end - (measured.first_time or 0.0)),
        nodes=nodes,
        pods=sum(timeline.present_count for timeline in timelines),
        decisions=decisions,
        outsiders=measured.outsider_count,
        **_counts_and_waits(timelines),
        one_by_one=GroupCounts(**_group_counts([each for each in timelines if each.needed_count <= 1])),
        utilisation=_used_parts(measured, *top_usages),
        fairness=[LevelReport(depth, _rounded(mean)) for depth, mean in measured.fairness.means().items()],
        evictions=sum(timeline.evictions.total() for timeline in timelines),
        reservations=sum(bool(timeline.reservations) for timeline in timelines),
        sizes=[  # classes of sizes, each four times as large as the class before
            SizeReport(f"{4**size}-{4 ** (size + 1) - 1}", **_counts_and_waits(by_size[size]))
            for size in sorted(by_size)
        ],
        queues=[
            QueueReport(
                name=name,
                weight=queues[name].weight,
                **_counts_and_waits(by_queue[name]),
                allocated=_used_parts(measured, measured.sums[name].allocated),
                deserved=_used_parts(measured, measured.sums[name].deserved),
            )
            for name in sorted(queues.keys() & by_queue.keys())
        ],
        never_started=[
            *_refused_groups(measured, refused),
            *(
                _unstarted_group(measured, timeline)
                for timeline in timelines
                if timeline.unstarted_count and timeline.key not in groups_with_refusals
            ),
            *(Unstarted(job.title, "", NOT_ASKED, job.missing) for job in unmanaged_objects if job.suspended),
        ],
    )


def _used_parts(measured: Measurements, *usages: Mapping[str, float]) -> dict[str, float]:
    """Return the used part of the capacity for each resource that nodes have and groups request."""
    requested = {name for sums in measured.sums.values() for name in sums.allocated}
    return {
        name: _rounded(sum(usage.get(name, 0.0) for usage in usages) / capacity / (measured.busy_time or inf))
        for name, capacity in measured.capacity.items()
        if capacity and name in requested and name != PODS
    }


def _counts_and_waits(timelines: Sequence[GroupTimeline]) -> dict[str, Any]:
    waits = sorted(timeline.wait for timeline in timelines if timeline.wait is not None)
    p95 = waits[ceil(0.95 * len(waits)) - 1] if waits else 0.0
    figures = (mean(waits), median(waits), p95, waits[-1]) if waits else ()
    return _group_counts(timelines) | {"waits": Waits(*map(_rounded, figures)) if figures else None}


def _group_counts(timelines: Sequence[GroupTimeline]) -> dict[str, int]:
    return {
        "groups": len(timelines),
        "started": sum(timeline.started_at is not None for timeline in timelines),
        "done": sum(timeline.ended_at is not None for timeline in timelines),
    }


def _refused_groups(measurements: Measurements, refused: Sequence[RefusedPod]) -> Iterator[Unstarted]:
    """Yield the groups with pods that a quota refused."""
    count_by_group = Counter(key_of_group(pod.member.pod) for pod in refused)
    first_refusals = {key_of_group(pod.member.pod): pod for pod in reversed(refused)}
    for key, number in count_by_group.items():
        name, total = measurements.name_of(key), measurements.member_counts[key]
        timeline = measurements.timelines.get(key)
        pods = number if timeline is not None and timeline.started_at is not None else 0
        queue = timeline.queue if timeline is not None else ""
        created = f"{total - number} of {counted(total, 'pod')}"
        is_owned = bool(first_refusals[key].member.pod.metadata.owner_references)
        progress = f"its controller has created {created}" if is_owned else f"{created} created"
        detail = f"{progress}: {first_refusals[key].reason}"
        yield Unstarted(name, queue, FAILED_CREATE, detail, pods=pods)


def _unstarted_group(measurements: Measurements, timeline: GroupTimeline) -> Unstarted:
    """Return the entry of a group that has not started, with the reason of its last decision."""
    decision = measurements.decisions.groups.get(timeline.key)
    pods = 0 if timeline.started_at is None else timeline.unstarted_count
    if decision is None or (decision.verdict is not Verdict.WAITING and not pods):
        return Unstarted(timeline.name, timeline.queue, "", "", pods=pods)
    hint = ""
    if decision.reason is Reason.QUEUE_NOT_FOUND:
        hint = did_you_mean(near_misses(timeline.queue, {*measurements.known_queues, DEFAULT_QUEUE}, 1))
    elif decision.reason is Reason.GROUP_NOT_FOUND:
        namespace, _, named = timeline.name.partition("/")
        if suggestion := did_you_mean(near_misses(named, names_in(namespace, measurements.known_groups), 1)):
            hint = f"{pods_that_name(timeline.present_count)} {named}: {suggestion}"
    reason = str(decision.reason or "")
    return Unstarted(timeline.name, timeline.queue, reason, decision.detail, hint, pods)


def _rounded(value: float) -> float:
    return round(value, _DIGITS)


# ---- as plain lines, alone or next to the report with traverse only, as wide as the terminal

_MIN_NAME_WIDTH = 12
Cells = tuple[object, ...]


def fit_table(head: Sequence[str], rows: Sequence[Cells], width: int) -> list[str]:
    """Return the lines of a table that fits the width. For this, names are shortened, but numbers are not."""
    lines = columns(head, rows, right=len(head) - 1)
    excess = max(map(len, lines)) - width
    if not width or excess <= 0:
        return lines
    longest = max(len(str(row[0])) for row in rows)
    name_width = max(longest - excess, _MIN_NAME_WIDTH)
    shortened_rows = [(shorten(str(name), name_width, has_unicode=False), *rest) for name, *rest in rows]
    return columns(head, shortened_rows, right=len(head) - 1)


# ---- two reports side by side


def comparison(first: SimulationReport, second: SimulationReport, width: int) -> list[str]:
    """Return a table of two reports: with the given policy, and with traverse only."""
    reports = first, second
    rows: list[Cells] = [("makespan", *(precise_duration(report.makespan) for report in reports))]
    for name in first.utilisation:
        usages = (report.utilisation.get(name, 0.0) for report in reports)
        rows.append((f"utilisation of {name}", *(f"{part:.1%}" for part in usages)))
    jains = [{level.level: f"{level.jain:.2f}" for level in report.fairness} for report in reports]
    rows += [(f"fairness of level {level}", *(jain.get(level, "-") for jain in jains)) for level in jains[0]]
    rows.append(("evicted pods", first.evictions, second.evictions))
    waits = [("", first.waits, second.waits)]
    for size, other_size in zip(first.sizes, second.sizes, strict=True):
        waits.append((f" of {size.pods} pods", size.waits, other_size.waits))
    for label, *pair in waits:
        rows.append((f"mean wait{label}", *(precise_duration(wait.mean) if wait else "-" for wait in pair)))
        rows.append((f"longest wait{label}", *(precise_duration(wait.max) if wait else "-" for wait in pair)))
    title = "against traverse only, without reservations and reclaim"
    return ["", title, *fit_table(("", "as given", "traverse"), rows, width)]


# ---- one report

_MAX_UNSTARTED = 10


def lines(report: SimulationReport, width: int = 0) -> Iterator[str]:
    """Return the report as lines. `width` is the width of the terminal; 0 means no limit."""
    one_by_one = report.one_by_one
    gangs = report.groups - one_by_one.groups
    counts = {"pod": report.pods, "gang": gangs, "other group": one_by_one.groups}
    counts |= {"queue": len(report.queues), "node": report.nodes, "decision": report.decisions}
    shown_counts = ((noun, n) for noun, n in counts.items() if n or noun not in ("gang", "other group"))
    yield ", ".join(counted(n, noun) for noun, n in shown_counts)
    if report.outsiders:
        yield f"{counted(report.outsiders, 'pod')} of other schedulers left alone"
    yield ""
    yield f"makespan     {precise_duration(report.makespan)}"
    if gangs or not one_by_one.groups:
        started, done = report.started - one_by_one.started, report.done - one_by_one.done
        yield f"started      {started:,} of {counted(gangs, 'gang')}, {done:,} done"
    if one_by_one.groups:
        total = counted(one_by_one.groups, "group")
        yield f"one by one   {one_by_one.started:,} of {total} started, {one_by_one.done:,} done"
    used = ", ".join(f"{name} {part:.1%}" for name, part in report.utilisation.items())
    if not used:  # no pod requested anything, or all pods started at the end of the simulation
        explanation = "no resources were held for any time" if report.makespan else "no time passed"
        used = f"not measured: {explanation}" if report.started else "nothing ran"
    yield f"utilisation  {used}"
    if report.fairness:
        levels = (f"level {level.level} {level.jain:.2f}" for level in report.fairness)
        yield f"fairness     {', '.join(levels)}"
    if report.evictions:
        yield f"evicted      {counted(report.evictions, 'pod')}, which came again"
    if report.reservations:
        yield f"reserved     nodes for {counted(report.reservations, 'group')}"
    yield from _wait_lines(report, width)
    yield from _size_lines(report, width)
    yield from _share_lines(report, width)
    if report.compared is not None:
        yield from comparison(report, report.compared, width)
    if report.never_started:
        yield ""
        yield from _unstarted_lines(report)


def _wait_lines(report: SimulationReport, width: int) -> list[str]:
    if not report.groups:
        were_refused = any(group.reason == FAILED_CREATE for group in report.never_started)
        return [] if were_refused else ["", "nothing in there is for Muster to start"]
    head = ("queue", "weight", "groups", "started", "done", "mean", "median", "p95", "max")
    rows = [_wait_cells(queue.name, queue.weight, queue) for queue in report.queues]
    if len(rows) > 1:
        rows.append(_wait_cells("all", "", report))
    return ["", "time that groups waited", *fit_table(head, rows, width)]


def _wait_cells(name: str, weight: int | str, counts: QueueReport | SizeReport | SimulationReport) -> Cells:
    waits = counts.waits
    times = (waits.mean, waits.median, waits.p95, waits.max) if waits else ()
    durations = tuple(map(precise_duration, times)) or ("-",) * 4
    return (name, weight, f"{counts.groups:,}", f"{counts.started:,}", f"{counts.done:,}", *durations)


def _size_lines(report: SimulationReport, width: int) -> list[str]:
    if len(report.sizes) < 2:
        return []
    head = ("pods", "groups", "started", "done", "mean", "median", "p95", "max")
    rows = [(size.pods, *_wait_cells("", "", size)[2:]) for size in report.sizes]
    return ["", "time that groups waited, by size", *fit_table(head, rows, width)]


def _share_lines(report: SimulationReport, width: int) -> list[str]:
    """Return a table of the queues' shares in the most used resource."""
    resource = max(report.utilisation, key=lambda name: report.utilisation[name], default="")
    if not resource:
        return []
    head = ("queue", "weight", "held", "deserved", "held/due")
    rows: list[Cells] = []
    for queue in report.queues:
        usage, deserved = queue.allocated[resource], queue.deserved[resource]
        ratio = f"{usage / deserved:.2f}" if deserved else "-"
        rows.append((queue.name, queue.weight, f"{usage:.1%}", f"{deserved:.1%}", ratio))
    return ["", f"shares of {resource}, on average", *fit_table(head, rows, width)]


def _unstarted_lines(report: SimulationReport) -> Iterator[str]:
    yield "never started:"
    for group in report.never_started[:_MAX_UNSTARTED]:
        reason = ": ".join(filter(None, (group.reason, group.detail))) or "no reason was given"
        name = f"{counted(group.pods, 'pod')} of {group.group}" if group.pods else group.group
        yield f"  {name}: {reason}" + (f"; {group.hint}" if group.hint else "")
    rest = and_more(len(report.never_started) - _MAX_UNSTARTED, " (-o json has them all)")
    yield from (f"  {text}" for text in rest)
