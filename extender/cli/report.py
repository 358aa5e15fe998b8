"""`muster report`: waits, usage, and the work that was lost by evictions."""

import csv
import io
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import click

from extender.api.units import PAST_FORMS, precise_duration
from extender.cli.dump import debug_page, debug_port_flags
from extender.cli.output import NOTHING, echo, output_flag, percent, show_document
from extender.terminal.text import columns

if TYPE_CHECKING:
    from extender.domain.explain.history import Period, Report, ReportRow

_MAX_ANSWER_BYTES = 2**28  # maximum bytes of an answer
_WIDE_COLUMNS = ("LONGEST", "CPU-LOST", "DESERVED")  # columns of wide tables only
_CSV_COLUMNS = {  # fields of a row, by column of CSV
    "starts": "starts",
    "waiting": "waiting",
    "wait_median_seconds": "wait_median",
    "wait_p90_seconds": "wait90",
    "wait_longest_seconds": "wait_longest",
    "gpu_hours": "gpu_hours",
    "cpu_hours": "cpu_hours",
    "evicted_pods": "evictions",
    "lost_gpu_hours": "lost_gpu_hours",
    "lost_cpu_hours": "lost_cpu_hours",
    "deserved_gpu_hours": "deserved_gpu_hours",
    "share": "share",
}
_FORMULA_PREFIXES = ("=", "+", "-", "@")  # first characters of cells that a spreadsheet would evaluate


@click.command()
@click.option(
    "--since", default="7d", show_default=True, metavar="TIME", help=f"The start of the period: {PAST_FORMS}."
)
@click.option("--until", metavar="TIME", help="The end of the period, in the same form. [default: now]")
@click.option(
    "--by",
    type=click.Choice(["queue", "user", "namespace"]),
    default="queue",
    show_default=True,
    help="The subject of a row.",
)
@click.option(
    "--history",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Read this file of `muster serve --history` instead of the debug port.",
)
@debug_port_flags
@output_flag(("table", "wide", "csv", "json", "yaml"), "table")
def report(since: str, until: str | None, by: str, file: Path | None, output: str, **port_flags: Any) -> None:
    """Report waits, usage and lost work by queue.

    The report is read from the debug port of the leading pod, by port-forward.
    """
    import msgspec

    from extender.domain.explain.history import InvalidPeriod, Period

    try:
        period = Period.parse(by, since, until or "", time.time())
    except InvalidPeriod as fault:
        raise click.UsageError(f"--{fault}") from fault
    if file is not None:
        history_report = _from_file(file, period)
    else:
        history_report = _from_port({"by": by, "since": since, "until": until or ""}, port_flags)
    if output in ("json", "yaml"):
        show_document(msgspec.to_builtins(history_report), output)
    elif output == "csv":
        click.echo(_csv(history_report), nl=False)
    else:
        echo(_table(history_report, is_wide=output == "wide"))
    if history_report.note and output not in ("json", "yaml"):
        click.echo(f"Note: {history_report.note}", err=True)


def _from_port(query: dict[str, str], port_flags: dict[str, Any]) -> "Report":
    import msgspec

    from extender.domain.explain.history import Report

    try:
        page = debug_page(f"history?{urlencode(query)}", _MAX_ANSWER_BYTES, **port_flags)
        return msgspec.json.decode(page, type=Report)
    except msgspec.MsgspecError as fault:
        raise click.ClickException("the answer is not of a debug port of this version") from fault


def _from_file(file: Path, period: "Period") -> "Report":
    from extender.telemetry.history_file import HistoryFault, report_of_file

    try:
        return report_of_file(file, period)
    except HistoryFault as fault:
        raise click.UsageError(f"--history: {fault}") from fault


def _table(history: "Report", is_wide: bool) -> str:
    all_rows = (*history.rows, history.total)
    cells = [_cells(row, is_of_queues=history.by == "queue", is_wide=is_wide) for row in all_rows]
    names = [*(row.name or NOTHING for row in history.rows), "all"]
    rows = [(name, *row.values()) for name, row in zip(names, cells, strict=True)]
    lines = columns([history.by.upper(), *cells[-1]], rows, len(cells[-1]))
    return "\n".join([f"{history.since} to {history.until}", "", *lines])


def _cells(row: "ReportRow", is_of_queues: bool, is_wide: bool) -> dict[str, object]:
    """Return the cells of a row, by column."""
    waits = {"MEDIAN": row.wait_median, "P90": row.wait90, "LONGEST": row.wait_longest}
    queue_cells = {"DESERVED": _hours(row.deserved_gpu_hours), "SHARE": percent(row.share)}
    cells = {
        "STARTS": row.starts,
        "WAITING": row.waiting,
        **{head: NOTHING if wait is None else precise_duration(wait) for head, wait in waits.items()},
        "GPU-HOURS": _hours(row.gpu_hours),
        "CPU-HOURS": _hours(row.cpu_hours),
        "EVICTED": row.evictions,
        "GPU-LOST": _hours(row.lost_gpu_hours),
        "CPU-LOST": _hours(row.lost_cpu_hours),
        **(queue_cells if is_of_queues else {}),
    }
    return {head: cell for head, cell in cells.items() if is_wide or head not in _WIDE_COLUMNS}


def _hours(hours: float | None) -> str:
    return NOTHING if hours is None else f"{hours:,.1f}"


def _csv(history: "Report") -> str:
    """Return a heading, and a line for each name; durations in seconds, numbers unrounded."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([history.by, *_CSV_COLUMNS, "since", "until"])
    for row in history.rows:
        name = f"'{row.name}" if row.name.startswith(_FORMULA_PREFIXES) else row.name
        values = (getattr(row, field) for field in _CSV_COLUMNS.values())
        writer.writerow([name, *values, history.since, history.until])
    return text.getvalue()
