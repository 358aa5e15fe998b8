"""A report for people: plain lines of at most 80 columns."""

from collections.abc import Iterator

from extender.api.durations import two_units
from extender.sim.virtual.report import QueueReport, SimulationReport
from extender.terminal.columns import columns

_MOST_UNSTARTED = 10
_LONGEST_NAME = 16  # letters of a queue's name that are shown


def lines(report: SimulationReport) -> Iterator[str]:
    yield _head(report)
    if report.outsiders:
        yield f"{_many(report.outsiders, 'pod')} of other schedulers were left alone."
    yield ""
    yield f"makespan     {two_units(report.makespan)}"
    yield f"done         {report.done:,} of {_many(report.groups, 'gang')}"
    yield f"utilisation  {_percentages(report.utilisation) or 'nothing was asked for'}"
    yield ""
    yield from _waits(report)
    yield ""
    yield from _shares(report)
    if report.never_started:
        yield ""
        yield from _never_started(report)


def _head(report: SimulationReport) -> str:
    parts = (
        _many(report.pods, "pod"),
        _many(report.groups, "gang"),
        _many(len(report.queues), "queue"),
        _many(report.nodes, "node"),
        _many(report.decisions, "decision"),
    )
    return ", ".join(parts)


def _waits(report: SimulationReport) -> list[str]:
    head = ("waited", "weight", "gangs", "done", "mean", "median", "p95", "max")
    rows = [_wait(queue.name, queue.weight, queue) for queue in report.queues]
    if len(rows) > 1:
        rows.append(_wait("all", "", report))
    return columns(head, rows, right=len(head) - 1)


def _wait(name: str, weight: int | str, of: QueueReport | SimulationReport) -> tuple[object, ...]:
    waits = of.waits
    times = (waits.mean, waits.median, waits.p95, waits.max) if waits else ()
    durations = tuple(map(two_units, times)) or ("-",) * 4
    return (name[:_LONGEST_NAME], weight, f"{of.groups:,}", f"{of.done:,}", *durations)


def _shares(report: SimulationReport) -> list[str]:
    """Of the resource that was used most."""
    name = max(report.utilisation, key=lambda each: report.utilisation[each], default="")
    if not name:
        return []
    head = (f"{name} over time", "weight", "held", "deserved", "held/due")
    return columns(head, [_share(queue, name) for queue in report.queues], right=len(head) - 1)


def _share(queue: QueueReport, name: str) -> tuple[object, ...]:
    held, due = queue.allocated[name], queue.deserved[name]
    ratio = f"{held / due:.2f}" if due else "-"
    return (queue.name[:_LONGEST_NAME], queue.weight, f"{held:.1%}", f"{due:.1%}", ratio)


def _never_started(report: SimulationReport) -> Iterator[str]:
    yield f"{_many(len(report.never_started), 'gang')} never started:"
    for each in report.never_started[:_MOST_UNSTARTED]:
        yield f"  {each.group}: {each.reason}: {each.detail}"
    more = len(report.never_started) - _MOST_UNSTARTED
    if more > 0:
        yield f"  and {more:,} more (-o json has them all)"


def _percentages(parts: dict[str, float]) -> str:
    return ", ".join(f"{name} {part:.1%}" for name, part in parts.items())


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
