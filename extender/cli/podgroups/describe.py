"""`muster podgroup describe`."""

from typing import Any

import click

from extender.cli.access import Flags, access_flags, opened
from extender.cli.completion_names import complete_group
from extender.cli.output import echo


@click.command("describe")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=complete_group)
@access_flags
def describe_group(names: tuple[str, ...], **flags: Any) -> None:
    """Show all about groups: spec, verdict, queue, members, conditions, events."""
    with opened(Flags(**flags)) as place:
        from extender.cli.podgroups.description import description

        for number, name in enumerate(names):
            echo(("\n\n" if number else "") + description(place, name))
