"""`muster job describe`."""

from typing import TYPE_CHECKING, Any

import click

from extender.cli.access import Flags, access_flags, opened
from extender.cli.jobs.names import job_names
from extender.cli.output import echo

if TYPE_CHECKING:
    from extender.cli.targets import Target


@click.command("describe")
@job_names
@access_flags
def describe_job(targets: "list[Target]", **flags: Any) -> None:
    """Show all about jobs: queue, verdict, position, the pods that they make, events.

    JOB is NAME, or KIND/NAME, such as job/train or jobset/train.
    """
    with opened(Flags(**flags)) as place:
        from extender.cli.jobs.description import description

        for number, target in enumerate(targets):
            echo(("\n\n" if number else "") + description(place, target))
