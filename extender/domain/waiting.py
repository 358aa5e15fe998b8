"""Admitting groups that wait: by share of their queue, whole, or with the one reason that holds them.

First all groups at or below their queue's deserved share. Then lending: what remains goes to groups above it,
but not the room that a group of the first pass could already stand on: it has a claim on it.
"""

from collections import deque
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from msgspec.structs import replace

from extender.domain.decisions import GroupDecision
from extender.domain.keeping import take_part
from extender.domain.misfits import explain
from extender.domain.quorum import Missing, Signature, missing, missing_of
from extender.domain.reasons import Reason, Verdict
from extender.domain.records import GroupKey
from extender.domain.resources import show
from extender.domain.round import Round
from extender.domain.snapshot import GroupView
from extender.domain.space import Space

_WAITS_FOR_ROOM = (Reason.NO_ROOM, Reason.FRAGMENTED)
_NEVER = (Reason.NEVER_FITS, Reason.TOO_LARGE_FOR_WINDOW)  # who can never start holds up nobody
_FIFO = "fifo"

Turn = tuple[int, float, str, str]  # of a queue: priority, share, age, name
Why = tuple[Reason, str]


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
    if too_much := _above_capability(round_, group):
        round_.settle(_waits(group, Reason.NEVER_FITS, too_much))
    elif wanted.absent:
        round_.settle(_waits(group, Reason.NOT_ENOUGH_MEMBERS, wanted.absent))
    elif round_.snapshot.now < group.start.retry_at:
        round_.wake_at.append(group.start.retry_at)
        round_.settle(_waits(group, Reason.BACKING_OFF, group.start.failure, group.start.retry_at))
    else:
        return False
    return True


def _above_capability(round_: Round, group: GroupView) -> str:
    """How `minResources` is more than its queue may ever hold; empty where it is not. Volcano's rule for who
    is let in: while the group is Pending, operators make no members that could never start."""
    capability = round_.snapshot.queues[group.queue].record.capability or {}
    more = [
        f"{name}: {show(name, amount)} > {show(name, capability[name])}"
        for name, amount in group.min_resources.items()
        if amount > capability.get(name, amount)
    ]
    return (
        f"spec.minResources is above the capability of queue {group.queue}: {', '.join(more)}" if more else ""
    )


class _Admission:
    def __init__(self, round_: Round) -> None:
        self._round = round_
        self._unclaimed: Space | None = None  # the room as it was before claims were kept
        self._head: dict[str, GroupKey] = {}  # of fifo queues: the group that must go first
        self._misfits: dict[Signature | None, Why] = {}
        self._equals: dict[Signature, GroupDecision | None] = {}  # what was said of such groups in this turn
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
            over_share += self._until_one_takes(lines[name], lending)
            if lines[name]:
                heappush(turns, self._turn(name))
        return over_share

    def _until_one_takes(self, line: deque[GroupView], lending: bool) -> list[GroupView]:
        """Judge the first groups of a queue: it has its turn until one of them takes something. Returns those
        above their share."""
        over_share: list[GroupView] = []
        self._equals.clear()
        taken = self._round.taken
        while line and self._round.taken == taken:
            group = line.popleft()
            decision = self._judge(group, lending)
            if decision is None:
                over_share += self._put_off(group, line)
            else:
                self._round.settle(decision)
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
        if self._strategy(group) != _FIFO:
            return [group]
        rest = list(line)
        line.clear()
        return [group, *rest]

    def _strategy(self, group: GroupView) -> str:
        return self._round.snapshot.queues[group.queue].record.strategy

    def _judge(self, group: GroupView, lending: bool) -> GroupDecision | None:
        """The decision on one group; None where it is above its share and lending comes later."""
        head = self._head.get(group.queue)
        if head is not None:
            return _waits(group, Reason.BEHIND_OTHERS, f"{head} goes first in queue {group.queue}")
        decision = self._decide_on_equals(group, lending)
        return None if decision is None else self._blocked(group, decision, lending)

    def _decide_on_equals(self, group: GroupView, lending: bool) -> GroupDecision | None:
        """Groups of one queue that want the same are judged once, until somebody takes something."""
        wanted = missing(group)
        signature = None if _may_choose(group) else _signature(self._round.space, wanted)
        if signature is None:
            return self._decide(group, lending)
        if signature not in self._equals:
            self._equals[signature] = self._decide(group, lending)
        said = self._equals[signature]
        return None if said is None else replace(said, key=group.key)

    def _decide(self, group: GroupView, lending: bool) -> GroupDecision | None:
        wanted = self._wanted(group)
        obstacle = self._ceiling(group, wanted) or self._window(group, wanted)
        if obstacle is None and not lending and self._round.over_share(group.queue, wanted.requests):
            return None
        return obstacle or self._start(group, wanted)

    def _blocked(self, group: GroupView, decision: GroupDecision, lending: bool) -> GroupDecision:
        """Remember whom a waiting group blocks: the rest of a fifo queue, and those who would borrow."""
        if decision.verdict is Verdict.WAITING:
            if self._strategy(group) == _FIFO and decision.reason not in _NEVER:
                self._head[group.queue] = group.key
            if decision.reason in _WAITS_FOR_ROOM and not lending:
                self._round.claimants.append(group)
        return decision

    def _wanted(self, group: GroupView) -> Missing:
        """Whom to start. A group with more members than it needs starts without those that find no node."""
        wanted, space = missing(group), self._round.space
        if not _may_choose(group) or space.could_place(wanted.members, wanted.shapes):
            return wanted
        return missing_of(group, space.fitting(group.waiting))

    def _ceiling(self, group: GroupView, wanted: Missing) -> GroupDecision | None:
        asked = wanted.requests
        above = self._round.over_ceiling(group.queue, asked)
        if not above:
            return None
        if self._round.never_below_ceiling(group.queue, asked):
            return _waits(group, Reason.NEVER_FITS, f"larger than queue {group.queue} may grow: {above}")
        return _waits(group, Reason.QUEUE_CEILING, f"queue {group.queue}: {above}")

    def _window(self, group: GroupView, wanted: Missing) -> GroupDecision | None:
        size, window = len(wanted.members), self._round.limits.window
        if size > window:
            return _waits(group, Reason.TOO_LARGE_FOR_WINDOW, f"{size} members, window {window}")
        if size > self._round.window_left or self._window_is_full:
            self._equals.clear()
            self._window_is_full = True  # strict: a large gang is not overtaken for ever by small ones
            return _waits(group, Reason.WINDOW_FULL, f"{size} members to start, window {window}")
        return None

    def _start(self, group: GroupView, wanted: Missing) -> GroupDecision:
        space = self._round.space
        signature = _signature(space, wanted)
        if signature in self._misfits:
            return _waits(group, *self._misfits[signature])
        plan = None if space.room.is_short_for(wanted.shapes) else space.place(wanted.members)
        if plan is None:
            why = self._why_not(group, wanted)
            if signature is not None:
                self._misfits[signature] = why
            return _waits(group, *why)
        take_part(self._round, group, plan)
        return GroupDecision(group.key, group.queue, Verdict.STARTING, plan=plan)

    def _why_not(self, group: GroupView, wanted: Missing) -> tuple[Reason, str]:
        if self._unclaimed is not None and self._unclaimed.could_place(wanted.members, wanted.shapes):
            claimants = ", ".join(sorted({each.queue for each in self._round.claimants}))
            return Reason.QUEUE_SHARE, f"groups of {claimants} have a claim on the room"
        return explain(self._round, self._unclaimed or self._round.space, group, wanted)


def _may_choose(group: GroupView) -> bool:
    """Whether a group has more members than it needs, and it matters who of them starts."""
    spare = len(missing(group).members) < len(group.waiting)
    return spare and len({pod.shape for pod in group.waiting}) > 1


def _signature(space: Space, wanted: Missing) -> Signature | None:
    """Equal for groups that fit or not together; None where a member's labels matter to that."""
    return None if space.neighbours.any_particular(wanted.members, wanted.shapes) else wanted.signature


def _waits(group: GroupView, reason: Reason, detail: str, retry_at: float = 0.0) -> GroupDecision:
    return GroupDecision(group.key, group.queue, Verdict.WAITING, reason, detail, retry_at=retry_at)
