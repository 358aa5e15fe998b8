"""Progress of long commands, by rich: on standard error, where that is a terminal; nothing of it stays."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PACE = 0.1  # seconds between two pictures of a progress bar

Advance = Callable[[float], None]  # takes how much is done in all


@contextmanager
def progress(what: str, total: float) -> Iterator[Advance]:
    """A bar on standard error while the block runs, where that is a terminal; nothing of it stays."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    shape = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*shape, console=Console(stderr=True), transient=True, refresh_per_second=1 / _PACE) as bars:
        task = bars.add_task(what, total=total)
        yield lambda done: bars.update(task, completed=done)


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """A line with a spinner on standard error while the block runs, where that is a terminal. What is yielded
    takes the next text of the line; elsewhere it does nothing."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(what)) as status:
        yield lambda text: status.update(Text(text))
