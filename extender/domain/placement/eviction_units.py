"""Eviction units: pods that are evicted together, so that no gang is left in part.

Members beyond a group's minMember are evicted one by one; the others together or not at all. A managed job is
evicted as a whole, since it is suspended, and so is a group that asks for it. A group of one is a whole
group, and a pod of another scheduler is a unit of its own.
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
from extender.domain.model.run_history import NEVER_SAVED, Checkpoint
from extender.domain.model.shapes import total_requests
from extender.domain.placement.planner import Planner
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.wholeness import kept_roles, sub_group_sizes


class Run(NamedTuple):
    """Run of a group, with the work that an eviction loses."""

    since: str = ""  # when it began, as a timestamp; empty: not known
    checkpoint: Checkpoint = NEVER_SAVED
    lost: float = 0.0  # the seconds that earlier evictions have cost its group
    members: int = 1  # pods of its group on nodes


class EvictionUnit(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Pods that are evicted together."""

    pods: tuple[PodRecord, ...]
    cause: EvictionCause
    queue: str  # the queue that loses the capacity; empty for a pod of another scheduler
    tier: int  # lower ones go first: surplus before whole groups, other queues before the own
    rank: str  # among equal costs, the highest goes first: least important, then shortest run
    group: GroupKey = GroupKey("")
    run: Run = Run()
    overrules: bool = False  # disruption budgets do not protect its pods

    @cached_property
    def last_first(self) -> tuple[int, ...]:
        """Return a sort key that puts the highest rank first."""
        return descending_key(self.rank)

    @cached_property
    def order(self) -> tuple[int, tuple[int, ...], Uid]:
        return (self.tier, self.last_first, self.pods[0].uid)

    @cached_property
    def requests(self) -> Resources:
        """Return the joint requests of all its pods."""
        return total_requests(pod.shape for pod in self.pods)

    @cached_property
    def by_node(self) -> dict[str, list[PodRecord]]:
        nodes: dict[str, list[PodRecord]] = {}
        for pod in self.pods:
            nodes.setdefault(pod.node, []).append(pod)
        return nodes

    def freed_on(self, node: str, pods: Sequence[PodRecord]) -> Resources:
        """Return the amounts that become free on a node with `pods`, the remaining ones of the unit."""
        if not pods or len(self.pods) == 1:
            return self.requests if pods else {}
        on_node = self.by_node[node]
        return requests_together(pod for pod in on_node if len(pods) == len(self.pods) or pod in pods)

    def victims(self, pods: Iterable[PodRecord], seconds: float) -> Iterator[ReclaimVictim]:
        """Yield the given pods as victims. `seconds`: the work that they lose."""
        common, lost = (self.group, self.queue, self.cause), seconds / self.run.members
        return (ReclaimVictim(pod.uid, pod.namespace, pod.name, *common, lost) for pod in pods)


_TIERS = {
    EvictionCause.RECLAIM: 0,
    EvictionCause.BORROW: 0,
    EvictionCause.CONSOLIDATE: 0,
    EvictionCause.PREEMPT: 2,
    EvictionCause.UNMANAGED: 4,
}


def eviction_units_of(group: GroupInfo, cause: EvictionCause, protection: Protection) -> list[EvictionUnit]:
    """Return the surplus members one by one, the least important first, then the group as a whole.

    The result is computed once: a GroupInfo never changes.

    Args:
        group: The group that gives up members.
        cause: The reason to evict them.
        protection: The protection of what its queue holds beyond its share.
    """
    is_reclaim = cause is EvictionCause.RECLAIM
    by_annotation = not is_reclaim or protection.honours_preemptable
    return group.computed(_UNITS_OF[cause, by_annotation, is_reclaim and not protection.honours_budgets])


def _eviction_units(
    group: GroupInfo, cause: EvictionCause, by_annotation: bool, overrules: bool
) -> list[EvictionUnit]:
    """Return the units of a group. `by_annotation`: only pods whose annotation allows it."""
    is_whole = group.job.managed or group.spec.goes_whole
    spare = () if is_whole else group.computed(_SPARE_MEMBERS[by_annotation])
    tier = _TIERS[cause]
    # The least important first, then the shortest run, then the newest.
    rank = f"{_least_important_key(group.priority)} {group.running_since} {group.created}"
    run = Run(group.running_since, group.checkpoint, group.history.lost_work, max(len(group.placed), 1))
    of_group = (rank, group.key)
    eviction_units = [
        EvictionUnit(
            (pod,), cause, group.queue, tier, *of_group, run._replace(since=pod.running_since), overrules
        )
        for pod in spare
    ]
    pods, on_the_way = group.computed(running_members), group.assumed or group.is_under_way(group.planned)
    if pods and not on_the_way and all(pod.may_be_evicted(by_annotation) for pod in pods):
        eviction_units.append(EvictionUnit(pods, cause, group.queue, tier + 1, *of_group, run, overrules))
    return eviction_units


_UNITS_OF = {
    (cause, named, over): partial(_eviction_units, cause=cause, by_annotation=named, overrules=over)
    for cause in _TIERS
    for named in (True, False)
    for over in (True, False)
}


def eviction_unit_of(pod: PodRecord) -> EvictionUnit:
    """Return the unit of a pod of another scheduler."""
    cause = EvictionCause.UNMANAGED
    run = Run(pod.running_since, pod.checkpoint)
    return EvictionUnit((pod,), cause, "", _TIERS[cause], _least_important_key(pod.priority), run=run)


def _least_important_key(priority: int) -> str:
    """Return a sort key that is higher for a lower priority, which has 32 bits."""
    return f"{2**31 - priority:010d}"


def running_members(group: GroupInfo) -> tuple[PodRecord, ...]:
    """Return the unfinished members on nodes."""
    return tuple(pod for pod in group.placed if pod.holds_capacity)


def _spare_members(group: GroupInfo, by_annotation: bool) -> tuple[PodRecord, ...]:
    """Return the members that the group can spare, the least important first."""
    most = len(group.placed) - group.min_member
    if most <= 0:
        return ()
    roles, sizes = Counter(pod.role for pod in group.placed), sub_group_sizes(group.placed)
    by_policy = Counter(sub_group.policy for sub_group, number in sizes.items() if number >= sub_group.size)
    spare: list[PodRecord] = []
    needed = kept_roles(group.needs)
    composite = group.spec.composite
    go_whole = {child.name for child in composite.pod_groups if child.goes_whole} if composite else ()
    pods = [pod for pod in group.computed(running_members) if pod.role not in go_whole]
    # Lowest priority first, then the newest, then the last name.
    pods.sort(key=attrgetter("sort_key"), reverse=True)
    pods.sort(key=lambda pod: (pod.priority, descending_key(pod.created)))
    for pod in pods:
        is_spare = len(spare) < most and roles[pod.role] > needed.get(pod.role, 0)
        if is_spare and pod.may_be_evicted(by_annotation):
            if (own := pod.sub_group) is not None:
                breaks = sizes[own] == own.size
                if breaks and by_policy[own.policy] <= group.spec.least_sub_groups.get(own.policy, 0):
                    continue
                by_policy[own.policy] -= breaks
                sizes[own] -= 1
            roles[pod.role] -= 1
            spare.append(pod)
    return tuple(spare)


_SPARE_MEMBERS = {each: partial(_spare_members, by_annotation=each) for each in (True, False)}


def descending_key(text: str) -> tuple[int, ...]:
    """Return a sort key that puts the last text first."""
    return tuple(-ord(letter) for letter in text)


class Loss(NamedTuple):
    """Loss by the eviction of pods, the smallest first."""

    work: float  # part of the cluster times the seconds of lost work
    part: float  # part of the cluster, in the dominant resource
    pods: int


class EvictionUnitsOfRow:
    """Units with pods on one node, by tier and queue, added from the cheapest on."""

    def __init__(self) -> None:
        self._tiers: dict[int, dict[str, list[EvictionUnit]]] = {}
        self._losses: list[tuple[Loss, EvictionUnit]] = []
        self.least = Loss(inf, inf, 0)
        self.least_rest = self.least  # lower bound of the loss once any unit was taken

    def add(self, eviction_unit: EvictionUnit, loss: Loss) -> None:
        """Add a unit, with the loss of evicting it."""
        self._tiers.setdefault(eviction_unit.tier, {}).setdefault(eviction_unit.queue, []).append(
            eviction_unit
        )
        self._losses.append((loss, eviction_unit))
        self.least = min(self.least, loss)
        self.least_rest = min(self.least_rest, loss if loss.pods == 1 else Loss(0.0, 0.0, 1))

    def first(self) -> EvictionUnit | None:
        """Return the unit to take first; None where that depends on the shares of several queues."""
        queues = next(iter(self._tiers.values()))
        return next(iter(queues.values()))[0] if len(queues) == 1 else None

    def cheaper_than(self, loss: Loss) -> list[EvictionUnit]:
        """Return the units with a smaller loss, the smallest first."""
        if self.least >= loss:
            return []
        by_loss = sorted(self._losses, key=itemgetter(0))
        return [eviction_unit for other, eviction_unit in by_loss if other < loss]

    def in_turn(self, share: Callable[[str], float]) -> Iterator[EvictionUnit]:
        """Yield units of the lowest tier first, each from the queue furthest above its share by then.

        `share` returns what a queue holds of what it deserves.
        """
        for queues in self._tiers.values():
            if len(queues) == 1:
                yield from next(iter(queues.values()))
                continue
            passed = dict.fromkeys(queues, 0)
            while passed:
                queue = min(passed, key=lambda name: (-share(name), queues[name][passed[name]].order))
                yield queues[queue][passed[queue]]
                passed[queue] += 1
                if passed[queue] == len(queues[queue]):
                    del passed[queue]


class Disruptions:
    """Evictions that PodDisruptionBudgets allow, for whole units: no gang is evicted in part.

    Args:
        budgets: The budgets of each namespace.
        going: Pods that are to be evicted and that no budget counts yet.
    """

    def __init__(self, budgets: BudgetsByNamespace, evicted: Iterable[PodRecord] = ()) -> None:
        self._budgets = budgets
        self._taken: Counter[DisruptionBudget] = Counter()
        self._known: dict[tuple[str, int], tuple[DisruptionBudget, ...]] = {}
        self._by_namespace: dict[str, BudgetsOfNamespace] = {}
        self.count(evicted)

    def clone(self) -> "Disruptions":
        """Return a copy with its own counts; what is known about pods is shared."""
        other = Disruptions(self._budgets)
        other._taken, other._known, other._by_namespace = self._taken.copy(), self._known, self._by_namespace
        return other

    def may_evict(self, pods: Iterable[PodRecord]) -> bool:
        """Return whether all these pods may be evicted, with all chosen before.

        A pod that two budgets cover may not: the Eviction API refuses it.
        """
        if not self._budgets:
            return True
        wanted: dict[DisruptionBudget, int] = {}
        for pod in pods:
            budgets = self._budgets_of(pod)
            if len(budgets) > 1:
                return False
            for budget in budgets:
                wanted[budget] = wanted.get(budget, self._taken[budget]) + 1
                if wanted[budget] > budget.allowed:
                    return False
        return True

    def refusing(self, pods: Sequence[PodRecord]) -> list[str]:
        """Return the budgets that do not allow the eviction of all these pods, as `namespace/name`."""
        by_pod = list(map(self._budgets_of, pods))
        evicted = Counter(chain.from_iterable(by_pod))
        refuse = {budget for budget, n in evicted.items() if self._taken[budget] + n > budget.allowed}
        refuse.update(*(budgets for budgets in by_pod if len(budgets) > 1))  # as the API server does
        return sorted(f"{budget.namespace}/{budget.name}" for budget in refuse)

    def count(self, pods: Iterable[PodRecord], times: int = 1) -> None:
        """Count pods as evicted; with `times` -1, undo that."""
        for pod in pods if self._budgets else ():
            for budget in self._budgets_of(pod):
                self._taken[budget] += times

    def _budgets_of(self, pod: PodRecord) -> tuple[DisruptionBudget, ...]:
        """Return the budgets that cover a pod."""
        key = pod.namespace, id(pod.labels)  # equal labels are one object, which outlives this cache
        if key not in self._known:
            if pod.namespace not in self._by_namespace:
                self._by_namespace[pod.namespace] = BudgetsOfNamespace(self._budgets.get(pod.namespace, ()))
            self._known[key] = self._by_namespace[pod.namespace].covering(pod.labels)
        return self._known[key]


class Shares(Protocol):
    """Shares of queues, for one group that lacks capacity: read before each unit, updated after it."""

    def loss(self, pick: "Pick") -> Resources:
        """Return the amounts that the queue of a unit loses, including those of flavors."""

    def may_lose(self, queue: str, amounts: Resources) -> bool:
        """Return whether a queue keeps what it deserves without `amounts`."""

    def lose(self, queue: str, amounts: Resources, times: int = 1) -> None:
        """Subtract from the allocation of a queue; with `times` -1, add."""

    def share(self, queue: str) -> float:
        """Return the part of what it deserves that a queue holds by now."""

    def price(self, picks: Sequence["Pick"]) -> Loss:
        """Return the loss by these evictions."""

    def suffices(self) -> bool:
        """Return whether the group's own queue may hold the group by now."""


class Pick(NamedTuple):
    """Eviction unit that is chosen."""

    eviction_unit: EvictionUnit
    pods: tuple[PodRecord, ...]  # pods that no other pick has

    @property
    def requests(self) -> Resources:
        """Return the joint requests of the pods."""
        is_all = len(self.pods) == len(self.eviction_unit.pods)
        return self.eviction_unit.requests if is_all else requests_together(self.pods)


class Picks:
    """Units chosen so far for a gang, in order.

    `planner`, `shares` and `disruptions` follow them.
    """

    def __init__(self, planner: Planner, shares: Shares, disruptions: Disruptions) -> None:
        self._planner = planner
        self._shares = shares
        self._disruptions = disruptions
        self._pods: set[Uid] = set()
        self.all: list[Pick] = []

    def remaining_pods(self, eviction_unit: EvictionUnit, also: Sequence[Pick] = ()) -> tuple[PodRecord, ...]:
        """Return the pods of a unit that are in no pick, neither of these nor of `also`."""
        if len(eviction_unit.pods) == 1:
            return () if eviction_unit.pods[0].uid in self._pods else eviction_unit.pods
        also_picked = {
            pod.uid for pick in also if pick.eviction_unit.group == eviction_unit.group for pod in pick.pods
        }
        return tuple(
            pod for pod in eviction_unit.pods if pod.uid not in self._pods and pod.uid not in also_picked
        )

    def may_take(self, pick: Pick) -> bool:
        queue = pick.eviction_unit.queue
        keeps_enough = not queue or self._shares.may_lose(queue, self._shares.loss(pick))
        return keeps_enough and (pick.eviction_unit.overrules or self._disruptions.may_evict(pick.pods))

    def count(self, pick: Pick, times: int = 1) -> None:
        """Count a unit as lost, without its freed capacity; with `times` -1, undo that."""
        self._shares.lose(pick.eviction_unit.queue, self._shares.loss(pick), times)
        self._disruptions.count(pick.pods, times)

    def take_rest(self, eviction_unit: EvictionUnit) -> bool:
        """Evict the rest of a unit if allowed; return whether there was any."""
        pick = Pick(eviction_unit, self.remaining_pods(eviction_unit))
        may_go = bool(pick.pods) and self.may_take(pick)
        if may_go:
            self.evict([pick])
        return may_go

    def evict(self, picks: Iterable[Pick]) -> set[int]:
        """Evict units; return the rows with freed capacity."""
        rows: set[int] = set()
        for pick in picks:
            pods = pick.pods
            self.count(pick)
            self._pods.update(pod.uid for pod in pods)
            self.all.append(pick)
            self._planner.free(pods)
            rows.update(row for pod in pods if (row := self._planner.nodes.row.get(pod.node)) is not None)
        return rows

    def put_back(self, pick: Pick) -> None:
        """Undo the eviction of a unit: its pods stay."""
        self.all.remove(pick)
        self._pods.difference_update(pod.uid for pod in pick.pods)
        self.count(pick, times=-1)
        self._planner.allocate((pod, pod.node) for pod in pick.pods)

    def is_evicted_whole(self, pick: Pick) -> bool:
        """Return whether the group of a unit is evicted as a whole."""
        key, tier = pick.eviction_unit.group, pick.eviction_unit.tier
        return bool(key) and any(
            each.eviction_unit.group == key and each.eviction_unit.tier > tier for each in self.all
        )


def requests_together(pods: Iterable[PodRecord]) -> dict[str, int]:
    return total_requests(pod.shape for pod in pods)
