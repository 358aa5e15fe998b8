"""Drawings in the width of a canvas: queues as bars, and the table of gangs."""

import io
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from extender.api.units import precise_duration
from extender.domain.model.reasons import Verdict
from extender.domain.model.resources import CPU, offered, show
from extender.sim.show.cluster_state import ClusterState
from extender.sim.show.gangs import Gang, ReportedQueue
from extender.sim.show.sentences import TransitionLog, ahead_text, wait_text
from extender.terminal.text import bar, counted, shorten, shows_unicode

_MIN_WIDTH = 40
_MIN_WIDE_WIDTH = 100  # minimum width for a table of gangs that has their reasons
_MAX_BAR, _MIN_BAR = 24, 8
_NUMBERS_WIDTH = 36  # columns that the text after a bar needs

_TITLES = ("Gang", "Queue", "State", "Pods", "Waited", "In line", "Waits for")
_NARROW_TITLES = ("Gang", "State", "Pods", "Waits for")
# Word and style of each state in the table.
_WORDS = {
    Verdict.RUNNING: ("runs", "green"),
    Verdict.STARTING: ("starts", "green"),
    Verdict.WAITING: ("waits", "yellow"),
    Verdict.UNKNOWN: ("pending", "dim"),
    Verdict.ENDED: ("ended", "dim"),
}
_MAX_POD_BAR = 8
_GAP = 2  # spaces between two columns
_MIN_NAME_WIDTH, _MAX_QUEUE_WIDTH, _MIN_DETAIL_WIDTH = 8, 24, 24  # in characters


class Canvas(NamedTuple):
    width: int = 80
    height: int = 24
    unicode: bool = True  # whether it can show more than ASCII

    @property
    def is_roomy(self) -> bool:
        """Return whether there is space to explain numbers."""
        return self.width >= 60

    @property
    def is_wide(self) -> bool:
        return self.width >= _MIN_WIDE_WIDTH

    def bar_of(self, part: float, length: int) -> str:
        return "".join(bar(part, length, self.unicode))

    def shorten(self, name: str, width: int) -> str:
        return shorten(name, width, self.unicode)

    def wrap(self, text: str, indent: str = "") -> list[str]:
        """Return lines that fit the canvas. A single long word, such as a path, is not broken."""
        wrapper = textwrap.TextWrapper(max(self.width, _MIN_WIDTH), indent, indent)
        wrapper.break_on_hyphens = wrapper.break_long_words = False
        return wrapper.wrap(text)


def canvas_of(stream: TextIO) -> Canvas:
    """Return the canvas of `stream`. Without a terminal it has 80 columns, or $COLUMNS."""
    size = shutil.get_terminal_size((80, 24))
    return Canvas(max(size.columns, 20), max(size.lines, 10), shows_unicode(stream))


def cpu_in_use(cluster: ClusterState) -> str:
    nodes = cluster.report.nodes
    used = sum(offered(node.used).get(CPU, 0) for node in nodes)
    capacity = sum(offered(node.allocatable).get(CPU, 0) for node in nodes)
    return f"{counted(len(nodes), 'node')}, {show(CPU, used)} of {show(CPU, capacity)} cpu in use"


def queue_lines(cluster: ClusterState, canvas: Canvas, max_lines: int | None = None) -> list[Text]:
    """Return a heading and a line for each queue, together at most `max_lines` lines."""
    queues = cluster.report.queues
    shown_queues = queues if max_lines is None or len(queues) < max_lines else queues[: max(max_lines - 2, 0)]
    # The column of names fits the longest name, but leaves space for a bar and its numbers.
    longest_name = max(map(len, ("Queue", *(queue.name for queue in shown_queues))))
    name_width = min(longest_name, max(canvas.width - _NUMBERS_WIDTH - _MIN_BAR, len("Queue")))
    length = max(_MIN_BAR, min(_MAX_BAR, canvas.width - name_width - _NUMBERS_WIDTH))
    lines = [Text(f"{'Queue':<{name_width}}  Used of what it deserves", "dim")]
    for queue in shown_queues:
        state = "" if queue.state == "Open" else f", {queue.state}"
        weight = f", weight {queue.weight}" if canvas.is_roomy else ""
        numbers = f"{queue.share:4.0%}  {_dominant(queue)}{weight}{state}"
        name, bar = canvas.shorten(queue.name, name_width), canvas.bar_of(queue.share, length)
        lines.append(Text(f"{name:<{name_width}}  {bar} {numbers}"))
    if len(shown_queues) < len(queues):
        lines.append(Text(f"and {counted(len(queues) - len(shown_queues), 'more queue')}", "dim"))
    return lines


def _dominant(queue: ReportedQueue) -> str:
    """Return the usage of the queue's most used resource, such as `4 of 8 cpu`."""
    used, deserved = offered(queue.allocated), offered(queue.deserved)
    requested_names = [name for name in deserved if deserved[name]]
    if not requested_names:  # no group has requests, or Muster has not decided yet
        return f"{show(CPU, used.get(CPU, 0))} cpu"
    name = max(requested_names, key=lambda name: (used.get(name, 0) / deserved[name], name == CPU))
    return f"{show(name, used.get(name, 0))} of {show(name, deserved.get(name, 0))} {name}"


# ---- the table of gangs
#
# A wide canvas has the reasons in the last column; a narrow one has their codes there, and the reasons below.


class GangRow(NamedTuple):
    gang: Gang
    pods: str
    waited: str
    position: str
    reason_text: str  # the whole reason of the wait


def rows_of(
    gangs: Iterable[Gang], cluster: ClusterState, log: TransitionLog, second: float, canvas: Canvas
) -> list[GangRow]:
    rows = []
    for gang in gangs:
        has_ended, times, reason = gang.state is Verdict.ENDED, log.times.get(gang.key), ""
        part = gang.ended_count - gang.failed_count if has_ended else gang.bound_count
        size = len(gang.pods) if has_ended else gang.size
        pods = f"{part}/{size}"
        if canvas.is_wide and size:
            pods = f"{canvas.bar_of(part / size, min(size, _MAX_POD_BAR))} {pods}"
        waited = precise_duration(round(times.wait(second), 1)) if times else ""
        if gang.waits or (gang.waiting_count and gang.group.reason):
            reason = f"{wait_text(gang)}{ahead_text(gang, cluster)}"
        rows.append(GangRow(gang, pods, waited, cluster.position(gang), reason))
    return rows


def gang_table(rows: Sequence[GangRow], canvas: Canvas) -> list[Text]:
    """Return the complete lines of all gangs. Long names and reasons are folded."""
    table = _table(canvas, "fold")
    for row in rows:
        last_cell = row.reason_text if canvas.is_wide else _code(row)
        table.add_row(*map(Text, _cells(row, canvas)), Text(last_cell), style=_WORDS[row.gang.state][1])
    lines = _as_lines(table, canvas)
    if canvas.is_wide:
        return lines
    texts = (f"{row.gang.title}: {row.reason_text}" for row in rows if row.reason_text)
    reasons = [Text(line, "yellow") for text in texts for line in canvas.wrap(text, "  ")]
    return [*lines, Text(), *reasons] if reasons else lines


def brief_table(rows: Sequence[GangRow], canvas: Canvas) -> list[Text]:
    """Return one line for each gang.

    A long line loses the numbers of its reason first, then a part of the name.
    """
    table = _table(canvas, "ellipsis" if canvas.unicode else "crop")
    code_width = max(map(len, (_TITLES[-1], *map(_code, rows))))
    cells = [_titles(canvas)[:-1], *(_cells(row, canvas) for row in rows)]
    _, *widths = (max(map(len, column)) for column in zip(*cells, strict=True))
    capacity = canvas.width - sum(widths) - _GAP * (len(widths) + 1) - code_width
    longest_title = max((len(row.gang.title) for row in rows), default=0)
    shows_numbers = canvas.is_wide and code_width + capacity - longest_title >= _MIN_DETAIL_WIDTH
    for row in rows:
        name, *others = _cells(row, canvas)
        last_cell = _code(row)
        if shows_numbers and last_cell:  # the code and the numbers, without the meaning of the code
            last_cell = ": ".join(filter(None, (last_cell, row.gang.hint or row.gang.group.message)))
        table.add_row(
            Text(canvas.shorten(name, max(capacity, _MIN_NAME_WIDTH))),
            *map(Text, others),
            Text(last_cell, no_wrap=True),
            style=_WORDS[row.gang.state][1],
        )
    return _as_lines(table, canvas)


def _titles(canvas: Canvas) -> list[str]:
    return [title for title in _TITLES if canvas.is_roomy or title in _NARROW_TITLES]


def _cells(row: GangRow, canvas: Canvas) -> list[str]:
    """Return all cells of a row except the last."""
    gang = row.gang
    queue = canvas.shorten(gang.queue, _MAX_QUEUE_WIDTH)
    cells = (gang.title, queue, _WORDS[gang.state][0], row.pods, row.waited, row.position)
    with_titles = zip(_TITLES, cells, strict=False)
    return [cell for title, cell in with_titles if canvas.is_roomy or title in _NARROW_TITLES]


def _code(row: GangRow) -> str:
    return row.gang.group.reason if row.reason_text else ""


def _table(canvas: Canvas, overflow: str) -> Table:
    grid = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim", expand=canvas.is_wide)
    name, *others, last = _titles(canvas)
    grid.add_column(name, overflow=overflow)  # type: ignore[arg-type]
    for title in others:
        grid.add_column(title, no_wrap=True, justify="right" if title == "Waited" else "left")
    grid.add_column(last, overflow=overflow, ratio=1 if canvas.is_wide else None)  # type: ignore[arg-type]
    return grid


def _as_lines(table: Table, canvas: Canvas) -> list[Text]:
    """Return the rendered lines of a table, so that the caller can count and cut them."""
    console = Console(width=canvas.width, file=io.StringIO(), color_system=None, legacy_windows=False)
    lines = []
    for segments in console.render_lines(table, pad=False):
        lines.append(Text.assemble(*((segment.text, segment.style or "") for segment in segments)))
        lines[-1].rstrip()
    return lines
