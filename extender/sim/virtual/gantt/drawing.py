"""The large panel in its three forms, and the areas by queue."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from extender.api.durations import two_units
from extender.sim.virtual.gantt import svg
from extender.sim.virtual.gantt.averages import Change, averages
from extender.sim.virtual.gantt.bars import Bar, Scene
from extender.sim.virtual.gantt.packing import Piece
from extender.sim.virtual.gantt.panel import Panel
from extender.sim.virtual.measurements import GroupTimeline
from extender.terminal.counts import many

ROW = 22.0
RESERVED, EVICTED = "reserved", "evicted"  # classes of what is marked
_COLUMNS = 440
_MOST_TITLES = 3_000
_LETTER = 6.2  # the width of one, about
_LONGEST_NAME = 24

Changes = Callable[[GroupTimeline], Iterable[Change]]


def rows(panel: Panel, scene: Scene) -> Iterator[str]:
    """A row for each group: its name, the time that it waited, its members' time."""
    place = {timeline.key: panel.top + index * ROW for index, timeline in enumerate(scene.timelines)}
    for timeline in scene.timelines:
        yield from _wait(panel, scene, timeline, place[timeline.key])
    for bar in scene.bars:
        yield from _run(panel, scene, bar, place[bar.timeline.key])
    for timeline in scene.timelines:
        yield from marks(panel, timeline, place[timeline.key] + 1, ROW - 2)


def _wait(panel: Panel, scene: Scene, timeline: GroupTimeline, top: float) -> Iterator[str]:
    name = timeline.name.removeprefix("default/")
    short = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
    yield svg.text(panel.left - 6, top + 15, short, "", "end")
    if timeline.came is not None:
        until = scene.end if timeline.started is None else timeline.started
        x = panel.x(timeline.came)
        yield svg.box(x, top + 9, panel.x(until) - x, 4, "wait", tooltip(timeline))


def marks(panel: Panel, timeline: GroupTimeline, top: float, height: float) -> Iterator[str]:
    """While nodes were reserved for a group, and when members of it were evicted for others."""
    for span in timeline.reserved:
        x = panel.x(span.begin)
        title = f"{timeline.name}: nodes were reserved for {two_units(span.end - span.begin)}"
        yield svg.box(x, top, panel.x(span.end) - x, height / 2, RESERVED, title)
    for moment, members in timeline.gave_back.items():
        title = f"{timeline.name}: {many(members, 'pod')} evicted for others"
        yield svg.box(panel.x(moment) - 1.5, top, 3, height, EVICTED, title)


def all_marks(panel: Panel, scene: Scene, top: float) -> Iterator[str]:
    """Those of all groups in one strip, as one shape for each kind, since they may be many."""
    reserved = [span for timeline in scene.timelines for span in timeline.reserved]
    evicted = {moment for timeline in scene.timelines for moment in timeline.gave_back}
    lengths = ((panel.x(span.begin), panel.x(span.end) - panel.x(span.begin)) for span in reserved)
    yield svg.boxes(RESERVED, ((x, top, width, 5) for x, width in lengths))
    yield svg.boxes(EVICTED, ((panel.x(moment) - 0.5, top + 6, 1, 5) for moment in sorted(evicted)))


def _run(panel: Panel, scene: Scene, bar: Bar, top: float) -> Iterator[str]:
    x = panel.x(bar.start)
    width = panel.x(bar.end) - x
    label = f"{bar.members} pod{'s' if bar.members > 1 else ''}"
    yield svg.box(x, top + 3, width, ROW - 6, scene.colour(bar.timeline), tooltip(bar.timeline))
    if width > len(label) * _LETTER + 8:
        yield svg.text(x + 5, top + 15, label, "inside")


def room(panel: Panel, scene: Scene, pieces: Sequence[Piece]) -> Iterator[str]:
    """Bars packed into the room; when there are many they are one shape for each queue, and say nothing."""
    if len(pieces) <= _MOST_TITLES:
        for each in pieces:
            yield svg.box(*_place(panel, each), scene.colour(each.bar.timeline), tooltip(each.bar.timeline))
        return
    by_colour: dict[str, list[Piece]] = {}
    for each in pieces:
        by_colour.setdefault(scene.colour(each.bar.timeline), []).append(each)
    for colour, of_colour in by_colour.items():
        yield svg.boxes(colour, (_place(panel, each) for each in of_colour))


def _place(panel: Panel, piece: Piece) -> tuple[float, float, float, float]:
    x, y = panel.x(piece.bar.start), panel.y(piece.high)
    return x, y, _trimmed(panel.x(piece.bar.end) - x), _trimmed(panel.y(piece.low) - y)


def _trimmed(size: float) -> float:
    """A little smaller than it is, which separates neighbours, unless that leaves too little."""
    return size - 0.5 if size > 2 else size


def areas(panel: Panel, scene: Scene, changes: Changes) -> Iterator[str]:
    """A sum of each queue's groups over time, one on top of the other."""
    bottom = np.zeros(_COLUMNS)
    for queue, colour in scene.colours.items():
        of_queue = (
            each for timeline in scene.timelines if timeline.queue == queue for each in changes(timeline)
        )
        top = bottom + averages(of_queue, panel.begin, panel.end, _COLUMNS)
        lines = [[panel.y(min(amount, panel.most)) for amount in sums] for sums in (top, bottom)]
        yield svg.steps(colour, panel.left, panel.width / _COLUMNS, lines[0], lines[1])
        bottom = top


def tooltip(timeline: GroupTimeline) -> str:
    """A group in one line."""
    parts = [f"{timeline.name} ({timeline.queue}, {many(timeline.present, 'pod')})"]
    if timeline.wait is None:
        parts.append("never started")
    else:
        parts.append(f"waited {two_units(timeline.wait)}")
    if timeline.started is not None and timeline.over is not None:
        parts.append(f"ran {two_units(timeline.over - timeline.started)}")
    return ", ".join(parts)
