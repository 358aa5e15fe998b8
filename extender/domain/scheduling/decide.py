"""decide(): who may start, where, and for every group that waits, why.

A pure function of the snapshot; `previous` only saves work. The order of a round:

1. groups whose start is under way, or that were left short by a crash: they keep what was planned for them;
2. groups that stood whole and lost members: their replacements have first claim on room;
3. waiting groups at or below their queue's deserved share, queue by queue in order of share;
4. lending: groups above it, in the same order, with the room that nobody of step 3 could stand on;
5. members beyond minMember, one by one.
"""

from collections.abc import Mapping, Set
from typing import TypeVar

from msgspec.structs import replace

from extender.domain.decisions.decisions import Decisions, GroupDecision, QueueDecision
from extender.domain.decisions.queue_counts import columns_of, recount
from extender.domain.lifecycle.phases import ended, ending, life_of
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey
from extender.domain.queues.queue_states import wish
from extender.domain.queues.queue_view import QueueView
from extender.domain.scheduling import elastic, starting, waiting
from extender.domain.scheduling.round import Round
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.snapshot import Snapshot

NOBODY_THERE = "the group needs one member to start, and none is there"

T = TypeVar("T")


def decide(snapshot: Snapshot, previous: Decisions | None = None) -> Decisions:
    round_ = Round(snapshot)
    under_way, replacing, candidates, standing = [], [], [], []
    for group in snapshot.groups.values():
        if (rest := at_rest(group)) is not None:
            round_.settle(rest)
        elif not group.is_on_nodes and (fault := obstacle(round_, group)) is not None:
            round_.settle(fault)
        elif group.is_empty:
            round_.settle(_waits(group, Reason.NOT_ENOUGH_MEMBERS, NOBODY_THERE))
        elif not group.exists and (group.stands or group.stood_whole):
            round_.settle(_without_its_group(group))
        elif group.stands:
            standing.append(group)
        elif group.stood_whole:
            replacing.append(group)
        elif group.start.admitted_at is not None or group.placed or group.pinned:
            under_way.append(group)
        else:
            candidates.append(group)
    growths = elastic.keep_planned(round_, standing)
    starting.go_on(round_, under_way, replacing)
    waiting.admit(round_, candidates)
    elastic.grow(round_, growths)
    return _decisions(round_, previous)


def at_rest(group: GroupView) -> GroupDecision | None:
    """What is decided on a group that has ended, rests or is on its way out: nothing around it changes that.
    None: it has to be judged."""
    return group.once(_at_rest)


def _at_rest(group: GroupView) -> GroupDecision | None:
    outcome = ended(group)
    if outcome is None and not group.ends and (group.is_empty or not group.rests or not group.stood_whole):
        return None
    verdict = Verdict.RUNNING if outcome is None else Verdict.ENDED
    life = life_of(group, Verdict.RUNNING)
    return GroupDecision(group.key, group.queue, verdict, detail=ending(life), life=life)


def obstacle(round_: Round, group: GroupView) -> GroupDecision | None:
    """What keeps a group that holds no node from being judged at all."""
    queue = round_.snapshot.queues.get(group.queue)
    if not group.exists:
        return _waits(group, Reason.GROUP_NOT_FOUND, starting.no_group(group))
    if group.fault:
        return _waits(group, Reason.INVALID_SPEC, group.fault)
    if queue is None or not queue.exists:
        return _waits(group, Reason.QUEUE_NOT_FOUND, f"queue {group.queue} does not exist")
    if queue.record.fault:
        return _waits(group, Reason.INVALID_SPEC, queue.record.fault)
    if not group.entitled:
        return _waits(group, Reason.QUEUE_NOT_OPEN, _closed(queue))
    return None


def _without_its_group(group: GroupView) -> GroupDecision:
    """Members on nodes whose PodGroup is gone run on, and nobody joins them."""
    reason, detail = Reason.GROUP_NOT_FOUND, starting.no_group(group)
    return GroupDecision(group.key, group.queue, Verdict.RUNNING, reason, detail)


def _closed(queue: QueueView) -> str:
    name = queue.record.name
    words = f"queue {name} is {queue.state}"
    return words if queue.to_open == name else f"{words}, because queue {queue.to_open} above it is closed"


def _waits(group: GroupView, reason: Reason, detail: str) -> GroupDecision:
    return GroupDecision(group.key, group.queue, Verdict.WAITING, reason, detail)


def _decisions(round_: Round, previous: Decisions | None) -> Decisions:
    """Decisions that say the same as before are the same objects, so that readers can skip them."""
    before, snapshot = previous or Decisions(), round_.snapshot
    groups = {
        key: _same(before.groups.get(key), _with_life(snapshot.groups[key], decision))
        for key, decision in round_.decided.items()
    }
    turned = _turned(before.groups, groups, snapshot.touched)
    counts = recount(before.counts, before.groups, groups, turned)
    return Decisions(
        version=snapshot.version,
        groups=groups,
        queues=_queues(round_, counts, before.queues),
        wake_at=min(round_.wake_at, default=None),
        orphans=snapshot.orphans,
        counts=counts,
        serial=before.serial + 1,
        turned=turned,
    )


def _turned(
    before: Mapping[GroupKey, GroupDecision], now: Mapping[GroupKey, GroupDecision], touched: Set[GroupKey]
) -> list[GroupKey]:
    """In an order that does not depend on anything but the decisions."""
    there = [key for key, decision in now.items() if key in touched or before.get(key) is not decision]
    return there + sorted((before.keys() | touched) - now.keys())


def _with_life(group: GroupView, decision: GroupDecision) -> GroupDecision:
    if decision is at_rest(group):
        return decision
    life = life_of(group, decision.verdict, decision.plan, decision.reason)
    return decision if life == decision.life else replace(decision, life=life)


def _same(before: T | None, now: T) -> T:
    return before if before is not None and (before is now or before == now) else now


def _queues(
    round_: Round, counts: Mapping[tuple[str, str], int], before: Mapping[str, QueueDecision]
) -> dict[str, QueueDecision]:
    return {
        name: _same(before.get(name), _queue(round_, queue, columns_of(name, counts)))
        for name, queue in round_.snapshot.queues.items()
    }


def _queue(round_: Round, queue: QueueView, counts: Mapping[str, int]) -> QueueDecision:
    name, given = queue.record.name, round_.shares.get(queue.record.name)
    return QueueDecision(
        name=name,
        state=queue.state,
        weight=queue.record.weight,
        allocated=queue.allocated,
        requested=queue.requested,
        deserved=given.deserved if given else {},
        ceiling=given.ceiling if given else {},
        share=round_.queue_share(name),
        counts=counts,
        uid=queue.record.uid,
        wish=wish(queue.record),
        closed_above=queue.closed_above,
        mark=queue.mark,
        fault=queue.record.fault,
    )
