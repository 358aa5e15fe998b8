"""The results of a round: Decisions, in which all that is as before is the same objects."""

from bisect import insort
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from extender.domain.model.reasons import Outcome, Reason, Verdict
from extender.domain.model.records import GroupKey
from extender.domain.model.resources import Resources
from extender.domain.queues.deserved import summed_up
from extender.domain.queues.states import wish
from extender.domain.queues.tree import QueueView
from extender.domain.scheduling.memory import Memory
from extender.domain.scheduling.order import Rank
from extender.domain.scheduling.round import Round, broken
from extender.domain.scheduling.steps import Judged
from extender.domain.snapshot.decisions import NOT_WORKED_OUT, Decisions, GroupDecision, QueueDecision
from extender.domain.snapshot.group_view import GroupView, Reservation
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
        for each in ancestry(queue) if queue in columns else ():
            if each in columns:
                columns[each][column] += count
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

    def waiting(self, queue: str) -> int:
        """How many groups of a queue are in line."""
        return len(self.lines.get(queue, ()))


def positions_of(judged: Judged) -> Positions:
    """Those that back off were not judged, unless they let none pass; they are put in between."""
    round_, rank = judged.round_, judged.strategies.rank
    lines: dict[str, Sequence[GroupView]] = {}
    backing_off = _backing_off(round_)
    for queue in judged.lines.keys() | backing_off.keys():
        line = judged.lines.get(queue, ())
        if queue in backing_off:
            line = sorted({*line, *backing_off[queue]}, key=rank)
        lines[queue] = [each for each in line if _is_in_line(round_.decided[each.key])]
    return Positions(_places(lines.values()), lines)


def among_bystanders(
    now: Positions,
    before: Mapping[str, Sequence[GroupView]],
    bystanders: Container[GroupKey],
    rank: Callable[[GroupView], Rank],
) -> Positions:
    """The same with the bystanders in the lines of `before`. A line in which nobody else has changed stays
    the same object; only in others there are new places."""
    lines: dict[str, Sequence[GroupView]] = {}
    for queue in now.lines.keys() | before.keys():
        line, ours = before.get(queue, ()), now.lines.get(queue, ())
        if [each for each in line if each.key not in bystanders] == list(ours):
            lines[queue] = line
            continue
        merged = [each for each in line if each.key in bystanders]
        for group in ours:
            insort(merged, group, key=rank)
        lines[queue] = merged
    renewed = (line for queue, line in lines.items() if line is not before.get(queue))
    return Positions(_places(renewed), lines)


def _places(lines: Iterable[Sequence[GroupView]]) -> dict[GroupKey, int]:
    return {each.key: coarse(place) for line in lines for place, each in enumerate(line, 1)}


def _backing_off(round_: Round) -> Mapping[str, list[GroupView]]:
    found: dict[str, list[GroupView]] = {}
    for key, decision in round_.decided.items():
        if decision.reason is Reason.BACKING_OFF and _is_in_line(decision):
            found.setdefault(decision.queue, []).append(round_.snapshot.groups[key])
    return found


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
