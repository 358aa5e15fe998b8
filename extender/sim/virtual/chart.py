"""The Gantt chart: one SVG file that is legible on light and on dark pages.

Few gangs get a row each. More gangs become bars that are packed into the capacity of the cluster; the height
of a bar is the gang's part of the capacity. For very many gangs, the chart shows only the sums by queue. The
panel below shows the number of pending gangs.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import chain, count
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from extender.api.units import precise_duration
from extender.domain.model.resources import PODS, show
from extender.sim.virtual import svg
from extender.sim.virtual.measurements import GroupTimeline
from extender.sim.virtual.runner import Result
from extender.sim.virtual.svg import WIDTH, Panel
from extender.terminal.text import counted

_TOP, _LEFT, _LEFT_OF_ROWS = 76.0, 64.0, 176.0
_CAPACITY_HEIGHT, _WAITING, _GAP, _AXIS = 360.0, 110.0, 34.0, 28.0
_MAX_ROWS = 40
_MAX_BARS = 20_000
_LEGEND_LETTER_WIDTH, _LINE_HEIGHT, _MARGIN = 7.0, 18.0, 16.0
ROW = 22.0
RESERVED, EVICTED = "reserved", "evicted"  # CSS classes of markers
_COLUMNS = 440
_MAX_TITLES = 3_000
_LETTER_WIDTH = 6.2  # approximate width of a letter
_MAX_NAME_LENGTH = 24

Change = tuple[float, float]  # time and amount
Columns = npt.NDArray[np.float64]
Changes = Callable[[GroupTimeline], Iterable[Change]]


class Bar(NamedTuple):
    """Members of a group that ran at the same time."""

    timeline: GroupTimeline
    start: float
    end: float
    amount: int
    members: int


class Scene(NamedTuple):
    timelines: Sequence[GroupTimeline]
    bars: Sequence[Bar]
    resource: str  # resource that determines the heights
    capacity: int  # capacity of the cluster in that resource
    begin: float
    end: float
    colours: Mapping[str, str]  # by queue

    def colour(self, timeline: GroupTimeline) -> str:
        return self.colours[timeline.queue]


class Piece(NamedTuple):
    """Part of a bar in the chart, from the amount `low` up to the amount `high`."""

    bar: Bar
    low: int
    high: int


def chart(result: Result) -> str:
    """Return the chart as SVG."""
    report, measurements, end, _ = result
    used = report.utilisation
    resource = max(used, key=lambda name: used[name], default=PODS)
    timelines = sorted(measurements.timelines.values(), key=lambda each: (each.complete_at or 0.0, each.key))
    begin = measurements.first_time or 0.0
    last = max(end, begin + 1.0)
    run_bars = bars(timelines, resource, last)
    colours = {queue.name: f"q{index % svg.COLOUR_COUNT}" for index, queue in enumerate(report.queues)}
    scene = Scene(timelines, run_bars, resource, measurements.capacity[resource], begin, last, colours)
    has_rows = len(scene.timelines) <= _MAX_ROWS
    legend, top = _legend(scene)
    height = top + _AXIS + (len(scene.timelines) * ROW if has_rows else _CAPACITY_HEIGHT + _GAP + _WAITING)
    contents = f"{counted(report.groups, 'gang')} of {counted(report.pods, 'pod')}"
    title = f"{contents} on {counted(report.nodes, 'node')}"
    paper = [svg.box(0, 0, WIDTH, height, "paper"), svg.text(_MARGIN, 24, title, "head")]
    parts = _row_shapes(scene, top) if has_rows else _capacity_shapes(scene, top)
    return svg.document(WIDTH, height, title, [*paper, *legend, *parts])


def _legend(scene: Scene) -> tuple[list[str], float]:
    """Return the legend of queues and markers, and the vertical position of the large panel."""
    marker_colours = {}
    if any(timeline.reservations for timeline in scene.timelines):
        marker_colours["nodes reserved"] = RESERVED
    if any(timeline.evictions for timeline in scene.timelines):
        marker_colours["evicted for others"] = EVICTED
    parts: list[str] = []
    x, offset = _MARGIN, 0.0
    for name, colour in {**scene.colours, **marker_colours}.items():
        width = 17 + len(name) * _LEGEND_LETTER_WIDTH
        if x > _MARGIN and x + width > WIDTH:
            x, offset = _MARGIN, offset + _LINE_HEIGHT
        parts += [svg.box(x, 36 + offset, 12, 12, colour), svg.text(x + 17, 46 + offset, name)]
        x += width + 18
    return parts, _TOP + offset


def _row_shapes(scene: Scene, top: float) -> Iterator[str]:
    """Yield a row for each group: its name, its wait, and the runs of its members."""
    height = len(scene.timelines) * ROW
    panel = Panel(scene.begin, scene.end, _LEFT_OF_ROWS, top, height, 1.0)
    yield from panel.frame("each gang: grey while it waits, its queue's colour while it runs")
    yield from panel.time_axis(top)
    top_by_key = {timeline.key: top + index * ROW for index, timeline in enumerate(scene.timelines)}
    for timeline in scene.timelines:
        y, name = top_by_key[timeline.key], timeline.name.removeprefix("default/")
        short = name if len(name) <= _MAX_NAME_LENGTH else f"{name[: _MAX_NAME_LENGTH - 1]}…"
        yield svg.text(panel.left - 6, y + 15, short, "", "end")
        if timeline.complete_at is not None:
            wait_end = scene.end if timeline.started_at is None else timeline.started_at
            x = panel.x(timeline.complete_at)
            yield svg.box(x, y + 9, panel.x(wait_end) - x, 4, "wait", tooltip(timeline))
    for bar in scene.bars:
        y, x = top_by_key[bar.timeline.key], panel.x(bar.start)
        width, label = panel.x(bar.end) - x, f"{bar.members} pod{'s' if bar.members > 1 else ''}"
        yield svg.box(x, y + 3, width, ROW - 6, scene.colour(bar.timeline), tooltip(bar.timeline))
        if width > len(label) * _LETTER_WIDTH + 8:
            yield svg.text(x + 5, y + 15, label, "inside")
    for timeline in scene.timelines:
        yield from markers(panel, timeline, top_by_key[timeline.key] + 1, ROW - 2)


def _capacity_shapes(scene: Scene, top: float) -> Iterator[str]:
    panel = Panel(scene.begin, scene.end, _LEFT, top, _CAPACITY_HEIGHT, scene.capacity)
    waiting = (change for timeline in scene.timelines for change in _waiting_changes(timeline))
    most_waiting = max(float(np.max(averages(waiting, scene.begin, scene.end, _COLUMNS))), 1.0)
    lower = Panel(scene.begin, scene.end, _LEFT, panel.bottom + _GAP, _WAITING, most_waiting)
    heading = f"{scene.resource} of the cluster"
    if len(scene.bars) <= _MAX_BARS:
        yield from panel.frame(f"{heading}: each bar is a gang, as high as its usage")
        yield from _packed_bars(panel, scene)
    else:
        yield from panel.frame(f"{heading}: usage of the gangs of each queue")
        changes = defaultdict[str, list[Change]](list)
        for bar in scene.bars:
            changes[bar.timeline.key] += [(bar.start, float(bar.amount)), (bar.end, -float(bar.amount))]
        yield from areas(panel, scene, lambda timeline: changes[timeline.key])
    # All markers are in one strip, as one shape for each kind, because there may be many.
    reserved_spans = [span for timeline in scene.timelines for span in timeline.reservations]
    evictions = {instant for timeline in scene.timelines for instant in timeline.evictions}
    reserved_boxes = ((panel.x(begin), panel.x(end) - panel.x(begin)) for begin, end in reserved_spans)
    strip = panel.bottom + 2
    yield svg.boxes(RESERVED, ((x, strip, width, 5) for x, width in reserved_boxes))
    yield svg.boxes(EVICTED, ((panel.x(instant) - 0.5, strip + 6, 1, 5) for instant in sorted(evictions)))
    yield from panel.scale(lambda amount: show(scene.resource, amount))
    yield from lower.frame("gangs that wait")
    yield from areas(lower, scene, _waiting_changes)
    yield from lower.scale(lambda amount: f"{amount:,.0f}")
    yield from lower.time_axis(top)


def _waiting_changes(timeline: GroupTimeline) -> Iterable[Change]:
    if timeline.complete_at is not None:
        yield timeline.complete_at, 1.0
    if timeline.complete_at is not None and timeline.started_at is not None:
        yield timeline.started_at, -1.0


def markers(panel: Panel, timeline: GroupTimeline, top: float, height: float) -> Iterator[str]:
    """Yield boxes for the reservations and evictions of a group."""
    for begin, end in timeline.reservations:
        title = f"{timeline.name}: nodes were reserved for {precise_duration(end - begin)}"
        yield svg.box(panel.x(begin), top, panel.x(end) - panel.x(begin), height / 2, RESERVED, title)
    for instant, members in timeline.evictions.items():
        title = f"{timeline.name}: {counted(members, 'pod')} evicted for others"
        yield svg.box(panel.x(instant) - 1.5, top, 3, height, EVICTED, title)


def _packed_bars(panel: Panel, scene: Scene) -> Iterator[str]:
    """Yield the packed bars. If there are many, they become one shape for each queue, without tooltips."""
    pieces = [*pack(scene.bars, scene.capacity)]
    if len(pieces) <= _MAX_TITLES:
        for piece in pieces:
            timeline = piece.bar.timeline
            yield svg.box(*_place(panel, piece), scene.colour(timeline), tooltip(timeline))
        return
    by_colour = defaultdict[str, list[tuple[float, float, float, float]]](list)
    for piece in pieces:
        by_colour[scene.colour(piece.bar.timeline)].append(_place(panel, piece))
    yield from (svg.boxes(colour, places) for colour, places in by_colour.items())


def _place(panel: Panel, piece: Piece) -> tuple[float, float, float, float]:
    """Return position and size of a piece. Pieces that are large enough have a gap to their neighbours."""
    x, y = panel.x(piece.bar.start), panel.y(piece.high)
    width, height = panel.x(piece.bar.end) - x, panel.y(piece.low) - y
    return x, y, width - 0.5 if width > 2 else width, height - 0.5 if height > 2 else height


def areas(panel: Panel, scene: Scene, changes: Changes) -> Iterator[str]:
    """Yield stacked areas: for each queue, the sum over its groups at each time."""
    bottom = np.zeros(_COLUMNS)
    for queue, colour in scene.colours.items():
        of_queue = (timeline for timeline in scene.timelines if timeline.queue == queue)
        top = bottom + averages(chain.from_iterable(map(changes, of_queue)), panel.begin, panel.end, _COLUMNS)
        tops, bottoms = ([panel.y(min(each, panel.max_amount)) for each in sums] for sums in (top, bottom))
        yield svg.steps(colour, panel.left, panel.width / _COLUMNS, tops, bottoms)
        bottom = top


def tooltip(timeline: GroupTimeline) -> str:
    """Return the name, queue, size and times of a group in one line."""
    waited = "never started" if timeline.wait is None else f"waited {precise_duration(timeline.wait)}"
    parts = [f"{timeline.name} ({timeline.queue}, {counted(timeline.present_count, 'pod')})", waited]
    if timeline.started_at is not None and timeline.ended_at is not None:
        parts.append(f"ran {precise_duration(timeline.ended_at - timeline.started_at)}")
    return ", ".join(parts)


# ---- contents: bars from the timelines of groups, packed into the capacity, and sums over time


def bars(timelines: Iterable[GroupTimeline], resource: str, end: float) -> list[Bar]:
    """Return a bar for each run of members. Runs without an end last until `end`."""
    run_bars: list[Bar] = []
    for timeline in timelines:
        amounts: Counter[tuple[float, float]] = Counter()
        members: Counter[tuple[float, float]] = Counter()
        for run, pods in timeline.runs_of_members.items():
            span = (run.start, end if run.end is None else run.end)
            amounts[span] += pods * run.shape.requests.get(resource, 0)
            members[span] += pods
        run_bars += [Bar(timeline, *span, amounts[span], pods) for span, pods in members.items() if pods]
    return run_bars


def averages(changes: Iterable[Change], begin: float, end: float, columns: int) -> Columns:
    """Return the mean in each column of a sum that starts at 0 and changes by `changes`."""
    width = (end - begin) / columns
    within, after = np.zeros(columns + 1), np.zeros(columns + 2)
    for instant, amount in changes:
        position = min(max((instant - begin) / width, 0.0), float(columns))
        column = int(position)
        within[column] += amount * (column + 1 - position)
        after[column + 1] += amount
    means: Columns = (within + np.cumsum(after)[:-1])[:columns]
    return means


Gap = tuple[int, int]  # lower and upper bound


def pack(bars: Iterable[Bar], capacity: int) -> Iterator[Piece]:
    """Yield the pieces of all bars, packed into the capacity. Pieces never overlap."""
    gaps: list[Gap] = [(0, capacity)]
    running_bars: list[tuple[float, int, list[Gap]]] = []
    tie_breakers = count()
    for bar in sorted(bars, key=lambda bar: (bar.start, -bar.amount)):
        while running_bars and running_bars[0][0] <= bar.start:
            gaps = _join(gaps + heappop(running_bars)[-1])
        filled_gaps, gaps = _take(gaps, bar.amount)
        heappush(running_bars, (bar.end, next(tie_breakers), filled_gaps))
        yield from (Piece(bar, low, high) for low, high in filled_gaps)


def _take(gaps: list[Gap], amount: int) -> tuple[list[Gap], list[Gap]]:
    """Fill `amount` of the gaps. Return the filled and the remaining gaps."""
    sufficient_gap = min((gap for gap in gaps if _height(gap) >= amount), key=_height, default=None)
    chosen_gaps = [sufficient_gap] if sufficient_gap else sorted(gaps, key=_height, reverse=True)
    filled: list[Gap] = []
    for low, high in chosen_gaps:
        if amount > 0:
            filled.append((low, min(high, low + amount)))
            amount -= filled[-1][1] - low
    ends = dict(filled)
    remaining = [(ends.get(low, low), high) for low, high in gaps]
    return filled, [(low, high) for low, high in remaining if low < high]


def _height(gap: Gap) -> int:
    return gap[1] - gap[0]


def _join(gaps: list[Gap]) -> list[Gap]:
    """Return the gaps in ascending order. Adjacent gaps become one gap."""
    joined: list[Gap] = []
    for low, high in sorted(gaps):
        begin = joined.pop()[0] if joined and joined[-1][1] == low else low
        joined.append((begin, high))
    return joined
