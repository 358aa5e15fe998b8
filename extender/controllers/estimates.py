"""Estimates of starts for all pending groups, computed in slices by a thread of its own.

The thread uses a fiftieth of a core. Estimates are compared with the real starts. A published estimate stays
until a new one differs much, because each change is a write.
"""

import threading
import time
from collections.abc import Callable, Generator
from functools import partial
from math import ceil, inf

import msgspec

from extender.api.objects.queues import Estimate
from extender.api.units import timestamp_at
from extender.controllers.cycle import ChangedGroups, FaultGuard
from extender.domain.explain.forecast import (
    FUTURES,
    MOST_CYCLES,
    SHORTEST,
    Calibration,
    ExpectedStart,
    ExpectedStarts,
    forecasts,
    interval_of,
)
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey
from extender.domain.scheduling.memory import carried_facts_of
from extender.domain.snapshot.decisions import Decisions, GroupDecision
from extender.kube.writers import Poller
from extender.telemetry import metrics

_SHARE = 0.02  # of a core, in the long run
_SAVED = 2.0  # seconds of work that may be done at once after a long rest
_AT_ONCE = 0.2  # of a core, while such saved work is done
_SLICE = 0.005  # seconds of work at a time, or one scheduling cycle
_LONGEST = 36.0  # seconds of work for one forecast: half an hour on the largest clusters
_IDLE = 1.0  # seconds between two checks while there is nothing to compute
_MIN_WAIT = 5.0  # seconds of waiting before a group gets an estimate: most start earlier
_INTERVAL = 5.0  # seconds from the start of one forecast to that of the next, if anything changed
_STALE = 60.0  # seconds to the next forecast without a change: expected ends have passed
_STEP = 10.0  # seconds: published times are multiples
# Large changes: as a part of the time until the start, and in seconds.
_LARGE_PART, _LARGE_SECONDS = 0.2, 60.0


class _Published(msgspec.Struct, frozen=True):
    """Published estimate of a group.

    Attributes:
        first: The estimate that its start is compared with.
        epoch: When the ledger's clock was at 0.
    """

    first: ExpectedStart
    now: ExpectedStart
    epoch: float
    text: Estimate


class Estimates(Poller):
    """Estimates of starts.

    `cpu` returns the seconds for which this thread has worked. Listeners get the key of each group with
    another published estimate.
    """

    def __init__(
        self,
        ledger: Ledger,
        leads: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        super().__init__("estimates", _IDLE, self.compute_slice)
        self._ledger, self._leads, self._clock, self._cpu = ledger, leads, clock, cpu
        self._changed_groups, self._guard = ChangedGroups(), FaultGuard("estimates")
        self._listeners: list[Callable[[GroupKey], None]] = []
        self._lock = threading.Lock()
        self._reported: dict[GroupKey, _Published] = {}
        self._waits_since: dict[GroupKey, float] = {}  # the oldest first
        self._calibration = Calibration()
        self.reported = 0  # number of changed estimates so far
        self._used: Decisions | None = None  # decisions that the last forecast used
        self._began_at = -inf
        self._saved, self._rested = _SAVED, clock()
        self._cycle_seconds = 0.0  # average time of a simulated scheduling cycle; 0: unknown
        self._work: Generator[None, None, ExpectedStarts] | None = None

    def listen(self, listener: Callable[[GroupKey], None]) -> None:
        self._listeners.append(listener)

    def get(self, key: GroupKey) -> Estimate | None:
        """Return the published estimate; None: the group does not wait, or there is none yet."""
        reported = self._reported.get(key)
        return None if reported is None else reported.text

    def on_decisions(self, decisions: Decisions) -> None:
        """Forget groups that wait no longer, and compare those that start with their estimates."""
        for key in self._changed_groups.since_last_call(decisions):
            decision = decisions.groups.get(key)
            if decision is None or decision.verdict is not Verdict.WAITING:
                self._guard.run(key, partial(self._forget, key, decision))
            self._record_wait(key, decision)

    def _record_wait(self, key: GroupKey, decision: GroupDecision | None) -> None:
        """Record since when a group waits. A group that only waits for the window needs no estimate."""
        with self._lock:
            if decision and decision.verdict is Verdict.WAITING and decision.reason is not Reason.WINDOW_FULL:
                self._waits_since.setdefault(key, self._clock())
            else:
                self._waits_since.pop(key, None)

    def _forget(self, key: GroupKey, decision: GroupDecision | None) -> None:
        """Forget the estimate of a group that starts or ends; compare it with a start."""
        with self._lock:
            reported = self._reported.pop(key, None)
        if reported is not None and decision is not None and decision.verdict is not Verdict.ENDED:
            self._compare(key, reported.first, self._clock())

    def _compare(self, key: GroupKey, reported: ExpectedStart, now: float) -> None:
        """Record the difference between an estimate and the start."""
        if reported.is_known:
            expected, waited = (max(at - reported.made_at, SHORTEST) for at in (reported.p50, now))
            metrics.estimate_error.labels(interval_of(reported, now)).observe(waited / expected)
            self._calibration = self._calibration.after(key, reported, now)

    def compute_slice(self) -> float:
        """Compute a slice; return the seconds of rest after it."""
        if not self._leads():
            self._work = self._used = None
            with self._lock:
                self._reported.clear()
            return _IDLE
        if self._work is None and not self._begin():
            return _IDLE
        started, cycles, work = self._cpu(), 0, self._work
        self._work = None  # a forecast that raised is not continued either
        while work is not None and self._cpu() - started < _SLICE:
            try:
                next(work)
                cycles += 1
            except StopIteration as end:
                work = None
                self._publish(end.value)
        self._work, worked = work, self._cpu() - started
        self._cycle_seconds += (worked / max(cycles, 1) - self._cycle_seconds) / 10.0
        return self._rest_after(worked)

    def _rest_after(self, worked: float) -> float:
        """Return the seconds of rest after some seconds of work, for which rests are saved up."""
        now = self._clock()
        self._saved = min(self._saved + (now - self._rested) * _SHARE, _SAVED) - worked
        self._rested = now
        return max(worked / _AT_ONCE, -self._saved / _SHARE)

    def _begin(self) -> bool:
        """Begin forecasts if any group waits long enough and the last forecasts are old enough."""
        decisions, now = self._ledger.decisions, self._clock()
        min_age = _INTERVAL if decisions is not self._used else _STALE
        with self._lock:
            waits_long = next(iter(self._waits_since.values()), inf) <= now - _MIN_WAIT
        if not waits_long or now < self._began_at + min_age or carried_facts_of(decisions) is None:
            return False
        cycles = MOST_CYCLES if not self._cycle_seconds else int(_LONGEST / FUTURES / self._cycle_seconds)
        self._used, self._began_at = decisions, now
        self._work = forecasts(decisions, max(1, min(cycles, MOST_CYCLES)))
        return True

    def _publish(self, found: ExpectedStarts) -> None:
        """Publish the expected starts of waiting groups that are news."""
        facts = carried_facts_of(self._used) if self._used is not None else None
        if facts is None:
            return
        decided, epoch, changed = self._ledger.decisions.groups, facts.snapshot.epoch, list[GroupKey]()
        for key, forecast in found.items():
            with self._lock:  # no estimate of a forgotten group is published
                before, decision = self._reported.get(key), decided.get(key)
                if decision is None or decision.verdict is not Verdict.WAITING:
                    continue
                forecast = self._calibration.applied(key, forecast)
                clock_was_set = before is not None and abs(epoch - before.epoch) > _LARGE_SECONDS
                if before is None or clock_was_set or is_news(before.now, forecast):
                    text = estimate_of(forecast, epoch)
                    first = forecast if before is None or not before.first.is_known else before.first
                    self._reported[key] = _Published(first, forecast, epoch, text)
                    changed.append(key)
                    self.reported += 1
        for key in changed:
            for listener in self._listeners:
                listener(key)


def is_news(reported: ExpectedStart, now: ExpectedStart) -> bool:
    """Return whether a new estimate differs much from the published one."""
    if not (reported.is_known and now.is_known) or reported.method is not now.method:
        return (reported.unknown, reported.method) != (now.unknown, now.method)
    instants = ((reported.p50, now.p50), (reported.p90, now.p90))
    return any(abs(a - b) > max(_LARGE_SECONDS, _LARGE_PART * (b - now.made_at)) for a, b in instants)


def estimate_of(forecast: ExpectedStart, epoch: float) -> Estimate:
    """Return the estimate as it is published: in timestamps, in coarse steps."""
    if not forecast.is_known:
        return Estimate(unknown_because=forecast.unknown)
    p50, p90 = (timestamp_at(ceil((epoch + at) / _STEP) * _STEP) for at in (forecast.p50, forecast.p90))
    if not p90:
        return Estimate(unknown_because="a declared run time before it ends after the year 9999")
    return Estimate(p50, p90, str(forecast.method))
