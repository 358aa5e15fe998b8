"""Victims: running groups that may be evicted for a group, the rules for this, and progress of evictions.

All rules must hold: no rule allows an eviction that another rule forbids.

A group is evicted as a whole if its queue or LocalQueue is drained (stopPolicy HoldAndDrain), or if all its
capacity is reclaimed. Such a group gets no replacements and no new members until its last member is gone.
Pods that its owner creates in the place of its members start as a gang again.
"""

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from math import inf

from extender.domain.model.evictions import LOSS_CAUSES, Eviction, EvictionCause, Reclaim, ReclaimVictim
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.placement.eviction_units import (
    Disruptions,
    EvictionUnit,
    descending_key,
    eviction_unit_of,
    eviction_units_of,
    running_members,
)
from extender.domain.queues.records import RECLAIM_AT_MOST, Reclaimed, ReclaimKey
from extender.domain.scheduling.cycle import Cycle, Guard
from extender.domain.scheduling.obstacles import blocking_decision
from extender.domain.snapshot.decisions import GroupDecision
from extender.domain.snapshot.group_info import GroupInfo, computed_once
from extender.domain.snapshot.phases import has_run
from extender.domain.snapshot.snapshot import clock_time_of
from extender.domain.snapshot.wholeness import is_whole_with, ready_since

_MAX_IN_VAIN_COUNT = 3  # number of unused reclaims of one queue from another, each within an hour of the last
_CHECK_PERIOD_SECONDS = 10.0  # seconds between two checks of usage that a queue deserves over time
_CLOCK_SLACK_SECONDS = 5.0  # seconds by which clocks may differ
ALL_CAUSES = tuple(EvictionCause)


def gang_eviction(cycle: Cycle, group: GroupInfo) -> GroupDecision | None:
    """Return the decision on a group that is evicted as a whole; None for other groups."""
    if not has_run(group):
        return None
    if group.key in cycle.draining_groups:
        text = f"all its members are being evicted: {_draining_queue(cycle, group)} is drained"
        waiting_reason = Reason.QUEUE_STOPPED
    else:
        pods = group.compute(running_members) if cycle.group_by_victim and group.placed_pods else ()
        claimants = {cycle.group_by_victim.get(pod.uid) for pod in pods}
        if not claimants or not claimants.isdisjoint((None, group.key)):
            return None
        text = f"all its members are being evicted, for {', '.join(sorted(map(str, claimants)))}"
        waiting_reason = Reason.BEHIND_OTHERS
    reason = waiting_reason if group.waiting_pods else None
    was_whole = group.has_fully_run
    return GroupDecision(group.key, group.queue, Verdict.RUNNING, reason, text, stood_whole=was_whole)


def _draining_queue(cycle: Cycle, group: GroupInfo) -> str:
    """Return the queue or LocalQueue that evicts a group, as text for users."""
    local_queue = group.local_queue
    if local_queue is None or group.queue in cycle.budget.rules.drained_queues:
        return f"queue {group.queue}"
    return f"LocalQueue {local_queue.key}"


def drain_queues(cycle: Cycle) -> None:
    """Evict the groups of drained queues and LocalQueues, each group as a whole.

    The number of pods of a queue that are evicted at the same time is limited. Groups that are already being
    evicted come first. The other groups are sorted by ascending priority, then by ascending run time.
    """
    groups_by_queue: dict[str, list[GroupInfo]] = {}
    for group in cycle.draining_groups.values():
        groups_by_queue.setdefault(group.queue, []).append(group)
    for groups in groups_by_queue.values():
        groups.sort(key=lambda g: (not g.leaving_count, g.priority, descending_key(g.running_since), g.key))
        remaining_count = cycle.limits.max_draining_pods - sum(group.leaving_count for group in groups)
        for group in groups:
            pods: Sequence[PodRecord] = ()
            with Guard(cycle, group):  # a group is evicted once no member is on its way to a node
                pods = group.compute(running_members) if has_run(group) and not group.assumed_pods else ()
            if not pods:
                continue
            if remaining_count <= 0:
                break
            remaining_count -= len(pods)
            eviction_text, origin = f"{_draining_queue(cycle, group)} is drained", (group.key, group.queue)
            for pod in pods:
                victim = ReclaimVictim(pod.uid, pod.namespace, pod.name, *origin, EvictionCause.DRAIN)
                cycle.evictions[pod.uid] = Eviction(victim, eviction_text)


def live_pod(cycle: Cycle, victim: ReclaimVictim) -> PodRecord | None:
    """Return the pod of a victim; None if it no longer exists or is terminating."""
    if not victim.group:
        pod = cycle.snapshot.other_pods.get(victim.uid)
        return pod if pod is not None and not pod.deleting else None
    group = cycle.snapshot.groups.get(victim.group)
    return _pods_by_uid(group).get(victim.uid) if group is not None else None


@computed_once
def _pods_by_uid(group: GroupInfo) -> dict[Uid, PodRecord]:
    return {pod.uid: pod for pod in group.placed_pods if pod.holds_capacity}


def departing_pods(cycle: Cycle) -> Iterator[PodRecord]:
    """Yield the pods on nodes that are being deleted."""
    for group in cycle.snapshot.groups.values():
        yield from group.departing_pods
    yield from cycle.snapshot.other_pods.leaving.values()


def slow_victims(cycle: Cycle) -> Iterator[ReclaimVictim]:
    """Yield the terminating pods whose remaining grace period is longer than their queue allows.

    The user who deletes a pod chooses its grace period. The caller ensures that groups wait for capacity.
    """
    snapshot = cycle.snapshot
    for group in snapshot.groups.values():
        for pod in group.departing_pods:
            max_end = snapshot.now + snapshot.queues[group.queue].protection.max_grace + _CLOCK_SLACK_SECONDS
            if max_end < clock_time_of(pod.deletion_deadline, snapshot.epoch) < inf:
                origin = group.key, group.queue, EvictionCause.RECLAIM
                yield ReclaimVictim(pod.uid, pod.namespace, pod.name, *origin)


def would_be_split(cycle: Cycle, key: GroupKey) -> bool:
    """Return whether the evictions for reclaims would leave some members of a gang, but too few."""
    group = cycle.snapshot.groups.get(key)
    if group is None:
        return False
    pods = [pod for pod in group.placed_pods if pod.uid not in cycle.group_by_victim]
    return len(pods) < len(group.placed_pods) and _is_partial_gang(group, pods)


def has_broken_gang(cycle: Cycle, reclaim: Reclaim) -> bool:
    """Return whether a reclaim has broken a gang: some of the gang's victims are gone, and others still run.

    Terminating victims count as gone. A gang with enough remaining members is not broken. The remaining
    victims of a broken gang are evicted, too, even if their evictions are refused.
    """
    remaining_groups: set[GroupKey] = set()
    evicted_groups: set[GroupKey] = set()
    for victim in reclaim.victims:
        (evicted_groups if live_pod(cycle, victim) is None else remaining_groups).add(victim.group)
    groups = (cycle.snapshot.groups.get(key) for key in remaining_groups & evicted_groups)
    return any(group is not None and _is_partial_gang(group, group.placed_pods) for group in groups)


def refused_namespace(cycle: Cycle, group: GroupInfo) -> str:
    """Return the group's namespace if some queue gives no capacity to it at present; otherwise an empty text.

    Groups of one class can have different victims in this case. The namespace tells these groups apart.
    """
    namespace, records = group.key.partition("/")[0], cycle.recent_reclaims(group.queue).items()
    last_reclaims = (reclaim for losing_key, reclaim in records if losing_key.namespace == namespace)
    is_refused = any(not cycle.is_due(pause_end(cycle, group, reclaim)) for reclaim in last_reclaims)
    return namespace if is_refused else ""


def pause_end(cycle: Cycle, group: GroupInfo, last_reclaim: Reclaimed) -> float:
    """Return the instant until which a queue gives no capacity to a group, after unused reclaims.

    After fewer than `_MAX_IN_VAIN_COUNT` unused reclaims, there is no pause, and the result is -inf. For a
    group that was created after the last reclaim, such as a job that was submitted again, the pause ends
    earlier: after `atMost` of the group's own wait.
    """
    if last_reclaim.in_vain < _MAX_IN_VAIN_COUNT:
        return -inf
    pause_ends_at = cycle.snapshot.instant(last_reclaim.at) + cycle.limits.reclaim_memory
    if group.created_at < last_reclaim.at or group.key == last_reclaim.group:
        return pause_ends_at
    max_wait = max(cycle.snapshot.queues[group.queue].record.preemption.at_most, RECLAIM_AT_MOST)
    return min(pause_ends_at, cycle.snapshot.instant(ready_since(group)) + max_wait)


def _is_partial_gang(group: GroupInfo, pods: Collection[PodRecord]) -> bool:
    """Return whether some of `pods` hold capacity, but too few pods for the group to be whole."""
    if not any(pod.holds_capacity for pod in pods):
        return False
    roles = Counter(pod.role for pod in pods)
    return not is_whole_with(group.needs, roles, len(pods))


class Candidates:
    """Candidates for eviction, determined once for all groups of a cycle."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._candidates_by_queue: dict[str, list[GroupInfo]] = {}
        self._lowest_priority_by_queue: dict[str, float] = {}
        self._may_exist_by_key: dict[tuple[str, int, tuple[EvictionCause, ...]], bool] = {}
        self._unit_by_pod: dict[Uid, EvictionUnit] = {}
        self.promised_pods: set[Uid] = set()  # pods whose capacity is promised to a group in this cycle
        # Returns the time from which capacity is reclaimed for a group at any price.
        self.deadline: Callable[[GroupInfo], float] = lambda _: -inf
        self.spared = ""  # a text on victims that the last call of evictable_units spared

    @cached_property
    def disruptions(self) -> Disruptions:
        """Return the evictions that disruption budgets allow in addition to current evictions.

        Budgets are checked for each chosen unit, since several units may share a budget.
        """
        cycle, budgets = self._cycle, self._cycle.snapshot.disruption_budgets
        evictions = cycle.evictions.values() if budgets else ()
        pods = (live_pod(cycle, eviction.victim) for eviction in evictions)
        return Disruptions(budgets, [pod for pod in pods if pod is not None])

    def may_exist_for(self, group: GroupInfo, causes: tuple[EvictionCause, ...] = ALL_CAUSES) -> bool:
        """Return whether a running pod might be a victim for one of these causes.

        The check is cheap, and may wrongly return True.
        """
        key = group.queue, group.priority, causes
        if key not in self._may_exist_by_key:
            self._may_exist_by_key[key] = any(self._may_find(group, cause) for cause in causes)
        return self._may_exist_by_key[key]

    def _may_find(self, group: GroupInfo, cause: EvictionCause) -> bool:
        """Return whether any group may be a victim for `cause`.

        The check is cheap, and may wrongly return True.
        """
        rules = self._cycle.snapshot.queues[group.queue].record.preemption
        match cause:
            case EvictionCause.RECLAIM | EvictionCause.BORROW:
                return len(self._queues_above_share) > (group.queue in self._queues_above_share)
            case EvictionCause.PREEMPT:
                return rules.within_queue and group.priority > self._lowest_priority(group.queue)
            case EvictionCause.CONSOLIDATE:
                return rules.may_consolidate and any(map(self._consolidates, self._running_groups))
            case EvictionCause.UNMANAGED:
                other_pods = self._cycle.snapshot.other_pods
                return rules.preempts_unmanaged and group.priority > other_pods.lowest_priority
            case _:
                return False

    def _lowest_priority(self, queue: str) -> float:
        """Return the lowest priority of the running groups of a queue that allow their eviction."""
        if queue not in self._lowest_priority_by_queue:
            priorities = (group.priority for group in self._candidates(queue) if group.spec.is_preemptable)
            self._lowest_priority_by_queue[queue] = min(priorities, default=inf)
        return self._lowest_priority_by_queue[queue]

    @cached_property
    def _queues_above_share(self) -> frozenset[str]:
        """Return the reclaimable queues that have running groups and exceed their share.

        The shares are those at the first call in a cycle.
        """
        shares, queues = self._cycle.budget.shares, self._cycle.snapshot.queues
        names = (key for key in self._running_groups if key in queues and queues[key].record.is_reclaimable)
        return frozenset(filter(shares.exceeds_share, names))

    def evictable_units(self, group: GroupInfo, causes: Iterable[EvictionCause]) -> list[EvictionUnit]:
        """Return the units that may be evicted for `group`, for any of these causes."""
        self.spared = ""
        queues = self._cycle.snapshot.queues
        eviction_units: list[EvictionUnit] = []
        rules = queues[group.queue].record.preemption
        for cause in causes:
            match cause:
                case EvictionCause.RECLAIM | EvictionCause.BORROW:
                    is_borrowing = cause is EvictionCause.BORROW
                    max_priority = min(group.priority - 1, rules.borrows_up_to) if is_borrowing else inf
                    losers = (each for each in queues if each != group.queue and self._may_gain(group, each))
                    eviction_units += self._units_of(group, self._groups_up_to(max_priority, losers), cause)
                case EvictionCause.PREEMPT if rules.within_queue:
                    running_groups = self._candidates(group.queue)
                    less_important = [loser for loser in running_groups if loser.priority < group.priority]
                    eviction_units += self._units_of(group, less_important, cause)
                case EvictionCause.CONSOLIDATE if rules.may_consolidate:
                    movable_groups = self._groups_up_to(group.priority, filter(self._consolidates, queues))
                    eviction_units += self._units_of(group, filter(self._may_move, movable_groups), cause)
                case EvictionCause.UNMANAGED if rules.preempts_unmanaged:
                    for priority, pods in self._other_pods_by_priority.items():
                        if priority < group.priority:
                            eviction_units += filter(self._is_evictable, map(self._eviction_unit_of, pods))
        return eviction_units

    def _units_of(
        self, group: GroupInfo, running_groups: Iterable[GroupInfo], cause: EvictionCause
    ) -> Iterator[EvictionUnit]:
        """Yield the eviction units of running groups that may be victims of a group for `cause`."""
        for victim in running_groups:
            protection = self._cycle.snapshot.queues[victim.queue].protection
            may_refuse = protection.honours_preemptable or cause is not EvictionCause.RECLAIM
            if (victim.spec.is_preemptable or not may_refuse) and self._may_be_victim(group, victim, cause):
                eviction_units: list[EvictionUnit] = []
                with suppress(Exception):  # an error of one group does not affect others
                    eviction_units = eviction_units_of(victim, cause, protection)
                is_any_excluded = self._excluded_uid_sets or self._cycle.snapshot.disruption_budgets
                yield from filter(self._is_evictable, eviction_units) if is_any_excluded else eviction_units

    def _groups_up_to(self, priority: float, queues: Iterable[str]) -> Iterator[GroupInfo]:
        """Yield the running groups of these queues up to a priority."""
        return (group for queue in queues for group in self._candidates(queue) if group.priority <= priority)

    def _may_gain(self, group: GroupInfo, queue: str) -> bool:
        """Return whether a group may get capacity that another queue holds above its share.

        If the eviction of a single group would bring the other queue below its share, the other queue may
        keep the capacity as long as its recent usage allows. In this case, a cycle is requested for the next
        check.
        """
        exceeds_share = self._cycle.budget.shares.exceeds_share(queue)
        may_give = exceeds_share and self._cycle.snapshot.queues[queue].record.is_reclaimable
        needs_whole_group = may_give and self._has_no_spare_group(queue)
        if needs_whole_group and self._cycle.budget.shares.may_keep_excess(queue, group.queue):
            period = self._cycle.snapshot.now // _CHECK_PERIOD_SECONDS + 1  # equal in all cycles of a period
            self._cycle.request_cycle_at(period * _CHECK_PERIOD_SECONDS)
            return False
        return may_give and self._may_reclaim(group, queue)

    def _has_no_spare_group(self, queue: str) -> bool:
        """Return whether a queue would hold less than it deserves without one of its groups.

        Groups with spare members do not count: their spare members are evicted one by one.
        """
        shares = self._cycle.budget.shares
        running_groups = self._running_groups.get(queue, ())
        groups = (group for group in running_groups if len(group.placed_pods) <= group.min_member)
        return any(shares.is_below_share_without(queue, group.allocated) for group in groups)

    def _consolidates(self, queue: str) -> bool:
        """Return whether a queue exists and its groups may be moved to other nodes."""
        queues = self._cycle.snapshot.queues
        return queue in queues and queues[queue].record.preemption.may_consolidate

    def _may_move(self, victim: GroupInfo) -> bool:
        """Return whether a victim may move: its pods are replaced, and may start again on any node.

        Claims of volumes and devices may be tied to a node. A group that has moved does not move again for a
        while.
        """
        last_move = self._cycle.snapshot.moves.get(victim.key)
        if last_move is not None and not self._cycle.is_due(last_move.again_at):
            return False
        pods = victim.compute(running_members)
        are_all_replaced = victim.job.is_managed or all(pod.is_replaceable for pod in pods)
        are_all_movable = not any(pod.binds_late or pod.uid in self.promised_pods for pod in pods)
        return are_all_replaced and are_all_movable and blocking_decision(self._cycle, victim) is None

    def _may_reclaim(self, group: GroupInfo, queue: str) -> bool:
        """Return whether a group may reclaim from a queue.

        After too many unused reclaims, the groups of a namespace pause, so that two queues do not alternately
        reclaim from each other.
        """
        cycle, namespace = self._cycle, group.key.partition("/")[0]
        last_reclaim = cycle.recent_reclaims(group.queue).get(ReclaimKey(queue, namespace))
        if last_reclaim is None or cycle.is_due(pause_ends_at := pause_end(cycle, group, last_reclaim)):
            return True
        receiver_text = f"groups of namespace {namespace} in queue {group.queue}"
        self.spared = f"queue {queue} lost capacity to {receiver_text} in vain, and gives none until "
        self.spared += cycle.snapshot.timestamp(pause_ends_at)
        return False

    def _may_be_victim(self, group: GroupInfo, victim: GroupInfo, cause: EvictionCause) -> bool:
        """Return whether a victim may lose its capacity to a group.

        - The victim never loses capacity before the minimum run time of its own queue.
        - It loses capacity to the same group only once within `reclaim_memory`, since its first loss did not
          help the group.
        - After it has lost capacity to the group's queue, it does not lose capacity to that queue again
          while the group can still wait.
        """
        min_run = self._cycle.snapshot.queues[victim.queue].record.preemption.min_runtime
        if victim.key == group.key:
            return False
        if min_run and not self._cycle.is_due(self._cycle.snapshot.instant(victim.running_since) + min_run):
            return False
        taken_at = group.history.reclaim_times.get(victim.key)
        if taken_at is not None and not self._cycle.is_due(taken_at + self._cycle.limits.reclaim_memory):
            self.spared = f"{victim.display_name} lost its capacity to this group already, and does not again"
            return False
        lost_at = victim.history.eviction_times.get(group.queue) if cause in LOSS_CAUSES else None
        if lost_at is None:
            return True
        max_wait = self._cycle.snapshot.queues[group.queue].record.preemption.at_most
        end = min(lost_at + self._cycle.limits.reclaim_memory, max(self.deadline(group), lost_at + max_wait))
        if not self._cycle.is_due(end):
            self.spared = f"{victim.display_name} lost its capacity to queue {group.queue} already, and does "
            self.spared += f"not again until {self._cycle.snapshot.timestamp(end)}"
            return False
        return True

    def _is_evictable(self, eviction_unit: EvictionUnit) -> bool:
        """Return whether a unit may be evicted.

        None of its pods may be a victim already, be promised to a group, or have a refused eviction. In
        addition, disruption budgets must allow the eviction, unless the unit overrules them.
        """
        is_excluded = any(pod.uid in uids for uids in self._excluded_uid_sets for pod in eviction_unit.pods)
        return not is_excluded and (eviction_unit.overrules or self.disruptions.may_evict(eviction_unit.pods))

    @property
    def _excluded_uid_sets(self) -> list[Container[Uid]]:
        """Return the sets of UIDs of current victims, promised pods and pods whose eviction was refused.

        Empty sets are left out.
        """
        uid_sets = self._cycle.group_by_victim, self._cycle.snapshot.refused_evictions, self.promised_pods
        return [uids for uids in uid_sets if uids]

    def _candidates(self, queue: str) -> list[GroupInfo]:
        """Return the running groups of a queue that may be evicted.

        Groups that have a fault, are being started or are being drained are left out.
        """
        if queue not in self._candidates_by_queue:
            evictable_groups: list[GroupInfo] = []
            for group in self._running_groups.get(queue, ()):
                decision = self._cycle.current_decision(group.key)
                if decision is None or decision.fault or group.is_under_way(decision.plan):
                    continue
                if (
                    has_run(group)
                    and group.compute(running_members)
                    and group.key not in self._cycle.draining_groups
                ):
                    evictable_groups.append(group)
            self._candidates_by_queue[queue] = evictable_groups
        return self._candidates_by_queue[queue]

    @cached_property
    def _running_groups(self) -> dict[str, list[GroupInfo]]:
        """Return the groups with members on nodes, by queue."""
        groups_by_queue: dict[str, list[GroupInfo]] = {}
        for group in self._cycle.snapshot.groups.values():
            if group.placed_pods:
                groups_by_queue.setdefault(group.queue, []).append(group)
        return groups_by_queue

    def _eviction_unit_of(self, pod: PodRecord) -> EvictionUnit:
        if pod.uid not in self._unit_by_pod:
            self._unit_by_pod[pod.uid] = eviction_unit_of(pod)
        return self._unit_by_pod[pod.uid]

    @cached_property
    def _other_pods_by_priority(self) -> dict[int, list[PodRecord]]:
        """Return the evictable pods of other schedulers, by priority."""
        pods_by_priority: dict[int, list[PodRecord]] = {}
        for pod in self._cycle.snapshot.other_pods:
            if pod.may_be_evicted() and not pod.deleting:
                pods_by_priority.setdefault(pod.priority, []).append(pod)
        return pods_by_priority
