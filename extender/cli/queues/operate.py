"""`muster queue operate --action open|close|update`: the same three under the name that vcctl gives them."""

from typing import Any

import click

from extender.cli.access import Flags, access_flags, opened
from extender.cli.dry_run import dry_run_flag, show_done
from extender.cli.queues.edit import updated
from extender.cli.queues.name_arguments import one_name, the_name
from extender.cli.queues.open_close import CLOSED, OPEN, change_states, wait_flag
from extender.cli.queues.spec_flags import spec_flags, taken
from extender.cli.queues.timeout import Timeout, timeout_flag

_STATES = {"open": OPEN, "close": CLOSED}
_ALLOWED = "open, close, update"


@click.command("operate")
@one_name
@click.option("-a", "--action", metavar="open|close|update", help="What to do with the queue.")
@spec_flags
@wait_flag
@timeout_flag("0")
@dry_run_flag
@access_flags
def operate_queue(name: str | None, named: str | None, action: str | None, **rest: Any) -> None:
    """Open, close or update a queue. With update, the flags of `muster queue update` say what changes."""
    name, spec = the_name(name, named), taken(rest)
    if not action:
        raise click.UsageError(f"--action: got nothing; allowed is one of {_ALLOWED}")
    if action in _STATES:
        change_states((name,), _STATES[action], **rest)
    elif action == "update":
        _update(name, spec, **rest)
    else:
        raise click.UsageError(f"--action: got {action!r}; allowed is one of {_ALLOWED}")


def _update(
    name: str, spec: dict[str, Any], wait: bool, timeout: Timeout, dry_run: str, **flags: Any
) -> None:
    if not spec:
        raise click.UsageError(
            "--weight: got nothing; allowed with --action update is a number from 1 to 65535"
        )
    with opened(Flags(**flags)) as place:
        updated(place, name, spec, dry_run)
    show_done(name, "updated", dry_run)
