"""One held bind call: either it is posted, and the Binder sets its result, or it is given up."""

import threading
from collections.abc import Callable
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
    other. `may_be_bound`: a binding was sent, and its outcome is unknown. `done` is called once, when there
    is a result, by the thread that sets it; it must neither block nor raise."""

    def __init__(
        self,
        pod: PodRecord,
        node: str,
        caller: BindCaller,
        deadline: float,
        done: Callable[[], object] = lambda: None,
    ) -> None:
        self.pod = pod
        self.node = node
        self.caller = caller
        self.deadline = deadline
        self.token = next(_TOKENS)
        self.may_be_bound = False
        self.result: str | None = None  # an error, empty for success; None while there is none
        self._posting = False
        self._guard = threading.Lock()
        self._done = done

    @property
    def waiting(self) -> bool:
        return not self._posting and self.result is None

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
            self.result = error
        self._done()
        return True

    def finish(self, error: str) -> None:
        """Set the result of its posting; called once."""
        self.result = error
        self._done()
