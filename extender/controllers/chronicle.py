"""What was decided when: a log line for every turn a group takes, and the latest ones kept for /debug."""

from collections import deque
from datetime import UTC, datetime

import msgspec

from extender.controllers.turns import Turns
from extender.domain.decisions.decisions import Decisions, GroupDecision
from extender.domain.decisions.transitions import course
from extender.domain.model.reasons import Verdict
from extender.telemetry.logs import logger

log = logger(__name__)

_KEPT = 1000
_OLD_NEWS = (Verdict.RUNNING, Verdict.ENDED)  # of a group that is seen for the first time, after a restart
_WORDS = {
    Verdict.WAITING: "a group waits",
    Verdict.STARTING: "a group starts",
    Verdict.RUNNING: "a group runs",
    Verdict.ENDED: "a group has ended",
}


class Entry(msgspec.Struct, frozen=True):
    time: str
    decision: GroupDecision


class Chronicle:
    """Listens to the cycle."""

    def __init__(self) -> None:
        self._turns = Turns()
        self._entries: deque[Entry] = deque(maxlen=_KEPT)

    def look(self, decisions: Decisions) -> None:
        moment = datetime.now(UTC).isoformat(timespec="milliseconds")
        for _, was, now in self._turns.compared(decisions):
            if now is not None and (was or now.verdict not in _OLD_NEWS):
                self._entries.append(Entry(moment, now))
                self._tell(was, now)

    def latest(self, limit: int) -> list[Entry]:
        """The newest first."""
        return list(self._entries)[: -limit - 1 : -1]

    @staticmethod
    def _tell(was: GroupDecision | None, decision: GroupDecision) -> None:
        """A plan or a number that changed is no turn."""
        if was is not None and course(was) == course(decision):
            return
        told = {"reason": decision.reason, "detail": decision.detail, "members": len(decision.plan)}
        named = {name: value for name, value in told.items() if value}
        log.info(_WORDS[decision.verdict], group=decision.key, queue=decision.queue, **named)
