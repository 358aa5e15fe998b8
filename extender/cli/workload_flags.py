"""What `muster run` and `muster simulate` share: an exit status, and flags for files and nodes."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from extender.api.keys import GPU
from extender.api.quantities import BadQuantity, at_least

NEVER_STARTED = 3  # the exit status if something never started

F = TypeVar("F", bound=Callable[..., Any])


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
