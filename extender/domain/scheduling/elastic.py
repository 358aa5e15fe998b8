"""Members beyond minMember: they start one by one while there is room, after all gangs have had their turn.

First what keeps each queue within its deserved share, then what is lent. Queues take turns by share, so that
none has all that is lent because it came first.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush

import msgspec

from extender.domain.decisions.decisions import GroupDecision
from extender.domain.lifecycle.stood_whole import whole_at
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.shapes import Shape
from extender.domain.scheduling.keeping import Kept, keep_all
from extender.domain.scheduling.round import Round
from extender.domain.snapshot.group_view import GroupView

Turn = tuple[int, float, str, str]  # of a queue: priority, share, age, name


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


class _Batch(msgspec.Struct):
    """Members of one group that are alike and still miss."""

    growth: Growth
    shape: Shape
    pods: list[PodRecord]


def grow(round_: Round, growths: list[Growth]) -> None:
    hungry = [growth for growth in growths if growth.kept.unplanned]
    for lending in (False, True):
        if lending and hungry:
            round_.keep_room_of_claimants()
        _take_turns(round_, hungry, lending)
    for growth in growths:
        round_.settle(_decision(round_, growth))


def _take_turns(round_: Round, hungry: Iterable[Growth], lending: bool) -> None:
    """The queue with the smallest share is next, until it has more than another one."""
    lines: dict[str, deque[_Batch]] = {}
    for growth in sorted(hungry, key=lambda each: each.group.order):
        lines.setdefault(growth.group.queue, deque()).extend(_batches(growth))
    turns = [_turn(round_, name) for name, line in lines.items() if line]
    heapify(turns)
    while turns:
        name = heappop(turns)[-1]
        line = lines[name]
        if not _grow(round_, line[0], _until_another(round_, line[0], turns), lending):
            line.popleft()
        if line:
            heappush(turns, _turn(round_, name))


def _batches(growth: Growth) -> Iterator[_Batch]:
    alike: dict[Shape, list[PodRecord]] = {}
    for pod in sorted(growth.left(), key=lambda pod: pod.order):
        alike.setdefault(pod.shape, []).append(pod)
    return (_Batch(growth, shape, pods) for shape, pods in alike.items())


def _turn(round_: Round, name: str) -> Turn:
    queue = round_.snapshot.queues[name].record
    return (-queue.priority, round_.queue_share(name), queue.created, name)


def _until_another(round_: Round, batch: _Batch, turns: Sequence[Turn]) -> int:
    """How many members bring a queue past the share of the next one of its priority."""
    queue = batch.growth.group.queue
    if not turns or turns[0][0] != -round_.snapshot.queues[queue].record.priority:
        return len(batch.pods)
    deserved = round_.deserved(queue)
    level = {name: due * turns[0][1] for name, due in deserved.items()}
    return _headroom(round_, batch.growth.group, batch.shape, level) + 1


def _grow(round_: Round, batch: _Batch, most: int, lending: bool) -> bool:
    """Start up to `most` of a batch; whether it may come again."""
    growth, pods = batch.growth, batch.pods
    allowed, reason = _allowance(round_, growth.group, batch.shape, lending)
    tried = pods[: min(allowed, most)]
    more = round_.space.place(tried, partly=True) or {}
    growth.plan |= more
    round_.charge(growth.group, (pod for pod in tried if pod.uid in more))
    round_.window_left -= len(more)
    batch.pods = [pod for pod in pods if pod.uid not in more]
    if not batch.pods:
        return False
    growth.reason = reason if len(more) == allowed else Reason.NO_ROOM
    return len(more) == len(tried) < allowed


def _allowance(round_: Round, group: GroupView, shape: Shape, lending: bool) -> tuple[int, Reason]:
    """How many more pods of a shape may start, and what stops the next one."""
    allowances = [
        (_headroom(round_, group, shape, round_.ceiling(group.queue)), Reason.QUEUE_CEILING),
        (max(round_.window_left, 0), Reason.WINDOW_FULL),
    ]
    if not lending:
        deserved = round_.deserved(group.queue)
        allowances.append((_headroom(round_, group, shape, deserved), Reason.QUEUE_SHARE))
    return min(allowances, key=lambda allowance: allowance[0])


def _headroom(round_: Round, group: GroupView, shape: Shape, limit: Mapping[str, float]) -> int:
    return round_.headroom(group.queue, shape.requests, limit)


def _decision(round_: Round, growth: Growth) -> GroupDecision:
    group = growth.group
    reason = growth.reason if growth.left() else None
    return GroupDecision(
        group.key,
        group.queue,
        _verdict(growth),
        reason,
        plan=growth.plan,
        moved=growth.kept.moved,
        stood_whole=_has_stood_whole(round_, group),
    )


def _has_stood_whole(round_: Round, group: GroupView) -> bool:
    moment = None if group.stood_whole else whole_at(group, round_.limits.whole_grace)
    if moment is None:
        return group.stood_whole
    if moment > round_.snapshot.now:
        round_.wake_at.append(moment)
    return moment <= round_.snapshot.now


def _verdict(growth: Growth) -> Verdict:
    """A group that needs nobody starts with its first member."""
    if growth.group.placed:
        return Verdict.RUNNING
    return Verdict.STARTING if growth.plan or growth.group.pinned else Verdict.WAITING
