"""Consolidation: moves pods for a gang whose free capacity is fragmented, and restarts gangs elsewhere.

A pod moves by eviction: its controller creates a replacement, which starts on another node. So a pod may move
only if a controller replaces it, and if a node is found for the replacement in addition to the gang's nodes.

All these nodes are found before any eviction. They are reserved until the replacements run there. The
capacity that the pods free is reserved for the gang. A move costs as much as any other eviction. Since all
pods come back, no queue loses capacity, so shares do not prevent a move.

A restart moves a whole group if its domain has no capacity for lost members, and if its owner has chosen
restarts. The restart waits for a grace period, and then until one domain has the capacity. After a restart,
the group pauses before the next restart.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from extender.domain.model.evictions import Eviction, EvictionCause, Move, Reclaim, ReclaimVictim
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.resources import Resources, total
from extender.domain.model.shapes import Shape
from extender.domain.placement.affinity import OverBudget
from extender.domain.placement.eviction_units import Disruptions, EvictionUnit, running_members
from extender.domain.placement.planner import PlannedPod, Planner, rows_of
from extender.domain.placement.victim_search import Found, Search
from extender.domain.scheduling.backfill import ReservedCapacity
from extender.domain.scheduling.cycle import Cycle, Guard
from extender.domain.scheduling.flavors import flavors_in_use, limit_to_flavor, role_of
from extender.domain.scheduling.headroom import Amounts, HeadroomNeed, reserve
from extender.domain.scheduling.lending import VictimShares
from extender.domain.scheduling.obstacles import blocking_decision
from extender.domain.scheduling.victims import live_pod
from extender.domain.snapshot.decisions import GroupDecision
from extender.domain.snapshot.group_info import GroupInfo, Reservation
from extender.domain.snapshot.phases import has_run
from extender.domain.snapshot.wholeness import Missing, members_to_replace

MAX_RESTARTS = 8  # number of groups for which another domain is searched in one cycle
_MAX_SEARCHES = 4  # searches for one gang in one cycle; each leaves out units that found no nodes before
_MAX_MOVED_PODS = 64  # number of pods that may move for one gang
_MAX_LOOKS = 1e5  # effort to find nodes for moved pods, in looks at a node for a term


class UnchangedShares(VictimShares):
    """Shares of queues that do not change, because moved pods come back."""

    def may_lose(self, queue: str, amounts: Resources) -> bool:
        return True

    def lose(self, queue: str, amounts: Resources, times: int = 1) -> None:
        pass


def find_units_with_homes(
    cycle: Cycle,
    planner: Planner,
    shares: UnchangedShares,
    eviction_units: Sequence[EvictionUnit],
    disruptions: Disruptions,
    need: Missing,
) -> Found | None:
    """Return the units to move for a gang, and homes for their pods, which are new nodes.

    None means that there are no such units. The search prefers the units that lose the least work. If the
    pods of a unit find no homes together with the other units, the next search leaves the unit out.
    """
    eviction_units = _movable_units(cycle, planner, eviction_units)
    for _ in range(_MAX_SEARCHES):
        if not eviction_units:
            return None
        found = Search(planner.clone(), shares, eviction_units, disruptions.clone()).find(need)
        pods = [pod for pick in found.picks for pod in pick.pods] if found is not None else []
        if found is None or not 0 < len(pods) <= _MAX_MOVED_PODS:
            return None
        trial_planner = planner.clone()
        trial_planner.free(pods)
        trial_planner.allocate((pod, found.plan[pod.uid]) for pod in need.members)
        homes = _replacement_nodes(cycle, trial_planner, pods)
        if len(homes) == len(pods):
            return Found(found.picks, found.plan, homes)
        stuck = {pick.eviction_unit for pick in found.picks if any(pod.uid not in homes for pod in pick.pods)}
        eviction_units = [eviction_unit for eviction_unit in eviction_units if eviction_unit not in stuck]
    return None


def _replacement_nodes(cycle: Cycle, planner: Planner, pods: Sequence[PodRecord]) -> Mapping[Uid, str]:
    """Return nodes for the replacements of `pods`, as far as nodes are found.

    The search does not count as effort for the gang. If the search is over budget, the result is empty.
    """
    outer_effort = cycle.effort.allow(_MAX_LOOKS)
    try:
        return planner.place([_replacement_of(cycle, pod) for pod in pods], is_partial=True) or {}
    except OverBudget:
        return {}
    finally:
        cycle.effort.allow(outer_effort)


def _movable_units(cycle: Cycle, planner: Planner, units: Iterable[EvictionUnit]) -> list[EvictionUnit]:
    """Return the units whose pods would each fit on another node if no other pod moved."""
    nodes_with_capacity: dict[Shape, int] = {}

    def fits_elsewhere(pod: PodRecord) -> bool:
        shape, row = _replacement_of(cycle, pod).shape, planner.nodes.row_of.get(pod.node)
        counts = planner.capacity.counts(shape)
        if shape not in nodes_with_capacity:
            nodes_with_capacity[shape] = int(np.count_nonzero(counts))
        return nodes_with_capacity[shape] > (row is not None and counts[row] > 0)

    return [eviction_unit for eviction_unit in units if all(map(fits_elsewhere, eviction_unit.pods))]


def _replacement_of(cycle: Cycle, pod: PodRecord) -> PodRecord:
    """Return the replacement of a pod, which may only use nodes of the same flavor."""
    flavors = cycle.budget.flavors
    flavor = flavors.flavor_on(cycle.snapshot.groups[pod.group].queue, pod.node)
    return pod if flavor is None else limit_to_flavor(flavor, [pod])[0]


def are_homes_usable(cycle: Cycle, reclaim: Reclaim) -> bool:
    """Return whether the planned nodes still admit the replacements of the pods that have not moved yet."""
    pods = (live_pod(cycle, victim) for victim in reclaim.victims if victim.uid in reclaim.homes)
    return all(_admits(cycle, pod, reclaim.homes[pod.uid]) for pod in pods if pod is not None)


def _admits(cycle: Cycle, pod: PodRecord, node: str) -> bool:
    """Return whether a node exists and suits a pod. Its free capacity does not matter."""
    nodes = cycle.snapshot.nodes
    return (row := nodes.row_of.get(node)) is not None and bool(nodes.suitable_rows(pod.shape)[row])


def reserve_homes(cycle: Cycle) -> dict[GroupKey, ReservedCapacity]:
    """Reserve the planned nodes of replacements, even if they are not free yet. Return the capacity by group.

    No other group may use this capacity. If a moved pod has already left, headroom below ceilings is also
    reserved for its replacement.
    """
    capacity_by_group: dict[GroupKey, ReservedCapacity] = {}
    for key, move in cycle.snapshot.moves.items():
        group = cycle.snapshot.groups.get(key)
        homes = [(pod, node) for pod, node in move.homes if _admits(cycle, pod, node)]
        if group is not None and homes:
            with Guard(cycle, group):
                capacity_by_group[key] = _reserve_all(cycle, group, move, homes)
    return capacity_by_group


def _reserve_all(cycle: Cycle, group: GroupInfo, move: Move, homes: Sequence[PlannedPod]) -> ReservedCapacity:
    """Reserve the planned nodes for pods that move, and headroom for pods that must be created first."""
    budget, existing_uids = cycle.budget, {pod.uid for pod in (*group.placed_pods, *group.departing_pods)}
    rows, needs = budget.planner.capacity.requests_on(rows_of(homes, cycle.snapshot.nodes))
    budget.planner.allocate_amounts(rows, needs)
    new_homes = [home for home in homes if home[0].uid not in existing_uids]
    ceilings = budget.shares.headroom(group.queue, budget.flavors.requests(new_homes)) if new_homes else ()
    limits = budget.running.remaining(group, len(new_homes)) if new_homes else ()
    headroom: Amounts = {
        level: {name: min(n, max(free_amounts[name], 0)) for name, n in needed_amounts.items()}
        for level, needed_amounts, free_amounts in (*ceilings, *limits)
    }
    reserve(budget, headroom)
    nodes = {pod.uid: node for pod, node in homes}
    requests = total(pod.shape.requests for pod, _ in homes)
    reservation = Reservation(move.at, nodes, requests, is_promised=True, is_for_replacements=True)
    reserved_headroom = HeadroomNeed(headroom, headroom)
    return ReservedCapacity(group, reservation, rows, needs, needs, reserved_headroom, binds_all=True)


def begin_restarts(cycle: Cycle, groups: Iterable[GroupInfo], free_capacity: Callable[[], Planner]) -> None:
    """Restart groups whose domain has had no capacity for lost members during the grace period.

    In one cycle, another domain is searched only for the first few of `groups`. Decisions say why a restart
    is not possible yet. `free_capacity` returns the capacity that no other group will use.
    """
    planner, search_count = None, 0
    for group in groups:
        decision, lost_at = cycle.decisions[group.key], group.start.no_domain_since
        if decision.reason is not Reason.NO_DOMAIN or lost_at is None:
            continue
        with Guard(cycle, group):
            if not (obstacle := _why_no_restart(cycle, group, lost_at)):
                search_count += 1
                if search_count <= MAX_RESTARTS:
                    planner = planner or free_capacity()
                    if homes := _find_homes_elsewhere(cycle, group, planner):
                        cycle.record(_begin_restart(cycle, group, decision, homes))
                        continue
                obstacle = "it restarts elsewhere once a domain has capacity for all its members"
            cycle.record(replace(decision, detail=f"{decision.detail}; {obstacle}"))
    if search_count > MAX_RESTARTS:  # the next cycle continues with other groups
        cycle.request_cycle_at(cycle.snapshot.now + 1.0)


def _why_no_restart(cycle: Cycle, group: GroupInfo, lost_at: float) -> str:
    """Return why a group does not restart elsewhere yet, as text for users.

    An empty text means that only capacity can prevent the restart.
    """
    snapshot, pods, need = cycle.snapshot, group.compute(running_members), members_to_replace(group)
    move = snapshot.moves.get(group.key)
    begin_at = max(lost_at + cycle.limits.lost_domain_grace, move.again_at if move is not None else lost_at)
    if not cycle.is_due(begin_at):
        return f"it restarts elsewhere from {snapshot.timestamp(begin_at)} on"
    if (decision := blocking_decision(cycle, group)) is not None:
        return f"it does not restart elsewhere: {decision.detail}"
    is_any_starting = group.assumed_pods or cycle.decisions[group.key].plan
    if is_any_starting or need.absent_text or any(pod.is_expected for pod in need.members):
        return "it restarts elsewhere once all its pods exist, and none is starting"
    if group.succeeded or not (group.job.is_managed or all(pod.is_replaced for pod in pods)):
        return "it does not restart elsewhere: some of its pods would not be created again"
    victims = (live_pod(cycle, eviction.victim) for eviction in cycle.evictions.values())
    budgets = Disruptions(snapshot.disruption_budgets, [pod for pod in victims if pod is not None])
    if refusing_budgets := budgets.refusing_budgets(pods):
        return f"it does not restart elsewhere: not allowed by disruption budget {refusing_budgets[0]}"
    return ""


def _find_homes_elsewhere(cycle: Cycle, group: GroupInfo, planner: Planner) -> Mapping[Uid, str]:
    """Return nodes for all members of a group that restarts, and allocate them; empty if there are none."""
    pods, flavor_by_role = group.compute(running_members), flavors_in_use(cycle.budget.flavors, group, {})
    members = [*pods, *members_to_replace(group).members]
    flavors = ((pod, flavor_by_role.get(role_of(group, pod))) for pod in members)
    flavored_pods = [pod if flavor is None else limit_to_flavor(flavor, [pod])[0] for pod, flavor in flavors]
    checkpoint = planner.checkpoint()
    planner.free(pods)
    homes = planner.place(flavored_pods)
    planner.roll_back(checkpoint)
    if homes is not None:
        planner.allocate((pod, homes[pod.uid]) for pod in flavored_pods)
    return homes or {}


def _begin_restart(
    cycle: Cycle, group: GroupInfo, decision: GroupDecision, homes: Mapping[Uid, str]
) -> GroupDecision:
    """Evict all running members of a group, which will restart on the nodes `homes`."""
    now, deadline = cycle.snapshot.now, cycle.snapshot.now + cycle.limits.reclaim_deadline
    origin = group.key, group.queue, EvictionCause.RESTART
    pods = group.compute(running_members)
    victims = tuple(ReclaimVictim(pod.uid, pod.namespace, pod.name, *origin) for pod in pods)
    detail = f"it restarts elsewhere as a whole: {decision.detail}"
    cycle.has_begun_reclaim = True
    return _evict_all(cycle, group, Reclaim(victims, {}, now, deadline, detail, homes))


def continue_restart(cycle: Cycle, group: GroupInfo) -> GroupDecision | None:
    """Return the decision on a group that is being evicted to restart elsewhere. None for other groups."""
    reclaim = cycle.reclaims.get(group.key)
    if reclaim is None or not (reclaim.is_restart and has_run(group)) or cycle.is_due(reclaim.until):
        return None
    return _evict_all(cycle, group, reclaim)


def _evict_all(cycle: Cycle, group: GroupInfo, reclaim: Reclaim) -> GroupDecision:
    """Evict all members of a group, and return its decision.

    Until no member remains, the group gets no replacements.
    """
    for victim in reclaim.victims:
        if live_pod(cycle, victim) is not None:
            cycle.evictions[victim.uid] = Eviction(victim, reclaim.detail)
    decision = GroupDecision(
        group.key, group.queue, Verdict.RUNNING, Reason.NO_DOMAIN, reclaim.detail, reclaim=reclaim
    )
    return replace(decision, stood_whole=group.has_fully_run)
