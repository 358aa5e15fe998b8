"""`muster queue describe`."""

from typing import Any

import click

from extender.cli.access import Flags, access_flags, opened
from extender.cli.output import echo
from extender.cli.queues.name_arguments import several_names, the_names


@click.command("describe")
@several_names
@access_flags
def describe_queue(names: tuple[str, ...], named: str | None, **flags: Any) -> None:
    """Show all about queues: spec, shares, groups and what blocks them, conditions, events."""
    found = the_names(names, named)
    with opened(Flags(**flags)) as place:
        from extender.cli.queues.description import description

        for number, name in enumerate(found):
            echo(("\n\n" if number else "") + description(place, name))
