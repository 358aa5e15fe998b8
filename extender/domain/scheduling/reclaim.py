"""Reclaim: evictions for starved groups, and the reservation of the freed capacity until these groups start.

A reclaim begins at the end of a cycle, for a group that lacks capacity or its queue's share. It begins only
if the whole group will fit on real nodes once the victims are evicted. From then on, the victims are evicted,
and capacity that becomes free is reserved for the group.

A reclaim ends when the group starts or no longer needs capacity. The start fails at the deadline, or if no
victims remain and the group does not fit.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import inf
from operator import itemgetter
from typing import NamedTuple

from msgspec.structs import replace

from extender.api.objects.queues import QueueTaken
from extender.api.units import listed
from extender.domain.model.evictions import LOSS_CAUSES, Eviction, EvictionCause, Reclaim, ReclaimVictim
from extender.domain.model.reasons import CAPACITY_REASONS, Reason, Verdict
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.resources import Resources
from extender.domain.placement.eviction_units import EvictionUnit
from extender.domain.placement.planner import PlannedPod
from extender.domain.placement.victim_search import Search, VictimChoice
from extender.domain.queues.records import Reclaimed, ReclaimKey
from extender.domain.scheduling.backoff import fail
from extender.domain.scheduling.consolidation import UnchangedShares, are_homes_usable, find_units_with_homes
from extender.domain.scheduling.cycle import Cycle, Guard
from extender.domain.scheduling.flavors import limit_to_flavor
from extender.domain.scheduling.lending import Lending, VictimShares
from extender.domain.scheduling.obstacles import waiting_decision
from extender.domain.scheduling.price import Price, equal_need_key
from extender.domain.scheduling.reservation import Reservations
from extender.domain.scheduling.victims import (
    Candidates,
    departing_pods,
    has_broken_gang,
    live_pod,
    refused_namespace,
    slow_victims,
    would_be_split,
)
from extender.domain.snapshot.decisions import GroupDecision
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.wholeness import Missing, missing, ready_since

_STARVING_REASONS = frozenset({*CAPACITY_REASONS, Reason.QUEUE_SHARE, Reason.QUEUE_CEILING})
_MAX_FAILED_SEARCHES = 8  # number of searches without a result in one cycle
_TURN_COUNT = _MAX_FAILED_SEARCHES // 2  # number of searches for groups that take turns
_MAX_LISTED_NAMES = 3
_MAX_UNUSED_RECORDS = 64  # recorded groups of a namespace that have not used their capacity yet
_CAUSES_WITHIN_SHARE = (EvictionCause.RECLAIM, EvictionCause.PREEMPT)
_CAUSES_ABOVE_SHARE = (EvictionCause.BORROW, EvictionCause.PREEMPT)
_EVICTION_TEXTS = {
    EvictionCause.RECLAIM: "queue {queue} reclaims its deserved share, for group {group}",
    EvictionCause.PREEMPT: "group {group} of queue {queue} has a higher priority",
    EvictionCause.BORROW: "group {group} of queue {queue} has a higher priority, and borrows",
    EvictionCause.CONSOLIDATE: "it moves so that group {group} of queue {queue} fits, because free "
    "capacity is fragmented; capacity for its replacement is reserved on {home}",
    EvictionCause.UNMANAGED: "group {group} has a higher priority",
}

_SLOW = "it is being deleted, and others wait for its capacity"


def reserve_reclaimed(cycle: Cycle, waiting_groups: Iterable[GroupInfo]) -> list[GroupInfo]:
    """Reserve the planned capacity of each continuing reclaim, and start the groups that fit now.

    Return the groups that are still to be evaluated.
    """
    groups, budget = list(waiting_groups), cycle.budget
    reserving_groups: list[GroupInfo] = []
    for group in groups:
        if group.key in cycle.reclaims:
            with Guard(cycle, group):
                if _may_continue(cycle, group, missing(group)):
                    budget.reserve(group, cycle.reclaims[group.key].plan)
                    reserving_groups.append(group)
                else:
                    _record_refused_eviction(cycle, group)
    for group in sorted(reserving_groups, key=lambda group: (cycle.reclaims[group.key].since, group.order)):
        with Guard(cycle, group):
            cycle.record(_continue_reclaim(cycle, group))
        if cycle.is_broken(group):
            budget.free_plan(group, cycle.reclaims[group.key].plan)
    return [group for group in groups if group.key not in cycle.decisions]


def _may_continue(cycle: Cycle, group: GroupInfo, need: Missing) -> bool:
    """Return whether a reclaim may continue.

    These conditions must always hold:

    - The group may still preempt, and its missing members are the members that the reclaim has planned.
    - The planned node of each member still exists and admits the member.
    - No gang of a victim would be split.

    If the reclaim has already broken a gang, no other condition applies. Otherwise, these conditions must
    hold, too:

    - No eviction of a victim is refused, and the new nodes of moved pods are still usable.
    - The group's queue stays within its share, unless each victim has one of `_CAUSES_ABOVE_SHARE`.
    """
    reclaim, refused_uids = cycle.reclaims[group.key], cycle.snapshot.refused_evictions
    if reclaim.plan.keys() != {pod.uid for pod in need.members} or not group.may_preempt:
        return False
    for pod in need.members:
        row = cycle.snapshot.nodes.row_of.get(reclaim.plan[pod.uid])
        if row is None or not cycle.snapshot.nodes.suitable_rows(pod.shape)[row]:
            return False
    if any(would_be_split(cycle, key) for key in {victim.group for victim in reclaim.victims}):
        return False
    if has_broken_gang(cycle, reclaim):
        return True  # the remaining members of a broken gang are evicted, too
    if any(victim.uid in refused_uids for victim in reclaim.victims) or not are_homes_usable(cycle, reclaim):
        return False
    if all(victim.cause in _CAUSES_ABOVE_SHARE for victim in reclaim.victims):
        return True
    # Other queues lose capacity, so the group's queue, without terminating pods, must stay within its share.
    shares, queue = cycle.budget.shares, group.queue
    leaving_pods: list[PlannedPod] = []
    for other_group in cycle.snapshot.groups.values():
        if other_group.queue == queue:
            pods_on_nodes = (pod for pod in other_group.placed_pods if pod.holds_capacity)
            victims = (pod for pod in pods_on_nodes if pod.uid in cycle.group_by_victim)
            leaving_pods += ((pod, pod.node) for pod in (*other_group.departing_pods, *victims))
    leaving_requests = cycle.budget.flavors.requests(leaving_pods)
    shares.add(queue, leaving_requests, times=-1)
    exceeds_share = shares.is_above_share(queue, _planned_requests(cycle, group, reclaim))
    shares.add(queue, leaving_requests)
    return not exceeds_share


def _planned_requests(cycle: Cycle, group: GroupInfo, reclaim: Reclaim) -> Resources:
    """Return the requests of the group's missing members.

    If the queue has flavors, the result also has the amounts of the flavors of the planned nodes.
    """
    need = missing(group)
    if not cycle.budget.flavors.flavors_of(group.queue):
        return need.requests
    planned_pods = ((pod, reclaim.plan[pod.uid]) for pod in need.members)
    return cycle.budget.flavors.requests(planned_pods, need.requests)


def _continue_reclaim(cycle: Cycle, group: GroupInfo) -> GroupDecision:
    """Start a group on the capacity that its reclaim freed.

    Otherwise, wait for the capacity and evict more victims. The reclaim fails at its deadline, or if no
    victims remain and the group does not fit.
    """
    reclaim, budget, need = cycle.reclaims[group.key], cycle.budget, missing(group)
    budget.free_plan(group, reclaim.plan)
    reason = Reason.RECLAIMING
    if budget.window.has_places_for(group, len(need.members)):
        # Evictions end when the group starts, so a victim gang must not be evicted in part by then.
        may_start = not has_broken_gang(cycle, reclaim) or cycle.is_due(reclaim.until)
        if may_start and (plan := _place(cycle, group, reclaim)) is not None:
            return GroupDecision(group.key, group.queue, Verdict.STARTING, plan=plan)
        if cycle.is_due(reclaim.until):
            return fail(cycle, group, f"the capacity did not become free in time: {reclaim.detail}")
        victims = (victim for other_reclaim in cycle.reclaims.values() for victim in other_reclaim.victims)
        if not (any(live_pod(cycle, victim) for victim in victims) or any(departing_pods(cycle))):
            failure_text = "the victims are gone, and the group does not fit"
            return fail(cycle, group, f"{failure_text}: {reclaim.detail}")
    elif not has_broken_gang(cycle, reclaim):
        reason = Reason.WINDOW_FULL
        budget.window.waiting_queues.add(group.queue)
    budget.reserve(group, reclaim.plan)
    _evict(cycle, group, reclaim)
    return replace(waiting_decision(group, reason, reclaim.detail), reclaim=reclaim)


def _place(cycle: Cycle, group: GroupInfo, reclaim: Reclaim) -> dict[Uid, str] | None:
    """Return a node for each missing member: the planned nodes if these are free, otherwise other nodes.

    The result is None if the members do not fit, or if a limit of the group's queue prevents the start.
    Members of a queue with flavors get no other nodes.
    """
    budget, need = cycle.budget, missing(group)
    requests = _planned_requests(cycle, group, reclaim)
    running_excess = budget.running.excess(group, len(need.members))
    if budget.shares.ceiling_excess(group.queue, requests) or running_excess is not None:
        return None  # the group's queue must lose capacity first
    planned_pods: list[tuple[PodRecord, str]] = []
    for pod in need.members:  # each pod may only use nodes of its planned flavor
        node = reclaim.plan[pod.uid]
        flavor = budget.flavors.flavor_on(group.queue, node)
        planned_pods.append((limit_to_flavor(flavor, [pod])[0] if flavor is not None else pod, node))
    checkpoint = budget.journal.checkpoint()
    plan = budget.planner.allocate_on_nodes(planned_pods)
    if len(plan) == len(planned_pods):
        budget.count_members(group, plan)
        return plan
    budget.journal.roll_back(checkpoint)
    return None if budget.flavors.flavors_of(group.queue) else budget.place(group, need.members)


def _evict(cycle: Cycle, group: GroupInfo, reclaim: Reclaim) -> None:
    """Evict the victims that still exist and are not terminating."""
    for victim in reclaim.victims:
        if live_pod(cycle, victim) is not None:
            home = reclaim.homes.get(victim.uid)
            why = _EVICTION_TEXTS[victim.cause].format(group=group.display_name, queue=group.queue, home=home)
            cycle.evictions[victim.uid] = Eviction(victim, why)


class StarvingGroups(NamedTuple):
    """Groups that look for victims.

    If the first group of a kind finds no victims, the cycle does not search for victims of the others.
    """

    by_kind: Mapping[object, GroupInfo]  # first group of each kind, and its longest waiting group
    victimless_groups: Mapping[tuple[str, int], GroupInfo]  # groups without possible victims
    has_victims: Callable[[GroupInfo, tuple[EvictionCause, ...]], bool]  # returns whether victims may exist


NONE_STARVES = StarvingGroups({}, {}, lambda *_: False)


def begin_reclaims(cycle: Cycle, lending: Lending, reservations: Reservations) -> StarvingGroups:
    """Find victims for starved groups, in a bounded number of searches.

    Groups are ordered by the priority and the share of their queue, then by their order in the queue.
    """
    limit, candidates = cycle.limits.max_reclaims - len(cycle.reclaims), Candidates(cycle)
    groups = _starved_groups(cycle)
    if groups or cycle.reclaims:
        cycle.evictions |= {each.uid: Eviction(each, _SLOW, is_slow=True) for each in slow_victims(cycle)}
    idlers = {(group.queue, group.priority): group for group in groups if not candidates.may_exist_for(group)}
    seeking_groups = [group for group in groups if (group.queue, group.priority) not in idlers]
    longest = _longest_waiting(seeking_groups)
    first_by_kind = _first_by_kind(cycle, seeking_groups)
    first_by_kind |= {(each, "longest"): group for each, group in longest.items()}
    result = StarvingGroups(first_by_kind, idlers, candidates.may_exist_for)
    shares, queues = cycle.budget.shares, cycle.snapshot.queues
    ranks = {
        name: (-queues[name].record.priority, shares.relative_share(shares.tree.node_by_queue[name]), name)
        for name in {group.queue for group in seeking_groups}
    }
    searchers = [each for each in seeking_groups if each.may_preempt and not reservations.is_limited(each)]
    if searchers and limit > 0:
        searchers.sort(key=lambda group: (ranks[group.queue], group.order))
        checkpoint = cycle.budget.journal.checkpoint()
        _Searches(cycle, lending, reservations, candidates, Price(cycle, longest)).search(searchers, limit)
        cycle.budget.journal.roll_back(checkpoint)
    return result


def _starved_groups(cycle: Cycle) -> list[GroupInfo]:
    """Return the groups that lack capacity or a share, and have waited long enough for a reclaim.

    The queue sets the minimum wait. A group without a timestamp counts as having waited long enough. A group
    without missing members gets no reclaim.
    """
    starving_groups: list[GroupInfo] = []
    for key, decision in list(cycle.decisions.items()):
        is_waiting = decision.verdict is Verdict.WAITING and decision.reclaim is None
        if is_waiting and decision.reason in _STARVING_REASONS:
            group = cycle.snapshot.groups[key]
            with Guard(cycle, group):
                if not missing(group).members:
                    continue
                min_wait = cycle.snapshot.queues[group.queue].record.preemption.after
                ready_at = ready_since(group)
                if not (min_wait and ready_at) or cycle.is_due(cycle.snapshot.instant(ready_at) + min_wait):
                    starving_groups.append(group)
    return starving_groups


def _first_by_kind(cycle: Cycle, groups: Iterable[GroupInfo]) -> dict[object, GroupInfo]:
    """Return the first group of each kind.

    Groups of one kind are in the same queue with the same priority, and lack the same capacity for the same
    reason. A group that has already reclaimed capacity is a kind of its own, because its former victims do
    not become its victims again.
    """
    first_by_kind: dict[object, GroupInfo] = {}
    for group in groups:
        limits_key, reason = cycle.budget.running.class_key(group), cycle.decisions[group.key].reason
        needs = group.queue, group.priority, group.may_preempt, missing(group).signature, reason, limits_key
        kind = group.key if group.history.reclaim_times else (needs, refused_namespace(cycle, group))
        if kind not in first_by_kind or group.order < first_by_kind[kind].order:
            first_by_kind[kind] = group
    return first_by_kind


def turn_order(groups: Sequence[GroupInfo], step: int) -> tuple[list[GroupInfo], int]:
    """Return groups in the order of their next turns, and the number of steps until each has had a turn.

    The turns begin at `step`. All namespaces of all queues get the same number of turns. Therefore, a tenant
    with many kinds of groups delays only its own groups.
    """
    lanes: dict[tuple[str, str], list[GroupInfo]] = {}
    for group in groups:
        lanes.setdefault((group.queue, group.key.partition("/")[0]), []).append(group)
    turns: list[tuple[int, GroupInfo]] = []
    for index, lane in enumerate(lanes.values()):
        first_pass = -((index - step) // len(lanes))  # the first pass over all lanes in which it has a turn
        for position, group in enumerate(lane):
            turns.append(((first_pass + (position - first_pass) % len(lane)) * len(lanes) + index, group))
    turns.sort(key=itemgetter(0))
    return [group for _, group in turns], len(lanes) * max(map(len, lanes.values()))


def _longest_waiting(groups: Iterable[GroupInfo]) -> dict[object, GroupInfo]:
    """Return the longest waiting group for each need.

    Groups that may preempt come before all other groups.
    """
    longest_by_need: dict[object, GroupInfo] = {}
    for group in groups:
        longest = longest_by_need.setdefault(equal_need_key(group), group)
        if group.may_preempt and (not longest.may_preempt or ready_since(group) < ready_since(longest)):
            longest_by_need[equal_need_key(group)] = group
    return longest_by_need


class _Searches:
    """Searches for victims of one cycle. Each search sees the allocations of the earlier searches."""

    def __init__(
        self, cycle: Cycle, lending: Lending, reservations: Reservations, candidates: Candidates, price: Price
    ) -> None:
        self._cycle = cycle
        self._lending = lending
        self._reservations = reservations
        self._candidates = candidates
        self._price = price
        candidates.deadline = price.deadline
        self._failed_kinds: set[object] = set()  # kinds of groups without a result
        decisions, reclaims = cycle.decisions, cycle.reclaims.items()
        reserving_reclaims = [
            reclaim for key, reclaim in reclaims if key in decisions and decisions[key].reclaim is reclaim
        ]
        victims = (live_pod(cycle, victim) for reclaim in reserving_reclaims for victim in reclaim.victims)
        leaving_pods = (*departing_pods(cycle), *(pod for pod in victims if pod is not None))
        self._is_any_departing = any(pod.deleting for pod in leaving_pods)
        # Capacity, ceilings and shares as if terminating pods were gone, without promised capacity.
        self._base_planner = reservations.unreserved_capacity(only_promised=True)
        reservations.reserve_promised_headroom()
        lending.free_headroom()
        self._base_planner.free(leaving_pods)
        self._subtract_evicted(leaving_pods)

    def search(self, seeking_groups: Iterable[GroupInfo], open_count: int) -> None:
        """Search for victims for groups that need capacity, and begin the reclaims.

        Groups of one kind share a search. Each cycle searches for the first kinds. If there are too many
        kinds, the other kinds take turns in later cycles, until all of them have had a turn since the last
        change. A group without possible victims does not count as a search. The search considers current
        allocations only: a reclaim that also needs other groups to end would not continue.

        Args:
            seeking_groups: Groups that need capacity, in order.
            open_count: The number of reclaims that may begin.
        """
        searching_groups: list[GroupInfo] = []
        for group in seeking_groups:
            with Guard(self._cycle, group):
                causes = tuple(chain.from_iterable(_cause_sets(self._cycle, group, missing(group))))
                if self._candidates.may_exist_for(group, causes):
                    searching_groups.append(group)
        first_keys = {group.key for group in _first_by_kind(self._cycle, searching_groups).values()}
        firsts = [group for group in searching_groups if group.key in first_keys]  # the first of each kind
        steps = 0
        if len(firsts) > _MAX_FAILED_SEARCHES:  # each cycle tries the first kinds; the others take turns
            rotation, steps = turn_order(firsts[_TURN_COUNT:], int(self._cycle.snapshot.now) * _TURN_COUNT)
            searching_groups = [*firsts[:_TURN_COUNT], *rotation]
        for group in searching_groups:
            if open_count <= 0:
                return
            if len(self._failed_kinds) > _MAX_FAILED_SEARCHES:
                # Each second, other groups have a turn, until all have had a turn since the last change.
                now, times = int(self._cycle.snapshot.now), [self._price.check_times(each) for each in firsts]
                changed_at = int(max(self._cycle.snapshot.changed_at, *(each.last_at for each in times)))
                if (now - changed_at) * _TURN_COUNT < steps:
                    self._cycle.request_cycle_at(now + 1.0)
                elif (next_at := min(each.next_at for each in times)) < inf:
                    self._cycle.request_cycle_at(next_at)
                return
            with Guard(self._cycle, group):
                open_count -= self._try(group)

    def _try(self, group: GroupInfo) -> bool:
        """Search for victims of a group. Return whether a reclaim has begun for it."""
        cycle, need = self._cycle, missing(group)
        kind = equal_need_key(group), refused_namespace(cycle, group)
        if kind in self._failed_kinds:
            return False
        has_own_victims = True
        for causes in _cause_sets(cycle, group, need):
            may_cross = EvictionCause.RECLAIM in causes
            if may_cross and not has_own_victims:
                continue  # its own queue must lose capacity, too, so other queues alone do not help
            eviction_units = self._candidates.evictable_units(group, causes)
            must_move = EvictionCause.CONSOLIDATE in causes
            has_own_victims = bool(eviction_units) or must_move
            if not (eviction_units or (may_cross and self._is_any_departing)):
                continue
            if (found_victims := self._search(eviction_units, group, need, may_cross, must_move)) is None:
                continue
            if not (delay_text := self._price.why_not_yet(group, need, found_victims.picks)):
                self._begin(group, found_victims)
                return True
            cycle.record(replace(cycle.decisions[group.key], price=delay_text))
        self._failed_kinds.add(kind)
        if self._candidates.spared:
            cycle.record(replace(cycle.decisions[group.key], spared=self._candidates.spared))
        return False

    def _search(
        self,
        eviction_units: Sequence[EvictionUnit],
        group: GroupInfo,
        need: Missing,
        may_cross_queues: bool,
        must_move: bool,
    ) -> VictimChoice | None:
        """Try the assignments of flavors in order. Return the victims of the first success, or None.

        Args:
            eviction_units: The possible victims.
            group: The group that needs capacity.
            need: The members of the group that are to start.
            may_cross_queues: Whether victims may be in other queues.
            must_move: Whether each victim needs another node on which its replacement can start.
        """
        journal = self._cycle.budget.journal
        for assignment in self._cycle.budget.flavors.assignments(group, need):
            members = assignment.members
            planner = self._base_planner.clone()
            planner.unplace(need.members, self._lending.reserved_nodes(group))
            self._reservations.free_own_capacity(group, planner)
            free_amounts = planner.capacity.free_sum(members.shapes)  # in sum: fragments count as free
            scarce_resources = [name for name, n in members.requests.items() if n > free_amounts.get(name, 0)]
            if must_move and scarce_resources:
                continue
            arguments = (self._cycle, group, assignment, scarce_resources, may_cross_queues, self._price)
            checkpoint = journal.checkpoint()
            self._reservations.free_own_headroom(group)
            disruptions = self._candidates.disruptions
            if must_move:
                found_victims = find_units_with_homes(
                    self._cycle, planner, UnchangedShares(*arguments), eviction_units, disruptions, members
                )
            else:
                search = Search(planner, VictimShares(*arguments), eviction_units, disruptions.clone())
                found_victims = search.find(members)
            journal.roll_back(checkpoint)
            if found_victims is not None:
                return found_victims
        return None

    def _subtract_evicted(self, pods: Iterable[PodRecord]) -> None:
        """Subtract evicted pods from the allocations of their queues."""
        groups, budget = self._cycle.snapshot.groups, self._cycle.budget
        for pod in pods:
            if pod.group in groups:
                amounts = budget.flavors.requests([(pod, pod.node)], pod.shape.requests)
                budget.shares.add(groups[pod.group].queue, amounts, times=-1)

    def _begin(self, group: GroupInfo, found: VictimChoice) -> None:
        """Begin a reclaim: record its victims and plan, and count them for the next searches."""
        cycle, planner = self._cycle, self._base_planner
        pods = [pod for pick in found.picks for pod in pick.pods]
        losses = [(pick, self._price.lost_seconds(pick.eviction_unit.run)) for pick in found.picks]
        victims = tuple(
            victim for each, seconds in losses for victim in each.eviction_unit.victims(each.pods, seconds)
        )
        self._candidates.promised_pods.update(pod.uid for pod in pods)
        self._candidates.disruptions.count(pods)
        planner.free(pods)
        planner.unplace(missing(group).members, self._lending.reserved_nodes(group))
        planner.allocate((pod, found.plan[pod.uid]) for pod in missing(group).members)
        if found.homes:  # the replacements of moved pods need capacity, too
            planner.allocate((pod, found.homes[pod.uid]) for pod in pods)
        else:
            self._subtract_evicted(pods)
        planned_pods = ((pod, found.plan[pod.uid]) for pod in missing(group).members)
        requests = cycle.budget.flavors.requests(planned_pods, missing(group).requests)
        cycle.budget.shares.add(group.queue, requests)
        now, ends_at = cycle.snapshot.now, cycle.snapshot.now + cycle.limits.reclaim_deadline
        detail = _describe(cycle, victims, cycle.snapshot.timestamp(ends_at), must_move=bool(found.homes))
        min_seconds = self._price.break_even_seconds(missing(group), found.picks)
        for losing_queue in {victim.queue for victim in victims if victim.cause in LOSS_CAUSES}:
            loser = ReclaimKey(losing_queue, group.key.partition("/")[0])
            cycle.recent_reclaims(group.queue)[loser] = _reclaimed_record(cycle, group, loser, min_seconds)
        reclaim = Reclaim(victims, found.plan, now, ends_at, detail, found.homes)
        cycle.request_cycle_at(ends_at)
        cycle.has_begun_reclaim = True
        cycle.record(replace(waiting_decision(group, Reason.RECLAIMING, detail), reclaim=reclaim))
        _evict(cycle, group, reclaim)


def _describe(cycle: Cycle, victims: Sequence[ReclaimVictim], deadline: str, must_move: bool) -> str:
    """Return a text for users about the victims of a reclaim."""
    if not victims:
        return f"the capacity of terminating pods is reserved for it until {deadline}"
    groups = cycle.snapshot.groups
    pod_count_by_owner = Counter(
        groups[victim.group].display_name if victim.group else f"{victim.namespace}/{victim.name}"
        for victim in victims
    )
    names = [f"{name} ({count})" for name, count in sorted(pod_count_by_owner.items())]
    action = "move" if must_move else "evict"
    return f"pods to {action}: {len(victims)}, of {listed(names, _MAX_LISTED_NAMES)}; until {deadline}"


def _reclaimed_record(cycle: Cycle, group: GroupInfo, loser: ReclaimKey, min_seconds: float) -> Reclaimed:
    """Return the record of a reclaim: a group takes capacity from another queue.

    The record counts how often reclaims were in vain. The last reclaim was in vain in two cases:

    - The other queue has since reclaimed capacity from the group's queue, so the two queues evict each other
      in a loop. If the group was created after that, there is no loop: the queues lend to each other as their
      work comes and goes.
    - The group of an earlier reclaim waits again, or ended before it had run for its minimum time. Several
      such groups count as one reclaim in vain.
    """
    now, last = cycle.snapshot.timestamp(cycle.snapshot.now), cycle.recent_reclaims(group.queue).get(loser)
    record = QueueTaken(group.key, now, int(min_seconds))
    if last is None:
        return Reclaimed(group.key, now, unused=(record,))
    records = cycle.recent_reclaims(loser.queue).items()
    reclaimed_back_at = max((reclaim.at for key, reclaim in records if key.queue == group.queue), default="")
    was_reclaimed_back = reclaimed_back_at > last.at and group.created_at <= reclaimed_back_at
    unused_records = [unused_record for unused_record in last.unused if not _is_in_vain(cycle, unused_record)]
    in_vain_count = last.in_vain + (was_reclaimed_back or len(unused_records) < len(last.unused))
    return Reclaimed(group.key, now, in_vain_count, (*unused_records, record)[-_MAX_UNUSED_RECORDS:])


def _record_refused_eviction(cycle: Cycle, group: GroupInfo) -> None:
    """Record that a reclaim evicted no pod because an eviction was refused.

    Such a reclaim does not count as unused.
    """
    victims, records = cycle.reclaims[group.key].victims, cycle.recent_reclaims(group.queue)
    is_refused = any(victim.uid in cycle.snapshot.refused_evictions for victim in victims)
    if not is_refused or any(live_pod(cycle, victim) is None for victim in victims):
        return
    for losing_key, last_record in records.items():
        unused_records = tuple(entry for entry in last_record.unused if entry.group != group.key)
        records[losing_key] = replace(last_record, unused=unused_records)


def _is_in_vain(cycle: Cycle, taken_record: QueueTaken) -> bool:
    """Return whether a group has ended or waits again without having used its reclaimed capacity."""
    decision = cycle.current_decision(GroupKey(taken_record.group))
    is_waiting = decision is None or (decision.verdict is Verdict.WAITING and decision.reclaim is None)
    return is_waiting or cycle.find_receiver(taken_record) is None


def _cause_sets(cycle: Cycle, group: GroupInfo, need: Missing) -> Iterator[Sequence[EvictionCause]]:
    """Yield sets of causes of evictions, in the order in which they are tried.

    If free capacity is fragmented, movable groups move first. Other queues lose capacity only up to the
    deserved share of the group's queue. Beyond that share, groups of the group's own queue are evicted. If
    they do not suffice, and the queue falls below its share without them, other queues lose capacity as well.
    If the queue may borrow by eviction, it evicts groups of other queues last. At a ceiling, only groups that
    count towards the ceiling are evicted.
    """
    shares, requests = cycle.budget.shares, cycle.budget.flavors.requests_by_assignment(group)
    if all(shares.is_above_share(group.queue, assigned_requests) for assigned_requests in requests):
        yield (EvictionCause.PREEMPT,)
        yield _CAUSES_WITHIN_SHARE
        if cycle.snapshot.queues[group.queue].record.preemption.borrows_up_to > -inf:
            yield _CAUSES_ABOVE_SHARE
    else:
        reason = cycle.decisions[group.key].reason
        has_flavors = bool(cycle.budget.flavors.flavors_of(group.queue))
        is_fragmented = reason in (Reason.FRAGMENTED, Reason.NO_DOMAIN)
        if is_fragmented or (has_flavors and reason in CAPACITY_REASONS):  # one flavor may be fragmented
            yield (EvictionCause.CONSOLIDATE,)
        is_full = reason is Reason.QUEUE_CEILING
        yield _CAUSES_WITHIN_SHARE if is_full else (*_CAUSES_WITHIN_SHARE, EvictionCause.UNMANAGED)
