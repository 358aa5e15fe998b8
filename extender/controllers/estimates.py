"""Estimates of start times for all pending groups, computed in slices by a separate thread.

The thread uses a fiftieth of a core. Estimates are compared with the real starts. A published estimate is
replaced only when a new estimate differs much, because each change is a write.
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
    MAX_CYCLES,
    MIN_DEVIATION,
    Calibration,
    ExpectedStart,
    ExpectedStarts,
    forecasts,
    interval_of,
)
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey
from extender.domain.scheduling.memory import read_facts
from extender.domain.snapshot.decisions import Decisions, GroupDecision
from extender.kube.writers import Poller
from extender.telemetry import metrics

_CPU_SHARE = 0.02  # share of a core that the thread may use on average
_MAX_SAVED_SECONDS = 2.0  # most CPU seconds that may be saved up during rests, to be used in one go
_BURST_SHARE = 0.2  # share of a core that the thread may use while saved seconds are left
_SLICE_SECONDS = 0.005  # CPU seconds of a slice; a slice has at least one simulated scheduling cycle
_MAX_WORK = 36.0  # most CPU seconds for a forecast, which then takes half an hour
_IDLE_PERIOD = 1.0  # seconds between two checks for work while there is nothing to compute
_MIN_WAIT = 5.0  # seconds that a group waits before it gets an estimate; most groups start earlier
_FORECAST_INTERVAL = 5.0  # seconds between the starts of two forecasts if anything has changed
_UNCHANGED_INTERVAL = 60.0  # seconds between two forecasts without a change: expected ends may have passed
_STEP = 10.0  # published times are multiples of this number of seconds
# A new estimate differs much if it differs by more than this share of the time until the start, and by more
# than these seconds.
_LARGE_SHARE, _LARGE_SECONDS = 0.2, 60.0


class _PublishedEstimate(msgspec.Struct, frozen=True):
    """Published estimate of a group.

    Attributes:
        first_start: The first known estimate; the real start is compared with it.
        newest_start: The newest published estimate.
        epoch: The time at which the ledger's clock was 0.
        rounded_estimate: The newest estimate in the form in which it is published.
    """

    first_start: ExpectedStart
    newest_start: ExpectedStart
    epoch: float
    rounded_estimate: Estimate


class Estimates(Poller):
    """Thread that computes and publishes estimates of start times.

    `read_cpu` returns the CPU seconds that the calling thread has used. Listeners get the key of each
    group whose published estimate has changed.
    """

    def __init__(
        self,
        ledger: Ledger,
        leads: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        read_cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        super().__init__("estimates", _IDLE_PERIOD, self.compute_slice)
        self._ledger, self._leads, self._clock, self._read_cpu = ledger, leads, clock, read_cpu
        self._changed_groups, self._guard = ChangedGroups(), FaultGuard("estimates")
        self._listeners: list[Callable[[GroupKey], None]] = []
        self._lock = threading.Lock()
        self._published_estimates: dict[GroupKey, _PublishedEstimate] = {}
        self._wait_starts: dict[GroupKey, float] = {}  # the longest wait comes first
        self._calibration = Calibration()
        self.change_count = 0  # number of changed estimates so far
        self._basis_decisions: Decisions | None = None  # decisions that the last forecast is based on
        self._began_at = -inf
        self._savings, self._rested_at = _MAX_SAVED_SECONDS, clock()
        self._cycle_seconds = 0.0  # average time of a simulated scheduling cycle; 0 means unknown
        self._forecast: Generator[None, None, ExpectedStarts] | None = None

    def listen(self, listener: Callable[[GroupKey], None]) -> None:
        self._listeners.append(listener)

    def get(self, key: GroupKey) -> Estimate | None:
        """Return the published estimate of a group; None if the group does not wait or has none yet."""
        published = self._published_estimates.get(key)
        return None if published is None else published.rounded_estimate

    def on_decisions(self, decisions: Decisions) -> None:
        """Compare estimates with the starts of groups, and forget groups that no longer wait."""
        for key in self._changed_groups.since_last_call(decisions):
            decision = decisions.groups.get(key)
            if decision is None or decision.verdict is not Verdict.WAITING:
                self._guard.run(key, partial(self._forget, key, decision))
            self._record_wait(key, decision)

    def _record_wait(self, key: GroupKey, decision: GroupDecision | None) -> None:
        """Record since when a group waits.

        A group that waits only because the window is full needs no estimate.
        """
        with self._lock:
            if decision and decision.verdict is Verdict.WAITING and decision.reason is not Reason.WINDOW_FULL:
                self._wait_starts.setdefault(key, self._clock())
            else:
                self._wait_starts.pop(key, None)

    def _forget(self, key: GroupKey, decision: GroupDecision | None) -> None:
        """Forget the estimate of a group that starts or ends. Compare the estimate with a start."""
        with self._lock:
            published = self._published_estimates.pop(key, None)
        if published is not None and decision is not None and decision.verdict is not Verdict.ENDED:
            self._compare(key, published.first_start, self._clock())

    def _compare(self, key: GroupKey, estimate: ExpectedStart, now: float) -> None:
        """Record the difference between an estimate and the real start in a metric and in the calibration."""
        if estimate.is_known:
            expected, waited = (max(at - estimate.made_at, MIN_DEVIATION) for at in (estimate.p50, now))
            metrics.estimate_error.labels(interval_of(estimate, now)).observe(waited / expected)
            self._calibration = self._calibration.after(key, estimate, now)

    def compute_slice(self) -> float:
        """Compute one slice of a forecast; return the seconds that the thread has to rest afterwards."""
        if not self._leads():
            self._forecast = self._basis_decisions = None
            with self._lock:
                self._published_estimates.clear()
            return _IDLE_PERIOD
        if self._forecast is None and not self._begin():
            return _IDLE_PERIOD
        started_at, cycle_count, forecast = self._read_cpu(), 0, self._forecast
        self._forecast = None  # if the forecast raises an exception, it is not continued
        while forecast is not None and self._read_cpu() - started_at < _SLICE_SECONDS:
            try:
                next(forecast)
                cycle_count += 1
            except StopIteration as end:
                forecast = None
                self._publish(end.value)
        self._forecast, worked_seconds = forecast, self._read_cpu() - started_at
        self._cycle_seconds += (worked_seconds / max(cycle_count, 1) - self._cycle_seconds) / 10.0
        return self._rest_after(worked_seconds)

    def _rest_after(self, worked: float) -> float:
        """Return the seconds of rest after `worked` seconds of CPU time.

        Rests save up seconds for later work.
        """
        now = self._clock()
        self._savings = min(self._savings + (now - self._rested_at) * _CPU_SHARE, _MAX_SAVED_SECONDS) - worked
        self._rested_at = now
        return max(worked / _BURST_SHARE, -self._savings / _CPU_SHARE)

    def _begin(self) -> bool:
        """Begin a forecast, if a group has waited long enough and the last forecast is old enough.

        Return whether a forecast has begun.
        """
        decisions, now = self._ledger.decisions, self._clock()
        min_age = _FORECAST_INTERVAL if decisions is not self._basis_decisions else _UNCHANGED_INTERVAL
        with self._lock:
            waits_long = next(iter(self._wait_starts.values()), inf) <= now - _MIN_WAIT
        if not waits_long or now < self._began_at + min_age or read_facts(decisions) is None:
            return False
        cycles = MAX_CYCLES if not self._cycle_seconds else int(_MAX_WORK / FUTURES / self._cycle_seconds)
        self._basis_decisions, self._began_at = decisions, now
        self._forecast = forecasts(decisions, max(1, min(cycles, MAX_CYCLES)))
        return True

    def _publish(self, expected_starts: ExpectedStarts) -> None:
        """Publish the expected starts of pending groups that differ much from the published estimates."""
        facts = read_facts(self._basis_decisions) if self._basis_decisions is not None else None
        if facts is None:
            return
        decisions, epoch, changed_keys = self._ledger.decisions.groups, facts.snapshot.epoch, list[GroupKey]()
        for key, new in expected_starts.items():
            with self._lock:  # the lock keeps out groups that are forgotten meanwhile
                before, decision = self._published_estimates.get(key), decisions.get(key)
                if decision is None or decision.verdict is not Verdict.WAITING:
                    continue
                new = self._calibration.correct_forecast(key, new)
                clock_was_set = before is not None and abs(epoch - before.epoch) > _LARGE_SECONDS
                if before is None or clock_was_set or differs_much(before.newest_start, new):
                    rounded = estimate_of(new, epoch)
                    first = new if before is None or not before.first_start.is_known else before.first_start
                    self._published_estimates[key] = _PublishedEstimate(first, new, epoch, rounded)
                    changed_keys.append(key)
                    self.change_count += 1
        for key in changed_keys:
            for listener in self._listeners:
                listener(key)


def differs_much(published: ExpectedStart, new: ExpectedStart) -> bool:
    """Return whether a new estimate differs so much from the published estimate that it is worth a write."""
    if not (published.is_known and new.is_known) or published.method is not new.method:
        return (published.unknown, published.method) != (new.unknown, new.method)
    instants = ((published.p50, new.p50), (published.p90, new.p90))
    return any(abs(a - b) > max(_LARGE_SECONDS, _LARGE_SHARE * (b - new.made_at)) for a, b in instants)


def estimate_of(forecast: ExpectedStart, epoch: float) -> Estimate:
    """Return an expected start in its published form: timestamps, rounded up to coarse steps."""
    if not forecast.is_known:
        return Estimate(unknown_because=forecast.unknown)
    p50, p90 = (timestamp_at(ceil((epoch + at) / _STEP) * _STEP) for at in (forecast.p50, forecast.p90))
    if not p90:
        return Estimate(unknown_because="a declared run time before it ends after the year 9999")
    return Estimate(p50, p90, str(forecast.method))
