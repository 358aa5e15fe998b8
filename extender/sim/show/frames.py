"""The cluster's state as lines of text, for any width from 40 columns on, in ASCII where needed."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.text import Text

from extender.domain.model.resources import CPU, show
from extender.sim.show.cluster_state import ClusterState, Gang, QueueSummary, amounts
from extender.sim.show.transitions import ShownTransition, ahead, state_of, waiting_for
from extender.terminal.columns import bar

_NARROWEST = 40
_NAME = 20  # columns at most for a name
_LATEST = 6  # how many of the latest transitions are shown


class Canvas(NamedTuple):
    """What there is to draw on."""

    width: int = 80
    height: int = 24
    unicode: bool = True  # whether it has more than ASCII

    @property
    def roomy(self) -> bool:
        """Whether numbers get words."""
        return self.width >= 60

    def bar_of(self, part: float, length: int) -> str:
        return "".join(bar(part, length, self.unicode))

    def cut(self, line: Text) -> Text:
        line.truncate(self.width, overflow="ellipsis" if self.unicode else "crop")
        return line

    def wrapped(self, text: str, indent: str) -> list[str]:
        width = max(self.width, _NARROWEST)
        return textwrap.wrap(
            text, width, break_on_hyphens=False, initial_indent=indent, subsequent_indent=indent
        )


def frame(
    cluster: ClusterState, transitions: Sequence[ShownTransition], head: Sequence[str], canvas: Canvas
) -> list[Text]:
    """All that is shown at one moment, no higher than the canvas."""
    lines = head_lines(head, canvas)
    lines += [Text(cpu_in_use(cluster)), Text(""), *queue_lines(cluster, canvas), Text("")]
    lines += _gang_lines(cluster, canvas, canvas.height - len(lines) - 2)
    room = canvas.height - len(lines) - 2
    if room > 0 and transitions:
        lines += [Text(""), *(Text(_brief(each)) for each in transitions[-min(room, _LATEST) :])]
    return [canvas.cut(line) for line in lines[: canvas.height - 1]]


def head_lines(head: Sequence[str], canvas: Canvas) -> list[Text]:
    return [Text(line, "dim") for text in head for line in canvas.wrapped(text, "")]


def cpu_in_use(cluster: ClusterState) -> str:
    nodes = cluster.report.nodes
    used = sum(amounts(node.used).get(CPU, 0) for node in nodes)
    room = sum(amounts(node.allocatable).get(CPU, 0) for node in nodes)
    return f"{_many(len(nodes), 'node')}, {show(CPU, used)} of {show(CPU, room)} cpu in use"


# ---- queues


def queue_lines(cluster: ClusterState, canvas: Canvas) -> list[Text]:
    """Each queue's share of what it deserves as a bar, with the numbers behind it."""
    queues = cluster.report.queues
    names = _column((queue.name for queue in queues), "Queue")
    length = max(8, min(24, canvas.width - names - 36))
    title = f"{'Queue':<{names}}  Used of what it deserves"
    return [Text(title, "dim"), *(Text(_queue_line(queue, names, length, canvas)) for queue in queues)]


def _queue_line(queue: QueueSummary, names: int, length: int, canvas: Canvas) -> str:
    bar = canvas.bar_of(queue.share, length)
    state = "" if queue.state == "Open" else f", {queue.state}"
    weight = f", weight {queue.weight}" if canvas.roomy else ""
    numbers = f"{queue.share:4.0%}  {_dominant(queue)}{weight}{state}"
    return f"{_fitting(queue.name, names)}  {bar} {numbers}"


def _dominant(queue: QueueSummary) -> str:
    """The resource of which it uses the largest part of what it deserves: `4 of 8 cpu`."""
    used, deserved = amounts(queue.allocated), amounts(queue.deserved)
    wanted = [name for name in deserved if deserved[name]] or [CPU]
    name = max(wanted, key=lambda each: (used.get(each, 0) / (deserved.get(each) or 1), each == CPU))
    return f"{show(name, used.get(name, 0))} of {show(name, deserved.get(name, 0))} {name}"


# ---- gangs


def _gang_lines(cluster: ClusterState, canvas: Canvas, room: int) -> list[Text]:
    """As many as there is room for, and how many more there are."""
    names = _column((gang.summary.name for gang in cluster.gangs), "Gang")
    queues = _column((gang.summary.queue for gang in cluster.gangs), "Queue")
    blocks = [(gang, gang_lines(gang, cluster, canvas, names, queues)) for gang in cluster.gangs]
    lines = [Text(f"{'Gang':<{names}}  {'Queue':<{queues}}", "dim")]
    if sum(len(block) for _, block in blocks) < room:
        return lines + [line for _, block in blocks for line in block]
    return lines + _selected(blocks, room - 2)


def _selected(blocks: list[tuple[Gang, list[Text]]], room: int) -> list[Text]:
    """Gangs that wait come first where not all can be shown, and the others are counted."""
    lines: list[Text] = []
    rest: list[Gang] = []
    for gang, block in sorted(blocks, key=lambda each: not each[0].waits):
        if not rest and len(lines) + len(block) <= room:
            lines += block
        else:
            rest.append(gang)
    return [*lines, Text(f"and {len(rest)} more: {_counts(rest)}", "dim")]


def gang_lines(gang: Gang, cluster: ClusterState, canvas: Canvas, names: int, queues: int) -> list[Text]:
    state = state_of(gang)
    dots = canvas.bar_of(gang.summary.bound / max(gang.pods, 1), min(gang.pods, 8))
    start = f"{_fitting(gang.summary.name, names)}  {_fitting(gang.summary.queue, queues)}  "
    first = Text(f"{start}{state:<6}  {dots} {_progress(gang, canvas)}", _STYLES.get(state, ""))
    if not gang.waits:
        return [first]
    reasons = canvas.wrapped(waiting_for(gang) + ahead(gang, cluster), "    ")
    return [first, *map(Text, reasons)]


_STYLES = {"runs": "green", "starts": "green", "waits": "yellow", "ended": "dim"}


def _progress(gang: Gang, canvas: Canvas) -> str:
    if gang.done:
        counts, what = f"{gang.ended - gang.failed} of {gang.pods}", "succeeded"
    else:
        counts = f"{gang.summary.bound} of {gang.pods}"
        what = f"placed, needs {gang.summary.min_member}"
    return f"{counts} {what}" if canvas.roomy else counts


def _counts(gangs: Iterable[Gang]) -> str:
    counted = Counter(map(state_of, gangs))
    verbs = {"runs": "run", "waits": "wait", "starts": "start", "ended": "have ended"}
    return ", ".join(f"{count} {verbs[state]}" for state, count in counted.items())


# ---- transitions


def transition_text(transition: ShownTransition, canvas: Canvas) -> list[str]:
    """A transition in full, as lines of a log."""
    when, name = _when(transition), transition.gang.partition("/")[2]
    first, *rest = canvas.wrapped(f"{name} {transition.text}", " " * len(when))
    return [when + first.lstrip(), *rest]


def _brief(transition: ShownTransition) -> str:
    return f"{_when(transition)}{transition.gang.partition('/')[2]} {transition.brief}"


def _when(transition: ShownTransition) -> str:
    return f"{transition.second:6.1f} s  "


# ---- columns


def _column(names: Iterable[str], title: str) -> int:
    return min(_NAME, max(map(len, (title, *names))))


def _fitting(name: str, width: int) -> str:
    return f"{name:<{width}}" if len(name) <= width else f"{name[: width - 1]}~"


def _many(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
