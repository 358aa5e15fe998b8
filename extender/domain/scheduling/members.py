"""Members of admitted groups: missing members of a start, replacements of lost members, elastic members.

Starts under way: a start keeps the valid part of its plan, and its other members get other nodes. A group
that has never fully run is completed first. If the group is not complete by its deadline, its bound members
are evicted, and the group backs off.

Ceilings bind all members that had no node before, whether their group has fully run or not. A member that
moves to another node adds nothing to the usage of its queue.

Replacements: a group that has fully run is never undone. Its replacements start one by one. They get free
capacity before pending gangs, but places in the window only after the gangs. Otherwise the scheduler could
refuse a replacement again and again, and all gangs would wait. Refused replacements back off. Some members
are needed only because the group's minMember was raised. Such members are no replacements: they start like
elastic members, once lost members are replaced.

Elastic members, which are the members beyond minMember, start one by one while capacity is free, after all
gangs.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from operator import itemgetter

import msgspec

from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.resources import Resources
from extender.domain.model.shapes import Shape, requests_of, total_requests
from extender.domain.model.topology import PodSubGroup
from extender.domain.queues.flavors import Flavor
from extender.domain.scheduling.backoff import (
    TOO_LATE_TEXT,
    back_off,
    binding_refusal,
    fail,
    refusal_of,
    retry_of,
    why_no_plan,
)
from extender.domain.scheduling.cycle import Cycle, Guard
from extender.domain.scheduling.flavors import by_role, flavors_in_use, limit_to_flavor
from extender.domain.scheduling.lending import Lending
from extender.domain.scheduling.obstacles import (
    best_domain_text,
    blocking_decision,
    missing_group_message,
    no_capacity_text,
    waiting_decision,
    why_not_replaced,
)
from extender.domain.scheduling.order import TurnOrder, lines_by_queue
from extender.domain.scheduling.plans import ActivePlan, first_within_flavors, keep_plans, pods_with_flavors
from extender.domain.scheduling.reservation import Reservations
from extender.domain.snapshot.decisions import GroupDecision
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.wholeness import (
    created_text,
    joining_parts,
    members_to_replace,
    missing,
    pods_by_child_group,
    start_begun_at,
    sub_group_sizes,
    whole_at,
)


def keep_starts(cycle: Cycle, groups: Iterable[GroupInfo]) -> list[ActivePlan]:
    """Return the valid parts of the plans of continuing starts, the oldest start first.

    Starts that fail, and starts that no member can join, get their decisions.
    """
    oldest_first = sorted(groups, key=lambda group: (group.start.admitted_at or 0.0, group.order))
    return keep_plans(cycle, cycle.record_all(oldest_first, partial(_start_end_decision, cycle)))


def _start_end_decision(cycle: Cycle, group: GroupInfo) -> GroupDecision | None:
    """Return the decision on a start that fails, backs off or has no PodGroup.

    None means that the start continues. While the scheduler is processing all missing members, the start may
    take until the bind deadline because of volumes.
    """
    if refusal := binding_refusal(group):
        return fail(cycle, group, refusal)
    if group.start.admitted_at is None and cycle.snapshot.now < group.start.retry_at:
        return back_off(cycle, group)
    begun_at = start_begun_at(group, cycle.snapshot)
    if begun_at is not None:
        need, assumed_uids = missing(group), {pod.uid for pod, _ in group.assumed_pods}
        are_all_assumed = not need.absent_text and all(
            pod.uid in assumed_uids or pod.is_for_min_resources for pod in need.members
        )
        limits = cycle.limits
        deadline = limits.start_deadline if are_all_assumed else limits.deadline(group.min_member)
        if cycle.is_due(begun_at + deadline):
            return fail(cycle, group, TOO_LATE_TEXT)
    if not group.exists:  # no member can join; the start is undone at its deadline
        reason = Reason.GROUP_NOT_FOUND
        return GroupDecision(group.key, group.queue, Verdict.STARTING, reason, missing_group_message(group))
    return None


def complete(cycle: Cycle, starts: Iterable[ActivePlan]) -> None:
    """Plan the missing members of starts under way, and record the decisions."""
    for active in starts:
        with Guard(cycle, active.group, active.plan):
            cycle.record(_complete(cycle, active.group, active))


def _complete(cycle: Cycle, group: GroupInfo, active: ActivePlan) -> GroupDecision:
    """Plan the missing members of a start, and return the decision on it.

    If some members cannot be planned, the start ends, with two exceptions:

    - If members are bound already, the start waits for the other members until the deadline.
    - If the scheduler has assumed members, the start waits for `stall_grace`, since capacity can become free
      again soon.

    The start also fails, and frees its capacity, if the scheduler refuses a member on all nodes before any
    member is bound.
    """
    budget, absent_text = cycle.budget, missing(group).absent_text
    refusal = refusal_of(active)
    refused_uids = (uid for uid in active.rejected_nodes if group.attempts[uid].refused_at is not None)
    if not group.placed_pods and (uid := next(refused_uids, None)) is not None:
        budget.release(group, active.plan)
        return fail(cycle, group, group.attempts[uid].message, {uid: active.rejected_nodes[uid]})
    is_interrupted = group.start.admitted_at is None
    is_beginning = is_interrupted or not (group.placed_pods or group.assumed_pods)
    joining_pods = active.pods_left if is_beginning else _new_members(active)
    excess_text = _ceiling_excess_text(cycle, group, joining_pods) if is_beginning or joining_pods else ""
    if is_beginning and excess_text:
        budget.release(group, active.plan)
        return (
            fail(cycle, group, excess_text)
            if is_interrupted
            else waiting_decision(group, Reason.QUEUE_CEILING, excess_text)
        )
    new_nodes: dict[Uid, str] | None = {}
    if active.pods_left:
        pods = None if excess_text else pods_with_flavors(budget, group, active.pods_left, active.plan)
        new_nodes = None if pods is None else budget.place(group, pods)
    if (new_nodes is None or absent_text) and not group.placed_pods:
        if not group.assumed_pods:  # the scheduler has assigned no node yet, so the group just waits again
            budget.release(group, {**active.plan, **(new_nodes or {})})
            if active.rejected_nodes or refusal:
                return fail(cycle, group, why_no_plan(active), active.rejected_nodes)
            if absent_text:
                return waiting_decision(group, Reason.NOT_ENOUGH_MEMBERS, absent_text)
            return waiting_decision(
                group, Reason.NO_ROOM, "other pods use the capacity planned for the group"
            )
        begun_at = start_begun_at(group, cycle.snapshot)
        if begun_at is not None and cycle.is_due(begun_at + cycle.limits.stall_grace):
            return fail(cycle, group, absent_text or excess_text or why_no_plan(active))
    active.add(new_nodes or {})
    detail = absent_text or excess_text or (why_no_plan(active) if new_nodes is None else refusal)
    if not detail and group.job.created_pods is not None:
        detail = created_text(group.job.created_pods, group.min_member)
    reason = Reason.REFUSED_BY_SCHEDULER if refusal else None
    plan, nodes = active.plan, active.rejected_nodes
    return GroupDecision(group.key, group.queue, Verdict.STARTING, reason, detail, plan=plan, moved=nodes)


def _new_members(active: ActivePlan) -> list[PodRecord]:
    """Return the unplanned members that had no planned node before."""
    return [pod for pod in active.pods_left if pod.uid not in active.group.planned_nodes]


def _ceiling_excess_text(cycle: Cycle, group: GroupInfo, pods: Sequence[PodRecord]) -> str:
    """Return which ceiling or limit of the queue more members would exceed, as text; empty if none."""
    requests, budget = total_requests(pod.shape for pod in pods), cycle.budget
    if (excess := budget.running.excess(group, len(pods))) is not None:
        return excess.text
    excess_text = budget.shares.ceiling_excess(group.queue, requests)
    return excess_text and f"queue {group.queue}: {excess_text}"


def reserve(cycle: Cycle, replacing_plans: Iterable[ActivePlan]) -> list[tuple[ActivePlan, dict[Uid, str]]]:
    """Allocate capacity for replacements that have no node. The replacements start only after the gangs.

    Returns:
        Each active plan, with the nodes of its replacements.
    """
    replacements: list[tuple[ActivePlan, dict[Uid, str]]] = []
    budget = cycle.budget
    for active in replacing_plans:
        with Guard(cycle, active.group, active.plan):
            plan: dict[Uid, str] = {}
            if not (
                retry_of(cycle, active).waits or not active.pods_left or why_not_replaced(cycle, active.group)
            ):
                # Take members that had a node, then others up to the limits and the ceiling of the queue.
                allowed_pods = [pod for pod in active.pods_left if pod.uid in active.group.planned_nodes]
                headroom = budget.running.headroom(active.group) - len(allowed_pods)
                shapes = Counter(pod.shape for pod in allowed_pods)
                for pod in _new_members(active)[: max(headroom, 0)]:
                    shapes[pod.shape] += 1
                    if budget.shares.ceiling_excess(active.group.queue, requests_of(shapes)):
                        break
                    allowed_pods.append(pod)
                flavors = flavors_in_use(budget.flavors, active.group, active.plan)
                pods, _ = first_within_flavors(budget, active.group, allowed_pods, flavors, borrows=True)
                plan = budget.place(active.group, pods, is_partial=True, places=0) or {}
            replacements.append((active, plan))
    return replacements


def start_replacements(cycle: Cycle, replacements: Iterable[tuple[ActivePlan, dict[Uid, str]]]) -> None:
    """Start replacements, as many as the window has places for, and record the decisions."""
    window, capacity = cycle.budget.window, cycle.budget.planner.capacity
    for active, plan in replacements:
        group = active.group
        with Guard(cycle, group, active.plan):
            retry = retry_of(cycle, active)
            started_nodes = dict(islice(plan.items(), window.places(group)))
            window.add(group, len(started_nodes))
            active.add(started_nodes)
            reason: Reason | None = None
            detail = members_to_replace(group).absent_text
            if active.unplanned_members():  # report why members have no node
                reason = Reason.NO_ROOM
                shapes = Counter(pod.shape for pod in active.unplanned_members())
                detail = detail or no_capacity_text(capacity, shapes)
                if (blocking := why_not_replaced(cycle, group)) is not None:
                    reason, detail = blocking.reason, blocking.detail
                elif retry.waits:
                    reason, detail = Reason.BACKING_OFF, group.start.failure
                elif missing_places := len(plan) - len(started_nodes):
                    reason, detail = Reason.WINDOW_FULL, window.describe_wait(group, missing_places)
                elif excess_text := _ceiling_excess_text(cycle, group, active.unplanned_members()[:1]):
                    reason, detail = Reason.QUEUE_CEILING, excess_text
                elif domain_text := best_domain_text(cycle, active.unplanned_members()):
                    reason, detail = Reason.NO_DOMAIN, domain_text
            decision = GroupDecision(
                group.key,
                group.queue,
                Verdict.RUNNING,
                reason,
                detail,
                plan=active.plan,
                failed=retry.failure,
                retry_at=retry.retry_at,
                moved=active.rejected_nodes,
                stood_whole=True,
            )
            cycle.record(decision)


class _Batch(msgspec.Struct):
    """Missing members of one group that are equal, or that start together as a sub-group."""

    active: ActivePlan
    pods: list[PodRecord]
    flavors: dict[str, Flavor]  # flavors of the group's members by role; all batches of a group share it
    joint_count: int  # number of members that start together

    @property
    def requests(self) -> Resources:
        """Return the sum of the requests of the members that start together."""
        return total_requests(pod.shape for pod in self.pods[: self.joint_count])


def _batches(active: ActivePlan, flavor_by_role: dict[str, Flavor]) -> list[_Batch]:
    """Return the members without a node in batches.

    The members of a sub-group that is not complete yet form one batch. The other members are in batches by
    shape.
    """
    group, pods_left = active.group, sorted(active.unplanned_members(), key=lambda pod: pod.order)
    planned_pods = (pod for pod in group.waiting_pods if pod.uid in active.plan)
    members = *group.placed_pods, *(pod for pod, _ in group.assumed_pods), *planned_pods
    if (composite := group.spec.composite) is not None:
        parts = joining_parts(composite, Counter(pod.role for pod in members), pods_by_child_group(pods_left))
        return [_Batch(active, pods, flavor_by_role, size) for pods, size in parts]
    size_by_sub_group = sub_group_sizes(members)
    pods_by_kind = defaultdict[Shape | PodSubGroup, list[PodRecord]](list)
    for pod in pods_left:
        part = pod.sub_group
        pods_by_kind[pod.shape if part is None or size_by_sub_group[part] >= part.size else part].append(pod)
    batches: list[_Batch] = []
    for kind, pods in pods_by_kind.items():
        size = kind.size - size_by_sub_group[kind] if isinstance(kind, PodSubGroup) else 1
        if len(pods) >= size:
            batches.append(_Batch(active, pods[:size] if size > 1 else pods, flavor_by_role, size))
    return batches


def grow(cycle: Cycle, plans: Sequence[ActivePlan], lending: Lending, reservations: Reservations) -> None:
    """Start members that join running groups, and decide on all these groups.

    If the state of a group or its queue prevents a start, the members wait with that reason.
    """
    growing_plans: list[ActivePlan] = []
    for active in plans:
        if active.pods_left:
            with Guard(cycle, active.group, active.plan):
                if (fault := blocking_decision(cycle, active.group)) is not None:
                    active.reason, active.detail = fault.reason, fault.detail
                elif retry_of(cycle, active).waits:
                    active.reason, active.detail = Reason.BACKING_OFF, active.group.start.failure
                else:
                    growing_plans.append(active)
    if growing_plans:
        lending.suspend()
        _grow_all(cycle, growing_plans, reservations, borrows=False)
        lending.begin()
        _grow_all(cycle, growing_plans, reservations, borrows=True)
    for active in plans:
        if not cycle.is_broken(active.group):
            with Guard(cycle, active.group, active.plan):
                cycle.record(_joining_decision(cycle, active, lending))


def _grow_all(cycle: Cycle, plans: Iterable[ActivePlan], reservations: Reservations, borrows: bool) -> None:
    """Start elastic members of the groups of `plans`.

    Unless `borrows`, members start only within the shares of their queues.
    """
    batches: list[_Batch] = []
    for active in plans:
        if not cycle.is_broken(active.group):
            with Guard(cycle, active.group, active.plan):
                batches += _batches(active, flavors_in_use(cycle.budget.flavors, active.group, active.plan))
    lines = lines_by_queue(batches, lambda batch: batch.active.group)
    turns = TurnOrder(cycle.budget.shares, cycle.snapshot.queues, lines, lambda batch: batch.active.group)
    for _, line in turns:
        batch, has_more = line[0], False
        max_members = turns.members_until_next(batch.requests)
        group = batch.active.group
        with Guard(cycle, group, batch.active.plan), reservations.use_own_capacity(group):
            has_more = _grow(cycle, batch, max_members, borrows)
        if not has_more:
            line.popleft()
            while line and cycle.is_broken(line[0].active.group):
                line.popleft()


def _grow(cycle: Cycle, batch: _Batch, max_started: int | None, borrows: bool) -> bool:
    """Start at most `max_started` members or sub-groups of a batch.

    Return whether the batch may start more in this cycle.
    """
    active, pods, budget, size = batch.active, batch.pods, cycle.budget, batch.joint_count
    group, shares, requests = active.group, budget.shares, batch.requests
    allowances = [  # number of members or sub-groups that may start, and the reason why the next may not
        (shares.headroom_below_ceiling(group.queue, requests), Reason.QUEUE_CEILING),
        (budget.running.headroom(group) // size, Reason.QUEUE_CEILING),
        (budget.window.places(group) // size, Reason.WINDOW_FULL),
    ]
    if not borrows:
        allowances.append((shares.headroom_within_share(group.queue, requests), Reason.QUEUE_SHARE))
    max_allowed, reason = min(allowances, key=itemgetter(0))
    tried_pods = pods[: size * (max_allowed if max_started is None else min(max_allowed, max_started))]
    joining_pods, obstacle_text = first_within_flavors(budget, group, tried_pods, batch.flavors, borrows)
    if size > 1 and len(joining_pods) < size:
        joining_pods = []
    plan = budget.place(group, joining_pods, is_partial=size == 1) or {}
    active.add(plan)
    batch.pods = [pod for pod in pods if pod.uid not in plan]
    if not batch.pods:
        return False
    active.reason, active.detail = reason if len(plan) == size * max_allowed else Reason.NO_ROOM, ""
    if active.reason is Reason.WINDOW_FULL:
        active.detail = budget.window.describe_wait(group, len(batch.pods))
    if obstacle_text and len(plan) == len(joining_pods):
        active.reason, active.detail = Reason.QUEUE_CEILING, obstacle_text
    have_all_started = len(plan) == len(tried_pods)
    return have_all_started and len(tried_pods) < size * max_allowed


def _joining_decision(cycle: Cycle, active: ActivePlan, lending: Lending) -> GroupDecision:
    """Return the decision on an active group, with the reason why members have not joined."""
    group, retry, pods_left = active.group, retry_of(cycle, active), active.unplanned_members()
    if active.reason is Reason.NO_ROOM and pods_left:
        pod_by_shape = {pod.shape: pod for pod in pods_left}.values()  # equal shapes fit on the same nodes
        flavor_by_role = flavors_in_use(cycle.budget.flavors, group, active.plan)
        for role, pods in by_role(group, pod_by_shape).items():
            joining_pods = limit_to_flavor(flavor_by_role[role], pods) if role in flavor_by_role else pods
            if any(map(lending.withholds_capacity_from, joining_pods)):
                active.reason, active.detail = Reason.QUEUE_SHARE, lending.claims_text()
        if active.reason is Reason.NO_ROOM and (domain_text := best_domain_text(cycle, pods_left)):
            active.reason, active.detail = Reason.NO_DOMAIN, domain_text
        shapes = Counter(pod.shape for pod in pods_left)
        active.detail = active.detail or no_capacity_text(cycle.budget.planner.capacity, shapes)
    verdict = Verdict.RUNNING
    if not group.placed_pods:  # a group with minMember 0 starts with its first member
        verdict = Verdict.STARTING if active.plan or group.assumed_pods else Verdict.WAITING
    whole_instant = None if group.has_fully_run else whole_at(group, cycle.limits.whole_grace)
    return GroupDecision(
        group.key,
        group.queue,
        verdict,
        active.reason if pods_left else None,
        active.detail if pods_left else "",
        plan=active.plan,
        failed=retry.failure,
        retry_at=retry.retry_at,
        moved=active.rejected_nodes,
        stood_whole=group.has_fully_run if whole_instant is None else cycle.is_due(whole_instant),
    )
