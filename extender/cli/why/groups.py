"""Why a group waits, or how it stands: its condition as a sentence, with what members and queues add, and
pods that were meant for it and do not count."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from typing import NamedTuple

from extender.api.keys import DEFAULT_SCHEDULER, ENDED_PHASES, GROUP_ANNOTATION, GROUP_LABEL
from extender.api.objects.pods import Pod
from extender.cli.why.evidence import Evidence
from extender.cli.why.explanation import (
    SCHEDULERS,
    Explanation,
    MemberCounts,
    QueueFigures,
    Uncounted,
    foreign_gates,
    member_counts,
    ours,
    queue_figures_of,
)
from extender.cli.why.offers import Case, Offer, annotating, checking, commands, offered
from extender.cli.why.queues import holders, taking_back
from extender.domain.explain.observed import ObservedGroup
from extender.domain.model.ownership import auto_name, group_name
from extender.domain.model.reasons import TO_START_WHOLE, Reason, Verdict, remedy, sentence
from extender.kube.access import right_to
from extender.kube.resources import PODS
from extender.terminal.text import near_miss

NOT_LOOKED_AT = "Wait a moment. If it stays so, Muster does not run, or does not lead."
_PLAIN: Mapping[str, str] = {
    Verdict.STARTING: "It was admitted, and its members are being placed. None runs before all that it needs"
    " can.",
    Verdict.RUNNING: "It runs: all members that it needs are on nodes.",
    Verdict.ENDED: "It has ended.",
    Verdict.UNKNOWN: "Muster has not looked at it yet.",
}

_OF_REFUSED = "Raise the quota that it names, or ask whoever runs the webhook."
_ALIKE = 0.8  # of two keys, by difflib
_GROUP_NAMES = {"group", "groupname", "podgroup", "podgroupname"}  # of such keys, letters only
_MOST = 6  # pods that one command changes
_RIGHT_NAME = f"the pods have to name the group by the annotation {GROUP_ANNOTATION}"
_TEMPLATE = "Correct it in the template that the pods are made from"


def explain_group(evidence: Evidence, group: ObservedGroup, pod: str = "") -> Explanation:
    """`pod`: the member that is asked about, if one is."""
    scheduled, reason = group.scheduled, group.reason
    # Pods that do not count are looked for where they could be what it lacks.
    lacks = scheduled is None or scheduled.reason == Reason.NOT_ENOUGH_MEMBERS
    strays = uncounted(evidence, group) if lacks else []
    left_out = {name for stray in strays if stray.namespace == group.namespace for name in stray.pods}
    members, counts, waiting = evidence.members(group), None, ""
    if members is not None:
        counted = [member for member in members if member.metadata.name not in left_out]
        counts = member_counts(group.spec.min_member, counted)
        waiting = next((member.metadata.name for member in members if not member.spec.node_name), "")
    verdict, says = _standing(group, counts)
    refusal = ""
    if group.maker and (lacks or verdict == Verdict.STARTING) and counts and counts.there < counts.needed:
        refusal = evidence.refusal(group.maker)
        made = f"Its controller has created {counts.there} of {counts.needed} pods"
        says += f" {made}: {refusal}." if refusal else ""
    blocked = verdict in (Verdict.WAITING, Verdict.STARTING, Verdict.RUNNING)
    name, asked = evidence.queue_of(group), evidence.queue_asked_for(group)
    figures = queue_figures(evidence, name)
    there = counts.there if counts and not strays else 0  # with strays it is not known how many it will have
    case = Case(evidence, group.namespace, name, group.message, group, pod or waiting, there=there)
    ahead = holders(evidence, group, reason) if blocked else []
    is_here = group.namespace == evidence.namespace
    unheeded = evidence.unheeded_by(group.maker, asked) if blocked and is_here else []
    if verdict == Verdict.UNKNOWN:
        remedies, offers = [NOT_LOOKED_AT], [offered(evidence, checking())]
    else:
        remedies = [remedy(reason)] if blocked and remedy(reason) else []
        remedies += taking_back(evidence, group, ahead)
        remedies = [_OF_REFUSED] if refusal else remedies
        offers = commands(reason, case) if blocked else []
    return Explanation(
        kind="PodGroup",
        name=group.name,
        namespace=group.namespace,
        verdict=verdict,
        sentence=says,
        reason=reason if blocked else "",
        detail=group.message,
        since=scheduled.last_transition_time if scheduled else None,
        estimate=group.waiting.estimate if verdict == Verdict.WAITING else None,
        members=counts,
        queue=figures,
        uncounted=strays,
        holders=ahead,
        remedies=[*(stray.remedy for stray in strays), *remedies],
        commands=[*(offered(evidence, offer) for offer in renaming(group, strays)), *offers],
        notes=[*in_queue(name, figures), *_kept_from(asked, name), *unheeded, *evidence.notes],
    )


def queue_figures(evidence: Evidence, name: str) -> QueueFigures | None:
    queue = evidence.queue(name)
    return queue_figures_of(queue) if queue else None


def in_queue(name: str, figures: QueueFigures | None) -> list[str]:
    """The queue, where there are no figures to name it."""
    return [] if figures else [f"It is in queue {name}."]


def _kept_from(asked: str, name: str) -> list[str]:
    """Where a group counts elsewhere than in the queue that it is sent to."""
    if asked == name:
        return []
    text = f"It is sent to queue {asked}, but has started in queue {name} and counts there"
    return [f"{text} until none of its pods holds room."]


def _standing(group: ObservedGroup, members: MemberCounts | None) -> tuple[str, str]:
    verdict = group.verdict
    if members and members.succeeded + members.failed and (verdict == Verdict.ENDED or not members.there):
        return (
            Verdict.ENDED,
            f"Its members have ended: {members.succeeded} succeeded, {members.failed} failed.",
        )
    if verdict == Verdict.WAITING:
        says = sentence(group.reason)
    elif verdict == Verdict.RUNNING and group.reason:
        says = f"It runs. Further members wait: {sentence(group.reason)}"
    elif verdict == Verdict.STARTING and group.reason:
        says = f"It was admitted. {sentence(group.reason)}"
    else:
        says = _PLAIN[verdict]
    # Of pods that start one by one, how many have, and what would have them start together.
    starts_apart = group.maker is not None and group.spec.min_member <= 1
    may_start_more = starts_apart and verdict in (Verdict.WAITING, Verdict.RUNNING)
    if may_start_more and members and members.placed < members.there > 1:
        says += f" {members.placed} of {members.there} pods run. {TO_START_WHOLE}"
    return verdict, says


# ---- pods that do not count


class Exclusion(NamedTuple):
    text: str
    remedy: str
    misnamed: bool = False


def uncounted(evidence: Evidence, group: ObservedGroup) -> list[Uncounted]:
    """Nothing where pods may not be read."""
    if group.namespace != evidence.namespace:
        return []
    found = [(pod, cause) for pod in evidence.pods or () if (cause := _cause(evidence, group, pod))]
    # Those that wait for a group of this name in a namespace that has none.
    homes = {other.namespace for other in evidence.groups if other.name == group.name}
    for pod in evidence.waiting_pods:
        place = pod.metadata.namespace
        if group_name(pod) == group.name and place not in homes:
            text = f"it is in namespace {place}, and members are in the namespace of their group"
            found.append((pod, Exclusion(text, f"{_again('namespace')} in the namespace of the group.")))
    by_cause: dict[Exclusion, list[Pod]] = {}
    for pod, cause in found:
        by_cause.setdefault(cause, []).append(pod)
    return [
        Uncounted([pod.metadata.name for pod in pods], pods[0].metadata.namespace or group.namespace, *cause)
        for cause, pods in by_cause.items()
    ]


def renaming(group: ObservedGroup, found: Iterable[Uncounted]) -> Iterator[Offer]:
    """How a few pods that name the group wrongly are put right; many are better made anew."""
    for stray in found:
        if stray.misnamed and len(stray.pods) <= _MOST:
            line = annotating(group.namespace, stray.pods, group.name)
            pods = "the pod" if len(stray.pods) == 1 else "the pods"
            yield Offer(f"name the group on {pods}", line, right_to("patch", PODS, group.namespace))


def misnamed(evidence: Evidence, pod: Pod) -> list[str]:
    """That a pod names a group that there is, and not in the way that counts."""
    written, named = _wrong_key(pod, lambda value: any(group.name == value for group in evidence.groups_here))
    if not named or named == group_name(pod):
        return []
    return [f"It names podgroup/{named} by the {written}; what counts is the annotation {GROUP_ANNOTATION}."]


def _cause(evidence: Evidence, group: ObservedGroup, pod: Pod) -> Exclusion | None:
    if pod.status.phase in ENDED_PHASES or pod.metadata.deletion_timestamp:
        return None
    named = group_name(pod)
    if named == group.name:
        scheduler = pod.spec.scheduler_name or DEFAULT_SCHEDULER
        if not ours(pod) and not any(
            other.spec.scheduler_name == scheduler and ours(other) for other in evidence.pods or ()
        ):
            text = f"schedulerName is {scheduler}, and Muster's is {SCHEDULERS[0]}"
            return Exclusion(text, f"{_again('schedulerName')} with schedulerName: {SCHEDULERS[0]}.")
        if gates := foreign_gates(pod):
            text = f"other scheduling gates hold it back: {', '.join(gates)}"
            return Exclusion(text, "Scheduling gates are removed by those who set them.")
        return None
    if named in ("", auto_name(pod)):
        written, _ = _wrong_key(pod, lambda value: value == group.name)
        text = f"the group is named by the {written}, not by the annotation {GROUP_ANNOTATION}"
        return Exclusion(text, f"{_TEMPLATE}: {_RIGHT_NAME}.", misnamed=True) if written else None
    names = [other.name for other in evidence.groups_here]
    if named in names or near_miss(named, names) != group.name:
        return None
    text = f"it names the group {named}, which does not exist"
    return Exclusion(text, f"{_TEMPLATE}: there is no group {named}.", misnamed=True)


def _again(field: str) -> str:
    return f"The {field} of a pod cannot be changed: create the pods anew"


def _wrong_key(pod: Pod, is_group: Callable[[str], bool]) -> tuple[str, str]:
    """How a pod names a group in a wrong way, and that group; empty where nothing does."""
    meta = pod.metadata
    for place, values in (("annotation", meta.annotations or {}), ("label", meta.labels or {})):
        for key, value in values.items():
            if _is_near_miss(place, key) and is_group(value):
                return f"{place} {key}", value
    return "", ""


def _is_near_miss(place: str, key: str) -> bool:
    if key in (GROUP_ANNOTATION, GROUP_LABEL):
        return (place, key) not in (("annotation", GROUP_ANNOTATION), ("label", GROUP_LABEL))
    letters = re.sub(r"[^a-z]", "", key.rpartition("/")[2].lower())
    return letters in _GROUP_NAMES or SequenceMatcher(None, key, GROUP_ANNOTATION).ratio() >= _ALIKE
