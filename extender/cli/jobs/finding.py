"""The job that a name leads to: of the kind that was named, or among all kinds."""

from collections.abc import Iterator

import click

from extender.cli.access_reviews import right_to
from extender.cli.explain.evidence import Evidence
from extender.cli.explain.job_objects import job_of_kind
from extender.cli.explain.owner_objects import OwnerObjects
from extender.cli.lookup import ListedObject
from extender.cli.observed_jobs import ObservedJob
from extender.cli.owner_kinds import OwnerKind, job_kinds
from extender.cli.targets import Target
from extender.terminal.near_misses import did_you_mean, near_misses


def find_job(evidence: Evidence, target: Target) -> ObservedJob:
    """One that there is not, or several of the name, end the command."""
    objects = OwnerObjects(evidence)
    kinds = [each for each in job_kinds() if not target.kind or each.is_called(target.kind)]
    found = [job for kind in kinds if (job := job_of_kind(evidence, objects, kind, target.name))]
    if len(found) > 1:
        several = " and ".join(each.spoken_name for each in found)
        raise click.UsageError(f"got {target.name!r}, which may be {several}: name one of them")
    if not found:
        raise _absent(evidence, objects, kinds, target)
    return found[0]


# ---- what there is not


def _absent(
    evidence: Evidence, objects: OwnerObjects, kinds: list[OwnerKind], target: Target
) -> click.ClickException:
    namespace, served = evidence.namespace, [each for each in kinds if objects.resource_of(each)]
    if target.kind and not served:
        return click.ClickException(f"the cluster knows no {kinds[0].plural}.{kinds[0].group}")
    what = f"{target.kind} {target.name!r}" if target.kind else f"a job {target.name!r} of any kind"
    absent = f"{what} not found in namespace {namespace}"
    if evidence.unread:
        rights = (objects.resource_of(each) for each in served if each.plural in evidence.unread)
        asked = (str(right_to("get", each, namespace, target.name)) for each in rights if each)
        return click.ClickException(f"not allowed: to look for it takes the right to {', '.join(asked)}")
    there = sorted(_names(objects, served))
    alike = near_misses(target.name, (each.partition("/")[2] for each in there))
    meant = did_you_mean([each for each in there if each.partition("/")[2] in alike])
    return click.ClickException(f"{absent}; {meant}" if meant else absent)


def _names(objects: OwnerObjects, kinds: list[OwnerKind]) -> Iterator[str]:
    for kind in kinds:
        for each in objects.all(kind, ListedObject):
            yield f"{kind.name.lower()}/{each.metadata.name}"
