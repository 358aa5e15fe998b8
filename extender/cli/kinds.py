"""Arguments of the form NAME or KIND/NAME, and the kinds of objects that own pods, by kubectl's names."""

from pathlib import Path
from typing import NamedTuple

import click

from extender.api.configuration import InvalidConfiguration
from extender.api.objects.base import OwnerReference
from extender.api.workloads.shape import Kinds, WorkloadRow
from extender.api.workloads.table import WORKLOADS
from extender.cli.output import InvalidContent
from extender.cli.settings import CONFIG_VARIABLE, from_file

POD, POD_GROUP, QUEUE = "pod", "podgroup", "queue"
_OWN_KINDS = {
    **dict.fromkeys(("pod", "pods", "po"), POD),
    **dict.fromkeys(("podgroup", "podgroups", "pg"), POD_GROUP),
    **dict.fromkeys(("queue", "queues", "q"), QUEUE),
}


class OwnerKind(NamedTuple):
    """Kind of objects that own pods. `name` is the kind in owner references."""

    name: str
    group: str
    short_names: tuple[str, ...] = ()
    irregular_plural: str = ""

    @property
    def plural(self) -> str:
        return self.irregular_plural or f"{self.name.lower()}s"

    def has_name(self, name: str) -> bool:
        """Return whether a name means this kind: `job`, `jobs`, or `job.batch` as kubectl prints it."""
        bare, _, group = name.lower().partition(".")
        return bare in (self.name.lower(), self.plural, *self.short_names) and group in ("", self.group)


_DAEMON_SETS = (OwnerKind("DaemonSet", "apps", ("ds",)),)

FURTHER_KINDS_HINT = ", or a kind of the configuration file that --config names"  # suffix of a list of kinds
_FURTHER_KEY = "extender.cli.kinds.further"  # key of further kinds in the context of a command


def all_kinds() -> Kinds:
    """Return all kinds that the current command knows."""
    context = click.get_current_context(silent=True)
    further_rows: tuple[WorkloadRow, ...] = context.meta.get(_FURTHER_KEY, ()) if context else ()
    return {**WORKLOADS, **{row.key: row for row in further_rows}}


def owner_kinds() -> tuple[OwnerKind, ...]:
    """Return each kind of owners once, whatever its versions.

    If two API groups have a kind of the same name, `job/x` means the kind that comes first in the table.
    """
    return (*dict.fromkeys(_kind(row) for row in all_kinds().values() if row.group), *_DAEMON_SETS)


def job_kinds() -> tuple[OwnerKind, ...]:
    """Return the kinds of jobs that can wait suspended."""
    return tuple(dict.fromkeys(_kind(row) for row in all_kinds().values() if row.manageable))


def _kind(row: WorkloadRow) -> OwnerKind:
    return OwnerKind(row.kind, row.group, row.short_names, row.irregular_plural)


def job_row(api_version: str, kind: str, kinds: Kinds | None = None) -> WorkloadRow | None:
    """Return the row of a job kind, in this or else another version; None for kinds that are no jobs."""
    kinds, group = kinds or all_kinds(), api_version.rpartition("/")[0]
    other_versions = (row for row in kinds.values() if (row.group, row.kind) == (group, kind))
    row = kinds.get((api_version, kind)) or next(other_versions, None)
    return row if row and row.manageable else None


def job_of(controller: OwnerReference | None, kinds: Kinds | None = None) -> OwnerReference | None:
    """Return the owner of a group if it is a job, else None.

    `kinds` are all known kinds. Threads in which no command runs must pass them.
    """
    return controller if controller and job_row(controller.api_version, controller.kind, kinds) else None


def owner_kind(name: str) -> OwnerKind | None:
    """Return the kind of owners that a name means; None if the name is unknown."""
    return next((kind for kind in owner_kinds() if kind.has_name(name)), None)


def kind_of_owner(owner: OwnerReference) -> OwnerKind | None:
    name_and_group = (owner.kind, owner.api_version.partition("/")[0])
    return next((kind for kind in owner_kinds() if (kind.name, kind.group) == name_and_group), None)


class Target(NamedTuple):
    """Object that an argument names.

    `kind` is pod, podgroup, queue or a workload's kind; empty for a bare name.
    """

    kind: str
    name: str


def parse_target(_context: click.Context, _parameter: click.Parameter, value: str) -> Target:
    kind, slash, name = value.partition("/") if "/" in value else ("", "", value)
    own_name = own_kind(kind.lower())
    if slash and not own_name and not owner_kind(kind.lower()):
        owner_names = ", ".join(dict.fromkeys(kind.name.lower() for kind in owner_kinds()))
        rule = f"pod, podgroup, queue, {owner_names}{FURTHER_KINDS_HINT}"
        raise click.BadParameter(f"{value!r}: before the / must be {rule}")
    if not name or "/" in name:
        raise click.BadParameter(f"{value!r}: must be NAME or KIND/NAME, such as podgroup/train")
    return Target(own_name or kind.lower(), name)


def parse_targets(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> list[Target]:
    return [parse_target(context, option, value) for value in values]


def own_kind(name: str) -> str:
    """Return `pod`, `podgroup` or `queue` for a name of one of these kinds; empty for other names."""
    return _OWN_KINDS.get(name.removesuffix(".scheduling.volcano.sh"), "")


def config_option() -> click.Option:
    """Return the option --config. It is read before the arguments, which may name kinds of the file."""
    return click.Option(
        ["--config"],
        type=click.Path(path_type=Path),
        envvar=CONFIG_VARIABLE,
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=_read_config,
        help=f"Muster's configuration file, for the kinds of jobs that it describes. [${CONFIG_VARIABLE}]",
    )


def _read_config(context: click.Context, _parameter: click.Parameter, path: Path | None) -> None:
    if path is None:
        return
    from extender.api.workloads.further_kinds import further_kinds

    try:
        setting = from_file(path).get("job_kinds")
    except InvalidConfiguration as fault:
        raise InvalidContent(str(fault)) from fault
    kinds, faults = further_kinds(setting.value, setting.where) if setting else ((), [])
    if faults:
        raise InvalidContent("\n".join(faults))
    context.meta[_FURTHER_KEY] = tuple(kind.row for kind in kinds)
