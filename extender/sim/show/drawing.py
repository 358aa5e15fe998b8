"""Pictures as lines of text, for any width from 40 columns on, with letters that the terminal can show."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from extender.domain.model.resources import CPU, show
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

    @property
    def roomy(self) -> bool:
        """Whether numbers get words."""
        return self.width >= 60

    def bar(self, part: float, length: int) -> str:
        full, empty = ("█", "░") if self.blocks else ("#", ".")
        filled = min(length, round(part * length))
        return full * filled + empty * (length - filled)

    def cut(self, text: str) -> str:
        end = "…" if self.blocks else "~"
        return text if len(text) <= self.width else text[: self.width - 1] + end

    def wrapped(self, text: str, indent: str) -> list[str]:
        width = max(self.width, _NARROWEST)
        return textwrap.wrap(
            text, width, break_on_hyphens=False, initial_indent=indent, subsequent_indent=indent
        )


def frame(picture: Picture, turns: Sequence[Turn], head: Sequence[str], paper: Paper) -> list[Line]:
    """All that is shown at one moment, no higher than the paper."""
    lines = head_lines(head, paper)
    lines += [Line(cpu_in_use(picture)), Line(""), *queue_lines(picture, paper), Line("")]
    lines += _gang_lines(picture, paper, paper.height - len(lines) - 2)
    room = paper.height - len(lines) - 2
    if room > 0 and turns:
        lines += [Line(""), *(Line(_brief(turn)) for turn in turns[-min(room, _TURNS) :])]
    return [line._replace(text=paper.cut(line.text)) for line in lines[: paper.height - 1]]


def head_lines(head: Sequence[str], paper: Paper) -> list[Line]:
    return [Line(line, "dim") for text in head for line in paper.wrapped(text, "")]


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
    weight = f", weight {queue.weight}" if paper.roomy else ""
    numbers = f"{queue.share:4.0%}  {_dominant(queue)}{weight}{state}"
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
    names = _column((gang.part.name for gang in picture.gangs), "Gang")
    queues = _column((gang.part.queue for gang in picture.gangs), "Queue")
    blocks = [(gang, gang_lines(gang, picture, paper, names, queues)) for gang in picture.gangs]
    lines = [Line(f"{'Gang':<{names}}  {'Queue':<{queues}}", "dim")]
    if sum(len(block) for _, block in blocks) < room:
        return lines + [line for _, block in blocks for line in block]
    return lines + _selected(blocks, room - 2)


def _selected(blocks: list[tuple[Gang, list[Line]]], room: int) -> list[Line]:
    """Those who wait come first where not all can be shown, and the others are counted."""
    lines: list[Line] = []
    rest: list[Gang] = []
    for gang, block in sorted(blocks, key=lambda each: not each[0].waits):
        if not rest and len(lines) + len(block) <= room:
            lines += block
        else:
            rest.append(gang)
    return [*lines, Line(f"and {len(rest)} more: {_counts(rest)}", "dim")]


def gang_lines(gang: Gang, picture: Picture, paper: Paper, names: int, queues: int) -> list[Line]:
    state = state_of(gang)
    dots = paper.bar(gang.part.bound / max(gang.pods, 1), min(gang.pods, 8))
    start = f"{_fitting(gang.part.name, names)}  {_fitting(gang.part.queue, queues)}  "
    first = Line(f"{start}{state:<6}  {dots} {_progress(gang, paper)}", _STYLES.get(state, ""))
    if not gang.waits:
        return [first]
    reasons = paper.wrapped(why(gang) + ahead(gang, picture), "    ")
    return [first, *map(Line, reasons)]


_STYLES = {"runs": "good", "starts": "good", "waits": "waits", "ended": "dim"}


def _progress(gang: Gang, paper: Paper) -> str:
    if gang.done:
        counts, words = f"{gang.ended - gang.failed} of {gang.pods}", "succeeded"
    else:
        counts, words = f"{gang.part.bound} of {gang.pods}", f"placed, needs {gang.part.min_member}"
    return f"{counts} {words}" if paper.roomy else counts


def _counts(gangs: Iterable[Gang]) -> str:
    counted = Counter(map(state_of, gangs))
    words = {"runs": "run", "waits": "wait", "starts": "start", "ended": "have ended"}
    return ", ".join(f"{count} {words[state]}" for state, count in counted.items())


# ---- what happened


def turn_text(turn: Turn, paper: Paper) -> list[str]:
    """A turn as it is told once and for all."""
    when, name = _when(turn), turn.gang.partition("/")[2]
    first, *rest = paper.wrapped(f"{name} {turn.text}", " " * len(when))
    return [when + first.lstrip(), *rest]


def _brief(turn: Turn) -> str:
    return f"{_when(turn)}{turn.gang.partition('/')[2]} {turn.brief}"


def _when(turn: Turn) -> str:
    return f"{turn.second:6.1f} s  "


# ---- words and columns


def _column(names: Iterable[str], title: str) -> int:
    return min(_NAME, max(map(len, (title, *names))))


def _fitting(name: str, width: int) -> str:
    return f"{name:<{width}}" if len(name) <= width else f"{name[: width - 1]}~"


def _many(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
