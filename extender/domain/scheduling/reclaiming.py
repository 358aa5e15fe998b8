"""Room that is being taken back: it is held for the group, also what becomes free bit by bit, and the victims
are evicted.

It ends when the group starts, when the group needs no room any more, or when nobody is left to make way or
the time is up: these count as a failed start. How it begins is in `starving`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from extender.domain.decisions.decisions import GroupDecision
from extender.domain.flavors.roles import on_nodes_of
from extender.domain.lifecycle.quorum import Missing, missing
from extender.domain.model.evictions import Eviction, EvictionCause, Reclaim
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.shapes import requests_of
from extender.domain.scheduling.backoff import fail
from extender.domain.scheduling.obstacles import waits
from extender.domain.scheduling.round import Round
from extender.domain.scheduling.victims_left import (
    departing,
    is_any_in_part,
    leaving_of,
    left,
    would_be_split,
)
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.nodes import NodeTable


def keep(round_: Round, waiting: Iterable[GroupView]) -> list[GroupView]:
    """Hold the room that is being taken back, and start the groups that have it by now. Returns the others,
    which are still to be judged."""
    groups = list(waiting)
    if not round_.reclaims:
        return groups
    round_.shortages.are_all = False
    kept = [group for group in groups if group.key in round_.reclaims and round_.judge(_hold, group)]
    for group in sorted(kept, key=lambda group: (round_.reclaims[group.key].since, group.order)):
        plan = round_.reclaims[group.key].plan
        decision = round_.judge(_go_on, group)
        if decision is not None:
            round_.settle(decision)
        elif round_.is_broken(group):
            round_.budget.let_go(group, plan)
    return [group for group in groups if group.key not in round_.decided]


def _hold(round_: Round, group: GroupView) -> bool:
    """Whether it goes on; then its room is taken."""
    if not _is_still_right(round_, group, missing(group)):
        return False
    round_.budget.hold(group, round_.reclaims[group.key].plan)
    return True


def _is_still_right(round_: Round, group: GroupView, wanted: Missing) -> bool:
    """Whether what was decided on would be decided again: for these members, on nodes that admit them, within
    the queue's share, and without a victim that nobody may evict, unless the rest of its gang has gone."""
    reclaim, snapshot = round_.reclaims[group.key], round_.snapshot
    if reclaim.plan.keys() != {pod.uid for pod in wanted.members} or not group.preempts:
        return False
    if not all(_may_stand(snapshot.nodes, pod, reclaim.plan[pod.uid]) for pod in wanted.members):
        return False
    is_refused = any(victim.uid in snapshot.spared for victim in reclaim.victims)
    if is_refused and not is_any_in_part(round_, reclaim):
        return False
    if any(would_be_split(round_, key) for key in {victim.group for victim in reclaim.victims}):
        return False
    takes_from_others = any(victim.cause is not EvictionCause.PREEMPT for victim in reclaim.victims)
    return not takes_from_others or _stays_within_share(round_, group)


def _stays_within_share(round_: Round, group: GroupView) -> bool:
    """Once all that is leaving its queue is gone."""
    shares, queue = round_.budget.shares, group.queue
    leaving = requests_of(Counter(pod.shape for pod in leaving_of(round_, queue)))
    shares.take(queue, leaving, -1)
    is_above = shares.is_above_share(queue, missing(group).requests)
    shares.take(queue, leaving)
    return not is_above


def _may_stand(nodes: NodeTable, pod: PodRecord, node: str) -> bool:
    """Whether a node is there, and still admits such a member."""
    row = nodes.row.get(node)
    return row is not None and bool(nodes.suitable(pod.shape)[row])


def _go_on(round_: Round, group: GroupView) -> GroupDecision:
    reclaim, budget, wanted = round_.reclaims[group.key], round_.budget, missing(group)
    budget.let_go(group, reclaim.plan)
    if budget.window.has_place_for(len(wanted.members)):
        if _may_start(round_, reclaim) and (plan := _place(round_, group, reclaim)) is not None:
            return GroupDecision(group.key, group.queue, Verdict.STARTING, plan=plan)
        if why := _in_vain(round_, reclaim):
            return fail(round_, group, f"{why}: {reclaim.detail}")
    budget.hold(group, reclaim.plan)
    round_.evictions |= {each.victim.uid: each for each in evictions_for(round_, group, reclaim)}
    return replace(waits(group, Reason.RECLAIMING, reclaim.detail), reclaim=reclaim)


def _in_vain(round_: Round, reclaim: Reclaim) -> str:
    """Why there is no point in waiting longer; empty while there is."""
    if round_.is_due(reclaim.until):
        return "the room did not become free in time"
    victims = (victim for each in round_.reclaims.values() for victim in each.victims)
    goes_on = any(left(round_, victim) is not None for victim in victims)
    return "" if goes_on or any(departing(round_)) else "whoever was to leave has gone, and it does not fit"


def _may_start(round_: Round, reclaim: Reclaim) -> bool:
    """Once a group starts, nobody is evicted for it any more: so no gang may be in part."""
    return not is_any_in_part(round_, reclaim) or round_.is_due(reclaim.until)


def _place(round_: Round, group: GroupView, reclaim: Reclaim) -> dict[Uid, str] | None:
    """The nodes that were decided on or, where all members fit elsewhere by now, others."""
    budget, members = round_.budget, missing(group).members
    if budget.shares.above_ceiling(group.queue, missing(group).requests):
        return None  # its own queue has to give way first
    if is_limited(round_, group):
        return None
    mark = budget.journal.mark()
    plan = budget.planner.take_nodes(
        [_on_its_flavor(round_, pod, group, reclaim.plan[pod.uid]) for pod in members]
    )
    if len(plan) == len(members):
        budget.count(group, plan)
        return plan
    budget.journal.roll_back(mark)
    return None if budget.flavors.of(group.queue) else budget.place(group, members)


def _on_its_flavor(round_: Round, pod: PodRecord, group: GroupView, node: str) -> tuple[PodRecord, str]:
    """A member as it was planned for a node: bound to the nodes of its flavor."""
    flavor = round_.budget.flavors.on(group.queue, node)
    return (on_nodes_of(flavor, [pod])[0] if flavor is not None else pod, node)


def evictions_for(round_: Round, group: GroupView, reclaim: Reclaim) -> Iterator[Eviction]:
    """Victims that are still there and not on their way out."""
    for victim in reclaim.victims:
        if left(round_, victim) is not None:
            yield Eviction(victim, _WHY[victim.cause].format(group=group.key, queue=group.queue))


_WHY = {
    EvictionCause.RECLAIM: "queue {queue} takes back what it deserves, for group {group}",
    EvictionCause.PREEMPT: "group {group} of queue {queue} has a higher priority",
    EvictionCause.UNMANAGED: "group {group} has a higher priority",
}


def is_limited(round_: Round, group: GroupView) -> bool:
    """Whether its queue's limits keep it back, however much room there is."""
    return round_.budget.running.excess(group, len(missing(group).members)) is not None
