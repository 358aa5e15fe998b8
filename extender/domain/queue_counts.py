"""How the groups of a queue are counted in its status: each in one column."""

from extender.domain.decisions import GroupDecision
from extender.domain.phases import Phase
from extender.domain.reasons import Outcome

_GOING_ON = {
    Phase.PENDING: "pending",
    Phase.INQUEUE: "inqueue",
    Phase.RUNNING: "running",
    Phase.UNKNOWN: "unknown",
}
_ENDED = {Outcome.COMPLETED: "completed", Outcome.FAILED: "failed", Outcome.ABORTED: "aborted"}
COLUMNS = (*_GOING_ON.values(), *_ENDED.values())


def column_of(decision: GroupDecision) -> str:
    """How it ended, if it has, else its phase."""
    life = decision.life
    return _GOING_ON.get(life.phase, "unknown") if life.outcome is None else _ENDED[life.outcome]
