"""Elastic members, those beyond minMember: they start one by one while there is room, after all gangs."""

from collections.abc import Iterable, Sequence
from operator import itemgetter

import msgspec

from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import PodRecord
from extender.domain.model.shapes import Shape
from extender.domain.queues.flavors import Flavor
from extender.domain.scheduling.flavors import by_role, flavors_in_use, on_nodes_of
from extender.domain.scheduling.lending import Lending
from extender.domain.scheduling.obstacles import obstacle, retry_of
from extender.domain.scheduling.order import TurnOrder, in_lines
from extender.domain.scheduling.plans import KeptPlan, as_many_as_join
from extender.domain.scheduling.reservation import Reservations
from extender.domain.scheduling.round import Guard, Round
from extender.domain.snapshot.decisions import GroupDecision
from extender.domain.snapshot.wholeness import whole_at


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
