"""Why a group waits, or how it stands: its condition in words, with what members and queues add to it."""

from collections.abc import Mapping

from extender.api.keys import GATE
from extender.api.objects import Pod
from extender.cli.explain.blockers import holders
from extender.cli.explain.evidence import Evidence
from extender.cli.explain.explanation import (
    OVER,
    RUNNING,
    STARTING,
    UNSEEN,
    WAITING,
    Explanation,
    MemberCounts,
    QueueFigures,
    member_counts,
    queue_figures_of,
)
from extender.cli.explain.remedies import remedy, sentence
from extender.cli.observed import ObservedGroup
from extender.domain.model.reasons import NOT_WAITING

NOT_LOOKED_AT = (
    "Wait a moment. If it stays so, Muster does not run, or does not lead: ask the administrator to look at"
    " its readiness (/readyz) and its log."
)
_VERDICTS = {
    "Pending": WAITING,
    "Inqueue": STARTING,
    "Running": RUNNING,
    "Unknown": RUNNING,
    "Completed": OVER,
}


def explain_group(evidence: Evidence, group: ObservedGroup) -> Explanation:
    members = _members(evidence, group)
    verdict, reason = _verdict(group, members), _reason(group)
    said = group.scheduled
    name = evidence.queue_of(group)
    figures = queue_figures(evidence, name)
    return Explanation(
        kind="PodGroup",
        name=group.name,
        namespace=group.namespace,
        verdict=verdict,
        sentence=_sentence(verdict, reason, members),
        reason=reason if verdict in (WAITING, RUNNING) else "",
        detail=said.message if said else "",
        since=said.last_transition_time if said else None,
        members=members,
        queue=figures,
        holders=holders(evidence, group, reason) if verdict in (WAITING, RUNNING) else [],
        remedies=_remedies(verdict, reason),
        notes=[*in_queue(name, figures), *evidence.notes],
    )


def queue_figures(evidence: Evidence, name: str) -> QueueFigures | None:
    queue = evidence.queue(name)
    return queue_figures_of(queue) if queue else None


def in_queue(name: str, figures: QueueFigures | None) -> list[str]:
    """The queue, where there are no figures to name it."""
    return [] if figures else [f"It is in queue {name}."]


def _members(evidence: Evidence, group: ObservedGroup) -> MemberCounts | None:
    pods: list[Pod] | None = evidence.members(group)
    return None if pods is None else member_counts(group.spec.min_member, pods, GATE)


def _verdict(group: ObservedGroup, members: MemberCounts | None) -> str:
    if members and not members.there and members.succeeded + members.failed:
        return OVER
    return _VERDICTS.get(group.course, UNSEEN) if group.scheduled else UNSEEN


def _reason(group: ObservedGroup) -> str:
    """Empty for a group that does not wait."""
    said = group.scheduled
    return said.reason if said and said.reason not in NOT_WAITING else ""


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
