"""`muster queue`: what queues there are, what each holds and deserves, and opening, stopping and deleting
them.
"""

from typing import TYPE_CHECKING, Any

import click

from extender.api.keys import STOP_DRAIN, STOP_HOLD, STOP_NONE
from extender.cli.access import ClusterAccess, Flags, access_flags, opened
from extender.cli.flags import Timeout, dry_run_flag, show_done, timeout_flag
from extender.cli.output import LISTS, Json, echo, output_flag, show_objects
from extender.cli.queue_spec import one_name, several_names, spec_flags, taken, the_name, the_names, updated
from extender.terminal.text import columns

if TYPE_CHECKING:
    from extender.cli.observed import ObservedQueue

# ---- `muster queue list` and `get`: what queues there are, and what each of them holds and deserves.

_HEAD = ("NAME", "STATE", "WEIGHT", "SHARE", "PENDING", "INQUEUE", "RUNNING", "AGE")
_WIDE = ("PARENT", "UNKNOWN", "COMPLETED", "STRATEGY", "ALLOCATED", "DESERVED", "CAPABILITY", "RESERVED")


@click.command("list")
@output_flag(LISTS, "table")
@access_flags
def list_queues(output: str, **flags: Any) -> None:
    """List all queues. They belong to no namespace; -n is accepted and changes nothing."""
    _show((), output, Flags(**flags))


@click.command("get")
@several_names
@output_flag(LISTS, "table")
@access_flags
def get_queues(names: tuple[str, ...], named: str | None, output: str, **flags: Any) -> None:
    """Show the queues of these names, or all. -n is accepted and changes nothing."""
    _show(the_names(names, named) if names or named is not None else (), output, Flags(**flags))


def _show(names: tuple[str, ...], output: str, flags: Flags) -> None:
    from extender.cli.lookup import fetched
    from extender.kube.resources import QUEUES

    with opened(flags._replace(namespace="default")) as place:
        found = fetched(place.reader, QUEUES, "", names)
    if output in ("table", "wide"):
        _show_table(found, wide=output == "wide")
    else:
        show_objects(found, output, single=len(names) == 1)


def _show_table(found: list[Json], wide: bool) -> None:
    import msgspec

    from extender.cli.observed import ObservedQueue

    if not found:
        click.echo("No queues found", err=True)
        return
    seen = [msgspec.convert(obj, ObservedQueue) for obj in found]
    head = _HEAD + (_WIDE if wide else ())
    echo("\n".join(columns(head, (_row(queue) + (_more(queue) if wide else ()) for queue in seen))))


def _row(queue: "ObservedQueue") -> tuple[object, ...]:
    from extender.cli.output import age, percent

    counts = queue.counts
    return (
        queue.name,
        queue.state,
        queue.spec.weight,
        percent(queue.status.share),
        *(counts[name] for name in ("pending", "inqueue", "running")),
        age(queue.metadata.creation_timestamp),
    )


def _more(queue: "ObservedQueue") -> tuple[object, ...]:
    from extender.cli.output import NOTHING, amounts

    spec, status, counts = queue.spec, queue.status, queue.counts
    reserved = status.reservation.resource if status.reservation else None
    held = map(amounts, (status.allocated, status.deserved, spec.capability, reserved))
    ended = (counts["unknown"], counts["completed"])
    return (spec.parent or NOTHING, *ended, spec.dequeue_strategy or "traverse", *held)


# ---- `muster queue describe`.


@click.command("describe")
@several_names
@access_flags
def describe_queue(names: tuple[str, ...], named: str | None, **flags: Any) -> None:
    """Show all about queues: spec, shares, groups and what blocks them, conditions, events."""
    found = the_names(names, named)
    with opened(Flags(**flags)) as place:
        from extender.cli.describe import queue_description

        for number, name in enumerate(found):
            echo(("\n\n" if number else "") + queue_description(place, name))


# ---- `muster queue open` and `close`: they set spec.state, and can wait until the queue has followed.

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
    from extender.cli.queue_removal import in_it
    from extender.kube.resources import QUEUES

    if state == OPEN or dry_run != "none":
        return _DONE[state]
    queue = fetch(place.reader, QUEUES, "", name, ObservedQueue)
    if queue.status.state == CLOSED:
        return _DONE[state]
    return ", ".join(filter(None, ("closing", in_it(queue).partition(", ")[2])))


def _wait(place: ClusterAccess, name: str, state: str, timeout: Timeout) -> None:
    from extender.cli.queue_removal import WatchedQueue

    WatchedQueue(place, name).wait(timeout, *_REACHED[state])


# ---- `muster queue hold` and `resume`: they set spec.stopPolicy.


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


# ---- `muster queue operate --action open|close|update`: the same three under the name that vcctl gives
# them.

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


# ---- `muster queue delete`: a queue that is Closed goes at once; with --cascade it is emptied first.


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
        from extender.cli.queue_removal import Removal

        for name in found:
            Removal(place, name, timeout, dry_run).run(cascade, wait)
