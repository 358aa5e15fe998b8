"""The barrier: bind calls are held until the whole gang is bound or held, and then all are posted at once.

This is a Permit stage for stock schedulers. A held call is a coroutine that waits for its Hold; it is woken
once, with its result:

    hold ──► whole? ──► last check of every node ──► post in the pool ──► "" or an error
      ├────► the group's start ended (Decisions)  ──► error
      ├────► the caller hung up, the pod is gone  ──► claim freed, nothing is bound
      └────► its deadline, or the process ends    ──► error

A failed call costs the scheduler a patch and seconds of backoff. So only the calls concerned are failed, and
those of a large gang not all at the same time, or the scheduler would serve no other pods for a long time.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from extender.domain.cache.ledger import Ledger
from extender.domain.decisions.decisions import Decisions, GroupDecision
from extender.domain.model.reasons import Reason
from extender.domain.model.records import GroupKey, PodRecord
from extender.domain.model.token_bucket import TokenBucket
from extender.telemetry import metrics
from extender.telemetry.logs import logger
from extender.verbs.held_calls import HeldCalls
from extender.verbs.hold import BindCaller, Hold
from extender.verbs.messages import ABANDONED, BOUND_ELSEWHERE, POD_GONE, START_ENDED, TOO_LATE
from extender.verbs.signal import Signal

log = logger(__name__)

_SWEEP_PERIOD = 0.5  # seconds
_FAILURES_AT_ONCE = 50  # each failed call costs the scheduler a patch, and a retry of the pods it refused
_FAILURES_PER_SECOND = 100
LAST_ANSWER = 30.0  # seconds that a posting may outlast its hold, while its last request ends


class Barrier:
    """`post` is given calls that may be bound, and finishes each of them; it must not block."""

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
        self._calls = HeldCalls(ledger)
        self._sweep_at = 0.0
        self._failing: set[GroupKey] = set()  # groups whose start was given up, while calls of theirs wait
        self._failure_budget = TokenBucket(_FAILURES_PER_SECOND, _FAILURES_AT_ONCE, clock())

    async def pass_through(self, pod: PodRecord, node: str, caller: BindCaller) -> str:
        """Hold a bind call until it is posted or given up. Returns the error, empty when the pod is bound.

        To be cancelled when the caller hangs up: a call that waits then gives its claim back."""
        ended = Signal()
        hold = Hold(pod, node, caller, self._clock() + self._longest_hold, ended.give)
        refused = self._calls.enter(hold)
        if refused:
            return refused
        try:
            self.advance(pod.group)
            await ended.wait(hold.deadline - self._clock())
            self._calls.give_up(hold, TOO_LATE)
            if hold.result is None:
                await ended.wait(LAST_ANSWER)
            return TOO_LATE if hold.result is None else hold.result
        finally:
            self._calls.leave(hold)

    def advance(self, group: GroupKey) -> None:
        """Post the calls of a group if it is whole now and none of its callers has hung up."""
        if not self._ledger.is_quorate(group):
            return
        self._abandon(hold for hold in self._calls.waiting() if hold.pod.group == group)
        posting = self._calls.begin_posting(group)
        if posting and not self._ledger.needs_no_barrier(group):
            metrics.barrier_releases.inc()
        for hold in posting:
            self._post(hold)

    def follow(self, decisions: Decisions) -> None:
        """Bring the held calls in line with newly published decisions, and at intervals with what happened to
        their callers and pods."""
        waiting = self._calls.waiting_groups()
        self._failing &= waiting
        for group in waiting:
            with self._costs_only(group):
                self._follow(group, decisions.groups.get(group))
        if self._clock() >= self._sweep_at:
            self._sweep_at = self._clock() + _SWEEP_PERIOD
            self.sweep()

    def sweep(self) -> None:
        """Give up calls whose caller hung up, or whose pod is gone or bound. The other calls show that the
        scheduler is running: if it leaves a member unused meanwhile, it has a reason."""
        for hold in self._calls.waiting():
            with self._costs_only(hold.pod.group):
                self._abandon([hold])
                self._end_if_settled(hold)
        if self._calls.waiting():
            self._ledger.note_asked()

    def stop(self) -> None:
        """Answer all waiting calls now, and refuse later ones."""
        self._calls.stop()

    def release(self, hold: Hold) -> None:
        """Free the claim of a call that led to no binding, even if the call itself has ended meanwhile."""
        self._calls.release(hold)

    def held(self) -> list[Hold]:
        """All calls that have not ended, for the debug pages."""
        return self._calls.all()

    # ---- inside

    @contextmanager
    def _costs_only(self, group: GroupKey) -> Iterator[None]:
        """If the calls of one group raise, the other groups still have their turn."""
        try:
            yield
        except Exception:
            log.exception("the held calls of a group could not be judged", group=group)

    def _follow(self, group: GroupKey, decision: GroupDecision | None) -> None:
        if decision is not None and decision.lets_members_start:
            self._failing.discard(group)
            self.advance(group)
        else:
            reason = decision.reason if decision and decision.reason else Reason.GROUP_NOT_FOUND
            self._fail_group(group, reason)

    def _end_if_settled(self, hold: Hold) -> None:
        """End a call whose pod is gone, or bound already."""
        pod = self._ledger.pod(hold.pod.uid)
        if pod is None or self._ledger.claim(pod.uid) is None:
            hold.give_up(POD_GONE)
        elif pod.node:
            hold.give_up("" if pod.node == hold.node else BOUND_ELSEWHERE)

    def _abandon(self, holds: Iterable[Hold]) -> None:
        for hold in holds:
            if hold.caller.gone():
                self._calls.give_up(hold, ABANDONED)

    def _fail_group(self, group: GroupKey, reason: Reason) -> None:
        """Give up a start, only as many calls at a time as the scheduler can process while it serves
        others."""
        waiting = [hold for hold in self._calls.waiting() if hold.pod.group == group]
        if group not in self._failing:
            self._failing.add(group)
            metrics.barrier_aborts.labels(reason).inc()
            log.warning("a start was given up", group=group, reason=reason, held=len(waiting))
        for hold in waiting[: self._failure_budget.take_up_to(self._clock(), len(waiting))]:
            self._calls.give_up(hold, START_ENDED)
