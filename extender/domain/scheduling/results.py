"""The results of a round: Decisions, in which all that is as before is the same objects."""

from bisect import insort
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from extender.domain.model.reasons import Outcome, Reason, Verdict
from extender.domain.model.records import GroupKey
from extender.domain.queues.deserved import summed_up
from extender.domain.queues.states import wish
from extender.domain.scheduling.memory import Judged, Memory
from extender.domain.scheduling.order import Rank
from extender.domain.scheduling.round import Round, broken
from extender.domain.snapshot.decisions import NOT_WORKED_OUT, Decisions, GroupDecision, QueueDecision
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.phases import Life, Phase, life_of

# ---- How the groups of a queue are counted in its status: each in one column, and for all queues above
# as well.
#
# The counts are updated and not made again, since few of many groups change from one decision to the
# next.

_GOING_ON = {
    Phase.PENDING: "pending",
    Phase.INQUEUE: "inqueue",
    Phase.RUNNING: "running",
    Phase.UNKNOWN: "unknown",
}
_ENDED = {Outcome.COMPLETED: "completed", Outcome.FAILED: "failed", Outcome.ABORTED: "aborted"}
WAITING, ADMITTED = "waiting", "admitted"  # columns of a LocalQueue
Place = tuple[str, str]  # the name of a Queue or a LocalQueue, and one of its columns
COLUMNS = (*_GOING_ON.values(), *_ENDED.values())


def column_of(decision: GroupDecision) -> str:
    """The column of a group: how it ended, if it has, otherwise its phase."""
    life = decision.life
    return _GOING_ON.get(life.phase, "unknown") if life.outcome is None else _ENDED[life.outcome]


def recount(
    counts: Mapping[Place, int],
    before: Mapping[GroupKey, GroupDecision],
    now: Mapping[GroupKey, GroupDecision],
    turned: Iterable[GroupKey],
    place_of: Callable[[GroupDecision], Place | None],
) -> Mapping[Place, int]:
    """How many groups are in which place; one whose `place_of` is None is not counted. `counts` are those of
    `before`, from which `now` differs in the groups of `turned`."""
    recounted = Counter(counts)
    for key in turned:
        for groups, sign in ((before, -1), (now, 1)):
            if (decision := groups.get(key)) is not None and (place := place_of(decision)) is not None:
                recounted[place] += sign
    return +recounted


def in_queue(decision: GroupDecision) -> Place | None:
    return (decision.queue, column_of(decision)) if decision.life.in_queue else None


def in_local_queue(decision: GroupDecision) -> Place | None:
    """A group that has ended is neither waiting nor admitted."""
    life = decision.life
    if not life.local_queue or life.outcome is not None:
        return None
    return life.local_queue, WAITING if life.phase is Phase.PENDING else ADMITTED


def columns_by_queue(
    counts: Mapping[Place, int], queues: Iterable[str], ancestry: Callable[[str], Sequence[str]]
) -> dict[str, dict[str, int]]:
    """All columns of each of `queues`, with the groups of the queues below it. `ancestry`: a queue and those
    above it."""
    columns = {queue: dict.fromkeys(COLUMNS, 0) for queue in queues}
    for (queue, column), count in counts.items():
        for above in ancestry(queue) if queue in columns else ():
            if above in columns:
                columns[above][column] += count
    return columns


# ---- The place of each waiting group in the line of its queue, as this round's order has it.
#
# Only groups that could start as things are stand in line: not those that lack members, are held back,
# or are too large for the cluster, their queue or the window. Those that back off keep their place.

_EXACT_BELOW = 100
_NOT_IN_LINE = (
    Reason.GROUP_NOT_FOUND,
    Reason.QUEUE_NOT_FOUND,
    Reason.INVALID_SPEC,
    Reason.TOO_COMPLEX,
    Reason.QUEUE_NOT_OPEN,
    Reason.NAMESPACE_NOT_ALLOWED,
    Reason.QUEUE_STOPPED,
    Reason.HELD,
    Reason.START_TIMED_OUT,
    Reason.NOT_ENOUGH_MEMBERS,
    Reason.NEVER_FITS,
    Reason.TOO_LARGE_FOR_WINDOW,
)


class Positions(NamedTuple):
    of: Mapping[GroupKey, int]
    """By group its place, 1 for the next one."""
    lines: Mapping[str, Sequence[GroupView]]
    """By queue the groups that are in line, in their order."""


def positions_of(judged: Judged) -> Positions:
    """Those that back off were not judged, unless they let none pass; they are put in between."""
    round_, rank = judged.round_, judged.strategies.rank
    backing_off: dict[str, list[GroupView]] = {}
    for key, decision in round_.decided.items():
        if decision.reason is Reason.BACKING_OFF and _is_in_line(decision):
            backing_off.setdefault(decision.queue, []).append(round_.snapshot.groups[key])
    lines: dict[str, Sequence[GroupView]] = {}
    for queue in judged.lines.keys() | backing_off.keys():
        line = judged.lines.get(queue, ())
        if queue in backing_off:
            line = sorted({*line, *backing_off[queue]}, key=rank)
        lines[queue] = [group for group in line if _is_in_line(round_.decided[group.key])]
    return Positions(_places(lines.values()), lines)


def merged(
    now: Positions,
    before: Mapping[str, Sequence[GroupView]],
    not_judged: Container[GroupKey],
    rank: Callable[[GroupView], Rank],
) -> Positions:
    """The same with the groups that were not judged, in the lines of `before`. A line in which nobody else
    has changed stays the same object; only in others there are new places."""
    lines: dict[str, Sequence[GroupView]] = {}
    for queue in now.lines.keys() | before.keys():
        line, ours = before.get(queue, ()), now.lines.get(queue, ())
        if [group for group in line if group.key not in not_judged] == list(ours):
            lines[queue] = line
            continue
        both = [group for group in line if group.key in not_judged]
        for group in ours:
            insort(both, group, key=rank)
        lines[queue] = both
    renewed = (line for queue, line in lines.items() if line is not before.get(queue))
    return Positions(_places(renewed), lines)


def _places(lines: Iterable[Sequence[GroupView]]) -> dict[GroupKey, int]:
    return {group.key: coarse(place) for line in lines for place, group in enumerate(line, 1)}


def coarse(position: int) -> int:
    """With two digits from 100 on."""
    step = 1
    while position // step >= _EXACT_BELOW:
        step *= 10
    return position - position % step


def _is_in_line(decision: GroupDecision) -> bool:
    return decision.verdict is Verdict.WAITING and decision.reason not in _NOT_IN_LINE


# ---- The results of a round: Decisions, in which all that is as before is the same objects.

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
    snapshot, known, touched = round_.snapshot, before.groups, round_.snapshot.touched
    there = [key for key, decision in groups.items() if key in touched or known.get(key) is not decision]
    turned = there + sorted((known.keys() | touched) - groups.keys())  # depends on nothing but the decisions
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
    counts: Mapping[Place, int],
    before: Mapping[str, QueueDecision],
    positions: Positions,
) -> dict[str, QueueDecision]:
    queues, shares = round_.snapshot.queues, round_.budget.shares
    reserved = {made.queue: made.reservation for made in round_.decided.values() if made.reservation}
    columns = columns_by_queue(counts, queues, shares.tree.ancestry)
    requested = summed_up(shares.tree, {name: queue.requested for name, queue in queues.items()})
    decided: dict[str, QueueDecision] = {}
    for name, queue in queues.items():
        decision = QueueDecision(
            name=name,
            state=queue.state,
            weight=queue.record.weight,
            parent=shares.tree.parent_of(name),
            allocated=shares.allocated(name),
            requested=requested[shares.tree.node[name]],
            deserved=shares.deserved(name),
            ceiling=shares.real_capability(name),
            share=shares.of_node(shares.tree.node[name]),
            borrowed=shares.borrowed(name),
            flavors={flavor.name: queue.by_flavor.get(flavor.name, {}) for flavor in queue.record.flavors},
            counts=columns[name],
            uid=queue.record.uid,
            wish=wish(queue.record),
            closed_above=queue.closed_above,
            mark=queue.mark,
            fault=queue.fault,
            reservation=reserved.get(name),
            waiting=len(positions.lines.get(name, ())),
        )
        decided[name] = _same(before.get(name), decision)
    return decided
