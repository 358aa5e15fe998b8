"""Kueue next to Muster: which jobs are left to it, and what both would start.

A label `kueue.x-k8s.io/queue-name` that names no LocalQueue of Muster is Kueue's own where the cluster has
that.
"""

from collections.abc import Iterator, Set
from typing import NamedTuple

from extender.api.keys import KUEUE_QUEUE
from extender.api.workloads.table import WORKLOADS
from extender.cli.check.findings import OK, Finding, Installation, at, fine, settings, some, wrong
from extender.cli.observed_jobs import JobState, ObservedJob, observed_job
from extender.cli.output import Json
from extender.domain.snapshot.jobs import JobRecord
from extender.kube.resources import CRDS, KUEUE_LOCAL_QUEUES, LOCAL_QUEUES, Resource, resource_of
from extender.terminal.text import many

_SUBJECT = "Kueue"
_KIND = f"{KUEUE_LOCAL_QUEUES[0].plural}.{KUEUE_LOCAL_QUEUES[0].group}"
_OURS = f"{LOCAL_QUEUES.plural}.{LOCAL_QUEUES.group}"


def kueue(site: Installation) -> Iterator[Finding]:
    crd = site.get(CRDS, "", _KIND)
    if crd is None:
        yield fine(_SUBJECT, "the cluster does not have it")
        return
    ours = _names(site, LOCAL_QUEUES)
    theirs: set[str] = set().union(*(_names(site, resource) for resource in _served(crd)))
    if both := sorted(ours & theirs):
        message = f"{some(both)}: LocalQueues of both, so both start and suspend the jobs that name them"
        todo = f"Keep one of each name: kubectl get {_OURS},{_KIND} -A"
        yield wrong(_SUBJECT, message, todo)
    left = [job for job in map(_waiting, _jobs(site)) if job and job.local_queue not in ours]
    yield from _left(left, theirs)


def _served(crd: Json) -> Iterator[Resource]:
    versions = {version["name"] for version in at(crd, "spec", "versions") or () if version.get("served")}
    known = (resource for resource in KUEUE_LOCAL_QUEUES if resource.version.rpartition("/")[2] in versions)
    yield from list(known)[:1]  # each shows all


def _names(site: Installation, resource: Resource) -> set[str]:
    metas = (obj["metadata"] for obj in site.all_of(resource, Json))
    return {f"{meta['namespace']}/{meta['name']}" for meta in metas}


def _jobs(site: Installation) -> Iterator[tuple[ObservedJob, JobRecord]]:
    """Those that carry the label and whose pods would be Muster's to place."""
    schedulers = settings(site.container, "scheduler_names")
    for row in WORKLOADS.values():
        found = site.all_of(resource_of(row), Json, labels=KUEUE_QUEUE) if row.manageable else []
        for job in (observed_job(row, obj, None) for obj in found):
            if (record := job.read(schedulers)) and record.ours and not record.is_part:
                yield job, record


class _WaitingJob(NamedTuple):
    """`local_queue`: the one that its label of Kueue's names."""

    name: str
    local_queue: str


def _waiting(job: tuple[ObservedJob, JobRecord]) -> _WaitingJob | None:
    """None for one that does not wait to be started, or whose own label of Muster's counts."""
    observed, record = job
    label, namespace = record.local_queue, record.namespace
    if label is None or not label.is_kueues or observed.state is not JobState.WAITING:
        return None
    return _WaitingJob(f"{namespace}/{record.spoken_name}", f"{namespace}/{label.name}")


# ---- what is found


def _left(jobs: list[_WaitingJob], theirs: Set[str]) -> Iterator[Finding]:
    known = [job.name for job in jobs if job.local_queue in theirs]
    lost = [f"{job.name} ({job.local_queue})" for job in jobs if job.local_queue not in theirs]
    if known:
        message = f"{many(len(known), 'suspended job')} left to it: {some(sorted(known))}"
        todo = f"To have Muster start one, take off its label {KUEUE_QUEUE} and name a queue of Muster's."
        yield Finding(_SUBJECT, OK, message, todo)
    if lost:
        count = many(len(lost), "suspended job")
        message = f"{count} left to it, of LocalQueues that nobody has: {some(sorted(lost))}"
        todo = f"Correct the label {KUEUE_QUEUE}, or create the LocalQueue; for Muster, a {_OURS}."
        yield wrong(_SUBJECT, message, todo)
    if not jobs:
        yield fine(_SUBJECT, "the cluster has it, and no job of Muster's scheduler waits for it")
