"""Pods without a PodGroup: what Muster says of them is on themselves, on their queue, and in their events."""

from msgspec.structs import replace

from extender.api.keys import DEFAULT_QUEUE, GATE, GROUP_ANNOTATION
from extender.api.objects.pods import Pod
from extender.cli.explain.case import Case
from extender.cli.explain.evidence import Evidence
from extender.cli.explain.explanation import UNSEEN, WAITING, Explanation, has_gate
from extender.cli.explain.groups import NOT_LOOKED_AT, in_queue, not_looked_at, queue_figures
from extender.cli.explain.pod_answers import answer_of, with_reason
from extender.cli.explain.pod_state import reason_of
from extender.cli.explain.remedies import sentence
from extender.cli.explain.uncounted import misnamed
from extender.domain.model.ownership import group_name
from extender.domain.model.reasons import Reason
from extender.terminal.near_misses import did_you_mean, near_misses

_NAME_A_GROUP = (
    "The administrator sees the reason in the debug pages. To see it here, create a PodGroup with"
    f" minMember: 1, and name it in the pod's annotation {GROUP_ANNOTATION}."
)
_ALONE = "The pod names no group, so it waits on its own"
_UNWRITTEN = "The pod's group, which is that of its owner or its own, has no PodGroup"


def without_group(evidence: Evidence, pod: Pod, name: str) -> Explanation:
    message = f"The pod belongs to the group {name}, but there is no PodGroup of that name in its namespace."
    if has_gate(pod, GATE):
        message += " It stays behind its scheduling gate until there is."
    there = sum(group_name(each) == name for each in evidence.pods or ())
    case = Case(
        evidence,
        pod.metadata.namespace,
        detail=_meant(evidence, name),
        pod=pod.metadata.name,
        wanted=name,
        there=there,
    )
    return with_reason(answer_of(pod, WAITING, message), Reason.GROUP_NOT_FOUND, case)


def _meant(evidence: Evidence, name: str) -> str:
    """A group that the pod may have been meant for: of a name like it, or in another namespace."""
    if alike := near_misses(name, (each.name for each in evidence.groups_here), 1):
        return did_you_mean(alike)
    homes = sorted(each.namespace for each in evidence.groups if each.name == name)
    return f"there is one in namespace {homes[0]}, whose members have to be there, too" if homes else ""


def alone(evidence: Evidence, pod: Pod, project: str) -> Explanation:
    """`project`: whose kind its PodGroup is, where that is not Volcano's."""
    queue = evidence.queue_of_pod(pod)
    figures = queue_figures(evidence, queue)
    reason, detail = reason_of(pod)
    if not reason:
        reason, detail = _refused_by(evidence, queue)
    if not reason:
        reason, detail = evidence.reason_in_events(pod)
    case = Case(evidence, pod.metadata.namespace, queue, detail, pod=pod.metadata.name)
    answer = _alone_for(pod, _standing(pod, project), reason, case)
    notes = [*misnamed(evidence, pod), *in_queue(queue, figures), *evidence.notes]
    return replace(answer, queue=figures, notes=notes)


def _standing(pod: Pod, project: str) -> str:
    if project:
        group = group_name(pod)
        return f"The pod's group {group} is a PodGroup of {project}, whose status Muster does not write"
    return _UNWRITTEN if group_name(pod) else _ALONE


def _refused_by(evidence: Evidence, name: str) -> tuple[str, str]:
    """Why a queue takes nothing in, and the numbers of it; empty where it does, or may not be read."""
    queue = evidence.queue(name)
    if queue is not None and queue.state != "Open":
        return Reason.QUEUE_NOT_OPEN, f"queue {name} is {queue.state}"
    if queue is not None or evidence.queues is None or name == DEFAULT_QUEUE:
        return "", ""
    return Reason.QUEUE_NOT_FOUND, f"queue {name} does not exist"


def _alone_for(pod: Pod, standing: str, reason: str, case: Case) -> Explanation:
    if reason:
        return with_reason(answer_of(pod, WAITING, f"{standing}. {sentence(reason)}"), reason, case)
    if has_gate(pod, GATE):
        message = f"{standing}. It is behind Muster's scheduling gate; what for, its events do not say yet."
        return answer_of(pod, WAITING, message, _NAME_A_GROUP)
    answer = answer_of(pod, UNSEEN, f"{standing}. Nothing on it says yet what it waits for.", NOT_LOOKED_AT)
    return replace(answer, commands=not_looked_at(case.evidence))
