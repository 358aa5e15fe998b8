"""Why Muster does not manage a job that is suspended, as far as objects show it: its settings do not."""

import json

from extender.api.keys import DEFAULT_QUEUE, KUEUE_QUEUE, LOCAL_QUEUE, QUEUE
from extender.cli.access_reviews import Right, right_to
from extender.cli.explain.evidence import Evidence
from extender.cli.explain.offers import Offer, checking
from extender.cli.explain.pod_state import SCHEDULERS
from extender.cli.observed_jobs import Json, ObservedJob
from extender.domain.jobs.job_record import JobRecord
from extender.domain.model.pod_owners import controller_of
from extender.kube.resources import POD_GROUPS


def why_left_alone(evidence: Evidence, job: ObservedJob) -> tuple[str, list[Offer]]:
    """A sentence that goes on after a colon, and what may be done about it."""
    record, owner = job.record, controller_of(job.meta.owner_references)
    if owner and record and record.is_part:
        return _of_owner(job, f"{owner.kind.lower()}/{owner.name}")
    if record and record.named_group:
        return "its pods name a PodGroup, so once it is let go, they wait in that.", [_letting_go(job)]
    if record and not record.ours:
        ours = " or ".join(SCHEDULERS)
        why = f"its pods name another scheduler than {ours}, whose pods Muster places by default."
        return why, [_letting_go(job)]
    if evidence.is_kueues(job.meta):
        return _of_kueue(job)
    if record and not _has_queue(evidence, record):
        why = "it names no queue, and neither does its namespace."
        return why, [_naming_queue(job), _letting_go(job)]
    return _not_seen(job), [checking()]


def _of_owner(job: ObservedJob, owner: str) -> tuple[str, list[Offer]]:
    namespace = job.meta.namespace
    line, right = f"muster why {owner} -n {namespace}", right_to("get", POD_GROUPS, namespace)
    return f"it belongs to {owner}, which starts as a whole.", [Offer("ask about that", line, right)]


def _has_queue(evidence: Evidence, job: JobRecord) -> bool:
    return bool(job.queue or job.local_queue or evidence.queue_of_namespace(job.namespace))


def _of_kueue(job: ObservedJob) -> tuple[str, list[Offer]]:
    why = f"its label {KUEUE_QUEUE} names no LocalQueue of Muster here, so it is Kueue's to start."
    line = f"kubectl -n {job.meta.namespace} label {_target(job)} {KUEUE_QUEUE}- {LOCAL_QUEUE}=NAME"
    return why, [Offer("have Muster start it, by a LocalQueue of Muster", line, _patching(job))]


def _not_seen(job: ObservedJob) -> str:
    """What is left: all of it is known to administrators alone."""
    kind = f"{job.row.kind}.{job.row.group}"
    return (
        "nothing on the job itself stands against it. Wait a moment. If it stays so, either Muster does not"
        f" run, or its role for {job.row.plural} is not installed, or --manage-jobs is off, or"
        f" --unmanaged-namespace or --unmanaged-kind names {job.meta.namespace} or {kind}."
    )


# ---- commands


def _naming_queue(job: ObservedJob) -> Offer:
    patch = f"annotate {_target(job)} {QUEUE}={DEFAULT_QUEUE}"
    return Offer("let it wait in a queue", f"kubectl -n {job.meta.namespace} {patch}", _patching(job))


def _letting_go(job: ObservedJob) -> Offer:
    patch: Json | bool = False
    for name in reversed(job.row.suspend):
        patch = {name: patch}
    line = f"kubectl -n {job.meta.namespace} patch {_target(job)} --type merge -p '{json.dumps(patch)}'"
    return Offer("let it go on", line, _patching(job))


def _target(job: ObservedJob) -> str:
    """As the other commands about workloads write it."""
    return f"{job.row.plural}.{job.row.group} {job.meta.name}"


def _patching(job: ObservedJob) -> Right:
    return right_to("patch", job.resource, job.meta.namespace, job.meta.name)
