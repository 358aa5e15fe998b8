"""Which of the groups that wait are judged: those that room would help."""

from collections.abc import Iterable

from extender.domain.decisions.decisions import GroupDecision
from extender.domain.lifecycle.quorum import missing
from extender.domain.model.reasons import Reason
from extender.domain.scheduling.backoff import back_off
from extender.domain.scheduling.in_pieces import undone
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
        return undone(round_, group) or exceeds_queue(group, too_much)
    absent = missing(group).absent
    if (group.is_on_nodes or not absent) and strategies.of(group).backs_off(group):
        is_in_line = not absent and strategies.of(group).lets_none_pass(group)
        return None if is_in_line else back_off(round_, group)
    if (decision := undone(round_, group)) is not None:
        return decision
    return waits(group, Reason.NOT_ENOUGH_MEMBERS, absent) if absent else None
