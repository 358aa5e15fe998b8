"""Which changes of a group's decision are worth an Event.

Some are reported at once, such as a failed start. Others lead to a state, such as waiting for room, which is
reported only once it lasts. Changes of numbers within a state are not reported.
"""

import msgspec

from extender.domain.decisions.decisions import GroupDecision
from extender.domain.decisions.wording import message_of
from extender.domain.model.reasons import EventReason, Reason, Verdict, sentence

_NEEDS_ACTION = frozenset(
    {
        Reason.GROUP_NOT_FOUND,
        Reason.QUEUE_NOT_FOUND,
        Reason.INVALID_SPEC,
        Reason.QUEUE_NOT_OPEN,
        Reason.NAMESPACE_NOT_ALLOWED,
        Reason.NEVER_FITS,
        Reason.TOO_LARGE_FOR_WINDOW,
        Reason.BACKING_OFF,
        Reason.REFUSED_BY_SCHEDULER,
    }
)


class Transition(msgspec.Struct, frozen=True):
    """What an Event reports."""

    reason: str  # a code of the closed list
    message: str  # for people
    warning: bool = False  # whether a person has to act
    for_members: bool = False  # whether it is reported on waiting members as well


def course(decision: GroupDecision) -> tuple[Verdict, Reason | None]:
    """The part of a decision whose change is worth an Event."""
    return (decision.verdict, decision.reason)


def of_turn(before: GroupDecision | None, now: GroupDecision) -> Transition | None:
    """What has just happened to a group; None for a first decision, which has nothing to be compared with."""
    if before is None:
        return None
    if now.undo and not before.undo:
        return Transition(
            EventReason.UNDONE, f"evicting {len(now.undo)} bound members: {now.detail}", warning=True
        )
    if now.failed and not before.failed and now.verdict is Verdict.WAITING:
        return Transition(
            Reason.BACKING_OFF, _message(Reason.BACKING_OFF, now.detail), warning=True, for_members=True
        )
    if now.reclaim and not before.reclaim:
        message = _message(Reason.RECLAIMING, now.detail)
        return Transition(Reason.RECLAIMING, message, for_members=True)
    if now.spared and not before.spared:
        text = f"{now.spared} gave its room to this group already, and is not evicted for it again"
        return Transition(EventReason.RECLAIM_LOOP, text, warning=True)
    if now.verdict is Verdict.RUNNING is not before.verdict:
        return Transition(Verdict.RUNNING, "all members that the group needs are on nodes")
    return None


def of_state(decision: GroupDecision, change: str = "") -> Transition | None:
    """The state that lasts as long as the decision; None for a group that runs and lacks nothing. `change`:
    what would start it, as a sentence."""
    if decision.reason is not None:
        warning = decision.reason in _NEEDS_ACTION
        message = _message(decision.reason, message_of(decision, change))
        return Transition(decision.reason, message, warning, for_members=True)
    if decision.verdict is Verdict.STARTING:
        return Transition(Verdict.STARTING, _start(decision))
    return None


def _message(reason: Reason, detail: str) -> str:
    return f"{sentence(reason)}: {detail}" if detail else sentence(reason)


def _start(decision: GroupDecision) -> str:
    planned = f"{len(decision.plan)} members have a planned node and are going to the scheduler"
    return f"{planned}; {decision.detail}" if decision.detail else planned
