"""--timeout: how long a command waits for what it asked for."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class Timeout(NamedTuple):
    """In seconds, 0 for no limit, and as it was written."""

    seconds: float
    written: str


def timeout_flag(default: str) -> Callable[[F], F]:
    """As `timeout`."""
    return click.option(
        "--timeout",
        "timeout",
        metavar="DURATION",
        default=default,
        show_default=True,
        callback=_timeout,
        help="How long to wait, such as 30s or 5m; 0 means without limit.",
    )


def _timeout(_context: click.Context, _parameter: click.Parameter, value: str) -> Timeout:
    from extender.api.durations import as_seconds

    try:
        return Timeout(0.0 if value == "0" else as_seconds(value), value)
    except ValueError as fault:
        raise click.BadParameter(f"got {value!r}; allowed is 0 or a duration such as 30s or 5m") from fault
