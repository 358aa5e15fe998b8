"""`muster job`: which jobs wait, start and run, all about one of them, and what keeps one back."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from extender.api.keys import HOLD, START_TIMEOUTS, STARTED
from extender.cli.access import ClusterAccess, Flags, access_flags, all_namespaces_flag, opened
from extender.cli.completion import complete_job
from extender.cli.flags import CLIENT, SERVER, dry_run_flag, show_done
from extender.cli.kinds import Target
from extender.cli.output import LISTS, Json, echo, output_flag, show_document
from extender.terminal.text import columns

if TYPE_CHECKING:
    from extender.cli.explain.evidence import Evidence
    from extender.cli.observed_jobs import Json as Json_of_observed_jobs
    from extender.cli.observed_jobs import ObservedJob

# ---- Names of jobs as people give them: NAME, or KIND/NAME.

F = TypeVar("F", bound=Callable[..., Any])


def job_names(command: F) -> F:
    return click.argument(
        "targets",
        metavar="JOB...",
        nargs=-1,
        required=True,
        callback=_parsed,
        shell_complete=complete_job,
    )(command)


def _parsed(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> list[Target]:
    return [_target(value) for value in values]


def _target(value: str) -> Target:
    kind, slash, name = value.rpartition("/")
    if not name or "/" in kind or (slash and not kind):
        raise click.BadParameter(f"got {value!r}; allowed is NAME or KIND/NAME, such as job/train")
    return Target(_known(kind.lower(), value) if slash else "", name)


def _known(kind: str, value: str) -> str:
    from extender.cli.kinds import FURTHER, job_kinds

    if any(row_kind.is_called(kind) for row_kind in job_kinds()):
        return kind
    allowed = ", ".join(dict.fromkeys(kind.name.lower() for kind in job_kinds()))
    raise click.BadParameter(f"got {value!r}; allowed before the / is {allowed}{FURTHER}")


# ---- `muster job list`: the jobs for which PodGroups stand, and how each fares.

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
        from extender.cli.observed_jobs import jobs_of

        evidence = Evidence(place, place.namespace)
        found = jobs_of(place)
        if output == "name":
            echo("\n".join(job.qualified_name for job in found)) if found else None
        elif output in ("table", "wide"):
            _show_table(place, evidence, found, wide=output == "wide")
        else:
            show_document({"kind": "List", "items": [_document(job, evidence) for job in found]}, output)


def _show_table(place: ClusterAccess, evidence: "Evidence", found: "list[ObservedJob]", wide: bool) -> None:
    if not found:
        where = f" in namespace {place.namespace}" if place.namespace else ""
        click.echo(f"No jobs found{where}", err=True)
        return
    everywhere = not place.namespace
    head = (*(("NAMESPACE",) if everywhere else ()), *_HEAD, *(_WIDE if wide else ()))
    rows = [_row(job, evidence, wide)[not everywhere :] for job in found]
    top, *lines = columns(head, rows)
    states = [job.state for job in found]
    echo("\n".join([top, *(_coloured(line, state) for line, state in zip(lines, states, strict=True))]))


def _coloured(line: str, state: str) -> str:
    """Names are in small letters, so nothing before it reads like a state."""
    return line.replace(f" {state} ", f" {click.style(state, fg=_COLOURS.get(state, 'green'))} ", 1)


def _row(job: "ObservedJob", evidence: "Evidence", wide: bool) -> tuple[object, ...]:
    from extender.cli.output import NOTHING, age

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


# ---- `muster job describe`.


@click.command("describe")
@job_names
@access_flags
def describe_job(targets: "list[Target]", **flags: Any) -> None:
    """Show all about jobs: queue, verdict, position, the pods that they make, events.

    JOB is NAME, or KIND/NAME, such as job/train or jobset/train.
    """
    with opened(Flags(**flags)) as place:
        from extender.cli.describe import job_description

        for number, target in enumerate(targets):
            echo(("\n\n" if number else "") + job_description(place, target))


# ---- `muster job hold`, `resume` and `stop`: what keeps a job from starting, and what ends its run for
# now.
#
# waits ──hold──► held ──resume──► waits by annotations of its PodGroup runs ──stop──► suspended
# ──resume──► waits by the job's own field for that, and our note on it


class Writing:
    """Writes of one command; with a dry run none, or none that the API server stores."""

    def __init__(self, place: ClusterAccess, dry_run: str) -> None:
        self._editor, self._dry_run = place.editor, dry_run

    def unit(self, job: "ObservedJob", **annotations: str | None) -> None:
        from extender.kube.resources import POD_GROUPS

        if job.unit and self._dry_run != CLIENT:
            meta = {"uid": job.unit.metadata.uid, "annotations": annotations}
            patch = {"metadata": meta}
            where = (job.unit.namespace, job.unit.name)
            self._editor.patch(POD_GROUPS, *where, patch, self._dry_run == SERVER)

    def job(self, job: "ObservedJob", patch: "Json_of_observed_jobs") -> None:
        """As it was read: what somebody else changes meanwhile is a conflict."""
        if self._dry_run != CLIENT:
            seen = {"uid": job.meta.uid, "resourceVersion": job.meta.resource_version}
            patch = {**patch, "metadata": {**patch.get("metadata", {}), **seen}}
            where = (job.meta.namespace, job.meta.name)
            self._editor.patch(job.resource, *where, patch, self._dry_run == SERVER)


@click.command("hold")
@job_names
@dry_run_flag
@access_flags
def hold_job(targets: "list[Target]", **rest: Any) -> None:
    """Keep jobs back that wait: they do not start, and hold up no others.

    JOB is NAME, or KIND/NAME, such as job/train or jobset/train.
    """
    _each(targets, _hold, "held", **rest)


@click.command("resume")
@job_names
@dry_run_flag
@access_flags
def resume_job(targets: "list[Target]", **rest: Any) -> None:
    """Let jobs start again that were held, stopped, or given up because they came too late.

    A job that was stopped goes back to its place in the queue. JOB is NAME, or KIND/NAME, such as job/train
    or jobset/train.
    """
    _each(targets, _resume, "resumed", **rest)


@click.command("stop")
@job_names
@dry_run_flag
@access_flags
def stop_job(targets: "list[Target]", **rest: Any) -> None:
    """Suspend jobs that Muster has started: their pods end, and they stay out until they are resumed.

    JOB is NAME, or KIND/NAME, such as job/train or jobset/train.
    """
    _each(targets, _stop, "stopped", **rest)


def _each(
    targets: "list[Target]",
    change: "Callable[[Writing, ObservedJob], None]",
    done: str,
    dry_run: str,
    **flags: Any,
) -> None:
    with opened(Flags(**flags)) as place:
        from extender.cli.explain.evidence import Evidence
        from extender.cli.observed_jobs import find_job

        writing, evidence = Writing(place, dry_run), Evidence(place, place.namespace)
        for target in targets:
            job = find_job(evidence, target)
            _check_goes_on(job, done)
            change(writing, job)
            kind, _, name = job.qualified_name.partition("/")
            show_done(name, done, dry_run, kind)


def _check_goes_on(job: "ObservedJob", done: str) -> None:
    from extender.cli.observed_jobs import JobState

    if job.state is JobState.FINISHED:
        raise click.ClickException(f"{job.spoken_name} has ended; it cannot be {done}")


def _hold(writing: Writing, job: "ObservedJob") -> None:
    if not job.unit:
        raise _unmanaged(job)
    if not job.is_suspended:
        raise click.ClickException(
            f"{job.spoken_name} does not wait any more; muster job stop {job.spoken_name} suspends it"
        )
    writing.unit(job, **{HOLD: "true"})


def _resume(writing: Writing, job: "ObservedJob") -> None:
    if not job.unit and not job.was_let_go:
        raise _unmanaged(job)
    writing.unit(job, **{HOLD: None, START_TIMEOUTS: None})
    if job.is_suspended and job.was_let_go:
        writing.job(job, {"metadata": {"annotations": {STARTED: None}}})


def _stop(writing: Writing, job: "ObservedJob") -> None:
    """The note that Muster has let it go stays: that is what tells a job that its user suspends from one that
    waits for its start."""
    if job.is_suspended and not job.was_let_go:
        raise click.ClickException(
            f"{job.spoken_name} does not run; muster job hold {job.spoken_name} keeps it from starting"
        )
    if not job.was_let_go:
        raise _unmanaged(job)
    if not job.is_suspended:
        writing.job(job, _suspending(job.row.suspend))


def _suspending(path: tuple[str, ...]) -> "Json_of_observed_jobs":
    patch: Any = True
    for name in reversed(path):
        patch = {name: patch}
    return dict(patch)


def _unmanaged(job: "ObservedJob") -> click.ClickException:
    return click.ClickException(
        f"{job.spoken_name} does not wait or run as a job of Muster's; muster why {job.spoken_name} says why"
    )
