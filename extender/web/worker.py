"""gunicorn's worker process, whose connections are those of a port of ours.

The stock threaded worker hands every request from the thread that polls to one of the pool, and back: a large
part of all the time that Muster had the interpreter. And a request that does not arrive whole keeps a thread
of it. What is gunicorn's here is the process and its signals, the parser and the writer.
"""

import socket
from selectors import EVENT_READ
from typing import Any, cast

from gunicorn.workers.gthread import ThreadWorker

from extender.web.app import LARGEST_BODY
from extender.web.exchange import Exchange
from extender.web.port import PortLimits, Secure, ServedPort

_LOOK = 1.0  # seconds between two looks at whether it is time to go


class ConnectionWorker(ThreadWorker):
    """`threads` of the settings is the most requests served at a time; others wait unread."""

    secure: Secure | None = None

    def run(self) -> None:
        """Until told to stop; then until what is being served is answered, or grace is over."""
        told = self.method_queue
        self.poller.register(cast(int, told.fileno()), EVENT_READ, told.run_callbacks)
        exchange, port = self._open()
        while self.alive and self.is_parent_alive():
            self.wait_for_and_dispatch_events(_LOOK)  # a signal writes to the queue
        exchange.ending = True
        port.stop(self.cfg.graceful_timeout)

    def _open(self) -> tuple[Exchange, ServedPort]:
        [bound] = self.sockets
        listener: socket.socket = cast(Any, bound).sock  # gunicorn's own class is around it
        exchange = Exchange(cast(Any, self.wsgi), listener.getsockname()[:2], self.cfg)
        limits = PortLimits(
            connections=self.cfg.worker_connections,
            threads=self.cfg.threads,
            body=LARGEST_BODY,
            unread=4 * LARGEST_BODY,
        )
        return exchange, ServedPort("verbs", listener, limits, exchange, self.secure)
