"""A report for people: plain lines of at most 80 columns."""

from collections.abc import Iterator

from extender.sim.virtual.report import QueueReport, Report, Waits

_MOST_UNSTARTED = 10
_ROW = "{:<16.16} {:>6} {:>7} {:>7} {:>8} {:>8} {:>8} {:>8}"
_SHARES = "{:<16.16} {:>6} {:>7} {:>9} {:>9}"


def lines(report: Report) -> Iterator[str]:
    yield _head(report)
    if report.outsiders:
        yield f"{_many(report.outsiders, 'pod')} of other schedulers were left alone."
    yield ""
    yield f"makespan     {duration(report.makespan)}"
    yield f"done         {report.done:,} of {_many(report.groups, 'gang')}"
    yield f"utilisation  {_percentages(report.utilisation) or 'nothing was asked for'}"
    yield ""
    yield from _waits(report)
    yield ""
    yield from _shares(report)
    if report.never_started:
        yield ""
        yield from _never_started(report)


def _head(report: Report) -> str:
    parts = (
        _many(report.pods, "pod"),
        _many(report.groups, "gang"),
        _many(len(report.queues), "queue"),
        _many(report.nodes, "node"),
        _many(report.decisions, "decision"),
    )
    return ", ".join(parts)


def _waits(report: Report) -> Iterator[str]:
    yield _ROW.format("waited", "weight", "gangs", "done", "mean", "median", "p95", "max")
    for queue in report.queues:
        yield _wait(queue.name, queue.weight, queue, queue.waits)
    if len(report.queues) > 1:
        yield _wait("all", "", report, report.waits)


def _wait(name: str, weight: int | str, part: QueueReport | Report, waits: Waits | None) -> str:
    return _ROW.format(name, weight, f"{part.groups:,}", f"{part.done:,}", *_durations(waits))


def _durations(waits: Waits | None) -> tuple[str, ...]:
    if waits is None:
        return ("-",) * 4
    return tuple(duration(each) for each in (waits.mean, waits.median, waits.p95, waits.max))


def _shares(report: Report) -> Iterator[str]:
    """Of the resource that was used most."""
    name = max(report.utilisation, key=lambda each: report.utilisation[each], default="")
    if name:
        yield _SHARES.format(f"{name} over time", "weight", "held", "deserved", "held/due")
        for queue in report.queues:
            yield _share(queue, name)


def _share(queue: QueueReport, name: str) -> str:
    held, due = queue.allocated[name], queue.deserved[name]
    ratio = f"{held / due:.2f}" if due else "-"
    return _SHARES.format(queue.name, queue.weight, f"{held:.1%}", f"{due:.1%}", ratio)


def _never_started(report: Report) -> Iterator[str]:
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


def duration(seconds: float) -> str:
    """The two largest units."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.3g}s" if seconds < 10 else f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"
