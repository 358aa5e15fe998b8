"""`muster job`: lists and descriptions of jobs, and commands that hold, resume, stop and delete jobs.

waits ──hold──► held ──resume──► waits           by annotations of the job's PodGroup
runs ──stop──► suspended ──resume──► waits       by the job's own field and an annotation of the job,
                                                 or by a Command, as vcctl does
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from extender.api.keys import HOLD
from extender.api.objects.base import OwnerReference
from extender.api.objects.queues import new_command
from extender.api.setting_kinds import Kind
from extender.api.units import rounded_up, timestamp_at
from extender.api.workloads.operators import VOLCANO_JOB
from extender.cli import output as out
from extender.cli.access import NAME, ClusterAccess, Flags, access_flags, all_namespaces_flag, open_access
from extender.cli.completion import complete_job
from extender.cli.kinds import FURTHER_KINDS_HINT, Target, config_option, job_kinds
from extender.cli.output import Json

if TYPE_CHECKING:
    from extender.cli.observed_jobs import ObservedJob
    from extender.cli.why.evidence import Evidence
    from extender.domain.snapshot.jobs import JobChange


F = TypeVar("F", bound=Callable[..., Any])

_TABLE_COLUMNS = ("NAMESPACE", "NAME", "KIND", "QUEUE", "STATE", "POSITION", "PODS", "REASON", "AGE")
_WIDE_COLUMNS = (*_TABLE_COLUMNS, "ESTIMATE", "ADMITTED", "TIMEOUTS", "PODGROUP", "MESSAGE")
_COLOURS = {"Waiting": "yellow", "Held": "yellow", "Suspended": "cyan", "Ended": "cyan"}


@click.group()
def job() -> None:
    """Show and change jobs that start as a whole."""


def _target(value: str) -> Target:
    kind, slash, name = value.rpartition("/")
    if not name or "/" in kind or (slash and not kind):
        raise click.BadParameter(f"{value!r}: must be NAME or KIND/NAME, such as job/train")
    if slash and not any(job_kind.has_name(kind.lower()) for job_kind in job_kinds()):
        rule = ", ".join(dict.fromkeys(job_kind.name.lower() for job_kind in job_kinds()))
        raise click.BadParameter(f"{value!r}: before the / must be {rule}{FURTHER_KINDS_HINT}")
    return Target(kind.lower(), name)


def _targets(context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> list[Target]:
    flag_name = context.params.pop("named", None)
    names = (*values, flag_name) if flag_name else values
    if not names:
        raise click.UsageError("JOB: required value: NAME or KIND/NAME, such as job/train")
    return list(map(_target, names))


def job_names(command: F) -> F:
    """Add the argument JOB... and vcctl's flag --name to a command, both as the parameter `targets`."""
    argument = click.argument(
        "targets", metavar="[JOB]...", nargs=-1, callback=_targets, shell_complete=complete_job
    )
    named = click.option("--name", "named", type=NAME, metavar="NAME", is_eager=True, help="The same as JOB.")
    return named(argument(command))


@job.command("list")
@out.output_flag(out.LIST_FORMATS, "table")
@all_namespaces_flag
@access_flags
def list_jobs(output: str, **flags: Any) -> None:
    """List jobs of all kinds that can start as a whole.

    The list has jobs with a PodGroup, and jobs whose queue is closed. `muster why` explains why another job
    has no PodGroup.
    """
    with open_access(Flags(**flags)) as access:
        from extender.cli.observed_jobs import jobs_of
        from extender.cli.why.evidence import Evidence

        evidence = Evidence(access, access.namespace)
        jobs = jobs_of(access, evidence)
        if output == "name":
            if jobs:
                out.echo("\n".join(job.qualified_name for job in jobs))
            return
        documents = [_document(job, evidence) for job in jobs]
        if output in ("table", "wide"):
            rows = [_row(*pair) for pair in zip(jobs, documents, strict=True)]
            width = len(_TABLE_COLUMNS if output == "table" else _WIDE_COLUMNS)
            _show_coloured(out.table("jobs", access.namespace, _WIDE_COLUMNS, rows, width), jobs)
        else:
            out.show_document({"kind": "List", "items": documents}, output)


def _show_coloured(lines: list[str], jobs: "list[ObservedJob]") -> None:
    for number, job in enumerate(jobs, 1):
        # Names are in lower case, so no earlier column can contain the text of a state.
        coloured = click.style(job.state, fg=_COLOURS.get(job.state, "green"))
        lines[number] = lines[number].replace(f" {job.state} ", f" {coloured} ", 1)
    if lines:
        out.echo("\n".join(lines))


def _row(job: "ObservedJob", document: Json) -> tuple[object, ...]:
    meta = job.meta if job.obj or not job.podgroup else job.podgroup.metadata
    names = ("namespace", "name", "kind", "queue", "state", "position", "pods", "reason")
    cells = [
        *(document[name] for name in names),
        out.age(meta.creation_timestamp),
        out.interval(job.podgroup.waiting.estimate if job.podgroup else None),
        out.age(job.admitted_at),
        job.start_timeouts or 0,
        document["podGroup"],
        document["message"],
    ]
    return tuple(out.NOTHING if cell in (None, "") else cell for cell in cells)


def _document(job: "ObservedJob", evidence: "Evidence") -> Json:
    """Return the JSON document of a job.

    `position` is null unless the job is pending. `reason` says why the job or its further pods wait. `letGo`
    is the timestamp of the job's admission, null while the job is pending.
    """
    podgroup, refused_queue = job.podgroup, job.refusal.queue if job.refusal else ""
    queue = evidence.queue_of(podgroup) if podgroup else refused_queue
    return {
        "apiVersion": job.row.api_version,
        "kind": job.row.kind,
        "namespace": job.meta.namespace,
        "name": job.meta.name,
        "queue": queue or None,
        "state": str(job.state),
        "position": job.position or None,
        "pods": job.pods,
        "reason": job.reason if job.state not in ("Suspended", "Ended") else "",
        "message": job.message,
        "letGo": job.admitted_at or None,
        "startTimeouts": int(job.start_timeouts) if job.start_timeouts.isdigit() else 0,
        "podGroup": podgroup.name if podgroup else None,
    }


@job.command("describe")
@job_names
@access_flags
def describe_job(targets: list[Target], **flags: Any) -> None:
    """Describe jobs: queue, verdict, pods, events.

    JOB is NAME, or KIND/NAME, such as job/train or jobset/train.
    """
    with open_access(Flags(**flags)) as access:
        from extender.cli.describe import job_description

        for number, target in enumerate(targets):
            out.echo(("\n\n" if number else "") + job_description(access, target))


@job.command("hold")
@job_names
@out.dry_run_flag
@access_flags
def hold_job(targets: list[Target], **flags: Any) -> None:
    """Hold waiting jobs: they do not start.

    A held job delays no other job.

    JOB is NAME, or KIND/NAME, such as job/train or jobset/train.
    """
    _change(targets, _hold, "held", **flags)


@job.command("resume")
@job_names
@out.dry_run_flag
@access_flags
def resume_job(targets: list[Target], **flags: Any) -> None:
    """Resume jobs that were held or suspended.

    Jobs whose starts timed out too often resume as well. A suspended job goes back to its place in the queue.
    JOB is NAME, or KIND/NAME, such as job/train or jobset/train.
    """
    _change(targets, _resume_change, "resumed", **flags)


@job.command("stop")
@job_names
@out.dry_run_flag
@access_flags
def stop_job(targets: list[Target], **flags: Any) -> None:
    """Suspend running jobs until they are resumed.

    Their pods end.

    JOB is NAME, or KIND/NAME, such as job/train or jobset/train.
    """
    _change(targets, _stop, "stopped", **flags)


def _change(
    targets: list[Target], change: "Callable[[ObservedJob], JobChange]", done: str, dry_run: str, **flags: Any
) -> None:
    with open_access(Flags(**flags)) as access:
        from extender.cli.observed_jobs import find_job
        from extender.cli.why.evidence import Evidence
        from extender.domain.model.reasons import Verdict

        evidence = Evidence(access, access.namespace)
        for target in targets:
            job = find_job(evidence, target)
            if job.state == Verdict.ENDED:
                raise click.ClickException(f"{job.display_name} has ended; it cannot be {done}")
            job_change = change(job)
            if dry_run != out.CLIENT:
                _write(access, job, job_change, is_dry_run=dry_run == out.SERVER)
            out.show_done(job.meta.name, done, dry_run, job.row.qualified)


def _write(access: ClusterAccess, job: "ObservedJob", change: "JobChange", is_dry_run: bool) -> None:
    """Write a change to the job as it was read. A concurrent change of the job is a conflict."""
    from extender.kube.resources import COMMANDS, POD_GROUPS

    podgroup = job.podgroup if change.podgroup else None
    if podgroup is not None:
        patch = {"metadata": {"uid": podgroup.metadata.uid, "annotations": change.podgroup}}
        access.editor.patch(POD_GROUPS, podgroup.namespace, podgroup.name, patch, is_dry_run)
    if change.job:
        preconditions = {"uid": job.meta.uid, "resourceVersion": job.meta.resource_version}
        patch = {**change.job, "metadata": {**change.job.get("metadata", {}), **preconditions}}
        access.editor.patch(job.resource, job.meta.namespace, job.meta.name, patch, is_dry_run)
    if change.command:
        owner = OwnerReference(*job.row.key, job.meta.name, job.meta.uid, controller=True)
        access.editor.create(COMMANDS, job.meta.namespace, new_command(owner, change.command), is_dry_run)


def _hold(job: "ObservedJob") -> "JobChange":
    from extender.domain.snapshot.jobs import JobChange

    if not job.podgroup:
        raise _unmanaged_error(job)
    if not (job.is_suspended or job.is_pending):
        remedy = f"muster job stop {job.display_name} suspends it"
        raise click.ClickException(f"{job.display_name} does not wait any more; {remedy}")
    return JobChange({HOLD: "true"})


def _resume_change(job: "ObservedJob") -> "JobChange":
    from extender.domain.snapshot.jobs import resume_change

    if not job.podgroup and not job.admitted_at and not job.is_stopped:
        raise _unmanaged_error(job)
    if not (job.is_stopped or job.is_held):
        raise click.ClickException(f"{job.display_name} is neither held nor stopped")
    muster_unsuspends = not job.is_stopped or job.is_unsuspended_by_muster
    return resume_change(job.row, job.obj or {}, muster_unsuspends)


def _stop(job: "ObservedJob") -> "JobChange":
    from extender.domain.snapshot.jobs import stop_change

    if job.is_suspended and not job.is_stopped:
        remedy = f"muster job hold {job.display_name} keeps it from starting"
        raise click.ClickException(f"{job.display_name} does not run; {remedy}")
    if not (job.row.commanded or job.admitted_at or job.podgroup):
        raise _unmanaged_error(job)
    return stop_change(job.row, job.obj or {}, timestamp_at(time.time()))


def _unmanaged_error(job: "ObservedJob") -> click.ClickException:
    remedy = f"muster why {job.display_name} says why"
    return click.ClickException(f"{job.display_name} does not wait or run as a job of Muster's; {remedy}")


@job.command("delete")
@job_names
@out.dry_run_flag
@access_flags
def delete_job(targets: list[Target], dry_run: str, **flags: Any) -> None:
    """Delete jobs and their pods.

    JOB is NAME, or KIND/NAME, such as job/train or jobset/train.
    """
    with open_access(Flags(**flags)) as access:
        from extender.cli.observed_jobs import find_job
        from extender.cli.why.evidence import Evidence

        evidence = Evidence(access, access.namespace)
        for target in targets:
            job = find_job(evidence, target)
            meta = job.meta
            if dry_run != out.CLIENT:
                is_dry_run = dry_run == out.SERVER
                access.editor.delete(job.resource, meta.namespace, meta.name, meta.uid, is_dry_run)
            out.show_done(meta.name, "deleted", dry_run, job.row.qualified)


# ---- a new Volcano Job


def _amounts(text: str) -> dict[str, str]:
    amounts = dict(part.strip().split("=", 1) for part in text.split(","))
    if not all(name and rounded_up(amount) >= 0 for name, amount in amounts.items()):
        raise ValueError(text)
    return amounts


_PODS: dict[str, Any] = {"type": out.WholeNumber(0, 2**31 - 1), "default": 1, "show_default": True}
_AMOUNTS: dict[str, Any] = {
    "metavar": "NAME=QUANTITY,...",
    "callback": out.parser_of(Kind("NAME=QUANTITY with commas between, such as cpu=8,memory=16Gi", _amounts)),
    "default": "cpu=1000m,memory=100Mi",
    "show_default": True,
}


@job.command("run")
@click.option("--name", type=NAME, required=True, help="The name of the new job.")
@click.option("--image", default="busybox", show_default=True, help="The image of the container.")
@click.option("--replicas", **_PODS, help="The number of pods.")
@click.option("--min", "minimum", **_PODS, help="The number of pods that start together.")
@click.option("--requests", **_AMOUNTS, help="The request of each pod.")
@click.option("--limits", **_AMOUNTS, help="The limit of each pod.")
@click.option("--scheduler", default="volcano", show_default=True, help="The schedulerName of the pods.")
@click.option("--queue", type=NAME, help="The queue of the job. [default: that of the namespace]")
@out.dry_run_flag
@out.result_flag
@access_flags
def run_job(
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    dry_run: str,
    output: str | None,
    **spec: Any,
) -> None:
    """Create a Volcano Job of one task.

    Muster runs it with --volcano-jobs=on, otherwise Volcano does.
    """
    new_job = _volcano_job(**spec)
    if dry_run != out.CLIENT:
        from extender.kube.errors import NotFound
        from extender.kube.resources import resource_of

        with open_access(Flags(kubeconfig, context, namespace)) as access:
            resource, is_dry_run = resource_of(VOLCANO_JOB), dry_run == out.SERVER
            try:
                new_job = access.editor.create(resource, access.namespace, new_job, is_dry_run)
            except NotFound as fault:
                reason = f"the cluster knows no jobs.{VOLCANO_JOB.group}, or no namespace {access.namespace}"
                raise click.ClickException(reason) from fault
    if output:
        out.show_objects([new_job], output, is_single=True)
    else:
        out.show_done(new_job["metadata"]["name"], "created", dry_run, VOLCANO_JOB.qualified)


def _volcano_job(
    name: str,
    image: str,
    replicas: int,
    minimum: int,
    requests: Json,
    limits: Json,
    scheduler: str,
    queue: str | None,
) -> Json:
    container = {"name": "main", "image": image, "resources": {"requests": requests, "limits": limits}}
    pod = {"restartPolicy": "Never", "containers": [container]}
    task = {"name": "default0", "replicas": replicas, "template": {"spec": pod}}
    spec = {"minAvailable": minimum, "schedulerName": scheduler, "tasks": [task]}
    return {
        "apiVersion": VOLCANO_JOB.api_version,
        "kind": VOLCANO_JOB.kind,
        "metadata": {"name": name},
        "spec": {**spec, "queue": queue} if queue else spec,
    }


# These are vcctl's names for the commands.
job.add_command(describe_job, "view")
job.add_command(stop_job, "suspend")
for command in {*job.commands.values()} - {run_job}:
    command.params.append(config_option())
