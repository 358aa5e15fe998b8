"""Members beyond minMember: they start one by one while there is room, after all gangs have had their turn.

First what keeps each queue within its deserved share, then, in the same order, what is lent.
"""

from collections.abc import Iterable, Mapping

import msgspec

from extender.domain.decisions import GroupDecision
from extender.domain.keeping import Kept, keep_all
from extender.domain.reasons import Reason, Verdict
from extender.domain.records import PodRecord, Uid
from extender.domain.round import Round
from extender.domain.shapes import Shape
from extender.domain.snapshot import GroupView


class Growth(msgspec.Struct):
    """What a standing group has got so far in this round."""

    kept: Kept
    plan: dict[Uid, str]
    reason: Reason | None = None

    @property
    def group(self) -> GroupView:
        return self.kept.group

    def left(self) -> list[PodRecord]:
        return [pod for pod in self.kept.unplanned if pod.uid not in self.plan]


def keep_planned(round_: Round, groups: Iterable[GroupView]) -> list[Growth]:
    return [Growth(kept, dict(kept.take_part(round_, {}))) for kept in keep_all(round_, groups)]


def grow(round_: Round, growths: list[Growth]) -> None:
    hungry = [growth for growth in growths if growth.kept.unplanned]
    for lending in (False, True):
        if lending and hungry:
            round_.keep_room_of_claimants()
        for growth in sorted(hungry, key=lambda each: _turn(round_, each.group)):
            _grow(round_, growth, lending)
    for growth in growths:
        round_.settle(_decision(growth))


def _turn(round_: Round, group: GroupView) -> tuple[int, float, tuple[int, str, str]]:
    queue = round_.snapshot.queues[group.queue].record
    return (-queue.priority, round_.queue_share(group.queue), group.order)


def _grow(round_: Round, growth: Growth, lending: bool) -> None:
    batches: dict[Shape, list[PodRecord]] = {}
    for pod in sorted(growth.left(), key=lambda pod: pod.order):
        batches.setdefault(pod.shape, []).append(pod)
    for shape, pods in batches.items():
        allowed, reason = _allowance(round_, growth.group, shape, lending)
        more = round_.space.place(pods[:allowed], partly=True) or {}
        growth.plan |= more
        round_.charge(growth.group, (pod for pod in pods if pod.uid in more))
        round_.window_left -= len(more)
        if len(more) < len(pods):
            growth.reason = reason if len(more) == allowed else Reason.NO_ROOM


def _allowance(round_: Round, group: GroupView, shape: Shape, lending: bool) -> tuple[int, Reason]:
    """How many more pods of a shape may start, and what stops the next one."""
    allowances = [
        (_headroom(round_, group, shape, round_.ceilings[group.queue]), Reason.QUEUE_CEILING),
        (max(round_.window_left, 0), Reason.WINDOW_FULL),
    ]
    if not lending:
        deserved = round_.shares[group.queue].deserved
        allowances.append((_headroom(round_, group, shape, deserved), Reason.QUEUE_SHARE))
    return min(allowances, key=lambda allowance: allowance[0])


def _headroom(round_: Round, group: GroupView, shape: Shape, limit: Mapping[str, float]) -> int:
    return round_.headroom(group.queue, shape.requests, limit)


def _decision(growth: Growth) -> GroupDecision:
    group = growth.group
    reason = growth.reason if growth.left() else None
    verdict = _verdict(growth)
    return GroupDecision(group.key, group.queue, verdict, reason, plan=growth.plan, moved=growth.kept.moved)


def _verdict(growth: Growth) -> Verdict:
    """A group that needs nobody starts with its first member."""
    if growth.group.placed:
        return Verdict.RUNNING
    return Verdict.STARTING if growth.plan or growth.group.pinned else Verdict.WAITING
