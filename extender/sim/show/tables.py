"""What is drawn: a canvas, the queues as bars, and the table of gangs, as wide as the canvas allows."""

import io
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TextIO

from rich.console import Console
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from extender.api.durations import two_units
from extender.domain.model.resources import CPU, show
from extender.sim.show.cluster_state import ClusterState, amounts
from extender.sim.show.gangs import Gang, QueueSummary
from extender.sim.show.sentences import TransitionLog, ahead, waiting_for
from extender.terminal.text import bar, many, shortened, shows_unicode

# ---- What there is to draw on, and text that fits it.

_NARROWEST = 40
_WIDE = 100  # columns, from which on reasons are in the table of gangs


class Canvas(NamedTuple):
    width: int = 80
    height: int = 24
    unicode: bool = True  # whether it has more than ASCII

    @property
    def roomy(self) -> bool:
        """Whether numbers get an explanation."""
        return self.width >= 60

    @property
    def wide(self) -> bool:
        return self.width >= _WIDE

    def bar_of(self, part: float, length: int) -> str:
        return "".join(bar(part, length, self.unicode))

    def shortened(self, name: str, width: int) -> str:
        return shortened(name, width, self.unicode)

    def wrapped(self, text: str, indent: str = "") -> list[str]:
        """Lines that fit, except those of a single word, as a path is."""
        return textwrap.wrap(
            text,
            max(self.width, _NARROWEST),
            break_on_hyphens=False,
            break_long_words=False,
            initial_indent=indent,
            subsequent_indent=indent,
        )


def canvas_of(stream: TextIO) -> Canvas:
    """What `stream` can show; a stream that is no terminal has 80 columns unless $COLUMNS says otherwise."""
    size = shutil.get_terminal_size((80, 24))
    return Canvas(max(size.columns, 20), max(size.lines, 10), shows_unicode(stream))


# ---- Each queue's share of what it deserves as a bar, with the numbers behind it.

_LONGEST_BAR, _SHORTEST_BAR = 24, 8
_NUMBERS = 36  # columns for what stands after a bar


def cpu_in_use(cluster: ClusterState) -> str:
    nodes = cluster.report.nodes
    used = sum(amounts(node.used).get(CPU, 0) for node in nodes)
    room = sum(amounts(node.allocatable).get(CPU, 0) for node in nodes)
    return f"{many(len(nodes), 'node')}, {show(CPU, used)} of {show(CPU, room)} cpu in use"


def queue_lines(cluster: ClusterState, canvas: Canvas, most: int | None = None) -> list[Text]:
    """A heading and a line for each queue, at most `most` lines in all."""
    queues = cluster.report.queues
    shown = queues if most is None or len(queues) < most else queues[: max(most - 2, 0)]
    names = _name_column((queue.name for queue in shown), canvas)
    length = max(_SHORTEST_BAR, min(_LONGEST_BAR, canvas.width - names - _NUMBERS))
    lines = [Text(f"{'Queue':<{names}}  Used of what it deserves", "dim")]
    lines += [Text(_queue_line(queue, names, length, canvas)) for queue in shown]
    if len(shown) < len(queues):
        lines.append(Text(f"and {many(len(queues) - len(shown), 'more queue')}", "dim"))
    return lines


def _name_column(names: Iterable[str], canvas: Canvas) -> int:
    """As wide as the longest name, as far as a bar and its numbers leave room."""
    longest = max(map(len, ("Queue", *names)))
    return min(longest, max(canvas.width - _NUMBERS - _SHORTEST_BAR, len("Queue")))


def _queue_line(queue: QueueSummary, names: int, length: int, canvas: Canvas) -> str:
    state = "" if queue.state == "Open" else f", {queue.state}"
    weight = f", weight {queue.weight}" if canvas.roomy else ""
    numbers = f"{queue.share:4.0%}  {_dominant(queue)}{weight}{state}"
    return f"{canvas.shortened(queue.name, names):<{names}}  {canvas.bar_of(queue.share, length)} {numbers}"


def _dominant(queue: QueueSummary) -> str:
    """The resource of which it uses the largest part of what it deserves: `4 of 8 cpu`."""
    used, deserved = amounts(queue.allocated), amounts(queue.deserved)
    wanted = [name for name in deserved if deserved[name]]
    if not wanted:  # nothing is asked for in it, or Muster has not decided yet
        return f"{show(CPU, used.get(CPU, 0))} cpu"
    name = max(
        wanted, key=lambda resource: (used.get(resource, 0) / (deserved.get(resource) or 1), resource == CPU)
    )
    return f"{show(name, used.get(name, 0))} of {show(name, deserved.get(name, 0))} {name}"


# ---- The table of gangs: a row for each, as wide as the canvas allows.
#
# On a wide canvas the reason stands in the last column. On a narrow one that column has its code only,
# and the reasons stand below the table.

_TITLES = ("Gang", "Queue", "State", "Pods", "Waited", "In line", "Waits for")
_INDISPENSABLE = ("Gang", "State", "Pods", "Waits for")
_STYLES = {"runs": "green", "starts": "green", "waits": "yellow", "pending": "dim", "ended": "dim"}
_LONGEST_BRIEF_BAR = 8
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
            f"{waiting_for(gang)}{ahead(gang, cluster)}"
            if (gang.waits or bool(gang.left_out and gang.summary.reason))
            else "",
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
    return f"{canvas.bar_of(part / size, min(size, _LONGEST_BRIEF_BAR))} {counts}"


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
    line = Text.assemble(*((segment.text, segment.style or "") for segment in segments))
    line.rstrip()
    return line
