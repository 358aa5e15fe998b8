"""Deciding again with little work: what follows from the previous decisions without judging all groups.

It says nothing of its own: with or without it, the same is decided. Whatever could start a group, or change
anything but numbers, is left to a round. So is what raises: there each group is judged inside a guard.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf

import numpy as np
from msgspec.structs import replace

from extender.domain.model.reasons import Reason
from extender.domain.model.records import GroupKey
from extender.domain.placement.capacity import FEW
from extender.domain.queues.tree import QueueView
from extender.domain.scheduling import results
from extender.domain.scheduling.budget import pods_of
from extender.domain.scheduling.memory import Inadmissible, Judged, Memory, Remaining, Waiting
from extender.domain.scheduling.no_room import Tally, explain_shortage
from extender.domain.scheduling.obstacles import at_rest
from extender.domain.scheduling.reclaim import next_turn
from extender.domain.scheduling.round import NOBODY, Round, Shortages
from extender.domain.snapshot.decisions import Decisions, GroupDecision
from extender.domain.snapshot.snapshot import Snapshot
from extender.domain.snapshot.wholeness import missing

JudgeAll = Callable[[Round], Judged]
_Changed = dict[GroupKey, GroupDecision | None]  # None: the group is gone


def decide_again(
    snapshot: Snapshot, previous: Decisions, memory: Memory, judge_all: JudgeAll
) -> Decisions | None:
    """The next decisions; None where all groups have to be judged."""
    if memory.holds(snapshot, previous):
        return replace(previous, serial=previous.serial + 1, turned=())
    with suppress(Exception):
        if (carried := carry_over(snapshot, previous, memory)) is not None:
            return carried
    with suppress(Exception):
        return partial_round(snapshot, previous, memory, judge_all)
    return None


# ---- Carrying over


def carry_over(snapshot: Snapshot, previous: Decisions, memory: Memory) -> Decisions | None:
    """The next decisions where an event starts nothing and changes only what is said of a few groups.

    On a full cluster most events are of that kind: a pod of others comes or goes, a member of a group at rest
    changes. They must not cost a look at each group that waits."""
    # 1. Whatever groups are judged by is as it was, but for room.
    waiting, before = memory.waiting, memory.snapshot
    if waiting is None or not (_is_alike(before, snapshot) and memory.is_same_time(snapshot, previous)):
        return None

    # 2. Nobody else may have to make way now: pods that are not ours, or what budgets allow.
    shortages, budgets = waiting.shortages, snapshot.disruption_budgets
    if shortages.minds_others and snapshot.others is not before.others:
        return None
    if shortages.minds_disruptions and (
        budgets is not before.disruption_budgets
        or any(key.partition("/")[0] in budgets for key in snapshot.touched)  # labels of its pods may differ
    ):
        return None

    # 3. Where room changed, nothing is on its way.
    rows = np.flatnonzero((snapshot.room != before.room).any(axis=1))
    if len(rows) > FEW or waiting.taken[rows].any():
        return None

    # 4. Groups that changed were at rest, and are.
    resting = _resting(snapshot, previous, before)
    if resting is None:
        return None

    # 5. Those that lacked room still do; where the numbers differ, so does what is said.
    tally = waiting.tally.after(rows, before.room[rows], snapshot.room[rows])
    still_short = _still_short(waiting, tally)
    if still_short is None:
        return None
    changed = {**_with_new_numbers(previous, shortages, still_short), **resting}
    later = memory.after(snapshot, waiting.after(still_short, tally, snapshot))
    return _carried(snapshot, previous, changed, later)


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


def _carried(snapshot: Snapshot, previous: Decisions, changed: _Changed, memory: Memory) -> Decisions:
    groups: Mapping[GroupKey, GroupDecision] = previous.groups
    if changed:
        groups = dict(groups)
        for key, decision in changed.items():
            if decision is None:
                del groups[key]
            else:
                groups[key] = decision
    counts = results.recount(previous.counts, previous.groups, groups, changed, results.in_queue)
    queues = previous.queues
    if counts != previous.counts:
        columns = results.columns_by_queue(counts, queues, memory.shares.division.tree.ancestry)
        queues = {
            name: queue if queue.counts == columns[name] else replace(queue, counts=columns[name])
            for name, queue in queues.items()
        }
    moments = [previous.wake_at] if previous.wake_at is not None else []
    if memory.waiting is not None and memory.waiting.shortages.seek_in_turn:
        moments.append(next_turn(snapshot.now))  # after a change, all that look for victims have their turn
    return replace(
        previous,
        version=snapshot.version,
        groups=groups,
        queues=queues,
        counts=counts,
        local_counts=results.recount(
            previous.local_counts, previous.groups, groups, changed, results.in_local_queue
        ),
        wake_at=min(moments, default=None),
        serial=previous.serial + 1,
        turned=tuple(changed),
        memory=memory,
    )


# ---- A partial round


def partial_round(
    snapshot: Snapshot, previous: Decisions, memory: Memory, judge_all: JudgeAll
) -> Decisions | None:
    """The next decisions where few of many groups have changed: a round without the inadmissible ones.

    It is a round like any other, on a snapshot without them, and so costs nothing for those that only wait.
    It counts if nothing was taken in it and all that they are judged by is as it was when they were judged:
    then what was said of them holds, and they would have changed nothing for the others."""
    inadmissible = memory.inadmissible
    if inadmissible is None or not _still_wait(inadmissible, memory, snapshot):
        return None
    active = inadmissible.active | snapshot.touched
    moments = (at for key, at in memory.moments.items() if key not in active and key != NOBODY)
    until = min(inadmissible.same_until, min(moments, default=inf))
    if not memory.snapshot.now <= snapshot.now < until:
        return None
    groups = {key: group for key, group in snapshot.groups.items() if key in active}
    judged = judge_all(Round(replace(snapshot, groups=groups), memory.totals, memory.shares))
    if judged.remaining is None or not judged.remaining.is_alike(inadmissible.remaining):
        return None
    if not _deserve_alike(inadmissible, judged.remaining):
        return None

    # What was decided now, and what was decided before on the inadmissible.
    before = {key: decision for key, decision in previous.groups.items() if key not in active}
    positions = results.merged(
        results.positions_of(judged), inadmissible.lines, before, judged.strategies.rank
    )
    unchanged = (line for queue, line in positions.lines.items() if line is inadmissible.lines.get(queue))
    places = {group.key: previous.groups[group.key].position for line in unchanged for group in line}
    ours = results.completed(judged.round_, previous, {**places, **positions.of})
    for key, decision in before.items():
        if (place := positions.of.get(key, decision.position)) != decision.position:
            before[key] = replace(decision, position=place)
    later = Inadmissible.of(judged, ours, positions.lines)
    kept = memory.after_partial(snapshot, judged, later, before)
    return results.assembled(judged.round_, previous, before | ours, positions, kept)


def _still_wait(inadmissible: Inadmissible, memory: Memory, now: Snapshot) -> bool:
    """Whether nothing has changed that would make an inadmissible group matter, besides what remains of the
    budget, and time."""
    then = memory.snapshot
    return (
        inadmissible.foremost.isdisjoint(now.touched)
        and now.nodes is then.nodes
        and now.dimensions == then.dimensions
        and now.limits is then.limits
        and now.history is then.history
        and now.refused == then.refused
        and now.queues.keys() == then.queues.keys()
        and all(
            queue is then.queues[name] or _rules(queue) == _rules(then.queues[name])
            for name, queue in now.queues.items()
        )
        and now.occupancy.is_alike(then.occupancy)
        and bool((now.allocatable == then.allocatable).all())
    )


def _rules(queue: QueueView) -> tuple[object, ...]:
    """All of a queue but the amounts: these are part of the budget."""
    return queue.record, queue.exists, queue.state, queue.closed_above, queue.mark, queue.fault


def _deserve_alike(inadmissible: Inadmissible, remaining: Remaining) -> bool:
    """Whether all in line are on the same side of what their queue deserves as before. It deserves more when
    more is asked of what there is plenty of."""
    then, now = inadmissible.remaining.shares, remaining.shares
    for queue in now.deserving_otherwise(then):
        in_line = map(missing, inadmissible.lines.get(queue, ()))
        asked = {wanted.signature: wanted.requests for wanted in in_line}.values()
        if any(now.is_above_share(queue, more) != then.is_above_share(queue, more) for more in asked):
            return False
    return True
