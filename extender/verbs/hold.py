"""One held bind call: either it is posted, and the Binder sets its result, or it is given up."""

import threading
from itertools import count
from typing import Protocol

from extender.domain.model.records import PodRecord

_TOKENS = count(1)


class BindCaller(Protocol):
    """The caller of a bind call, waiting for the answer."""

    def gone(self) -> bool:
        """Whether it has hung up."""


class Hold:
    """`deadline` is monotonic, in seconds. `token` marks the claim that this call made firm: it releases no
    other. `may_be_bound`: a binding was sent, and its outcome is unknown."""

    def __init__(self, pod: PodRecord, node: str, caller: BindCaller, deadline: float) -> None:
        self.pod = pod
        self.node = node
        self.caller = caller
        self.deadline = deadline
        self.token = next(_TOKENS)
        self.may_be_bound = False
        self._posting = False
        self._result: str | None = None  # an error, empty for success; None while there is none
        self._guard = threading.Lock()
        self._done = threading.Lock()
        self._done.acquire()

    @property
    def waiting(self) -> bool:
        return not self._posting and self._result is None

    def begin_posting(self) -> bool:
        """False if the hold was given up before, or is posted already."""
        with self._guard:
            begins = self.waiting
            self._posting = self._posting or begins
            return begins

    def give_up(self, error: str) -> bool:
        """End a hold that waits; false if it is posted, or ended before."""
        with self._guard:
            if not self.waiting:
                return False
            self._result = error
        self._done.release()
        return True

    def finish(self, error: str) -> None:
        """Set the result of its posting; called once."""
        self._result = error
        self._done.release()

    def wait(self, seconds: float) -> str | None:
        """The result: an error, empty for success; None if there is none in time."""
        if self._done.acquire(timeout=max(seconds, 0.0)):
            self._done.release()
        return self._result
