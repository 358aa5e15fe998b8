"""gunicorn's threaded worker, but a thread takes a connection itself and stays with it until it ends.

The stock worker hands every request from the thread that polls to one of the pool, and back. A bind call
comes on a connection of its own (Go keeps two that are idle), so that this was a large part of all the time
that Muster had the interpreter, and two more wake-ups in each filter call. Requests are still read and
answered by the stock worker's own code.

A kept-alive connection has a thread here. When the last one is taken, answers say that the connection ends
with them, and those that nobody uses are closed.
"""

import select
import time
from selectors import EVENT_READ
from threading import Lock
from typing import Any, cast

from gunicorn.config import Config
from gunicorn.http.parser import RequestParser
from gunicorn.workers.gthread import TConn, ThreadWorker

_LEAST_IDLE = 4  # threads that wait for a connection; the next one is started when fewer do
_LOOK = 1.0  # seconds between two looks at whether it is time to go
_PATIENCE = 5.0  # seconds between two looks at whether a kept-alive connection keeps others out
_ENDING_LOOK = 0.02


class ConnectionWorker(ThreadWorker):
    """`threads` of the settings is the most connections served at a time; others wait in the backlog."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        _look_up_once(self.cfg)
        self._lock = Lock()
        self._threads = 0
        self._idle = 0  # threads that wait for a connection
        self._busy = 0  # requests being served

    def run(self) -> None:
        """Until told to stop; then until what is being served is answered, or grace is over."""
        told = self.method_queue
        self.poller.register(cast(int, told.fileno()), EVENT_READ, told.run_callbacks)
        self._hire()
        while self.alive and self.is_parent_alive():
            self.wait_for_and_dispatch_events(_LOOK)  # a signal writes to the queue
        self.alive = False
        for listener in self.sockets:
            listener.close()
        deadline = time.monotonic() + self.cfg.graceful_timeout
        while self._busy and time.monotonic() < deadline:
            time.sleep(_ENDING_LOOK)

    # ---- threads

    def _hire(self) -> None:
        """See that enough threads wait for connections, as long as there may be more."""
        with self._lock:
            new = max(min(_LEAST_IDLE - self._idle, self.cfg.threads - self._threads), 0)
            self._threads += new
            self._idle += new
        for _ in range(new):
            self.tpool.submit(self._attend)

    def _attend(self) -> None:
        [listener] = self.sockets
        listener.setblocking(True)
        while self.alive:
            try:
                client, address = listener.accept()
            except OSError:  # the caller is gone already, or there are too many files, or the end has come
                time.sleep(_ENDING_LOOK)
                continue
            self._count_idle(-1)
            self._hire()
            self._serve(TConn(self.cfg, client, address, listener.getsockname()))
            self._count_idle(1)

    def _count_idle(self, more: int) -> None:
        """The stock code keeps connections alive while there are fewer of them than `max_keepalived`."""
        with self._lock:
            self._idle += more
            self.max_keepalived = self._idle + self.cfg.threads - self._threads

    # ---- one connection

    def _serve(self, conn: TConn) -> None:
        """Whatever happens to it, the thread goes on to the next one."""
        try:
            while self._comes(conn) and self._answer(conn):
                pass
            conn.close(graceful=True)
        except Exception:
            self.log.exception("A connection failed")
            conn.close()

    def _answer(self, conn: TConn) -> bool:
        """Serve one request. Whether another may come on this connection."""
        conn.data_ready = True
        with self._lock:
            self._busy += 1
        try:
            return self.handle(conn) is True
        finally:
            with self._lock:
                self._busy -= 1

    def _comes(self, conn: TConn) -> bool:
        """Wait for the next request, for as long as a connection is kept alive."""
        if isinstance(conn.parser, RequestParser) and conn.parser.unreader.buf.getvalue():
            return True
        poll = select.poll()
        poll.register(conn.sock, select.POLLIN)
        patience = self.cfg.keepalive
        while patience > 0 and not (ready := poll.poll(1000 * _PATIENCE)) and self.max_keepalived:
            patience -= _PATIENCE
        return bool(ready)


def _look_up_once(cfg: Config) -> None:
    """A setting is looked up, converted and checked each time it is read, dozens of times a request."""
    vars(cfg).update({name: setting.get() for name, setting in cfg.settings.items()})
