"""The place of each waiting group in the line of its queue, as this round's order has it.

Only groups that could start as things are stand in line: not those that lack members, are held back, or are
too large for the cluster, their queue or the window. Those that back off keep their place.
"""

from bisect import insort
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from extender.domain.decisions.decisions import GroupDecision
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey
from extender.domain.scheduling.round import Round
from extender.domain.scheduling.steps import Judged
from extender.domain.scheduling.strategies import Rank
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
