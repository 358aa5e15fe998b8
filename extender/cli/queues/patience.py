"""--timeout: how long a command waits for what it asked for."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class Patience(NamedTuple):
    """In seconds, and as it was said; 0 is for ever."""

    seconds: float
    said: str


def patience_flag(default: str) -> Callable[[F], F]:
    """As `patience`."""
    return click.option(
        "--timeout",
        "patience",
        metavar="DURATION",
        default=default,
        show_default=True,
        callback=_patience,
        help="How long to wait, such as 30s or 5m; 0 is for ever.",
    )


def _patience(_context: click.Context, _parameter: click.Parameter, value: str) -> Patience:
    from extender.api.durations import as_seconds

    try:
        return Patience(0.0 if value == "0" else as_seconds(value), value)
    except ValueError as fault:
        raise click.BadParameter(f"got {value!r}; allowed is 0 or a duration such as 30s or 5m") from fault
