"""Price of an eviction: the work that its victims lose, compared with the capacity that a group lacked.

Both are parts of the cluster, in the dominant resource, times seconds. The loss of a victim counts from its
start or last checkpoint, plus the loss of earlier evictions of its group, so that the victims vary.

* Capacity is reclaimed once the loss is at most what the group lacked, times the patience of its queue, and
  after `atMost` of that queue in any case: the price orders and delays, and prevents nothing.
* Victims that will end within `after`, or before `atMost` is over, are spared if they lose more than the
  group gains until then, times its patience. That ends at twice `atMost`.
* Of equal groups the longest wait counts, whichever is first in the queue: otherwise a group whose wait
  begins again with each recreated pod would delay all of them.

Losses are checked every ten seconds, so that the time of the next check is known.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

from extender.domain.model.resources import Resources, total
from extender.domain.placement.departures import RunTimes
from extender.domain.placement.eviction_units import EvictionUnit, Loss, Pick, Run
from extender.domain.queues.records import PreemptionRules
from extender.domain.scheduling.cycle import Cycle
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.wholeness import Missing, missing, ready_since

_LEAST_USE, _MOST_USE = 60.0, 600.0  # bounds of the run time in seconds after which a reclaim counts as used
_PERIOD = 10.0  # seconds between two checks of losses


class Turns(NamedTuple):
    """Next times at which evictions for a group may become worth their price."""

    last_at: float
    next_at: float  # inf: never, as the price no longer matters


def equal_need_key(group: GroupInfo) -> object:
    """Return a key, equal for groups of one queue and priority that lack the same.

    Victims are found for all of them or for none. A group that has taken capacity from others is alone,
    since these do not give to it again.
    """
    if group.history.took_from:
        return group.key
    return group.queue, group.priority, missing(group).signature


class Price:
    """Price of evictions, for one cycle. `longest`: of equal groups, the one that has waited the longest."""

    def __init__(self, cycle: Cycle, longest: Mapping[object, GroupInfo]) -> None:
        self._cycle, self._longest = cycle, longest
        self._total = cycle.budget.shares.state.division.total
        self._times = RunTimes(cycle.snapshot)
        self._losses: dict[EvictionUnit, Loss] = {}  # cached losses of whole units
        self.checked_at = cycle.snapshot.now // _PERIOD * _PERIOD

    def part_of_cluster(self, amounts: Resources) -> float:
        """Return the part of the whole cluster, in the dominant resource."""
        parts = (n / self._total[name] for name, n in amounts.items() if self._total.get(name))
        return max(parts, default=0.0)

    def seconds(self, run: Run) -> float:
        """Return how many seconds of work are lost by an eviction now."""
        instant, begun = self._cycle.snapshot.instant, self._cycle.snapshot.instant(run.since)
        at, every = run.checkpoint
        saved = max(begun, instant(at)) if at else begun
        if every:
            saved = max(saved, begun + (self.checked_at - begun) // every * every)
        return max(self.checked_at - saved, 0.0)

    def loss(self, picks: Sequence[Pick]) -> Loss:
        """Return the loss by these evictions."""
        is_whole = len(picks) == 1 and picks[0].pods is picks[0].eviction_unit.pods
        single = picks[0].eviction_unit if is_whole else None
        if single is not None and single in self._losses:
            return self._losses[single]
        work, pods = 0.0, 0
        for pick in picks:
            run = pick.eviction_unit.run
            work += self.part_of_cluster(pick.requests) * (self.seconds(run) + run.lost)
            pods += len(pick.pods)
        loss = Loss(work, self.part_of_cluster(total(pick.requests for pick in picks)), pods)
        if single is not None:
            self._losses[single] = loss
        return loss

    def missed_work(self, group: GroupInfo, wanted: Missing) -> float:
        """Return the work that a group has missed: the capacity that it lacks, times its wait."""
        waited = self.checked_at - self._cycle.snapshot.instant(self._since(group))
        return self.part_of_cluster(wanted.requests) * max(waited, 0.0)

    def why_not(self, group: GroupInfo, wanted: Missing, picks: Sequence[Pick]) -> str:
        """Return why these victims are not evicted for a group yet, for users; empty: they may be.

        A cycle is requested for the time when the answer may change.
        """
        snapshot, rules = self._cycle.snapshot, self._rules(group)
        lost, end, latest = self.loss(picks).work, self._end(picks), self.latest(group)
        seconds_left = end - self.checked_at
        ends_soon = (seconds_left <= rules.after or end <= latest) and end <= self._spared_until(group)
        if lost > rules.patience * self.missed_work(group, wanted) and latest > snapshot.now:
            self._cycle.request_cycle_at(latest)
            begin = snapshot.timestamp(latest)
            text = "evictions for the group would lose more work than its wait is worth"
            text += f"; at the latest, they begin at {begin}" if begin else ""
        elif ends_soon and lost > rules.patience * self.part_of_cluster(wanted.requests) * seconds_left:
            text = "evictions for the group would lose more work than it gains before the pods end, by "
            text += snapshot.timestamp(end)
        else:
            return ""
        self._cycle.request_cycle_at(self.checked_at + _PERIOD)
        return text

    def _end(self, picks: Sequence[Pick]) -> float:
        """Return when the last of these victims will have ended without an eviction.

        Inf: unknown, or a victim runs longer than expected.
        """
        groups = (self._cycle.snapshot.groups.get(pick.eviction_unit.group) for pick in picks)
        at = self.checked_at
        ends = (inf if group is None else self._times.end_if_running(group, at) for group in groups)
        return max(ends, default=inf)

    def break_even_seconds(self, wanted: Missing, picks: Sequence[Pick]) -> float:
        """Return the seconds in which a group does as much work as the evictions lost, within bounds."""
        work, part = self.loss(picks).work, self.part_of_cluster(wanted.requests)
        return min(max(work / part if part else 0.0, _LEAST_USE), _MOST_USE)

    def latest(self, group: GroupInfo) -> float:
        """Return the time from which capacity is reclaimed for a group at any price."""
        rules, since = self._rules(group), self._since(group)
        return self._cycle.snapshot.instant(since) + max(rules.at_most, rules.after) if since else -inf

    def _spared_until(self, group: GroupInfo) -> float:
        """Return the time after which victims are evicted even if they are expected to end soon."""
        return self.latest(group) + self._rules(group).at_most

    def _rules(self, group: GroupInfo) -> PreemptionRules:
        return self._cycle.snapshot.queues[group.queue].record.preemption

    def _since(self, group: GroupInfo) -> str:
        return ready_since(self._longest.get(equal_need_key(group), group))

    def check_times(self, group: GroupInfo) -> Turns:
        latest, now = self.latest(group), self._cycle.snapshot.now
        if (last := self._spared_until(group)) <= now:
            return Turns(last, inf)
        instants = self.checked_at, self.checked_at + _PERIOD, latest, last
        return Turns(max(at for at in instants if at <= now), min(at for at in instants if at > now))
