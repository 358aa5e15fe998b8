"""Admitting groups that wait: by share of their queue, whole, or with the one reason that holds them.

First all groups at or below their queue's deserved share. Then lending: what remains goes to groups above it,
but not the room that a group of the first pass could already stand on: it has a claim on it.
"""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

from extender.domain.decisions import GroupDecision
from extender.domain.keeping import take_part
from extender.domain.misfits import explain
from extender.domain.quorum import missing, missing_of
from extender.domain.reasons import Reason, Verdict
from extender.domain.records import GroupKey, PodRecord
from extender.domain.round import Round, requests_of
from extender.domain.shapes import Shape
from extender.domain.snapshot import GroupView
from extender.domain.space import Space

_WAITS_FOR_ROOM = (Reason.NO_ROOM, Reason.FRAGMENTED)
_FIFO = "fifo"

Turn = tuple[int, float, str, str]  # of a queue: priority, share, age, name
Signature = frozenset[tuple[Shape, int]]


def admit(round_: Round, groups: Iterable[GroupView]) -> None:
    ready = [group for group in groups if not _not_ready(round_, group)]
    admission = _Admission(round_)
    over_share = admission.run(ready, lending=False)
    if over_share:
        admission.keep_room_of_claimants()
        admission.run(over_share, lending=True)


def _not_ready(round_: Round, group: GroupView) -> bool:
    """Settle groups that no room would help."""
    wanted = missing(group)
    if wanted.absent:
        round_.settle(_waits(group, Reason.NOT_ENOUGH_MEMBERS, wanted.absent))
    elif round_.snapshot.now < group.start.retry_at:
        round_.wake_at.append(group.start.retry_at)
        round_.settle(_waits(group, Reason.BACKING_OFF, group.start.failure, group.start.retry_at))
    else:
        return False
    return True


class _Admission:
    def __init__(self, round_: Round) -> None:
        self._round = round_
        self._unclaimed: Space | None = None  # the room as it was before claims were kept
        self._head: dict[str, GroupKey] = {}  # of fifo queues: the group that must go first
        self._misfits: dict[Signature | None, tuple[Reason, str]] = {}
        self._window_is_full = False

    def run(self, groups: Iterable[GroupView], lending: bool) -> list[GroupView]:
        """Judge `groups` queue by queue; returns those above their share (none when lending)."""
        lines: dict[str, deque[GroupView]] = {}
        for group in sorted(groups, key=lambda each: each.order):
            lines.setdefault(group.queue, deque()).append(group)
        turns = [self._turn(name) for name in lines]
        heapify(turns)
        over_share: list[GroupView] = []
        while turns:
            name = heappop(turns)[-1]
            group = lines[name].popleft()
            decision = self._judge(group, lending)
            if decision is None:
                over_share += self._put_off(group, lines[name])
            else:
                self._round.settle(decision)
            if lines[name]:
                heappush(turns, self._turn(name))
        return over_share

    def keep_room_of_claimants(self) -> None:
        """From now on room is lent."""
        self._unclaimed = self._round.space.clone()
        self._misfits.clear()
        self._round.keep_room_of_claimants()

    def _turn(self, name: str) -> Turn:
        queue = self._round.snapshot.queues[name].record
        return (-queue.priority, self._round.queue_share(name), queue.created, name)

    def _put_off(self, group: GroupView, line: deque[GroupView]) -> list[GroupView]:
        """A group above its share is judged again when lending; in a fifo queue the rest waits with it."""
        if self._round.snapshot.queues[group.queue].record.strategy != _FIFO:
            return [group]
        rest = list(line)
        line.clear()
        return [group, *rest]

    def _judge(self, group: GroupView, lending: bool) -> GroupDecision | None:
        """The decision on one group; None where it is above its share and lending comes later."""
        head = self._head.get(group.queue)
        if head is not None:
            return _waits(group, Reason.BEHIND_OTHERS, f"{head} goes first in queue {group.queue}")
        members = self._members(group)
        obstacle = self._ceiling(group, members) or self._window(group, members)
        if obstacle is None and not lending:
            above = self._round.over_share(group.queue, requests_of(members))
            if above:
                return None
        return self._blocked(group, obstacle or self._start(group, members), lending)

    def _blocked(self, group: GroupView, decision: GroupDecision, lending: bool) -> GroupDecision:
        """Remember whom a waiting group blocks: the rest of a fifo queue, and those who would borrow."""
        if decision.verdict is Verdict.WAITING:
            if self._round.snapshot.queues[group.queue].record.strategy == _FIFO:
                self._head[group.queue] = group.key
            if decision.reason in _WAITS_FOR_ROOM and not lending:
                self._round.claimants.append(group)
        return decision

    def _members(self, group: GroupView) -> Sequence[PodRecord]:
        """Whom to start. A group with more members than it needs starts without those that find no node."""
        members, shapes = missing(group).members, {pod.shape for pod in group.waiting}
        if len(members) == len(group.waiting) or len(shapes) == 1 or self._round.space.could_place(members):
            return members
        return missing_of(group, self._round.space.fitting(group.waiting)).members

    def _ceiling(self, group: GroupView, members: Sequence[PodRecord]) -> GroupDecision | None:
        asked = requests_of(members)
        above = self._round.over_ceiling(group.queue, asked)
        if not above:
            return None
        if self._round.never_below_ceiling(group.queue, asked):
            return _waits(group, Reason.NEVER_FITS, f"larger than queue {group.queue} may grow: {above}")
        return _waits(group, Reason.QUEUE_CEILING, f"queue {group.queue}: {above}")

    def _window(self, group: GroupView, members: Sequence[PodRecord]) -> GroupDecision | None:
        size, window = len(members), self._round.limits.window
        if size > window:
            return _waits(group, Reason.TOO_LARGE_FOR_WINDOW, f"{size} members, window {window}")
        if size > self._round.window_left or self._window_is_full:
            self._window_is_full = True  # strict: a large gang is not overtaken for ever by small ones
            return _waits(group, Reason.WINDOW_FULL, f"{size} members to start, window {window}")
        return None

    def _start(self, group: GroupView, members: Sequence[PodRecord]) -> GroupDecision:
        signature = _signature(self._round.space, members)
        if signature in self._misfits:
            return _waits(group, *self._misfits[signature])
        plan = self._round.space.place(members)
        if plan is None:
            why = self._why_not(group, members)
            if signature is not None:
                self._misfits[signature] = why
            return _waits(group, *why)
        take_part(self._round, group, plan)
        return GroupDecision(group.key, group.queue, Verdict.STARTING, plan=plan)

    def _why_not(self, group: GroupView, members: Sequence[PodRecord]) -> tuple[Reason, str]:
        if self._unclaimed is not None and self._unclaimed.could_place(members):
            claimants = ", ".join(sorted({each.queue for each in self._round.claimants}))
            return Reason.QUEUE_SHARE, f"groups of {claimants} have a claim on the room"
        return explain(self._round, self._unclaimed or self._round.space, group, members)


def _signature(space: Space, members: Sequence[PodRecord]) -> Signature | None:
    """Equal for groups that fit or not together; None where a member's labels matter to that."""
    if any(space.is_particular(pod) for pod in members):
        return None
    return frozenset(Counter(pod.shape for pod in members).items())


def _waits(group: GroupView, reason: Reason, detail: str, retry_at: float = 0.0) -> GroupDecision:
    return GroupDecision(group.key, group.queue, Verdict.WAITING, reason, detail, retry_at=retry_at)
