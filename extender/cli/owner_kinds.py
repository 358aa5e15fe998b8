"""The kinds of objects that own pods, by all names that kubectl knows them by: those of the table of
workloads, and those whose pods only a cluster knows. JOB_KINDS are those that can wait as a whole, suspended.

Which version of them a cluster serves, it says itself: operators are of many releases.
"""

from typing import NamedTuple

from extender.api.objects import OwnerReference, Wire
from extender.api.workloads.shape import WorkloadRow
from extender.api.workloads.table import WORKLOADS


class OwnerKind(NamedTuple):
    """`name`: the kind, as owner references have it."""

    name: str
    group: str
    short: tuple[str, ...] = ()

    @property
    def plural(self) -> str:
        """All of these kinds form it so."""
        return f"{self.name.lower()}s"

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

# Each once, whatever its versions, if it is of an API group: a cluster lists the versions of those. `job/x`
# is the first of that name.
OWNER_KINDS = (
    *dict.fromkeys(OwnerKind(row.kind, row.group, row.short) for row in WORKLOADS.values() if row.group),
    *_OF_CLUSTERS,
)

JOB_KINDS = tuple(
    dict.fromkeys(OwnerKind(row.kind, row.group, row.short) for row in WORKLOADS.values() if row.manageable)
)


def job_row(api_version: str, kind: str) -> WorkloadRow | None:
    """What the table says of a kind of jobs, if need be of another version of it. None for what is no job."""
    group = api_version.rpartition("/")[0]
    alike = (row for row in WORKLOADS.values() if (row.group, row.kind) == (group, kind))
    row = WORKLOADS.get((api_version, kind)) or next(alike, None)
    return row if row and row.manageable else None


def owner_kind(name: str) -> OwnerKind | None:
    """None for a name that none of them has."""
    return next((each for each in OWNER_KINDS if each.is_called(name)), None)


def kind_of_owner(owner: OwnerReference) -> OwnerKind | None:
    return next((each for each in OWNER_KINDS if each.is_kind_of(owner)), None)
