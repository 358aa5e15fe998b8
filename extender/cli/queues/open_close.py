"""`muster queue open` and `close`: they set spec.state, and can wait until the queue has followed."""

from typing import Any

import click

from extender.cli.access import ClusterAccess, Flags, access_flags, opened
from extender.cli.dry_run import dry_run_flag, show_done
from extender.cli.queues.edit import updated
from extender.cli.queues.name_arguments import several_names, the_names
from extender.cli.queues.timeout import Timeout, timeout_flag

OPEN, CLOSED = "Open", "Closed"
_DONE = {OPEN: "opened", CLOSED: "closed"}
_REACHED = {OPEN: ("Open", ""), CLOSED: ("Closed",)}  # no state written yet counts as Open

wait_flag = click.option("--wait", is_flag=True, help="Wait until the queue's status shows it.")


@click.command("open")
@several_names
@wait_flag
@timeout_flag("0")
@dry_run_flag
@access_flags
def open_queues(names: tuple[str, ...], named: str | None, **rest: Any) -> None:
    """Let queues take new groups again."""
    change_states(the_names(names, named), OPEN, **rest)


@click.command("close")
@several_names
@wait_flag
@timeout_flag("0")
@dry_run_flag
@access_flags
def close_queues(names: tuple[str, ...], named: str | None, **rest: Any) -> None:
    """Let queues take no new groups. Those that are in them go on; until they have gone it is Closing."""
    change_states(the_names(names, named), CLOSED, **rest)


def change_states(
    names: tuple[str, ...], state: str, wait: bool, timeout: Timeout, dry_run: str, **flags: Any
) -> None:
    with opened(Flags(**flags)) as place:
        for name in names:
            updated(place, name, {"state": state}, dry_run)
            if not wait:
                show_done(name, _asked(place, name, state, dry_run), dry_run)
        for name in names if wait and dry_run == "none" else ():
            _wait(place, name, state, timeout)
            show_done(name, _DONE[state])


def _asked(place: ClusterAccess, name: str, state: str, dry_run: str) -> str:
    """`closing`, with what is left in it, until its status says Closed."""
    from extender.cli.lookup import fetch
    from extender.cli.observed import ObservedQueue
    from extender.cli.queues.waiting import in_it
    from extender.kube.resources import QUEUES

    if state == OPEN or dry_run != "none":
        return _DONE[state]
    queue = fetch(place.reader, QUEUES, "", name, ObservedQueue)
    if queue.status.state == CLOSED:
        return _DONE[state]
    return ", ".join(filter(None, ("closing", in_it(queue).partition(", ")[2])))


def _wait(place: ClusterAccess, name: str, state: str, timeout: Timeout) -> None:
    from extender.cli.queues.waiting import WatchedQueue

    WatchedQueue(place, name).wait(timeout, *_REACHED[state])
