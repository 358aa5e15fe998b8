"""Scheduling cycle: one thread that decides whenever something changed, and its listeners.

The thread decides at once when idle, and at most 20 times a second. Changes only set a flag: the next
decision sees all changes made during the current one. A long cycle is followed by a longer rest, or the
scheduler's calls would have to wait for the interpreter lock.
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

_SHORTEST = 0.05  # seconds from the start of one cycle to that of the next
_RESTS = 3  # a rest lasts this many times as long as the cycle before it
_LONGEST_REST = 0.5  # seconds
_HEARTBEAT = 0.5  # most seconds between calls of the listeners: no event reports that a caller hung up
_REMEMBERED = 1000  # faulty objects; beyond, every fault is logged

Listener = Callable[[Decisions], None]
GroupChange = tuple[GroupKey, GroupDecision | None, GroupDecision | None]  # the old decision, and the new one


class FaultGuard:
    """Guard that counts an error, and logs it once until the object succeeds again; the caller tries again.

    `part` is the name of the guarded part, one of a few known beforehand, since it is a label of a metric.
    """

    def __init__(self, part: str) -> None:
        self._part = part
        self._faulty: set[Hashable] = set()

    def run(self, key: Hashable, act: Callable[[], object]) -> bool:
        """Call `act`, and return whether it succeeded. Raises nothing."""
        try:
            act()
        except Exception:
            self.record(key)
            return False
        self.forget(key)
        return True

    def record(self, key: Hashable) -> None:
        """Record the current exception for `key`; to be called in an `except` block."""
        metrics.faults.labels(self._part).inc()
        if key not in self._faulty:
            if len(self._faulty) < _REMEMBERED:
                self._faulty.add(key)
            log.exception("an object could not be reconciled", part=self._part, object=str(key)[:200])

    def forget(self, key: Hashable) -> None:
        self._faulty.discard(key)


class ChangedGroups:
    """Groups that changed since a listener's last call: each change once, even if decisions repeat it."""

    def __init__(self) -> None:
        self._seen = Decisions()

    def since_last_call(self, decisions: Decisions) -> Sequence[GroupKey]:
        """Return the groups that changed since the last call."""
        before, self._seen = self._seen, decisions
        return decisions.changed_since(before)

    def decision_changes(self, decisions: Decisions) -> Iterator[GroupChange]:
        """Yield the groups whose decision changed since the last call."""
        before = self._seen.groups
        for key in self.since_last_call(decisions):
            old, new = before.get(key), decisions.groups.get(key)
            if old is not new:
                yield key, old, new


class DecisionLoop:
    """Loop of decisions; `wake_up` reports a change. Starts when `ready`, acts while the replica `leads`."""

    def __init__(
        self,
        ledger: Ledger,
        listeners: Sequence[Listener],
        ready: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        self._leads = leads
        self._ledger = ledger
        self._listeners = listeners
        self._ready = ready
        self._clock = clock
        self._changed = threading.Event()
        self._stopping = threading.Event()
        self._guard = FaultGuard("cycle")
        self._seen = -1
        self.last_run = clock()

    def wake_up(self) -> None:
        if not self._changed.is_set():  # takes no lock
            self._changed.set()

    def start(self) -> None:
        threading.Thread(target=self._run, name="decide", daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()
        self._changed.set()

    def _run(self) -> None:
        """Run cycles until stopped: at each change, each requested time and each heartbeat, with rests."""
        while not self._stopping.is_set():
            started = self._clock()
            self.run_once()
            took = self._clock() - started
            self._stopping.wait(max(_SHORTEST - took, min(_RESTS * took, _LONGEST_REST)))
            requeue_at = self._ledger.decisions.requeue_at
            due = _HEARTBEAT if requeue_at is None else requeue_at - self._clock()
            self._changed.wait(min(max(due, 0.0), _HEARTBEAT))

    def run_once(self) -> None:
        """Decide if anything changed or is due, and call all listeners, even if one raises.

        An error does not stop the loop, since a restart would meet the same object again. Liveness
        depends on decisions alone.
        """
        self._changed.clear()
        alive = self._guard.run("decide", self._decide_if_due)
        for listener in self._listeners:
            self._guard.run(listener, partial(listener, self._ledger.decisions))
        if alive:
            self.last_run = self._clock()

    def _decide_if_due(self) -> None:
        """Decide and publish, if anything has changed or a requested time has come."""
        self._ledger.set_leading(self._leads())
        started, before = self._clock(), self._ledger.decisions
        is_requeue_due = before.requeue_at is not None and started >= before.requeue_at
        is_due = is_requeue_due or self._ledger.version != self._seen or self._ledger.is_usage_due
        if not (self._ready() and is_due):
            return
        snapshot = self._ledger.snapshot()
        try:
            decisions = decide(snapshot, before)
        except Exception:  # go on without the memory, which only saves work
            self._guard.record("remembered decisions")
            decisions = decide(snapshot)
        self._ledger.publish(decisions)
        for key in decisions.changed:  # log each fault of an evaluation once; these groups wait
            old, new = before.groups.get(key), decisions.groups.get(key)
            if new is not None and new.fault and (old is None or old.fault != new.fault):
                metrics.faults.labels("decide").inc()
                log.error("cannot decide on a group", group=key, fault=new.fault)
        self._seen = snapshot.version
        metrics.decision_seconds.observe(self._clock() - started)
        metrics.decisions.inc()


# Log of decisions, with a line for every change of a verdict or reason; waits of groups. A changed plan or
# number is not logged: one other pod changes all numbers of a thousand pending groups.

_MOST_ENTRIES = 1000
_MANY_FLIPS = 3  # flips of one group after which they are logged
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
    """Log of changed verdicts and reasons, and of flips: changes back without an event in between.

    `version` is that of the ledger, which also grows as decisions are published.
    """

    def __init__(self, version: Callable[[], int] = lambda: -1) -> None:
        self._version = version
        self._changed_groups = ChangedGroups()
        self._guard = FaultGuard("decision-log")
        self._entries: deque[LoggedDecision] = deque(maxlen=_MOST_ENTRIES)
        self._seen, self._published = Decisions(), -1  # the version once the last decisions were published
        # Verdicts before their changes since the last event.
        self._earlier: dict[GroupKey, VerdictAndReason] = {}
        self._flips: dict[GroupKey, int] = {}

    def on_decisions(self, decisions: Decisions) -> None:
        if decisions is self._seen:
            return
        is_repeated = self._seen.version < decisions.version == self._published
        if not is_repeated:  # an event or the clock caused these decisions
            self._earlier.clear()
        self._seen, self._published = decisions, self._version()
        for key, was, now in self._changed_groups.decision_changes(decisions):
            if now is None:
                self._flips.pop(key, None)
                continue
            self._guard.run(key, partial(self._record, was, now))

    def _record_flip(self, before: VerdictAndReason, now: GroupDecision) -> None:
        """Count a decision that returns to the last but one; warn of a group with many."""
        if self._earlier.get(now.key) == verdict_of(now):
            metrics.decision_flips.inc()
            self._flips[now.key] = flips = self._flips.get(now.key, 0) + 1
            if flips == _MANY_FLIPS:
                reasons = [reason or verdict for verdict, reason in (before, verdict_of(now))]
                log.warning("decisions on a group do not settle", group=now.key, reasons=reasons)
        self._earlier[now.key] = before

    def flips(self, group: GroupKey) -> int:
        """Return how often the decision on a group went back and forth without an event."""
        return self._flips.get(group, 0)

    def _record(self, was: GroupDecision | None, now: GroupDecision) -> None:
        """Log a decision that is not the same as before."""
        if was is None:
            is_new = now.verdict not in (Verdict.RUNNING, Verdict.ENDED)  # else this process was restarted
        else:
            before = verdict_of(was)
            if has_changed := before != verdict_of(now):
                self._record_flip(before, now)
            is_new = has_changed or bool(now.undo and not was.undo)
        if is_new:
            instant = datetime.now(UTC).isoformat(timespec="milliseconds")
            self._entries.append(LoggedDecision(instant, now))
            fields = {"reason": now.reason, "detail": now.detail, "members": len(now.plan)}
            named = {name: value for name, value in fields.items() if value}
            log.info(_MESSAGES[now.verdict], group=now.key, queue=now.queue, **named)

    def latest(self, limit: int) -> list[LoggedDecision]:
        return list(self._entries)[: -limit - 1 : -1]


class QueueWaits:
    """Waits of groups until they start, by queue; waits from before a restart count from the restart on."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed_groups = ChangedGroups()
        self._guard = FaultGuard("queue-waits")
        self._since: dict[GroupKey, float] = {}

    def on_decisions(self, decisions: Decisions) -> None:
        for key in self._changed_groups.since_last_call(decisions):
            self._guard.run(key, partial(self._record, key, decisions.groups.get(key)))

    def _record(self, key: GroupKey, decision: GroupDecision | None) -> None:
        """Observe how long a group waited, once it starts."""
        if decision is not None and decision.verdict is Verdict.WAITING:
            self._since.setdefault(key, self._clock())
            return
        since = self._since.pop(key, None)
        if since is None or decision is None:
            return
        if decision.verdict in (Verdict.STARTING, Verdict.RUNNING):
            metrics.labelled_by_queue(metrics.queue_waited, decision.queue).observe(self._clock() - since)
