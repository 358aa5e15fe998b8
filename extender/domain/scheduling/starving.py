"""Beginning to take room back for groups that starve: whole groups that wait for room, or for their queue's
share.

A reclaim is begun at the end of a round, once it is sure that the whole group will fit on real nodes with its
victims gone. What becomes of it is in `reclaiming`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from extender.domain.decisions.decisions import GroupDecision
from extender.domain.flavors.roles import on_nodes_of
from extender.domain.lifecycle.quorum import Missing, missing
from extender.domain.lifecycle.start_clock import ready_since
from extender.domain.model.evictions import EvictionCause, Reclaim, ReclaimVictim
from extender.domain.model.reasons import LACKS_ROOM, Reason, Verdict
from extender.domain.model.records import PodRecord
from extender.domain.placement.planner import Planner
from extender.domain.reclaim.search import Found, Search
from extender.domain.reclaim.units import Unit
from extender.domain.scheduling.giving import Giving
from extender.domain.scheduling.lending import Lending
from extender.domain.scheduling.obstacles import waits
from extender.domain.scheduling.reclaiming import evictions_for, is_limited
from extender.domain.scheduling.round import Round
from extender.domain.scheduling.victims import Candidates
from extender.domain.scheduling.victims_left import departing, left
from extender.domain.snapshot.group_view import GroupView

_STARVES = frozenset({*LACKS_ROOM, Reason.QUEUE_SHARE, Reason.QUEUE_CEILING})
_SEARCHES = 8  # in vain, in one round
_IN_TURN = _SEARCHES // 2  # of them are others in each second
_MOST_NAMES = 3
_WITHIN_SHARE = (EvictionCause.RECLAIM, EvictionCause.PREEMPT, EvictionCause.UNMANAGED)
_AT_A_CEILING = (EvictionCause.RECLAIM, EvictionCause.PREEMPT)
_ABOVE_SHARE = (EvictionCause.PREEMPT,)


def begin(round_: Round, lending: Lending) -> list[GroupView]:
    """Find victims for groups that starve, in their order; a bounded number of searches. Returns the first of
    each kind of them: what they do not find, no other of their kind does."""
    places, candidates = round_.limits.reclaims - len(round_.reclaims), Candidates(round_)
    starving = _starving(round_)
    round_.shortages.minds_others = any(_takes_from_others(round_, group) for group in starving)
    seeking, first = _in_order(round_, filter(candidates.may_exist_for, starving)), _first(round_, starving)
    if not seeking or places <= 0:
        return first
    mark = round_.budget.journal.mark()
    _Beginning(round_, lending, candidates).begin(seeking, places)
    round_.budget.journal.roll_back(mark)
    round_.shortages.minds_disruptions = candidates.disruptions.matter
    return first


def next_turn(now: float) -> float:
    """When others have their turn to look for victims: with the next second."""
    return int(now) + 1.0


def _takes_from_others(round_: Round, group: GroupView) -> bool:
    """Whether a pod that is not ours would be a victim if one of priority 0 came."""
    unmanaged = round_.snapshot.queues[group.queue].record.preemption.unmanaged
    return group.priority > 0 and group.preempts and unmanaged


def _starving(round_: Round) -> list[GroupView]:
    groups = [round_.snapshot.groups[key] for key, each in round_.decided.items() if _starves(each)]
    return [group for group in groups if round_.judge(_has_waited, group)]


def _first(round_: Round, groups: Iterable[GroupView]) -> list[GroupView]:
    """The first of each kind: of one queue and priority, that miss the same for the same reason. A group that
    has taken room from others is of its own kind, since these do not give to it again."""
    first: dict[object, GroupView] = {}
    for group in groups:
        kind = group.key if group.took_from else _kind(round_, group)
        if kind not in first or group.order < first[kind].order:
            first[kind] = group
    return list(first.values())


def _kind(round_: Round, group: GroupView) -> object:
    limits, reason = round_.budget.running.whose(group), round_.decided[group.key].reason
    return group.queue, group.priority, group.preempts, missing(group).signature, reason, limits


def _has_waited(round_: Round, group: GroupView) -> bool:
    """For as long as its queue lets its groups wait before others make room; without a timestamp, it has."""
    after, since = round_.snapshot.queues[group.queue].record.preemption.after, ready_since(group)
    return not (after and since) or round_.is_due(round_.snapshot.moment(since) + after)


def _in_order(round_: Round, groups: Iterable[GroupView]) -> list[GroupView]:
    """By priority of their queue, its share, and their order inside it; without those that may take from
    nobody."""
    found, shares, queues = list(groups), round_.budget.shares, round_.snapshot.queues
    ranks = {
        queue: (-queues[queue].record.priority, shares.of(queue), queue)
        for queue in {group.queue for group in found}
    }
    return sorted(
        (group for group in found if group.preempts and not is_limited(round_, group)),
        key=lambda group: (ranks[group.queue], group.order),
    )


def _starves(decision: GroupDecision) -> bool:
    return decision.verdict is Verdict.WAITING and decision.reason in _STARVES and decision.reclaim is None


def _ways(round_: Round, group: GroupView, wanted: Missing) -> list[Missing]:
    """The members as they may be placed: where the queue has flavors, all on the nodes of one of them that
    its amounts allow, in their order."""
    flavors = round_.budget.flavors
    if not flavors.of(group.queue):
        return [wanted]
    ways = [(flavor, on_nodes_of(flavor, wanted.members)) for flavor in flavors.of(group.queue)]
    return [
        Missing(tuple(pods))
        for flavor, pods in ways
        if len(flavors.as_many_as(group.queue, flavor, pods, {}, is_lent=False)) == len(pods)
    ]


class _Beginning:
    """The searches of one round. Each sees what the ones before it took."""

    def __init__(self, round_: Round, lending: Lending, candidates: Candidates) -> None:
        self._round = round_
        self._lending = lending
        self._candidates = candidates
        self._vain: set[object] = set()  # what was searched for in vain
        self._leaving = tuple(_leaving(round_))
        self._is_any_departing = any(pod.deleting for pod in self._leaving)
        self._base = self._without_leaving()
        """The room once all that is leaving is gone; shares are counted in the same way."""

    def begin(self, starving: Iterable[GroupView], places: int) -> None:
        starving = [group for group in starving if self._round.judge(self._may_find, group)]
        kinds = self._kinds(starving)
        for group in starving if len(kinds) <= _SEARCHES else self._in_turn(kinds):
            if places <= 0:
                return
            if len(self._vain) > _SEARCHES:
                self._come_back(len(kinds))
                return
            if self._round.judge(self._try, group):
                places -= 1

    def _may_find(self, round_: Round, group: GroupView) -> bool:
        """Whether anything runs that might be a victim, by what queues hold now: a reclaim that counts on
        others to leave would not go on. If not, it takes no search from the others."""
        turns = _causes(round_, group, missing(group))
        return self._candidates.may_exist_for(group, tuple(cause for causes in turns for cause in causes))

    def _in_turn(self, kinds: Sequence[GroupView]) -> Sequence[GroupView]:
        """The first ones first; of very many kinds, the others get their searches in turn."""
        head, rest = kinds[:_IN_TURN], kinds[_IN_TURN:]
        first = int(self._round.snapshot.now) * _IN_TURN % len(rest)
        return [*head, *rest[first:], *rest[:first]]

    def _kinds(self, starving: Sequence[GroupView]) -> Sequence[GroupView]:
        """The first of each kind, in their order."""
        first = {group.key for group in _first(self._round, starving)}
        return [group for group in starving if group.key in first]

    def _come_back(self, kinds: int) -> None:
        """With each second others have their turn, until all have had one since anything changed."""
        self._round.shortages.seek_in_turn = True
        snapshot = self._round.snapshot
        if (int(snapshot.now) - int(snapshot.changed_at)) * _IN_TURN < kinds - _IN_TURN:
            self._round.look_again_at(next_turn(snapshot.now))

    def _try(self, round_: Round, group: GroupView) -> bool:
        """Whether a reclaim is begun for a group."""
        wanted = missing(group)
        sought = (group.queue, group.priority, wanted.signature)
        if sought in self._vain and not group.took_from:
            return False
        found = self._search(group, wanted)
        if found is None:
            self._vain.add(sought)
            if self._candidates.spared:
                round_.settle(replace(round_.decided[group.key], spared=self._candidates.spared))
            return False
        self._begin(group, found)
        return True

    def _search(self, group: GroupView, wanted: Missing) -> Found | None:
        for causes in _causes(self._round, group, wanted):
            units, from_others = self._candidates.of(group, causes), EvictionCause.RECLAIM in causes
            if not (units or (from_others and self._is_any_departing)):
                return None  # where its own queue gives nothing, others alone do not help either
            found = self._search_among(units, group, wanted, from_others)
            if found is not None:
                return found
        return None

    def _search_among(
        self, units: Sequence[Unit], group: GroupView, wanted: Missing, from_others: bool
    ) -> Found | None:
        journal = self._round.budget.journal
        for way in _ways(self._round, group, wanted):
            planner = self._base.clone()
            planner.give_back(wanted.members, self._lending.kept_for(group))
            giving = Giving(self._round, group, way, _scarce(planner, way), from_others)
            mark = journal.mark()
            found = Search(planner, giving, units, self._candidates.disruptions.clone()).find(way)
            journal.roll_back(mark)
            if found is not None:
                return found
        return None

    def _without_leaving(self) -> Planner:
        base = self._round.budget.planner.clone()
        base.free(self._leaving)
        self._count_off(self._leaving)
        return base

    def _count_off(self, pods: Iterable[PodRecord]) -> None:
        groups = self._round.snapshot.groups
        for pod in pods:
            if pod.group in groups:
                self._round.budget.shares.take(groups[pod.group].queue, pod.shape.requests, -1)

    def _begin(self, group: GroupView, found: Found) -> None:
        round_, base = self._round, self._base
        pods = [pod for taking in found.takings for pod in taking.pods]
        victims = tuple(each for taking in found.takings for each in taking.unit.victims(taking.pods))
        self._candidates.taken.update(pod.uid for pod in pods)
        self._candidates.disruptions.take(pods)
        base.free(pods)
        base.give_back(missing(group).members, self._lending.kept_for(group))
        base.hold((pod, found.plan[pod.uid]) for pod in missing(group).members)
        self._count_off(pods)
        round_.budget.shares.take(group.queue, missing(group).requests)
        since, until = round_.snapshot.now, round_.snapshot.now + round_.limits.reclaim_deadline
        detail = _detail(round_, victims, until)
        reclaim = Reclaim(victims, found.plan, since, until, detail)
        round_.is_due(until)
        round_.shortages.are_all = False
        round_.has_begun_reclaim = True
        round_.settle(replace(waits(group, Reason.RECLAIMING, detail), reclaim=reclaim))
        round_.evictions |= {each.victim.uid: each for each in evictions_for(round_, group, reclaim)}


def _causes(round_: Round, group: GroupView, wanted: Missing) -> Iterator[Sequence[EvictionCause]]:
    """Whose turn it is to give, one after the other. Others give only what brings the queue up to what it
    deserves. Its own groups make way beyond that; where it takes their going to bring it so far down, others
    give as well. At a ceiling, which may be that of a queue above, only what counts for it helps."""
    if round_.budget.shares.is_above_share(group.queue, wanted.requests):
        yield _ABOVE_SHARE
        yield _AT_A_CEILING
    else:
        is_full = round_.decided[group.key].reason is Reason.QUEUE_CEILING
        yield _AT_A_CEILING if is_full else _WITHIN_SHARE


def _scarce(planner: Planner, wanted: Missing) -> frozenset[str]:
    """What the nodes lack altogether; empty where they have it, but in pieces."""
    there = planner.capacity.sum_for(wanted.shapes)
    return frozenset(name for name, n in wanted.requests.items() if n > there.get(name, 0))


def _leaving(round_: Round) -> Iterator[PodRecord]:
    """Pods that are being deleted, and victims that are about to be."""
    yield from departing(round_)
    for key, reclaim in round_.reclaims.items():
        if key in round_.decided and round_.decided[key].reclaim is reclaim:
            pods = (left(round_, victim) for victim in reclaim.victims)
            yield from (pod for pod in pods if pod is not None)


def _detail(round_: Round, victims: Sequence[ReclaimVictim], until: float) -> str:
    """Who gives back how much, and until when."""
    deadline = datetime.fromtimestamp(round_.snapshot.epoch + until, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if not victims:
        return f"the room of pods that are being deleted is kept for it until {deadline}"
    givers = Counter(each.group or f"{each.namespace}/{each.name}" for each in victims)
    names = [f"{name} ({count})" for name, count in sorted(givers.items())]
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"pods to evict: {len(victims)}, of {', '.join(names[:_MOST_NAMES])}{more}; until {deadline}"
