"""Turns in queues that rotate: who has had one in a round, and goes on to the next lap."""

from collections.abc import Iterable

from msgspec.structs import replace

from extender.domain.model.reasons import Verdict
from extender.domain.scheduling.order import in_lines
from extender.domain.scheduling.round import Round
from extender.domain.scheduling.strategies import Strategies
from extender.domain.snapshot.group_view import GroupView


def lose_turns(round_: Round, strategies: Strategies, groups: Iterable[GroupView]) -> None:
    """Note the lap of each of `groups`, which were judged in this round, on what was decided on it."""
    turning = [group for group in groups if strategies.of(group).has_turns(group)]
    for line in in_lines(turning, lambda group: group, strategies.rank).values():
        is_passed = False
        for group in reversed(line):
            decision = round_.decided[group.key]
            starts = decision.verdict is Verdict.STARTING
            lap = strategies.laps.of(group) + (is_passed and not starts)
            round_.settle(replace(decision, lap=lap))
            is_passed = is_passed or starts
