"""Names of jobs as people give them: NAME, or KIND/NAME."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from extender.cli.completion_names import complete_job
from extender.cli.targets import Target

F = TypeVar("F", bound=Callable[..., Any])


def job_names(command: F) -> F:
    return click.argument(
        "targets",
        metavar="JOB...",
        nargs=-1,
        required=True,
        callback=_parsed,
        shell_complete=complete_job,
    )(command)


def _parsed(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> list[Target]:
    return [_target(value) for value in values]


def _target(value: str) -> Target:
    kind, slash, name = value.rpartition("/")
    if not name or "/" in kind or (slash and not kind):
        raise click.BadParameter(f"got {value!r}; allowed is NAME or KIND/NAME, such as job/train")
    return Target(_known(kind.lower(), value) if slash else "", name)


def _known(kind: str, value: str) -> str:
    from extender.cli.owner_kinds import FURTHER, job_kinds

    if any(each.is_called(kind) for each in job_kinds()):
        return kind
    allowed = ", ".join(dict.fromkeys(each.name.lower() for each in job_kinds()))
    raise click.BadParameter(f"got {value!r}; allowed before the / is {allowed}{FURTHER}")
