"""Why a pod waits. Most of it is about its group; the rest is what sets it apart from its group."""

from msgspec.structs import replace

from extender.api.keys import DEFAULT_SCHEDULER, ENDED_PHASES, GROUP_ANNOTATION
from extender.api.objects.pods import Pod
from extender.cli.why.evidence import Evidence, OtherGroup
from extender.cli.why.explanation import (
    ENDING,
    FOREIGN,
    PLACED,
    SCHEDULERS,
    Explanation,
    foreign_gates,
    is_gated,
    member_counts,
    ours,
    reason_of,
    scheduled,
)
from extender.cli.why.groups import NOT_LOOKED_AT, explain_group, in_queue, misnamed, queue_figures
from extender.cli.why.offers import Case, checking, commands, describing, offered
from extender.domain.explain.observed import ObservedGroup
from extender.domain.model.ownership import auto_name, group_name, maker_of
from extender.domain.model.queue_of_group import explicit_queue
from extender.domain.model.reasons import Reason, Verdict, remedy, sentence
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
        return _answer(pod, Verdict.WAITING, message, advice)
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
        return replace(_answer(pod, FOREIGN, message, advice), detail=scheduled(pod).message)
    if name and (group := evidence.group(name)):
        return _member(evidence, pod, group)
    if name and (other := evidence.other_group(name)):
        return _in_other_group(evidence, pod, other)
    if not name or name == auto_name(pod):
        return _alone(evidence, pod)
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
        return _answer(pod, Verdict.ENDED, f"The pod has ended: {how}.")
    if meta.deletion_timestamp:
        where = f" on node {node}" if node else ""
        return _answer(pod, ENDING, f"The pod is being deleted{where}.", since=meta.deletion_timestamp)
    if not node:
        return None
    since, notes = scheduled(pod).last_transition_time or "", misnamed(evidence, pod)
    if phase == "Running":
        message = f"The pod does not wait: it runs on node {node}."
        return replace(_answer(pod, PLACED, message, since=since), notes=notes)
    message = f"The pod does not wait for a place: it is on node {node}, which is to start its containers."
    offers = [offered(evidence, describing(meta.namespace, meta.name, "see how far it is"))]
    return replace(_answer(pod, PLACED, message, since=since), notes=notes, commands=offers)


def _member(evidence: Evidence, pod: Pod, group: ObservedGroup) -> Explanation:
    """The group's answer, about one of its members."""
    of_group = explain_group(evidence, group, pod.metadata.name)
    named = replace(of_group, kind="Pod", name=pod.metadata.name, group=group.name)
    if of_group.verdict == Verdict.WAITING:
        stands = "waits with its whole group" if group.spec.min_member > 1 else "does not wait for others"
        return replace(named, sentence=f"The pod {stands}. {of_group.sentence}")
    if of_group.verdict == Verdict.RUNNING:
        # It is more than the group needs, or replaces a lost one.
        reason, detail = (named.reason, named.detail) if named.reason else reason_of(pod)
        message = (
            f"Its group runs without it. {sentence(reason)}" if reason else "Its group runs; it is to follow."
        )
        since = pod.metadata.creation_timestamp
        waits = replace(named, verdict=Verdict.WAITING, sentence=message, since=since)
        case = Case(evidence, group.namespace, evidence.queue_of(group), detail, group, pod.metadata.name)
        return _with_reason(waits, reason, case)
    if of_group.verdict != Verdict.STARTING:
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
    return _with_reason(_answer(pod, Verdict.WAITING, message), Reason.GROUP_NOT_FOUND, case)


def _in_other_group(evidence: Evidence, pod: Pod, other: OtherGroup) -> Explanation:
    """Of another project than Volcano: Muster writes on it no more than why it waits."""
    record, meta = other.record, pod.metadata
    counts = None
    if evidence.pods is not None:
        members = [each for each in evidence.pods if group_name(each) == record.name]
        counts = member_counts(record.min_member, members)
    queue = evidence.queue_of_pods(meta.namespace, explicit_queue(record.queue), record.local_queue)
    told = evidence.reason_in_events("PodGroup", record.name)
    if not told[0]:
        told = evidence.reason_in_events("Pod", meta.name)
    there = counts.there if counts else 0
    case = Case(evidence, meta.namespace, queue, pod=meta.name, there=there, other=other)
    stands = f"The pod's group {record.name} is a PodGroup of {other.project}"
    answer = _by_itself(evidence, pod, stands, told, case, "Its events will say what it waits for.")
    fewer = [text.replace("minMember", other.number[-1]) for text in answer.remedies]
    return replace(answer, members=counts, remedies=fewer)


def _alone(evidence: Evidence, pod: Pod) -> Explanation:
    queue, name, maker = evidence.queue_of_pod(pod), group_name(pod), maker_of(pod)
    stands = "The pod names no group, so it waits on its own"
    if maker:
        stands = f"The pod is in the group of {maker.spoken_name}, which has no PodGroup"
    elif name:
        stands = "The pod's group, which is its own, has no PodGroup"
    told = evidence.reason_in_events("Pod", pod.metadata.name)
    case = Case(evidence, pod.metadata.namespace, queue, pod=pod.metadata.name)
    answer = _by_itself(evidence, pod, stands, told, case, _NAME_A_GROUP)
    return replace(answer, notes=[*evidence.unheeded_by(maker, queue), *answer.notes])


def _by_itself(
    evidence: Evidence, pod: Pod, stands: str, told: tuple[str, str], case: Case, advice: str
) -> Explanation:
    """Where no PodGroup of Volcano's says how it stands. `told`: the reason and the numbers in events;
    `advice`: what helps while there are none."""
    figures = queue_figures(evidence, case.queue)
    reason, detail = reason_of(pod)
    if not reason:
        reason, detail = evidence.refusal_of(case.queue)
    if not reason or (reason == told[0] and not detail):
        reason, detail = told
    if reason:
        says = f"{stands}. {sentence(reason)}"
        answer = _with_reason(_answer(pod, Verdict.WAITING, says), reason, case._replace(detail=detail))
    elif is_gated(pod):
        message = f"{stands}. It is behind Muster's scheduling gate; what for, its events do not say yet."
        answer = _answer(pod, Verdict.WAITING, message, advice)
    else:
        message = f"{stands}. Nothing on it says yet what it waits for."
        offers = [offered(evidence, checking())]
        answer = replace(_answer(pod, Verdict.UNKNOWN, message, NOT_LOOKED_AT), commands=offers)
    notes = [*misnamed(evidence, pod), *in_queue(case.queue, figures), *evidence.notes]
    return replace(answer, queue=figures, notes=notes)
