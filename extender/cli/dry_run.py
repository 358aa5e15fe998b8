"""--dry-run and -o of commands that change something, and the line that they print."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from extender.cli.output import Json, echo, show_objects

F = TypeVar("F", bound=Callable[..., Any])

CLIENT, SERVER = "client", "server"
_SUFFIX = {"none": "", CLIENT: " (dry run)", SERVER: " (server dry run)"}


def dry_run_flag(command: F) -> F:
    return click.option(
        "--dry-run",
        type=click.Choice(["none", CLIENT, SERVER]),
        default="none",
        show_default=True,
        help="Only show what would be done: checked by the client or by the API server.",
    )(command)


def result_flag(command: F) -> F:
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["name", "json", "yaml"]),
        help="Print the object, or its name. [default: one line of result]",
    )(command)


def show_result(obj: Json, done: str, output: str | None, dry_run: str) -> None:
    """The object in the form that was asked for, else `queue.scheduling.volcano.sh/research created`."""
    if output:
        show_objects([obj], output, single=True)
    else:
        show_done(obj["metadata"]["name"], done, dry_run)


def show_done(name: str, done: str, dry_run: str = "none", kind: str = "queue.scheduling.volcano.sh") -> None:
    echo(f"{kind}/{name} {done}{_SUFFIX[dry_run]}")
