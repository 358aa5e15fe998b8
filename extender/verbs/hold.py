"""One bind call that waits: either it is posted, and its poster says how that went, or it is given up."""

import threading
from itertools import count
from typing import Protocol

from extender.domain.model.records import PodRecord

_TOKENS = count(1)


class BindCaller(Protocol):
    """The caller of a bind call, which waits for its answer."""

    def gone(self) -> bool: ...


class Hold:
    """`deadline` is monotonic, in seconds. `token` is that of the claim which this call made firm: none but
    its own is released for it. `may_be_bound`: a binding was sent, and nobody knows what became of it."""

    def __init__(self, pod: PodRecord, node: str, caller: BindCaller, deadline: float) -> None:
        self.pod = pod
        self.node = node
        self.caller = caller
        self.deadline = deadline
        self.token = next(_TOKENS)
        self.may_be_bound = False
        self._posting = False
        self._verdict: str | None = None
        self._guard = threading.Lock()
        self._done = threading.Lock()
        self._done.acquire()

    @property
    def waiting(self) -> bool:
        return not self._posting and self._verdict is None

    def begin_posting(self) -> bool:
        """False when the hold was given up before, or is posted already."""
        with self._guard:
            begins = self.waiting
            self._posting = self._posting or begins
            return begins

    def give_up(self, error: str) -> bool:
        """End a hold that waits; false when it is posted, or ended before."""
        with self._guard:
            if not self.waiting:
                return False
            self._verdict = error
        self._done.release()
        return True

    def finish(self, error: str) -> None:
        """The outcome of its posting, said once."""
        self._verdict = error
        self._done.release()

    def wait(self, seconds: float) -> str | None:
        """The verdict: an error, empty for success; None when it did not come in time."""
        if self._done.acquire(timeout=max(seconds, 0.0)):
            self._done.release()
        return self._verdict
