"""`muster queue hold` and `resume`: they set spec.stopPolicy."""

from typing import Any

import click

from extender.api.keys import STOP_DRAIN, STOP_HOLD, STOP_NONE
from extender.cli.access import Flags, access_flags, opened
from extender.cli.dry_run import dry_run_flag, show_done
from extender.cli.queues.edit import updated
from extender.cli.queues.name_arguments import several_names, the_names


@click.command("hold")
@several_names
@click.option("--drain", is_flag=True, help="What runs in it gives its room back as well.")
@dry_run_flag
@access_flags
def hold_queues(names: tuple[str, ...], named: str | None, drain: bool, **rest: Any) -> None:
    """Let queues admit nothing new. They still take groups, which wait."""
    policy, done = (STOP_DRAIN, "draining") if drain else (STOP_HOLD, "held")
    _stop(the_names(names, named), policy, done, **rest)


@click.command("resume")
@several_names
@dry_run_flag
@access_flags
def resume_queues(names: tuple[str, ...], named: str | None, **rest: Any) -> None:
    """Let queues admit groups again."""
    _stop(the_names(names, named), STOP_NONE, "resumed", **rest)


def _stop(names: tuple[str, ...], policy: str, done: str, dry_run: str, **flags: Any) -> None:
    with opened(Flags(**flags)) as place:
        for name in names:
            updated(place, name, {"stopPolicy": policy}, dry_run)
            show_done(name, done, dry_run)
