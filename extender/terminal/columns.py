"""Aligned columns and bars, as lines of text.

Live frames and progress are rich's. Columns are not: kubectl's form (no borders, three spaces in between,
nothing cut or folded) takes a few lines, and a long list a thirtieth of the time that rich's Table needs.
`python -m extender.terminal.columns` prints both times.
"""

import io
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

from rich.cells import cell_len

_GAP = "   "


def columns(head: Sequence[str], rows: Iterable[Sequence[object]], right: int = 0) -> list[str]:
    """Lines of cells, a heading first, each column as wide as its widest cell; the `right` last columns are
    aligned to the right."""
    cells = [tuple(head), *(tuple(map(str, row)) for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    first = len(widths) - right

    def padded(number: int, cell: str) -> str:
        gap = " " * (widths[number] - cell_len(cell))
        return cell + gap if number < first else gap + cell

    return [_GAP.join(padded(number, cell) for number, cell in enumerate(row)).rstrip() for row in cells]


def shortened(name: str, width: int, unicode: bool) -> str:
    """A name that is too long loses its middle: its end tells it from others."""
    if len(name) <= width:
        return name
    tail = (width - 1) // 2
    return f"{name[: width - 1 - tail]}{'…' if unicode else '~'}{name[-tail:] if tail else ''}"


def shows_unicode(stream: TextIO) -> bool:
    return (stream.encoding or "ascii").lower().startswith("utf")


def bar(part: float, length: int, unicode: bool) -> tuple[str, str]:
    """The full and the empty piece of a bar of `length` letters; a `part` above 1 fills it."""
    full, empty = ("█", "░") if unicode else ("#", ".")
    filled = min(length, round(part * length))
    return full * filled, empty * (length - filled)


def _compare(count: int) -> Iterator[str]:
    """How long our columns and rich's table take for `count` rows of seven cells."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    head, rows = ("NAME",) * 7, [(f"row-{number}",) * 7 for number in range(count)]
    began = time.perf_counter()
    columns(head, rows)
    ours = time.perf_counter() - began
    grid = Table(*head, box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for row in rows:
        grid.add_row(*map(Text, row))
    Console(file=io.StringIO(), width=1000).print(grid)
    theirs = time.perf_counter() - began - ours
    yield f"{count} rows of 7 columns: columns() {ours:.3f} s, rich.table.Table {theirs:.3f} s"


if __name__ == "__main__":
    for line in _compare(10_000):
        sys.stdout.write(f"{line}\n")
