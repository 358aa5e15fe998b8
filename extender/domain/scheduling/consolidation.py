"""Consolidation: moves pods for a gang whose free capacity is fragmented.

A pod moves by eviction: its controller creates a replacement, which starts elsewhere. So only pods move that
are replaced, and only if there is a place for each of them next to the gang. The places are found before any
eviction, and reserved until the replacements run there; the capacity that the pods leave is reserved for the
gang. A move has the price of any other eviction; since all pods come back, no queue loses capacity, and
shares do not prevent it.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from extender.domain.model.evictions import Move, Reclaim
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.resources import Resources, total
from extender.domain.model.shapes import Shape
from extender.domain.placement.affinity import OverBudget
from extender.domain.placement.eviction_units import Disruptions, EvictionUnit
from extender.domain.placement.planner import PlannedPod, Planner, rows_of
from extender.domain.placement.victim_search import Found, Search
from extender.domain.scheduling.backfill import ReservedCapacity
from extender.domain.scheduling.cycle import Cycle, Guard
from extender.domain.scheduling.flavors import on_nodes_of
from extender.domain.scheduling.headroom import Amounts, Need, reserve
from extender.domain.scheduling.lending import VictimShares
from extender.domain.scheduling.victims import live_pod
from extender.domain.snapshot.group_info import GroupInfo, Reservation
from extender.domain.snapshot.wholeness import Missing

_SEARCHES = 4  # searches for one gang in one cycle, each without the units that found no place before
_MOST = 64  # pods that move for one gang
_MOST_LOOKS = 1e5  # looks at a node for a term, to find places for moved pods


class NothingLost(VictimShares):
    """Shares of queues that a move does not change."""

    def may_lose(self, queue: str, amounts: Resources) -> bool:
        return True

    def lose(self, queue: str, amounts: Resources, times: int = 1) -> None:
        pass


def find_with_homes(
    cycle: Cycle,
    planner: Planner,
    shares: NothingLost,
    eviction_units: Sequence[EvictionUnit],
    disruptions: Disruptions,
    wanted: Missing,
) -> Found | None:
    """Return the units that lose the least work, of those that fit elsewhere.

    The gang has their capacity then.

    The result has a node for each of their pods. A unit that finds no place together with the others
    stays in the next search.
    """
    eviction_units = _movable_units(cycle, planner, eviction_units)
    for _ in range(_SEARCHES):
        found = (
            Search(planner.clone(), shares, eviction_units, disruptions.clone()).find(wanted)
            if eviction_units
            else None
        )
        pods = [pod for pick in found.picks for pod in pick.pods] if found is not None else []
        if found is None or not 0 < len(pods) <= _MOST:
            return None
        trial = planner.clone()
        trial.free(pods)
        trial.allocate((pod, found.plan[pod.uid]) for pod in wanted.members)
        homes = _replacement_nodes(cycle, trial, pods)
        if len(homes) == len(pods):
            return Found(found.picks, found.plan, homes)
        stays = {pick.eviction_unit for pick in found.picks if any(pod.uid not in homes for pod in pick.pods)}
        eviction_units = [eviction_unit for eviction_unit in eviction_units if eviction_unit not in stays]
    return None


def _replacement_nodes(cycle: Cycle, planner: Planner, pods: Sequence[PodRecord]) -> Mapping[Uid, str]:
    """Return nodes for the replacements of pods, if there are any.

    Their evaluation does not count for the gang: if it is over budget, the result is None.
    """
    own = cycle.effort.allow(_MOST_LOOKS)
    try:
        return planner.place([_replacement_of(cycle, pod) for pod in pods], partly=True) or {}
    except OverBudget:
        return {}
    finally:
        cycle.effort.allow(own)


def _movable_units(
    cycle: Cycle, planner: Planner, eviction_units: Iterable[EvictionUnit]
) -> list[EvictionUnit]:
    """Return the units whose pods would each fit on another node, if only it moved."""
    having_capacity: dict[Shape, int] = {}

    def fits(pod: PodRecord) -> bool:
        shape, row = _replacement_of(cycle, pod).shape, planner.nodes.row.get(pod.node)
        counts = planner.capacity.counts(shape)
        if shape not in having_capacity:
            having_capacity[shape] = int(np.count_nonzero(counts))
        return having_capacity[shape] > (row is not None and counts[row] > 0)

    return [eviction_unit for eviction_unit in eviction_units if all(map(fits, eviction_unit.pods))]


def _replacement_of(cycle: Cycle, pod: PodRecord) -> PodRecord:
    """Return the replacement of a pod, to be planned on nodes of the same flavor."""
    flavors = cycle.budget.flavors
    flavor = flavors.flavor_on(cycle.snapshot.groups[pod.group].queue, pod.node)
    return pod if flavor is None else on_nodes_of(flavor, [pod])[0]


def have_homes(cycle: Cycle, reclaim: Reclaim) -> bool:
    """Return whether the planned nodes still admit the pods that have not moved yet."""
    pods = (live_pod(cycle, victim) for victim in reclaim.victims if victim.uid in reclaim.homes)
    return all(_admits(cycle, pod, reclaim.homes[pod.uid]) for pod in pods if pod is not None)


def _admits(cycle: Cycle, pod: PodRecord, node: str) -> bool:
    nodes = cycle.snapshot.nodes
    return (row := nodes.row.get(node)) is not None and bool(nodes.suitable(pod.shape)[row])


def reserved_homes(cycle: Cycle) -> dict[GroupKey, ReservedCapacity]:
    """Return the capacity reserved for replacements, also where it is not free yet.

    It binds all groups. Headroom below ceilings is reserved for those that have left.
    """
    reserved: dict[GroupKey, ReservedCapacity] = {}
    for key, move in cycle.snapshot.moves.items():
        group = cycle.snapshot.groups.get(key)
        homes = [(pod, node) for pod, node in move.homes if _admits(cycle, pod, node)]
        if group is not None and homes:
            with Guard(cycle, group):
                reserved[key] = _reserve_move(cycle, group, move, homes)
    return reserved


def _reserve_move(
    cycle: Cycle, group: GroupInfo, move: Move, homes: Sequence[PlannedPod]
) -> ReservedCapacity:
    budget, existing = cycle.budget, {pod.uid for pod in (*group.placed, *group.departing)}
    rows, needs = budget.planner.capacity.asked_on(rows_of(homes, cycle.snapshot.nodes))
    budget.planner.take_amounts(rows, needs)
    gone = [home for home in homes if home[0].uid not in existing]
    below = budget.shares.headroom(group.queue, budget.flavors.requests(gone)) if gone else ()
    limits = budget.running.remaining(group, len(gone)) if gone else ()
    headroom: Amounts = {
        level: {name: min(n, max(spare[name], 0)) for name, n in asked.items()}
        for level, asked, spare in (*below, *limits)
    }
    reserve(budget, headroom)
    nodes = {pod.uid: node for pod, node in homes}
    requests = total(pod.shape.requests for pod, _ in homes)
    reservation = Reservation(move.at, nodes, requests, is_promised=True, is_for_moved=True)
    return ReservedCapacity(group, reservation, rows, needs, needs, Need(headroom, headroom), binds=True)
