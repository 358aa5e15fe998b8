"""What was decided when: a log line for every turn a group takes, and the latest ones kept for /debug."""

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from extender.domain.decisions import Decisions, GroupDecision
from extender.domain.reasons import Verdict
from extender.telemetry.logs import logger

log = logger(__name__)

_KEPT = 1000
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
        self._before = Decisions()
        self._entries: deque[Entry] = deque(maxlen=_KEPT)

    def look(self, decisions: Decisions) -> None:
        if decisions is self._before:
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        for decision in self._new(decisions):
            self._entries.append(Entry(now, decision))
            self._tell(decision)
        self._before = decisions

    def latest(self, limit: int) -> list[Entry]:
        """The newest first."""
        return list(self._entries)[: -limit - 1 : -1]

    def _new(self, decisions: Decisions) -> Iterator[GroupDecision]:
        before = self._before.groups
        return (each for key, each in decisions.groups.items() if before.get(key) is not each)

    def _tell(self, decision: GroupDecision) -> None:
        """A plan or a number that changed is no turn."""
        before = self._before.groups.get(decision.key)
        if before is not None and (before.verdict, before.reason) == (decision.verdict, decision.reason):
            return
        told = {"reason": decision.reason, "detail": decision.detail, "members": len(decision.plan)}
        named = {name: value for name, value in told.items() if value}
        log.info(_WORDS[decision.verdict], group=decision.key, queue=decision.queue, **named)
