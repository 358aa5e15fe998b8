"""Search for victims: finds the smallest set of units whose eviction makes a whole gang fit on real nodes.

The search chooses a node for one member after the other: the node on which one more member costs the least.
Nodes are compared by these criteria, in this order: free capacity, the lower tier, the smallest loss of work,
the smallest part of the cluster, the fewest pods, the queue furthest above its share, the shortest run.

The capacity that a whole group frees on other nodes counts at once. In the end, the search spares units that
are not needed, and replaces units by other units with a smaller loss. If the constraints of members concern
other pods, the planner places the members while the search evicts more and more units.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import msgspec
import numpy as np

from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.resources import Resources
from extender.domain.model.shapes import Shape
from extender.domain.placement.eviction_units import (
    Disruptions,
    EvictionUnit,
    EvictionUnitsOfRow,
    Loss,
    Pick,
    Picks,
    Shares,
    requests_together,
)
from extender.domain.placement.planner import Planner
from extender.domain.snapshot.nodes import Mask
from extender.domain.snapshot.wholeness import Missing

_TRIALS, _MAX_EXCHANGES = 64, 16  # number of placements that are tried to spare units, and to replace units
_MAX_CANDIDATES = 1024  # number of units that are compared with a unit to replace it
_NO_LOSS = Loss(0.0, 0.0, 0)


class Cost(NamedTuple):
    """Cost of capacity on a row for one more member. Costs are compared field by field.

    Queues are compared by their shares instead of by their names.
    """

    tier: int
    loss: Loss
    queue: str  # queue that loses capacity; of several queues, the queue with the smallest share
    rank_key: tuple[int, ...]  # sort key that puts the highest rank of the units first
    row: int


class VictimChoice(msgspec.Struct, frozen=True):
    """Units whose eviction makes a gang fit, and the nodes of the gang."""

    picks: tuple[Pick, ...]
    plan: Mapping[Uid, str]  # a node for each member
    homes: Mapping[Uid, str] = {}  # new nodes of the pods that consolidation moves


class Search:
    """Search for victims.

    Args:
        planner: The free capacity, in which terminating pods do not count. The search changes it.
        shares: The shares of queues. The search changes them.
        eviction_units: The units that may be evicted.
        disruptions: The disruption budgets. The search changes them.
    """

    def __init__(
        self,
        planner: Planner,
        shares: Shares,
        eviction_units: Iterable[EvictionUnit],
        disruptions: Disruptions,
    ) -> None:
        self._planner = planner
        self._shares = shares
        self._disruptions = disruptions
        losses = {each: shares.loss_of([Pick(each, each.pods)]) for each in eviction_units}
        self._eviction_units = sorted(losses, key=lambda each: (each.tier, losses[each].work, *each.order))
        self._columns = {name: column for column, name in enumerate(planner.capacity.dimensions)}
        self._victims_by_row: dict[int, EvictionUnitsOfRow] = {}
        self._picks = Picks(planner, shares, disruptions)
        self._rows: Mask | None = None  # rows on which to search victims; None means all rows
        self._must_free_share = False  # whether the group's own queue lacks the share to hold it
        row = planner.nodes.row_of
        for each in self._eviction_units:
            for node in each.pods_by_node:
                if node in row:
                    self._victims_by_row.setdefault(row[node], EvictionUnitsOfRow()).add(each, losses[each])

    def find(self, need: Missing) -> VictimChoice | None:
        """Return the victims, and the members' nodes. None means that no set of eviction units suffices.

        Members that must share a domain get the domain whose units lose the least.
        """
        domains = self._planner.domains_to_clear(need.members) if need.pod_sets else []
        if not domains:
            return self._find(need)
        results: list[tuple[int, Loss, int, VictimChoice]] = []
        for position, self._rows in enumerate(domains):
            checkpoint = self._planner.checkpoint()
            with self._planner.inside(self._rows):
                result = self._find(need)
            self._planner.roll_back(checkpoint)
            self._picks = Picks(self._planner, self._shares, self._disruptions)
            if result is not None:
                for pick in result.picks:
                    self._picks.count(pick, times=-1)
                tier = max((pick.eviction_unit.tier for pick in result.picks), default=-1)
                results.append((tier, self._shares.loss_of(result.picks), position, result))
        if not results:
            return None
        cheapest_result = min(results)[-1]
        for pick in cheapest_result.picks:
            self._picks.count(pick)
        return cheapest_result

    def _find(self, need: Missing) -> VictimChoice | None:
        """Search node by node. If that fails and pods depend on each other, search by trial."""
        is_interdependent = bool(need.pod_sets) or self._planner.affinity.is_any_interdependent(need)
        trial_planner = self._planner.clone() if is_interdependent else None
        self._must_free_share = not self._shares.suffices()
        plan: dict[Uid, str] = {}
        batches = self._planner.batches(need.members)
        has_parts = sum(pod_set.is_required for pod_set in need.pod_sets) > 1
        if not has_parts and all(self._place(batch, plan) for batch in batches) and self._free_share():
            self._put_back_unused_units(need)
            spared_plan = _spare_unneeded_units(self._planner, self._shares, self._picks, need, plan)
            cheapest_plan = self._exchange(spared_plan, need)
            return VictimChoice(tuple(self._picks.all), cheapest_plan)
        if trial_planner is None:
            return None
        for pick in self._picks.all:
            self._picks.count(pick, times=-1)
        picks = Picks(trial_planner, self._shares, self._disruptions)
        with trial_planner.inside(self._rows):
            candidates = filter(self._is_on_searched_rows, self._eviction_units)
            trial_plan = _plan_by_trial(trial_planner, self._shares, candidates, picks, need)
        if trial_plan is None:
            for pick in picks.all:
                picks.count(pick, times=-1)
        return None if trial_plan is None else VictimChoice(tuple(picks.all), trial_plan)

    def _is_on_searched_rows(self, eviction_unit: EvictionUnit) -> bool:
        """Return whether a unit has pods on the rows where victims are searched."""
        rows = map(self._planner.nodes.row_of.get, eviction_unit.pods_by_node)
        return self._rows is None or any(self._rows[row] for row in rows if row is not None)

    def _place(self, members: Sequence[PodRecord], plan: dict[Uid, str]) -> bool:
        """Add a node for each of these equal members to `plan`, and evict units on these nodes.

        Return whether every member has a node.
        """
        shape, pods_left, affinity = members[0].shape, list(reversed(members)), self._planner.affinity
        if len(members) > 1 and affinity.is_interdependent(members[0]):  # each member restricts the next
            return all(self._place([member], plan) for member in members)
        if not shape.requests.keys() <= self._columns.keys():
            return False
        suitable_rows = self._suitable_rows(members[0])
        rows = CheapestRows(self._bounds(shape, suitable_rows), self._shares.share)
        while pods_left and (lower_bound := rows.pop()) is not None:
            cost_and_picks = self._cost(shape, lower_bound.row)
            if cost_and_picks is None:
                continue
            cost, picks = cost_and_picks
            if cost != lower_bound:
                rows.push(cost)
                continue
            changed_rows = self._picks.evict(picks) | {lower_bound.row}
            node = self._planner.name_of(lower_bound.row)
            while pods_left and self._planner.allocate_on_node(pods_left[-1], node):  # until the node is full
                plan[pods_left.pop().uid] = node
            for row in sorted(changed_rows):  # the costs of these rows may be lower now
                if suitable_rows[row]:
                    rows.push(no_cost(row))
        return not pods_left

    def _suitable_rows(self, pod: PodRecord) -> Mask:
        """Return the rows where a pod may be placed once other pods are evicted."""
        suitable_rows, affinity = self._planner.capacity.rows_for(pod.shape), self._planner.affinity
        if self._rows is not None:
            suitable_rows = suitable_rows & self._rows
        return suitable_rows & affinity.rows_for(pod) if affinity.is_interdependent(pod) else suitable_rows

    def _bounds(self, shape: Shape, suitable_rows: Mask) -> Iterator[Cost]:
        """Yield for each suitable row a lower bound of its cost.

        The bound is zero where the row has free capacity for a member. Otherwise, the bound has the tier,
        queue and rank of the row's first unit, and the smallest loss of any unit of the row.
        """
        have_capacity = (suitable_rows & (self._planner.capacity.counts(shape) > 0)).tolist()
        for row in np.flatnonzero(suitable_rows).tolist():
            units = self._victims_by_row.get(row)
            if have_capacity[row]:
                yield no_cost(row)
            elif units is not None:
                eviction_unit = units.first()
                min_loss = units.min_later_loss if self._picks.all else units.min_loss
                yield (
                    Cost(eviction_unit.tier, min_loss, eviction_unit.queue, eviction_unit.rank_key, row)
                    if eviction_unit
                    else no_cost(row)
                )

    def _cost(self, shape: Shape, row: int) -> tuple[Cost, list[Pick]] | None:
        """Return the cost of one more member on a row. None means that evictions cannot free enough there."""
        free = self._planner.capacity.free[row]
        gaps = ((name, n - int(free[self._columns[name]])) for name, n in shape.requests.items() if n > 0)
        lacking_amounts = {name: n for name, n in gaps if n > 0}
        if not lacking_amounts:
            return no_cost(row), []
        if (units := self._victims_by_row.get(row)) is None:
            return None
        choice = self._units_that_free(units.in_eviction_order(self._shares.share), lacking_amounts, row)
        if choice is None:
            return None
        node = self._planner.name_of(row)
        for eviction_unit in units.cheaper_units(choice[0].loss):  # one unit alone may lose less
            freed_amounts = eviction_unit.amounts_freed_on(node, eviction_unit.pods)
            if all(n <= freed_amounts.get(name, 0) for name, n in lacking_amounts.items()):
                single_choice = self._units_that_free([eviction_unit], lacking_amounts, row)
                if single_choice is not None and single_choice[0][:2] < choice[0][:2]:
                    return single_choice
        return choice

    def _units_that_free(
        self, eviction_units: Iterable[EvictionUnit], to_free: Mapping[str, int], row: int
    ) -> tuple[Cost, list[Pick]] | None:
        """Return the first `eviction_units` that free the lacking amounts on a row together, and the cost."""
        picks: list[Pick] = []
        counted_picks: list[Pick] = []
        node = self._planner.name_of(row)
        for eviction_unit in eviction_units:
            pods = self._picks.remaining_pods(eviction_unit, picks)
            gains = eviction_unit.amounts_freed_on(node, pods)
            if not any(name in gains for name in to_free):
                continue
            pick = Pick(eviction_unit, pods)
            if not self._picks.may_evict(pick):
                continue
            picks.append(pick)
            to_free = {name: n - gains.get(name, 0) for name, n in to_free.items() if n > gains.get(name, 0)}
            if to_free or self._must_free_share:  # the claimant's queue may lack share
                self._picks.count(pick)
                counted_picks.append(pick)
            if not to_free:
                break
        extra_pods = int(self._must_free_share and not self._shares.suffices())  # 1: other nodes must help
        for pick in counted_picks:
            self._picks.count(pick, times=-1)
        if to_free:
            return None
        loss = self._shares.loss_of(picks)
        cost = Cost(
            max(pick.eviction_unit.tier for pick in picks),
            loss._replace(pod_count=loss.pod_count + extra_pods),
            min((pick.eviction_unit.queue for pick in picks), key=self._shares.share),
            max(pick.eviction_unit.rank_key for pick in picks),
            row,
        )
        return cost, picks

    def _free_share(self) -> bool:
        """Evict more units until the shares allow the group's own queue to hold the group.

        Return whether they do.
        """
        for eviction_unit in self._eviction_units:
            if self._shares.suffices():
                return True
            if eviction_unit.queue:
                self._picks.evict_rest(eviction_unit)
        return self._shares.suffices()

    def _exchange(self, plan: Mapping[Uid, str], need: Missing) -> Mapping[Uid, str]:
        """Return the nodes of the members after replacing units by cheaper units.

        All members must still fit. The most expensive unit is replaced first.
        """
        n_tries, planner, picks = _MAX_EXCHANGES, self._planner, self._picks
        for pick in sorted(picks.all, key=lambda item: self._shares.loss_of([item]), reverse=True)[:n_tries]:
            for replacement in self._replacements(pick, need):
                if not n_tries:
                    return plan
                n_tries -= 1
                planner.unplace(need.members, plan)
                picks.put_back(pick)
                if picks.may_evict(replacement):
                    picks.evict([replacement])
                    if self._shares.suffices() and (new_plan := planner.place(need.members)) is not None:
                        plan = new_plan
                        break
                    picks.put_back(replacement)
                picks.evict([pick])
                planner.allocate((pod, plan[pod.uid]) for pod in need.members)
        return plan

    def _replacements(self, pick: Pick, need: Missing) -> Iterator[Pick]:
        """Yield units that could replace the unit of a pick, with a smaller loss."""
        group, picks, loss = pick.eviction_unit.group, self._picks, self._shares.loss_of([pick])
        if group and sum(other_pick.eviction_unit.group == group for other_pick in picks.all) > 1:
            return
        free_amounts = self._planner.capacity.free_sum(need.shapes)
        names = {name for shape in need.shapes for name, n in shape.requests.items() if n > 0}
        gains = _freed_amounts(self._planner, pick, need)
        needed_amounts = {name: n - free_amounts.get(name, 0) for name, n in gains.items() if name in names}
        for eviction_unit in self._eviction_units[:_MAX_CANDIDATES]:
            replacement = Pick(eviction_unit, picks.remaining_pods(eviction_unit))
            if replacement.pods and eviction_unit.tier <= pick.eviction_unit.tier:
                is_enough = all(replacement.requests.get(name, 0) >= n for name, n in needed_amounts.items())
                if is_enough and self._shares.loss_of([replacement]) < loss:
                    yield replacement

    def _put_back_unused_units(self, need: Missing) -> None:
        """Put back units whose capacity no member uses, the last chosen unit first."""
        names = {name for shape in need.shapes for name, n in shape.requests.items() if n > 0}
        columns = [column for column, name in enumerate(self._planner.capacity.dimensions) if name in names]
        for pick in reversed(tuple(self._picks.all)):
            if self._picks.is_evicted_whole(pick) or any(map(self._planner.affinity.is_counted, pick.pods)):
                continue
            self._picks.put_back(pick)
            rows = [row for pod in pick.pods if (row := self._planner.nodes.row_of.get(pod.node)) is not None]
            has_capacity = (self._planner.capacity.free[np.ix_(rows, columns)] >= 0).all()
            if not (has_capacity and self._shares.suffices()):
                self._picks.evict([pick])


def _plan_by_trial(
    planner: Planner, shares: Shares, eviction_units: Iterable[EvictionUnit], picks: Picks, need: Missing
) -> Mapping[Uid, str] | None:
    """Return a node for each member, after evicting more and more units; None if no evictions suffice.

    The number of units that are evicted between two trials doubles until the planner places all members. A
    comparison of free amounts would not suffice, since a unit can exclude a member by another property, such
    as a host port. The function serves members whose constraints concern other pods.

    Args:
        planner: The free capacity, which is changed.
        shares: The shares without the units chosen so far.
        eviction_units: The units, in the order in which they are evicted.
        picks: The units chosen so far. The function adds the units that it evicts.
        need: The members without a node.
    """
    plan, min_evicted_count, remaining_units = None, 1, iter(eviction_units)
    while plan is None:
        evicted_count = 0
        for eviction_unit in remaining_units:
            evicted_count += picks.evict_rest(eviction_unit)
            if evicted_count >= min_evicted_count:
                break
        if not evicted_count:
            return None
        min_evicted_count *= 2
        plan = planner.place(need.members) if shares.suffices() else None
    return _spare_unneeded_units(planner, shares, picks, need, plan)


def _spare_unneeded_units(
    planner: Planner, shares: Shares, picks: Picks, need: Missing, plan: Mapping[Uid, str]
) -> Mapping[Uid, str]:
    """Return the nodes of the members after sparing units that are not needed.

    A unit is spared if all members fit without its eviction, perhaps on other nodes. The unit with the
    largest loss is tried first.
    """
    n_tries, names = _TRIALS, {name for shape in need.shapes for name, n in shape.requests.items() if n > 0}
    for pick in sorted(picks.all, key=lambda pick: shares.loss_of([pick]), reverse=True):
        free_amounts = planner.capacity.free_sum(need.shapes)
        freed_amounts = _freed_amounts(planner, pick, need).items()
        is_spare = all(n <= free_amounts.get(name, 0) for name, n in freed_amounts if name in names)
        if not (is_spare and n_tries) or picks.is_evicted_whole(pick):
            continue
        n_tries -= 1
        planner.unplace(need.members, plan)
        picks.put_back(pick)
        new_plan = planner.place(need.members) if shares.suffices() else None
        if new_plan is None:
            picks.evict([pick])
            planner.allocate((pod, plan[pod.uid]) for pod in need.members)
        else:
            plan = new_plan
    return plan


def _freed_amounts(planner: Planner, pick: Pick, need: Missing) -> Resources:
    """Return the amounts that a pick frees on nodes that suit at least one of the members."""
    suitable_rows = np.logical_or.reduce([planner.capacity.rows_for(shape) for shape in need.shapes])
    rows = ((pod, planner.nodes.row_of.get(pod.node)) for pod in pick.pods)
    return requests_together(pod for pod, row in rows if row is not None and suitable_rows[row])


class _QueueKey(NamedTuple):
    """Sort key of a queue in CheapestRows: the cost of its first row, with its share instead of its name."""

    tier: int
    loss: Loss
    share: float  # negated, so that the queue furthest above its share comes first
    rank_key: tuple[int, ...]
    row: int
    queue: str


def no_cost(row: int) -> Cost:
    """Return the cost of a row where no eviction is needed."""
    return Cost(tier=-1, loss=_NO_LOSS, queue="", rank_key=(), row=row)


class CheapestRows:
    """Rows of nodes, the cheapest row first.

    Each chosen unit changes the order of all rows where its queue would lose capacity. Therefore each
    queue has a heap of its own rows, and only the first rows of the queues are compared.

    Args:
        costs: Lower bounds of the costs of rows.
        share: Returns the current share of a queue, allocated/deserved.
    """

    def __init__(self, costs: Iterable[Cost], share: Callable[[str], float]) -> None:
        self._share = share
        self._costs_by_queue: dict[str, list[Cost]] = {}
        for cost in costs:
            self._costs_by_queue.setdefault(cost.queue, []).append(cost)
        self._keys: list[_QueueKey] = []
        for queue, queue_costs in self._costs_by_queue.items():
            heapify(queue_costs)
            self._push_key(queue)

    def push(self, cost: Cost) -> None:
        """Add a cost."""
        queue_costs = self._costs_by_queue.setdefault(cost.queue, [])
        heappush(queue_costs, cost)
        if queue_costs[0] is cost:
            self._push_key(cost.queue)

    def pop(self) -> Cost | None:
        """Remove and return the cheapest cost; None if none remains."""
        while self._keys:
            key = heappop(self._keys)
            if key == self._key_of(key.queue):
                cost = heappop(self._costs_by_queue[key.queue])
                self._push_key(key.queue)
                return cost
            # The key is outdated. A new key is needed, unless the next key is of the same queue.
            if not self._keys or self._keys[0].queue != key.queue:
                self._push_key(key.queue)
        return None

    def _push_key(self, queue: str) -> None:
        """Push the present key of a queue, if the queue has any cost."""
        if (key := self._key_of(queue)) is not None:
            heappush(self._keys, key)

    def _key_of(self, queue: str) -> _QueueKey | None:
        """Return the key of the first cost of a queue. None means that the queue has no further cost."""
        queue_costs = self._costs_by_queue[queue]
        if not queue_costs:
            return None
        tier, loss, _, rank_key, row = queue_costs[0]
        return _QueueKey(tier, loss, -self._share(queue), rank_key, row, queue)
