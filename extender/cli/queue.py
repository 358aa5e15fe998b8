"""`muster queue`: the queues with their usage and shares, and changes of queues.

vcctl's long flags (--name, --weight, --state, --action) work, and so do kubectl's conventions.
"""

import copy
from typing import TYPE_CHECKING, Any

import click

from extender.api.keys import ROOT_QUEUE
from extender.api.objects.queues import CLOSED, OPEN, QUEUE_PATCHES, QueueStatus
from extender.cli import output as out
from extender.cli import queue_spec
from extender.cli.access import ClusterAccess, Flags, access_flags, open_access
from extender.cli.queue_spec import Timeout

if TYPE_CHECKING:
    from extender.domain.explain.observed_objects import ObservedQueue

_HEADS = ("NAME", "STATE", "WEIGHT", "SHARE", "TOTAL", "PENDING", "INQUEUE", "RUNNING", "AGE")
_AMOUNT_COLUMNS = ("ALLOCATED", "DESERVED", "CAPABILITY", "BORROWED", "RESERVED")
_COLUMNS = (*_HEADS, "PARENT", "UNKNOWN", "COMPLETED", "STRATEGY", *_AMOUNT_COLUMNS)

_PARTICIPLES = {OPEN: "opened", CLOSED: "closed"}
_FINAL_STATES = {OPEN: (OPEN, ""), CLOSED: (CLOSED,)}  # an empty state counts as Open
_STATE_BY_ACTION = {"open": OPEN, "close": CLOSED}
_ACTIONS = "open, close, update"
_wait_flag = click.option("--wait", is_flag=True, help="Wait until the status shows the change.")


@click.group()
def queue() -> None:
    """Show and change queues (alias: q)."""


@queue.command("list")
@out.output_flag(out.LIST_FORMATS, "table")
@access_flags
def list_queues(output: str, **flags: Any) -> None:
    """List all queues.

    Queues have no namespace; -n is accepted and changes nothing.
    """
    _show((), output, Flags(**flags))


@queue.command("get")
@queue_spec.several_names(is_required=False)
@out.output_flag(out.LIST_FORMATS, "table")
@access_flags
def get_queues(names: tuple[str, ...], output: str, **flags: Any) -> None:
    """Show queues by name, or all.

    Queues have no namespace; -n is accepted and changes nothing.
    """
    _show(names, output, Flags(**flags))


def _show(names: tuple[str, ...], output: str, flags: Flags) -> None:
    import msgspec

    from extender.cli.lookup import fetch_all
    from extender.domain.explain.observed_objects import ObservedQueue
    from extender.kube.resources import QUEUES

    with open_access(flags._replace(namespace="default")) as access:
        queues = fetch_all(access.reader, QUEUES, "", names)
    if output not in ("table", "wide"):
        out.show_objects(queues, output, is_single=len(names) == 1)
        return
    rows = [_row(msgspec.convert(obj, ObservedQueue)) for obj in queues]
    if lines := out.table("queues", "", _COLUMNS, rows, len(_HEADS if output == "table" else _COLUMNS)):
        out.echo("\n".join(lines))


def _row(queue: "ObservedQueue") -> tuple[object, ...]:
    spec, status, counts = queue.spec, queue.status, queue.counts
    return (
        queue.name,
        queue.state,
        spec.weight,
        out.percent(status.share),
        sum(counts.values()),
        *(counts[name] for name in ("pending", "inqueue", "running")),
        out.age(queue.metadata.creation_timestamp),
        spec.parent or out.NOTHING,
        counts["unknown"],
        counts["completed"],
        spec.dequeue_strategy or "traverse",
        *map(out.amounts, (status.allocated, status.deserved, spec.capability)),
        _borrowed_text(status),
        out.amounts(status.reservation.resource if status.reservation else None),
    )


def _borrowed_text(status: QueueStatus) -> str:
    """Return the borrowed amounts, also by flavor, such as `cpu 4; h100: nvidia.com/gpu 8`."""
    flavors = [f"{each.name}: {out.amounts(each.borrowed)}" for each in status.flavors or () if each.borrowed]
    return "; ".join([*([out.amounts(status.borrowed)] if status.borrowed else []), *flavors]) or out.NOTHING


@queue.command("describe")
@queue_spec.several_names()
@access_flags
def describe_queue(names: tuple[str, ...], **flags: Any) -> None:
    """Describe queues: spec, shares, groups, events."""
    with open_access(Flags(**flags)) as access:
        from extender.cli.describe import queue_description

        for number, name in enumerate(names):
            out.echo(("\n\n" if number else "") + queue_description(access, name))


@queue.command("open")
@queue_spec.several_names()
@_wait_flag
@queue_spec.timeout_flag
@out.dry_run_flag
@access_flags
def open_queues(names: tuple[str, ...], **flags: Any) -> None:
    """Open queues: they accept new groups."""
    _change_states(names, OPEN, **flags)


@queue.command("close")
@queue_spec.several_names()
@_wait_flag
@queue_spec.timeout_flag
@out.dry_run_flag
@access_flags
def close_queues(names: tuple[str, ...], **flags: Any) -> None:
    """Close queues: they accept no new groups.

    Groups in a queue continue; until they have ended, the queue is Closing.
    """
    _change_states(names, CLOSED, **flags)


def _change_states(
    names: tuple[str, ...], state: str, wait: bool, timeout: Timeout, dry_run: str, **flags: Any
) -> None:
    if state == CLOSED and ROOT_QUEUE in names:
        remedy = f"To close all queues: muster queue update {ROOT_QUEUE} --state {CLOSED}"
        raise click.ClickException(f"queue {ROOT_QUEUE} has all other queues below it\n{remedy}")
    with open_access(Flags(**flags)) as access:
        for name in names:
            queue_spec.update_spec(access, name, {"state": state}, dry_run)
            if not wait:
                out.show_done(name, _close_message(access, name, state, dry_run), dry_run)
        if not wait or dry_run != "none":
            return
        from extender.cli.queue_removal import WatchedQueue

        for name in names:
            WatchedQueue(access, name).wait(timeout, *_FINAL_STATES[state])
            out.show_done(name, _PARTICIPLES[state])


def _close_message(access: ClusterAccess, name: str, state: str, dry_run: str) -> str:
    """Return `closing` and the number of remaining groups, or `closed` if the queue is Closed already."""
    from extender.cli.lookup import fetch
    from extender.cli.queue_removal import contents_of
    from extender.domain.explain.observed_objects import ObservedQueue
    from extender.kube.resources import QUEUES

    if state == OPEN or dry_run != "none":
        return _PARTICIPLES[state]
    queue = fetch(access.reader, QUEUES, "", name, ObservedQueue)
    if queue.status.state == CLOSED:
        return _PARTICIPLES[state]
    return ", ".join(filter(None, ("closing", contents_of(queue).partition(", ")[2])))


@queue.command("hold")
@queue_spec.several_names()
@click.option("--drain", is_flag=True, help="Also evict running groups.")
@out.dry_run_flag
@access_flags
def hold_queues(names: tuple[str, ...], drain: bool, **flags: Any) -> None:
    """Hold queues: they admit no groups.

    They still accept new groups, which wait.
    """
    action, participle = ("drain", "draining") if drain else ("hold", "held")
    _patch_queues(names, action, participle, **flags)


@queue.command("resume")
@queue_spec.several_names()
@out.dry_run_flag
@access_flags
def resume_queues(names: tuple[str, ...], **flags: Any) -> None:
    """Resume queues: they admit groups again."""
    _patch_queues(names, "resume", "resumed", **flags)


def _patch_queues(names: tuple[str, ...], action: str, participle: str, dry_run: str, **flags: Any) -> None:
    with open_access(Flags(**flags)) as access:
        for name in names:
            queue_spec.update_spec(access, name, QUEUE_PATCHES[action]["spec"], dry_run)
            out.show_done(name, participle, dry_run)


@queue.command("operate", cls=queue_spec.SpecCommand)
@queue_spec.one_name
@click.option("-a", "--action", metavar="open|close|update", help="The change of the queue.")
@_wait_flag
@queue_spec.timeout_flag
@out.dry_run_flag
@access_flags
def operate_queue(
    name: str, action: str | None, wait: bool, timeout: Timeout, dry_run: str, **options: Any
) -> None:
    """Open, close or update a queue.

    --action update takes the flags of `muster queue update`.
    """
    spec = queue_spec.pop_spec(options)
    if not action:
        raise click.UsageError(f"--action: required value: one of {_ACTIONS}")
    if action in _STATE_BY_ACTION:
        _change_states((name,), _STATE_BY_ACTION[action], wait, timeout, dry_run, **options)
    elif action != "update":
        raise click.UsageError(f"--action: invalid value {action!r}: must be one of {_ACTIONS}")
    elif not spec:
        rule = "with --action update, a number from 1 to 65535"
        raise click.UsageError(f"--weight: required value: {rule}")
    else:
        with open_access(Flags(**options)) as access:
            queue_spec.update_spec(access, name, spec, dry_run)
        out.show_done(name, "updated", dry_run)


@queue.command("delete")
@queue_spec.several_names()
@click.option("--cascade", is_flag=True, help="Close the queue and delete its groups first.")
@click.option("--jobs", is_flag=True, help="With --cascade, delete the jobs of these groups as well.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until the queue is gone.")
@queue_spec.timeout_flag
@out.dry_run_flag
@access_flags
def delete_queue(
    names: tuple[str, ...],
    cascade: bool,
    jobs: bool,
    wait: bool,
    timeout: Timeout,
    dry_run: str,
    **flags: Any,
) -> None:
    """Delete closed queues.

    With --cascade each queue is closed, then its groups are deleted, then the queue.
    Pods are not deleted: the command waits for pods on nodes that name the queue themselves, and lists
    pending ones, whose owners you can delete. With --jobs, the jobs that own the groups are deleted, and
    their pods.
    """
    if jobs and not cascade:
        raise click.UsageError("--jobs: requires --cascade, as jobs go with their groups")
    with open_access(Flags(**flags)) as access:
        from extender.cli.queue_removal import Removal

        for name in names:
            Removal(access, name, timeout, dry_run, with_jobs=jobs).run(cascade=cascade, wait=wait)


for command in (queue_spec.create_queue, queue_spec.update_queue):
    queue.add_command(command)
queue.add_command(describe_queue, "view")

q = copy.copy(queue)
q.name, q.hidden = "q", True
