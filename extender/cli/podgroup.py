"""`muster podgroup`: lists and descriptions of groups. `muster hold` and `muster resume` change groups."""

import copy
from typing import TYPE_CHECKING, Any

import click

from extender.api.objects.queues import GROUP_PATCHES, Patch
from extender.cli import output as out
from extender.cli.access import NAME, Flags, access_flags, all_namespaces_flag, open_access
from extender.cli.completion import complete_group
from extender.cli.kinds import Target, config_option, parse_targets

if TYPE_CHECKING:
    from extender.cli.why.evidence import Evidence
    from extender.domain.explain.observed_objects import ObservedGroup

_TABLE_COLUMNS = ("NAMESPACE", "NAME", "QUEUE", "PHASE", "MIN", "POSITION", "REASON", "AGE")
_WIDE_COLUMNS = (*_TABLE_COLUMNS, "ESTIMATE", "RUNNING", "SUCCEEDED", "FAILED", "PODGROUP", "MESSAGE")
_GROUP_TITLE = "podgroup.scheduling.volcano.sh"
_target_argument = click.argument(
    "targets",
    callback=parse_targets,
    metavar="NAME|KIND/NAME...",
    nargs=-1,
    required=True,
    shell_complete=complete_group,
)


@click.group()
def podgroup() -> None:
    """Show groups of pods (alias: pg)."""


@podgroup.command("list")
@out.output_flag(out.LIST_FORMATS, "table")
@all_namespaces_flag
@access_flags
def list_groups(output: str, **flags: Any) -> None:
    """List the groups of a namespace, or of all.

    A group that Muster made is named after the owner of its pods; -o wide also shows its own name.
    """
    _show((), output, Flags(**flags))


@podgroup.command("get")
@click.argument("names", type=NAME, metavar="[NAME]...", nargs=-1, shell_complete=complete_group)
@out.output_flag(out.LIST_FORMATS, "table")
@all_namespaces_flag
@access_flags
def get_groups(names: tuple[str, ...], output: str, **flags: Any) -> None:
    """Show groups by name, or all of a namespace."""
    _show(names, output, Flags(**flags))


def _show(names: tuple[str, ...], output: str, flags: Flags) -> None:
    import msgspec

    from extender.cli.lookup import fetch_all
    from extender.cli.why.evidence import Evidence
    from extender.domain.explain.observed_objects import ObservedGroup
    from extender.kube.resources import POD_GROUPS

    if names and flags.all_namespaces:
        raise click.UsageError(f"set only one of -A and NAME, {names[0]!r}: a name is of one namespace")
    with open_access(flags) as access:
        groups = fetch_all(access.reader, POD_GROUPS, access.namespace, names)
        if output not in ("table", "wide"):
            out.show_objects(groups, output, is_single=len(names) == 1)
            return
        evidence = Evidence(access, access.namespace)
        rows = [_row(msgspec.convert(obj, ObservedGroup), evidence) for obj in groups]
        column_count = len(_TABLE_COLUMNS if output == "table" else _WIDE_COLUMNS)
        if lines := out.table("podgroups", access.namespace, _WIDE_COLUMNS, rows, column_count):
            out.echo("\n".join(lines))


def _row(group: "ObservedGroup", evidence: "Evidence") -> tuple[object, ...]:
    return (
        group.namespace,
        group.display_name,
        evidence.queue_of(group),
        group.status.phase or out.NOTHING,
        group.spec.min_member,
        group.waiting.position or out.NOTHING,
        group.reason or out.NOTHING,
        out.age(group.metadata.creation_timestamp),
        out.interval(group.waiting.estimate),
        group.status.running,
        group.status.succeeded,
        group.status.failed,
        group.name,
        group.message or out.NOTHING,
    )


@podgroup.command("describe")
@_target_argument
@access_flags
def describe_group(targets: list[Target], **flags: Any) -> None:
    """Describe groups: spec, members, events.

    NAME may be a group, or a pod or workload of it, as for `muster why`.
    """
    with open_access(Flags(**flags)) as access:
        from extender.cli.describe import group_description

        for number, target in enumerate(targets):
            out.echo(("\n\n" if number else "") + group_description(access, target))


pg = copy.copy(podgroup)
pg.name, pg.hidden = "pg", True


@click.command("hold")
@_target_argument
@out.dry_run_flag
@access_flags
def hold(targets: list[Target], **flags: Any) -> None:
    """Hold groups: they do not start.

    Running groups continue, without further members. NAME may be a group, or a pod or workload of it, as for
    `muster why`.
    """
    _change(targets, GROUP_PATCHES["hold"], "held", **flags)


@click.command("resume")
@_target_argument
@out.dry_run_flag
@access_flags
def resume(targets: list[Target], **flags: Any) -> None:
    """Resume groups that were held.

    Groups whose starts timed out too often (StartTimedOut) resume as well. NAME may be a group, or a pod or
    workload of it, as for `muster why`.
    """
    _change(targets, GROUP_PATCHES["resume"], "resumed", **flags)


def _change(targets: list[Target], patch: Patch, participle: str, dry_run: str, **flags: Any) -> None:
    """Change groups. With a dry run by the client, only check that the groups exist."""
    with open_access(Flags(**flags)) as access:
        from extender.cli.why.answers import find_group
        from extender.kube.resources import POD_GROUPS

        for target in targets:
            group = find_group(access, target)
            if dry_run != out.CLIENT:
                is_dry_run = dry_run == out.SERVER
                access.editor.patch(POD_GROUPS, access.namespace, group.name, patch, dry_run=is_dry_run)
            kind, _, name = group.display_name.rpartition("/")
            out.show_done(name, participle, dry_run, kind or _GROUP_TITLE)


for command in (hold, resume, describe_group):
    command.params.append(config_option())
