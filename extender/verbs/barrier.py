"""The barrier: a bind call is held until the whole gang stands bound or held, then all are posted at once.

This is a Permit stage for stock schedulers. Each held call is woken once, with its verdict:

    hold ──► whole? ──► last check of every node ──► post in the pool ──► "" or an error
      ├────► the group's start ended (Decisions)  ──► error
      ├────► the caller hung up, the pod is gone  ──► claim freed, nothing is bound
      └────► its deadline, or the process ends    ──► error

A failed hold costs the scheduler a patch and seconds of backoff: only the members concerned are failed, and
those of a large gang not all in one moment: the scheduler would serve nobody else for a long time.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from extender.domain.cache.claims import Claim
from extender.domain.cache.ledger import Ledger
from extender.domain.decisions.decisions import Decisions, GroupDecision
from extender.domain.model.reasons import REFUSAL_PREFIX, Reason
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.token_bucket import TokenBucket
from extender.telemetry import metrics
from extender.telemetry.logs import logger
from extender.verbs.hold import BindCaller, Hold
from extender.verbs.messages import (
    ABANDONED,
    BOUND_ELSEWHERE,
    NODE_TAKEN,
    POD_GONE,
    START_ENDED,
    STOPPING,
    SUPERSEDED,
    TOO_LATE,
)

log = logger(__name__)

_SWEEP_PERIOD = 0.5  # seconds
_FAILURES_AT_ONCE = 50  # a failed call costs the scheduler a patch, and everyone that it refused a retry
_FAILURES_PER_SECOND = 100
LAST_ANSWER = 30.0  # seconds that a posting may outlast its hold, while its last request ends


class Barrier:
    """`post` is given holds that may be bound, and finishes each of them; it must not wait."""

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
        self._holds: dict[Uid, Hold] = {}
        self._lock = threading.Lock()
        self._stopping = False
        self._sweep_at = 0.0
        self._failing: set[GroupKey] = set()
        self._pace = TokenBucket(_FAILURES_PER_SECOND, _FAILURES_AT_ONCE, clock())

    def pass_through(self, pod: PodRecord, node: str, caller: BindCaller) -> str:
        """Hold a bind call until its fate is known. Returns the error, empty when the pod is bound."""
        hold = Hold(pod, node, caller, self._clock() + self._longest_hold)
        refused = self._enter(hold)
        if refused:
            return refused
        try:
            self.advance(pod.group)
            if hold.wait(hold.deadline - self._clock()) is None:
                self._give_up(hold, TOO_LATE)
            verdict = hold.wait(LAST_ANSWER)
            return TOO_LATE if verdict is None else verdict
        finally:
            self._leave(hold)

    def advance(self, group: GroupKey) -> None:
        """Let a group go if it stands whole now, and all its callers are still there."""
        if not self._ledger.is_quorate(group):
            return
        self._abandon(hold for hold in self._waiting() if hold.pod.group == group)
        for hold in self._let_go(group):
            self._post(hold)

    def obey(self, decisions: Decisions) -> None:
        """Bring the held calls in line with newly published decisions, and now and then with the world."""
        waiting = self._waiting_groups()
        self._failing &= waiting
        for group in waiting:
            with self._costs_only(group):
                self._obey(group, decisions.groups.get(group))
        if self._clock() >= self._sweep_at:
            self._sweep_at = self._clock() + _SWEEP_PERIOD
            self.sweep()

    def sweep(self) -> None:
        """Let go of holds whose caller hung up or whose pod is gone or bound. The others show that the
        scheduler is there: if it does not ask about a member meanwhile, it has a reason."""
        for hold in self._waiting():
            with self._costs_only(hold.pod.group):
                self._abandon([hold])
                self._look_after(hold)
        if self._waiting():
            self._ledger.note_asked()

    def stop(self) -> None:
        """Answer everything that is held, now; what comes later is refused."""
        self._stopping = True
        for hold in self._waiting():
            self._give_up(hold, STOPPING)

    def release(self, hold: Hold) -> None:
        """Free the claim of a hold that came to nothing, also when its call has ended meanwhile."""
        self._ledger.release(hold.pod.uid, hold.token)

    def held(self) -> list[Hold]:
        """All calls in flight, for those who look."""
        with self._lock:
            return list(self._holds.values())

    # ---- inside

    @contextmanager
    def _costs_only(self, group: GroupKey) -> Iterator[None]:
        """Whatever one group's calls meet, the others have their turn."""
        try:
            yield
        except Exception:
            log.exception("the held calls of a group could not be judged", group=group)

    def _obey(self, group: GroupKey, decision: GroupDecision | None) -> None:
        if decision is not None and decision.lets_members_start:
            self._failing.discard(group)
            self.advance(group)
        else:
            reason = decision.reason if decision and decision.reason else Reason.GROUP_NOT_FOUND
            self._fail_group(group, reason)

    def _look_after(self, hold: Hold) -> None:
        """End a hold whose pod is gone, or bound."""
        pod = self._ledger.pod(hold.pod.uid)
        if pod is None or self._ledger.claim(pod.uid) is None:
            hold.give_up(POD_GONE)
        elif pod.node:
            hold.give_up("" if pod.node == hold.node else BOUND_ELSEWHERE)

    def _enter(self, hold: Hold) -> str:
        """Take up a call, in place of an earlier one for the same pod. The error when it is refused: then the
        earlier one stays, with the claim that is its own.

        Claim and call change together: whoever sees the claim firm finds the call that holds it."""
        uid = hold.pod.uid
        with self._lock:
            if self._stopping:
                return STOPPING
            refused = self._ledger.hold(uid, hold.node, hold.token)
            if refused is not None:
                return f"{REFUSAL_PREFIX}{refused}"
            before = self._holds.get(uid)
            self._holds[uid] = hold
            metrics.held_binds.set(len(self._holds))
        if before is not None:
            before.give_up(SUPERSEDED)
        return ""

    def _leave(self, hold: Hold) -> None:
        """A call ends, however it did. What is posted for it goes on, and frees its claim if it fails."""
        self._give_up(hold, TOO_LATE)
        with self._lock:
            if self._holds.get(hold.pod.uid) is hold:
                del self._holds[hold.pod.uid]
            metrics.held_binds.set(len(self._holds))

    def _let_go(self, group: GroupKey) -> list[Hold]:
        """The holds to be posted now. Nobody is given up meanwhile, so that none of them counts on a claim
        that is about to end."""
        with self._lock:
            confirmation = self._ledger.confirm(group)
            for hold in self._holders(confirmation.lost):
                hold.give_up(NODE_TAKEN)
            going = [hold for hold in self._holders(confirmation.posting) if hold.begin_posting()]
            self._release_but(going, confirmation.posting)
        if going and not self._ledger.waits_for_nobody(group):
            metrics.barrier_releases.inc()
        return going

    def _release_but(self, going: Iterable[Hold], claims: Iterable[Claim]) -> None:
        """Nobody would post what no call holds."""
        tokens = {hold.token for hold in going}
        for claim in claims:
            if claim.token not in tokens:
                self._ledger.release(claim.pod.uid, claim.token)

    def _holders(self, claims: Iterable[Claim]) -> list[Hold]:
        return [
            hold for claim in claims if (hold := self._holds.get(claim.pod.uid)) and hold.token == claim.token
        ]

    def _abandon(self, holds: Iterable[Hold]) -> None:
        for hold in holds:
            if hold.caller.gone():
                self._give_up(hold, ABANDONED)

    def _waiting(self) -> list[Hold]:
        return [hold for hold in self.held() if hold.waiting]

    def _waiting_groups(self) -> set[GroupKey]:
        return {hold.pod.group for hold in self._waiting()}

    def _fail_group(self, group: GroupKey, reason: Reason) -> None:
        """Give up a start, as many calls at a time as the scheduler can digest while it serves others."""
        waiting = [hold for hold in self._waiting() if hold.pod.group == group]
        if group not in self._failing:
            self._failing.add(group)
            metrics.barrier_aborts.labels(reason).inc()
            log.warning("a start was given up", group=group, reason=reason, held=len(waiting))
        for hold in waiting[: self._pace.take_up_to(self._clock(), len(waiting))]:
            self._give_up(hold, START_ENDED)

    def _give_up(self, hold: Hold, error: str) -> None:
        with self._lock:
            if hold.give_up(error):
                self.release(hold)
