"""Text for a terminal: aligned columns and bars, numbers with nouns, similar names, and progress."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich.cells import cell_len


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, such as `1 pod`, `2 pods` or `1,200 pods`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


# ---- suggestions for unknown names

_MIN_LIKENESS = 0.6  # difflib's measure of similarity, from 0 to 1; for `trian` and `train` it is 0.8


def near_misses(name: str, known_names: Iterable[str], maximum: int = 3) -> list[str]:
    """Return the known names that are similar to `name`. The most similar name comes first."""
    from difflib import get_close_matches  # slow, and only needed for errors

    return get_close_matches(name, sorted(set(known_names)), n=maximum, cutoff=_MIN_LIKENESS)


def near_miss(name: str, known_names: Iterable[str]) -> str:
    """Return the most similar known name; empty if none is similar."""
    return next(iter(near_misses(name, known_names, 1)), "")


def did_you_mean(names: Sequence[str]) -> str:
    """Return a question such as `did you mean train or trial?`; empty without names."""
    return f"did you mean {' or '.join(names)}?" if names else ""


def on_one_line(value: object) -> str:
    """Return a text on one line. Characters that end, hide or reverse text are escaped.

    Any user can write names and messages.
    """
    if (text := str(value)).isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def names_in(namespace: str, keys: Iterable[str]) -> list[str]:
    """Return the names that a namespace has among keys of the form NAMESPACE/NAME."""
    return [key.partition("/")[2] for key in keys if key.startswith(f"{namespace}/")]


def pods_that_name(count: int) -> str:
    """Return a text such as `2 pods name`, which precedes a name."""
    return f"{counted(count, 'pod')} {'names' if count == 1 else 'name'}"


# ---- columns and bars
#
# Live frames and progress are rich's. Columns are not: kubectl's form (no borders, three spaces in between,
# nothing cut or folded) takes a few lines, and a long list a thirtieth of the time that rich's Table needs.

_GAP = "   "


def columns(head: Sequence[str], rows: Iterable[Sequence[object]], right: int = 0) -> list[str]:
    """Return lines with aligned cells, below a heading. The last `right` columns are right-aligned."""
    cells = [tuple(head), *(tuple(map(on_one_line, row)) for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    first_right = len(widths) - right

    def pad(number: int, cell: str) -> str:
        gap = " " * (widths[number] - cell_len(cell))
        return cell + gap if number < first_right else gap + cell

    return [_GAP.join(pad(number, cell) for number, cell in enumerate(row)).rstrip() for row in cells]


def shorten(name: str, width: int, has_unicode: bool) -> str:
    """Return a name without its middle if it is too long. The end of a name is often the distinct part."""
    if len(name) <= width:
        return name
    tail = (width - 1) // 2
    return f"{name[: width - 1 - tail]}{'…' if has_unicode else '~'}{name[-tail:] if tail else ''}"


def shows_unicode(stream: TextIO) -> bool:
    return (stream.encoding or "ascii").lower().startswith("utf")


def bar(part: float, length: int, has_unicode: bool) -> tuple[str, str]:
    """Return the full and the empty part of a bar of `length` characters. `part` is from 0 to 1."""
    full, empty = ("█", "░") if has_unicode else ("#", ".")
    full_count = min(length, round(part * length))
    return full * full_count, empty * (length - full_count)


_PACE = 0.1  # seconds between two updates of a progress bar

Advance = Callable[[float], None]  # gets the total of the finished work


@contextmanager
def progress(title: str, total: float) -> Iterator[Advance]:
    """Show a bar on standard error while the block runs, if standard error is a terminal.

    The bar is removed at the end.
    """
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    shape = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*shape, console=Console(stderr=True), transient=True, refresh_per_second=1 / _PACE) as bars:
        task = bars.add_task(title, total=total)
        yield lambda done: bars.update(task, completed=done)


@contextmanager
def working(title: str) -> Iterator[Callable[[str], None]]:
    """Show a line with a spinner on standard error while the block runs, if standard error is a terminal.

    Call the yielded function with the next text. Without a terminal, the function does nothing.
    """
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(title)) as status:
        yield lambda text: status.update(Text(text))
