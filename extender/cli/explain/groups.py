"""Why a group waits, or how it stands: its condition as a sentence, with what members and queues add."""

from collections.abc import Mapping

from extender.api.keys import GATE
from extender.api.objects.pods import Pod
from extender.cli.explain.blockers import holders
from extender.cli.explain.case import Case
from extender.cli.explain.commands import commands
from extender.cli.explain.evidence import Evidence
from extender.cli.explain.explanation import (
    OVER,
    RUNNING,
    STARTING,
    UNSEEN,
    WAITING,
    Explanation,
    MemberCounts,
    OfferedCommand,
    QueueFigures,
    Uncounted,
    member_counts,
    queue_figures_of,
)
from extender.cli.explain.offers import checking, offered
from extender.cli.explain.remedies import remedy, sentence
from extender.cli.explain.uncounted import renaming, uncounted
from extender.cli.observed import ObservedGroup
from extender.domain.model.reasons import NOT_WAITING, Reason

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
        remedies=[*(each.remedy for each in strays), *_remedies(verdict, reason)],
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
    left_out = {name for each in strays if each.namespace == group.namespace for name in each.pods}
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
    return [offered(evidence, each) for each in renaming(group, strays)]


def _commands(verdict: str, reason: str, case: Case) -> list[OfferedCommand]:
    if verdict == UNSEEN:
        return not_looked_at(case.evidence)
    return commands(reason, case) if verdict in (WAITING, RUNNING) else []


def not_looked_at(evidence: Evidence) -> list[OfferedCommand]:
    return [offered(evidence, checking())]
