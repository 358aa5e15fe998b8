"""Starts that failed: bound members are undone, and the group backs off, longer each time."""

from extender.domain.decisions.decisions import GroupDecision
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import Uid
from extender.domain.scheduling.round import Round
from extender.domain.snapshot.group_view import GroupView

TOO_LATE = "the group did not stand whole within its deadline"


def fail(round_: Round, group: GroupView, why: str, moved: dict[Uid, str] | None = None) -> GroupDecision:
    """End a start that did not stand whole: its claims are free at once, bound members are undone."""
    retry_at = round_.snapshot.now + round_.limits.retry_after(group.start.failures)
    round_.wake_at.append(retry_at)
    return GroupDecision(
        group.key,
        group.queue,
        Verdict.WAITING,
        Reason.BACKING_OFF,
        why,
        undo=_bound(group),
        failed=why,
        retry_at=retry_at,
        moved=moved or {},
    )


def back_off(round_: Round, group: GroupView) -> GroupDecision:
    """It waits until it may try again; members that are still bound are still to be undone."""
    round_.wake_at.append(group.start.retry_at)
    return GroupDecision(
        group.key,
        group.queue,
        Verdict.WAITING,
        Reason.BACKING_OFF,
        group.start.failure,
        undo=_bound(group),
        retry_at=group.start.retry_at,
    )


def _bound(group: GroupView) -> tuple[Uid, ...]:
    return tuple(pod.uid for pod in group.placed if pod.node)
