"""The place of each waiting group in the line of its queue, as this round's order has it.

Only groups that could start as things are stand in line: not those that lack members, are held back, or are
too large for the cluster, their queue or the window. Those that back off keep their place.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from extender.domain.decisions.decisions import GroupDecision
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey
from extender.domain.scheduling.round import Round
from extender.domain.scheduling.strategies import Strategies
from extender.domain.snapshot.group_view import GroupView

_EXACT_BELOW = 100
_NOT_IN_LINE = (
    Reason.GROUP_NOT_FOUND,
    Reason.QUEUE_NOT_FOUND,
    Reason.INVALID_SPEC,
    Reason.QUEUE_NOT_OPEN,
    Reason.NAMESPACE_NOT_ALLOWED,
    Reason.QUEUE_STOPPED,
    Reason.HELD,
    Reason.NOT_ENOUGH_MEMBERS,
    Reason.NEVER_FITS,
    Reason.TOO_LARGE_FOR_WINDOW,
)


class Positions(NamedTuple):
    of: Mapping[GroupKey, int]
    """By group its place, 1 for the next one."""
    waiting: Mapping[str, int]
    """By queue how many groups are in line."""


def positions_of(
    round_: Round, strategies: Strategies, lines: Mapping[str, Sequence[GroupView]]
) -> Positions:
    """`lines`: by queue, in their order, the groups that were judged. Those that back off were not, unless
    they let none pass; they are put in between."""
    places: dict[GroupKey, int] = {}
    waiting: dict[str, int] = {}
    backing_off = _backing_off(round_)
    for queue in lines.keys() | backing_off.keys():
        line = lines.get(queue, ())
        if queue in backing_off:
            line = sorted({*line, *backing_off[queue]}, key=strategies.rank)
        in_line = [each.key for each in line if _is_in_line(round_.decided[each.key])]
        places.update((key, coarse(position)) for position, key in enumerate(in_line, 1))
        waiting[queue] = len(in_line)
    return Positions(places, waiting)


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
