"""`muster job`: which jobs wait, start and run, all about one of them, and what keeps one back.

waits ──hold──► held ──resume──► waits           by annotations of its PodGroup
runs ──stop──► suspended ──resume──► waits       by the job's own field for that, and our note on it, or by
                                                 a Command, as vcctl does
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from extender.api.keys import HOLD, START_TIMEOUTS, STARTED
from extender.api.objects.base import OwnerReference
from extender.api.objects.queues import ABORT, RESUME, new_command
from extender.cli import output as out
from extender.cli.access import ClusterAccess, Flags, access_flags, all_namespaces_flag, opened
from extender.cli.completion import complete_job
from extender.cli.job_run import run_job
from extender.cli.kinds import FURTHER, Target, config_option, job_kinds
from extender.cli.output import Json
from extender.terminal.text import columns

if TYPE_CHECKING:
    from extender.cli.observed_jobs import ObservedJob
    from extender.cli.why.evidence import Evidence


F = TypeVar("F", bound=Callable[..., Any])

_HEAD = ("NAME", "KIND", "QUEUE", "STATE", "POSITION", "PODS", "REASON", "AGE")
_WIDE = ("ESTIMATE", "LET-GO", "TIMEOUTS", "PODGROUP", "MESSAGE")
_COLOURS = {"Waiting": "yellow", "Held": "yellow", "Suspended": "cyan", "Ended": "cyan"}


@click.group()
def job() -> None:
    """Show jobs that wait as jobs, and keep them back."""


def _target(value: str) -> Target:
    kind, slash, name = value.rpartition("/")
    if not name or "/" in kind or (slash and not kind):
        raise click.BadParameter(f"got {value!r}; allowed is NAME or KIND/NAME, such as job/train")
    if slash and not any(known.is_called(kind.lower()) for known in job_kinds()):
        allowed = ", ".join(dict.fromkeys(known.name.lower() for known in job_kinds()))
        raise click.BadParameter(f"got {value!r}; allowed before the / is {allowed}{FURTHER}")
    return Target(kind.lower(), name)


def _targets(context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> list[Target]:
    named = context.params.pop("named", None)
    if not (found := values + ((named,) if named else ())):
        raise click.UsageError("JOB: got nothing; allowed is NAME or KIND/NAME, such as job/train")
    return list(map(_target, found))


def job_names(command: F) -> F:
    """JOB... or vcctl's --name, as `targets`."""
    argument = click.argument(
        "targets", metavar="[JOB]...", nargs=-1, callback=_targets, shell_complete=complete_job
    )
    named = click.option("--name", "named", metavar="NAME", is_eager=True, help="The same as JOB.")
    return named(argument(command))


@job.command("list")
@out.output_flag(out.LISTS, "table")
@all_namespaces_flag
@access_flags
def list_jobs(output: str, **flags: Any) -> None:
    """List the jobs that wait, start, run or have ended, of all kinds that can wait as jobs.

    Those are listed for which there is a PodGroup, and those whose queue takes nothing in; `muster why` says
    of another why there is none.
    """
    with opened(Flags(**flags)) as place:
        from extender.cli.observed_jobs import jobs_of
        from extender.cli.why.evidence import Evidence

        evidence = Evidence(place, place.namespace)
        found = jobs_of(place, evidence)
        if output == "name":
            out.echo("\n".join(job.qualified_name for job in found)) if found else None
        elif output in ("table", "wide"):
            wide, everywhere = output == "wide", not place.namespace
            if not found:
                where = "" if everywhere else f" in namespace {place.namespace}"
                click.echo(f"No jobs found{where}", err=True)
                return
            head = (*(("NAMESPACE",) if everywhere else ()), *_HEAD, *(_WIDE if wide else ()))
            lines = columns(head, (_row(job, evidence, wide)[not everywhere :] for job in found))
            for number, job in enumerate(found, 1):
                # Names are in small letters, so nothing before the state reads like one.
                coloured = click.style(job.state, fg=_COLOURS.get(job.state, "green"))
                lines[number] = lines[number].replace(f" {job.state} ", f" {coloured} ", 1)
            out.echo("\n".join(lines))
        else:
            out.show_document({"kind": "List", "items": [_document(job, evidence) for job in found]}, output)


def _row(job: "ObservedJob", evidence: "Evidence", wide: bool) -> tuple[object, ...]:
    unit, meta = job.unit, job.meta
    row = (
        meta.namespace,
        meta.name,
        job.row.kind,
        _queue(job, evidence) or out.NOTHING,
        job.state,
        job.position or out.NOTHING,
        job.pods,
        _reason(job) or out.NOTHING,
        out.age((meta if job.obj or not unit else unit.metadata).creation_timestamp),
    )
    more = (
        out.interval(unit.waiting.estimate if unit else None),
        out.age(job.was_let_go),
        job.start_timeouts or 0,
        unit.name if unit else out.NOTHING,
        _message(job, evidence) or out.NOTHING,
    )
    return row + more if wide else row


def _queue(job: "ObservedJob", evidence: "Evidence") -> str:
    return evidence.queue_of(job.unit) if job.unit else job.refusal.queue if job.refusal else ""


def _message(job: "ObservedJob", evidence: "Evidence") -> str:
    if job.message:
        return job.message
    unheeded = evidence.unheeded(job.meta, job.spoken_name, _queue(job, evidence))
    return unheeded.text if unheeded else ""


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
        "queue": _queue(job, evidence) or None,
        "state": str(job.state),
        "position": job.position or None,
        "pods": job.pods,
        "reason": _reason(job),
        "message": _message(job, evidence),
        "letGo": job.was_let_go or None,
        "startTimeouts": int(job.start_timeouts) if job.start_timeouts.isdigit() else 0,
        "podGroup": unit.name if unit else None,
    }


@job.command("describe")
@job_names
@access_flags
def describe_job(targets: list[Target], **flags: Any) -> None:
    """Show all about jobs: queue, verdict, position, the pods that they make, events.

    JOB is NAME, or KIND/NAME, such as job/train or jobset/train.
    """
    with opened(Flags(**flags)) as place:
        from extender.cli.describe import job_description

        for number, target in enumerate(targets):
            out.echo(("\n\n" if number else "") + job_description(place, target))


@job.command("hold")
@job_names
@out.dry_run_flag
@access_flags
def hold_job(targets: list[Target], **rest: Any) -> None:
    """Keep jobs back that wait: they do not start, and hold up no others.

    JOB is NAME, or KIND/NAME, such as job/train or jobset/train.
    """
    _change(targets, _hold, "held", **rest)


@job.command("resume")
@job_names
@out.dry_run_flag
@access_flags
def resume_job(targets: list[Target], **rest: Any) -> None:
    """Let jobs start again that were held, stopped, or given up because they came too late.

    A job that was stopped goes back to its place in the queue. JOB is NAME, or KIND/NAME, such as job/train
    or jobset/train.
    """
    _change(targets, _resume, "resumed", **rest)


@job.command("stop")
@job_names
@out.dry_run_flag
@access_flags
def stop_job(targets: list[Target], **rest: Any) -> None:
    """Suspend jobs that Muster has started: their pods end, and they stay out until they are resumed.

    JOB is NAME, or KIND/NAME, such as job/train or jobset/train.
    """
    _change(targets, _stop, "stopped", **rest)


class JobChange(NamedTuple):
    """`unit`: annotations of its PodGroup, if it has one; `job`: a patch of itself; `command`: an action, to
    be asked for by a Command."""

    unit: dict[str, str | None] = {}
    job: Json = {}
    command: str = ""


def _change(
    targets: list[Target], change: "Callable[[ObservedJob], JobChange]", done: str, dry_run: str, **flags: Any
) -> None:
    with opened(Flags(**flags)) as place:
        from extender.cli.observed_jobs import find_job
        from extender.cli.why.evidence import Evidence
        from extender.domain.model.reasons import Verdict

        evidence = Evidence(place, place.namespace)
        for target in targets:
            job = find_job(evidence, target)
            if job.state == Verdict.ENDED:
                raise click.ClickException(f"{job.spoken_name} has ended; it cannot be {done}")
            wanted = change(job)
            if dry_run != out.CLIENT:
                _write(place, job, wanted, dry_run == out.SERVER)
            out.show_done(job.meta.name, done, dry_run, job.row.qualified)


def _write(place: ClusterAccess, job: "ObservedJob", change: JobChange, dry: bool) -> None:
    """The job as it was read: what somebody else changes meanwhile is a conflict."""
    from extender.kube.resources import COMMANDS, POD_GROUPS

    if change.unit and (unit := job.unit):
        patch = {"metadata": {"uid": unit.metadata.uid, "annotations": change.unit}}
        place.editor.patch(POD_GROUPS, unit.namespace, unit.name, patch, dry)
    if change.job:
        seen = {"uid": job.meta.uid, "resourceVersion": job.meta.resource_version}
        patch = {**change.job, "metadata": {**change.job.get("metadata", {}), **seen}}
        place.editor.patch(job.resource, job.meta.namespace, job.meta.name, patch, dry)
    if change.command:
        owner = OwnerReference(*job.row.key, job.meta.name, job.meta.uid, controller=True)
        place.editor.create(COMMANDS, job.meta.namespace, new_command(owner, change.command), dry)


def _hold(job: "ObservedJob") -> JobChange:
    if not job.unit:
        raise _unmanaged(job)
    if not job.is_suspended:
        stop = f"muster job stop {job.spoken_name} suspends it"
        raise click.ClickException(f"{job.spoken_name} does not wait any more; {stop}")
    return JobChange({HOLD: "true"})


def _resume(job: "ObservedJob") -> JobChange:
    if not job.unit and not job.was_let_go and not job.is_stopped:
        raise _unmanaged(job)
    unit: dict[str, str | None] = {HOLD: None, START_TIMEOUTS: None}
    if not job.is_stopped:
        return JobChange(unit)
    note = "" if job.row.commanded else None  # an empty one tells a job that waits from one of Volcano's
    waits_again = {"metadata": {"annotations": {STARTED: note}}} if job.was_let_go else {}
    return JobChange(unit, waits_again, RESUME if job.row.commanded else "")


def _stop(job: "ObservedJob") -> JobChange:
    """Our note stays: it tells a job that its user suspends from one that waits for its start."""
    if job.is_suspended and not job.is_stopped:
        hold = f"muster job hold {job.spoken_name} keeps it from starting"
        raise click.ClickException(f"{job.spoken_name} does not run; {hold}")
    if job.row.commanded:
        return JobChange(command="" if job.is_stopped else ABORT)
    if not job.was_let_go:
        raise _unmanaged(job)
    return JobChange(job={} if job.is_suspended else job.suspending(True))


def _unmanaged(job: "ObservedJob") -> click.ClickException:
    return click.ClickException(
        f"{job.spoken_name} does not wait or run as a job of Muster's; muster why {job.spoken_name} says why"
    )


@job.command("delete")
@job_names
@out.dry_run_flag
@access_flags
def delete_job(targets: list[Target], dry_run: str, **flags: Any) -> None:
    """Delete jobs, and with them their pods. JOB is NAME, or KIND/NAME, such as job/train or jobset/train."""
    with opened(Flags(**flags)) as place:
        from extender.cli.observed_jobs import find_job
        from extender.cli.why.evidence import Evidence

        evidence = Evidence(place, place.namespace)
        for target in targets:
            found = find_job(evidence, target)
            meta = found.meta
            if dry_run != out.CLIENT:
                dry = dry_run == out.SERVER
                place.editor.delete(found.resource, meta.namespace, meta.name, meta.uid, dry)
            out.show_done(meta.name, "deleted", dry_run, found.row.qualified)


# vcctl's names of them
job.add_command(describe_job, "view")
job.add_command(stop_job, "suspend")
for command in {*job.commands.values()}:
    command.params.append(config_option())
job.add_command(run_job)
