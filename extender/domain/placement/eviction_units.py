"""Eviction units: pods that are evicted together, so that no gang remains in part.

Members beyond a group's minMember are evicted one by one. The other members are evicted together or not at
all. A managed job is evicted as a whole, since it is suspended. A group can also ask to be evicted as a
whole. A group of one pod is a whole group, and a pod of another scheduler is a unit of its own.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import chain
from math import inf
from operator import attrgetter, itemgetter
from typing import NamedTuple, Protocol

import msgspec

from extender.domain.model.evictions import (
    BudgetsByNamespace,
    BudgetsOfNamespace,
    DisruptionBudget,
    EvictionCause,
    Protection,
    ReclaimVictim,
)
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.resources import Resources
from extender.domain.model.run_history import NO_CHECKPOINT, Checkpoint
from extender.domain.model.shapes import total_requests
from extender.domain.placement.planner import Planner
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.wholeness import min_running, sub_group_sizes


class Run(NamedTuple):
    """Run of a group, with the work that its eviction loses."""

    since: str = ""  # start as a timestamp; empty if unknown
    checkpoint: Checkpoint = NO_CHECKPOINT
    lost_seconds: float = 0.0  # seconds of work that the group lost by earlier evictions
    member_count: int = 1  # number of the group's pods on nodes


class EvictionUnit(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Pods that are evicted together."""

    pods: tuple[PodRecord, ...]
    cause: EvictionCause
    queue: str  # the queue that loses the capacity; empty for a pod of another scheduler
    tier: int  # lower tiers are evicted first: surplus before whole groups, other queues before the same
    rank: str  # among equal costs, the highest rank is evicted first: least important, then shortest run
    group: GroupKey = GroupKey("")
    run: Run = Run()
    overrules: bool = False  # whether to ignore the disruption budgets of its pods

    @cached_property
    def rank_key(self) -> tuple[int, ...]:
        """Return a sort key that puts the unit with the highest rank first."""
        return descending_key(self.rank)

    @cached_property
    def order(self) -> tuple[int, tuple[int, ...], Uid]:
        """Return a sort key of units among which the losses are equal."""
        return (self.tier, self.rank_key, self.pods[0].uid)

    @cached_property
    def requests(self) -> Resources:
        """Return the sum of the requests of the unit's pods."""
        return total_requests(pod.shape for pod in self.pods)

    @cached_property
    def pods_by_node(self) -> dict[str, list[PodRecord]]:
        """Return the unit's pods by node."""
        pods_by_node: dict[str, list[PodRecord]] = {}
        for pod in self.pods:
            pods_by_node.setdefault(pod.node, []).append(pod)
        return pods_by_node

    def amounts_freed_on(self, node: str, pods: Sequence[PodRecord]) -> Resources:
        """Return the amounts that become free on a node if the unit's remaining pods, `pods`, are evicted."""
        if not pods or len(self.pods) == 1:
            return self.requests if pods else {}
        pods_on_node = self.pods_by_node[node]
        return requests_together(pod for pod in pods_on_node if len(pods) == len(self.pods) or pod in pods)

    def victims(self, pods: Iterable[PodRecord], run_seconds: float) -> Iterator[ReclaimVictim]:
        """Yield the given pods as victims. All pods of the run together lose `run_seconds` of work."""
        origin, lost_seconds = (self.group, self.queue, self.cause), run_seconds / self.run.member_count
        return (ReclaimVictim(pod.uid, pod.namespace, pod.name, *origin, lost_seconds) for pod in pods)


_TIERS = {
    EvictionCause.RECLAIM: 0,
    EvictionCause.BORROW: 0,
    EvictionCause.CONSOLIDATE: 0,
    EvictionCause.PREEMPT: 2,
    EvictionCause.UNMANAGED: 4,
}


def eviction_units_of(group: GroupInfo, cause: EvictionCause, protection: Protection) -> list[EvictionUnit]:
    """Return the eviction units of a group: each surplus member, least important first, then the whole group.

    The result is computed once, since a GroupInfo never changes.

    Args:
        group: The group whose members may be evicted.
        cause: The reason to evict them.
        protection: The protection of the capacity that the group's queue borrows.
    """
    is_reclaim = cause is EvictionCause.RECLAIM
    by_annotation = not is_reclaim or protection.honours_preemptable
    return group.compute(_calls_by_rule[cause, by_annotation, is_reclaim and not protection.honours_budgets])


def _eviction_units(
    group: GroupInfo, cause: EvictionCause, by_annotation: bool, overrules: bool
) -> list[EvictionUnit]:
    """Return the eviction units of a group.

    The group with the lowest priority has the highest rank. Among groups of the same priority, the group with
    the shortest run has the highest rank, and then the newest group.

    Args:
        group: The group.
        cause: The reason to evict its members.
        by_annotation: Whether a pod whose annotation forbids its eviction may not be evicted.
        overrules: Whether to ignore disruption budgets.
    """
    is_only_whole = group.job.is_managed or group.spec.is_evicted_whole
    spare_members = () if is_only_whole else group.compute(_spare_members_by_rule[by_annotation])
    tier = _TIERS[cause]
    rank = f"{_least_important_key(group.priority)} {group.running_since} {group.created_at}"
    run = Run(group.running_since, group.checkpoint, group.history.lost_work, max(len(group.placed_pods), 1))
    rank_and_key = (rank, group.key)
    eviction_units = [
        EvictionUnit(
            (pod,), cause, group.queue, tier, *rank_and_key, run._replace(since=pod.running_since), overrules
        )
        for pod in spare_members
    ]
    pods = group.compute(running_members)
    is_starting = group.assumed_pods or group.is_under_way(group.planned_nodes)
    if pods and not is_starting and all(pod.may_be_evicted(by_annotation) for pod in pods):
        eviction_units.append(EvictionUnit(pods, cause, group.queue, tier + 1, *rank_and_key, run, overrules))
    return eviction_units


_calls_by_rule = {
    (cause, named, over): partial(_eviction_units, cause=cause, by_annotation=named, overrules=over)
    for cause in _TIERS
    for named in (True, False)
    for over in (True, False)
}


def eviction_unit_of(pod: PodRecord) -> EvictionUnit:
    """Return the eviction unit of a pod of another scheduler."""
    cause = EvictionCause.UNMANAGED
    run = Run(pod.running_since, pod.checkpoint)
    return EvictionUnit((pod,), cause, "", _TIERS[cause], _least_important_key(pod.priority), run=run)


def _least_important_key(priority: int) -> str:
    """Return a sort key that is higher for a lower priority. A priority has 32 bits."""
    return f"{2**31 - priority:010d}"


def running_members(group: GroupInfo) -> tuple[PodRecord, ...]:
    """Return the members on nodes that have not finished."""
    return tuple(pod for pod in group.placed_pods if pod.holds_capacity)


def _spare_members(group: GroupInfo, by_annotation: bool) -> tuple[PodRecord, ...]:
    """Return the members that the group can spare, the least important member first.

    The lowest priority comes first, then the newest pod, then the last name. The group keeps minMember
    members, the needed members of each role and the needed complete sub-groups.
    """
    max_spare_count = len(group.placed_pods) - group.min_member
    if max_spare_count <= 0:
        return ()
    roles, sizes = Counter(pod.role for pod in group.placed_pods), sub_group_sizes(group.placed_pods)
    set_counts = Counter(sub_group.policy for sub_group, size in sizes.items() if size >= sub_group.size)
    spare_members: list[PodRecord] = []
    needed_by_role = min_running(group.needs)
    composite = group.spec.composite
    tied_roles = {child.name for child in composite.pod_groups if child.is_evicted_whole} if composite else ()
    pods = [pod for pod in group.compute(running_members) if pod.role not in tied_roles]
    pods.sort(key=attrgetter("sort_key"), reverse=True)
    pods.sort(key=lambda pod: (pod.priority, descending_key(pod.created_at)))
    for pod in pods:
        is_spare = len(spare_members) < max_spare_count and roles[pod.role] > needed_by_role.get(pod.role, 0)
        if is_spare and pod.may_be_evicted(by_annotation):
            if (part := pod.sub_group) is not None:
                would_break = sizes[part] == part.size
                if would_break and set_counts[part.policy] <= group.spec.least_sub_groups.get(part.policy, 0):
                    continue
                set_counts[part.policy] -= would_break
                sizes[part] -= 1
            roles[pod.role] -= 1
            spare_members.append(pod)
    return tuple(spare_members)


_spare_members_by_rule = {each: partial(_spare_members, by_annotation=each) for each in (True, False)}


def descending_key(text: str) -> tuple[int, ...]:
    """Return a sort key that reverses the order of texts."""
    return tuple(-ord(letter) for letter in text)


class Loss(NamedTuple):
    """Loss by the eviction of pods. Losses are compared field by field."""

    work: float  # part of the cluster, multiplied by the seconds of lost work
    cluster_part: float  # part of the cluster, in the dominant resource
    pod_count: int


class EvictionUnitsOfRow:
    """Units with pods on one node, by tier and queue. The caller adds the cheapest unit first."""

    def __init__(self) -> None:
        self._tiers: dict[int, dict[str, list[EvictionUnit]]] = {}
        self._losses: list[tuple[Loss, EvictionUnit]] = []
        self.min_loss = Loss(inf, inf, 0)
        self.min_later_loss = self.min_loss  # lower bound of the loss once any unit is chosen

    def add(self, unit: EvictionUnit, loss: Loss) -> None:
        """Add a unit, with the loss by its eviction."""
        self._tiers.setdefault(unit.tier, {}).setdefault(unit.queue, []).append(unit)
        self._losses.append((loss, unit))
        self.min_loss = min(self.min_loss, loss)
        self.min_later_loss = min(self.min_later_loss, loss if loss.pod_count == 1 else Loss(0.0, 0.0, 1))

    def first(self) -> EvictionUnit | None:
        """Return the unit to evict first. None means that the shares of several queues decide."""
        queues = next(iter(self._tiers.values()))
        return next(iter(queues.values()))[0] if len(queues) == 1 else None

    def cheaper_units(self, loss: Loss) -> list[EvictionUnit]:
        """Return the units with a smaller loss, in the order of their losses."""
        if self.min_loss >= loss:
            return []
        sorted_losses = sorted(self._losses, key=itemgetter(0))
        return [eviction_unit for other_loss, eviction_unit in sorted_losses if other_loss < loss]

    def in_eviction_order(self, share: Callable[[str], float]) -> Iterator[EvictionUnit]:
        """Yield the units of the lowest tier first.

        Within a tier, the next unit is always from the queue that is furthest above its share at this point.
        `share` returns the part of the deserved share that a queue uses.
        """
        for queues in self._tiers.values():
            if len(queues) == 1:
                yield from next(iter(queues.values()))
                continue
            next_index = dict.fromkeys(queues, 0)
            while next_index:
                queue = min(next_index, key=lambda name: (-share(name), queues[name][next_index[name]].order))
                yield queues[queue][next_index[queue]]
                next_index[queue] += 1
                if next_index[queue] == len(queues[queue]):
                    del next_index[queue]


class Disruptions:
    """Evictions that PodDisruptionBudgets allow, for whole units, so that no gang is evicted in part.

    Args:
        budgets: The budgets of each namespace.
        evicted_pods: Pods that are being evicted but that no budget counts yet.
    """

    def __init__(self, budgets: BudgetsByNamespace, evicted_pods: Iterable[PodRecord] = ()) -> None:
        self._budgets = budgets
        self._tally: Counter[DisruptionBudget] = Counter()  # evictions counted for each budget
        self._cache: dict[tuple[str, int], tuple[DisruptionBudget, ...]] = {}
        self._by_namespace: dict[str, BudgetsOfNamespace] = {}
        self.count(evicted_pods)

    def clone(self) -> "Disruptions":
        """Return a copy with its own counts. Both share the cached budgets of pods."""
        other = Disruptions(self._budgets)
        other._tally, other._cache, other._by_namespace = self._tally.copy(), self._cache, self._by_namespace
        return other

    def may_evict(self, pods: Iterable[PodRecord]) -> bool:
        """Return whether all these pods may be evicted in addition to the evictions counted before.

        A pod with two budgets may not be evicted: the Eviction API refuses it.
        """
        if not self._budgets:
            return True
        count_by_budget: dict[DisruptionBudget, int] = {}
        for pod in pods:
            budgets = self._budgets_of(pod)
            if len(budgets) > 1:
                return False
            for budget in budgets:
                count_by_budget[budget] = count_by_budget.get(budget, self._tally[budget]) + 1
                if count_by_budget[budget] > budget.allowed_evictions:
                    return False
        return True

    def refusing_budgets(self, pods: Sequence[PodRecord]) -> list[str]:
        """Return the budgets that do not allow the eviction of all these pods, as `namespace/name`."""
        budgets_by_pod = list(map(self._budgets_of, pods))
        count_by_budget = Counter(chain.from_iterable(budgets_by_pod))
        result = {b for b, n in count_by_budget.items() if self._tally[b] + n > b.allowed_evictions}
        result.update(*(budgets for budgets in budgets_by_pod if len(budgets) > 1))  # as in the API server
        return sorted(f"{budget.namespace}/{budget.name}" for budget in result)

    def count(self, pods: Iterable[PodRecord], times: int = 1) -> None:
        """Count pods as evicted; with `times` -1, undo the count."""
        for pod in pods if self._budgets else ():
            for budget in self._budgets_of(pod):
                self._tally[budget] += times

    def _budgets_of(self, pod: PodRecord) -> tuple[DisruptionBudget, ...]:
        """Return the budgets that cover a pod."""
        key = pod.namespace, id(pod.labels)  # equal labels are one object, which lives longer than this cache
        if key not in self._cache:
            if pod.namespace not in self._by_namespace:
                self._by_namespace[pod.namespace] = BudgetsOfNamespace(self._budgets.get(pod.namespace, ()))
            self._cache[key] = self._by_namespace[pod.namespace].budgets_for(pod.labels)
        return self._cache[key]


class Shares(Protocol):
    """Shares of queues, as seen by one group that lacks capacity.

    The search reads the shares before it chooses a unit, and updates them afterwards.
    """

    def lost_amounts(self, pick: "Pick") -> Resources:
        """Return the amounts that the queue of a unit loses, including amounts of flavors."""

    def may_lose(self, queue: str, amounts: Resources) -> bool:
        """Return whether a queue still has its deserved share after it loses `amounts`."""

    def lose(self, queue: str, amounts: Resources, times: int = 1) -> None:
        """Subtract amounts from the allocation of a queue; with `times` -1, add them."""

    def share(self, queue: str) -> float:
        """Return the part of its deserved share that a queue uses at present."""

    def loss_of(self, picks: Sequence["Pick"]) -> Loss:
        """Return the loss by these evictions."""

    def suffices(self) -> bool:
        """Return whether the shares now allow the group's own queue to hold the group."""


class Pick(NamedTuple):
    """Eviction unit that the search has chosen."""

    eviction_unit: EvictionUnit
    pods: tuple[PodRecord, ...]  # pods of the unit that are in no other pick

    @property
    def requests(self) -> Resources:
        """Return the sum of the requests of the picked pods."""
        is_all = len(self.pods) == len(self.eviction_unit.pods)
        return self.eviction_unit.requests if is_all else requests_together(self.pods)


class Picks:
    """Units that the search has chosen for a gang so far, in order.

    Each change is also made in `planner`, `shares` and `disruptions`.
    """

    def __init__(self, planner: Planner, shares: Shares, disruptions: Disruptions) -> None:
        self._planner = planner
        self._shares = shares
        self._disruptions = disruptions
        self._pods: set[Uid] = set()
        self.all: list[Pick] = []

    def remaining_pods(self, eviction_unit: EvictionUnit, also: Sequence[Pick] = ()) -> tuple[PodRecord, ...]:
        """Return the pods of a unit that are in no pick, neither in the picks so far nor in `also`."""
        if len(eviction_unit.pods) == 1:
            return () if eviction_unit.pods[0].uid in self._pods else eviction_unit.pods
        uids = {
            pod.uid for pick in also if pick.eviction_unit.group == eviction_unit.group for pod in pick.pods
        }
        return tuple(pod for pod in eviction_unit.pods if pod.uid not in self._pods and pod.uid not in uids)

    def may_evict(self, pick: Pick) -> bool:
        """Return whether shares and disruption budgets allow this pick."""
        queue = pick.eviction_unit.queue
        keeps_enough = not queue or self._shares.may_lose(queue, self._shares.lost_amounts(pick))
        return keeps_enough and (pick.eviction_unit.overrules or self._disruptions.may_evict(pick.pods))

    def count(self, pick: Pick, times: int = 1) -> None:
        """Count a unit as lost, without freeing its capacity; with `times` -1, undo the count."""
        self._shares.lose(pick.eviction_unit.queue, self._shares.lost_amounts(pick), times)
        self._disruptions.count(pick.pods, times)

    def evict_rest(self, eviction_unit: EvictionUnit) -> bool:
        """Evict the remaining pods of a unit if allowed. Return whether any pods are evicted."""
        pick = Pick(eviction_unit, self.remaining_pods(eviction_unit))
        may_evict = bool(pick.pods) and self.may_evict(pick)
        if may_evict:
            self.evict([pick])
        return may_evict

    def evict(self, picks: Iterable[Pick]) -> set[int]:
        """Evict units. Return the rows with freed capacity."""
        rows: set[int] = set()
        for pick in picks:
            pods = pick.pods
            self.count(pick)
            self._pods.update(pod.uid for pod in pods)
            self.all.append(pick)
            self._planner.free(pods)
            rows.update(row for pod in pods if (row := self._planner.nodes.row_of.get(pod.node)) is not None)
        return rows

    def put_back(self, pick: Pick) -> None:
        """Undo the choice of a unit: its pods are not evicted."""
        self.all.remove(pick)
        self._pods.difference_update(pod.uid for pod in pick.pods)
        self.count(pick, times=-1)
        self._planner.allocate((pod, pod.node) for pod in pick.pods)

    def is_evicted_whole(self, pick: Pick) -> bool:
        """Return whether another pick evicts the rest of the unit's group."""
        key, tier = pick.eviction_unit.group, pick.eviction_unit.tier
        return bool(key) and any(
            item.eviction_unit.group == key and item.eviction_unit.tier > tier for item in self.all
        )


def requests_together(pods: Iterable[PodRecord]) -> dict[str, int]:
    """Return the sum of the requests of pods."""
    return total_requests(pod.shape for pod in pods)
