"""Why a pod waits. Most of it is about its group; the rest is what sets it apart from its group."""

from difflib import get_close_matches

from msgspec.structs import replace

from extender.api.keys import DEFAULT_QUEUE, DEFAULT_SCHEDULER, ENDED_PHASES, GATE, GROUP_ANNOTATION
from extender.api.objects import Pod
from extender.cli.explain.commands import Case, commands
from extender.cli.explain.evidence import Evidence
from extender.cli.explain.explanation import (
    ENDING,
    FOREIGN,
    OVER,
    PLACED,
    RUNNING,
    STARTING,
    UNSEEN,
    WAITING,
    Explanation,
    has_gate,
)
from extender.cli.explain.groups import (
    NOT_LOOKED_AT,
    explain_group,
    in_queue,
    not_looked_at,
    queue_figures,
)
from extender.cli.explain.pod_state import SCHEDULERS, foreign_gates, ours, said, scheduled
from extender.cli.explain.remedies import remedy, sentence
from extender.cli.explain.uncounted import wrong_key
from extender.cli.observed import ObservedGroup
from extender.domain.model.ownership import group_name
from extender.domain.model.pod_owners import auto_name
from extender.domain.model.reasons import Reason

_NAME_A_GROUP = (
    "The administrator sees the reason in the debug pages. To see it here, create a PodGroup with"
    f" minMember: 1, and name it in the pod's annotation {GROUP_ANNOTATION}."
)
_ALONE = "The pod names no group, so it waits on its own"
_UNWRITTEN = "The pod's group, which is that of its owner or its own, has no PodGroup"


def explain_pod(evidence: Evidence, pod: Pod) -> Explanation:
    if settled := _settled(pod):
        return settled
    if foreign := foreign_gates(pod):
        return _held_back(pod, foreign)
    if not ours(pod):
        return _not_ours(pod)
    name = group_name(pod)
    if not name:
        return _alone(evidence, pod)
    if group := evidence.group(name):
        return _member(evidence, pod, group)
    return _alone(evidence, pod) if name == auto_name(pod) else _without_group(evidence, pod, name)


def _answer(pod: Pod, verdict: str, sentence: str, advice: str = "", since: str | None = None) -> Explanation:
    meta = pod.metadata
    return Explanation(
        kind="Pod",
        name=meta.name,
        verdict=verdict,
        sentence=sentence,
        namespace=meta.namespace,
        group=group_name(pod),
        since=since or meta.creation_timestamp,
        remedies=[advice] if advice else [],
    )


def _with_reason(answer: Explanation, reason: str, case: Case) -> Explanation:
    remedies = [remedy(reason)] if remedy(reason) else []
    offers = commands(reason, case)
    return replace(answer, reason=reason, detail=case.detail, remedies=remedies, commands=offers)


# ---- pods that do not wait


def _settled(pod: Pod) -> Explanation | None:
    meta, phase, node = pod.metadata, pod.status.phase, pod.spec.node_name
    if phase in ENDED_PHASES:
        how = "all its containers succeeded" if phase == "Succeeded" else "it failed"
        return _answer(pod, OVER, f"The pod has ended: {how}.")
    if meta.deletion_timestamp:
        where = f" on node {node}" if node else ""
        return _answer(pod, ENDING, f"The pod is being deleted{where}.", since=meta.deletion_timestamp)
    return _placed(pod, node) if node else None


def _placed(pod: Pod, node: str) -> Explanation:
    since = scheduled(pod).last_transition_time or ""
    if pod.status.phase == "Running":
        return _answer(pod, PLACED, f"The pod does not wait: it runs on node {node}.", since=since)
    message = (
        f"The pod does not wait for a place: it is on node {node}, where its containers are to be started."
    )
    return _answer(
        pod, PLACED, message, f"kubectl describe pod {pod.metadata.name} tells how far it is.", since=since
    )


# ---- pods that wait for others than Muster


def _held_back(pod: Pod, gates: list[str]) -> Explanation:
    message = f"The pod is held back by scheduling gates that are not Muster's: {', '.join(gates)}."
    advice = "Their owner must remove them. Until then the pod does not count as a member of a group."
    return _answer(pod, WAITING, message, advice)


def _not_ours(pod: Pod) -> Explanation:
    scheduler, name = pod.spec.scheduler_name or DEFAULT_SCHEDULER, group_name(pod)
    message = f"Nothing shows that the pod is Muster's: {scheduler} places it."
    if name:
        message += f" It names the group {name}, but no scheduler keeps that group together."
    alike = get_close_matches(scheduler, SCHEDULERS, n=1)
    advice = (
        f"For Muster to place it, create it with schedulerName: {(*alike, *SCHEDULERS)[0]} (or another name"
        " that your administrator gave it)."
    )
    return replace(_answer(pod, FOREIGN, message, advice), detail=scheduled(pod).message)


# ---- pods that wait for Muster


def _without_group(evidence: Evidence, pod: Pod, name: str) -> Explanation:
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
    return _with_reason(_answer(pod, WAITING, message), Reason.GROUP_NOT_FOUND, case)


def _meant(evidence: Evidence, name: str) -> str:
    """A group that the pod may have been meant for: of a name like it, or in another namespace."""
    for alike in get_close_matches(name, [each.name for each in evidence.groups_here], n=1):
        return f"did you mean {alike}?"
    homes = sorted(each.namespace for each in evidence.groups if each.name == name)
    return f"there is one in namespace {homes[0]}, whose members have to be there, too" if homes else ""


def _alone(evidence: Evidence, pod: Pod) -> Explanation:
    """A group without a PodGroup. What Muster says of it is to be seen on the pod alone, where that has no
    gate; and on its queue, while that takes nothing in."""
    queue = evidence.queue_of_pod(pod)
    figures = queue_figures(evidence, queue)
    reason, detail = said(pod)
    if not reason:
        reason, detail = _refused_by(evidence, queue)
    case = Case(evidence, pod.metadata.namespace, queue, detail, pod=pod.metadata.name)
    answer = _alone_for(pod, reason, case)
    notes = [*_misnamed(evidence, pod), *in_queue(queue, figures), *evidence.notes]
    return replace(answer, queue=figures, notes=notes)


def _misnamed(evidence: Evidence, pod: Pod) -> list[str]:
    """It names a group that there is, and not in the way that counts."""
    names = {each.name for each in evidence.groups_here}
    written, group = wrong_key(pod, names.__contains__)
    return (
        [f"It names podgroup/{group} by the {written}; what counts is the annotation {GROUP_ANNOTATION}."]
        if group
        else []
    )


def _refused_by(evidence: Evidence, name: str) -> tuple[str, str]:
    """Why a queue takes nothing in, and the numbers of it; empty where it does, or may not be read."""
    queue = evidence.queue(name)
    if queue is not None and queue.state != "Open":
        return Reason.QUEUE_NOT_OPEN, f"queue {name} is {queue.state}"
    if queue is not None or evidence.queues is None or name == DEFAULT_QUEUE:
        return "", ""
    return Reason.QUEUE_NOT_FOUND, f"queue {name} does not exist"


def _alone_for(pod: Pod, reason: str, case: Case) -> Explanation:
    message = _UNWRITTEN if group_name(pod) else _ALONE
    if reason:
        return _with_reason(_answer(pod, WAITING, f"{message}. {sentence(reason)}"), reason, case)
    if has_gate(pod, GATE):
        why = "behind Muster's scheduling gate. For what, is written where a pod has a PodGroup only."
        return _answer(pod, WAITING, f"{message}, {why}", _NAME_A_GROUP)
    answer = _answer(pod, UNSEEN, f"{message}; nothing on it says yet for what.", NOT_LOOKED_AT)
    return replace(answer, commands=not_looked_at(case.evidence))


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
    reason, detail = (answer.reason, answer.detail) if answer.reason else said(pod)
    message = (
        f"Its group runs without it. {sentence(reason)}" if reason else "Its group runs; it is to follow."
    )
    waits = replace(answer, verdict=WAITING, sentence=message, since=pod.metadata.creation_timestamp)
    case = Case(evidence, group.namespace, evidence.queue_of(group), detail, group, pod.metadata.name)
    return _with_reason(waits, reason, case)
