"""What was decided when: a log line for every turn that a group takes, and the latest turns kept for /debug.

A plan or a number that changes is no turn: with a thousand groups waiting, one pod of somebody else changes
all their numbers.
"""

from collections import deque
from datetime import UTC, datetime
from functools import partial

import msgspec

from extender.controllers.changed_groups import ChangedGroups
from extender.controllers.guard import Guard
from extender.domain.decisions.decisions import Decisions, GroupDecision
from extender.domain.decisions.transitions import course
from extender.domain.model.reasons import Verdict
from extender.telemetry.logs import logger

log = logger(__name__)

_KEPT = 1000
_OLD_NEWS = (Verdict.RUNNING, Verdict.ENDED)  # of a group that is seen for the first time, after a restart
_MESSAGES = {
    Verdict.WAITING: "a group waits",
    Verdict.STARTING: "a group starts",
    Verdict.RUNNING: "a group runs",
    Verdict.ENDED: "a group has ended",
}


class LoggedDecision(msgspec.Struct, frozen=True):
    time: str
    decision: GroupDecision


class DecisionLog:
    """Listens to the cycle."""

    def __init__(self) -> None:
        self._changed_groups = ChangedGroups()
        self._guard = Guard("decision-log")
        self._entries: deque[LoggedDecision] = deque(maxlen=_KEPT)

    def look(self, decisions: Decisions) -> None:
        for key, was, now in self._changed_groups.compared(decisions):
            if now is not None:
                self._guard.run(key, partial(self._note, was, now))

    def _note(self, was: GroupDecision | None, now: GroupDecision) -> None:
        if _is_turn(was, now):
            moment = datetime.now(UTC).isoformat(timespec="milliseconds")
            self._entries.append(LoggedDecision(moment, now))
            _tell(now)

    def latest(self, limit: int) -> list[LoggedDecision]:
        """The newest first."""
        return list(self._entries)[: -limit - 1 : -1]


def _is_turn(was: GroupDecision | None, now: GroupDecision) -> bool:
    """Whether a group takes another course, or its start is undone."""
    if was is None:
        return now.verdict not in _OLD_NEWS
    return course(was) != course(now) or bool(now.undo and not was.undo)


def _tell(now: GroupDecision) -> None:
    fields = {"reason": now.reason, "detail": now.detail, "members": len(now.plan)}
    named = {name: value for name, value in fields.items() if value}
    log.info(_MESSAGES[now.verdict], group=now.key, queue=now.queue, **named)
