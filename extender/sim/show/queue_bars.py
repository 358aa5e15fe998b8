"""Each queue's share of what it deserves as a bar, with the numbers behind it."""

from collections.abc import Iterable

from rich.text import Text

from extender.domain.model.resources import CPU, show
from extender.sim.show.canvas import Canvas
from extender.sim.show.cluster_state import ClusterState
from extender.sim.show.outcome import QueueSummary
from extender.sim.show.queues_and_nodes import amounts
from extender.terminal.counts import many

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
    name = max(wanted, key=lambda each: (used.get(each, 0) / (deserved.get(each) or 1), each == CPU))
    return f"{show(name, used.get(name, 0))} of {show(name, deserved.get(name, 0))} {name}"
