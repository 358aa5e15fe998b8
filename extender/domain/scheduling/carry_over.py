"""Carrying over: a decision where an event starts nothing and changes only what is said of a few groups.

On a full cluster most events are of that kind: a pod of others comes or goes, a member of a group at rest
changes. They must not cost a look at each group that waits. Whatever could start a group, or change anything
besides numbers, is left to a round.
"""

from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from extender.domain.decisions.decisions import Decisions, GroupDecision, QueueDecision
from extender.domain.decisions.queue_counts import columns_by_queue, in_local_queue, in_queue, recount
from extender.domain.model.reasons import Reason
from extender.domain.model.records import GroupKey
from extender.domain.placement.kept_totals import FEW
from extender.domain.placement.tally import Tally
from extender.domain.scheduling.memory import Memory, Waiting
from extender.domain.scheduling.obstacles import at_rest
from extender.domain.scheduling.running_counts import pods_of
from extender.domain.scheduling.shortages import Shortages
from extender.domain.scheduling.starving import next_turn
from extender.domain.scheduling.unschedulable import explain_shortage
from extender.domain.snapshot.snapshot import Snapshot

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
