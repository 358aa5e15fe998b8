"""Scheduling cycle: one thread that decides whenever something has changed, and then calls its listeners.

A change only sets a flag, so a decision covers all changes made during the previous decision. An idle thread
decides at once, but at most 20 times a second. After a long cycle the thread rests longer; otherwise the
scheduler's calls would have to wait for Python's interpreter lock.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial

import msgspec

from extender.domain.ledger.ledger import Ledger
from extender.domain.model.reasons import Verdict
from extender.domain.model.records import GroupKey
from extender.domain.scheduling.decide import decide
from extender.domain.snapshot.decisions import Decisions, GroupDecision, VerdictAndReason, verdict_of
from extender.telemetry import metrics
from extender.telemetry.logs import logger

log = logger(__name__)

_MIN_PERIOD = 0.05  # least seconds between the starts of two cycles
_REST_FACTOR = 3  # length of a rest, as a multiple of the cycle before it
_MAX_REST = 0.5  # seconds
_HEARTBEAT_PERIOD = 0.5  # most seconds between calls of the listeners, which also notice callers that hung up
_MAX_FAULTY_OBJECTS = 1000  # number of remembered faulty objects; each fault of any further object is logged

Listener = Callable[[Decisions], None]
GroupChange = tuple[GroupKey, GroupDecision | None, GroupDecision | None]  # with the old and the new decision


class FaultGuard:
    """Guard that calls functions, counts their exceptions in a metric, and logs each faulty object only once.

    An object is logged again only after it has succeeded in between. The caller is responsible for the next
    try. `part` names the guarded part of Muster. It is a label of a metric, so there are only a few fixed
    names.
    """

    def __init__(self, part: str) -> None:
        self._part = part
        self._faulty_keys: set[Hashable] = set()

    def run(self, key: Hashable, act: Callable[[], object]) -> bool:
        """Call `act`, and return whether it succeeded. Exceptions are recorded, not raised."""
        try:
            act()
        except Exception:
            self.record(key)
            return False
        self.forget(key)
        return True

    def record(self, key: Hashable) -> None:
        """Count and log the exception that is being handled. Call this method in an `except` block."""
        metrics.faults.labels(self._part).inc()
        if key not in self._faulty_keys:
            if len(self._faulty_keys) < _MAX_FAULTY_OBJECTS:
                self._faulty_keys.add(key)
            log.exception("an object could not be reconciled", part=self._part, object=str(key)[:200])

    def forget(self, key: Hashable) -> None:
        self._faulty_keys.discard(key)


class ChangedGroups:
    """Groups that have changed since a listener's last call. Each change is reported once."""

    def __init__(self) -> None:
        self._decisions = Decisions()

    def since_last_call(self, decisions: Decisions) -> Sequence[GroupKey]:
        """Return the groups that changed since the last call."""
        old_decisions, self._decisions = self._decisions, decisions
        return decisions.changed_since(old_decisions)

    def decision_changes(self, decisions: Decisions) -> Iterator[GroupChange]:
        """Yield the groups whose decision changed since the last call."""
        old_groups = self._decisions.groups
        for key in self.since_last_call(decisions):
            old, new = old_groups.get(key), decisions.groups.get(key)
            if old is not new:
                yield key, old, new


class DecisionLoop:
    """Loop that makes decisions once `is_ready` is true, and calls the listeners.

    It decides whether or not this replica leads. `wake_up` reports a change to the loop.
    """

    def __init__(
        self,
        ledger: Ledger,
        listeners: Sequence[Listener],
        is_ready: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        self._leads = leads
        self._ledger = ledger
        self._listeners = listeners
        self._is_ready = is_ready
        self._clock = clock
        self._change_event = threading.Event()
        self._stop_event = threading.Event()
        self._guard = FaultGuard("cycle")
        self._decided_version = -1
        self.last_run_at = clock()

    def wake_up(self) -> None:
        if not self._change_event.is_set():  # a check without a lock
            self._change_event.set()

    def start(self) -> None:
        threading.Thread(target=self._run, name="decide", daemon=True).start()

    def stop(self) -> None:
        self._stop_event.set()
        self._change_event.set()

    def _run(self) -> None:
        """Run cycles until the loop is stopped.

        A cycle starts after a change, at a time that the last decisions asked for, or at the heartbeat.
        """
        while not self._stop_event.is_set():
            started_at = self._clock()
            self.run_once()
            duration = self._clock() - started_at
            self._stop_event.wait(max(_MIN_PERIOD - duration, min(_REST_FACTOR * duration, _MAX_REST)))
            requeue_at = self._ledger.decisions.requeue_at
            until_requeue = _HEARTBEAT_PERIOD if requeue_at is None else requeue_at - self._clock()
            self._change_event.wait(min(max(until_requeue, 0.0), _HEARTBEAT_PERIOD))

    def run_once(self) -> None:
        """Decide if anything has changed or is due, and then call all listeners.

        An exception in one listener does not keep the others from being called. An error does not stop the
        loop, since the same object would cause the same error after a restart. For liveness only the
        decisions have to succeed, not the listeners.
        """
        self._change_event.clear()
        has_decided = self._guard.run("decide", self._decide_if_due)
        for listener in self._listeners:
            self._guard.run(listener, partial(listener, self._ledger.decisions))
        if has_decided:
            self.last_run_at = self._clock()

    def _decide_if_due(self) -> None:
        """Decide and publish the decisions, if anything has changed or a requested time has come."""
        self._ledger.set_leading(self._leads())
        started_at, old_decisions = self._clock(), self._ledger.decisions
        is_requeue_due = old_decisions.requeue_at is not None and started_at >= old_decisions.requeue_at
        is_due = is_requeue_due or self._ledger.version != self._decided_version or self._ledger.is_usage_due
        if not (self._is_ready() and is_due):
            return
        snapshot = self._ledger.snapshot()
        try:
            decisions = decide(snapshot, old_decisions)
        except Exception:  # decide again without the old decisions, which only save work
            self._guard.record("remembered decisions")
            decisions = decide(snapshot)
        self._ledger.publish(decisions)
        for key in decisions.changed_groups:  # log each fault of an evaluation once
            old, new = old_decisions.groups.get(key), decisions.groups.get(key)
            if new is not None and new.fault and (old is None or old.fault != new.fault):
                metrics.faults.labels("decide").inc()
                log.error("cannot decide on a group", group=key, fault=new.fault)
        self._decided_version = snapshot.version
        metrics.decision_seconds.observe(self._clock() - started_at)
        metrics.decisions.inc()


# The log has a line for each change of a verdict or reason. Changes of plans and numbers are not logged,
# since one other pod changes the numbers of a thousand pending groups.

_MAX_ENTRIES = 1000
_WARNING_FLIP = 3  # a group's flip with this number causes a warning
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
    """Log of changes of verdicts and reasons.

    The log also counts flips. A flip is a return to the previous verdict and reason although no event
    happened in between. `read_version` returns the version of the ledger, which also grows when decisions
    are published.
    """

    def __init__(self, read_version: Callable[[], int] = lambda: -1) -> None:
        self._read_version = read_version
        self._changed_groups = ChangedGroups()
        self._guard = FaultGuard("decision-log")
        self._entries: deque[LoggedDecision] = deque(maxlen=_MAX_ENTRIES)
        self._decisions, self._published_at = Decisions(), -1  # ledger version after the last publication
        # Verdict and reason of each group before its last change, if the change came after the last event.
        self._verdict_before_change: dict[GroupKey, VerdictAndReason] = {}
        self._flip_counts: dict[GroupKey, int] = {}

    def on_decisions(self, decisions: Decisions) -> None:
        """Log the changed decisions, and count flips."""
        if decisions is self._decisions:
            return
        is_repeated = self._decisions.version < decisions.version == self._published_at
        if not is_repeated:  # an event or the clock caused the new decisions
            self._verdict_before_change.clear()
        self._decisions, self._published_at = decisions, self._read_version()
        for key, old, new in self._changed_groups.decision_changes(decisions):
            if new is None:
                self._flip_counts.pop(key, None)
                continue
            self._guard.run(key, partial(self._record, old, new))

    def _record_flip(self, old: VerdictAndReason, new: GroupDecision) -> None:
        """Count a flip: a return to the verdict and reason before the last change.

        Warn of a group's third flip.
        """
        if self._verdict_before_change.get(new.key) == verdict_of(new):
            metrics.decision_flips.inc()
            self._flip_counts[new.key] = flips = self._flip_counts.get(new.key, 0) + 1
            if flips == _WARNING_FLIP:
                reasons = [reason or verdict for verdict, reason in (old, verdict_of(new))]
                log.warning("decisions on a group do not settle", group=new.key, reasons=reasons)
        self._verdict_before_change[new.key] = old

    def flip_count(self, group: GroupKey) -> int:
        """Return how many flips of the decision on a group were counted."""
        return self._flip_counts.get(group, 0)

    def _record(self, old: GroupDecision | None, new: GroupDecision) -> None:
        """Log a decision if its verdict or reason is new, or if it begins to undo a start."""
        if old is None:
            is_new = new.verdict not in (Verdict.RUNNING, Verdict.ENDED)  # these were logged before a restart
        else:
            old_verdict = verdict_of(old)
            if has_changed := old_verdict != verdict_of(new):
                self._record_flip(old_verdict, new)
            is_new = has_changed or bool(new.undo and not old.undo)
        if is_new:
            instant = datetime.now(UTC).isoformat(timespec="milliseconds")
            self._entries.append(LoggedDecision(instant, new))
            fields = {"reason": new.reason, "detail": new.detail, "members": len(new.plan)}
            log_fields = {name: value for name, value in fields.items() if value}
            log.info(_MESSAGES[new.verdict], group=new.key, queue=new.queue, **log_fields)

    def latest(self, limit: int) -> list[LoggedDecision]:
        """Return the latest entries, newest first."""
        return list(self._entries)[: -limit - 1 : -1]


class QueueWaits:
    """Metric of how long groups wait until they start, by queue.

    If a group waited before a restart of Muster, only the wait since the restart counts.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed_groups = ChangedGroups()
        self._guard = FaultGuard("queue-waits")
        self._wait_starts: dict[GroupKey, float] = {}

    def on_decisions(self, decisions: Decisions) -> None:
        for key in self._changed_groups.since_last_call(decisions):
            self._guard.run(key, partial(self._record, key, decisions.groups.get(key)))

    def _record(self, key: GroupKey, decision: GroupDecision | None) -> None:
        """Observe how long a group has waited when it starts."""
        if decision is not None and decision.verdict is Verdict.WAITING:
            self._wait_starts.setdefault(key, self._clock())
            return
        since = self._wait_starts.pop(key, None)
        if since is None or decision is None:
            return
        if decision.verdict in (Verdict.STARTING, Verdict.RUNNING):
            metrics.labelled_by_queue(metrics.queue_waited, decision.queue).observe(self._clock() - since)
