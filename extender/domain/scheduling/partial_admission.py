"""Partial admission: a job that says with how few pods it may run starts with the most that find room, where
not all do (Kueue's rule). The whole job is tried first, also with room that is lent; a smaller size is judged
like a group that asks for no more."""

from bisect import bisect_left
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from extender.domain.model.reasons import Reason, Verdict
from extender.domain.scheduling.budget import Budget
from extender.domain.snapshot.decisions import GroupDecision
from extender.domain.snapshot.group_view import GroupView

NEVER = (Reason.NEVER_FITS, Reason.TOO_LARGE_FOR_WINDOW, Reason.TOO_COMPLEX)
"""A group that can never start as it is; it holds up no other."""

_TEMPORARY = (Reason.BACKING_OFF, Reason.WINDOW_FULL)  # no reason to start smaller
_PODS = ""  # the one role of a job that may start with fewer

Members = Mapping[str, int]
"""How many members there are of each role."""


def shrink(
    group: GroupView,
    whole: GroupDecision,
    judge: Callable[[GroupView], GroupDecision | None],
    budget: Budget,
) -> tuple[GroupView, GroupDecision | None]:
    """The start with the most members that can start, for a group that waits by the decision on its `whole`.

    Where no smaller size can start, what holds the group as it is, or at its smallest if it can never start
    as it is. Where only the window has no places for more, it waits for these."""
    if whole.reason in _TEMPORARY:
        return group, whole

    def tried(members: int) -> tuple[GroupView, GroupDecision | None]:
        smaller = replace(group, min_member=members)
        decision = judge(smaller)
        if decision is not None and decision.verdict is Verdict.STARTING:
            budget.release(smaller, decision.plan)
        return smaller, decision

    def can_start(members: Members) -> bool:
        _, made = tried(members[_PODS])
        return made is not None and (made.verdict is Verdict.STARTING or made.reason is Reason.WINDOW_FULL)

    smallest, decision = tried(group.job.least)
    if decision is None or decision.verdict is not Verdict.STARTING:
        return (smallest, decision) if whole.reason in NEVER else (group, whole)
    most = shrunk({_PODS: group.min_member}, {_PODS: group.job.least}, can_start)
    members = group.job.least if most is None else most[_PODS]
    decision = judge(replace(group, min_member=members))
    is_start = decision is not None and decision.verdict is Verdict.STARTING
    return group, replace(decision, reduced_to=members) if decision is not None and is_start else decision


def shrunk(wanted: Members, least: Members, fits: Callable[[Members], bool]) -> Members | None:
    """The most members that fit; None if not even `least` do, or if no role may give up any. All roles give
    up the same part of what they can spare, rounded down, and by binary search no more of it than is needed.
    A role that `least` does not name gives up none."""
    spare = {role: max(n - least.get(role, n), 0) for role, n in wanted.items()}
    total = sum(spare.values())

    def without(given_up: int) -> Members:
        return {role: n - spare[role] * given_up // total for role, n in wanted.items()}

    if not total:
        return None
    given_up = bisect_left(range(total + 1), True, key=lambda some: fits(without(some)))
    return without(given_up) if given_up <= total else None
