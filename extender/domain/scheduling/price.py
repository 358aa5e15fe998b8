"""Price of an eviction: the work that its victims lose, compared with the work that a waiting group misses.

Both are a part of the cluster, in the dominant resource, multiplied by seconds. The loss of a victim counts
from its start or its last checkpoint. The losses by earlier evictions of its group are added, so that the
same group is not evicted again and again.

* Capacity is reclaimed once the loss is at most the work that the group has missed, multiplied by the
  patience of its queue. After `atMost` of that queue, capacity is reclaimed in any case. Therefore, the price
  orders and delays evictions, but prevents none.
* Some victims are expected to end within `after`, or before `atMost` is over. The work that the group gains
  until the victims end is multiplied by the patience of its queue. If the victims would lose more work than
  this product, they are spared. After twice `atMost`, no victim is spared.
* Among groups with equal needs, the longest wait counts for all of them. Otherwise, a group whose wait begins
  again with each recreated pod would delay the other groups if it is the first in the queue.

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

_MIN_USE, _MAX_USE = 60.0, 600.0  # bounds in seconds of the run time after which a reclaim counts as used
_CHECK_SECONDS = 10.0  # seconds between two checks of losses


class CheckTimes(NamedTuple):
    """Times of the last and the next check whether the evictions for a group are worth their price."""

    last_at: float
    next_at: float  # infinite if the price no longer matters


def equal_need_key(group: GroupInfo) -> object:
    """Return a key that is equal for groups of one queue and priority that lack the same capacity.

    Victims are found for all groups with equal keys or for none of them. If a group has already reclaimed
    capacity from other groups, it has a key of its own, since these groups do not become its victims again.
    """
    if group.history.reclaim_times:
        return group.key
    return group.queue, group.priority, missing(group).signature


class Price:
    """Prices of evictions in one cycle.

    `longest_waiting` has the longest waiting group for each key of equal needs.
    """

    def __init__(self, cycle: Cycle, longest_waiting: Mapping[object, GroupInfo]) -> None:
        self._cycle, self._longest_waiting = cycle, longest_waiting
        self._total = cycle.budget.shares.state.division.total
        self._run_times = RunTimes(cycle.snapshot)
        self._losses: dict[EvictionUnit, Loss] = {}  # cached losses of whole units
        self.checked_at = cycle.snapshot.now // _CHECK_SECONDS * _CHECK_SECONDS

    def part_of_cluster(self, amounts: Resources) -> float:
        """Return `amounts` as a part of the whole cluster, in the dominant resource."""
        ratios = (n / self._total[name] for name, n in amounts.items() if self._total.get(name))
        return max(ratios, default=0.0)

    def lost_seconds(self, run: Run) -> float:
        """Return how many seconds of work a run loses if it is evicted now."""
        instant, begun_at = self._cycle.snapshot.instant, self._cycle.snapshot.instant(run.since)
        saved_at, period = run.checkpoint
        last_saved_at = max(begun_at, instant(saved_at)) if saved_at else begun_at
        if period:
            last_saved_at = max(last_saved_at, begun_at + (self.checked_at - begun_at) // period * period)
        return max(self.checked_at - last_saved_at, 0.0)

    def loss(self, picks: Sequence[Pick]) -> Loss:
        """Return the loss by these evictions."""
        is_whole = len(picks) == 1 and picks[0].pods is picks[0].eviction_unit.pods
        whole_unit = picks[0].eviction_unit if is_whole else None
        if whole_unit is not None and whole_unit in self._losses:
            return self._losses[whole_unit]
        lost_work, pod_count = 0.0, 0
        for pick in picks:
            run = pick.eviction_unit.run
            lost_work += self.part_of_cluster(pick.requests) * (self.lost_seconds(run) + run.lost_seconds)
            pod_count += len(pick.pods)
        loss = Loss(lost_work, self.part_of_cluster(total(pick.requests for pick in picks)), pod_count)
        if whole_unit is not None:
            self._losses[whole_unit] = loss
        return loss

    def missed_work(self, group: GroupInfo, need: Missing) -> float:
        """Return the work that a group has missed: the capacity that it lacks, multiplied by its wait."""
        wait_seconds = self.checked_at - self._cycle.snapshot.instant(self._wait_start(group))
        return self.part_of_cluster(need.requests) * max(wait_seconds, 0.0)

    def why_not_yet(self, group: GroupInfo, need: Missing, picks: Sequence[Pick]) -> str:
        """Return why these victims are not evicted for a group yet, as text for users.

        An empty text means that the victims may be evicted. Otherwise, the method requests a cycle for the
        time when the result can change.
        """
        snapshot, rules = self._cycle.snapshot, self._preemption_rules(group)
        lost_work, end, deadline = self.loss(picks).work, self._expected_end(picks), self.deadline(group)
        seconds_left = end - self.checked_at
        ends_soon = (seconds_left <= rules.after or end <= deadline) and end <= self._spared_until(group)
        if lost_work > rules.patience * self.missed_work(group, need) and deadline > snapshot.now:
            self._cycle.request_cycle_at(deadline)
            begin_text = snapshot.timestamp(deadline)
            text = "evictions for the group would lose more work than its wait is worth"
            text += f"; at the latest, they begin at {begin_text}" if begin_text else ""
        elif ends_soon and lost_work > rules.patience * self.part_of_cluster(need.requests) * seconds_left:
            text = "evictions for the group would lose more work than it gains before the pods end, by "
            text += snapshot.timestamp(end)
        else:
            return ""
        self._cycle.request_cycle_at(self.checked_at + _CHECK_SECONDS)
        return text

    def _expected_end(self, picks: Sequence[Pick]) -> float:
        """Return when the last of these victims is expected to end without an eviction.

        The time is infinite if it is unknown, or if a victim runs longer than expected.
        """
        groups = (self._cycle.snapshot.groups.get(pick.eviction_unit.group) for pick in picks)
        instant = self.checked_at
        ends = (inf if group is None else self._run_times.end_if_running(group, instant) for group in groups)
        return max(ends, default=inf)

    def break_even_seconds(self, need: Missing, picks: Sequence[Pick]) -> float:
        """Return the seconds in which a group does as much work as the evictions lose, within bounds."""
        lost_work, cluster_part = self.loss(picks).work, self.part_of_cluster(need.requests)
        return min(max(lost_work / cluster_part if cluster_part else 0.0, _MIN_USE), _MAX_USE)

    def deadline(self, group: GroupInfo) -> float:
        """Return the time from which capacity is reclaimed for a group at any price."""
        rules, begin = self._preemption_rules(group), self._wait_start(group)
        return self._cycle.snapshot.instant(begin) + max(rules.at_most, rules.after) if begin else -inf

    def _spared_until(self, group: GroupInfo) -> float:
        """Return the time from which victims are evicted even if they are expected to end soon."""
        return self.deadline(group) + self._preemption_rules(group).at_most

    def _preemption_rules(self, group: GroupInfo) -> PreemptionRules:
        """Return the preemption rules of the group's queue."""
        return self._cycle.snapshot.queues[group.queue].record.preemption

    def _wait_start(self, group: GroupInfo) -> str:
        """Return since when the wait of a group counts: the earliest time of all groups with equal needs."""
        return ready_since(self._longest_waiting.get(equal_need_key(group), group))

    def check_times(self, group: GroupInfo) -> CheckTimes:
        """Return the last and the next time at which the price of evictions for a group is checked."""
        deadline, now = self.deadline(group), self._cycle.snapshot.now
        if (last_at := self._spared_until(group)) <= now:
            return CheckTimes(last_at, inf)
        instants = self.checked_at, self.checked_at + _CHECK_SECONDS, deadline, last_at
        return CheckTimes(max(at for at in instants if at <= now), min(at for at in instants if at > now))
