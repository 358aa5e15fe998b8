"""Why Muster does not manage a job that is suspended, as far as objects show it: its settings do not."""

import json

from extender.api.keys import DEFAULT_QUEUE, QUEUE
from extender.cli.access_reviews import Right, right_to
from extender.cli.explain.evidence import Evidence
from extender.cli.explain.offers import Offer, checking
from extender.cli.explain.pod_state import SCHEDULERS
from extender.cli.observed_jobs import Json, ObservedJob
from extender.domain.model.local_queue_label import local_queue_label
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
    if record and not (record.queue or evidence.queue_of_namespace(job.meta.namespace)):
        return _without_queue(evidence, job)
    return _not_seen(job), [checking()]


def _of_owner(job: ObservedJob, owner: str) -> tuple[str, list[Offer]]:
    namespace = job.meta.namespace
    line, right = f"muster why {owner} -n {namespace}", right_to("get", POD_GROUPS, namespace)
    return f"it belongs to {owner}, which starts as a whole.", [Offer("ask about that", line, right)]


def _without_queue(evidence: Evidence, job: ObservedJob) -> tuple[str, list[Offer]]:
    label, offers = local_queue_label(job.meta), [_naming_queue(job), _letting_go(job)]
    if label is None:
        return "it names no queue, and neither does its namespace.", offers
    if not label.is_kueues or f"{job.meta.namespace}/{label.name}" in evidence.local_queues:
        return _not_seen(job), [checking()]
    why = f"its label {label.key} names a LocalQueue that Muster does not have here."
    return f"{why} It is Kueue's to start, where Kueue is installed.", offers


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
