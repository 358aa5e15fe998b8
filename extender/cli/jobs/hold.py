"""`muster job hold`, `resume` and `stop`: what keeps a job from starting, and what ends its run for now.

waits ──hold──► held ──resume──► waits         by annotations of its PodGroup
runs  ──stop──► suspended ──resume──► waits    by the job's own field for that, and our note on it
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from extender.api.keys import HOLD, START_TIMEOUTS, STARTED
from extender.cli.access import ClusterAccess, Flags, access_flags, opened
from extender.cli.dry_run import CLIENT, SERVER, dry_run_flag, show_done
from extender.cli.jobs.names import job_names

if TYPE_CHECKING:
    from extender.cli.observed_jobs import Json, ObservedJob
    from extender.cli.targets import Target


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

    def job(self, job: "ObservedJob", patch: "Json") -> None:
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
        from extender.cli.jobs.finding import find_job

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


def _suspending(path: tuple[str, ...]) -> "Json":
    patch: Any = True
    for name in reversed(path):
        patch = {name: patch}
    return dict(patch)


def _unmanaged(job: "ObservedJob") -> click.ClickException:
    return click.ClickException(
        f"{job.spoken_name} does not wait or run as a job of Muster's; muster why {job.spoken_name} says why"
    )
