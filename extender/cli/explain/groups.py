"""Why a group waits, or how it stands: its condition as a sentence, with what members and queues add."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from typing import NamedTuple

from extender.api.keys import DEFAULT_SCHEDULER, ENDED_PHASES, GATE, GROUP_ANNOTATION, GROUP_LABEL
from extender.api.objects.pods import Pod
from extender.cli.explain.evidence import Evidence
from extender.cli.explain.explanation import (
    OVER,
    RUNNING,
    SCHEDULERS,
    STARTING,
    UNSEEN,
    WAITING,
    Explanation,
    MemberCounts,
    OfferedCommand,
    QueueFigures,
    Uncounted,
    foreign_gates,
    member_counts,
    ours,
    queue_figures_of,
)
from extender.cli.explain.offers import Case, Offer, annotating, checking, commands, offered
from extender.cli.explain.queues import holders
from extender.cli.lookup import right_to
from extender.cli.observed import ObservedGroup
from extender.domain.explain.remedies import remedy, sentence
from extender.domain.model.ownership import auto_name, group_name
from extender.domain.model.reasons import NOT_WAITING, Reason
from extender.kube.resources import PODS
from extender.terminal.text import near_miss

# ---- Pods that were meant for a group and are no members of it, each with the cause.
#
# A pod counts if it names the group by the annotation, is in the group's namespace, is Muster's by its
# schedulerName, and is not held back by the gates of others.

_ALIKE = 0.8  # of two keys, by difflib
_GROUP_NAMES = {"group", "groupname", "podgroup", "podgroupname"}  # of such keys, letters only
_MOST = 6  # pods that one command changes
_RIGHT_NAME = f"the pods have to name the group by the annotation {GROUP_ANNOTATION}"
_TEMPLATE = "Correct it in the template that the pods are made from"


class Exclusion(NamedTuple):
    text: str
    remedy: str
    misnamed: bool = False


def uncounted(evidence: Evidence, group: ObservedGroup) -> list[Uncounted]:
    """Nothing where pods may not be read."""
    if group.namespace != evidence.namespace:
        return []
    found = [(pod, cause) for pod in evidence.pods or () if (cause := _cause(evidence, group, pod))]
    found += [(pod, _elsewhere(pod)) for pod in _of_other_namespaces(evidence, group)]
    return [_together(group, cause, found) for cause in dict.fromkeys(cause for _, cause in found)]


def renaming(group: ObservedGroup, found: Iterable[Uncounted]) -> Iterator[Offer]:
    """How few pods that name the group wrongly are put right; many are better made anew."""
    for stray in found:
        if stray.misnamed and len(stray.pods) <= _MOST:
            line = annotating(group.namespace, stray.pods, group.name)
            pods = "the pod" if len(stray.pods) == 1 else "the pods"
            yield Offer(f"name the group on {pods}", line, right_to("patch", PODS, group.namespace))


def wrong_key(pod: Pod, is_group: Callable[[str], bool]) -> tuple[str, str]:
    """How a pod names a group in a wrong way, and that group; empty where nothing does."""
    meta = pod.metadata
    for place, values in (("annotation", meta.annotations or {}), ("label", meta.labels or {})):
        for key, value in values.items():
            if _is_near_miss(place, key) and is_group(value):
                return f"{place} {key}", value
    return "", ""


def misnamed(evidence: Evidence, pod: Pod) -> list[str]:
    """That a pod names a group that there is, and not in the way that counts."""
    written, group = wrong_key(
        pod, lambda value: any(group_here.name == value for group_here in evidence.groups_here)
    )
    if not group or group == group_name(pod):
        return []
    return [f"It names podgroup/{group} by the {written}; what counts is the annotation {GROUP_ANNOTATION}."]


# ---- one pod


def _cause(evidence: Evidence, group: ObservedGroup, pod: Pod) -> Exclusion | None:
    if pod.status.phase in ENDED_PHASES or pod.metadata.deletion_timestamp:
        return None
    named = group_name(pod)
    if named == group.name:
        return _not_ours(evidence, pod) or _held_back(pod)
    if named in ("", auto_name(pod)):
        written, _ = wrong_key(pod, lambda value: value == group.name)
        return _misnamed(written) if written else None
    return _misspelt(named) if _is_misspelt(evidence, group, named) else None


def _not_ours(evidence: Evidence, pod: Pod) -> Exclusion | None:
    scheduler = pod.spec.scheduler_name or DEFAULT_SCHEDULER
    if ours(pod) or scheduler in {pod.spec.scheduler_name for pod in evidence.pods or () if ours(pod)}:
        return None
    remedy = f"{_again('schedulerName')} with schedulerName: {SCHEDULERS[0]}."
    return Exclusion(f"schedulerName is {scheduler}, and Muster's is {SCHEDULERS[0]}", remedy)


def _held_back(pod: Pod) -> Exclusion | None:
    if not (gates := foreign_gates(pod)):
        return None
    return Exclusion(
        f"other scheduling gates hold it back: {', '.join(gates)}",
        "Scheduling gates are removed by those who set them.",
    )


def _misnamed(written: str) -> Exclusion:
    text = f"the group is named by the {written}, not by the annotation {GROUP_ANNOTATION}"
    return Exclusion(text, f"{_TEMPLATE}: {_RIGHT_NAME}.", misnamed=True)


def _misspelt(named: str) -> Exclusion:
    text = f"it names the group {named}, which does not exist"
    return Exclusion(text, f"{_TEMPLATE}: there is no group {named}.", misnamed=True)


def _elsewhere(pod: Pod) -> Exclusion:
    return Exclusion(
        f"it is in namespace {pod.metadata.namespace}, and members are in the namespace of their group",
        f"{_again('namespace')} in the namespace of the group.",
    )


def _again(field: str) -> str:
    return f"The {field} of a pod cannot be changed: create the pods anew"


# ---- near misses


def _is_near_miss(place: str, key: str) -> bool:
    if key in (GROUP_ANNOTATION, GROUP_LABEL):
        return (place, key) not in (("annotation", GROUP_ANNOTATION), ("label", GROUP_LABEL))
    letters = re.sub(r"[^a-z]", "", key.rpartition("/")[2].lower())
    return letters in _GROUP_NAMES or SequenceMatcher(None, key, GROUP_ANNOTATION).ratio() >= _ALIKE


def _is_misspelt(evidence: Evidence, group: ObservedGroup, named: str) -> bool:
    """There is no group of that name, and of those that there are this one is the most like it."""
    names = [other.name for other in evidence.groups_here]
    return named not in names and near_miss(named, names) == group.name


def _of_other_namespaces(evidence: Evidence, group: ObservedGroup) -> Iterator[Pod]:
    """Those that wait for a group of this name where there is none."""
    homes = {other.namespace for other in evidence.groups if other.name == group.name}
    for pod in evidence.waiting_pods_of_all:
        if group_name(pod) == group.name and pod.metadata.namespace not in homes:
            yield pod


def _together(group: ObservedGroup, cause: Exclusion, found: list[tuple[Pod, Exclusion]]) -> Uncounted:
    pods = [pod for pod, found_cause in found if found_cause == cause]
    namespace = pods[0].metadata.namespace or group.namespace
    return Uncounted([pod.metadata.name for pod in pods], namespace, *cause)


# ---- Why a group waits, or how it stands: its condition as a sentence, with what members and queues
# add.

NOT_LOOKED_AT = "Wait a moment. If it stays so, Muster does not run, or does not lead."
_VERDICTS = {
    "Pending": WAITING,
    "Inqueue": STARTING,
    "Running": RUNNING,
    "Unknown": RUNNING,
    "Completed": OVER,
}


def explain_group(evidence: Evidence, group: ObservedGroup, pod: str = "") -> Explanation:
    """`pod`: the member that is asked about, if one is."""
    strays = _strays(evidence, group)
    members = _members(evidence, group, strays)
    verdict, reason = _verdict(group, members), _reason(group)
    scheduled = group.scheduled
    name = evidence.queue_of(group)
    figures = queue_figures(evidence, name)
    there = (
        members.there if members and not strays else 0
    )  # with strays it is not known how many it will have
    case = Case(
        evidence,
        group.namespace,
        name,
        scheduled.message if scheduled else "",
        group,
        pod or _one_that_waits(evidence, group),
        there=there,
    )
    return Explanation(
        kind="PodGroup",
        name=group.name,
        namespace=group.namespace,
        verdict=verdict,
        sentence=_sentence(verdict, reason, members),
        reason=reason if verdict in (WAITING, RUNNING) else "",
        detail=scheduled.message if scheduled else "",
        since=scheduled.last_transition_time if scheduled else None,
        members=members,
        queue=figures,
        uncounted=strays,
        holders=holders(evidence, group, reason) if verdict in (WAITING, RUNNING) else [],
        remedies=[*(stray.remedy for stray in strays), *_remedies(verdict, reason)],
        commands=[*_renaming(evidence, group, strays), *_commands(verdict, reason, case)],
        notes=[*in_queue(name, figures), *evidence.notes],
    )


def queue_figures(evidence: Evidence, name: str) -> QueueFigures | None:
    queue = evidence.queue(name)
    return queue_figures_of(queue) if queue else None


def in_queue(name: str, figures: QueueFigures | None) -> list[str]:
    """The queue, where there are no figures to name it."""
    return [] if figures else [f"It is in queue {name}."]


def _strays(evidence: Evidence, group: ObservedGroup) -> list[Uncounted]:
    """Looked for where they could be what it lacks."""
    lacks = group.scheduled is None or group.scheduled.reason == Reason.NOT_ENOUGH_MEMBERS
    return uncounted(evidence, group) if lacks else []


def _members(evidence: Evidence, group: ObservedGroup, strays: list[Uncounted]) -> MemberCounts | None:
    """Without the pods that name it and do not count."""
    pods: list[Pod] | None = evidence.members(group)
    left_out = {name for stray in strays if stray.namespace == group.namespace for name in stray.pods}
    if pods is None:
        return None
    counted = [pod for pod in pods if pod.metadata.name not in left_out]
    return member_counts(group.spec.min_member, counted, GATE)


def _verdict(group: ObservedGroup, members: MemberCounts | None) -> str:
    if members and not members.there and members.succeeded + members.failed:
        return OVER
    return _VERDICTS.get(group.course, UNSEEN) if group.scheduled else UNSEEN


def _reason(group: ObservedGroup) -> str:
    """Empty for a group that does not wait."""
    scheduled = group.scheduled
    return scheduled.reason if scheduled and scheduled.reason not in NOT_WAITING else ""


def _sentence(verdict: str, reason: str, members: MemberCounts | None) -> str:
    if verdict == WAITING:
        return sentence(reason)
    if verdict == RUNNING and reason:
        return f"It runs. Further members wait: {sentence(reason)}"
    if verdict == OVER and members and members.succeeded + members.failed:
        return f"Its members have ended: {members.succeeded} succeeded, {members.failed} failed."
    return _PLAIN[verdict]


_PLAIN: Mapping[str, str] = {
    STARTING: "It was admitted, and its members are being placed. None runs before all that it needs can.",
    RUNNING: "It runs: all members that it needs are on nodes.",
    OVER: "It has ended.",
    UNSEEN: "Muster has not looked at it yet.",
}


def _remedies(verdict: str, reason: str) -> list[str]:
    if verdict == UNSEEN:
        return [NOT_LOOKED_AT]
    return [remedy(reason)] if verdict in (WAITING, RUNNING) and remedy(reason) else []


# ---- commands


def _one_that_waits(evidence: Evidence, group: ObservedGroup) -> str:
    return next((pod.metadata.name for pod in evidence.members(group) or () if not pod.spec.node_name), "")


def _renaming(evidence: Evidence, group: ObservedGroup, strays: list[Uncounted]) -> list[OfferedCommand]:
    return [offered(evidence, offer) for offer in renaming(group, strays)]


def _commands(verdict: str, reason: str, case: Case) -> list[OfferedCommand]:
    if verdict == UNSEEN:
        return not_looked_at(case.evidence)
    return commands(reason, case) if verdict in (WAITING, RUNNING) else []


def not_looked_at(evidence: Evidence) -> list[OfferedCommand]:
    return [offered(evidence, checking())]
