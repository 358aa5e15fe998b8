"""How the groups of a queue are counted in its status: each in one column, and for all queues above as well.

The counts are updated and not made again, since few of many groups change from one decision to the next.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from extender.domain.decisions.decisions import GroupDecision
from extender.domain.model.life import Phase
from extender.domain.model.reasons import Outcome
from extender.domain.model.records import GroupKey

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
