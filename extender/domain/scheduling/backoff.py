"""Backoff: retries of groups and members whose start failed or was refused.

A failed start frees its allocations at once, and members that are still bound are evicted. The group is tried
again after a pause that doubles with each failure.
"""

from typing import NamedTuple

from msgspec.structs import replace

from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import Uid
from extender.domain.scheduling.cycle import OVER_BUDGET, Cycle
from extender.domain.scheduling.plans import ActivePlan
from extender.domain.snapshot.decisions import GroupDecision
from extender.domain.snapshot.group_info import GroupInfo, computed_once
from extender.domain.snapshot.wholeness import partly_placed_since

TOO_LATE_TEXT = "the group was not fully running within its deadline"


def fail(cycle: Cycle, group: GroupInfo, why: str, rejected: dict[Uid, str] | None = None) -> GroupDecision:
    """Return the decision that ends a failed start.

    The capacity of the group is free at once, and the bound members are evicted. `rejected` has the
    nodes that the scheduler rejected, by member.
    """
    retry_at = cycle.snapshot.now + cycle.limits.retry_after(group.start.failures)
    cycle.request_cycle_at(retry_at)
    rotation = None if group.start.rotation is None else group.start.rotation + 1
    decision = GroupDecision(group.key, group.queue, Verdict.WAITING, Reason.BACKING_OFF, why)
    return replace(
        decision,
        undo=_bound_members(group),
        failed=why,
        retry_at=retry_at,
        moved=rejected or {},
        rotation=rotation,
    )


def back_off(cycle: Cycle, group: GroupInfo) -> GroupDecision:
    """Return the decision on a group in backoff. Members that are still bound are evicted."""
    cycle.request_cycle_at(group.start.retry_at)
    failure, retry_at = group.start.failure, group.start.retry_at
    reason = Reason.TOO_COMPLEX if failure == OVER_BUDGET else Reason.BACKING_OFF
    decision = GroupDecision(group.key, group.queue, Verdict.WAITING, reason, failure)
    return replace(decision, undo=_bound_members(group), retry_at=retry_at)


class Retry(NamedTuple):
    """Retry of members that join a running group."""

    retry_at: float = 0.0  # time of the retry; 0 if no member was refused
    waits: bool = False  # whether the time of the retry is in the future
    failure: str = ""  # why the members were refused; empty if recorded already


def retry_of(cycle: Cycle, active: ActivePlan) -> Retry:
    """Return the retry of replacements and elastic members that the scheduler refuses.

    Refused members first get other planned nodes. If the scheduler refuses these nodes, too, the members back
    off. While members back off, other groups may use their places in the starting window.
    """
    start, now = active.group.start, cycle.snapshot.now
    if refusal := binding_refusal(active.group):
        return Retry(now + cycle.limits.retry_after(start.failures), waits=True, failure=refusal)
    if active.rejected_nodes:
        failure_count = start.failures - 2  # after the first refusals, try the next node at once
        instant = now + cycle.limits.retry_after(failure_count) if failure_count >= 0 else now
        failure = why_no_plan(active)
    elif start.failures and (active.pods_left or active.plan):
        instant, failure = start.retry_at, ""
    else:
        return Retry()
    return Retry(instant, waits=not cycle.is_due(instant), failure=failure)


@computed_once
def binding_refusal(group: GroupInfo) -> str:
    """Return why a member cannot be bound to any node; empty if no member is refused."""
    return next(filter(None, (attempt.binding_fault for attempt in group.attempts.values())), "")


def refusal_of(active: ActivePlan) -> str:
    """Return the scheduler's message about a member without a node; empty if there is none."""
    attempts = active.group.attempts
    unbound_pods = (*(pod for pod, _ in active.group.assumed_pods), *active.group.waiting_pods)
    messages = (attempts[pod.uid].message for pod in unbound_pods if pod.uid in attempts)
    return next(filter(None, messages), "") if attempts else ""


def why_no_plan(active: ActivePlan) -> str:
    """Return why members have no node, as text for users."""
    text = "the scheduler did not use the planned nodes in time"
    if any(pod.is_expected and not pod.reserved_for for pod in active.group.waiting_pods):
        text = "its controller has not created all its pods in time"
    return refusal_of(active) or (text if active.rejected_nodes else "no capacity for the missing members")


def _bound_members(group: GroupInfo) -> tuple[Uid, ...]:
    """Return the members that are bound to a node."""
    return tuple(pod.uid for pod in group.placed_pods if pod.node)


def undo_decision(cycle: Cycle, group: GroupInfo) -> GroupDecision | None:
    """Return the decision that evicts a pending group's members from their nodes. None means no eviction now.

    A pending group has members on nodes if a binding ended after the end of its start, or if pods were
    created with a node name. While the group backs off, these members are evicted at once. Otherwise, they
    are evicted once they have been on nodes for longer than a start may take.
    """
    placed_since = partly_placed_since(group, cycle.snapshot)
    if placed_since is None:
        return None
    if cycle.snapshot.now < group.start.retry_at:
        return back_off(cycle, group)
    is_late = cycle.is_due(placed_since + cycle.limits.deadline(group.min_member))
    return fail(cycle, group, TOO_LATE_TEXT) if is_late else None
