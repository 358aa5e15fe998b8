"""The table of gangs: a row for each, as wide as the canvas allows.

On a wide canvas the reason stands in the last column. On a narrow one that column has its code only, and the
reasons stand below the table.
"""

import io
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from extender.api.durations import two_units
from extender.sim.show.canvas import Canvas
from extender.sim.show.cluster_state import ClusterState
from extender.sim.show.gangs import Gang
from extender.sim.show.sentences import ahead, waiting_for
from extender.sim.show.transitions import TransitionLog

_TITLES = ("Gang", "Queue", "State", "Pods", "Waited", "In line", "Waits for")
_INDISPENSABLE = ("Gang", "State", "Pods", "Waits for")
_STYLES = {"runs": "green", "starts": "green", "waits": "yellow", "pending": "dim", "ended": "dim"}
_LONGEST_BAR = 8
_GAP = 2  # columns between columns
_SHORTEST_NAME, _LONGEST_QUEUE, _SHORTEST_DETAIL = 8, 24, 24  # columns


class GangRow(NamedTuple):
    """A gang with what is shown of it. `why`: all that is known of what it waits for."""

    gang: Gang
    pods: str
    waited: str
    position: str
    why: str


def rows_of(
    gangs: Iterable[Gang], cluster: ClusterState, log: TransitionLog, second: float, canvas: Canvas
) -> list[GangRow]:
    return [
        GangRow(
            gang,
            _pods(gang, canvas),
            _waited(gang, log, second),
            cluster.position(gang),
            f"{waiting_for(gang)}{ahead(gang, cluster)}" if _has_reason(gang) else "",
        )
        for gang in gangs
    ]


def _pods(gang: Gang, canvas: Canvas) -> str:
    ended = gang.state == "ended"
    part = gang.ended - gang.failed if ended else gang.summary.bound
    size = gang.pods if ended else gang.size
    counts = f"{part}/{size}"
    if not canvas.wide or not size:
        return counts
    return f"{canvas.bar_of(part / size, min(size, _LONGEST_BAR))} {counts}"


def _waited(gang: Gang, log: TransitionLog, second: float) -> str:
    times = log.times.get(gang.key)
    return two_units(round(times.wait(second), 1)) if times else ""


# ---- tables


def gang_table(rows: Sequence[GangRow], canvas: Canvas) -> list[Text]:
    """Lines with everything: names and reasons are folded where they do not fit."""
    table = _table(canvas, "fold")
    for row in rows:
        why = row.why if canvas.wide else _code(row)
        table.add_row(*map(Text, _cells(row, canvas)), Text(why), style=_STYLES[row.gang.state])
    lines = _as_lines(table, canvas)
    return lines if canvas.wide else lines + _reasons(rows, canvas)


def brief_table(rows: Sequence[GangRow], canvas: Canvas) -> list[Text]:
    """A line for each; what does not fit is cut: first the numbers of the reasons, then the names."""
    table = _table(canvas, "ellipsis" if canvas.unicode else "crop")
    codes = max(map(len, (_TITLES[-1], *map(_code, rows))))
    room = _room_left(rows, canvas) - codes
    longest = max((len(row.gang.title) for row in rows), default=0)
    detailed = canvas.wide and codes + room - longest >= _SHORTEST_DETAIL
    for row in rows:
        name, *others = _cells(row, canvas)
        why = _in_brief(row) if detailed else _code(row)
        cells = (canvas.shortened(name, max(room, _SHORTEST_NAME)), *others)
        table.add_row(*map(Text, cells), Text(why, no_wrap=True), style=_STYLES[row.gang.state])
    return _as_lines(table, canvas)


def _titles(canvas: Canvas) -> list[str]:
    return [title for title in _TITLES if canvas.roomy or title in _INDISPENSABLE]


def _cells(row: GangRow, canvas: Canvas) -> list[str]:
    """All but the last."""
    gang = row.gang
    queue = canvas.shortened(gang.summary.queue, _LONGEST_QUEUE)
    cells = (gang.title, queue, gang.state, row.pods, row.waited, row.position)
    titled = zip(_TITLES, cells, strict=False)
    return [cell for title, cell in titled if canvas.roomy or title in _INDISPENSABLE]


def _room_left(rows: Iterable[GangRow], canvas: Canvas) -> int:
    """Columns that the others leave for the names of gangs and for the reasons."""
    cells = [_titles(canvas)[:-1], *(_cells(row, canvas) for row in rows)]
    _, *others = (max(map(len, column)) for column in zip(*cells, strict=True))
    return canvas.width - sum(others) - _GAP * len(others) - _GAP


def _has_reason(gang: Gang) -> bool:
    return gang.waits or bool(gang.left_out and gang.summary.reason)


def _code(row: GangRow) -> str:
    return row.gang.summary.reason if row.why else ""


def _in_brief(row: GangRow) -> str:
    """The code and the numbers, without what the code means."""
    if not row.why:
        return ""
    return ": ".join(filter(None, (row.gang.summary.reason, row.gang.hint or row.gang.detail)))


def _reasons(rows: Iterable[GangRow], canvas: Canvas) -> list[Text]:
    texts = (f"{row.gang.title}: {row.why}" for row in rows if row.why)
    lines = [Text(line, "yellow") for text in texts for line in canvas.wrapped(text, "  ")]
    return [Text(), *lines] if lines else []


# ---- what rich makes of it


def _table(canvas: Canvas, overflow: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim", expand=canvas.wide)
    name, *others, last = _titles(canvas)
    table.add_column(name, overflow=overflow)  # type: ignore[arg-type]
    for title in others:
        table.add_column(title, no_wrap=True, justify="right" if title == "Waited" else "left")
    table.add_column(last, overflow=overflow, ratio=1 if canvas.wide else None)  # type: ignore[arg-type]
    return table


def _as_lines(table: Table, canvas: Canvas) -> list[Text]:
    """Lines that can be counted and cut."""
    console = Console(width=canvas.width, file=io.StringIO(), color_system=None, legacy_windows=False)
    return [_text(line) for line in console.render_lines(table, pad=False)]


def _text(segments: Iterable[Segment]) -> Text:
    line = Text.assemble(*((each.text, each.style or "") for each in segments))
    line.rstrip()
    return line
