"""Barrier: holds bind calls until the whole gang is bound or held, then posts all at once.

This is a Permit stage for stock schedulers. A held call is a coroutine that waits for its Hold, and continues
once, with its result:

    hold ──► complete? ─► last check of every node ─► post in the pool ─► "" or an error
      ├────► the group's start ended (Decisions)   ─► error
      ├────► the caller hung up, the pod is gone   ─► claim freed, nothing is bound
      └────► its deadline, or the process ends     ─► error

A failed call costs the scheduler a patch and seconds of backoff. So only the calls concerned fail, and those
of a large gang not all at the same time: otherwise the scheduler would serve no other pods for a long time.
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
_FAILURES_AT_ONCE = 50  # calls: each failed one costs the scheduler a patch, and retries of refused pods
_FAILURES_PER_SECOND = 100
LAST_REQUEST = 30.0  # seconds that a posting may outlast its hold, while its last request ends
_TOKENS = count(1)

# Messages of refused calls. All are constant: a changed message makes the scheduler try again.
# Answers to filter calls:
NODE_CACHE_NEEDED = f"{REFUSAL_PREFIX}the extender must be configured with nodeCacheCapable: true"
LEFT = f"{REFUSAL_PREFIX}the pod is left to Volcano's own scheduler, which is running"
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
    """Signal to a coroutine, created in the event loop in which the coroutine waits."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._given = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Set the signal once, from any thread; never blocks."""
        with suppress(RuntimeError):  # the loop has ended, and its waiting coroutines with it
            self._loop.call_soon_threadsafe(self._end)

    async def wait(self, seconds: float) -> None:
        """Wait for the signal, for at most so many seconds; one waiter at a time.

        A call would cost more with asyncio.wait.
        """
        if self._given:
            return
        self._waiter = self._loop.create_future()
        timer = self._loop.call_later(max(seconds, 0.0), self._resume)
        try:
            await self._waiter
        finally:
            timer.cancel()

    def _end(self) -> None:
        self._given = True
        self._resume()

    def _resume(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)


class Hold:
    """Held bind call.

    `done` is called once, when there is a result, by the thread that sets it; it must neither block nor
    raise.
    """

    def __init__(
        self,
        pod: PodRecord,
        node: str,
        caller: Caller,
        deadline: float,
        done: Callable[[], object] = lambda: None,
    ) -> None:
        self.pod = pod
        self.node = node
        self.caller = caller
        self.deadline = deadline  # monotonic, in seconds
        self.token = next(_TOKENS)  # of the claim of this call, so that the call releases no other claim
        self.may_be_bound = False  # whether a binding was sent whose outcome is unknown
        self.barred = ""  # text for users: why the API server refuses the binding for good
        self.result: str | None = None  # an error, empty for success; None while there is none
        self._posting = False
        self._guard = threading.Lock()
        self._done = done

    @property
    def waiting(self) -> bool:
        return not self._posting and self.result is None

    def begin_posting(self) -> bool:
        """Return whether posting begins; False if the hold was given up before, or is posted already."""
        with self._guard:
            begins = self.waiting
            self._posting = self._posting or begins
            return begins

    def give_up(self, error: str) -> bool:
        """End a waiting hold; return False if it is posted, or has ended."""
        with self._guard:
            if not self.waiting:
                return False
            self.result = error
        self._done()
        return True

    def finish(self, error: str) -> None:
        """Set the result of its posting; called once."""
        self.result = error
        self._done()


class Barrier:
    """Barrier: at most one held call for each pod; safe in any thread.

    `post` gets calls that may be bound, and finishes each of them; it must not block. A call and its held
    claim change together, under one lock: a thread that sees the claim held also finds the call.
    """

    def __init__(
        self,
        ledger: Ledger,
        post: Callable[[Hold], None],
        longest_hold: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._post = post
        self._longest_hold = longest_hold
        self._clock = clock
        self._lock = threading.Lock()
        self._holds: dict[Uid, Hold] = {}
        self._of_group: dict[GroupKey, dict[Uid, Hold]] = {}  # held calls by group
        self._stopping = False
        self._sweep_at = 0.0
        self._failing: set[GroupKey] = set()  # groups with a failed start and waiting calls
        self._failure_budget = TokenBucket(_FAILURES_PER_SECOND, _FAILURES_AT_ONCE, clock())
        metrics.held_binds.set_function(lambda: len(self._holds))

    async def pass_through(self, pod: PodRecord, node: str, caller: Caller) -> str:
        """Hold a bind call until it is posted or refused. Return the error; empty when the pod is bound.

        The coroutine is cancelled when the caller hangs up: a waiting call then releases its claim.
        """
        ended = Signal()
        hold = Hold(pod, node, caller, self._clock() + self._longest_hold, ended.set)
        with self._lock:
            if self._stopping:
                return STOPPING
            # A refused call does not end the claim of an earlier call for the same pod.
            refused = self._ledger.assumed.hold(pod.uid, node, hold.token)
            if refused is not None:
                return f"{REFUSAL_PREFIX}{refused}"
            before, self._holds[pod.uid] = self._holds.get(pod.uid), hold
            self._of_group.setdefault(pod.group, {})[pod.uid] = hold
        if before is not None:
            before.give_up(SUPERSEDED)
        try:
            self.advance(pod.group)
            await ended.wait(hold.deadline - self._clock())
            self._give_up(hold, TOO_LATE)
            if hold.result is None:
                await ended.wait(LAST_REQUEST)
            return TOO_LATE if hold.result is None else hold.result
        finally:  # a running posting continues, and frees its claim if it fails
            self._give_up(hold, TOO_LATE)
            with self._lock:
                self._forget(hold)

    def advance(self, group: GroupKey) -> None:
        """Post the calls of a group if it is complete now and none of its callers has hung up."""
        if not self._ledger.groups.is_quorate(group):
            return
        for hold in self._waiting_calls(group):
            if hold.caller.has_hung_up():
                self._give_up(hold, ABANDONED)
        # Under the lock no call is given up, so no claim that completes the group is about to end.
        with self._lock:
            confirmation, posting = self._ledger.assumed.confirm(group), []
            for claim in confirmation.lost:
                call = self._holds.get(claim.pod.uid)
                if call and call.token == claim.token:
                    call.give_up(NODE_TAKEN)
            for claim in confirmation.posting:
                call = self._holds.get(claim.pod.uid)
                if call and call.token == claim.token and call.begin_posting():
                    posting.append(call)
                else:  # its call has ended, so nothing would post it
                    self._ledger.assumed.release(claim.pod.uid, claim.token)
        if posting and not self._ledger.groups.needs_no_barrier(group):
            metrics.barrier_releases.inc()
        for hold in posting:
            self._post(hold)

    def on_decisions(self, decisions: Decisions) -> None:
        """Update held calls after new decisions and, at intervals, from their callers and pods."""
        waiting = {hold.pod.group for hold in self._waiting_calls()}
        self._failing &= waiting
        for group in waiting:
            with self._guarded(group):
                decision = decisions.groups.get(group)
                if decision is not None and decision.lets_members_start:
                    self._failing.discard(group)
                    self.advance(group)
                    continue
                held = self._waiting_calls(group)
                if group not in self._failing:
                    reason = decision.reason if decision and decision.reason else Reason.GROUP_NOT_FOUND
                    self._failing.add(group)
                    metrics.barrier_aborts.labels(reason).inc()
                    log.warning("a start was given up", group=group, reason=reason, held=len(held))
                # A limited number of calls at a time, so that the scheduler can process other pods meanwhile.
                for hold in held[: self._failure_budget.take_up_to(self._clock(), len(held))]:
                    self._give_up(hold, START_ENDED)
        if self._clock() >= self._sweep_at:
            self._sweep_at = self._clock() + _SWEEP_PERIOD
            self.sweep()

    def sweep(self) -> None:
        """Give up calls whose caller hung up, or whose pod is gone or bound.

        While others wait, the scheduler is running: if it leaves a member unused, it has a reason.
        """
        for hold in self._waiting_calls():
            with self._guarded(hold.pod.group):
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
        """Answer all waiting calls now, and refuse later ones."""
        self._stopping = True
        for hold in self._waiting_calls():
            self._give_up(hold, STOPPING)

    def release(self, hold: Hold) -> None:
        """Free the claim of a call that led to no binding, even if the call itself has ended meanwhile.

        Where the API server refuses the binding for good, the start of the group has failed.
        """
        if hold.barred:
            self._ledger.assumed.record_binding_refused(hold.pod.uid, hold.barred)
        self._ledger.assumed.release(hold.pod.uid, hold.token)

    def held(self) -> list[Hold]:
        """Return all calls that have not ended, including those being posted."""
        with self._lock:
            return list(self._holds.values())

    def _waiting_calls(self, group: GroupKey | None = None) -> list[Hold]:
        """Return the calls, of one group or of all, that have neither been given up nor posted."""
        with self._lock:
            known = self._holds if group is None else self._of_group.get(group, {})
            return [hold for hold in known.values() if hold.waiting]

    def _forget(self, hold: Hold) -> None:
        """Forget a call, but not a later one for the same pod."""
        uid, group = hold.pod.uid, hold.pod.group
        if self._holds.get(uid) is hold:
            del self._holds[uid]
        of_group = self._of_group.get(group, {})
        if of_group.get(uid) is hold:
            del of_group[uid]
            if not of_group:
                del self._of_group[group]

    def _give_up(self, hold: Hold, error: str) -> None:
        """Answer a waiting call with `error` and free its claim."""
        with self._lock:
            if hold.give_up(error):
                self.release(hold)

    @contextmanager
    def _guarded(self, group: GroupKey) -> Iterator[None]:
        """Limit the errors of calls to their group: other groups are still processed."""
        try:
            yield
        except Exception:
            log.exception("cannot decide on the held calls of a group", group=group)
