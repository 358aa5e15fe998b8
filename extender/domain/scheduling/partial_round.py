"""A partial round: one without bystanders, where few of many groups have changed.

It is a round like any other, on a snapshot without them, and so costs nothing for those that only wait. It
counts if nothing was taken in it and all that bystanders are judged by is as it was when they were judged:
then what was said of them holds, and they would have changed nothing for the others.
"""

from math import inf

from msgspec.structs import replace

from extender.domain.decisions.decisions import Decisions, GroupDecision
from extender.domain.lifecycle.quorum import missing
from extender.domain.model.records import GroupKey
from extender.domain.queues.queue_view import QueueView
from extender.domain.scheduling.bystanders import Bystanders
from extender.domain.scheduling.memory import Memory
from extender.domain.scheduling.positions import Positions, among_bystanders, positions_of
from extender.domain.scheduling.queue_shares import Standing
from extender.domain.scheduling.results import assembled, completed
from extender.domain.scheduling.round import NOBODY, Round
from extender.domain.scheduling.steps import Judged, judge_all
from extender.domain.snapshot.snapshot import Snapshot


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
        and all(_is_alike(then.queues[name], queue) for name, queue in now.queues.items())
        and now.occupancy.is_alike(then.occupancy)
        and bool((now.allocatable == then.allocatable).all())
    )


def _is_alike(then: QueueView, now: QueueView) -> bool:
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
