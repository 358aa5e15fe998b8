"""Plans of groups that start or run: valid planned nodes, rejected nodes, and joining members.

Most of these groups have not changed since the previous cycle. Therefore, their plans are computed once and
cached in the GroupInfo. A cycle then allocates the capacity of all plans in one step.

A planned node counts as rejected after a grace period, in two cases:

* The scheduler refused the pod on this node. During the period, the scheduler's cache can still be outdated.
* The scheduler could have used the node, and has asked for other pods since. In this case, the period is
  longer if more pods are in flight.

The scheduler does not write an unchanged condition again, so it may refuse a pod a second time without any
sign. Therefore the period of a pod that was refused before ends even if the scheduler asks for no other pods.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from extender.domain.model.reasons import Reason
from extender.domain.model.records import PodRecord, Uid
from extender.domain.placement.planner import Holding
from extender.domain.queues.flavors import Flavor
from extender.domain.scheduling.budget import Budget
from extender.domain.scheduling.cycle import Cycle, Guard
from extender.domain.scheduling.flavors import by_role, choose_flavors, limit_to_flavor
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.wholeness import Missing, members_to_replace, missing

_SILENT_FACTOR = 4  # factor of the grace period of an unused node if the scheduler asks for no other pods
_MAX_LOOKS = 1e5  # limit of affinity look-ups, to check whether constraints concern the pods of plans
ValidPlan = tuple[GroupInfo, Holding, dict[Uid, str]]  # the last part has rejected nodes by member


class ActivePlan(msgspec.Struct):
    """Plan of a group that starts or runs. The cycle adds nodes to it."""

    group: GroupInfo
    plan: dict[Uid, str]  # valid nodes, and nodes added in this cycle; all their capacity is allocated
    rejected_nodes: dict[Uid, str]  # nodes that the scheduler did not use, by member
    pods_left: Sequence[PodRecord]  # members that had no valid node when the cycle began
    reason: Reason | None = None  # why the next unplanned member does not start
    detail: str = ""

    def unplanned_members(self) -> list[PodRecord]:
        """Return the members that still have no node."""
        return [pod for pod in self.pods_left if pod.uid not in self.plan]

    def add(self, new_nodes: dict[Uid, str]) -> None:
        """Add nodes to the plan. If `new_nodes` is empty, the plan stays the same object."""
        if new_nodes:
            self.plan = {**self.plan, **new_nodes}


def keep_plans(cycle: Cycle, groups: Iterable[GroupInfo]) -> list[ActivePlan]:
    """Return the valid parts of the plans of `groups`, and allocate their capacity.

    If not all plans fit any more, earlier groups come first.
    """
    valid_plans: list[ValidPlan] = []
    for group in groups:
        with Guard(cycle, group):
            valid_plans.append(_valid_plan(cycle, group))
    budget, outer_effort = cycle.budget, cycle.effort.allow(_MAX_LOOKS)
    try:
        all_fit = budget.planner.allocate_holdings([holding for _, holding, _ in valid_plans])
    except Exception:  # a check of all plans at once is over budget, so check each plan alone
        all_fit = False
    finally:
        cycle.effort.allow(outer_effort)
    active_plans: list[ActivePlan] = []
    for group, holding, rejected_nodes in valid_plans:
        with Guard(cycle, group):
            plan: dict[Uid, str] = holding.plan
            unplanned_pods: Sequence[PodRecord] = holding.unplanned_pods
            if not all_fit:
                plan = budget.planner.allocate_on_nodes(holding.pods)
                unplanned_pods = (*(pod for pod, _ in holding.pods if pod.uid not in plan), *unplanned_pods)
            if placeholders := group.compute(_placeholders):
                plan, unplanned_pods = _within_share(budget, group, plan, unplanned_pods)
            if group.spec.min_resources and group.is_whole:
                plan, unplanned_pods = _within_ceilings(budget, group, plan, unplanned_pods)
            requests = holding.requests if plan is holding.plan else None
            budget.count_members(group, plan, requests, len(plan.keys() - placeholders))
            budget.window.add(group, len(group.assumed_pods))
            active_plans.append(ActivePlan(group, plan, rejected_nodes, unplanned_pods))
    return active_plans


def _valid_plan(cycle: Cycle, group: GroupInfo) -> ValidPlan:
    """Return the holding that a group keeps, and its rejected nodes by member.

    The planner does not use these nodes for the members again in this cycle.
    """
    holding, unused_nodes = group.compute(_holding), group.compute(_oldest_unused_nodes)
    if (flavors := cycle.budget.flavors).flavors_of(group.queue):
        # A node whose labels have changed may no longer have a flavor of the queue.
        outside_uids = {pod.uid for pod, node in holding.pods if flavors.flavor_on(group.queue, node) is None}
        holding = holding.without_pods(outside_uids) if outside_uids else holding
    if not any(_is_overdue(cycle, group, node) for node in unused_nodes):
        return group, holding, {}
    rejected_nodes: dict[Uid, str] = {}
    for pod, node in holding.pods:
        if (unused_node := _unused_node(group, pod)) is not None and _is_overdue(cycle, group, unused_node):
            rejected_nodes[pod.uid] = node
    for pod, node in holding.pods:
        if pod.uid in rejected_nodes:
            cycle.budget.planner.forbid(pod.shape, node)
    return group, holding.without_pods(rejected_nodes), rejected_nodes


def _placeholders(group: GroupInfo) -> frozenset[Uid]:
    """Return the expected members that only reserve capacity. No pod is in flight to their nodes."""
    return frozenset(pod.uid for pod in group.waiting_pods if pod.reserved_for)


def _within_share(
    budget: Budget, group: GroupInfo, plan: dict[Uid, str], pods_left: Sequence[PodRecord]
) -> tuple[dict[Uid, str], Sequence[PodRecord]]:
    """Return the plan and the unplanned members of a running group.

    Placeholders for minResources that exceed the queue's share are left out of the plan. They start last,
    like elastic members, so that they withhold no capacity from groups within their share.
    """
    placeholders = [pod for pod in group.waiting_pods if pod.is_for_min_resources and pod.uid in plan]
    excluded_plan = {pod.uid: plan[pod.uid] for pod in placeholders}
    if not (excluded_plan and group.is_whole):
        return plan, pods_left
    if not budget.shares.is_above_share(group.queue, budget.requests(group, excluded_plan)):
        return plan, pods_left
    budget.planner.unplace(group.waiting_pods, excluded_plan)
    return {uid: node for uid, node in plan.items() if uid not in excluded_plan}, (*pods_left, *placeholders)


def _within_ceilings(
    budget: Budget, group: GroupInfo, plan: dict[Uid, str], unplanned_pods: Sequence[PodRecord]
) -> tuple[dict[Uid, str], Sequence[PodRecord]]:
    """Return the plan and the unplanned members.

    Members take over capacity that was reserved for minResources, but may request more than minResources
    lists. If the joining members of the plan exceed a ceiling, they are left out of the plan.
    """
    joining_pods = [pod for pod in group.waiting_pods if pod.uid in plan and not pod.reserved_for]
    nodes = {pod.uid: plan[pod.uid] for pod in joining_pods}
    if not nodes or not budget.shares.ceiling_excess(group.queue, budget.requests(group, nodes)):
        return plan, unplanned_pods
    budget.planner.unplace(group.waiting_pods, nodes)
    return {uid: node for uid, node in plan.items() if uid not in nodes}, (*unplanned_pods, *joining_pods)


def _holding(group: GroupInfo) -> Holding:
    """Return the members to place, with the planned nodes of some of them. Assumed pods do not count.

    For a running group, these are all waiting members. Otherwise they are replacements, or the members that
    must start.
    """
    if group.is_whole or group.is_whole_as_before:
        members: Sequence[PodRecord] = group.waiting_pods
    else:
        members = (members_to_replace(group) if group.has_fully_run else missing(group)).members
    assumed_uids = {pod.uid for pod, _ in group.assumed_pods}
    pods_to_place = [pod for pod in members if pod.uid not in assumed_uids]
    nodes = group.planned_nodes
    planned_pods = [(pod, nodes[pod.uid]) for pod in pods_to_place if pod.uid in nodes]
    return Holding(planned_pods, [pod for pod in pods_to_place if pod.uid not in nodes])


class UnusedNode(NamedTuple):
    """State of a planned node that the scheduler has not used."""

    since: float
    is_refused: bool  # whether the scheduler has refused the pod since then
    was_asked_twice: bool  # whether the scheduler was asked twice in the same start
    was_refused: bool  # whether it refused the pod before, so that an equal refusal would be invisible


def _unused_node(group: GroupInfo, pod: PodRecord) -> UnusedNode | None:
    """Return the state of a pod's planned node that the scheduler could have used, but did not.

    None means that the scheduler could not use the node yet.
    """
    attempt = group.attempts.get(pod.uid)
    if attempt is None or attempt.shown_at is None:
        return None
    is_refused = attempt.refused_at is not None
    unused_since = attempt.shown_at if attempt.refused_at is None else attempt.refused_at
    return UnusedNode(unused_since, is_refused, attempt.was_asked_again, was_refused=bool(pod.unschedulable))


def _oldest_unused_nodes(group: GroupInfo) -> tuple[UnusedNode, ...]:
    """Return the oldest unused node of each kind.

    No other node of the kind can be overdue before the oldest.
    """
    unused_nodes = [_unused_node(group, pod) for pod, _ in group.compute(_holding).pods]
    ordered_nodes = sorted((node for node in unused_nodes if node is not None), reverse=True)
    return tuple({node[1:]: node for node in ordered_nodes}.values())


def _is_overdue(cycle: Cycle, group: GroupInfo, node: UnusedNode) -> bool:
    """Return whether the scheduler's time to use a planned node is over.

    A repeated refusal ends this time at once. However, if a pod has just left a node, the scheduler may not
    know this yet, so the time does not end at once.
    """
    limits, attention = cycle.limits, cycle.snapshot.attention
    asked_at = attention.since(node.since)  # first call of the scheduler after `node.since`
    if asked_at is None:  # the call itself triggers no cycle
        cycle.request_cycle_at(cycle.snapshot.now + limits.arrival_grace)
    if attention.leading_since is None:
        return False
    begins_at = max(node.since, attention.leading_since)
    if node.is_refused:
        last_left_at, grace = cycle.snapshot.last_freed.for_group(group.key), limits.refusal_grace
        return (node.was_asked_twice and last_left_at < begins_at - grace) or cycle.is_due(begins_at + grace)
    grace = limits.arrival_grace + limits.arrival_grace_per_pod * cycle.in_flight_count
    if asked_at is not None:
        return cycle.is_due(asked_at + grace)
    return node.was_refused and cycle.is_due(begins_at + _SILENT_FACTOR * grace)


def pods_with_flavors(
    budget: Budget, group: GroupInfo, pods: Sequence[PodRecord], plan: Mapping[Uid, str]
) -> list[PodRecord] | None:
    """Return all of `pods`, each limited to nodes of its flavor.

    None means that a role has no flavor that fits.
    """
    if not budget.flavors.flavors_of(group.queue):
        return list(pods)

    def why_not(need: Missing) -> tuple[Reason, str] | None:
        return None if budget.planner.could_place(need) else (Reason.NO_ROOM, "")

    choice = choose_flavors(budget.flavors, group, pods, plan, borrows=True, why_no_capacity=why_not)
    return None if choice.obstacles else list(choice.need.members)


def first_within_flavors(
    budget: Budget, group: GroupInfo, pods: Iterable[PodRecord], flavor_map: dict[str, Flavor], borrows: bool
) -> tuple[list[PodRecord], str]:
    """Return the first of `pods` of each role that flavors admit, and the obstacle of the other pods as text.

    Each pod may only use nodes of one flavor. `flavor_map` has the flavor of each role with members. The
    function adds the flavors that it finds for other roles to `flavor_map`.
    """
    flavors, queue = budget.flavors, group.queue
    if not flavors.flavors_of(queue):
        return list(pods), ""
    joining_pods: list[PodRecord] = []
    requests: dict[str, dict[str, int]] = {}
    obstacle_text = ""
    for role, role_pods in by_role(group, pods).items():
        flavor = flavor_map.get(role)
        for candidate in flavors.flavors_of(queue) if flavor is None else ():
            first_pod = limit_to_flavor(candidate, role_pods[:1])
            is_admitted = not candidate.refuses([first_pod[0].shape]) and flavors.first_within_limits(
                queue, candidate, first_pod, {}, borrows
            )
            if is_admitted and budget.planner.could_place(Missing((first_pod[0],))):
                flavor = candidate
                break
        if flavor is None or flavor.refuses([role_pods[0].shape]):
            continue
        flavor_map[role] = flavor
        admitted_pods = flavors.first_within_limits(
            queue, flavor, role_pods, requests.setdefault(flavor.name, {}), borrows
        )
        joining_pods += limit_to_flavor(flavor, admitted_pods)
        if len(admitted_pods) < len(role_pods):
            obstacle_text = f"flavor {flavor.name} of queue {queue} is used up"
    return joining_pods, obstacle_text
