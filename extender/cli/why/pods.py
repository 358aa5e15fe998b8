"""Why a pod waits. Most of it is about its group; the rest is what sets it apart from its group."""

from msgspec.structs import replace

from extender.api.keys import DEFAULT_SCHEDULER, ENDED_PHASES, GROUP_ANNOTATION
from extender.api.objects.pods import Pod
from extender.cli.observed import ObservedGroup
from extender.cli.why.evidence import Evidence
from extender.cli.why.explanation import (
    SCHEDULERS,
    Explanation,
    Stands,
    foreign_gates,
    is_gated,
    ours,
    reason_of,
    scheduled,
)
from extender.cli.why.groups import NOT_LOOKED_AT, explain_group, in_queue, misnamed, queue_figures
from extender.cli.why.offers import Case, checking, commands, describing, offered
from extender.domain.explain.remedies import remedy, sentence
from extender.domain.model.ownership import auto_name, group_name, maker_of
from extender.domain.model.reasons import Reason
from extender.terminal.text import did_you_mean, near_misses

_NAME_A_GROUP = (
    "The administrator sees the reason in the debug pages. To see it here, create a PodGroup with"
    f" minMember: 1, and name it in the pod's annotation {GROUP_ANNOTATION}."
)


def explain_pod(evidence: Evidence, pod: Pod) -> Explanation:
    if answer := _settled(evidence, pod):
        return answer
    if gates := foreign_gates(pod):
        message = f"The pod is held back by scheduling gates that are not Muster's: {', '.join(gates)}."
        advice = "Their owner must remove them. Until then the pod does not count as a member of a group."
        return _answer(pod, Stands.WAITING, message, advice)
    name = group_name(pod)
    if not ours(pod):
        scheduler = pod.spec.scheduler_name or DEFAULT_SCHEDULER
        message = f"Nothing shows that the pod is Muster's: {scheduler} places it."
        if name:
            message += f" It names the group {name}, but no scheduler keeps that group together."
        likeliest = (*near_misses(scheduler, SCHEDULERS, 1), *SCHEDULERS)[0]
        advice = (
            f"For Muster to place it, create it with schedulerName: {likeliest} (or another name"
            " that your administrator gave it)."
        )
        return replace(_answer(pod, Stands.FOREIGN, message, advice), detail=scheduled(pod).message)
    if name and (group := evidence.group(name)):
        return _member(evidence, pod, group)
    project = evidence.other_project(name) if name else ""
    if not name or project or name == auto_name(pod):
        return _alone(evidence, pod, project)
    return _without_group(evidence, pod, name)


def _answer(pod: Pod, verdict: str, sentence: str, advice: str = "", since: str | None = None) -> Explanation:
    """Without what its group adds."""
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


def _settled(evidence: Evidence, pod: Pod) -> Explanation | None:
    meta, phase, node = pod.metadata, pod.status.phase, pod.spec.node_name
    if phase in ENDED_PHASES:
        how = "all its containers succeeded" if phase == "Succeeded" else "it failed"
        return _answer(pod, Stands.OVER, f"The pod has ended: {how}.")
    if meta.deletion_timestamp:
        where = f" on node {node}" if node else ""
        return _answer(pod, Stands.ENDING, f"The pod is being deleted{where}.", since=meta.deletion_timestamp)
    if not node:
        return None
    since, notes = scheduled(pod).last_transition_time or "", misnamed(evidence, pod)
    if phase == "Running":
        message = f"The pod does not wait: it runs on node {node}."
        return replace(_answer(pod, Stands.PLACED, message, since=since), notes=notes)
    message = f"The pod does not wait for a place: it is on node {node}, which is to start its containers."
    offers = [offered(evidence, describing(meta.namespace, meta.name, "see how far it is"))]
    return replace(_answer(pod, Stands.PLACED, message, since=since), notes=notes, commands=offers)


def _member(evidence: Evidence, pod: Pod, group: ObservedGroup) -> Explanation:
    """The group's answer, about one of its members."""
    of_group = explain_group(evidence, group, pod.metadata.name)
    named = replace(of_group, kind="Pod", name=pod.metadata.name, group=group.name)
    if of_group.verdict == Stands.WAITING:
        return replace(named, sentence=f"The pod waits with its whole group. {of_group.sentence}")
    if of_group.verdict == Stands.RUNNING:
        # It is more than the group needs, or replaces a lost one.
        reason, detail = (named.reason, named.detail) if named.reason else reason_of(pod)
        message = (
            f"Its group runs without it. {sentence(reason)}" if reason else "Its group runs; it is to follow."
        )
        since = pod.metadata.creation_timestamp
        waits = replace(named, verdict=Stands.WAITING, sentence=message, since=since)
        case = Case(evidence, group.namespace, evidence.queue_of(group), detail, group, pod.metadata.name)
        return _with_reason(waits, reason, case)
    if of_group.verdict != Stands.STARTING:
        return replace(named, sentence=f"About its group: {of_group.sentence}")
    if is_gated(pod):
        message = "Its group starts now, and the pod's scheduling gate is about to be opened."
        return replace(named, sentence=message)
    planned = pod.status.nominated_node_name
    where = f" It is planned for node {planned}." if planned else ""
    message = f"Its group starts now: the pod waits for the others, to be bound with them.{where}"
    return replace(named, sentence=message)


def _without_group(evidence: Evidence, pod: Pod, name: str) -> Explanation:
    """It names a group that does not exist: perhaps a misspelt one, or one in another namespace."""
    message = f"The pod belongs to the group {name}, but there is no PodGroup of that name in its namespace."
    if is_gated(pod):
        message += " It stays behind its scheduling gate until there is."
    there = sum(group_name(other) == name for other in evidence.pods or ())
    if alike := near_misses(name, (group.name for group in evidence.groups_here), 1):
        meant = did_you_mean(alike)
    else:
        homes = sorted(group.namespace for group in evidence.groups if group.name == name)
        meant = f"there is one in namespace {homes[0]}, whose members have to be there, too" if homes else ""
    meta = pod.metadata
    case = Case(evidence, meta.namespace, detail=meant, pod=meta.name, wanted=name, there=there)
    return _with_reason(_answer(pod, Stands.WAITING, message), Reason.GROUP_NOT_FOUND, case)


def _alone(evidence: Evidence, pod: Pod, project: str) -> Explanation:
    """`project`: whose kind its PodGroup is, where that is not Volcano's."""
    queue, name, maker = evidence.queue_of_pod(pod), group_name(pod), maker_of(pod)
    figures = queue_figures(evidence, queue)
    reason, detail = reason_of(pod)
    if not reason:
        reason, detail = evidence.refusal_of(queue)
    if not reason:
        reason, detail = evidence.reason_in_events(pod)
    stands = "The pod names no group, so it waits on its own"
    if project:
        stands = f"The pod's group {name} is a PodGroup of {project}"
    elif maker:
        stands = f"The pod is in the group of {maker.kind.lower()}/{maker.name}, which has no PodGroup"
    elif name:
        stands = "The pod's group, which is its own, has no PodGroup"
    if reason:
        case = Case(evidence, pod.metadata.namespace, queue, detail, pod=pod.metadata.name)
        answer = _with_reason(_answer(pod, Stands.WAITING, f"{stands}. {sentence(reason)}"), reason, case)
    elif is_gated(pod):
        message = f"{stands}. It is behind Muster's scheduling gate; what for, its events do not say yet."
        answer = _answer(pod, Stands.WAITING, message, _NAME_A_GROUP)
    else:
        message = f"{stands}. Nothing on it says yet what it waits for."
        offers = [offered(evidence, checking())]
        answer = replace(_answer(pod, Stands.UNSEEN, message, NOT_LOOKED_AT), commands=offers)
    notes = [*misnamed(evidence, pod), *in_queue(queue, figures), *evidence.notes]
    return replace(answer, queue=figures, notes=notes)
