"""Shares as bars, where there is a terminal to draw them on; in a pipe, numbers in columns say the same."""

import sys
from collections.abc import Iterator

import click

from extender.cli.explain.explanation import QueueFigures
from extender.cli.explain.rendering import resources_of
from extender.cli.formatting import amount, number
from extender.cli.output import width
from extender.terminal.columns import bar, shows_unicode

_LONGEST = 24
_FIGURES = 44  # columns that the figures next to a bar may take


def bars(queue: QueueFigures) -> list[str]:
    """A line for each resource: `cpu  ████████░░░░  4 of 6, at most 8`. None without a terminal."""
    if not sys.stdout.isatty():
        return []
    names = resources_of(queue)
    widest = max(map(len, names), default=0)
    length = max(8, min(_LONGEST, width() - widest - _FIGURES))
    return [
        f"{name:<{widest}}  {_bar(queue, name, length)}  {', '.join(_figures(queue, name))}" for name in names
    ]


def _bar(queue: QueueFigures, name: str, length: int) -> str:
    """What is used beyond what is deserved is lent: the bar is full then, and says so by its colour."""
    used, deserved = number(name, queue.allocated.get(name)), number(name, queue.deserved.get(name))
    part = used / deserved if deserved else float(bool(used))
    full, empty = bar(part, length, shows_unicode(sys.stdout))
    return click.style(full, fg="yellow" if part > 1 else "green") + empty


def _figures(queue: QueueFigures, name: str) -> Iterator[str]:
    yield f"{amount(name, queue.allocated.get(name, 0))} of {amount(name, queue.deserved.get(name))}"
    if name in queue.capability:
        yield f"at most {amount(name, queue.capability[name])}"
