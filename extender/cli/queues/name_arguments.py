"""Which queue a command is about: NAME as kubectl takes it, or --name as vcctl does."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from extender.cli.completion_names import complete_queue

F = TypeVar("F", bound=Callable[..., Any])


def one_name(command: F) -> F:
    """NAME or --name, as `name` and `named`."""
    command = click.argument("name", required=False, shell_complete=complete_queue)(command)
    return _vcctl_name(command)


def several_names(command: F) -> F:
    """NAME... or --name, as `names` and `named`."""
    argument = click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=complete_queue)
    return _vcctl_name(argument(command))


def _vcctl_name(command: F) -> F:
    return click.option("--name", "named", metavar="NAME", help="The same as NAME.")(command)


def the_name(name: str | None, named: str | None) -> str:
    """The one that was given. It may be given in both ways, but not two different ones."""
    (found,) = the_names((name,) if name else (), named)
    return found


def the_names(names: tuple[str, ...], named: str | None) -> tuple[str, ...]:
    if named and names and names != (named,):
        raise click.UsageError(f"--name: got {named!r} as well as NAME {names[0]!r}; allowed is one of them")
    found = names or ((named,) if named else ())
    if not all(found) or not found:
        raise click.UsageError("NAME: got nothing; allowed is the name of a queue")
    return found
