"""Members of groups that are past admission: of starts under way, of gangs that lost some, and elastic ones.

A start keeps its plan while it holds, and gets a new one where it broke. A group that never fully ran is
completed first; if that fails within its deadline, its bound members are undone by eviction and it backs off.

A ceiling binds members that had no node before, whether their group has fully run or not. A member whose
node is another one by now adds nothing to what its queue was granted.

A group that fully ran is never undone: replacements start one by one. They have the first claim on free
capacity, but come after the gangs for places among pods in flight: one that the scheduler refuses again and
again would shut all of them out. Replacements that are refused back off. Members that a group needs since its
minMember was raised are no replacements: they come as elastic ones do, once the lost are replaced.

Elastic members, those beyond minMember, start one by one while there is free capacity, after all gangs."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from operator import itemgetter

import msgspec

from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.shapes import Shape, asked_by, requests_of
from extender.domain.queues.flavors import Flavor
from extender.domain.scheduling.flavors import by_role, flavors_in_use, on_nodes_of
from extender.domain.scheduling.lending import Lending
from extender.domain.scheduling.obstacles import (
    TOO_LATE,
    back_off,
    barred,
    fail,
    no_group,
    not_replaced,
    obstacle,
    refusal_of,
    retry_of,
    waits,
    why_no_plan,
)
from extender.domain.scheduling.order import TurnOrder, in_lines
from extender.domain.scheduling.plans import KeptPlan, all_that_join, as_many_as_join, keep_all
from extender.domain.scheduling.reservation import Reservations
from extender.domain.scheduling.round import Guard, Round
from extender.domain.snapshot.decisions import GroupDecision
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.wholeness import created, lost, missing, start_begun, whole_at

# ---- starts


def keep_starts(round_: Round, groups: Iterable[GroupView]) -> list[KeptPlan]:
    """Return the valid parts of the plans of continuing starts, the oldest first.

    Starts that end here, or that no member can join, are settled.
    """
    oldest_first = sorted(groups, key=lambda group: (group.start.admitted_at or 0.0, group.order))
    return keep_all(round_, round_.unsettled(oldest_first, partial(_ending, round_)))


def _ending(round_: Round, group: GroupView) -> GroupDecision | None:
    if words := barred(group):
        return fail(round_, group, words)
    if group.start.admitted_at is None and round_.snapshot.now < group.start.retry_at:
        return back_off(round_, group)
    begun = start_begun(group, round_.snapshot)
    if begun is not None:
        # The scheduler may be working on all missing members: their volumes may take until the bind deadline.
        wanted, pinned = missing(group), {pod.uid for pod, _ in group.pinned}
        all_answered = not wanted.absent and all(
            pod.uid in pinned or pod.keeps_room for pod in wanted.members
        )
        limits = round_.limits
        deadline = limits.start_deadline if all_answered else limits.deadline(group.min_member)
        if round_.is_due(begun + deadline):
            return fail(round_, group, TOO_LATE)
    if not group.exists:  # no member joins, and at the deadline the start is undone
        reason = Reason.GROUP_NOT_FOUND
        return GroupDecision(group.key, group.queue, Verdict.STARTING, reason, no_group(group))
    return None


def complete(round_: Round, starts: Iterable[KeptPlan]) -> None:
    """Plan what misses."""
    for kept in starts:
        with Guard(round_, kept.group, kept.plan):
            round_.settle(_complete(round_, kept.group, kept))


def _complete(round_: Round, group: GroupView, kept: KeptPlan) -> GroupDecision:
    """Return the decision on a start with members that cannot be planned.

    That ends the start, unless members are bound already (those are worth waiting for until the deadline)
    or the start is young (capacity may come back at once). If the scheduler, which looked for another
    node itself, refuses a member before any is bound, the start has failed and gives all back.
    """
    budget, absent = round_.budget, missing(group).absent
    refusal = refusal_of(kept)
    refused = (uid for uid in kept.moved if group.attempts[uid].refused_at is not None)
    if not group.placed and (uid := next(refused, None)) is not None:
        budget.release(group, kept.plan)
        return fail(round_, group, group.attempts[uid].words, {uid: kept.moved[uid]})
    is_interrupted = group.start.admitted_at is None
    begins = is_interrupted or not (group.placed or group.pinned)
    joining = kept.unplanned if begins else _joining(kept)
    above = _above_ceiling(round_, group, joining) if begins or joining else ""
    if begins and above:
        budget.release(group, kept.plan)
        return fail(round_, group, above) if is_interrupted else waits(group, Reason.QUEUE_CEILING, above)
    more: dict[Uid, str] | None = {}
    if kept.unplanned:
        pods = None if above else all_that_join(budget, group, kept.unplanned, kept.plan)
        more = None if pods is None else budget.place(group, pods)
    if (more is None or absent) and not group.placed:
        if not group.pinned:  # nothing is held yet: it simply waits again
            budget.release(group, {**kept.plan, **(more or {})})
            if kept.moved or refusal:
                return fail(round_, group, why_no_plan(kept), kept.moved)
            if absent:
                return waits(group, Reason.NOT_ENOUGH_MEMBERS, absent)
            return waits(group, Reason.NO_ROOM, "the room planned for the group was taken by others")
        begun = start_begun(group, round_.snapshot)
        if begun is not None and round_.is_due(begun + round_.limits.stall_grace):
            return fail(round_, group, absent or above or why_no_plan(kept))
    kept.add(more or {})
    detail = absent or above or (why_no_plan(kept) if more is None else refusal)
    if not detail and group.job.made is not None:
        detail = created(group.job.made, group.min_member)
    reason = Reason.REFUSED_BY_SCHEDULER if refusal else None
    plan, moved = kept.plan, kept.moved
    return GroupDecision(group.key, group.queue, Verdict.STARTING, reason, detail, plan=plan, moved=moved)


def _joining(kept: KeptPlan) -> list[PodRecord]:
    """Return the members without a node that had none before."""
    return [pod for pod in kept.unplanned if pod.uid not in kept.group.planned]


def _above_ceiling(round_: Round, group: GroupView, pods: Sequence[PodRecord]) -> str:
    """Return how more members would exceed the queue's ceiling or a limit; empty if they do not."""
    asked, budget = asked_by(pod.shape for pod in pods), round_.budget
    if (excess := budget.running.excess(group, len(pods))) is not None:
        return excess.text
    above = budget.shares.above_ceiling(group.queue, asked)
    return above and f"queue {group.queue}: {above}"


# ---- replacements


def reserve(round_: Round, replacing: Iterable[KeptPlan]) -> list[tuple[KeptPlan, dict[Uid, str]]]:
    """Take room for replacements that have none yet; they start once the gangs had their turn."""
    reserved: list[tuple[KeptPlan, dict[Uid, str]]] = []
    budget = round_.budget
    for kept in replacing:
        with Guard(round_, kept.group, kept.plan):
            more: dict[Uid, str] = {}
            if not (retry_of(round_, kept).waits or not kept.unplanned or not_replaced(round_, kept.group)):
                # Those that had a node, and the first others that the queue's limits and ceiling admit.
                within_ceiling = [pod for pod in kept.unplanned if pod.uid in kept.group.planned]
                headroom = budget.running.headroom(kept.group) - len(within_ceiling)
                shapes = Counter(pod.shape for pod in within_ceiling)
                for pod in _joining(kept)[: max(headroom, 0)]:
                    shapes[pod.shape] += 1
                    if budget.shares.above_ceiling(kept.group.queue, requests_of(shapes)):
                        break
                    within_ceiling.append(pod)
                in_use = flavors_in_use(budget.flavors, kept.group, kept.plan)
                joining, _ = as_many_as_join(budget, kept.group, within_ceiling, in_use, is_lent=True)
                more = budget.place(kept.group, joining, partly=True, places=0) or {}
            reserved.append((kept, more))
    return reserved


def replace(round_: Round, reserved: Iterable[tuple[KeptPlan, dict[Uid, str]]]) -> None:
    """Start as many as there are places in the window."""
    window = round_.budget.window
    for kept, more in reserved:
        group = kept.group
        with Guard(round_, group, kept.plan):
            retry = retry_of(round_, kept)
            started = dict(islice(more.items(), window.places(group)))
            window.take(group, len(started))
            kept.add(started)
            reason: Reason | None = None
            detail = lost(group).absent
            if kept.left():  # why they have no node yet
                reason = Reason.NO_ROOM
                if (kept_back := not_replaced(round_, group)) is not None:
                    reason, detail = kept_back.reason, kept_back.detail
                elif retry.waits:
                    reason, detail = Reason.BACKING_OFF, group.start.failure
                elif without_place := len(more) - len(started):
                    reason, detail = Reason.WINDOW_FULL, window.lack(group, without_place)
                elif above := _above_ceiling(round_, group, kept.left()[:1]):
                    reason, detail = Reason.QUEUE_CEILING, above
            decision = GroupDecision(
                group.key,
                group.queue,
                Verdict.RUNNING,
                reason,
                detail,
                plan=kept.plan,
                failed=retry.failed,
                retry_at=retry.at,
                moved=kept.moved,
                stood_whole=True,
            )
            round_.settle(decision)


class _Batch(msgspec.Struct):
    """Members of one group that are alike and still miss."""

    kept: KeptPlan
    shape: Shape
    pods: list[PodRecord]
    in_use: dict[str, Flavor]  # by role, what members of the group use; its batches share it, and add to it


def grow(round_: Round, standing: Sequence[KeptPlan], lending: Lending, reservations: Reservations) -> None:
    """Start members of groups that stand, and decide on all of these."""
    hungry: list[KeptPlan] = []
    for kept in standing:
        if kept.unplanned:
            with Guard(round_, kept.group, kept.plan):
                # Members that the state of the group or its queue keeps out get that reason.
                if (fault := obstacle(round_, kept.group)) is not None:
                    kept.reason, kept.detail = fault.reason, fault.detail
                elif retry_of(round_, kept).waits:
                    kept.reason, kept.detail = Reason.BACKING_OFF, kept.group.start.failure
                else:
                    hungry.append(kept)
    if hungry:
        lending.suspend()
        _grow_all(round_, hungry, reservations, is_lent=False)
        lending.begin()
        _grow_all(round_, hungry, reservations, is_lent=True)
    for kept in standing:
        if not round_.is_broken(kept.group):
            with Guard(round_, kept.group, kept.plan):
                round_.settle(_decision(round_, kept, lending))


def _grow_all(round_: Round, groups: Iterable[KeptPlan], reservations: Reservations, is_lent: bool) -> None:
    """Start members of `groups`; within their queues' shares unless room is lent."""
    batches: list[_Batch] = []
    for kept in groups:
        if not round_.is_broken(kept.group):
            with Guard(round_, kept.group, kept.plan):
                alike: dict[Shape, list[PodRecord]] = {}
                for pod in sorted(kept.left(), key=lambda pod: pod.order):
                    alike.setdefault(pod.shape, []).append(pod)
                in_use = flavors_in_use(round_.budget.flavors, kept.group, kept.plan)
                batches += [_Batch(kept, shape, pods, in_use) for shape, pods in alike.items()]
    lines = in_lines(batches, lambda batch: batch.kept.group)
    turns = TurnOrder(round_.budget.shares, round_.snapshot.queues, lines, lambda batch: batch.kept.group)
    for _, line in turns:
        batch, may_come_again = line[0], False
        most = turns.members_until_next(batch.shape.requests)
        group = batch.kept.group
        with Guard(round_, group, batch.kept.plan), reservations.own_room(group):
            may_come_again = _grow(round_, batch, most, is_lent)
        if not may_come_again:
            line.popleft()
            while line and round_.is_broken(line[0].kept.group):
                line.popleft()


def _grow(round_: Round, batch: _Batch, most: int | None, is_lent: bool) -> bool:
    """Start members of a batch, at `most` so many in one turn; whether it may come again."""
    kept, pods, budget = batch.kept, batch.pods, round_.budget
    group, shares, requests = kept.group, budget.shares, batch.shape.requests
    allowances = [  # how many more of them may start, and what stops the next one
        (shares.headroom_below_ceiling(group.queue, requests), Reason.QUEUE_CEILING),
        (budget.running.headroom(group), Reason.QUEUE_CEILING),
        (budget.window.places(group), Reason.WINDOW_FULL),
    ]
    if not is_lent:
        allowances.append((shares.headroom_within_share(group.queue, requests), Reason.QUEUE_SHARE))
    allowed, reason = min(allowances, key=itemgetter(0))
    tried = pods[: allowed if most is None else min(allowed, most)]
    joining, why_not_all = as_many_as_join(budget, group, tried, batch.in_use, is_lent)
    more = budget.place(group, joining, partly=True) or {}
    kept.add(more)
    batch.pods = [pod for pod in pods if pod.uid not in more]
    if not batch.pods:
        return False
    kept.reason, kept.detail = reason if len(more) == allowed else Reason.NO_ROOM, ""
    if kept.reason is Reason.WINDOW_FULL:
        kept.detail = budget.window.lack(group, len(batch.pods))
    if why_not_all and len(more) == len(joining):
        kept.reason, kept.detail = Reason.QUEUE_CEILING, why_not_all
    return len(more) == len(tried) < allowed


def _decision(round_: Round, kept: KeptPlan, lending: Lending) -> GroupDecision:
    group, retry, left = kept.group, retry_of(round_, kept), kept.left()
    if kept.reason is Reason.NO_ROOM:
        one_of_each = {pod.shape: pod for pod in left}.values()  # those of a shape find room or not together
        in_use = flavors_in_use(round_.budget.flavors, group, kept.plan)
        for role, pods in by_role(group, one_of_each).items():
            joining = on_nodes_of(in_use[role], pods) if role in in_use else pods
            if any(map(lending.keeps_room_from, joining)):
                kept.reason, kept.detail = Reason.QUEUE_SHARE, lending.text()
    verdict = Verdict.RUNNING
    if not group.placed:  # a group that needs no members starts with the first one
        verdict = Verdict.STARTING if kept.plan or group.pinned else Verdict.WAITING
    moment = None if group.stood_whole else whole_at(group, round_.limits.whole_grace)
    return GroupDecision(
        group.key,
        group.queue,
        verdict,
        kept.reason if left else None,
        kept.detail if left else "",
        plan=kept.plan,
        failed=retry.failed,
        retry_at=retry.at,
        moved=kept.moved,
        stood_whole=group.stood_whole if moment is None else round_.is_due(moment),
    )
