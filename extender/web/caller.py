"""The other end of a call that is held open."""

import select

_HUNG_UP: int = getattr(select, "POLLRDHUP", 0)  # only Linux has it


class Caller:
    """The caller that waits for an answer, observed through its connection.

    A scheduler that has given up (its httpTimeout passed, its lease was lost, its process ended) has closed
    the connection, and counts the pod as not placed. Nothing may be bound for it any more.
    """

    def __init__(self, descriptor: int = -1) -> None:
        self.lost = False  # set by the connection's owner before the descriptor is closed
        self._descriptor = descriptor

    def gone(self) -> bool:
        """Whether the caller hung up, even if the connection's owner has not noticed yet. Any thread."""
        # In the end once more: meanwhile the descriptor may have become another connection's.
        return self.lost or self._hangs_up() or self.lost

    def _hangs_up(self) -> bool:
        if self._descriptor < 0 or not _HUNG_UP:
            return False
        poll = select.poll()
        poll.register(self._descriptor, _HUNG_UP)
        return bool(poll.poll(0))
