"""What is worth telling the people who watch a group, when its decision takes a turn.

Some transitions stand for themselves: a start ended. The rest is a state, such as waiting for room, and worth
telling only once it lasts. Numbers that change within a state are not told.
"""

import msgspec

from extender.domain.decisions.decisions import GroupDecision
from extender.domain.model.reasons import Happening, Reason, Verdict, sentence

_SOMEBODY_MUST_ACT = frozenset(
    {
        Reason.GROUP_NOT_FOUND,
        Reason.QUEUE_NOT_FOUND,
        Reason.INVALID_SPEC,
        Reason.QUEUE_NOT_OPEN,
        Reason.NEVER_FITS,
        Reason.TOO_LARGE_FOR_WINDOW,
        Reason.BACKING_OFF,
        Reason.REFUSED_BY_SCHEDULER,
    }
)


class Transition(msgspec.Struct, frozen=True):
    """`reason` is a code of the closed list. `for_members`: those that wait want to hear it as well."""

    reason: str
    message: str
    warning: bool = False
    for_members: bool = False


def course(decision: GroupDecision) -> tuple[Verdict, Reason | None]:
    """What has to change for a decision to be a turn."""
    return (decision.verdict, decision.reason)


def of_turn(before: GroupDecision | None, now: GroupDecision) -> Transition | None:
    """What just happened. Nothing is known of what was before the first decision."""
    if before is None:
        return None
    if now.undo and not before.undo:
        return Transition(
            Happening.UNDONE, f"evicting {len(now.undo)} bound members: {now.detail}", warning=True
        )
    if now.failed and not before.failed and now.verdict is Verdict.WAITING:
        return Transition(
            Reason.BACKING_OFF, _message(Reason.BACKING_OFF, now.detail), warning=True, for_members=True
        )
    if now.verdict is Verdict.RUNNING is not before.verdict:
        return Transition(Verdict.RUNNING, "all members that the group needs are on nodes")
    return None


def of_state(decision: GroupDecision) -> Transition | None:
    """What is so as long as the decision stands. Nothing is told of a group that runs and lacks nothing."""
    if decision.reason is not None:
        warning = decision.reason in _SOMEBODY_MUST_ACT
        return Transition(
            decision.reason, _message(decision.reason, decision.detail), warning, for_members=True
        )
    if decision.verdict is Verdict.STARTING:
        return Transition(Verdict.STARTING, _start(decision))
    return None


def _message(reason: Reason, detail: str) -> str:
    return f"{sentence(reason)}: {detail}" if detail else sentence(reason)


def _start(decision: GroupDecision) -> str:
    planned = f"{len(decision.plan)} members have a planned node and are going to the scheduler"
    return f"{planned}; {decision.detail}" if decision.detail else planned
