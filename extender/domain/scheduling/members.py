"""Members of groups that are past admission: of starts under way, of gangs that lost some, and elastic ones.

A start keeps the valid part of its plan, and gets other nodes for the rest. A group that never fully ran is
completed first; if that fails within its deadline, its bound members are evicted and it backs off.

A ceiling binds members that had no node before, whether their group has fully run or not. A member that moves
to another node adds nothing to the usage of its queue.

A group that fully ran is never undone: replacements start one by one. They come before the gangs for free
capacity, but after them for places in the window: a replacement that the scheduler refuses again and again
would block all gangs. Refused replacements back off. Members that a group needs because its minMember was
raised are no replacements: they start as elastic members do, once the lost ones are replaced.

Elastic members, those beyond minMember, start one by one while there is free capacity, after all gangs.
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
    TOO_LATE,
    back_off,
    binding_refusal,
    fail,
    refusal_of,
    retry_of,
    why_no_plan,
)
from extender.domain.scheduling.cycle import Cycle, Guard
from extender.domain.scheduling.flavors import by_role, flavors_in_use, on_nodes_of
from extender.domain.scheduling.lending import Lending
from extender.domain.scheduling.obstacles import (
    blocking_decision,
    lacks_domain,
    missing_group_message,
    not_replaced,
    waiting_decision,
    why_none_joins,
)
from extender.domain.scheduling.order import TurnOrder, in_lines
from extender.domain.scheduling.plans import ActivePlan, all_that_join, as_many_as_join, keep_all
from extender.domain.scheduling.reservation import Reservations
from extender.domain.snapshot.decisions import GroupDecision
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.wholeness import (
    created_text,
    in_child_groups,
    joining_parts,
    members_to_replace,
    missing,
    start_begun,
    sub_group_sizes,
    whole_at,
)


def keep_starts(cycle: Cycle, groups: Iterable[GroupInfo]) -> list[ActivePlan]:
    """Return the valid parts of the plans of continuing starts, the oldest first.

    Starts that end here, or that no member can join, are settled.
    """
    oldest_first = sorted(groups, key=lambda group: (group.start.admitted_at or 0.0, group.order))
    return keep_all(cycle, cycle.settle_all(oldest_first, partial(_ending, cycle)))


def _ending(cycle: Cycle, group: GroupInfo) -> GroupDecision | None:
    """Return the decision if a start fails, backs off or has no PodGroup; None: it goes on."""
    if refusal := binding_refusal(group):
        return fail(cycle, group, refusal)
    if group.start.admitted_at is None and cycle.snapshot.now < group.start.retry_at:
        return back_off(cycle, group)
    begun = start_begun(group, cycle.snapshot)
    if begun is not None:
        # The scheduler may be processing all missing members: volumes may take until the bind deadline.
        wanted, assumed = missing(group), {pod.uid for pod, _ in group.assumed}
        all_answered = not wanted.absent and all(
            pod.uid in assumed or pod.is_for_min_resources for pod in wanted.members
        )
        limits = cycle.limits
        deadline = limits.start_deadline if all_answered else limits.deadline(group.min_member)
        if cycle.is_due(begun + deadline):
            return fail(cycle, group, TOO_LATE)
    if not group.exists:  # no member joins, and the start is undone at its deadline
        reason = Reason.GROUP_NOT_FOUND
        return GroupDecision(group.key, group.queue, Verdict.STARTING, reason, missing_group_message(group))
    return None


def complete(cycle: Cycle, starts: Iterable[ActivePlan]) -> None:
    for active in starts:
        with Guard(cycle, active.group, active.plan):
            cycle.settle(_complete(cycle, active.group, active))


def _complete(cycle: Cycle, group: GroupInfo, active: ActivePlan) -> GroupDecision:
    """Plan the missing members of a start, and return the decision on it.

    If some cannot be planned, the start ends, unless members are bound already (they are worth waiting for
    until the deadline) or the start is young (capacity may come back at once). It also fails, and frees its
    capacity, if the scheduler refuses a member on all nodes before any member is bound.
    """
    budget, absent = cycle.budget, missing(group).absent
    refusal = refusal_of(active)
    refused = (uid for uid in active.moved if group.attempts[uid].refused_at is not None)
    if not group.placed and (uid := next(refused, None)) is not None:
        budget.release(group, active.plan)
        return fail(cycle, group, group.attempts[uid].words, {uid: active.moved[uid]})
    is_interrupted = group.start.admitted_at is None
    begins = is_interrupted or not (group.placed or group.assumed)
    joining = active.unplanned if begins else _joining(active)
    above = _above_ceiling(cycle, group, joining) if begins or joining else ""
    if begins and above:
        budget.release(group, active.plan)
        return (
            fail(cycle, group, above)
            if is_interrupted
            else waiting_decision(group, Reason.QUEUE_CEILING, above)
        )
    added: dict[Uid, str] | None = {}
    if active.unplanned:
        pods = None if above else all_that_join(budget, group, active.unplanned, active.plan)
        added = None if pods is None else budget.place(group, pods)
    if (added is None or absent) and not group.placed:
        if not group.assumed:  # no member has an answer yet: the group just waits again
            budget.release(group, {**active.plan, **(added or {})})
            if active.moved or refusal:
                return fail(cycle, group, why_no_plan(active), active.moved)
            if absent:
                return waiting_decision(group, Reason.NOT_ENOUGH_MEMBERS, absent)
            return waiting_decision(
                group, Reason.NO_ROOM, "other pods use the capacity planned for the group"
            )
        begun = start_begun(group, cycle.snapshot)
        if begun is not None and cycle.is_due(begun + cycle.limits.stall_grace):
            return fail(cycle, group, absent or above or why_no_plan(active))
    active.add(added or {})
    detail = absent or above or (why_no_plan(active) if added is None else refusal)
    if not detail and group.job.created_pods is not None:
        detail = created_text(group.job.created_pods, group.min_member)
    reason = Reason.REFUSED_BY_SCHEDULER if refusal else None
    plan, moved = active.plan, active.moved
    return GroupDecision(group.key, group.queue, Verdict.STARTING, reason, detail, plan=plan, moved=moved)


def _joining(active: ActivePlan) -> list[PodRecord]:
    """Return the unplanned members that had no node before, either."""
    return [pod for pod in active.unplanned if pod.uid not in active.group.planned]


def _above_ceiling(cycle: Cycle, group: GroupInfo, pods: Sequence[PodRecord]) -> str:
    """Return how more members would exceed the queue's ceiling or a limit; empty if they do not."""
    requests, budget = total_requests(pod.shape for pod in pods), cycle.budget
    if (excess := budget.running.excess(group, len(pods))) is not None:
        return excess.text
    above = budget.shares.above_ceiling(group.queue, requests)
    return above and f"queue {group.queue}: {above}"


def reserve(cycle: Cycle, replacing: Iterable[ActivePlan]) -> list[tuple[ActivePlan, dict[Uid, str]]]:
    """Allocate capacity for replacements that have none; they start after the gangs."""
    replacements: list[tuple[ActivePlan, dict[Uid, str]]] = []
    budget = cycle.budget
    for active in replacing:
        with Guard(cycle, active.group, active.plan):
            plan: dict[Uid, str] = {}
            if not (
                retry_of(cycle, active).waits or not active.unplanned or not_replaced(cycle, active.group)
            ):
                # Members that had a node, and the first others within the queue's limits and ceiling.
                within_ceiling = [pod for pod in active.unplanned if pod.uid in active.group.planned]
                headroom = budget.running.headroom(active.group) - len(within_ceiling)
                shapes = Counter(pod.shape for pod in within_ceiling)
                for pod in _joining(active)[: max(headroom, 0)]:
                    shapes[pod.shape] += 1
                    if budget.shares.above_ceiling(active.group.queue, requests_of(shapes)):
                        break
                    within_ceiling.append(pod)
                in_use = flavors_in_use(budget.flavors, active.group, active.plan)
                joining, _ = as_many_as_join(budget, active.group, within_ceiling, in_use, lends=True)
                plan = budget.place(active.group, joining, partly=True, places=0) or {}
            replacements.append((active, plan))
    return replacements


def replace(cycle: Cycle, replacements: Iterable[tuple[ActivePlan, dict[Uid, str]]]) -> None:
    """Start replacements, as many as the window has places for."""
    window, capacity = cycle.budget.window, cycle.budget.planner.capacity
    for active, plan in replacements:
        group = active.group
        with Guard(cycle, group, active.plan):
            retry = retry_of(cycle, active)
            started = dict(islice(plan.items(), window.places(group)))
            window.add(group, len(started))
            active.add(started)
            reason: Reason | None = None
            detail = members_to_replace(group).absent
            if active.unplanned_members():  # unplanned members: report why
                reason = Reason.NO_ROOM
                shapes = Counter(pod.shape for pod in active.unplanned_members())
                detail = detail or why_none_joins(capacity, shapes)
                if (blocked := not_replaced(cycle, group)) is not None:
                    reason, detail = blocked.reason, blocked.detail
                elif retry.waits:
                    reason, detail = Reason.BACKING_OFF, group.start.failure
                elif without_place := len(plan) - len(started):
                    reason, detail = Reason.WINDOW_FULL, window.describe_wait(group, without_place)
                elif above := _above_ceiling(cycle, group, active.unplanned_members()[:1]):
                    reason, detail = Reason.QUEUE_CEILING, above
                elif domain := lacks_domain(cycle, active.unplanned_members()):
                    reason, detail = Reason.NO_DOMAIN, domain
            decision = GroupDecision(
                group.key,
                group.queue,
                Verdict.RUNNING,
                reason,
                detail,
                plan=active.plan,
                failed=retry.failed,
                retry_at=retry.at,
                moved=active.moved,
                stood_whole=True,
            )
            cycle.settle(decision)


class _Batch(msgspec.Struct):
    """Missing members of one group that are equal, or start together as a sub-group."""

    active: ActivePlan
    pods: list[PodRecord]
    in_use: dict[str, Flavor]  # flavors of the group's members by role; shared by its batches
    at_once: int  # members that start together

    @property
    def requests(self) -> Resources:
        """Return the joint requests of the members that start together."""
        return total_requests(pod.shape for pod in self.pods[: self.at_once])


def _batches(active: ActivePlan, in_use: dict[str, Flavor]) -> list[_Batch]:
    """Return the members without a node; those of a sub-group that is not whole yet are together."""
    group, unplanned = active.group, sorted(active.unplanned_members(), key=lambda pod: pod.order)
    planned = (pod for pod in group.waiting if pod.uid in active.plan)
    starting = *group.placed, *(pod for pod, _ in group.assumed), *planned
    if (composite := group.spec.composite) is not None:
        parts = joining_parts(composite, Counter(pod.role for pod in starting), in_child_groups(unplanned))
        return [_Batch(active, pods, in_use, at_once) for pods, at_once in parts]
    sizes = sub_group_sizes(starting)
    similar = defaultdict[Shape | PodSubGroup, list[PodRecord]](list)
    for pod in unplanned:
        own = pod.sub_group
        similar[pod.shape if own is None or sizes[own] >= own.size else own].append(pod)
    found: list[_Batch] = []
    for kind, pods in similar.items():
        at_once = kind.size - sizes[kind] if isinstance(kind, PodSubGroup) else 1
        if len(pods) >= at_once:
            found.append(_Batch(active, pods[:at_once] if at_once > 1 else pods, in_use, at_once))
    return found


def grow(cycle: Cycle, standing: Sequence[ActivePlan], lending: Lending, reservations: Reservations) -> None:
    """Start members of groups that stand, and decide on all of these."""
    growing: list[ActivePlan] = []
    for active in standing:
        if active.unplanned:
            with Guard(cycle, active.group, active.plan):
                # Members that wait because of the state of the group or queue get that reason.
                if (fault := blocking_decision(cycle, active.group)) is not None:
                    active.reason, active.detail = fault.reason, fault.detail
                elif retry_of(cycle, active).waits:
                    active.reason, active.detail = Reason.BACKING_OFF, active.group.start.failure
                else:
                    growing.append(active)
    if growing:
        lending.suspend()
        _grow_all(cycle, growing, reservations, lends=False)
        lending.begin()
        _grow_all(cycle, growing, reservations, lends=True)
    for active in standing:
        if not cycle.is_broken(active.group):
            with Guard(cycle, active.group, active.plan):
                cycle.settle(_decision(cycle, active, lending))


def _grow_all(cycle: Cycle, groups: Iterable[ActivePlan], reservations: Reservations, lends: bool) -> None:
    """Start members of `groups`; within their queues' shares unless capacity is lent."""
    batches: list[_Batch] = []
    for active in groups:
        if not cycle.is_broken(active.group):
            with Guard(cycle, active.group, active.plan):
                batches += _batches(active, flavors_in_use(cycle.budget.flavors, active.group, active.plan))
    lines = in_lines(batches, lambda batch: batch.active.group)
    turns = TurnOrder(cycle.budget.shares, cycle.snapshot.queues, lines, lambda batch: batch.active.group)
    for _, line in turns:
        batch, may_come_again = line[0], False
        most = turns.members_until_next(batch.requests)
        group = batch.active.group
        with Guard(cycle, group, batch.active.plan), reservations.own_capacity(group):
            may_come_again = _grow(cycle, batch, most, lends)
        if not may_come_again:
            line.popleft()
            while line and cycle.is_broken(line[0].active.group):
                line.popleft()


def _grow(cycle: Cycle, batch: _Batch, most: int | None, lends: bool) -> bool:
    """Start at most `most` members of a batch, or sub-groups; return whether it may have another turn."""
    active, pods, budget, at_once = batch.active, batch.pods, cycle.budget, batch.at_once
    group, shares, requests = active.group, budget.shares, batch.requests
    allowances = [  # number of members or sub-groups that may start, and the obstacle of the next
        (shares.headroom_below_ceiling(group.queue, requests), Reason.QUEUE_CEILING),
        (budget.running.headroom(group) // at_once, Reason.QUEUE_CEILING),
        (budget.window.places(group) // at_once, Reason.WINDOW_FULL),
    ]
    if not lends:
        allowances.append((shares.headroom_within_share(group.queue, requests), Reason.QUEUE_SHARE))
    allowed, reason = min(allowances, key=itemgetter(0))
    tried = pods[: at_once * (allowed if most is None else min(allowed, most))]
    joining, why_not_all = as_many_as_join(budget, group, tried, batch.in_use, lends)
    if at_once > 1 and len(joining) < at_once:
        joining = []
    plan = budget.place(group, joining, partly=at_once == 1) or {}
    active.add(plan)
    batch.pods = [pod for pod in pods if pod.uid not in plan]
    if not batch.pods:
        return False
    active.reason, active.detail = reason if len(plan) == at_once * allowed else Reason.NO_ROOM, ""
    if active.reason is Reason.WINDOW_FULL:
        active.detail = budget.window.describe_wait(group, len(batch.pods))
    if why_not_all and len(plan) == len(joining):
        active.reason, active.detail = Reason.QUEUE_CEILING, why_not_all
    have_all_started = len(plan) == len(tried)
    return have_all_started and len(tried) < at_once * allowed


def _decision(cycle: Cycle, active: ActivePlan, lending: Lending) -> GroupDecision:
    """Return the decision on an active group, with the reason for members that did not join."""
    group, retry, unplanned = active.group, retry_of(cycle, active), active.unplanned_members()
    if active.reason is Reason.NO_ROOM and unplanned:
        one_of_each = {pod.shape: pod for pod in unplanned}.values()  # equal shapes fit or not together
        in_use = flavors_in_use(cycle.budget.flavors, group, active.plan)
        for role, pods in by_role(group, one_of_each).items():
            joining = on_nodes_of(in_use[role], pods) if role in in_use else pods
            if any(map(lending.keeps_capacity_from, joining)):
                active.reason, active.detail = Reason.QUEUE_SHARE, lending.text()
        if active.reason is Reason.NO_ROOM and (domain := lacks_domain(cycle, unplanned)):
            active.reason, active.detail = Reason.NO_DOMAIN, domain
        shapes = Counter(pod.shape for pod in unplanned)
        active.detail = active.detail or why_none_joins(cycle.budget.planner.capacity, shapes)
    verdict = Verdict.RUNNING
    if not group.placed:  # a group with minMember 0 starts with its first member
        verdict = Verdict.STARTING if active.plan or group.assumed else Verdict.WAITING
    instant = None if group.stood_whole else whole_at(group, cycle.limits.whole_grace)
    return GroupDecision(
        group.key,
        group.queue,
        verdict,
        active.reason if unplanned else None,
        active.detail if unplanned else "",
        plan=active.plan,
        failed=retry.failed,
        retry_at=retry.at,
        moved=active.moved,
        stood_whole=group.stood_whole if instant is None else cycle.is_due(instant),
    )
