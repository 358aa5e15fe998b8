"""dequeueStrategy: in which order the groups of one queue are judged, and whether one that waits lets others
pass.

| strategy   | order                  | while its first group lacks room                                    |
|------------|------------------------|---------------------------------------------------------------------|
| traverse   | priority, age          | groups that fit pass it                                             |
| fifo       | priority, age          | nobody passes it, also while it backs off                           |
| priority   | priority, age          | groups that fit pass it; once anything becomes free, it is tried    |
|            |                        | again before them, also while it backs off                          |
| rotation   | lap, priority, age     | groups that fit pass it; then it comes after all that have not had  |
|            |                        | their turn in this lap (laps.py)                                    |
| mixed      | those of high priority | as fifo while that group is of high priority, else as rotation      |
|            | first, the rest by lap |                                                                     |

Priority includes what a group gained by ageing. Anything else counts as traverse.
"""

from collections.abc import Mapping
from typing import NamedTuple

from extender.domain.queues.queue_records import QueueRecord
from extender.domain.scheduling import ageing
from extender.domain.scheduling.backoff import failed_at
from extender.domain.scheduling.laps import Laps
from extender.domain.scheduling.round import Round
from extender.domain.snapshot.group_view import GroupView

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
        priority = ageing.rank(group, self._queue.ageing)
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
        return each_hour > 0 and self._round.is_due(ageing.reaches_at(group, each_hour, threshold, snapshot))

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
