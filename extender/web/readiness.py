"""Waiting for sockets that have something to read, or room to write, by many threads at once.

A ready socket wakes one thread, and only once: that thread has the socket to itself until it watches it
again. So there is no thread that only hands out work, and none that wakes in vain.
"""

import select
import sys
from contextlib import suppress

if sys.platform == "linux":

    class _Epoll:
        def __init__(self) -> None:
            self._poll = select.epoll()

        def watch(self, descriptor: int, *, once: bool = True, writing: bool = False) -> None:
            """Without `once`, a ready descriptor wakes every thread, every time."""
            wanted = select.EPOLLOUT if writing else select.EPOLLIN
            events = wanted | (select.EPOLLONESHOT if once else 0)
            try:
                self._poll.modify(descriptor, events)
            except FileNotFoundError:
                self._poll.register(descriptor, events)

        def wait(self, seconds: float) -> int | None:
            """One descriptor that is ready, or None after so long."""
            found = self._poll.poll(seconds, 1)
            return found[0][0] if found else None

        def close(self) -> None:
            self._poll.close()

    Readiness = _Epoll

else:  # macOS and the BSDs, for `muster run`

    class _Kqueue:
        def __init__(self) -> None:
            self._queue = select.kqueue()

        def watch(self, descriptor: int, *, once: bool = True, writing: bool = False) -> None:
            """Without `once`, a ready descriptor wakes every thread, every time."""
            wanted = select.KQ_FILTER_WRITE if writing else select.KQ_FILTER_READ
            flags = select.KQ_EV_ADD | (select.KQ_EV_ONESHOT if once else 0)
            self._queue.control([select.kevent(descriptor, wanted, flags)], 0)

        def wait(self, seconds: float) -> int | None:
            """One descriptor that is ready, or None after so long."""
            found = self._queue.control(None, 1, seconds)
            return found[0].ident if found else None

        def close(self) -> None:
            with suppress(OSError):
                self._queue.close()

    Readiness = _Kqueue
