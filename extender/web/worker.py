"""gunicorn's worker process, with connections served by a ServedPort.

The stock threaded worker hands every request from the polling thread to a thread of its pool, and back; that
took a large part of Muster's processor time. And an incomplete request occupies one of its threads. Only the
process and its signals, the parser and the writer are gunicorn's.
"""

import socket
from selectors import EVENT_READ
from typing import Any, cast

from gunicorn.workers.gthread import ThreadWorker

from extender.web.app import LARGEST_BODY
from extender.web.exchange import Exchange
from extender.web.port import PortLimits, Secure, ServedPort

_LOOK = 1.0  # seconds between two checks whether the worker has to stop


class ConnectionWorker(ThreadWorker):
    """The setting `threads` limits the requests that are served at the same time; others wait unread."""

    secure: Secure | None = None

    def run(self) -> None:
        """Serve until told to stop, and then until the last answers are sent or the grace is over."""
        signals = self.method_queue
        self.poller.register(cast(int, signals.fileno()), EVENT_READ, signals.run_callbacks)
        exchange, port = self._open()
        while self.alive and self.is_parent_alive():
            self.wait_for_and_dispatch_events(_LOOK)  # a signal writes to the queue
        exchange.ending = True
        port.stop(self.cfg.graceful_timeout)

    def _open(self) -> tuple[Exchange, ServedPort]:
        [bound] = self.sockets
        listener: socket.socket = cast(Any, bound).sock  # inside a class of gunicorn's
        exchange = Exchange(cast(Any, self.wsgi), listener.getsockname()[:2], self.cfg)
        limits = PortLimits(
            connections=self.cfg.worker_connections,
            threads=self.cfg.threads,
            body=LARGEST_BODY,
            unread=4 * LARGEST_BODY,
        )
        return exchange, ServedPort("verbs", listener, limits, exchange, self.secure)
