"""The order of groups: queues take turns by share, and the queue's dequeueStrategy orders the groups inside
it.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import cached_property
from heapq import heapify, heappop, heappush
from math import inf
from typing import Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from extender.domain.model.reasons import Verdict
from extender.domain.model.records import GroupKey
from extender.domain.model.resources import Resources
from extender.domain.queues.records import QueueRecord
from extender.domain.queues.share_tree import TOP
from extender.domain.queues.tree import QueueView
from extender.domain.scheduling.backoff import failed_at
from extender.domain.scheduling.budget import Scope
from extender.domain.scheduling.round import Round
from extender.domain.scheduling.shares import QueueShares
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.phases import State, state_of
from extender.domain.snapshot.snapshot import Snapshot

# ---- Ageing: what a group gains in priority while it waits, in a queue with `spec.ageing`.
#
# All groups of a queue gain as much in an hour, from their creation on. So two of them never change
# places by waiting: the older one is ahead by what it gained before the other was created.

_HOUR = 3600.0


def rank(group: GroupView, ageing: int) -> float:
    """Smallest first: in the order of priority, with what was gained, at any moment."""
    return ageing * group.once(_created_at) / _HOUR - group.priority if ageing else -group.priority


def reaches_at(group: GroupView, ageing: int, priority: int, snapshot: Snapshot) -> float:
    """When, on the ledger's clock, its aged priority reaches `priority`; inf: never."""
    lacks = priority - group.priority
    return snapshot.moment(group.created) + lacks * _HOUR / ageing if ageing else inf


def _created_at(group: GroupView) -> float:
    """Seconds since 1970; inf where that cannot be read, as if it had been created last."""
    try:
        return datetime.fromisoformat(group.created).timestamp()
    except (ValueError, OverflowError):
        return inf


# ---- Laps: whose turn it is in a queue that rotates.
#
# Each waiting group has its turn once in a lap. It has had it when its start failed, or when it lacked
# room, a share or the ceiling and groups behind it started. Then it goes on to the next lap, behind all
# that have not had theirs. As long as none of them passes it, it keeps its turn.
#
# A group that comes joins the newest lap, so a stream of new ones never keeps back those who had their
# turn. Laps are remembered with the history of a group's starts; after a restart a new lap begins.


class Laps:
    def __init__(self, groups: Iterable[GroupView]) -> None:
        self._groups = groups

    def of(self, group: GroupView) -> int:
        """The lap in which a group has its next turn. One that could not be judged for many laps has one turn
        in advance of the others, not many."""
        newest = self._newest.get(group.queue, 0)
        return newest if group.start.lap is None else max(group.start.lap, newest - 1)

    @cached_property
    def _newest(self) -> dict[str, int]:
        """By queue, of the groups that wait."""
        newest: dict[str, int] = {}
        for group in self._groups:
            lap = group.start.lap
            if lap is not None and lap > newest.get(group.queue, 0) and state_of(group) is State.WAITING:
                newest[group.queue] = lap
        return newest


# ---- dequeueStrategy: in which order the groups of one queue are judged, and whether one that waits
# lets others pass.
#
# | strategy | order | while its first group lacks room | |------------|------------------------|-------
# --------------------------------------------------------------| | traverse | priority, age | groups
# that fit pass it | | fifo | priority, age | nobody passes it, also while it backs off | | priority |
# priority, age | groups that fit pass it; once anything becomes free, it is tried | | | | again before
# them, also while it backs off | | rotation | lap, priority, age | groups that fit pass it; then it
# comes after all that have not had | | | | their turn in this lap (laps.py) | | mixed | those of high
# priority | as fifo while that group is of high priority, else as rotation | | | first, the rest by lap
# | |
#
# Priority includes what a group gained by ageing. Anything else counts as traverse.

FIRST_HIGH_PRIORITY = 4  # of `mixed` without priorityThreshold, as in koord-queue


class Rank(NamedTuple):
    """The place of a group in its queue; smallest first."""

    is_low: bool
    lap: int
    priority: float
    created: str
    key: str


class Traverse:
    """The strategy of one queue in one round."""

    def __init__(self, round_: Round, queue: QueueRecord, laps: Laps) -> None:
        self._round = round_
        self._queue = queue
        self._laps = laps

    def rank(self, group: GroupView) -> Rank:
        priority = rank(group, self._queue.ageing)
        lap = self._laps.of(group) if self.has_turns(group) else 0
        return Rank(not self.is_high(group), lap, priority, group.created, group.key)

    def is_high(self, group: GroupView) -> bool:
        """Whether it comes before all groups of which that is not true."""
        return True

    def lets_none_pass(self, group: GroupView) -> bool:
        """Whether all groups behind it wait until it starts."""
        return False

    def has_turns(self, group: GroupView) -> bool:
        """Whether it loses its turn when others pass it."""
        return False

    def backs_off(self, group: GroupView) -> bool:
        """Whether it is not tried now, because a start of it failed."""
        return self._round.snapshot.now < group.start.retry_at


class Fifo(Traverse):
    def lets_none_pass(self, group: GroupView) -> bool:
        return True


class StrictPriority(Traverse):
    def backs_off(self, group: GroupView) -> bool:
        if group.is_on_nodes or not super().backs_off(group):
            return super().backs_off(group)
        self._round.shortages.are_all = False  # any event that frees something needs a round
        freed_at = self._round.snapshot.freed.for_group(group.key)
        return freed_at <= failed_at(group, self._round.limits)


class Rotation(Traverse):
    def has_turns(self, group: GroupView) -> bool:
        return True


class Mixed(Traverse):
    def is_high(self, group: GroupView) -> bool:
        snapshot, each_hour = self._round.snapshot, self._queue.ageing
        given = self._queue.priority_threshold
        threshold = FIRST_HIGH_PRIORITY if given is None else given
        if group.priority >= threshold:
            return True
        return each_hour > 0 and self._round.is_due(reaches_at(group, each_hour, threshold, snapshot))

    def lets_none_pass(self, group: GroupView) -> bool:
        return self.is_high(group)

    def has_turns(self, group: GroupView) -> bool:
        return not self.is_high(group)


_STRATEGIES: Mapping[str, type[Traverse]] = {
    "traverse": Traverse,
    "fifo": Fifo,
    "priority": StrictPriority,
    "rotation": Rotation,
    "mixed": Mixed,
}


def lets_all_pass(queue: QueueRecord) -> bool:
    """Whether what its groups do is no matter to those behind them, but for what they take."""
    return _STRATEGIES.get(queue.strategy, Traverse) is Traverse


class Strategies:
    """The strategies of all queues in one round."""

    def __init__(self, round_: Round) -> None:
        self._round = round_
        self.laps = Laps(round_.snapshot.groups.values())
        self._of: dict[str, Traverse] = {}

    def of(self, group: GroupView) -> Traverse:
        """That of a group's queue."""
        if group.queue not in self._of:
            queue = self._round.snapshot.queues[group.queue].record
            kind = _STRATEGIES.get(queue.strategy, Traverse)
            self._of[group.queue] = kind(self._round, queue, self.laps)
        return self._of[group.queue]

    def rank(self, group: GroupView) -> Rank:
        return self.of(group).rank(group)


# ---- The order of groups: queues take turns, inside a queue the first is served first.
#
# Among siblings, from root down, the queue of the highest priority is next, among equals the one with
# the smallest share of what it deserves, then the oldest. A queue's share rises with what its groups,
# and those of queues below it, take, so that none has everything because it came first. Inside a queue:
# priority, then age, then name.

T = TypeVar("T")


class Turn(NamedTuple):
    """Of a queue among its siblings; smallest first."""

    priority: int  # negative: high ones come first
    share: float
    created: str
    queue: str
    node: int


class TurnOrder(Generic[T]):
    """Lines of gangs, or of members that come one by one, by queue. From root down, the sibling whose turn it
    is; with each taking, the shares on its way change, and no others."""

    def __init__(
        self, shares: QueueShares, queues: Mapping[str, QueueView], lines: Mapping[str, deque[T]]
    ) -> None:
        self._shares = shares
        self._tree = shares.tree
        self._queues = queues
        self._lines = lines
        self._turns: defaultdict[int, list[Turn]] = defaultdict(list)  # of the children of a node
        self._way: list[Turn] = []  # of the queue whose turn it is, from root down
        waiting = {node for queue, line in lines.items() if line for node in self._tree.path(queue)}
        for node in waiting - {TOP}:
            self._turns[self._tree.parents[node]].append(self._turn(node))
        for turns in self._turns.values():
            heapify(turns)

    def __iter__(self) -> Iterator[tuple[str, deque[T]]]:
        """A queue and its line, again and again until all lines are empty."""
        while self._turns[TOP]:
            self._way = self._next_way()
            queue = self._way[-1].queue
            yield queue, self._lines[queue]
            self._put_back()

    def members_until_next(self, queue: str, requests: Resources) -> int | None:
        """How many members that ask for `requests` bring the queue whose turn it is, or one above it, past
        the next of its siblings with the same priority; None where none has any."""
        counts = [
            self._shares.headroom_at(turn.node, requests, following.share) + 1
            for turn in self._way
            if (following := self._following(turn)) is not None
        ]
        return min(counts, default=None)

    def _next_way(self) -> list[Turn]:
        way, node = [], TOP
        while turns := self._turns.get(node):
            way.append(heappop(turns))
            node = way[-1].node
        return way

    def _put_back(self) -> None:
        has_more = bool(self._lines[self._way[-1].queue])
        for turn in reversed(self._way):
            has_more = has_more or bool(self._turns.get(turn.node))
            if has_more:
                heappush(self._turns[self._tree.parents[turn.node]], self._turn(turn.node))

    def _following(self, turn: Turn) -> Turn | None:
        following = self._turns[self._tree.parents[turn.node]][:1]
        return following[0] if following and following[0].priority == turn.priority else None

    def _turn(self, node: int) -> Turn:
        queue = self._tree.queues[node]
        view = self._queues.get(queue)
        priority = -view.record.priority if view is not None and not self._tree.is_seat(node) else 0
        created = view.record.created if view is not None else ""
        return Turn(priority, self._shares.of_node(node), created, queue, node)


def by_priority(group: GroupView) -> tuple[float | str, ...]:
    """Priority, then age, then name."""
    return group.order


def in_lines(
    things: Iterable[T],
    group_of: Callable[[T], GroupView],
    rank: Callable[[GroupView], tuple[float | str, ...]] = by_priority,
) -> dict[str, deque[T]]:
    """By queue, in the order inside it: smallest rank first."""
    lines: defaultdict[str, list[T]] = defaultdict(list)
    for thing in things:
        lines[group_of(thing).queue].append(thing)
    for line in lines.values():
        line.sort(key=lambda each: rank(group_of(each)))
    return {queue: deque(line) for queue, line in lines.items()}


# ---- Turns in queues that rotate: who has had one in a round, and goes on to the next lap.


def lose_turns(round_: Round, strategies: Strategies, groups: Iterable[GroupView]) -> None:
    """Note the lap of each of `groups`, which were judged in this round, on what was decided on it."""
    turning = [group for group in groups if strategies.of(group).has_turns(group)]
    for line in in_lines(turning, lambda group: group, strategies.rank).values():
        is_passed = False
        for group in reversed(line):
            decision = round_.decided[group.key]
            starts = decision.verdict is Verdict.STARTING
            lap = strategies.laps.of(group) + (is_passed and not starts)
            round_.settle(replace(decision, lap=lap))
            is_passed = is_passed or starts


# ---- Heads of lines: groups that wait and let none pass.


class Heads:
    """By whom they hold up: all groups of a queue, or those of one user or namespace in it."""

    def __init__(self) -> None:
        self._of: dict[Scope, GroupKey] = {}

    def note(self, scope: Scope, group: GroupKey) -> None:
        self._of.setdefault(scope, group)

    def before(self, scopes: Iterable[Scope]) -> GroupKey | None:
        """The head behind which a group waits to which `scopes` apply; None: none holds it up."""
        if not self._of:
            return None
        return next((self._of[scope] for scope in scopes if scope in self._of), None)
