"""Shares as bars, where there is a terminal to draw them on; in a pipe, numbers in columns say the same."""

import sys
from collections.abc import Iterator

import click

from extender.cli.answer import QueuePart
from extender.cli.output import width
from extender.cli.seen import amount, number
from extender.cli.telling import resources_of

_LONGEST = 24
_WORDS = 44  # columns that the words beside a bar may take


def bars(queue: QueuePart) -> list[str]:
    """A line for each resource: `cpu  ████████░░░░  4 of 6, at most 8`. None without a terminal."""
    if not sys.stdout.isatty():
        return []
    names = resources_of(queue)
    widest = max(map(len, names), default=0)
    length = max(8, min(_LONGEST, width() - widest - _WORDS))
    return [
        f"{name:<{widest}}  {_bar(queue, name, length)}  {', '.join(_words(queue, name))}" for name in names
    ]


def _bar(queue: QueuePart, name: str, length: int) -> str:
    """What is used beyond what is deserved is lent: the bar is full then, and says so by its colour."""
    used, deserved = number(name, queue.allocated.get(name)), number(name, queue.deserved.get(name))
    part = used / deserved if deserved else float(bool(used))
    filled = min(length, round(part * length))
    full, empty = ("█", "░") if (sys.stdout.encoding or "").lower().startswith("utf") else ("#", ".")
    colour = "yellow" if part > 1 else "green"
    return click.style(full * filled, fg=colour) + empty * (length - filled)


def _words(queue: QueuePart, name: str) -> Iterator[str]:
    yield f"{amount(name, queue.allocated.get(name, 0))} of {amount(name, queue.deserved.get(name))}"
    if name in queue.capability:
        yield f"at most {amount(name, queue.capability[name])}"
