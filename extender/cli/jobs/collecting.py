"""All jobs for which PodGroups stand; each kind is listed once, and only if a PodGroup names one of it."""

from collections import defaultdict
from collections.abc import Iterator

import click
import msgspec

from extender.api.workloads.shape import WorkloadRow
from extender.cli.access import ClusterAccess
from extender.cli.access_reviews import right_to
from extender.cli.lookup import fetched
from extender.cli.observed import ObservedGroup
from extender.cli.observed_jobs import Json, ObservedJob, observed_job, unread_job
from extender.cli.owner_kinds import job_row
from extender.kube.errors import Forbidden, NotFound
from extender.kube.resources import POD_GROUPS, Resource


def jobs_of(place: ClusterAccess) -> list[ObservedJob]:
    """Of the namespace, or of all, in the order of namespaces and names. What may not be read is said on
    stderr, and such a job is shown as far as its PodGroup tells."""
    units = [
        msgspec.convert(each, ObservedGroup)
        for each in fetched(place.reader, POD_GROUPS, place.namespace, ())
    ]
    by_kind: dict[tuple[str, str], list[ObservedGroup]] = defaultdict(list)
    for unit in units:
        if owner := unit.job:
            by_kind[owner.api_version, owner.kind].append(unit)
    rows = {kind: row for kind in by_kind if (row := job_row(*kind))}
    found = [job for kind, row in rows.items() for job in _of_kind(place, row, kind[0], by_kind[kind])]
    return sorted(found, key=lambda each: (each.meta.namespace, each.meta.name, each.row.kind))


def _of_kind(
    place: ClusterAccess, row: WorkloadRow, version: str, units: list[ObservedGroup]
) -> Iterator[ObservedJob]:
    """A PodGroup whose job is gone goes with it, and is left out."""
    objects = _listed(place, Resource(f"/apis/{version}", row.plural))
    for unit in units:
        owner = unit.job
        if objects is None:
            yield unread_job(row, unit)
        elif owner and (obj := objects.get(owner.uid)):
            yield observed_job(row, obj, unit)


def _listed(place: ClusterAccess, resource: Resource) -> dict[str, Json] | None:
    """By UID; None where they may not be read."""
    try:
        found = place.reader.list(resource, place.namespace, Json)
    except NotFound:
        return {}
    except Forbidden:
        needed = right_to("list", resource, place.namespace)
        click.echo(f"Of {resource.plural} only what their PodGroups say: you may not {needed}.", err=True)
        return None
    return {each["metadata"]["uid"]: each for each in found}
