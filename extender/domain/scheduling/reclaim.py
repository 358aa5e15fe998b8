"""Reclaim: evictions for starved groups, and the reservation of the freed capacity until these groups start.

A reclaim begins at the end of a cycle. It is for a group that lacks capacity or its queue's share, and that
is certain to fit on real nodes as a whole once the victims are evicted. From then on, the victims are
evicted, and capacity that becomes free is reserved for the group.

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
from extender.domain.placement.victim_search import Found, Search
from extender.domain.queues.records import Reclaimed, ReclaimKey
from extender.domain.scheduling.backoff import fail
from extender.domain.scheduling.consolidation import UnchangedShares, are_homes_usable, find_with_homes
from extender.domain.scheduling.cycle import Cycle, Guard
from extender.domain.scheduling.flavors import on_nodes_of
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
    slow_deletes,
    would_be_split,
)
from extender.domain.snapshot.decisions import GroupDecision
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.wholeness import Missing, missing, ready_since

_STARVES = frozenset({*CAPACITY_REASONS, Reason.QUEUE_SHARE, Reason.QUEUE_CEILING})
_SEARCHES = 8  # number of searches without a result in one cycle
_IN_ROTATION = _SEARCHES // 2  # number of searches for groups that take turns
_MAX_NAMES = 3
_MAX_UNUSED = 64  # recorded groups of a namespace that have not used their capacity yet
_WITHIN_SHARE = (EvictionCause.RECLAIM, EvictionCause.PREEMPT)
_ABOVE_SHARE = (EvictionCause.BORROW, EvictionCause.PREEMPT)
_WHY = {
    EvictionCause.RECLAIM: "queue {queue} reclaims its deserved share, for group {group}",
    EvictionCause.PREEMPT: "group {group} of queue {queue} has a higher priority",
    EvictionCause.BORROW: "group {group} of queue {queue} has a higher priority, and borrows",
    EvictionCause.CONSOLIDATE: "it moves so that group {group} of queue {queue} fits, because free "
    "capacity is fragmented; capacity for its replacement is reserved on {home}",
    EvictionCause.UNMANAGED: "group {group} has a higher priority",
}

_SLOW = "it is being deleted, and others wait for its capacity"


def reserve_reclaimed(cycle: Cycle, waiting: Iterable[GroupInfo]) -> list[GroupInfo]:
    """Reserve the capacity that is being reclaimed, and start the groups for which all of it is free.

    Return the groups that are still to be evaluated.
    """
    groups, budget = list(waiting), cycle.budget
    reserved: list[GroupInfo] = []
    for group in groups:
        if group.key in cycle.reclaims:
            with Guard(cycle, group):
                if _may_continue(cycle, group, missing(group)):
                    budget.reserve(group, cycle.reclaims[group.key].plan)
                    reserved.append(group)
                else:
                    _record_refused(cycle, group)
    for group in sorted(reserved, key=lambda group: (cycle.reclaims[group.key].since, group.order)):
        with Guard(cycle, group):
            cycle.record(_continue_reclaim(cycle, group))
        if cycle.is_broken(group):
            budget.free_plan(group, cycle.reclaims[group.key].plan)
    return [group for group in groups if group.key not in cycle.decided]


def _may_continue(cycle: Cycle, group: GroupInfo, wanted: Missing) -> bool:
    """Return whether a reclaim continues: it is still justified, or has already broken a gang.

    It is justified under these conditions:

    - The group has the same missing members, and its planned nodes admit them.
    - No victim is protected, and no victim gang would be split.
    - The group's queue stays within its share, if other queues lose capacity.
    """
    reclaim, nodes, spared = cycle.reclaims[group.key], cycle.snapshot.nodes, cycle.snapshot.refused_evictions
    if reclaim.plan.keys() != {pod.uid for pod in wanted.members} or not group.preempts:
        return False
    for pod in wanted.members:
        row = nodes.row_of.get(reclaim.plan[pod.uid])
        if row is None or not nodes.suitable_rows(pod.shape)[row]:
            return False
    if any(would_be_split(cycle, key) for key in {victim.group for victim in reclaim.victims}):
        return False
    if has_broken_gang(cycle, reclaim):
        return True  # the remaining members of a broken gang are evicted, too
    if any(victim.uid in spared for victim in reclaim.victims) or not are_homes_usable(cycle, reclaim):
        return False
    if all(victim.cause in _ABOVE_SHARE for victim in reclaim.victims):
        return True
    # Other queues lose capacity, so the group's queue, without terminating pods, must stay within its share.
    shares, queue = cycle.budget.shares, group.queue
    departing: list[PlannedPod] = []
    for other in cycle.snapshot.groups.values():
        if other.queue == queue:
            on_nodes = (pod for pod in other.placed if pod.holds_capacity)
            victims = (pod for pod in on_nodes if pod.uid in cycle.being_reclaimed)
            departing += ((pod, pod.node) for pod in (*other.departing_pods, *victims))
    leaving = cycle.budget.flavors.requests(departing)
    shares.add(queue, leaving, times=-1)
    is_above = shares.is_above_share(queue, _requested(cycle, group, reclaim))
    shares.add(queue, leaving)
    return not is_above


def _requested(cycle: Cycle, group: GroupInfo, reclaim: Reclaim) -> Resources:
    """Return the requests of members on their planned nodes, with amounts of flavors if the queue has any."""
    wanted = missing(group)
    if not cycle.budget.flavors.flavors_of(group.queue):
        return wanted.requests
    planned_pods = ((pod, reclaim.plan[pod.uid]) for pod in wanted.members)
    return cycle.budget.flavors.requests(planned_pods, wanted.requests)


def _continue_reclaim(cycle: Cycle, group: GroupInfo) -> GroupDecision:
    """Start a group on the capacity that its reclaim freed.

    Otherwise, wait for the capacity and evict more victims. The reclaim fails at its deadline, or if no
    victims remain and the group does not fit.
    """
    reclaim, budget, wanted = cycle.reclaims[group.key], cycle.budget, missing(group)
    budget.free_plan(group, reclaim.plan)
    reason = Reason.RECLAIMING
    if budget.window.has_places_for(group, len(wanted.members)):
        # Evictions end when the group starts, so a victim gang must not be evicted in part by then.
        may_start = not has_broken_gang(cycle, reclaim) or cycle.is_due(reclaim.until)
        if may_start and (plan := _place(cycle, group, reclaim)) is not None:
            return GroupDecision(group.key, group.queue, Verdict.STARTING, plan=plan)
        if cycle.is_due(reclaim.until):
            return fail(cycle, group, f"the capacity did not become free in time: {reclaim.detail}")
        victims = (victim for other in cycle.reclaims.values() for victim in other.victims)
        if not (any(live_pod(cycle, victim) for victim in victims) or any(departing_pods(cycle))):
            why = "the victims are gone, and the group does not fit"
            return fail(cycle, group, f"{why}: {reclaim.detail}")
    elif not has_broken_gang(cycle, reclaim):
        reason = Reason.WINDOW_FULL
        budget.window.waiting_queues.add(group.queue)
    budget.reserve(group, reclaim.plan)
    _evict(cycle, group, reclaim)
    return replace(waiting_decision(group, reason, reclaim.detail), reclaim=reclaim)


def _place(cycle: Cycle, group: GroupInfo, reclaim: Reclaim) -> dict[Uid, str] | None:
    """Return the planned nodes. If these are not free, return other nodes if all members fit there.

    None means that the group cannot start yet.
    """
    budget, wanted = cycle.budget, missing(group)
    requests = _requested(cycle, group, reclaim)
    excess = budget.running.excess(group, len(wanted.members))
    if budget.shares.above_ceiling(group.queue, requests) or excess is not None:
        return None  # the group's queue must lose capacity first
    planned: list[tuple[PodRecord, str]] = []
    for pod in wanted.members:  # each pod may only use nodes of its planned flavor
        node = reclaim.plan[pod.uid]
        flavor = budget.flavors.flavor_on(group.queue, node)
        planned.append((on_nodes_of(flavor, [pod])[0] if flavor is not None else pod, node))
    checkpoint = budget.journal.checkpoint()
    plan = budget.planner.allocate_on_nodes(planned)
    if len(plan) == len(planned):
        budget.count(group, plan)
        return plan
    budget.journal.roll_back(checkpoint)
    return None if budget.flavors.flavors_of(group.queue) else budget.place(group, wanted.members)


def _evict(cycle: Cycle, group: GroupInfo, reclaim: Reclaim) -> None:
    """Evict the victims that still exist and are not terminating."""
    for victim in reclaim.victims:
        if live_pod(cycle, victim) is not None:
            home = reclaim.homes.get(victim.uid)
            why = _WHY[victim.cause].format(group=group.display_name, queue=group.queue, home=home)
            cycle.evictions[victim.uid] = Eviction(victim, why)


class Starving(NamedTuple):
    """Groups that look for victims.

    If the first group of a kind finds none, the other groups of the kind do not search.
    """

    first: Mapping[object, GroupInfo]  # first and longest waiting group of each kind with victims
    idle: Mapping[tuple[str, int], GroupInfo]  # groups without possible victims
    may_find: Callable[[GroupInfo, tuple[EvictionCause, ...]], bool]  # returns whether possible victims run


NONE_STARVES = Starving({}, {}, lambda *_: False)


def begin_reclaims(cycle: Cycle, lending: Lending, reservations: Reservations) -> Starving:
    """Find victims for starved groups, in a bounded number of searches.

    Groups are ordered by the priority and the share of their queue, then by their order in the queue.
    """
    to_begin, candidates = cycle.limits.max_reclaims - len(cycle.reclaims), Candidates(cycle)
    starving = _starved_groups(cycle)
    if starving or cycle.reclaims:
        cycle.evictions |= {each.uid: Eviction(each, _SLOW, is_slow=True) for each in slow_deletes(cycle)}
    idle = {(group.queue, group.priority): group for group in starving if not candidates.may_exist_for(group)}
    may_find = [group for group in starving if (group.queue, group.priority) not in idle]
    longest = _longest_waiting(may_find)
    first = _first_of_kinds(cycle, may_find)
    first |= {(each, "longest"): group for each, group in longest.items()}
    found = Starving(first, idle, candidates.may_exist_for)
    shares, queues = cycle.budget.shares, cycle.snapshot.queues
    ranks = {
        queue: (-queues[queue].record.priority, shares.relative_share(shares.tree.node[queue]), queue)
        for queue in {group.queue for group in may_find}
    }
    searching = [group for group in may_find if group.preempts and not reservations.is_limited(group)]
    if searching and to_begin > 0:
        searching.sort(key=lambda group: (ranks[group.queue], group.order))
        checkpoint = cycle.budget.journal.checkpoint()
        _Searches(cycle, lending, reservations, candidates, Price(cycle, longest)).search(searching, to_begin)
        cycle.budget.journal.roll_back(checkpoint)
    return found


def _starved_groups(cycle: Cycle) -> list[GroupInfo]:
    """Return the groups that lack capacity or a share, and have waited long enough for a reclaim.

    The queue sets the minimum wait. A group without a timestamp has waited long enough. A group that needs
    none of its missing members to start gets no reclaim.
    """
    starving: list[GroupInfo] = []
    for key, decision in list(cycle.decided.items()):
        if decision.verdict is Verdict.WAITING and decision.reason in _STARVES and decision.reclaim is None:
            group = cycle.snapshot.groups[key]
            with Guard(cycle, group):
                if not missing(group).members:
                    continue
                after = cycle.snapshot.queues[group.queue].record.preemption.after
                since = ready_since(group)
                if not (after and since) or cycle.is_due(cycle.snapshot.instant(since) + after):
                    starving.append(group)
    return starving


def _first_of_kinds(cycle: Cycle, groups: Iterable[GroupInfo]) -> dict[object, GroupInfo]:
    """Return the first group of each kind.

    Groups of one kind are in the same queue with the same priority, and lack the same capacity for the same
    reason. A group that has taken capacity from other groups is a kind of its own, since these groups are not
    its victims again.
    """
    first: dict[object, GroupInfo] = {}
    for group in groups:
        limits, reason = cycle.budget.running.class_key(group), cycle.decided[group.key].reason
        needs = group.queue, group.priority, group.preempts, missing(group).signature, reason, limits
        kind = group.key if group.history.reclaim_times else (needs, refused_namespace(cycle, group))
        if kind not in first or group.order < first[kind].order:
            first[kind] = group
    return first


def turn_order(groups: Sequence[GroupInfo], step: int) -> tuple[list[GroupInfo], int]:
    """Return groups in the order of their next turns from `step` on, and how many steps all turns take.

    Each namespace of a queue has the same number of turns. So a tenant with many kinds of groups delays only
    its own groups.
    """
    lanes: dict[tuple[str, str], list[GroupInfo]] = {}
    for group in groups:
        lanes.setdefault((group.queue, group.key.partition("/")[0]), []).append(group)
    turns: list[tuple[int, GroupInfo]] = []
    for number, lane in enumerate(lanes.values()):
        first_pass = -((number - step) // len(lanes))  # the first pass over all lanes in which it has a turn
        for position, group in enumerate(lane):
            turns.append(((first_pass + (position - first_pass) % len(lane)) * len(lanes) + number, group))
    turns.sort(key=itemgetter(0))
    return [group for _, group in turns], len(lanes) * max(map(len, lanes.values()))


def _longest_waiting(groups: Iterable[GroupInfo]) -> dict[object, GroupInfo]:
    """Return for each need the group that has waited the longest."""
    longest: dict[object, GroupInfo] = {}
    for group in groups:
        earlier = longest.setdefault(equal_need_key(group), group)
        if group.preempts and (not earlier.preempts or ready_since(group) < ready_since(earlier)):
            longest[equal_need_key(group)] = group
    return longest


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
        candidates.latest = price.latest
        self._failed_kinds: set[object] = set()  # kinds of groups without a result
        decided, reclaims = cycle.decided, cycle.reclaims.items()
        reserved = [
            reclaim for key, reclaim in reclaims if key in decided and decided[key].reclaim is reclaim
        ]
        victims = (live_pod(cycle, victim) for reclaim in reserved for victim in reclaim.victims)
        leaving = (*departing_pods(cycle), *(pod for pod in victims if pod is not None))
        self._is_any_departing = any(pod.deleting for pod in leaving)
        # Capacity, ceilings and shares as if terminating pods were gone, without promised capacity.
        self._base = reservations.unreserved_capacity(only_promised=True)
        reservations.reserve_promised_headroom()
        lending.free_headroom()
        self._base.free(leaving)
        self._subtract_evicted(leaving)

    def search(self, seeking: Iterable[GroupInfo], to_begin: int) -> None:
        """Search for victims for groups that need capacity, and begin the reclaims.

        Groups of one kind share a search. If there are too many kinds, each cycle searches for the first
        kinds, and for some of the other kinds in turn, until all kinds have had a turn since the last change.
        A group without possible victims does not use up a search. Only current allocations count: a reclaim
        that depends on the ends of other groups would not continue.

        Args:
            seeking: Groups that need capacity, in order.
            to_begin: The number of reclaims that may begin.
        """
        starving: list[GroupInfo] = []
        for group in seeking:
            with Guard(self._cycle, group):
                causes = tuple(chain.from_iterable(_cause_sets(self._cycle, group, missing(group))))
                if self._candidates.may_exist_for(group, causes):
                    starving.append(group)
        first = {group.key for group in _first_of_kinds(self._cycle, starving).values()}
        kinds = [group for group in starving if group.key in first]  # the first group of each kind
        n_steps = 0
        if len(kinds) > _SEARCHES:  # each cycle tries the first kinds; the others take turns
            others, n_steps = turn_order(kinds[_IN_ROTATION:], int(self._cycle.snapshot.now) * _IN_ROTATION)
            starving = [*kinds[:_IN_ROTATION], *others]
        for group in starving:
            if to_begin <= 0:
                return
            if len(self._failed_kinds) > _SEARCHES:
                # Each second, other groups have a turn, until all have had a turn since the last change.
                now, times = int(self._cycle.snapshot.now), [self._price.check_times(each) for each in kinds]
                changed_at = int(max(self._cycle.snapshot.changed_at, *(each.last_at for each in times)))
                if (now - changed_at) * _IN_ROTATION < n_steps:
                    self._cycle.request_cycle_at(now + 1.0)
                elif (next_at := min(each.next_at for each in times)) < inf:
                    self._cycle.request_cycle_at(next_at)
                return
            with Guard(self._cycle, group):
                to_begin -= self._try(group)

    def _try(self, group: GroupInfo) -> bool:
        """Search for victims of a group. Return whether a reclaim has begun for it."""
        cycle, wanted = self._cycle, missing(group)
        kind = equal_need_key(group), refused_namespace(cycle, group)
        if kind in self._failed_kinds:
            return False
        own_queue_gives = True
        for causes in _cause_sets(cycle, group, wanted):
            from_others = EvictionCause.RECLAIM in causes
            if from_others and not own_queue_gives:
                continue  # its own queue must lose capacity, too, so other queues alone do not help
            eviction_units = self._candidates.units_for(group, causes)
            moves = EvictionCause.CONSOLIDATE in causes
            own_queue_gives = bool(eviction_units) or moves
            if not (eviction_units or (from_others and self._is_any_departing)):
                continue
            if (found := self._search(eviction_units, group, wanted, from_others, moves)) is None:
                continue
            if not (text := self._price.why_not_yet(group, wanted, found.picks)):
                self._begin(group, found)
                return True
            cycle.record(replace(cycle.decided[group.key], price=text))
        self._failed_kinds.add(kind)
        if self._candidates.spared:
            cycle.record(replace(cycle.decided[group.key], spared=self._candidates.spared))
        return False

    def _search(
        self,
        eviction_units: Sequence[EvictionUnit],
        group: GroupInfo,
        wanted: Missing,
        from_others: bool,
        moves: bool,
    ) -> Found | None:
        """Return victims for the first assignment of flavors that suffices; None if there is none.

        Args:
            eviction_units: The possible victims.
            group: The group that needs capacity.
            wanted: The members of the group that are to start.
            from_others: Whether victims may be in other queues.
            moves: Whether victims must have other nodes to restart on.
        """
        journal = self._cycle.budget.journal
        for assignment in self._cycle.budget.flavors.assignments(group, wanted):
            bound = assignment.wanted
            planner = self._base.clone()
            planner.unplace(wanted.members, self._lending.reserved_for(group))
            self._reservations.free_own_capacity(group, planner)
            available = planner.capacity.sum_for(bound.shapes)  # fragmented resources do not count as scarce
            scarce = [name for name, n in bound.requests.items() if n > available.get(name, 0)]
            if moves and scarce:
                continue
            arguments = (self._cycle, group, assignment, scarce, from_others, self._price)
            checkpoint = journal.checkpoint()
            self._reservations.free_own_headroom(group)
            disruptions = self._candidates.disruptions
            if moves:
                found = find_with_homes(
                    self._cycle, planner, UnchangedShares(*arguments), eviction_units, disruptions, bound
                )
            else:
                search = Search(planner, VictimShares(*arguments), eviction_units, disruptions.clone())
                found = search.find(bound)
            journal.roll_back(checkpoint)
            if found is not None:
                return found
        return None

    def _subtract_evicted(self, pods: Iterable[PodRecord]) -> None:
        """Subtract evicted pods from the allocations of their queues."""
        groups, budget = self._cycle.snapshot.groups, self._cycle.budget
        for pod in pods:
            if pod.group in groups:
                amounts = budget.flavors.requests([(pod, pod.node)], pod.shape.requests)
                budget.shares.add(groups[pod.group].queue, amounts, times=-1)

    def _begin(self, group: GroupInfo, found: Found) -> None:
        """Begin a reclaim: record its victims and plan, and count them for the next searches."""
        cycle, base = self._cycle, self._base
        pods = [pod for pick in found.picks for pod in pick.pods]
        losses = [(pick, self._price.seconds(pick.eviction_unit.run)) for pick in found.picks]
        victims = tuple(
            victim for each, seconds in losses for victim in each.eviction_unit.victims(each.pods, seconds)
        )
        self._candidates.promised_pods.update(pod.uid for pod in pods)
        self._candidates.disruptions.count(pods)
        base.free(pods)
        base.unplace(missing(group).members, self._lending.reserved_for(group))
        base.allocate((pod, found.plan[pod.uid]) for pod in missing(group).members)
        if found.homes:  # moved pods come back
            base.allocate((pod, found.homes[pod.uid]) for pod in pods)
        else:
            self._subtract_evicted(pods)
        planned_pods = ((pod, found.plan[pod.uid]) for pod in missing(group).members)
        requests = cycle.budget.flavors.requests(planned_pods, missing(group).requests)
        cycle.budget.shares.add(group.queue, requests)
        since, until = cycle.snapshot.now, cycle.snapshot.now + cycle.limits.reclaim_deadline
        detail = _describe(cycle, victims, cycle.snapshot.timestamp(until), moves=bool(found.homes))
        min_seconds = self._price.break_even_seconds(missing(group), found.picks)
        for other in {victim.queue for victim in victims if victim.cause in LOSS_CAUSES}:
            losing = ReclaimKey(other, group.key.partition("/")[0])
            cycle.reclaimed_by(group.queue)[losing] = _reclaimed_record(cycle, group, losing, min_seconds)
        reclaim = Reclaim(victims, found.plan, since, until, detail, found.homes)
        cycle.is_due(until)
        cycle.has_begun_reclaim = True
        cycle.record(replace(waiting_decision(group, Reason.RECLAIMING, detail), reclaim=reclaim))
        _evict(cycle, group, reclaim)


def _describe(cycle: Cycle, victims: Sequence[ReclaimVictim], deadline: str, moves: bool) -> str:
    """Return a text for users about the victims of a reclaim."""
    if not victims:
        return f"the capacity of terminating pods is reserved for it until {deadline}"
    groups = cycle.snapshot.groups
    owners = Counter(
        groups[victim.group].display_name if victim.group else f"{victim.namespace}/{victim.name}"
        for victim in victims
    )
    names = [f"{name} ({count})" for name, count in sorted(owners.items())]
    action = "move" if moves else "evict"
    return f"pods to {action}: {len(victims)}, of {listed(names, _MAX_NAMES)}; until {deadline}"


def _reclaimed_record(cycle: Cycle, group: GroupInfo, losing: ReclaimKey, min_seconds: float) -> Reclaimed:
    """Return the record that a group takes capacity from another queue.

    The record counts how often reclaims were in vain. The last reclaim was in vain in two cases:

    - The other queue has reclaimed capacity since then, which is a loop. This does not count if the group was
      created after that: then the queues only lend to each other as their work comes and goes.
    - The group of the last reclaim waits again, or ended before it had run for its minimum time. Several such
      groups count once.
    """
    now, last = cycle.snapshot.timestamp(cycle.snapshot.now), cycle.reclaimed_by(group.queue).get(losing)
    record = QueueTaken(group.key, now, int(min_seconds))
    if last is None:
        return Reclaimed(group.key, now, unused=(record,))
    others = cycle.reclaimed_by(losing.queue).items()
    reclaimed_back_at = max((reclaim.at for pick, reclaim in others if pick.queue == group.queue), default="")
    went_back = reclaimed_back_at > last.at and group.created_at <= reclaimed_back_at
    unused = [each for each in last.unused if not _is_in_vain(cycle, each)]
    in_vain = last.in_vain + (went_back or len(unused) < len(last.unused))
    return Reclaimed(group.key, now, in_vain, (*unused, record)[-_MAX_UNUSED:])


def _record_refused(cycle: Cycle, group: GroupInfo) -> None:
    """Record that a reclaim evicted no pod because an eviction was refused.

    Such a reclaim does not count as unused.
    """
    victims, reclaimed = cycle.reclaims[group.key].victims, cycle.reclaimed_by(group.queue)
    is_refused = any(victim.uid in cycle.snapshot.refused_evictions for victim in victims)
    if not is_refused or any(live_pod(cycle, victim) is None for victim in victims):
        return
    for losing, last in reclaimed.items():
        unused = tuple(each for each in last.unused if each.group != group.key)
        reclaimed[losing] = replace(last, unused=unused)


def _is_in_vain(cycle: Cycle, taken: QueueTaken) -> bool:
    """Return whether a group has ended or waits again without having used its reclaimed capacity."""
    decision = cycle.decision_on(GroupKey(taken.group))
    waits = decision is None or (decision.verdict is Verdict.WAITING and decision.reclaim is None)
    return waits or cycle.find_receiver(taken) is None


def _cause_sets(cycle: Cycle, group: GroupInfo, wanted: Missing) -> Iterator[Sequence[EvictionCause]]:
    """Yield sets of causes of evictions, in the order in which they are tried.

    If free capacity is fragmented, movable groups move first. Other queues lose capacity only up to the
    deserved share of the group's queue. Beyond that share, groups of the same queue are evicted. If this
    brings the queue below its share, other queues lose capacity as well. Queues that may borrow by evicting
    come last. At a ceiling, only groups that count towards it are evicted.
    """
    shares, requests = cycle.budget.shares, cycle.budget.flavors.requests_by_assignment(group)
    if all(shares.is_above_share(group.queue, each) for each in requests):
        yield (EvictionCause.PREEMPT,)
        yield _WITHIN_SHARE
        if cycle.snapshot.queues[group.queue].record.preemption.borrows_up_to > -inf:
            yield _ABOVE_SHARE
    else:
        reason = cycle.decided[group.key].reason
        has_flavors = bool(cycle.budget.flavors.flavors_of(group.queue))
        is_fragmented = reason in (Reason.FRAGMENTED, Reason.NO_DOMAIN)
        if is_fragmented or (has_flavors and reason in CAPACITY_REASONS):  # one flavor may be fragmented
            yield (EvictionCause.CONSOLIDATE,)
        is_full = reason is Reason.QUEUE_CEILING
        yield _WITHIN_SHARE if is_full else (*_WITHIN_SHARE, EvictionCause.UNMANAGED)
