"""Carrying over: rounds that are not judged anew, or only for the few groups that have changed."""

from collections.abc import Mapping
from math import inf

import numpy as np
from msgspec.structs import replace

from extender.domain.model.reasons import Reason
from extender.domain.model.records import GroupKey
from extender.domain.placement.capacity import FEW
from extender.domain.queues.tree import QueueView
from extender.domain.scheduling.budget import pods_of
from extender.domain.scheduling.memory import Bystanders, Memory, Waiting
from extender.domain.scheduling.no_room import Tally, explain_shortage
from extender.domain.scheduling.obstacles import at_rest
from extender.domain.scheduling.reclaim import next_turn
from extender.domain.scheduling.results import (
    Positions,
    among_bystanders,
    assembled,
    columns_by_queue,
    completed,
    in_local_queue,
    in_queue,
    positions_of,
    recount,
)
from extender.domain.scheduling.round import NOBODY, Round, Shortages
from extender.domain.scheduling.shares import Standing
from extender.domain.scheduling.steps import Judged, judge_all
from extender.domain.snapshot.decisions import Decisions, GroupDecision, QueueDecision
from extender.domain.snapshot.quorum import missing
from extender.domain.snapshot.snapshot import Snapshot

# ---- Carrying over: a decision where an event starts nothing and changes only what is said of a few
# groups.
#
# On a full cluster most events are of that kind: a pod of others comes or goes, a member of a group at
# rest changes. They must not cost a look at each group that waits. Whatever could start a group, or
# change anything besides numbers, is left to a round.

_Changed = dict[GroupKey, GroupDecision | None]  # None: the group is gone


def carry_over(snapshot: Snapshot, previous: Decisions, memory: Memory) -> Decisions | None:
    """The next decisions; None where a round has to decide. So it has where anything raises: there each group
    is judged inside a guard."""
    try:
        return _carry_over(snapshot, previous, memory)
    except Exception:
        return None


def _carry_over(snapshot: Snapshot, previous: Decisions, memory: Memory) -> Decisions | None:
    # 1. Whatever groups are judged by is as it was, but for room.
    waiting, before = memory.waiting, memory.snapshot
    if waiting is None or not (_is_alike(before, snapshot) and memory.is_same_time(snapshot, previous)):
        return None
    if _may_be_given_room(waiting.shortages, before, snapshot):
        return None

    # 2. Where room changed, nothing is on its way.
    rows = np.flatnonzero((snapshot.room != before.room).any(axis=1))
    if len(rows) > FEW or waiting.taken[rows].any():
        return None

    # 3. Groups that changed were at rest, and are.
    resting = _resting(snapshot, previous, before)
    if resting is None:
        return None

    # 4. Those that lacked room still do; where the numbers differ, so does what is said.
    tally = waiting.tally.after(rows, before.room[rows], snapshot.room[rows])
    shortages = _still_short(waiting, tally)
    if shortages is None:
        return None
    changed = {**_with_new_numbers(previous, waiting.shortages, shortages), **resting}
    kept = memory.after(snapshot, waiting.after(shortages, tally, snapshot))
    return _decisions(snapshot, previous, changed, kept)


# ---- what must be as it was


def _is_alike(then: Snapshot, now: Snapshot) -> bool:
    return (
        now.nodes is then.nodes
        and now.dimensions == then.dimensions
        and now.expires_at == then.expires_at
        and now.refused == then.refused
        and now.orphans == then.orphans
        and now.queues == then.queues
        and then.occupancy.is_alike(now.occupancy)
        and np.array_equal(now.allocatable, then.allocatable)
    )


def _may_be_given_room(shortages: Shortages, then: Snapshot, now: Snapshot) -> bool:
    """Whether others may have to make way now: other pods that are not ours, or what budgets allow."""
    if shortages.minds_others and now.others is not then.others:
        return True
    budgets = now.disruption_budgets
    return shortages.minds_disruptions and (
        budgets is not then.disruption_budgets
        or any(key.partition("/")[0] in budgets for key in now.touched)  # labels of its pods may have changed
    )


def _resting(snapshot: Snapshot, previous: Decisions, then: Snapshot) -> _Changed | None:
    """What is decided on groups that changed; None where one was not at rest, or is no more."""
    changed: _Changed = {}
    for key in snapshot.touched:
        before, now = then.groups.get(key), snapshot.groups.get(key)
        if before is None or at_rest(before) is None or key not in previous.groups:
            return None
        decision = at_rest(now) if now is not None else None
        if now is not None and decision is None:
            return None
        if now is not None and (now.queue, now.local_queue) != (before.queue, before.local_queue):
            return None
        if (pods_of(now) if now is not None else 0) != pods_of(before):
            return None
        changed[key] = decision
    return changed


# ---- what waits for room


def _still_short(waiting: Waiting, tally: Tally) -> Shortages | None:
    """The shortages by a newer tally; None where one may be over."""
    before, shortages = waiting.tally, waiting.shortages
    reads_alike = before.reads_like(tally)
    recounted = before.recounted(tally)
    if reads_alike and not recounted:
        return shortages
    if recounted and shortages.keeps_first_room:
        return None
    known = dict(shortages.known)
    for signature, shortage in shortages.known.items():
        if reads_alike and recounted.isdisjoint(shortage.shapes):
            continue
        if not tally.is_short_for(shortage.shapes):
            return None
        if shortage.why[0] is not Reason.NEVER_FITS:
            why = explain_shortage(tally, shortage.shapes)
            if shortage.is_quoted and why != shortage.why:
                return None
            known[signature] = replace(shortage, why=why)
    return shortages.with_numbers(known)


def _with_new_numbers(previous: Decisions, before: Shortages, now: Shortages) -> _Changed:
    """What is decided on groups that wait as before, where it reads differently."""
    changed: _Changed = {}
    for signature, shortage in now.known.items() if now is not before else ():
        if shortage.why != before.known[signature].why:
            reason, detail = shortage.why
            for key in shortage.groups:
                changed[key] = replace(previous.groups[key], reason=reason, detail=detail)
    return changed


# ---- the result


def _decisions(snapshot: Snapshot, previous: Decisions, changed: _Changed, memory: Memory) -> Decisions:
    groups = _with_changes(previous.groups, changed)
    counts = recount(previous.counts, previous.groups, groups, changed, in_queue)
    return replace(
        previous,
        version=snapshot.version,
        groups=groups,
        queues=previous.queues if counts == previous.counts else _recounted(previous.queues, counts, memory),
        counts=counts,
        local_counts=recount(previous.local_counts, previous.groups, groups, changed, in_local_queue),
        wake_at=_wake_at(snapshot, previous, memory),
        serial=previous.serial + 1,
        turned=tuple(changed),
        memory=memory,
    )


def _wake_at(snapshot: Snapshot, previous: Decisions, memory: Memory) -> float | None:
    """After a change, all that look for victims have their turn once more."""
    if memory.waiting is None or not memory.waiting.shortages.seek_in_turn:
        return previous.wake_at
    moment = next_turn(snapshot.now)
    return moment if previous.wake_at is None else min(previous.wake_at, moment)


def _with_changes(
    groups: Mapping[GroupKey, GroupDecision], changed: _Changed
) -> Mapping[GroupKey, GroupDecision]:
    if not changed:
        return groups
    now = dict(groups)
    for key, decision in changed.items():
        if decision is None:
            del now[key]
        else:
            now[key] = decision
    return now


def _recounted(
    queues: Mapping[str, QueueDecision], counts: Mapping[tuple[str, str], int], memory: Memory
) -> dict[str, QueueDecision]:
    columns = columns_by_queue(counts, queues, memory.shares.division.tree.ancestry)
    return {
        name: queue if queue.counts == columns[name] else replace(queue, counts=columns[name])
        for name, queue in queues.items()
    }


# ---- A partial round: one without bystanders, where few of many groups have changed.
#
# It is a round like any other, on a snapshot without them, and so costs nothing for those that only
# wait. It counts if nothing was taken in it and all that bystanders are judged by is as it was when
# they were judged: then what was said of them holds, and they would have changed nothing for the
# others.


def partial_round(snapshot: Snapshot, previous: Decisions, memory: Memory) -> Decisions | None:
    """The next decisions; None where all groups have to be judged. So it is where anything raises: there each
    group is judged inside a guard."""
    try:
        return _partial_round(snapshot, previous, memory)
    except Exception:
        return None


def _partial_round(snapshot: Snapshot, previous: Decisions, memory: Memory) -> Decisions | None:
    bystanders = memory.bystanders
    if bystanders is None or not _stand_by(bystanders, memory, snapshot):
        return None
    taking_part = bystanders.others | snapshot.touched
    if not _same_time(bystanders, memory, taking_part, snapshot):
        return None
    groups = {key: group for key, group in snapshot.groups.items() if key in taking_part}
    judged = judge_all(Round(replace(snapshot, groups=groups), memory.totals, memory.shares))
    if judged.means is None or not judged.means.are_alike(bystanders.means):
        return None
    if not _deserve_alike(bystanders, judged.means.shares):
        return None
    return _together(snapshot, previous, memory, bystanders, taking_part, judged)


# ---- what must be as it was


def _stand_by(bystanders: Bystanders, memory: Memory, now: Snapshot) -> bool:
    """Whether nothing has changed that would make a bystander matter, besides means and time."""
    then = memory.snapshot
    return (
        bystanders.foremost.isdisjoint(now.touched)
        and now.nodes is then.nodes
        and now.dimensions == then.dimensions
        and now.limits is then.limits
        and now.history is then.history
        and now.refused == then.refused
        and now.queues.keys() == then.queues.keys()
        and all(_is_alike_to(then.queues[name], queue) for name, queue in now.queues.items())
        and now.occupancy.is_alike(then.occupancy)
        and bool((now.allocatable == then.allocatable).all())
    )


def _is_alike_to(then: QueueView, now: QueueView) -> bool:
    """But for amounts: these are means."""
    return then is now or _without_amounts(then) == _without_amounts(now)


def _without_amounts(queue: QueueView) -> tuple[object, ...]:
    return queue.record, queue.exists, queue.state, queue.closed_above, queue.mark, queue.fault


def _deserve_alike(bystanders: Bystanders, now: Standing) -> bool:
    """Whether all in line are on the same side of what their queue deserves as before. It deserves more when
    more is asked of what there is plenty of."""
    then = bystanders.means.shares
    for queue in now.deserving_otherwise(then):
        in_line = map(missing, bystanders.lines.get(queue, ()))
        asked = {each.signature: each.requests for each in in_line}.values()
        if any(now.is_above_share(queue, each) != then.is_above_share(queue, each) for each in asked):
            return False
    return True


def _same_time(
    bystanders: Bystanders, memory: Memory, taking_part: frozenset[GroupKey], now: Snapshot
) -> bool:
    """Whether no time has come that would change what is decided on a bystander."""
    moments = (at for key, at in memory.moments.items() if key not in taking_part and key != NOBODY)
    return memory.snapshot.now <= now.now < min(bystanders.same_until, min(moments, default=inf))


# ---- the result


def _together(
    snapshot: Snapshot,
    previous: Decisions,
    memory: Memory,
    bystanders: Bystanders,
    taking_part: frozenset[GroupKey],
    judged: Judged,
) -> Decisions:
    """What was decided now, and what was decided before on bystanders."""
    before = {key: each for key, each in previous.groups.items() if key not in taking_part}
    positions = among_bystanders(positions_of(judged), bystanders.lines, before, judged.strategies.rank)
    places = {**_old_places(positions, bystanders, previous), **positions.of}
    ours = completed(judged.round_, previous, places)
    groups = {key: _moved_up(each, positions) for key, each in before.items()} | ours
    kept = memory.after_partial(snapshot, judged, Bystanders.of(judged, ours, positions.lines), before)
    return assembled(judged.round_, previous, groups, positions, kept)


def _old_places(positions: Positions, bystanders: Bystanders, previous: Decisions) -> dict[GroupKey, int]:
    """Of those in lines that have not changed."""
    same = (line for queue, line in positions.lines.items() if line is bystanders.lines.get(queue))
    return {each.key: previous.groups[each.key].position for line in same for each in line}


def _moved_up(decision: GroupDecision, positions: Positions) -> GroupDecision:
    place = positions.of.get(decision.key, decision.position)
    return decision if place == decision.position else replace(decision, position=place)
