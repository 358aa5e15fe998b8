"""`muster job list`: the jobs for which PodGroups stand, and how each fares."""

from typing import TYPE_CHECKING, Any

import click

from extender.cli.access import ClusterAccess, Flags, access_flags, all_namespaces_flag, opened
from extender.cli.output import LISTS, Json, echo, output_flag, show_document
from extender.terminal.columns import columns

if TYPE_CHECKING:
    from extender.cli.explain.evidence import Evidence
    from extender.cli.observed_jobs import ObservedJob

_HEAD = ("NAME", "KIND", "QUEUE", "STATE", "POSITION", "PODS", "REASON", "AGE")
_WIDE = ("LET-GO", "TIMEOUTS", "PODGROUP", "MESSAGE")
_COLOURS = {"Waiting": "yellow", "Held": "yellow", "Suspended": "cyan", "Finished": "cyan"}


@click.command("list")
@output_flag(LISTS, "table")
@all_namespaces_flag
@access_flags
def list_jobs(output: str, **flags: Any) -> None:
    """List the jobs that wait, start, run or have ended, of all kinds that can wait as jobs.

    Those are listed for which there is a PodGroup; `muster why` says of another why there is none.
    """
    with opened(Flags(**flags)) as place:
        from extender.cli.explain.evidence import Evidence
        from extender.cli.jobs.collecting import jobs_of

        evidence = Evidence(place, place.namespace)
        found = jobs_of(place)
        if output == "name":
            echo("\n".join(each.qualified_name for each in found)) if found else None
        elif output in ("table", "wide"):
            _show_table(place, evidence, found, wide=output == "wide")
        else:
            show_document({"kind": "List", "items": [_document(each, evidence) for each in found]}, output)


def _show_table(place: ClusterAccess, evidence: "Evidence", found: "list[ObservedJob]", wide: bool) -> None:
    if not found:
        where = f" in namespace {place.namespace}" if place.namespace else ""
        click.echo(f"No jobs found{where}", err=True)
        return
    everywhere = not place.namespace
    head = (*(("NAMESPACE",) if everywhere else ()), *_HEAD, *(_WIDE if wide else ()))
    rows = [_row(each, evidence, wide)[not everywhere :] for each in found]
    top, *lines = columns(head, rows)
    states = [each.state for each in found]
    echo("\n".join([top, *(_coloured(line, state) for line, state in zip(lines, states, strict=True))]))


def _coloured(line: str, state: str) -> str:
    """Names are in small letters, so nothing before it reads like a state."""
    return line.replace(f" {state} ", f" {click.style(state, fg=_COLOURS.get(state, 'green'))} ", 1)


def _row(job: "ObservedJob", evidence: "Evidence", wide: bool) -> tuple[object, ...]:
    from extender.cli.formatting import NOTHING, age

    unit = job.unit
    more = (
        age(job.was_let_go),
        job.start_timeouts or 0,
        unit.name if unit else NOTHING,
        job.message or NOTHING,
    )
    return (
        job.meta.namespace,
        job.meta.name,
        job.row.kind,
        evidence.queue_of(unit) if unit else NOTHING,
        job.state,
        job.position or NOTHING,
        job.pods,
        _reason(job) or NOTHING,
        age((job.meta if job.obj or not unit else unit.metadata).creation_timestamp),
        *(more if wide else ()),
    )


def _reason(job: "ObservedJob") -> str:
    """Of one that waits, or whose further pods do: what its PodGroup last said of another is over."""
    return job.reason if job.state in ("Waiting", "Held", "Running", "Starting") else ""


def _document(job: "ObservedJob", evidence: "Evidence") -> Json:
    """`position`: null for one that is not in line. `letGo`: when Muster did, null if it has not."""
    unit = job.unit
    return {
        "apiVersion": job.row.api_version,
        "kind": job.row.kind,
        "namespace": job.meta.namespace,
        "name": job.meta.name,
        "queue": evidence.queue_of(unit) if unit else None,
        "state": str(job.state),
        "position": job.position or None,
        "pods": job.pods,
        "reason": _reason(job),
        "message": job.message,
        "letGo": job.was_let_go or None,
        "startTimeouts": int(job.start_timeouts) if job.start_timeouts.isdigit() else 0,
        "podGroup": unit.name if unit else None,
    }
