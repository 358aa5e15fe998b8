"""Which of the groups that wait are judged: those that room would help."""

from collections.abc import Iterable

from extender.domain.decisions.decisions import GroupDecision
from extender.domain.lifecycle.quorum import missing
from extender.domain.lifecycle.start_clock import in_pieces_since
from extender.domain.model.reasons import Reason
from extender.domain.scheduling.backoff import TOO_LATE, back_off, fail
from extender.domain.scheduling.obstacles import above_capability, exceeds_queue, waits
from extender.domain.scheduling.round import Round
from extender.domain.scheduling.strategies import Strategies
from extender.domain.snapshot.group_view import GroupView


def ready(round_: Round, strategies: Strategies, groups: Iterable[GroupView]) -> list[GroupView]:
    """Those that room would help, and those that let none pass while they back off. The others are
    settled."""
    return [group for group in groups if round_.judge(_is_ready, group, strategies)]


def _is_ready(round_: Round, group: GroupView, strategies: Strategies) -> bool:
    decision = _not_ready(round_, group, strategies)
    if decision is not None:
        round_.settle(decision)
    return decision is None


def _not_ready(round_: Round, group: GroupView, strategies: Strategies) -> GroupDecision | None:
    if too_much := above_capability(round_, group):
        return exceeds_queue(group, too_much)
    absent = missing(group).absent
    if (group.is_on_nodes or not absent) and strategies.of(group).backs_off(group):
        is_in_line = not absent and strategies.of(group).lets_none_pass(group)
        return None if is_in_line else back_off(round_, group)
    if _stands_in_pieces(round_, group):
        return fail(round_, group, TOO_LATE)
    return waits(group, Reason.NOT_ENOUGH_MEMBERS, absent) if absent else None


def _stands_in_pieces(round_: Round, group: GroupView) -> bool:
    """Whether members have been on nodes for longer than a start may take, though Muster admitted none."""
    since = in_pieces_since(group, round_.snapshot)
    return since is not None and round_.is_due(since + round_.limits.deadline(group.min_member))
