"""Laying the chart out: queues and their colours, one large panel, how many wait, the time."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from extender.domain.model.resources import PODS, show
from extender.sim.virtual.gantt import drawing, svg
from extender.sim.virtual.gantt.averages import Change, averages
from extender.sim.virtual.gantt.bars import Bar, Scene, bars
from extender.sim.virtual.gantt.packing import pack
from extender.sim.virtual.gantt.panel import WIDTH, Panel
from extender.sim.virtual.measurements import GroupTimeline, Measurements
from extender.sim.virtual.report import SimulationReport
from extender.sim.virtual.runner import Result
from extender.terminal.counts import many

_TOP, _LEFT, _LEFT_OF_ROWS = 76.0, 64.0, 176.0
_ROOM, _WAITING, _GAP, _AXIS = 360.0, 110.0, 34.0, 28.0
_MOST_ROWS = 40
_MOST_BARS = 20_000
_LETTER, _LINE, _MARGIN = 7.0, 18.0, 16.0


def chart(result: Result) -> str:
    """The whole file."""
    report, measured, end, _ = result
    scene = _scene(measured, report, end)
    few = len(scene.timelines) <= _MOST_ROWS
    parts = [*_rows(scene)] if few else [*_room(scene)]
    height = _top(scene) + _AXIS + (len(scene.timelines) * drawing.ROW if few else _ROOM + _GAP + _WAITING)
    title = f"{many(report.groups, 'gang')} of {many(report.pods, 'pod')} on {many(report.nodes, 'node')}"
    ground = svg.box(0, 0, WIDTH, height, "paper")
    return svg.document(WIDTH, height, title, [ground, *_head(scene, title), *parts])


def _scene(measured: Measurements, report: SimulationReport, end: float) -> Scene:
    used = report.utilisation
    resource = max(used, key=lambda name: used[name], default=PODS)
    timelines = sorted(measured.timelines.values(), key=lambda timeline: (timeline.came or 0.0, timeline.key))
    begin = measured.first or 0.0
    last = max(end, begin + 1.0)
    return Scene(
        timelines=timelines,
        bars=bars(timelines, resource, last),
        resource=resource,
        most=measured.capacity[resource],
        begin=begin,
        end=last,
        colours={queue.name: f"q{index % svg.COLOURS}" for index, queue in enumerate(report.queues)},
    )


def _head(scene: Scene, title: str) -> Iterator[str]:
    yield svg.text(_MARGIN, 24, title, "head")
    for entry in _legend(scene):
        yield svg.box(entry.x, 36 + entry.row * _LINE, 12, 12, entry.colour)
        yield svg.text(entry.x + 17, 46 + entry.row * _LINE, entry.queue)


class LegendEntry(NamedTuple):
    queue: str
    colour: str
    x: float
    row: int


def _legend(scene: Scene) -> list[LegendEntry]:
    """The queues next to each other, in as many rows as they take, and what is marked."""
    entries: list[LegendEntry] = []
    x, row = _MARGIN, 0
    for queue, colour in {**scene.colours, **_marked(scene)}.items():
        width = 17 + len(queue) * _LETTER
        if x > _MARGIN and x + width > WIDTH:
            x, row = _MARGIN, row + 1
        entries.append(LegendEntry(queue, colour, x, row))
        x += width + 18
    return entries


def _marked(scene: Scene) -> dict[str, str]:
    """What is marked besides."""
    reserved = any(timeline.reserved for timeline in scene.timelines)
    evicted = any(timeline.gave_back for timeline in scene.timelines)
    return {
        **({"nodes reserved": drawing.RESERVED} if reserved else {}),
        **({"evicted for others": drawing.EVICTED} if evicted else {}),
    }


def _top(scene: Scene) -> float:
    """Where the large panel begins: below the legend."""
    return _TOP + _LINE * max((entry.row for entry in _legend(scene)), default=0)


def _rows(scene: Scene) -> Iterator[str]:
    height = len(scene.timelines) * drawing.ROW
    panel = Panel(scene.begin, scene.end, _LEFT_OF_ROWS, _top(scene), height, 1.0)
    yield from panel.frame("each gang: grey while it waits, its queue's colour while it runs")
    yield from panel.moments(panel.top)
    yield from drawing.rows(panel, scene)


def _room(scene: Scene) -> Iterator[str]:
    panel = Panel(scene.begin, scene.end, _LEFT, _top(scene), _ROOM, scene.most)
    below = Panel(scene.begin, scene.end, _LEFT, panel.bottom + _GAP, _WAITING, _most_waiting(scene))
    yield from panel.frame(_meaning(scene))
    if len(scene.bars) <= _MOST_BARS:
        yield from drawing.room(panel, scene, list(pack(scene.bars, scene.most)))
    else:
        held: dict[str, list[Bar]] = {}
        for bar in scene.bars:
            held.setdefault(bar.timeline.key, []).append(bar)
        yield from drawing.areas(panel, scene, lambda timeline: _holding(held.get(timeline.key, ())))
    yield from drawing.all_marks(panel, scene, panel.bottom + 2)
    yield from panel.scale(lambda amount: show(scene.resource, amount))
    yield from below.frame("gangs that wait")
    yield from drawing.areas(below, scene, _waiting)
    yield from below.scale(lambda amount: f"{amount:,.0f}")
    yield from below.moments(panel.top)


def _meaning(scene: Scene) -> str:
    if len(scene.bars) <= _MOST_BARS:
        return f"{scene.resource} of the cluster: each bar is a gang, as high as what it holds"
    return f"{scene.resource} of the cluster: what the gangs of each queue hold"


def _most_waiting(scene: Scene) -> float:
    changes = (change for timeline in scene.timelines for change in _waiting(timeline))
    return max(float(np.max(averages(changes, scene.begin, scene.end, 440))), 1.0)


def _waiting(timeline: GroupTimeline) -> Iterable[Change]:
    if timeline.came is not None:
        yield timeline.came, 1.0
    if timeline.came is not None and timeline.started is not None:
        yield timeline.started, -1.0


def _holding(held: Iterable[Bar]) -> Iterable[Change]:
    for bar in held:
        yield bar.start, float(bar.amount)
        yield bar.end, -float(bar.amount)
