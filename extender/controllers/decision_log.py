"""The decision log: a line for every change of a group's verdict or reason; and how long groups waited.

A changed plan or number is not logged: one other pod changes all numbers of a thousand waiting groups.
"""

import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

import msgspec

from extender.controllers.cycle import ChangedGroups, FaultGuard
from extender.domain.model.reasons import Verdict
from extender.domain.model.records import GroupKey
from extender.domain.snapshot.decisions import Decisions, GroupDecision, course
from extender.telemetry import metrics
from extender.telemetry.logs import logger

log = logger(__name__)

_KEPT = 1000  # entries
_MESSAGES = {
    Verdict.WAITING: "a group waits",
    Verdict.STARTING: "a group starts",
    Verdict.RUNNING: "a group runs",
    Verdict.ENDED: "a group has ended",
}


class LoggedDecision(msgspec.Struct, frozen=True):
    time: str  # ISO 8601, in UTC
    decision: GroupDecision


class DecisionLog:
    def __init__(self) -> None:
        self._changed_groups = ChangedGroups()
        self._guard = FaultGuard("decision-log")
        self._entries: deque[LoggedDecision] = deque(maxlen=_KEPT)

    def look(self, decisions: Decisions) -> None:
        for key, was, now in self._changed_groups.compared(decisions):
            if now is not None:
                self._guard.run(key, partial(self._note, was, now))

    def _note(self, was: GroupDecision | None, now: GroupDecision) -> None:
        if was is None:
            is_new = now.verdict not in (Verdict.RUNNING, Verdict.ENDED)  # else this process was restarted
        else:
            is_new = course(was) != course(now) or bool(now.undo and not was.undo)
        if is_new:
            moment = datetime.now(UTC).isoformat(timespec="milliseconds")
            self._entries.append(LoggedDecision(moment, now))
            fields = {"reason": now.reason, "detail": now.detail, "members": len(now.plan)}
            named = {name: value for name, value in fields.items() if value}
            log.info(_MESSAGES[now.verdict], group=now.key, queue=now.queue, **named)

    def latest(self, limit: int) -> list[LoggedDecision]:
        return list(self._entries)[: -limit - 1 : -1]


class QueueWaits:
    """How long groups waited until they started, by queue; those from before a restart count from that."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed_groups = ChangedGroups()
        self._guard = FaultGuard("queue-waits")
        self._since: dict[GroupKey, float] = {}

    def look(self, decisions: Decisions) -> None:
        for key in self._changed_groups.of(decisions):
            self._guard.run(key, partial(self._note, key, decisions.groups.get(key)))

    def _note(self, key: GroupKey, decision: GroupDecision | None) -> None:
        if decision is not None and decision.verdict is Verdict.WAITING:
            self._since.setdefault(key, self._clock())
            return
        since = self._since.pop(key, None)
        if since is None or decision is None:
            return
        if decision.verdict in (Verdict.STARTING, Verdict.RUNNING):
            metrics.queue_waited.labels(decision.queue).observe(self._clock() - since)
