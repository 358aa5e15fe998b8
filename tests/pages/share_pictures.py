"""Pictures of the capacity that decide() gives to queues: a row for each, and a cell for each cpu."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from extender.api.objects.queues import Queue
from extender.domain.model.reasons import Verdict
from tests.domain.builders import node, pod
from tests.domain.world import World, gang

CELL, ROW, LEFT, EDGE = 26, 62, 150, 10  # pixels: width of a cell, height of a row, left of the cells, margin
STYLE = """<style>
  text { font: 13px system-ui, sans-serif; fill: #1f2937; } .small { font-size: 11.5px; fill: #4b5563; }
  .name { font-weight: 600; } .turn { font-size: 11.5px; fill: #ffffff; }
  .end { stroke: #6b7280; stroke-width: 1.3; }
  .mark { stroke: #1f2937; stroke-width: 1.6; stroke-dasharray: 3 2; }
  .held { fill: #2563eb; } .lent { fill: #ea580c; } .kept { fill: #2563eb33; stroke: #2563eb; }
  .waits { fill: none; stroke: #6b7280; stroke-dasharray: 3 2; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e5e7eb; } .small { fill: #9ca3af; } .turn { fill: #0d1117; }
    .end, .waits { stroke: #9ca3af; }
    .mark { stroke: #e5e7eb; } .held { fill: #60a5fa; } .lent { fill: #fb923c; }
    .kept { fill: #60a5fa33; stroke: #60a5fa; }
  }
</style>"""


class Row(NamedTuple):
    """Row of a queue. `requests`: number of its groups of 1 cpu; `gang`: size of a further gang."""

    queue: Queue
    requests: int = 0
    gang: int = 0
    reserved: int = 0  # cpus that are guaranteed to the queue
    caption: str = ""  # description of its spec

    def drawn(self, world: World, top: int, turns: Mapping[str, list[int]]) -> Iterator[str]:
        name = self.queue.metadata.name
        queue = world.queue(name)
        is_parent = any(other.parent == name for other in world.decisions.queues.values())
        held, deserved = queue.allocated.get("cpu", 0) // 1000, queue.deserved.get("cpu", 0.0) / 1000
        kinds = ["held" if number < deserved else "lent" for number in range(held)]
        kinds += ["kept"] * (self.reserved - held)
        if not is_parent:
            kinds += ["waits"] * (self.requests + self.gang - held)
        yield f'<text class="name" x="{EDGE}" y="{top + 16}">{name}</text>'
        yield f'<text class="small" x="{EDGE}" y="{top + 33}">{escape(self.caption)}</text>'
        for number, kind in enumerate(kinds):
            geometry = f'x="{LEFT + number * CELL + 2}" y="{top + 2}" width="{CELL - 4}" height="20" rx="3"'
            yield f'<rect class="{kind}" {geometry}/>'
        for number, turn in enumerate(turns.get(name, ())):
            x = LEFT + number * CELL + CELL // 2
            yield f'<text class="turn" x="{x}" y="{top + 17}" text-anchor="middle">{turn}</text>'
        if deserved:
            deserved_x, text = f"{LEFT + deserved * CELL:g}", f"share {queue.share:.0%} of {deserved:g}"
            yield f'<path class="mark" d="M{deserved_x} {top - 3}V{top + 28}"/>'
            yield f'<text class="small" x="{deserved_x}" y="{top + 41}" text-anchor="middle">{text}</text>'


def shares(title: str, cpus: int, *rows: Row, one_by_one: bool = False) -> Callable[[], str]:
    """Return a picture of queues that share a number of cpus; other groups wait.

    `one_by_one`: the cpus become free one by one, and each cell has the number of its cpu.
    """

    def draw() -> str:
        world = World([row.queue for row in rows])
        for row in rows:
            _add_groups(world, row)
        turns: dict[str, list[int]] = {}
        for turn in range(1, cpus + 1) if one_by_one else (cpus,):
            for name in _start(world.add(node("n", cpu=str(turn)))):
                turns.setdefault(name, []).append(turn)
        shown_turns = turns if one_by_one else {}
        return _picture(
            title, cpus, rows, [row.drawn(world, top, shown_turns) for top, row in _rows_by_top(rows)]
        )

    return draw


def reclaimed(title: str, cpus: int, lender: Row, claimant: Row) -> Callable[[], str]:
    """Return a picture of the lender's cpus before and after groups of the claimant come."""

    def draw() -> str:
        world = World(lender.queue, claimant.queue, node("n", cpu=str(cpus)))
        _add_groups(world, lender)
        _start(world)
        rows = (lender._replace(caption="before"), lender._replace(caption="after"), claimant)
        drawn = [[*rows[0].drawn(world, EDGE, {})]]
        _add_groups(world, claimant)
        victims = [eviction.victim for eviction in world.settle().decisions.evictions.values()]
        for victim in victims:  # its controller creates a new one
            world.delete(victim.name).add(pod(f"{victim.name}-again", victim.group.partition("/")[2]))
        _start(world)
        world.settle()
        drawn += [[*row.drawn(world, top, {})] for top, row in [*_rows_by_top(rows)][1:]]
        return _picture(title, cpus, rows, drawn)

    return draw


def _add_groups(world: World, row: Row) -> None:
    """Add the groups of a queue, and its gang as the newest."""
    name = row.queue.metadata.name
    world.add([gang(f"{name}{number:02}", 1, queue=name) for number in range(row.requests)])
    if row.gang:
        world.add(gang(f"{name}-gang", row.gang, queue=name, created="2027-01-01T00:00:00Z"))


def _start(world: World) -> list[str]:
    """Start all groups that may start, and return their queues."""
    decided = world.settle().decisions.groups.values()
    started = [decision for decision in decided if decision.verdict is Verdict.STARTING]
    world.start(*(decision.key.partition("/")[2] for decision in started))
    return [decision.queue for decision in started]


def _rows_by_top(rows: Sequence[Row]) -> Iterator[tuple[int, Row]]:
    return ((EDGE + number * ROW, row) for number, row in enumerate(rows))


def _picture(title: str, cpus: int, rows: Sequence[Row], drawn: Iterable[Iterable[str]]) -> str:
    maximum = max(cpus, *(row.requests + row.gang for row in rows))
    width, height, end = LEFT + maximum * CELL + 60, len(rows) * ROW + EDGE, LEFT + cpus * CELL
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
            f' height="{height}" role="img" aria-labelledby="title">',
            f'<title id="title">{escape(title)}</title>',
            STYLE,
            f'<path class="end" d="M{end} 0V{height}"/>',
            *(piece for pieces in drawn for piece in pieces),
            "</svg>\n",
        )
    )
