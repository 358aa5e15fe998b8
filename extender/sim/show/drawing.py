"""Pictures as lines of text, for any width from 40 columns on, with letters that the terminal can show."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from extender.domain.resources import CPU, show
from extender.sim.show.history import Turn, ahead, state_of, why
from extender.sim.show.picture import Gang, Picture, QueuePart, amounts

_NARROWEST = 40
_NAME = 20  # columns at most for a name
_TURNS = 6  # how many of the latest are shown


class Line(NamedTuple):
    text: str
    style: str = ""  # dim, good, waits


class Paper(NamedTuple):
    """What there is to draw on."""

    width: int = 80
    height: int = 24
    blocks: bool = True  # whether it has more than ASCII

    def bar(self, part: float, length: int) -> str:
        full, empty = ("█", "░") if self.blocks else ("#", ".")
        filled = min(length, round(part * length))
        return full * filled + empty * (length - filled)

    def cut(self, text: str) -> str:
        end = "…" if self.blocks else "~"
        return text if len(text) <= self.width else text[: self.width - 1] + end

    def wrapped(self, text: str, indent: str) -> list[str]:
        width = max(self.width, _NARROWEST)
        return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent)


def frame(picture: Picture, turns: Sequence[Turn], head: Sequence[str], paper: Paper) -> list[Line]:
    """All that is shown at one moment, no higher than the paper."""
    lines = [Line(text, "dim") for text in head]
    lines += [Line(cpu_in_use(picture)), Line(""), *queue_lines(picture, paper), Line("")]
    latest = [Line(turn_text(turn, turn.brief, paper)[0]) for turn in turns[-_TURNS:]]
    room = paper.height - len(lines) - len(latest) - 3
    lines += _gang_lines(picture, paper, max(room, 3))
    if latest:
        lines += [Line(""), *latest]
    return [line._replace(text=paper.cut(line.text)) for line in lines[: paper.height - 1]]


def cpu_in_use(picture: Picture) -> str:
    nodes = picture.report.nodes
    used = sum(amounts(node.used).get(CPU, 0) for node in nodes)
    room = sum(amounts(node.allocatable).get(CPU, 0) for node in nodes)
    return f"{_many(len(nodes), 'node')}, {show(CPU, used)} of {show(CPU, room)} cpu in use"


# ---- queues


def queue_lines(picture: Picture, paper: Paper) -> list[Line]:
    """Each queue's share of what it deserves as a bar, with the numbers behind it."""
    queues = picture.report.queues
    names = _column((queue.name for queue in queues), "Queue")
    length = max(8, min(24, paper.width - names - 36))
    title = f"{'Queue':<{names}}  Used of what it deserves"
    return [Line(title, "dim"), *(Line(_queue_line(queue, names, length, paper)) for queue in queues)]


def _queue_line(queue: QueuePart, names: int, length: int, paper: Paper) -> str:
    bar = paper.bar(queue.share, length)
    state = "" if queue.state == "Open" else f", {queue.state}"
    numbers = f"{queue.share:4.0%}  {_dominant(queue)}, weight {queue.weight}{state}"
    return f"{_fitting(queue.name, names)}  {bar} {numbers}"


def _dominant(queue: QueuePart) -> str:
    """The resource of which it uses the largest part of what it deserves: `4 of 8 cpu`."""
    used, deserved = amounts(queue.allocated), amounts(queue.deserved)
    wanted = [name for name in deserved if deserved[name]] or [CPU]
    name = max(wanted, key=lambda each: (used.get(each, 0) / (deserved.get(each) or 1), each == CPU))
    return f"{show(name, used.get(name, 0))} of {show(name, deserved.get(name, 0))} {name}"


# ---- gangs


def _gang_lines(picture: Picture, paper: Paper, room: int) -> list[Line]:
    """As many as there is room for, and how many more there are."""
    gangs = picture.gangs
    names = _column((gang.part.name for gang in gangs), "Gang")
    queues = _column((gang.part.queue for gang in gangs), "Queue")
    lines = [Line(f"{'Gang':<{names}}  {'Queue':<{queues}}", "dim")]
    for number, gang in enumerate(gangs):
        block = gang_lines(gang, picture, paper, names, queues)
        if len(lines) + len(block) > room and number < len(gangs) - 1:
            return [*lines, Line(f"and {len(gangs) - number} more: {_counts(gangs[number:])}", "dim")]
        lines += block
    return lines


def gang_lines(gang: Gang, picture: Picture, paper: Paper, names: int, queues: int) -> list[Line]:
    state = state_of(gang)
    dots = paper.bar(gang.part.bound / max(gang.pods, 1), min(gang.pods, 8))
    start = f"{_fitting(gang.part.name, names)}  {_fitting(gang.part.queue, queues)}  "
    first = Line(f"{start}{state:<6}  {dots} {_progress(gang)}", _STYLES.get(state, ""))
    if not gang.waits:
        return [first]
    reasons = paper.wrapped(why(gang) + ahead(gang, picture), "    ")
    return [first, *map(Line, reasons)]


_STYLES = {"runs": "good", "starts": "good", "waits": "waits", "ended": "dim"}


def _progress(gang: Gang) -> str:
    if gang.done:
        return f"{gang.ended - gang.failed} of {gang.pods} succeeded"
    return f"{gang.part.bound} of {gang.pods} placed, needs {gang.part.min_member}"


def _counts(gangs: Iterable[Gang]) -> str:
    counted = Counter(map(state_of, gangs))
    words = {"runs": "run", "waits": "wait", "starts": "start", "ended": "have ended"}
    return ", ".join(f"{count} {words[state]}" for state, count in counted.items())


# ---- what happened


def turn_text(turn: Turn, text: str, paper: Paper) -> list[str]:
    when = f"{turn.second:6.1f} s  "
    name = turn.gang.partition("/")[2]
    first, *rest = paper.wrapped(f"{name} {text}", " " * len(when))
    return [when + first.lstrip(), *rest]


# ---- words and columns


def _column(names: Iterable[str], title: str) -> int:
    return min(_NAME, max(map(len, (title, *names))))


def _fitting(name: str, width: int) -> str:
    return f"{name:<{width}}" if len(name) <= width else f"{name[: width - 1]}~"


def _many(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
