"""Starts that failed: bound members are undone, and the group backs off, longer each time."""

from typing import NamedTuple

from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import Uid
from extender.domain.scheduling.plans import KeptPlan
from extender.domain.scheduling.round import TOO_DEAR, Round
from extender.domain.snapshot.decisions import GroupDecision
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.wholeness import partly_placed_since

TOO_LATE = "the group did not stand whole within its deadline"


def fail(round_: Round, group: GroupView, why: str, moved: dict[Uid, str] | None = None) -> GroupDecision:
    """End a start that did not stand whole: its claims are free at once, bound members are undone."""
    retry_at = round_.snapshot.now + round_.limits.retry_after(group.start.failures)
    round_.look_again_at(retry_at)
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
        rotation=None if group.start.rotation is None else group.start.rotation + 1,
    )


def back_off(round_: Round, group: GroupView) -> GroupDecision:
    """It waits until it may try again; members that are still bound are still to be undone."""
    round_.look_again_at(group.start.retry_at)
    return GroupDecision(
        group.key,
        group.queue,
        Verdict.WAITING,
        Reason.TOO_COMPLEX if group.start.failure == TOO_DEAR else Reason.BACKING_OFF,
        group.start.failure,
        undo=_bound(group),
        retry_at=group.start.retry_at,
    )


class Retry(NamedTuple):
    """When members may be tried again that join a group on its feet."""

    at: float = 0.0  # the moment; 0: none of them was refused
    waits: bool = False  # whether that is still to come
    failed: str = ""  # why they were refused, where that is news


def retry_of(round_: Round, kept: KeptPlan) -> Retry:
    """Replacements and elastic members that the scheduler refuses move to other nodes at first. Where that
    does not help either, they back off, and leave their places in the window to others."""
    start, now = kept.group.start, round_.snapshot.now
    if kept.moved:
        failures = start.failures - 2  # after the first refusals the next node is tried at once
        at = now + round_.limits.retry_after(failures) if failures >= 0 else now
        failed = why_no_plan(kept)
    elif start.failures and (kept.unplanned or kept.plan):
        at, failed = start.retry_at, ""
    else:
        return Retry()
    return Retry(at, not round_.is_due(at), failed)


def refusal_of(kept: KeptPlan) -> str:
    """What the scheduler said last of a member that has no node yet; empty: nothing."""
    attempts = kept.group.attempts
    lacking = (*(pod for pod, _ in kept.group.pinned), *kept.group.waiting)
    words = (attempts[pod.uid].words for pod in lacking if pod.uid in attempts)
    return next(filter(None, words), "") if attempts else ""


def why_no_plan(kept: KeptPlan) -> str:
    """Why members have no node, as text."""
    unused = "the scheduler did not use the planned nodes in time"
    if any(pod.to_be for pod in kept.group.waiting):
        unused = "its controller has not created all its pods in time"
    return refusal_of(kept) or (unused if kept.moved else "no room for the members that are still missing")


def _bound(group: GroupView) -> tuple[Uid, ...]:
    return tuple(pod.uid for pod in group.placed if pod.node)


def undone(round_: Round, group: GroupView) -> GroupDecision | None:
    """The decision on a group that never stood whole and is not being started, but has members on nodes:
    after a binding that ended later than its start, or where pods were created with the name of a node. They
    have as long as a start may take; then they are undone, whatever else keeps the group waiting. None: not,
    or not yet."""
    since = partly_placed_since(group, round_.snapshot)
    if since is None:
        return None
    if round_.snapshot.now < group.start.retry_at:
        return back_off(round_, group)
    is_late = round_.is_due(since + round_.limits.deadline(group.min_member))
    return fail(round_, group, TOO_LATE) if is_late else None
