"""Why a pod waits. Most of it is about its group; the rest is what sets it apart from its group."""

from msgspec.structs import replace

from extender.api.keys import GATE
from extender.api.objects.pods import Pod
from extender.cli.explain.case import Case
from extender.cli.explain.evidence import Evidence
from extender.cli.explain.explanation import RUNNING, STARTING, WAITING, Explanation, has_gate
from extender.cli.explain.groups import explain_group
from extender.cli.explain.lone_pods import alone, without_group
from extender.cli.explain.pod_answers import with_reason
from extender.cli.explain.pod_state import foreign_gates, ours, reason_of
from extender.cli.explain.remedies import sentence
from extender.cli.explain.settled_pods import held_back, not_ours, settled
from extender.cli.observed import ObservedGroup
from extender.domain.model.ownership import group_name
from extender.domain.model.pod_owners import auto_name


def explain_pod(evidence: Evidence, pod: Pod) -> Explanation:
    if answer := settled(evidence, pod):
        return answer
    if gates := foreign_gates(pod):
        return held_back(pod, gates)
    if not ours(pod):
        return not_ours(pod)
    name = group_name(pod)
    if name and (group := evidence.group(name)):
        return _member(evidence, pod, group)
    project = evidence.other_project(name) if name else ""
    if not name or project or name == auto_name(pod):
        return alone(evidence, pod, project)
    return without_group(evidence, pod, name)


def _member(evidence: Evidence, pod: Pod, group: ObservedGroup) -> Explanation:
    """The group's answer, about one of its members."""
    of_group = explain_group(evidence, group, pod.metadata.name)
    named = replace(of_group, kind="Pod", name=pod.metadata.name, group=group.name)
    if of_group.verdict == WAITING:
        return replace(named, sentence=f"The pod waits with its whole group. {of_group.sentence}")
    if of_group.verdict == STARTING:
        return replace(named, sentence=_starting(pod))
    if of_group.verdict == RUNNING:
        return _left_out(evidence, group, named, pod)
    return replace(named, sentence=f"About its group: {of_group.sentence}")


def _starting(pod: Pod) -> str:
    if has_gate(pod, GATE):
        return "Its group starts now, and the pod's scheduling gate is about to be opened."
    planned = pod.status.nominated_node_name
    where = f" It is planned for node {planned}." if planned else ""
    return f"Its group starts now: the pod waits for the others, to be bound with them.{where}"


def _left_out(evidence: Evidence, group: ObservedGroup, answer: Explanation, pod: Pod) -> Explanation:
    """Its group runs, and this one has no place: it is more than the group needs, or replaces a lost one."""
    reason, detail = (answer.reason, answer.detail) if answer.reason else reason_of(pod)
    message = (
        f"Its group runs without it. {sentence(reason)}" if reason else "Its group runs; it is to follow."
    )
    waits = replace(answer, verdict=WAITING, sentence=message, since=pod.metadata.creation_timestamp)
    case = Case(evidence, group.namespace, evidence.queue_of(group), detail, group, pod.metadata.name)
    return with_reason(waits, reason, case)
