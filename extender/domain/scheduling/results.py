"""The results of a round: Decisions, in which all that is as before is the same objects."""

from collections.abc import Mapping, Set
from typing import TypeVar

from msgspec.structs import replace

from extender.domain.decisions.decisions import NOT_WORKED_OUT, Decisions, GroupDecision, QueueDecision
from extender.domain.decisions.queue_counts import columns_by_queue, in_local_queue, in_queue, recount
from extender.domain.lifecycle.phases import life_of
from extender.domain.model.life import Life, Phase
from extender.domain.model.records import GroupKey
from extender.domain.model.reservation import Reservation
from extender.domain.model.resources import Resources
from extender.domain.queues.queue_states import wish
from extender.domain.queues.queue_view import QueueView
from extender.domain.scheduling.memory import Memory
from extender.domain.scheduling.positions import Positions
from extender.domain.scheduling.round import Round, broken
from extender.domain.scheduling.steps import Judged
from extender.domain.shares.holdings import summed_up
from extender.domain.snapshot.group_view import GroupView

T = TypeVar("T")
_PENDING, _RUNNING = Life(Phase.PENDING), Life(Phase.RUNNING)


def decisions_of(judged: Judged, previous: Decisions | None, positions: Positions) -> Decisions:
    """Decisions that say the same as before are the same objects, so that readers can skip them."""
    before, round_ = previous or Decisions(), judged.round_
    groups = completed(round_, before, positions.of)
    return assembled(round_, before, groups, positions, Memory.of(judged, groups, positions.lines))


def completed(
    round_: Round, before: Decisions, places: Mapping[GroupKey, int]
) -> dict[GroupKey, GroupDecision]:
    """What was decided in a round, with what belongs to it."""
    groups = round_.snapshot.groups
    return {
        key: _same(before.groups.get(key), _completed(groups[key], decision, places.get(key, 0)))
        for key, decision in round_.decided.items()
    }


def assembled(
    round_: Round,
    before: Decisions,
    groups: Mapping[GroupKey, GroupDecision],
    positions: Positions,
    memory: Memory,
) -> Decisions:
    """`groups`: of all groups, whether they were judged in this round or not."""
    snapshot = round_.snapshot
    turned = _turned(before.groups, groups, snapshot.touched)
    counts = recount(before.counts, before.groups, groups, turned, in_queue)
    return Decisions(
        version=snapshot.version,
        groups=groups,
        queues=_queues(round_, counts, before.queues, positions),
        wake_at=min(memory.moments.values(), default=None),
        orphans=snapshot.orphans,
        evictions=round_.evictions,
        counts=counts,
        local_counts=recount(before.local_counts, before.groups, groups, turned, in_local_queue),
        serial=before.serial + 1,
        turned=turned,
        memory=memory,
    )


def _turned(
    before: Mapping[GroupKey, GroupDecision], now: Mapping[GroupKey, GroupDecision], touched: Set[GroupKey]
) -> list[GroupKey]:
    """In an order that does not depend on anything but the decisions."""
    there = [key for key, decision in now.items() if key in touched or before.get(key) is not decision]
    return there + sorted((before.keys() | touched) - now.keys())


def _completed(group: GroupView, decision: GroupDecision, position: int) -> GroupDecision:
    """The same with the group's place, phase and numbers; one that is at rest has them already."""
    if decision.life is not NOT_WORKED_OUT:
        return decision
    try:
        life = life_of(group, decision.verdict, decision.plan, decision.reason)
    except Exception as fault:
        return replace(broken(group, fault), life=_RUNNING if group.is_on_nodes else _PENDING)
    return replace(decision, life=life, position=position)


def _same(before: T | None, now: T) -> T:
    return before if before is not None and (before is now or before == now) else now


def _queues(
    round_: Round,
    counts: Mapping[tuple[str, str], int],
    before: Mapping[str, QueueDecision],
    positions: Positions,
) -> dict[str, QueueDecision]:
    queues, tree = round_.snapshot.queues, round_.budget.shares.tree
    reserved = {each.queue: each.reservation for each in round_.decided.values() if each.reservation}
    columns = columns_by_queue(counts, queues, tree.ancestry)
    requested = summed_up(tree, {name: queue.requested for name, queue in queues.items()})
    return {
        name: _same(
            before.get(name),
            replace(
                _queue(round_, queue, requested[tree.node[name]], columns[name], reserved.get(name)),
                waiting=positions.waiting(name),
            ),
        )
        for name, queue in queues.items()
    }


def _queue(
    round_: Round,
    queue: QueueView,
    requested: Resources,
    counts: Mapping[str, int],
    reservation: Reservation | None,
) -> QueueDecision:
    name, shares = queue.record.name, round_.budget.shares
    return QueueDecision(
        name=name,
        state=queue.state,
        weight=queue.record.weight,
        parent=shares.tree.parent_of(name),
        allocated=shares.allocated(name),
        requested=requested,
        deserved=shares.deserved(name),
        ceiling=shares.real_capability(name),
        share=shares.of(name),
        borrowed=shares.borrowed(name),
        flavors={flavor.name: queue.by_flavor.get(flavor.name, {}) for flavor in queue.record.flavors},
        counts=counts,
        uid=queue.record.uid,
        wish=wish(queue.record),
        closed_above=queue.closed_above,
        mark=queue.mark,
        fault=queue.fault,
        reservation=reservation,
    )
