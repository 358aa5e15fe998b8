"""A report as plain lines, alone or beside the one with traverse only, as wide as the terminal."""

from collections.abc import Iterator, Sequence

from extender.api.texts import and_more
from extender.api.units import two_units
from extender.sim.virtual.report import FAILED_CREATE, QueueReport, SimulationReport, SizeReport
from extender.terminal.text import columns, many, shortened

_SHORTEST_NAME = 12
Cells = tuple[object, ...]


def fitting(head: Sequence[str], rows: Sequence[Cells], width: int) -> list[str]:
    """Numbers are never cut; names get the rest of the width."""
    made = columns(head, rows, right=len(head) - 1)
    over = max(map(len, made)) - width
    if not width or over <= 0:
        return made
    longest = max(len(str(row[0])) for row in rows)
    room = max(longest - over, _SHORTEST_NAME)
    cut = [(shortened(str(name), room, unicode=False), *rest) for name, *rest in rows]
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
    """`width`: the columns of the terminal; 0: no limit."""
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
    if not used:  # what ran requested nothing, or began at the last moment of the simulation, without end
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
    """Of the resource that was used most."""
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
