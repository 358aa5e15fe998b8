"""All about one job, in paragraphs: those of `muster why`, with what it asks for, its pods and its events."""

from collections.abc import Iterator

from extender.cli.access import ClusterAccess
from extender.cli.events import conditions, events
from extender.cli.explain.evidence import Evidence
from extender.cli.explain.rendering import joined, paragraphs
from extender.cli.explain.workloads import Workloads
from extender.cli.formatting import NOTHING, age, amounts
from extender.cli.jobs.finding import find_job
from extender.cli.observed_jobs import ObservedJob
from extender.cli.output import fields, section
from extender.cli.owner_kinds import owner_kind
from extender.cli.targets import Target
from extender.domain.model.resources import quantities
from extender.terminal.columns import columns
from extender.terminal.counts import many


def description(place: ClusterAccess, target: Target) -> str:
    evidence = Evidence(place, place.namespace)
    job = find_job(evidence, target)
    kind = owner_kind(f"{job.row.kind}.{job.row.group}")
    assert kind is not None, "it was found by its kind"
    answer, *_ = Workloads(evidence).explain(kind, job.meta.name)
    heading, *rest = paragraphs(answer)
    return joined(
        heading,
        fields(_facts(job, evidence)),
        *rest,
        section("Pods that it makes:", _pod_sets(job)),
        section("Conditions of its PodGroup:", conditions(job.unit.status.conditions) if job.unit else ()),
        section("Events:", events(place.reader, job.row.kind, place.namespace, job.meta.name)),
        section("Events of its PodGroup:", _of_unit(place, job)),
    )


def _facts(job: ObservedJob, evidence: Evidence) -> Iterator[tuple[str, object]]:
    unit = job.unit
    yield "State", job.state if unit else "not managed"
    if unit:
        yield "Queue", evidence.queue_of(unit)
        yield "Needs", many(unit.spec.min_member, "pod")
        yield "Resources", amounts(unit.spec.min_resources)
        yield "Position", job.position or NOTHING
        yield "Priority", unit.spec.priority_class_name or NOTHING
    yield "Let go", f"{age(job.was_let_go)} ago" if job.was_let_go else NOTHING
    if job.partial_start:
        yield "Started with", f"{job.partial_start.given} of {many(job.partial_start.asked, 'pod')}"
    yield "Start timeouts", f"{job.start_timeouts} in a row" if job.start_timeouts else "none"
    yield "Age", age(job.meta.creation_timestamp)


def _pod_sets(job: ObservedJob) -> list[str]:
    record = job.record
    if record is None or record.fault:
        return [record.fault] if record else []
    sets = ((each, quantities(each.pod.shape.requests)) for each in record.pods)
    rows = [(each.role or NOTHING, each.count, amounts(asked)) for each, asked in sets]
    return columns(("ROLE", "COUNT", "REQUESTS OF EACH"), rows) if rows else []


def _of_unit(place: ClusterAccess, job: ObservedJob) -> list[str]:
    return events(place.reader, "PodGroup", place.namespace, job.unit.name) if job.unit else []
