"""`muster queue delete`: a queue that is Closed goes at once; with --cascade it is emptied first."""

from typing import Any

import click

from extender.cli.access import Flags, access_flags, opened
from extender.cli.dry_run import dry_run_flag
from extender.cli.queues.name_arguments import several_names, the_names
from extender.cli.queues.timeout import Timeout, timeout_flag


@click.command("delete")
@several_names
@click.option("--cascade", is_flag=True, help="Close the queue and delete its groups first.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until the queue is gone.")
@timeout_flag("0")
@dry_run_flag
@access_flags
def delete_queue(
    names: tuple[str, ...],
    named: str | None,
    cascade: bool,
    wait: bool,
    timeout: Timeout,
    dry_run: str,
    **flags: Any,
) -> None:
    """Delete queues that are Closed.

    With --cascade each is closed first, its groups are deleted, and it goes when the last of them has gone.
    Pods are left alone: those on nodes that name the queue themselves are waited for, those that wait go on
    to wait, and are listed. End what owns them.
    """
    found = the_names(names, named)
    with opened(Flags(**flags)) as place:
        from extender.cli.queues.removal import Removal

        for name in found:
            Removal(place, name, timeout, dry_run).run(cascade, wait)
