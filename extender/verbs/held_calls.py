"""The bind calls that are held, in step with the claims of their pods.

A call and the claim that it made firm change together, under one lock: a thread that sees the claim firm also
finds the call that holds it.
"""

import threading
from collections.abc import Iterable

from extender.domain.cache.claims import Claim
from extender.domain.cache.ledger import Ledger
from extender.domain.model.reasons import REFUSAL_PREFIX
from extender.domain.model.records import GroupKey, Uid
from extender.telemetry import metrics
from extender.verbs.hold import Hold
from extender.verbs.messages import NODE_TAKEN, STOPPING, SUPERSEDED, TOO_LATE


class HeldCalls:
    """At most one call for each pod. Safe to use from any thread."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._holds: dict[Uid, Hold] = {}
        self._lock = threading.Lock()
        self._stopping = False

    def all(self) -> list[Hold]:
        """All calls that have not ended, those being posted included."""
        with self._lock:
            return list(self._holds.values())

    def waiting(self) -> list[Hold]:
        """The calls that have neither been given up nor posted."""
        return [hold for hold in self.all() if hold.waiting]

    def waiting_groups(self) -> set[GroupKey]:
        return {hold.pod.group for hold in self.waiting()}

    def enter(self, hold: Hold) -> str:
        """Take in a call, in place of an earlier one for the same pod. Returns the error if it is refused:
        then the earlier call stays, with its claim."""
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

    def leave(self, hold: Hold) -> None:
        """A call ends, in whatever way. If it is being posted, the posting goes on, and frees its claim if it
        fails."""
        self.give_up(hold, TOO_LATE)
        with self._lock:
            if self._holds.get(hold.pod.uid) is hold:
                del self._holds[hold.pod.uid]
            metrics.held_binds.set(len(self._holds))

    def begin_posting(self, group: GroupKey) -> list[Hold]:
        """The calls of a whole group that are to be posted now. None is given up meanwhile, so the group is
        not counted whole with a claim that is about to end."""
        with self._lock:
            confirmation = self._ledger.confirm(group)
            for hold in self._of(confirmation.lost):
                hold.give_up(NODE_TAKEN)
            posting = [hold for hold in self._of(confirmation.posting) if hold.begin_posting()]
            self._release_others(confirmation.posting, posting)
        return posting

    def give_up(self, hold: Hold, error: str) -> None:
        """Answer a waiting call with `error` and free its claim."""
        with self._lock:
            if hold.give_up(error):
                self.release(hold)

    def release(self, hold: Hold) -> None:
        """Free the claim of a call that led to no binding, even if the call itself has ended meanwhile."""
        self._ledger.release(hold.pod.uid, hold.token)

    def stop(self) -> None:
        """Answer all waiting calls now, and refuse later ones."""
        self._stopping = True
        for hold in self.waiting():
            self.give_up(hold, STOPPING)

    # ---- inside

    def _of(self, claims: Iterable[Claim]) -> list[Hold]:
        return [
            hold for claim in claims if (hold := self._holds.get(claim.pod.uid)) and hold.token == claim.token
        ]

    def _release_others(self, claims: Iterable[Claim], posting: Iterable[Hold]) -> None:
        """Release claims that were confirmed but whose call has ended: nothing would post them."""
        tokens = {hold.token for hold in posting}
        for claim in claims:
            if claim.token not in tokens:
                self._ledger.release(claim.pod.uid, claim.token)
