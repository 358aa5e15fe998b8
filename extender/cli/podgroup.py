"""`muster podgroup`: what groups there are, and which wait; `muster hold` and `resume` keep them back."""

from typing import TYPE_CHECKING, Any

import click

from extender.api.keys import HOLD, START_TIMEOUTS
from extender.cli.access import ClusterAccess, Flags, access_flags, all_namespaces_flag, opened
from extender.cli.completion import complete_group
from extender.cli.flags import CLIENT, SERVER, dry_run_flag, show_done
from extender.cli.output import LISTS, Json, echo, output_flag, show_objects
from extender.terminal.text import columns

if TYPE_CHECKING:
    from extender.cli.explain.evidence import Evidence
    from extender.cli.observed import ObservedGroup

# ---- `muster podgroup list` and `get`: what groups there are, which of them wait, and for which
# reason.

_HEAD = ("NAME", "QUEUE", "PHASE", "MIN", "REASON", "AGE")
_WIDE = ("RUNNING", "SUCCEEDED", "FAILED", "MESSAGE")


@click.command("list")
@output_flag(LISTS, "table")
@all_namespaces_flag
@access_flags
def list_groups(output: str, **flags: Any) -> None:
    """List the groups of a namespace, or of all."""
    _show((), output, Flags(**flags))


@click.command("get")
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=complete_group)
@output_flag(LISTS, "table")
@all_namespaces_flag
@access_flags
def get_groups(names: tuple[str, ...], output: str, **flags: Any) -> None:
    """Show the groups of these names, or all of a namespace."""
    _show(names, output, Flags(**flags))


def _show(names: tuple[str, ...], output: str, flags: Flags) -> None:
    from extender.cli.lookup import fetched
    from extender.kube.resources import POD_GROUPS

    if names and flags.all_namespaces:
        raise click.UsageError(f"-A: got NAME {names[0]!r} as well; a name is looked for in one namespace")
    with opened(flags) as place:
        found = fetched(place.reader, POD_GROUPS, place.namespace, names)
        if output in ("table", "wide"):
            _show_table(place, found, wide=output == "wide")
        else:
            show_objects(found, output, single=len(names) == 1)


def _show_table(place: ClusterAccess, found: list[Json], wide: bool) -> None:
    import msgspec

    from extender.cli.explain.evidence import Evidence
    from extender.cli.observed import ObservedGroup

    if not found:
        where = f" in namespace {place.namespace}" if place.namespace else ""
        click.echo(f"No podgroups found{where}", err=True)
        return
    evidence = Evidence(place, place.namespace)
    head = (*(() if place.namespace else ("NAMESPACE",)), *_HEAD, *(_WIDE if wide else ()))
    seen = (msgspec.convert(obj, ObservedGroup) for obj in found)
    rows = [_row(group, evidence, wide)[bool(place.namespace) :] for group in seen]
    echo("\n".join(columns(head, rows)))


def _row(group: "ObservedGroup", evidence: "Evidence", wide: bool) -> tuple[object, ...]:
    from extender.cli.output import NOTHING, age
    from extender.domain.model.reasons import NOT_WAITING

    scheduled, status = group.scheduled, group.status
    reason = scheduled.reason if scheduled and scheduled.reason not in NOT_WAITING else ""
    message = scheduled.message if scheduled else ""
    more = (status.running, status.succeeded, status.failed, message or NOTHING) if wide else ()
    return (
        group.namespace,
        group.name,
        evidence.queue_of(group),
        status.phase or NOTHING,
        group.spec.min_member,
        reason or NOTHING,
        age(group.metadata.creation_timestamp),
        *more,
    )


# ---- `muster podgroup describe`.


@click.command("describe")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=complete_group)
@access_flags
def describe_group(names: tuple[str, ...], **flags: Any) -> None:
    """Show all about groups: spec, verdict, queue, members, conditions, events."""
    with opened(Flags(**flags)) as place:
        from extender.cli.describe import group_description

        for number, name in enumerate(names):
            echo(("\n\n" if number else "") + group_description(place, name))


# ---- `muster hold` and `resume`: they keep groups back, by the annotation kube-muster.io/hold.

_GROUP = "podgroup.scheduling.volcano.sh"
_names = click.argument("names", metavar="GROUP...", nargs=-1, required=True, shell_complete=complete_group)


@click.command("hold")
@_names
@dry_run_flag
@access_flags
def hold(names: tuple[str, ...], **rest: Any) -> None:
    """Keep groups back: they do not start. Those that run go on, and no further members join them."""
    _annotate(names, {HOLD: "true"}, "held", **rest)


@click.command("resume")
@_names
@dry_run_flag
@access_flags
def resume(names: tuple[str, ...], **rest: Any) -> None:
    """Let groups start that were held, or that came too late too often (StartTimedOut)."""
    _annotate(names, {HOLD: None, START_TIMEOUTS: None}, "resumed", **rest)


def _annotate(
    names: tuple[str, ...], annotations: dict[str, str | None], done: str, dry_run: str, **flags: Any
) -> None:
    with opened(Flags(**flags)) as place:
        for name in names:
            _write(place, name, annotations, dry_run)
            show_done(name, done, dry_run, _GROUP)


def _write(place: ClusterAccess, name: str, annotations: dict[str, str | None], dry_run: str) -> None:
    """With a dry run by the client, only whether there is such a group."""
    from extender.cli.lookup import fetch
    from extender.kube.resources import POD_GROUPS

    if dry_run == CLIENT:
        fetch(place.reader, POD_GROUPS, place.namespace, name, dict)
        return
    patch = {"metadata": {"annotations": annotations}}
    place.editor.patch(POD_GROUPS, place.namespace, name, patch, dry_run == SERVER)
