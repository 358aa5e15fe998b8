"""Order of groups: queues take turns by share, and the dequeueStrategy of a queue orders its groups.

| strategy   | order                  | while its first group lacks capacity                                |
|------------|------------------------|---------------------------------------------------------------------|
| traverse   | priority, age          | groups that fit pass it                                             |
| fifo       | priority, age          | no group passes it, even while it backs off                         |
| priority   | priority, age          | groups that fit pass it; once any capacity becomes free, it is      |
|            |                        | tried again before them, even while it backs off                    |
| fair       | recent usage of users, | groups that fit pass it                                             |
|            | priority, age          |                                                                     |
| rotation   | rotation, priority,    | groups that fit pass it; then it comes after all groups that have   |
|            | age                    | not had their turn in this rotation                                 |
| mixed      | high priority first,   | as fifo if that group has high priority, otherwise as rotation      |
|            | then rotation          |                                                                     |

The priority of a group includes its gain by ageing (`spec.ageing`). All groups of a queue gain the same
amount per hour from their creation on, so two groups never change places by waiting. Any other strategy
counts as traverse.

In a rotation, each waiting group has one turn. A turn ends when the start of the group fails. It also ends
when groups behind it start while the group lacks capacity, share or headroom and has no reservation. A new
group joins the newest rotation, so a stream of new groups never holds back groups that had their turn. After
a restart of Muster, a new rotation begins.

Sibling queues take turns, from root down. They are compared by these criteria, in this order:

1. their priority,
2. their share, where all queues within their deserved share are equal,
3. their decayed usage relative to their due,
4. their share,
5. the age of their first group,
6. their name.

Some requests are too large to be divided by shares. In this case, usage decides which queue has its turn, so
that each queue gets its part over time.
Each allocation raises the share of a queue. `fairShare` of the parent may replace share and usage: Historical
compares the sum of both, Instant compares only the share.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from heapq import heappop, heappush
from math import inf
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from extender.api import keys
from extender.api.units import as_datetime
from extender.domain.model.reasons import Verdict
from extender.domain.model.resources import Resources
from extender.domain.queues.records import QueueRecord
from extender.domain.queues.share_tree import EPSILON, TOP
from extender.domain.queues.tree import QueueInfo
from extender.domain.scheduling.cycle import OVER_BUDGET, Cycle
from extender.domain.scheduling.shares import QueueShares
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.phases import State, state_of

FIRST_HIGH_PRIORITY = 4  # default priorityThreshold of `mixed`, as in koord-queue
_HOUR_SECONDS = 3600.0
T = TypeVar("T")


# Sort key of a group: whether its priority is not high, rotation, recent usage of its user, priority and age.
Rank = tuple[bool, int, float, float, str, str, str, str]


class Traverse:
    """Strategy of one queue in one cycle. `rotation_of` returns the rotation of a group's next turn."""

    def __init__(self, cycle: Cycle, queue: QueueRecord, rotation_of: Callable[[GroupInfo], int]) -> None:
        self._cycle = cycle
        self._queue = queue
        self._rotation_of = rotation_of

    def rank(self, group: GroupInfo) -> Rank:
        """Return the sort key of a group in its queue."""
        priority = float(-group.priority)
        if self._queue.ageing:
            priority += self._queue.ageing * group.compute(_created_at) / _HOUR_SECONDS
        rotation = self._rotation_of(group) if self.has_turns(group) else 0
        return not self.has_high_priority(group), rotation, self.usage_of_user(group), priority, *group.age

    def usage_of_user(self, group: GroupInfo) -> float:
        """Return the recent usage of the group's user, if the strategy orders groups by usage."""
        return 0.0

    def has_high_priority(self, group: GroupInfo) -> bool:
        """Return whether a group has high priority. Such groups precede all other groups."""
        return True

    def lets_none_pass(self, group: GroupInfo) -> bool:
        """Return whether all groups behind this group wait until it starts."""
        return False

    def has_turns(self, group: GroupInfo) -> bool:
        """Return whether a group loses its turn in the rotation when other groups pass it."""
        return False

    def backs_off(self, group: GroupInfo) -> bool:
        """Return whether a group is not tried now because a start has failed."""
        return self._cycle.snapshot.now < group.start.retry_at

    def may_be_inadmissible(self, group: GroupInfo) -> bool:
        """Return whether a group may be inadmissible.

        If so, only changes of its queue and of its reads can change its rank and its decision.
        """
        return True


class Fair(Traverse):
    def usage_of_user(self, group: GroupInfo) -> float:
        namespace = group.key.partition("/")[0]
        return self._cycle.snapshot.past_usage.submitter_usage(group.queue, group.spec.submitter, namespace)


class Fifo(Traverse):
    def lets_none_pass(self, group: GroupInfo) -> bool:
        return True


class StrictPriority(Traverse):
    def backs_off(self, group: GroupInfo) -> bool:
        """Return whether a group backs off. A failed group only waits until more capacity is free."""
        if group.is_on_nodes or group.start.failure == OVER_BUDGET or not super().backs_off(group):
            return super().backs_off(group)
        failed_at = group.start.retry_at - self._cycle.limits.retry_after(group.start.failures - 1)
        return self._cycle.snapshot.last_freed.for_group(group.key) <= failed_at

    def may_be_inadmissible(self, group: GroupInfo) -> bool:
        return not super().backs_off(group)


class Rotation(Traverse):
    def has_turns(self, group: GroupInfo) -> bool:
        return True


class Mixed(Traverse):
    def has_high_priority(self, group: GroupInfo) -> bool:
        """Return whether the group's priority, raised by ageing, has reached the queue's threshold.

        If ageing will raise it to the threshold later, request a cycle at that time.
        """
        gain, threshold = self._queue.ageing, self._queue.priority_threshold
        lacking_points = (FIRST_HIGH_PRIORITY if threshold is None else threshold) - group.priority
        if lacking_points <= 0:
            return True
        created_at = self._cycle.snapshot.instant(group.created_at) if gain > 0 else 0.0
        return gain > 0 and self._cycle.is_due(created_at + lacking_points * _HOUR_SECONDS / gain)

    def lets_none_pass(self, group: GroupInfo) -> bool:
        return self.has_high_priority(group)

    def has_turns(self, group: GroupInfo) -> bool:
        return not self.has_high_priority(group)

    def may_be_inadmissible(self, group: GroupInfo) -> bool:
        return not self._queue.ageing  # with ageing, time alone can give a group high priority


_STRATEGIES: Mapping[str, type[Traverse]] = {
    "traverse": Traverse,
    "fair": Fair,
    "fifo": Fifo,
    "priority": StrictPriority,
    "rotation": Rotation,
    "mixed": Mixed,
}


def orders_by_usage(queue: QueueRecord) -> bool:
    """Return whether a queue orders its groups by the recent usage of users."""
    return _STRATEGIES.get(queue.strategy, Traverse) is Fair


class Strategies:
    """Strategies of all queues in one cycle."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._strategy_by_queue: dict[str, Traverse] = {}

    def strategy_of(self, group: GroupInfo) -> Traverse:
        """Return the strategy of the group's queue."""
        if group.queue not in self._strategy_by_queue:
            queue = self._cycle.snapshot.queues[group.queue].record
            strategy = _STRATEGIES.get(queue.strategy, Traverse)
            self._strategy_by_queue[group.queue] = strategy(self._cycle, queue, self.rotation_of)
        return self._strategy_by_queue[group.queue]

    def rank(self, group: GroupInfo) -> Rank:
        """Return the sort key of a group in its queue."""
        return self.strategy_of(group).rank(group)

    def rotation_of(self, group: GroupInfo) -> int:
        """Return the rotation in which a group has its next turn.

        A group that missed many rotations has one turn before the other groups, not one turn for each missed
        rotation.
        """
        newest_rotation, own_rotation = self._newest_rotations.get(group.queue, 0), group.start.rotation
        return newest_rotation if own_rotation is None else max(own_rotation, newest_rotation - 1)

    @cached_property
    def _newest_rotations(self) -> dict[str, int]:
        """Return the newest rotation of pending groups, by queue."""
        newest: dict[str, int] = {}
        for group in self._cycle.snapshot.groups.values():
            last = group.start.rotation
            if last is not None and last > newest.get(group.queue, 0) and state_of(group) is State.WAITING:
                newest[group.queue] = last
        return newest


def advance_rotation(cycle: Cycle, strategies: Strategies, groups: Iterable[GroupInfo]) -> None:
    """Record on the decision of each group its next rotation. This cycle has evaluated all `groups`."""
    rotating_groups = [group for group in groups if strategies.strategy_of(group).has_turns(group)]
    for line in lines_by_queue(rotating_groups, lambda group: group, strategies.rank).values():
        is_passed = False
        for group in reversed(line):
            decision = cycle.decisions[group.key]
            is_start = decision.verdict is Verdict.STARTING
            loses_turn = is_passed and not is_start and decision.reservation is None
            rotation = strategies.rotation_of(group) + loses_turn
            cycle.record(replace(decision, rotation=rotation))
            is_passed = is_passed or is_start


def _created_at(group: GroupInfo) -> float:
    """Return the creation time in seconds since 1970.

    An unreadable time is infinite, as for the newest group.
    """
    try:
        return as_datetime(group.created_at).timestamp()
    except (ValueError, OverflowError):
        return inf


class Turn(NamedTuple):
    """Sort key of a queue among its siblings. The queue with the smallest key is next."""

    priority: int  # negated, so that higher priorities come first
    due_share: float  # share of the queue; all shares up to the deserved share are equal
    usage: float  # recent usage
    share: float
    first_created: str  # creation time of its first group
    queue: str
    node: int


class TurnOrder(Generic[T]):
    """Order in which queues take turns. `lines` holds gangs or single members by queue.

    Each allocation changes only the shares on the path from root to the queue.
    """

    def __init__(
        self,
        shares: QueueShares,
        queues: Mapping[str, QueueInfo],
        lines: Mapping[str, deque[T]],
        get_group: Callable[[T], GroupInfo],
    ) -> None:
        self._shares, self._group_of = shares, get_group
        self._tree = shares.tree
        self._queues = queues
        self._lines = lines
        self._turns: defaultdict[int, list[Turn]] = defaultdict(list)  # turns of a node's children
        self._path: list[Turn] = []  # turns from root to the current queue
        waiting_nodes = {node for queue, line in lines.items() if line for node in self._tree.path(queue)}
        for node in sorted(waiting_nodes - {TOP}, reverse=True):  # children have higher numbers
            heappush(self._turns[self._tree.parents[node]], self._turn_of(node))

    def __iter__(self) -> Iterator[tuple[str, deque[T]]]:
        """Yield the next queue and its line, until all lines are empty."""
        while self._turns[TOP]:
            self._path, node = [], TOP
            while turns := self._turns.get(node):
                self._path.append(heappop(turns))
                node = self._path[-1].node
            queue = self._path[-1].queue
            yield queue, self._lines[queue]
            has_more = bool(self._lines[queue])
            for turn in reversed(self._path):
                has_more = has_more or bool(self._turns.get(turn.node))
                if has_more:
                    heappush(self._turns[self._tree.parents[turn.node]], self._turn_of(turn.node))

    def members_until_next(self, requests: Resources) -> int | None:
        """Return after how many started members with `requests` the turn of the current queue ends.

        The next turn belongs to a sibling with the same priority, of the queue or of a queue above it. None
        means that there is no such sibling.
        """
        member_counts: list[int] = []
        for turn in self._path:
            siblings = self._turns[self._tree.parents[turn.node]]
            if siblings and siblings[0].priority == turn.priority:
                max_share, later_turn = self._equal_share(turn, siblings[0])
                slack = EPSILON if later_turn < siblings[0] else -EPSILON
                member_counts.append(self._shares.headroom_at(turn.node, requests, max_share, slack) + 1)
        return min(member_counts, default=None)

    def _equal_share(self, turn: Turn, sibling: Turn) -> tuple[float, Turn]:
        """Return the share up to which a queue precedes a sibling, and the queue's turn at that share."""
        match _fair_share_mode(self._shares, self._queues, turn.node):
            case keys.HISTORICAL:
                max_share = sibling.due_share - self._shares.recent_usage(turn.node)
                return max_share, turn._replace(due_share=sibling.due_share, share=max_share)
            case keys.INSTANT:
                return sibling.due_share, turn._replace(due_share=sibling.due_share, share=sibling.due_share)
        max_share = sibling.due_share
        if max_share <= 1.0 and turn.usage >= sibling.usage:
            max_share = sibling.share
        return max_share, turn._replace(due_share=max(max_share, 1.0), share=max_share)

    def _turn_of(self, node: int) -> Turn:
        """Return the sort key of a queue among its siblings."""
        key_fields = _turn_key(self._shares, self._queues, node)
        return Turn(
            *key_fields, self._shares.relative_share(node), self._since(node), self._tree.queues[node], node
        )

    def _since(self, node: int) -> str:
        """Return the creation time of the first group at a node, or at the next node below it."""
        if turns := self._turns.get(node):
            return turns[0].first_created
        line = self._lines.get(self._tree.queues[node])
        return self._group_of(line[0]).created_at if line else ""


def _turn_key(shares: QueueShares, queues: Mapping[str, QueueInfo], node: int) -> tuple[int, float, float]:
    """Return the first fields of a queue's turn: priority, due share and usage."""
    info = queues.get(shares.tree.queues[node])
    priority = -info.record.priority if info is not None and not shares.tree.is_extra_leaf(node) else 0
    share = shares.relative_share(node)
    match _fair_share_mode(shares, queues, node):
        case keys.HISTORICAL:
            return priority, share + shares.recent_usage(node), 0.0
        case keys.INSTANT:
            return priority, share, 0.0
    return priority, max(share, 1.0), shares.recent_usage(node)


def _fair_share_mode(shares: QueueShares, queues: Mapping[str, QueueInfo], node: int) -> str:
    """Return the `fairShare` of a queue's parent: how the queue and its siblings take turns."""
    parent = queues.get(shares.tree.queues[shares.tree.parents[node]])
    return parent.record.fair_share if parent is not None else ""


def is_ahead(shares: QueueShares, queues: Mapping[str, QueueInfo], queue: str, other_queue: str) -> bool:
    """Return whether a queue has its turn before another queue.

    The queues are compared at the level where their paths from root part.
    """
    paths = (reversed(shares.tree.path(name)) for name in (queue, other_queue))
    pairs = zip(*paths, strict=False)
    node, other_node = next((pair for pair in pairs if pair[0] != pair[1]), (TOP, TOP))
    return _turn_key(shares, queues, node) < _turn_key(shares, queues, other_node)


def lines_by_queue(
    items: Iterable[T],
    get_group: Callable[[T], GroupInfo],
    get_rank: Callable[[GroupInfo], tuple[float | str, ...]] = attrgetter("order"),
) -> dict[str, deque[T]]:
    """Return items by queue, sorted by the rank of their groups.

    Without `get_rank`, they are sorted by priority, then age, then name.
    """
    lines: defaultdict[str, list[T]] = defaultdict(list)
    for item in items:
        lines[get_group(item).queue].append(item)
    for line in lines.values():
        line.sort(key=lambda item: get_rank(get_group(item)))
    return {queue: deque(line) for queue, line in lines.items()}
