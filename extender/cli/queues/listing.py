"""`muster queue list` and `get`: what queues there are, and what each of them holds and deserves."""

from typing import TYPE_CHECKING, Any

import click

from extender.cli.access import Flags, access_flags, opened
from extender.cli.output import LISTS, Json, echo, output_flag, show_objects
from extender.cli.queues.name_arguments import several_names, the_names
from extender.terminal.columns import columns

if TYPE_CHECKING:
    from extender.cli.observed import ObservedQueue

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
    seen = [msgspec.convert(each, ObservedQueue) for each in found]
    head = _HEAD + (_WIDE if wide else ())
    echo("\n".join(columns(head, (_row(each) + (_more(each) if wide else ()) for each in seen))))


def _row(queue: "ObservedQueue") -> tuple[object, ...]:
    from extender.cli.formatting import age, percent

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
    from extender.cli.formatting import NOTHING, amounts

    spec, status, counts = queue.spec, queue.status, queue.counts
    reserved = status.reservation.resource if status.reservation else None
    held = map(amounts, (status.allocated, status.deserved, spec.capability, reserved))
    ended = (counts["unknown"], counts["completed"])
    return (spec.parent or NOTHING, *ended, spec.dequeue_strategy or "traverse", *held)
