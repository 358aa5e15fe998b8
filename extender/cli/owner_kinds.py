"""The kinds of objects that own pods, by all names that kubectl knows them by: those of the table of
workloads, and those whose pods only a cluster knows. Job kinds are those that can wait as a whole, suspended.
The kinds of the configuration file that a command was given are among them.

Which version of them a cluster serves, it says itself: operators are of many releases.
"""

from collections.abc import Sequence
from typing import NamedTuple

import click

from extender.api.objects.base import OwnerReference, Wire
from extender.api.workloads.shape import Kinds, WorkloadRow
from extender.api.workloads.table import WORKLOADS


class OwnerKind(NamedTuple):
    """`name`: the kind, as owner references have it."""

    name: str
    group: str
    short: tuple[str, ...] = ()
    named: str = ""  # its plural, where that is not formed as usual

    @property
    def plural(self) -> str:
        return self.named or f"{self.name.lower()}s"

    def is_called(self, name: str) -> bool:
        """`job`, `jobs`, `deploy`; or with its API group, as `kubectl get -o name` writes it: `job.batch`."""
        bare, _, group = name.lower().partition(".")
        return bare in (self.name.lower(), self.plural, *self.short) and group in ("", self.group)

    def is_kind_of(self, owner: OwnerReference) -> bool:
        return (owner.kind, owner.api_version.partition("/")[0]) == (self.name, self.group)


class ServedVersion(Wire, frozen=True):
    version: str = ""


class ServedGroup(Wire, frozen=True):
    name: str
    preferred_version: ServedVersion = ServedVersion()


class ServedGroups(Wire, frozen=True):
    """What the API server answers to /apis."""

    groups: list[ServedGroup] = []

    @property
    def versions(self) -> dict[str, str]:
        """The version of each API group that the cluster prefers."""
        return {each.name: each.preferred_version.version for each in self.groups}


_OF_CLUSTERS = (OwnerKind("DaemonSet", "apps", ("ds",)),)

FURTHER = ", or a kind of the configuration file that --config names"  # behind those that are allowed
_FURTHER = "extender.cli.owner_kinds.further"  # where a command keeps the kinds of its configuration file


def learn(rows: Sequence[WorkloadRow]) -> None:
    """Kinds that the command that runs knows besides."""
    click.get_current_context().meta[_FURTHER] = tuple(rows)


def table() -> Kinds:
    """All kinds that the command that runs knows."""
    context = click.get_current_context(silent=True)
    further: tuple[WorkloadRow, ...] = context.meta.get(_FURTHER, ()) if context else ()
    return {**WORKLOADS, **{row.key: row for row in further}}


def owner_kinds() -> tuple[OwnerKind, ...]:
    """Each once, whatever its versions, if it is of an API group: a cluster lists the versions of those.
    `job/x` is the first of that name."""
    return (*dict.fromkeys(_kind(row) for row in table().values() if row.group), *_OF_CLUSTERS)


def job_kinds() -> tuple[OwnerKind, ...]:
    return tuple(dict.fromkeys(_kind(row) for row in table().values() if row.manageable))


def _kind(row: WorkloadRow) -> OwnerKind:
    return OwnerKind(row.kind, row.group, row.short, row.named)


def job_row(api_version: str, kind: str) -> WorkloadRow | None:
    """What the table says of a kind of jobs, if need be of another version of it. None for what is no job."""
    known, group = table(), api_version.rpartition("/")[0]
    alike = (row for row in known.values() if (row.group, row.kind) == (group, kind))
    row = known.get((api_version, kind)) or next(alike, None)
    return row if row and row.manageable else None


def owner_kind(name: str) -> OwnerKind | None:
    """None for a name that none of them has."""
    return next((each for each in owner_kinds() if each.is_called(name)), None)


def kind_of_owner(owner: OwnerReference) -> OwnerKind | None:
    return next((each for each in owner_kinds() if each.is_kind_of(owner)), None)
