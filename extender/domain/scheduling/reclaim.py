"""Reclaim: room is taken back for groups that starve, and held for them until they start.

A reclaim is begun at the end of a round for whole groups that wait for room, or for their queue's share, once
it is sure that the whole group will fit on real nodes with its victims gone. From then on the room is held
for the group, also what becomes free bit by bit, and the victims are evicted. It ends when the group starts,
when it needs no room any more, or when nobody is left to make way or the time is up: these count as a failed
start."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import inf
from operator import itemgetter
from typing import NamedTuple

from msgspec.structs import replace

from extender.api.objects.queues import QueueTaken
from extender.api.units import listed
from extender.domain.model.evictions import FROM_OTHERS, Eviction, EvictionCause, Reclaim
from extender.domain.model.reasons import LACKS_ROOM, Reason, Verdict
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.resources import Resources
from extender.domain.placement.planner import PlannedPod
from extender.domain.placement.units import Unit
from extender.domain.placement.victim_search import Found, Search
from extender.domain.queues.records import LosingTo, Reclaimed
from extender.domain.scheduling.consolidation import NothingLost, find_with_homes, have_homes
from extender.domain.scheduling.flavors import on_nodes_of
from extender.domain.scheduling.lending import Lending, VictimShares
from extender.domain.scheduling.obstacles import fail, waits
from extender.domain.scheduling.price import Price, alike
from extender.domain.scheduling.reservation import Reservations
from extender.domain.scheduling.round import Guard, Round
from extender.domain.scheduling.victims import (
    Candidates,
    departing,
    is_any_in_part,
    left,
    lingering,
    resting,
    would_be_split,
)
from extender.domain.snapshot.decisions import GroupDecision
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.wholeness import Missing, missing, ready_since

_STARVES = frozenset({*LACKS_ROOM, Reason.QUEUE_SHARE, Reason.QUEUE_CEILING})
_SEARCHES = 8  # in vain, in one round
_IN_TURN = _SEARCHES // 2  # of them are others in each second
_MOST_NAMES = 3
_MOST_UNUSED = 64  # groups of one namespace of which it is not known yet whether they use what they took
_AT_A_CEILING = (EvictionCause.RECLAIM, EvictionCause.PREEMPT)
_BEYOND_A_SHARE = (EvictionCause.BORROW, EvictionCause.PREEMPT)
_WHY = {
    EvictionCause.RECLAIM: "queue {queue} takes back what it deserves, for group {group}",
    EvictionCause.PREEMPT: "group {group} of queue {queue} has a higher priority",
    EvictionCause.BORROW: "group {group} of queue {queue} has a higher priority, and borrows",
    EvictionCause.CONSOLIDATE: "it moves so that group {group} of queue {queue} fits, for which free room "
    "only lies in pieces; room for what replaces it is kept on {home}",
    EvictionCause.UNMANAGED: "group {group} has a higher priority",
}

_LINGERS = "it is being deleted, and others wait for its room"

# ---- going on


def keep(round_: Round, waiting: Iterable[GroupView]) -> list[GroupView]:
    """Hold the capacity that is being reclaimed, and start the groups that have it by now.

    Return the others, which are still to be evaluated.
    """
    groups, budget = list(waiting), round_.budget
    kept: list[GroupView] = []
    for group in groups:
        if group.key in round_.reclaims:
            with Guard(round_, group):
                if _is_still_right(round_, group, missing(group)):
                    budget.hold(group, round_.reclaims[group.key].plan)
                    kept.append(group)
                else:
                    _note_refused(round_, group)
    for group in sorted(kept, key=lambda group: (round_.reclaims[group.key].since, group.order)):
        with Guard(round_, group):
            round_.settle(_go_on(round_, group))
        if round_.is_broken(group):
            budget.let_go(group, round_.reclaims[group.key].plan)
    return [group for group in groups if group.key not in round_.decided]


def _is_still_right(round_: Round, group: GroupView, wanted: Missing) -> bool:
    """Return whether the reclaim would be decided again.

    It would for these members, on nodes that admit them, within the queue's share, and without a
    protected victim, unless the rest of its gang has gone.
    """
    reclaim, nodes, spared = round_.reclaims[group.key], round_.snapshot.nodes, round_.snapshot.spared
    if reclaim.plan.keys() != {pod.uid for pod in wanted.members} or not group.preempts:
        return False
    for pod in wanted.members:
        row = nodes.row.get(reclaim.plan[pod.uid])
        if row is None or not nodes.suitable(pod.shape)[row]:
            return False
    is_refused = any(victim.uid in spared for victim in reclaim.victims)
    if (is_refused or not have_homes(round_, reclaim)) and not is_any_in_part(round_, reclaim):
        return False
    if any(would_be_split(round_, key) for key in {victim.group for victim in reclaim.victims}):
        return False
    if all(victim.cause in _BEYOND_A_SHARE for victim in reclaim.victims):
        return True
    # Others lose room for it: its queue stays within its share, once all that is leaving it is gone.
    shares, queue = round_.budget.shares, group.queue
    going: list[PlannedPod] = []
    for other in round_.snapshot.groups.values():
        if other.queue == queue:
            promised = (pod for pod in other.placed if pod.uid in round_.promised and pod.holds_room)
            going += ((pod, pod.node) for pod in (*other.departing, *promised))
    leaving = round_.budget.flavors.requests(going)
    shares.take(queue, leaving, -1)
    is_above = shares.is_above_share(queue, _asked(round_, group, reclaim))
    shares.take(queue, leaving)
    return not is_above


def _asked(round_: Round, group: GroupView, reclaim: Reclaim) -> Resources:
    """Return what members ask for on the decided nodes, of flavors, too, if their queue has any.

    Other queues may hold any amount of a flavor.
    """
    wanted = missing(group)
    if not round_.budget.flavors.of(group.queue):
        return wanted.requests
    places = ((pod, reclaim.plan[pod.uid]) for pod in wanted.members)
    return round_.budget.flavors.requests(places, wanted.requests)


def _go_on(round_: Round, group: GroupView) -> GroupDecision:
    reclaim, budget, wanted = round_.reclaims[group.key], round_.budget, missing(group)
    budget.let_go(group, reclaim.plan)
    reason = Reason.RECLAIMING
    if budget.window.has_places_for(group, len(wanted.members)):
        # Once a group starts, nobody is evicted for it any more: so no gang may be in part.
        may_start = not is_any_in_part(round_, reclaim) or round_.is_due(reclaim.until)
        if may_start and (plan := _place(round_, group, reclaim)) is not None:
            return GroupDecision(group.key, group.queue, Verdict.STARTING, plan=plan)
        if round_.is_due(reclaim.until):
            return fail(round_, group, f"the room did not become free in time: {reclaim.detail}")
        victims = (victim for other in round_.reclaims.values() for victim in other.victims)
        if not (any(left(round_, victim) for victim in victims) or any(departing(round_))):
            why = "whoever was to leave has gone, and it does not fit"
            return fail(round_, group, f"{why}: {reclaim.detail}")
    elif not is_any_in_part(round_, reclaim):
        reason = Reason.WINDOW_FULL
        budget.window.held_up.add(group.queue)
    budget.hold(group, reclaim.plan)
    _evict(round_, group, reclaim)
    return replace(waits(group, reason, reclaim.detail), reclaim=reclaim)


def _place(round_: Round, group: GroupView, reclaim: Reclaim) -> dict[Uid, str] | None:
    """Return the decided nodes or, where all members fit elsewhere by now, others."""
    budget, wanted = round_.budget, missing(group)
    asked = _asked(round_, group, reclaim)
    excess = budget.running.excess(group, len(wanted.members))
    if budget.shares.above_ceiling(group.queue, asked) or excess is not None:
        return None  # its own queue has to give way first
    planned: list[tuple[PodRecord, str]] = []
    for pod in wanted.members:  # each as it was planned: bound to the nodes of its flavor
        node = reclaim.plan[pod.uid]
        flavor = budget.flavors.on(group.queue, node)
        planned.append((on_nodes_of(flavor, [pod])[0] if flavor is not None else pod, node))
    mark = budget.journal.mark()
    plan = budget.planner.take_nodes(planned)
    if len(plan) == len(planned):
        budget.count(group, plan)
        return plan
    budget.journal.roll_back(mark)
    return None if budget.flavors.of(group.queue) else budget.place(group, wanted.members)


def _evict(round_: Round, group: GroupView, reclaim: Reclaim) -> None:
    """Evict the victims that still exist and do not terminate."""
    for victim in reclaim.victims:
        if left(round_, victim) is not None:
            home = reclaim.homes.get(victim.uid)
            why = _WHY[victim.cause].format(group=group.called, queue=group.queue, home=home)
            round_.evictions[victim.uid] = Eviction(victim, why)


# ---- beginning


class Starving(NamedTuple):
    """Groups that look for victims. What the first of a kind does not find, no other of its kind does."""

    first: Mapping[object, GroupView]  # for which a victim may run: by kind its first, and the longest wait
    idle: Mapping[tuple[str, int], GroupView]  # by queue and priority a group for which none does
    may_find: Callable[[GroupView, tuple[EvictionCause, ...]], bool]  # whether one runs, by some rules


NOBODY_STARVES = Starving({}, {}, lambda *_: False)


def begin(round_: Round, lending: Lending, reservations: Reservations) -> Starving:
    """Find victims for groups that starve; a bounded number of searches.

    The order is by priority of their queue, its share, and their order inside it.
    """
    places, candidates = round_.limits.reclaims - len(round_.reclaims), Candidates(round_)
    starving = _starving(round_)
    if starving or round_.reclaims:
        round_.evictions |= {each.uid: Eviction(each, _LINGERS, is_slow=True) for each in lingering(round_)}
    idle = {(group.queue, group.priority): group for group in starving if not candidates.may_exist_for(group)}
    may_find = [group for group in starving if (group.queue, group.priority) not in idle]
    longest = _longest(may_find)
    first = _first(round_, may_find)
    first |= {(each, "longest"): group for each, group in longest.items()}
    found = Starving(first, idle, candidates.may_exist_for)
    shares, queues = round_.budget.shares, round_.snapshot.queues
    ranks = {
        queue: (-queues[queue].record.priority, shares.of_node(shares.tree.node[queue]), queue)
        for queue in {group.queue for group in may_find}
    }
    seeking = [group for group in may_find if group.preempts and not reservations.limits(group)]
    if seeking and places > 0:
        seeking.sort(key=lambda group: (ranks[group.queue], group.order))
        mark = round_.budget.journal.mark()
        _Searches(round_, lending, reservations, candidates, Price(round_, longest)).begin(seeking, places)
        round_.budget.journal.roll_back(mark)
    return found


def _starving(round_: Round) -> list[GroupView]:
    """Return the groups that lack capacity or a share, and have waited long enough for a reclaim.

    How long is the queue's setting; a group without a timestamp has waited long enough. No reclaim is
    made for members that a group starts without.
    """
    starving: list[GroupView] = []
    for key, decision in list(round_.decided.items()):
        if decision.verdict is Verdict.WAITING and decision.reason in _STARVES and decision.reclaim is None:
            group = round_.snapshot.groups[key]
            with Guard(round_, group):
                if not missing(group).members:
                    continue
                after = round_.snapshot.queues[group.queue].record.preemption.after
                since = ready_since(group)
                if not (after and since) or round_.is_due(round_.snapshot.moment(since) + after):
                    starving.append(group)
    return starving


def _first(round_: Round, groups: Iterable[GroupView]) -> dict[object, GroupView]:
    """Return the first of each kind: of one queue and priority, that lack the same for the same reason.

    A group that has taken capacity from others is of its own kind, since these do not give to it again.
    """
    first: dict[object, GroupView] = {}
    for group in groups:
        limits, reason = round_.budget.running.whose(group), round_.decided[group.key].reason
        alike = group.queue, group.priority, group.preempts, missing(group).signature, reason, limits
        kind = group.key if group.history.took_from else (alike, resting(round_, group))
        if kind not in first or group.order < first[kind].order:
            first[kind] = group
    return first


def _in_turn(groups: Sequence[GroupView], step: int) -> tuple[list[GroupView], int]:
    """Return groups in the order of their next turns, from one step on, and the steps until all had one.

    Each namespace of a queue has as many turns: a tenant with many kinds of groups delays only their own.
    """
    lanes: dict[tuple[str, str], list[GroupView]] = {}
    for group in groups:
        lanes.setdefault((group.queue, group.key.partition("/")[0]), []).append(group)
    turns: list[tuple[int, GroupView]] = []
    for number, lane in enumerate(lanes.values()):
        begun = -((number - step) // len(lanes))  # the first round of all lanes in which its turn is to come
        for place, group in enumerate(lane):
            turns.append(((begun + (place - begun) % len(lane)) * len(lanes) + number, group))
    turns.sort(key=itemgetter(0))
    return [group for _, group in turns], len(lanes) * max(map(len, lanes.values()))


def _longest(groups: Iterable[GroupView]) -> dict[object, GroupView]:
    """Return of equal groups the one that has waited the longest."""
    longest: dict[object, GroupView] = {}
    for group in groups:
        known = longest.setdefault(alike(group), group)
        if group.preempts and (not known.preempts or ready_since(group) < ready_since(known)):
            longest[alike(group)] = group
    return longest


class _Searches:
    """The searches of one round. Each sees what the ones before it took."""

    def __init__(
        self,
        round_: Round,
        lending: Lending,
        reservations: Reservations,
        candidates: Candidates,
        price: Price,
    ) -> None:
        self._round = round_
        self._lending = lending
        self._reservations = reservations
        self._candidates = candidates
        self._price = price
        candidates.latest = price.latest
        self._vain: set[object] = set()  # what was searched for in vain
        decided, reclaims = round_.decided, round_.reclaims.items()
        kept = [reclaim for key, reclaim in reclaims if key in decided and decided[key].reclaim is reclaim]
        victims = (left(round_, victim) for reclaim in kept for victim in reclaim.victims)
        leaving = (*departing(round_), *(pod for pod in victims if pod is not None))
        self._is_any_departing = any(pod.deleting for pod in leaving)
        # Once what is leaving is gone, and what is promised to others; as ceilings and shares are counted.
        self._base = reservations.room_besides(only_promised=True)
        reservations.reserve_promised_headroom()
        lending.give_back_headroom()
        self._base.free(leaving)
        self._count_off(leaving)

    def begin(self, seeking: Iterable[GroupView], places: int) -> None:
        starving: list[GroupView] = []
        for group in seeking:
            with Guard(self._round, group):
                # Those for whom nothing runs, by what queues hold now, take no search from the others: a
                # reclaim that counts on others to leave would not go on.
                causes = tuple(chain.from_iterable(_causes(self._round, group, missing(group))))
                if self._candidates.may_exist_for(group, causes):
                    starving.append(group)
        first = {group.key for group in _first(self._round, starving).values()}
        kinds = [group for group in starving if group.key in first]  # the first of each kind, in their order
        all_after = 0
        if len(kinds) > _SEARCHES:  # the first ones first; the others get their searches in turn
            rest, all_after = _in_turn(kinds[_IN_TURN:], int(self._round.snapshot.now) * _IN_TURN)
            starving = [*kinds[:_IN_TURN], *rest]
        for group in starving:
            if places <= 0:
                return
            if len(self._vain) > _SEARCHES:
                # With each second others have their turn, until all have had one since anything changed.
                now, turns = int(self._round.snapshot.now), [self._price.turns(each) for each in kinds]
                changed_at = int(max(self._round.snapshot.changed_at, *(turn.last_at for turn in turns)))
                if (now - changed_at) * _IN_TURN < all_after:
                    self._round.look_again_at(now + 1.0)
                elif (next_at := min(turn.next_at for turn in turns)) < inf:
                    self._round.look_again_at(next_at)
                return
            with Guard(self._round, group):
                places -= self._try(group)

    def _try(self, group: GroupView) -> bool:
        """Return whether a reclaim is begun for a group."""
        round_, wanted = self._round, missing(group)
        if (sought := (alike(group), resting(round_, group))) in self._vain:
            return False
        gives = True
        for causes in _causes(round_, group, wanted):
            from_others = EvictionCause.RECLAIM in causes
            if from_others and not gives:
                continue  # where its own queue gives nothing, others alone do not help either
            units, moves = self._candidates.of(group, causes), EvictionCause.CONSOLIDATE in causes
            gives = bool(units) or moves
            if not (units or (from_others and self._is_any_departing)):
                continue
            if (found := self._search(units, group, wanted, from_others, moves)) is None:
                continue
            if not (text := self._price.objection(group, wanted, found.takings)):
                self._begin(group, found)
                return True
            round_.settle(replace(round_.decided[group.key], price=text))
        self._vain.add(sought)
        if self._candidates.spared:
            round_.settle(replace(round_.decided[group.key], spared=self._candidates.spared))
        return False

    def _search(
        self, units: Sequence[Unit], group: GroupView, wanted: Missing, from_others: bool, moves: bool
    ) -> Found | None:
        journal = self._round.budget.journal
        for flavored in self._round.budget.flavors.ways(group, wanted):
            way = flavored.wanted
            planner = self._base.clone()
            planner.give_back(wanted.members, self._lending.kept_for(group))
            self._reservations.give_back_own(group, planner)
            there = planner.capacity.sum_for(way.shapes)  # what they have in pieces is not scarce
            scarce = [name for name, n in way.requests.items() if n > there.get(name, 0)]
            if moves and scarce:
                continue
            about = (self._round, group, flavored, scarce, from_others, self._price)
            mark = journal.mark()
            self._reservations.give_back_own_headroom(group)
            disruptions = self._candidates.disruptions
            if moves:
                found = find_with_homes(self._round, planner, NothingLost(*about), units, disruptions, way)
            else:
                found = Search(planner, VictimShares(*about), units, disruptions.clone()).find(way)
            journal.roll_back(mark)
            if found is not None:
                return found
        return None

    def _count_off(self, pods: Iterable[PodRecord]) -> None:
        groups, budget = self._round.snapshot.groups, self._round.budget
        for pod in pods:
            if pod.group in groups:
                held = budget.flavors.requests([(pod, pod.node)], pod.shape.requests)
                budget.shares.take(groups[pod.group].queue, held, -1)

    def _begin(self, group: GroupView, found: Found) -> None:
        round_, base = self._round, self._base
        pods = [pod for taking in found.takings for pod in taking.pods]
        lost = [(taking, self._price.seconds(taking.unit.run)) for taking in found.takings]
        victims = tuple(victim for each, seconds in lost for victim in each.unit.victims(each.pods, seconds))
        self._candidates.taken.update(pod.uid for pod in pods)
        self._candidates.disruptions.take(pods)
        base.free(pods)
        base.give_back(missing(group).members, self._lending.kept_for(group))
        base.hold((pod, found.plan[pod.uid]) for pod in missing(group).members)
        if found.homes:  # they come back
            base.hold((pod, found.homes[pod.uid]) for pod in pods)
        else:
            self._count_off(pods)
        places = ((pod, found.plan[pod.uid]) for pod in missing(group).members)
        asked = round_.budget.flavors.requests(places, missing(group).requests)
        round_.budget.shares.take(group.queue, asked)
        since, until = round_.snapshot.now, round_.snapshot.now + round_.limits.reclaim_deadline
        deadline = round_.snapshot.timestamp(until)
        detail = f"the room of pods that are being deleted is kept for it until {deadline}"
        if victims:
            groups = round_.snapshot.groups
            owners = Counter(
                groups[victim.group].called if victim.group else f"{victim.namespace}/{victim.name}"
                for victim in victims
            )
            names = [f"{name} ({count})" for name, count in sorted(owners.items())]
            what = "move" if found.homes else "evict"
            detail = f"pods to {what}: {len(victims)}, of {listed(names, _MOST_NAMES)}; until {deadline}"
        least = self._price.worth_after(missing(group), found.takings)
        for other in {victim.queue for victim in victims if victim.cause in FROM_OTHERS}:
            losing = LosingTo(other, group.key.partition("/")[0])
            round_.reclaimed_by(group.queue)[losing] = _taken_from(round_, group, losing, least)
        reclaim = Reclaim(victims, found.plan, since, until, detail, found.homes)
        round_.is_due(until)
        round_.has_begun_reclaim = True
        round_.settle(replace(waits(group, Reason.RECLAIMING, detail), reclaim=reclaim))
        _evict(round_, group, reclaim)


def _taken_from(round_: Round, group: GroupView, losing: LosingTo, least: float) -> Reclaimed:
    """Return the record that a group takes capacity from another queue.

    The last time was in vain if that queue has taken capacity back since, unless this group came only
    then: that is no turn in a loop, but two queues that lend to each other as their work comes and goes.
    It was in vain, too, if its group waits again, or has gone before it had run for `least` seconds.
    Groups that came together, and go together, count once.
    """
    now, last = round_.snapshot.timestamp(round_.snapshot.now), round_.reclaimed_by(group.queue).get(losing)
    taken = QueueTaken(group.key, now, int(least))
    if last is None:
        return Reclaimed(group.key, now, unused=(taken,))
    others = round_.reclaimed_by(losing.queue).items()
    back_at = max((back.at for taking, back in others if taking.queue == group.queue), default="")
    went_back = back_at > last.at and group.created <= back_at
    unused = [each for each in last.unused if not _is_in_vain(round_, each)]
    in_vain = last.in_vain + (went_back or len(unused) < len(last.unused))
    return Reclaimed(group.key, now, in_vain, (*unused, taken)[-_MOST_UNUSED:])


def _note_refused(round_: Round, group: GroupView) -> None:
    """Record a reclaim of which no victim has gone, as an eviction was refused: it took nothing in vain."""
    victims, taken = round_.reclaims[group.key].victims, round_.reclaimed_by(group.queue)
    is_refused = any(victim.uid in round_.snapshot.spared for victim in victims)
    if not is_refused or any(left(round_, victim) is None for victim in victims):
        return
    for losing, last in taken.items():
        unused = tuple(each for each in last.unused if each.group != group.key)
        taken[losing] = replace(last, unused=unused)


def _is_in_vain(round_: Round, taken: QueueTaken) -> bool:
    """Return whether a group has gone, or waits again, without having used its reclaimed capacity."""
    decision = round_.decision_on(GroupKey(taken.group))
    waits = decision is None or (decision.verdict is Verdict.WAITING and decision.reclaim is None)
    return waits or round_.taker(taken) is None


def _causes(round_: Round, group: GroupView, wanted: Missing) -> Iterator[Sequence[EvictionCause]]:
    """Yield the causes of evictions, one after the other.

    Other queues give only what brings the queue up to what it deserves. Its own groups make way beyond
    that; where it takes their going to bring it so far down, others give as well. Where its queue may
    borrow by evicting, others of lower priority give last. At a ceiling, which may be that of a queue
    above, only what counts for it helps. Where free capacity only lies in pieces, movable groups move
    first.
    """
    shares, asks = round_.budget.shares, round_.budget.flavors.asks(group)
    if all(shares.is_above_share(group.queue, asked) for asked in asks):
        yield (EvictionCause.PREEMPT,)
        yield _AT_A_CEILING
        if round_.snapshot.queues[group.queue].record.preemption.borrows_up_to > -inf:
            yield _BEYOND_A_SHARE
    else:
        reason, may_choose = round_.decided[group.key].reason, bool(round_.budget.flavors.of(group.queue))
        if reason is Reason.FRAGMENTED or (may_choose and reason in LACKS_ROOM):  # said of all flavors
            yield (EvictionCause.CONSOLIDATE,)
        is_full = reason is Reason.QUEUE_CEILING
        yield _AT_A_CEILING if is_full else (*_AT_A_CEILING, EvictionCause.UNMANAGED)
