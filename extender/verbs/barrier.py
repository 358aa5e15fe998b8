"""Barrier: holds bind calls until every pod of the gang is bound or has a held call, then posts all bindings.

This gives an unchanged kube-scheduler a Permit stage. A held call is a coroutine that waits for the result of
its Hold, and then ends:

    hold ──► complete? ─► last check of every node ─► post in the pool ─► "" or an error
      ├────► the group's start ended (Decisions)   ─► error
      ├────► the caller hung up, the pod is gone   ─► claim freed, nothing is bound
      └────► its deadline, or the process ends     ─► error

A failed call costs the scheduler a patch and seconds of backoff. Therefore only the calls concerned fail. The
calls of a large gang do not all fail at the same time, since otherwise the scheduler would serve no other
pods for a long time.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count

from extender.domain.ledger.ledger import Ledger
from extender.domain.model.reasons import REFUSAL_PREFIX, Reason
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.snapshot.decisions import Decisions
from extender.kube.writers import TokenBucket
from extender.ports.connection import Caller
from extender.telemetry import metrics
from extender.telemetry.logs import logger

log = logger(__name__)

_SWEEP_PERIOD = 0.5  # seconds
_FAILURE_BURST = 50  # each failed call costs the scheduler a patch, and retries of refused pods
_FAILURE_RATE = 100
LAST_TIMEOUT = 30.0  # seconds for the last request of a posting after the deadline of its hold
_tokens = count(1)

# Messages of refused calls. They are constant, because a changed message makes the scheduler try again.
# Answers to filter calls:
NODE_CACHE_NEEDED = f"{REFUSAL_PREFIX}the extender must be configured with nodeCacheCapable: true"
LEFT_TO_VOLCANO = f"{REFUSAL_PREFIX}the pod is left to Volcano's own scheduler, which is running"
# Answers to bind calls that are not held:
ALREADY_BOUND = f"{REFUSAL_PREFIX}the pod is already bound"
ANOTHER_UID = f"{REFUSAL_PREFIX}the pod was replaced by another of the same name"
NOT_OURS = f"{REFUSAL_PREFIX}the pod is not managed by Muster"
NOT_SEEN = f"{REFUSAL_PREFIX}{Reason.NOT_READY}"
UNKNOWN_NODE = f"{REFUSAL_PREFIX}the node is unknown"
UNREADABLE = f"{REFUSAL_PREFIX}the pod could not be read"
UNSUITABLE_NODE = f"{REFUSAL_PREFIX}the node's labels or taints do not admit the pod"
# Answers to bind calls while they are held:
ABANDONED = f"{REFUSAL_PREFIX}the caller hung up"
NODE_TAKEN = f"{REFUSAL_PREFIX}the node was taken before the group was complete"
START_ENDED = f"{REFUSAL_PREFIX}the start of the group was given up"
STOPPING = f"{REFUSAL_PREFIX}Muster is stopping"
SUPERSEDED = f"{REFUSAL_PREFIX}another bind call came for the same pod"
TOO_LATE = f"{REFUSAL_PREFIX}the group was not complete in time"
# Answers to bind calls once they are posted:
BOUND_ELSEWHERE = f"{REFUSAL_PREFIX}the pod is already bound to another node"
POD_GONE = f"{REFUSAL_PREFIX}the pod is gone"
POSTING_FAILED = f"{REFUSAL_PREFIX}the binding failed"


class Signal:
    """Signal to a coroutine. It is created in the event loop in which the coroutine waits."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Set the signal. Safe to call from any thread; never blocks."""
        with suppress(RuntimeError):  # the loop and its waiting coroutines have ended
            self._loop.call_soon_threadsafe(self._end)

    async def wait(self, seconds: float) -> None:
        """Wait until the signal is set, for at most this number of seconds. Only one coroutine may wait.

        With asyncio.wait, a call would cost more.
        """
        if self._is_set:
            return
        self._waiter = self._loop.create_future()
        timer = self._loop.call_later(max(seconds, 0.0), self._resume)
        try:
            await self._waiter
        finally:
            timer.cancel()

    def _end(self) -> None:
        self._is_set = True
        self._resume()

    def _resume(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)


class Hold:
    """Held bind call.

    `on_end` is called once, by the thread that sets the result. It must neither block nor raise.
    """

    def __init__(
        self,
        pod: PodRecord,
        node: str,
        caller: Caller,
        deadline: float,
        on_end: Callable[[], object] = lambda: None,
    ) -> None:
        self.pod = pod
        self.node = node
        self.caller = caller
        self.deadline = deadline  # monotonic time, in seconds
        self.token = next(_tokens)  # token of the claim, so that the call releases no other claim
        self.may_be_bound = False  # whether the outcome of a sent binding is unknown
        self.refusal = ""  # why the API server refuses the binding for good, as a text for users
        self.result: str | None = None  # an error, or empty after success; None before the end
        self._is_posted = False
        self._lock = threading.Lock()
        self._on_end = on_end

    @property
    def is_waiting(self) -> bool:
        """Return whether the call still waits, neither posted nor ended."""
        return not self._is_posted and self.result is None

    def begin_posting(self) -> bool:
        """Begin the posting of a waiting call; return False if the call was posted or has ended."""
        with self._lock:
            may_begin = self.is_waiting
            self._is_posted = self._is_posted or may_begin
            return may_begin

    def give_up(self, error: str) -> bool:
        """End a waiting call with an error; return False if the call was posted or has ended."""
        with self._lock:
            if not self.is_waiting:
                return False
            self.result = error
        self._on_end()
        return True

    def finish(self, error: str) -> None:
        """Set the result of the posting. Called once."""
        self.result = error
        self._on_end()


class Barrier:
    """Barrier with at most one held call for each pod. Safe to use from any thread.

    `post` gets each call whose pod is to be bound, and finishes the call; it must not block. A call and its
    claim change together under one lock, so a thread that sees a held claim also finds the call.
    """

    def __init__(
        self,
        ledger: Ledger,
        post: Callable[[Hold], None],
        max_hold_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._post = post
        self._max_hold_seconds = max_hold_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._holds: dict[Uid, Hold] = {}
        self._calls_by_group: dict[GroupKey, dict[Uid, Hold]] = {}  # held calls by group
        self._is_stopping = False
        self._next_sweep_at = 0.0
        self._failing_groups: set[GroupKey] = set()  # groups with a failed start whose calls still wait
        self._failure_budget = TokenBucket(_FAILURE_RATE, _FAILURE_BURST, clock())
        metrics.held_binds.set_function(lambda: len(self._holds))

    async def pass_through(self, pod: PodRecord, node: str, caller: Caller) -> str:
        """Hold a bind call until it is posted or refused. Return the error; empty if the pod is bound.

        The coroutine is cancelled when the caller hangs up. A waiting call then frees its claim.
        """
        end_signal = Signal()
        hold = Hold(pod, node, caller, self._clock() + self._max_hold_seconds, end_signal.set)
        with self._lock:
            if self._is_stopping:
                return STOPPING
            # A refused call does not end the claim of an earlier call for the same pod.
            refusal = self._ledger.assumed_pods.hold(pod.uid, node, hold.token)
            if refusal is not None:
                return f"{REFUSAL_PREFIX}{refusal}"
            old_call, self._holds[pod.uid] = self._holds.get(pod.uid), hold
            self._calls_by_group.setdefault(pod.group, {})[pod.uid] = hold
        if old_call is not None:
            old_call.give_up(SUPERSEDED)
        try:
            self.advance(pod.group)
            await end_signal.wait(hold.deadline - self._clock())
            self._give_up(hold, TOO_LATE)
            if hold.result is None:
                await end_signal.wait(LAST_TIMEOUT)
            return TOO_LATE if hold.result is None else hold.result
        finally:  # a posting that is running continues, and frees its claim if it fails
            self._give_up(hold, TOO_LATE)
            with self._lock:
                self._forget(hold)

    def advance(self, group: GroupKey) -> None:
        """Post the calls of a group, if the group is complete and no caller has hung up."""
        if not self._ledger.groups.is_quorate(group):
            return
        for hold in self._waiting_calls(group):
            if hold.caller.has_hung_up():
                self._give_up(hold, ABANDONED)
        # Under the lock, no call is given up, so no claim that the group needs is about to end.
        with self._lock:
            confirmation, posted_calls = self._ledger.assumed_pods.confirm(group), []
            for claim in confirmation.lost_claims:
                call = self._holds.get(claim.pod.uid)
                if call and call.token == claim.token:
                    call.give_up(NODE_TAKEN)
            for claim in confirmation.claims_to_post:
                call = self._holds.get(claim.pod.uid)
                if call and call.token == claim.token and call.begin_posting():
                    posted_calls.append(call)
                else:  # the call has ended, so nothing would post the claim
                    self._ledger.assumed_pods.release(claim.pod.uid, claim.token)
        if posted_calls and not self._ledger.groups.needs_no_barrier(group):
            metrics.barrier_releases.inc()
        for hold in posted_calls:
            self._post(hold)

    def on_decisions(self, decisions: Decisions) -> None:
        """Post or fail held calls after new decisions; at intervals, look at their callers and pods."""
        waiting_groups = {hold.pod.group for hold in self._waiting_calls()}
        self._failing_groups &= waiting_groups
        for group in waiting_groups:
            with self._logging_errors(group):
                decision = decisions.groups.get(group)
                if decision is not None and decision.lets_members_start:
                    self._failing_groups.discard(group)
                    self.advance(group)
                    continue
                calls = self._waiting_calls(group)
                if group not in self._failing_groups:
                    reason = decision.reason if decision and decision.reason else Reason.GROUP_NOT_FOUND
                    self._failing_groups.add(group)
                    metrics.barrier_aborts.labels(reason).inc()
                    log.warning("a start was given up", group=group, reason=reason, held=len(calls))
                # Only a limited number of calls fail at a time, so that the scheduler can serve other pods.
                for hold in calls[: self._failure_budget.take_up_to(self._clock(), len(calls))]:
                    self._give_up(hold, START_ENDED)
        if self._clock() >= self._next_sweep_at:
            self._next_sweep_at = self._clock() + _SWEEP_PERIOD
            self.sweep()

    def sweep(self) -> None:
        """Give up calls whose caller has hung up, or whose pod is gone or bound.

        A waiting call counts as a recent call of the scheduler, because the scheduler waits for its answer.
        """
        for hold in self._waiting_calls():
            with self._logging_errors(hold.pod.group):
                if hold.caller.has_hung_up():
                    self._give_up(hold, ABANDONED)
                pod = self._ledger.pods.get(hold.pod.uid)
                if pod is None or self._ledger.claims.get(pod.uid) is None:
                    hold.give_up(POD_GONE)
                elif pod.node:
                    hold.give_up("" if pod.node == hold.node else BOUND_ELSEWHERE)
        if self._waiting_calls():
            self._ledger.record_scheduler_call()

    def stop(self) -> None:
        """Answer all waiting calls, and refuse later calls."""
        self._is_stopping = True
        for hold in self._waiting_calls():
            self._give_up(hold, STOPPING)

    def release(self, hold: Hold) -> None:
        """Free the claim of a call that led to no binding, even if the call has ended meanwhile.

        If the API server refuses the binding for good, record that the start of the group has failed.
        """
        if hold.refusal:
            self._ledger.assumed_pods.record_binding_refused(hold.pod.uid, hold.refusal)
        self._ledger.assumed_pods.release(hold.pod.uid, hold.token)

    def held_calls(self) -> list[Hold]:
        """Return all calls that have not ended, including calls that are being posted."""
        with self._lock:
            return list(self._holds.values())

    def _waiting_calls(self, group: GroupKey | None = None) -> list[Hold]:
        """Return the calls of a group that are neither posted nor ended; None means all groups."""
        with self._lock:
            calls = self._holds if group is None else self._calls_by_group.get(group, {})
            return [hold for hold in calls.values() if hold.is_waiting]

    def _forget(self, hold: Hold) -> None:
        """Forget a call, but not a later call for the same pod."""
        uid, group = hold.pod.uid, hold.pod.group
        if self._holds.get(uid) is hold:
            del self._holds[uid]
        calls = self._calls_by_group.get(group, {})
        if calls.get(uid) is hold:
            del calls[uid]
            if not calls:
                del self._calls_by_group[group]

    def _give_up(self, hold: Hold, error: str) -> None:
        """Answer a waiting call with `error`, and free its claim."""
        with self._lock:
            if hold.give_up(error):
                self.release(hold)

    @contextmanager
    def _logging_errors(self, group: GroupKey) -> Iterator[None]:
        """Log an exception in the calls of a group, so that other groups are still processed."""
        try:
            yield
        except Exception:
            log.exception("cannot decide on the held calls of a group", group=group)
