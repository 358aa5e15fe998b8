"""All about one group, in paragraphs: those of `muster why`, with spec, members, conditions and events."""

from collections.abc import Iterator

from extender.api.keys import GATE
from extender.api.objects import Pod
from extender.cli.access import Place
from extender.cli.answer import has_gate
from extender.cli.evidence import Evidence
from extender.cli.fetching import fetch
from extender.cli.group_answer import answer_for_group
from extender.cli.happened import conditions, events
from extender.cli.output import fields, section, table
from extender.cli.seen import NOTHING, GroupSeen, age, amounts
from extender.cli.telling import joined, paragraphs
from extender.kube.resources import POD_GROUPS


def description(place: Place, name: str) -> str:
    group = fetch(place.reader, POD_GROUPS, place.namespace, name, GroupSeen)
    evidence = Evidence(place.reader, place.namespace)
    who, *rest = paragraphs(answer_for_group(evidence, group))
    return joined(
        who,
        fields(_spec(group, evidence)),
        *rest,
        section("Pods:", _members(evidence.members(group) or [])),
        section("Conditions:", conditions(group.status.conditions)),
        section("Events:", events(place.reader, "PodGroup", place.namespace, name)),
    )


def _spec(group: GroupSeen, evidence: Evidence) -> Iterator[tuple[str, object]]:
    spec = group.spec
    roles = ", ".join(f"{role} {count}" for role, count in sorted((spec.min_task_member or {}).items()))
    yield "Queue", evidence.queue_of(group)
    yield "Needs", f"{spec.min_member} pods" + (f", of these {roles}" if roles else "")
    if spec.min_resources:
        yield "Resources", amounts(spec.min_resources)
    yield "Priority", spec.priority_class_name or NOTHING
    yield "Phase", group.status.phase or NOTHING
    yield "Age", age(group.metadata.creation_timestamp)


def _members(pods: list[Pod]) -> list[str]:
    rows = [(pod.metadata.name, _stands(pod), pod.spec.node_name or NOTHING) for pod in pods]
    return table(("NAME", "STATUS", "NODE"), sorted(rows)) if rows else []


def _stands(pod: Pod) -> str:
    if pod.metadata.deletion_timestamp:
        return "Ending"
    return "Gated" if has_gate(pod, GATE) else pod.status.phase or NOTHING
