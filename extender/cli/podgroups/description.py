"""All about one group, in paragraphs: those of `muster why`, with spec, members, conditions and events."""

from collections.abc import Iterator

from extender.api.keys import GATE
from extender.api.objects.pods import Pod
from extender.cli.access import ClusterAccess
from extender.cli.events import conditions, events
from extender.cli.explain.evidence import Evidence
from extender.cli.explain.explanation import has_gate
from extender.cli.explain.groups import explain_group
from extender.cli.explain.rendering import joined, paragraphs
from extender.cli.formatting import NOTHING, age, amounts
from extender.cli.lookup import fetch
from extender.cli.observed import ObservedGroup
from extender.cli.output import fields, section
from extender.kube.resources import POD_GROUPS
from extender.terminal.columns import columns
from extender.terminal.counts import many


def description(place: ClusterAccess, name: str) -> str:
    group = fetch(place.reader, POD_GROUPS, place.namespace, name, ObservedGroup)
    evidence = Evidence(place, place.namespace)
    heading, *rest = paragraphs(explain_group(evidence, group))
    return joined(
        heading,
        fields(_spec(group, evidence)),
        *rest,
        section("Pods:", _members(evidence.members(group) or [])),
        section("Conditions:", conditions(group.status.conditions)),
        section("Events:", events(place.reader, "PodGroup", place.namespace, name)),
    )


def _spec(group: ObservedGroup, evidence: Evidence) -> Iterator[tuple[str, object]]:
    spec = group.spec
    roles = ", ".join(f"{role} {count}" for role, count in sorted((spec.min_task_member or {}).items()))
    yield "Queue", evidence.queue_of(group)
    yield "Needs", many(spec.min_member, "pod") + (f", of these {roles}" if roles else "")
    if spec.min_resources:
        yield "Resources", amounts(spec.min_resources)
    yield "Priority", spec.priority_class_name or NOTHING
    yield "Phase", group.status.phase or NOTHING
    yield "Age", age(group.metadata.creation_timestamp)


def _members(pods: list[Pod]) -> list[str]:
    rows = [(pod.metadata.name, _stands(pod), pod.spec.node_name or NOTHING) for pod in pods]
    return columns(("NAME", "STATUS", "NODE"), sorted(rows)) if rows else []


def _stands(pod: Pod) -> str:
    if pod.metadata.deletion_timestamp:
        return "Ending"
    return "Gated" if has_gate(pod, GATE) else pod.status.phase or NOTHING
