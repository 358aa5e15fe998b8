"""`muster migrate`: what Muster has in the place of another project's objects, as YAML to read and apply."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from extender.cli.access import Flags, access_flags, opened
from extender.cli.output import Json, echo

_PLURALS = (
    *("clusterqueues", "cohorts", "resourceflavors", "localqueues", "workloadpriorityclasses"),
    *("admissionchecks", "provisioningrequestconfigs", "topologies"),
)


@click.group()
def migrate() -> None:
    """Print what Muster has in the place of another project's objects."""


@migrate.command()
@click.option(
    "-f", "--filename", "files", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
    help="A file or folder of YAML or JSON, or - for the standard input. [default: what is in the cluster]",
)  # fmt: skip
@access_flags
def kueue(files: tuple[Path, ...], **flags: Any) -> None:
    """Print the queues, LocalQueues and PriorityClasses that stand for Kueue's objects.

    What has no counterpart is a line of comment. Nothing is changed: kubectl apply -f - takes the output.
    """
    from yaml import safe_dump

    from extender.api.workloads.children import MALFORMED
    from extender.domain.queues.kueue import migrated
    from extender.sim.files.reading import documents

    faults: list[str] = []
    given = [document.object for path in files for document in documents(path, faults)]
    if faults:
        raise click.UsageError("\n".join(faults))
    try:
        found = list(migrated(given if files else _in_cluster(Flags(**flags))))
    except MALFORMED as fault:
        raise click.UsageError(f"an object of Kueue has a form that is not known: {fault!r}") from fault
    if not found:
        raise click.ClickException("no objects of Kueue in there that Muster has something for")
    for comments, obj in found:
        echo("---" if obj else "")
        for comment in comments:
            echo(f"# {comment}")
        if obj:
            echo(safe_dump(obj, sort_keys=False, allow_unicode=True, width=1000).rstrip())


def _in_cluster(flags: Flags) -> Iterator[Json]:
    """Of the newest version that is served."""
    from extender.kube.errors import NotFound
    from extender.kube.resources import KUEUE_LOCAL_QUEUES, Resource

    with opened(flags) as place:
        roots = [resource.root for resource in KUEUE_LOCAL_QUEUES]
        for plural in _PLURALS:
            for root in roots:
                try:
                    within = flags.namespace or "" if plural == "localqueues" else ""
                    yield from place.reader.list(Resource(root, plural), within, dict)
                except NotFound:
                    continue
                break
