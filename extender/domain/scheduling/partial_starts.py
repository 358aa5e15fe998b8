"""Partial starts: a job that says with how few pods it may run starts with the most that find room, where not
all do.

Rule: Kueue's partial admission. The whole job is tried first, also with room that is lent; a smaller size is
judged like a group that asks for no more.
"""

from collections.abc import Callable

from msgspec.structs import replace

from extender.domain.decisions.decisions import GroupDecision
from extender.domain.lifecycle.shrinking import Members, shrunk
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.scheduling.budget import Budget
from extender.domain.snapshot.group_view import GroupView

Judging = Callable[[GroupView], GroupDecision | None]
_PODS = ""  # the one role of a job that may start with fewer


def with_members(group: GroupView, members: int) -> GroupView:
    """The group, as if it asked for so many."""
    return replace(group, min_member=members)


def start_with_most(budget: Budget, judge: Judging, group: GroupView) -> GroupDecision | None:
    """The start of a group that can start at its smallest. `judge` takes what it gives out of the budget.
    Where only the window has no places for more, it waits for these."""

    def can_start(members: Members) -> bool:
        smaller = with_members(group, members[_PODS])
        decision = judge(smaller)
        if decision is not None and decision.verdict is Verdict.STARTING:
            budget.release(smaller, decision.plan)
            return True
        return decision is not None and decision.reason is Reason.WINDOW_FULL

    most = (shrunk({_PODS: group.min_member}, {_PODS: group.least}, can_start) or {_PODS: group.least})[_PODS]
    decision = judge(with_members(group, most))
    starts = decision is not None and decision.verdict is Verdict.STARTING
    return replace(decision, reduced_to=most) if decision is not None and starts else decision
