"""Flags that several commands share: --dry-run and -o, --timeout, files and nodes of the embedded cluster."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from extender.api.keys import GPU
from extender.api.quantities import BadQuantity, at_least
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


# ---- --timeout


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


# ---- files and nodes of the embedded cluster

NEVER_STARTED = 3  # the exit status if something never started


class Default(NamedTuple):
    """The value without the flag, and how the help shows it. Where it is None, the command finds one."""

    value: str | int | None
    shown: str


def quantity(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    with suppress(BadQuantity):
        if value is None or at_least(value, 1000) > 0:
            return value
    raise click.BadParameter(f"got {value!r}; allowed is a quantity above 0, such as 500m, 4 or 16Gi")


def files_flag(default: str = "") -> Callable[[F], F]:
    """-f, as `files`: paths; and --create-namespaces."""
    files = click.option(
        "-f",
        "--filename",
        "files",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="A file or folder of objects, in YAML or JSON, or - for the standard input;"
        f" may be given several times.{default}",
    )
    namespaces = click.option(
        "--create-namespaces", is_flag=True, help="Create namespaces that objects name and no file holds."
    )
    return lambda command: files(namespaces(command))


def node_flags(
    counts: click.IntRange, count: Default, cpu: Default, memory: Default, gpu: Default
) -> Callable[[F], F]:
    """--nodes, --node-cpu, --node-memory and --node-gpu."""
    flags = (
        ("--nodes", {"type": counts}, count, "How many nodes."),
        ("--node-cpu", {"callback": quantity}, cpu, "The cpu of a node."),
        ("--node-memory", {"callback": quantity}, memory, "Its memory."),
        ("--node-gpu", {"type": click.IntRange(0, 1024)}, gpu, f"Its devices of {GPU}."),
    )

    def decorate(command: F) -> F:
        for flag, checked, default, text in reversed(flags):
            shown = f"{text} [default: {default.shown}]"
            command = click.option(flag, default=default.value, help=shown, **checked)(command)
        return command

    return decorate
