"""Plans of groups that start or run: valid planned nodes, rejected nodes, and joining members.

Most of these groups have not changed since the previous cycle. Therefore their plans are computed once and
kept with the GroupInfo. A cycle then allocates the capacity of all plans in one step.

A planned node counts as rejected after a grace period, in two cases:

* The scheduler refused the pod on this node. (Its cache may lag.)
* The scheduler could have used the node, and has asked for other pods since. The period grows with the number
  of pods in flight.

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
from extender.domain.scheduling.flavors import by_role, choose, on_nodes_of
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.wholeness import Missing, members_to_replace, missing

_SILENT_FACTOR = 4  # factor of the grace period of an unused node if the scheduler asks for no other pods
_MAX_AT_ONCE = 1e5  # limit of affinity look-ups, to check whether constraints concern the pods of plans
WantedPlan = tuple[GroupInfo, Holding, dict[Uid, str]]  # the last part has rejected nodes by member


class ActivePlan(msgspec.Struct):
    """Plan of a group that starts or runs. The cycle adds nodes to it."""

    group: GroupInfo
    plan: dict[Uid, str]  # valid nodes, and nodes added in this cycle; all their capacity is allocated
    rejected: dict[Uid, str]  # nodes that the scheduler did not use, by member
    unplanned: Sequence[PodRecord]  # members that had no valid node when the cycle began
    reason: Reason | None = None  # why the next unplanned member does not start
    detail: str = ""

    def unplanned_members(self) -> list[PodRecord]:
        """Return the members that still have no node."""
        return [pod for pod in self.unplanned if pod.uid not in self.plan]

    def add(self, new_nodes: dict[Uid, str]) -> None:
        """Add nodes to the plan. If `new_nodes` is empty, the plan stays the same object."""
        if new_nodes:
            self.plan = {**self.plan, **new_nodes}


def keep_plans(cycle: Cycle, groups: Iterable[GroupInfo]) -> list[ActivePlan]:
    """Return the valid parts of the plans of `groups`, and allocate their capacity.

    If not all plans fit any more, earlier groups come first.
    """
    wanted: list[WantedPlan] = []
    for group in groups:
        with Guard(cycle, group):
            wanted.append(_wanted_plan(cycle, group))
    budget, allowed = cycle.budget, cycle.effort.allow(_MAX_AT_ONCE)
    try:
        all_fit = budget.planner.allocate_holdings([holding for _, holding, _ in wanted])
    except Exception:  # a check of all plans at once is over budget, so check each plan alone
        all_fit = False
    finally:
        cycle.effort.allow(allowed)
    active: list[ActivePlan] = []
    for group, holding, rejected in wanted:
        with Guard(cycle, group):
            plan: dict[Uid, str] = holding.plan
            unplanned: Sequence[PodRecord] = holding.unplanned
            if not all_fit:
                plan = budget.planner.allocate_on_nodes(holding.pods)
                unplanned = (*(pod for pod, _ in holding.pods if pod.uid not in plan), *unplanned)
            if placeholders := group.computed(_placeholders):
                plan, unplanned = _within_share(budget, group, plan, unplanned)
            if group.spec.min_resources and group.is_whole:
                plan, unplanned = _within_ceilings(budget, group, plan, unplanned)
            requests = holding.requests if plan is holding.plan else None
            budget.count(group, plan, requests, len(plan.keys() - placeholders))
            budget.window.add(group, len(group.assumed))
            active.append(ActivePlan(group, plan, rejected, unplanned))
    return active


def _wanted_plan(cycle: Cycle, group: GroupInfo) -> WantedPlan:
    """Return the holding that a group keeps, and the nodes that the scheduler rejected, by member."""
    holding, unused = group.computed(_holding), group.computed(_longest_unused)
    if (flavors := cycle.budget.flavors).flavors_of(group.queue):
        # A node whose labels have changed may no longer have a flavor of the queue.
        outside = {pod.uid for pod, node in holding.pods if flavors.flavor_on(group.queue, node) is None}
        holding = holding.without_pods(outside) if outside else holding
    if not any(_is_overdue(cycle, group, node) for node in unused):
        return group, holding, {}
    rejected: dict[Uid, str] = {}
    for pod, node in holding.pods:
        if (since := _unused_since(group, pod)) is not None and _is_overdue(cycle, group, since):
            rejected[pod.uid] = node
    for pod, node in holding.pods:
        if pod.uid in rejected:
            cycle.budget.planner.forbid(pod.shape, node)
    return group, holding.without_pods(rejected), rejected


def _placeholders(group: GroupInfo) -> frozenset[Uid]:
    """Return the expected members that only reserve capacity. No pod is in flight to their nodes."""
    return frozenset(pod.uid for pod in group.waiting if pod.reserved_for)


def _within_share(
    budget: Budget, group: GroupInfo, plan: dict[Uid, str], unplanned: Sequence[PodRecord]
) -> tuple[dict[Uid, str], Sequence[PodRecord]]:
    """Return the plan and the unplanned members of a running group.

    The plan leaves out placeholders for minResources if they exceed the queue's share. They start last, like
    elastic members, so that they withhold no capacity from groups within their share.
    """
    placeholders = [pod for pod in group.waiting if pod.is_for_min_resources and pod.uid in plan]
    excluded = {pod.uid: plan[pod.uid] for pod in placeholders}
    if not (excluded and group.is_whole):
        return plan, unplanned
    if not budget.shares.is_above_share(group.queue, budget.requests(group, excluded)):
        return plan, unplanned
    budget.planner.unplace(group.waiting, excluded)
    return {uid: node for uid, node in plan.items() if uid not in excluded}, (*unplanned, *placeholders)


def _within_ceilings(
    budget: Budget, group: GroupInfo, plan: dict[Uid, str], unplanned: Sequence[PodRecord]
) -> tuple[dict[Uid, str], Sequence[PodRecord]]:
    """Return the plan and the unplanned members.

    The plan leaves out joining members if they exceed a ceiling. Members take over capacity that was reserved
    for minResources, but may request more than minResources lists.
    """
    joining = [pod for pod in group.waiting if pod.uid in plan and not pod.reserved_for]
    excluded = {pod.uid: plan[pod.uid] for pod in joining}
    if not excluded or not budget.shares.above_ceiling(group.queue, budget.requests(group, excluded)):
        return plan, unplanned
    budget.planner.unplace(group.waiting, excluded)
    return {uid: node for uid, node in plan.items() if uid not in excluded}, (*unplanned, *joining)


def _holding(group: GroupInfo) -> Holding:
    """Return the members to place, with the planned nodes of some of them. Assumed pods do not count.

    For a running group, these are all waiting members. Otherwise they are replacements, or the members that
    must start.
    """
    if group.is_whole or group.is_whole_as_before:
        members: Sequence[PodRecord] = group.waiting
    else:
        members = (members_to_replace(group) if group.has_fully_run else missing(group)).members
    assumed = {pod.uid for pod, _ in group.assumed}
    to_place = [pod for pod in members if pod.uid not in assumed]
    pods = [(pod, group.planned[pod.uid]) for pod in to_place if pod.uid in group.planned]
    return Holding(pods, [pod for pod in to_place if pod.uid not in group.planned])


class Unused(NamedTuple):
    """State of a planned node that the scheduler has not used."""

    since: float
    refused: bool  # whether the scheduler has refused the pod since then
    asked_twice: bool  # whether the scheduler was asked twice in the same start
    refused_before: bool  # whether it refused the pod before, so that an equal refusal would be invisible


def _unused_since(group: GroupInfo, pod: PodRecord) -> Unused | None:
    """Return since when the scheduler could have used a planned node.

    None means that it could not use it yet.
    """
    attempt = group.attempts.get(pod.uid)
    if attempt is None or attempt.shown_at is None:
        return None
    is_refused = attempt.refused_at is not None
    since = attempt.shown_at if attempt.refused_at is None else attempt.refused_at
    return Unused(since, is_refused, attempt.was_asked_again, refused_before=bool(pod.unschedulable))


def _longest_unused(group: GroupInfo) -> tuple[Unused, ...]:
    """Return the oldest unused node of each kind.

    No other node of the kind can be overdue before the oldest.
    """
    nodes = [_unused_since(group, pod) for pod, _ in group.computed(_holding).pods]
    ordered = sorted((node for node in nodes if node is not None), reverse=True)
    return tuple({node[1:]: node for node in ordered}.values())


def _is_overdue(cycle: Cycle, group: GroupInfo, unused: Unused) -> bool:
    """Return whether the scheduler's time to use a planned node is over.

    A repeated refusal ends it at once, unless a pod has just left: the scheduler may not know that yet.
    """
    limits, attention = cycle.limits, cycle.snapshot.attention
    called_at = attention.since(unused.since)  # first time that the scheduler asked for other pods since
    if called_at is None:  # asking for pods later triggers no cycle
        cycle.request_cycle_at(cycle.snapshot.now + limits.arrival_grace)
    if attention.leading_since is None:
        return False
    begins_at = max(unused.since, attention.leading_since)
    if unused.refused:
        left_at, grace = cycle.snapshot.last_freed.for_group(group.key), limits.refusal_grace
        return (unused.asked_twice and left_at < begins_at - grace) or cycle.is_due(begins_at + grace)
    grace = limits.arrival_grace + limits.arrival_grace_per_pod * cycle.in_flight
    if called_at is not None:
        return cycle.is_due(called_at + grace)
    return unused.refused_before and cycle.is_due(begins_at + _SILENT_FACTOR * grace)


def all_if_flavors_fit(
    budget: Budget, group: GroupInfo, pods: Sequence[PodRecord], plan: Mapping[Uid, str]
) -> list[PodRecord] | None:
    """Return all of `pods`, bound to flavors. None means that a role has no flavor that fits."""
    if not budget.flavors.flavors_of(group.queue):
        return list(pods)

    def lacks_capacity(wanted: Missing) -> tuple[Reason, str] | None:
        return None if budget.planner.could_place(wanted) else (Reason.NO_ROOM, "")

    choice = choose(budget.flavors, group, pods, plan, lends=True, lacks_capacity=lacks_capacity)
    return None if choice.tried else list(choice.wanted.members)


def first_within_flavors(
    budget: Budget, group: GroupInfo, pods: Iterable[PodRecord], in_use: dict[str, Flavor], lends: bool
) -> tuple[list[PodRecord], str]:
    """Return the first of `pods` of each role that flavors admit, and the obstacle of the other pods as text.

    Each pod may only use nodes of one flavor. `in_use` has the flavor of each role with members. If a flavor
    is found for another role, it is added.
    """
    flavors, queue = budget.flavors, group.queue
    if not flavors.flavors_of(queue):
        return list(pods), ""
    joining: list[PodRecord] = []
    requests: dict[str, dict[str, int]] = {}
    why = ""
    for role, role_pods in by_role(group, pods).items():
        flavor = in_use.get(role)
        for other in flavors.flavors_of(queue) if flavor is None else ():
            first = on_nodes_of(other, role_pods[:1])
            admits = not other.refuses([first[0].shape]) and flavors.first_within_limits(
                queue, other, first, {}, lends
            )
            if admits and budget.planner.could_place(Missing((first[0],))):
                flavor = other
                break
        if flavor is None or flavor.refuses([role_pods[0].shape]):
            continue
        in_use[role] = flavor
        admitted = flavors.first_within_limits(
            queue, flavor, role_pods, requests.setdefault(flavor.name, {}), lends
        )
        joining += on_nodes_of(flavor, admitted)
        if len(admitted) < len(role_pods):
            why = f"flavor {flavor.name} of queue {queue} is used up"
    return joining, why
