"""A port that no caller can block: only complete requests occupy threads, not connections.

All threads of a port wait for all of its connections. The thread that is woken reads what has arrived,
without blocking; if the request is complete, the same thread answers it, otherwise the connection is parked
again. So a request costs one wake-up, and a thousand callers that fall silent cost only memory, which is
bounded as well.
"""

import os
import socket
import ssl
import time
from collections.abc import Callable
from threading import Condition, Thread
from typing import NamedTuple

from werkzeug.exceptions import HTTPException

from extender.telemetry.logs import logger
from extender.web.connection import CallerConnection, Patience
from extender.web.parking import PERIOD, Parking
from extender.web.readiness import Readiness

_LEAST_IDLE = 4  # waiting threads; if there are fewer, new ones are started
_MOST_IDLE = 8  # waiting threads; further ones end once they have had nothing to do for a while
_PAUSE = 0.02  # seconds, after a connection could not be accepted

log = logger(__name__)

Answer = Callable[[CallerConnection, bytes], tuple[bytes, bool]]  # and whether another request may follow
Secure = Callable[[], ssl.SSLContext | None]  # None: there is no certificate yet


class PortLimits(NamedTuple):
    """What the callers of a port may use at most."""

    connections: int  # open at the same time
    threads: int  # requests that are answered at the same time
    body: int  # bytes of one request
    unread: int  # bytes of all incomplete requests, and of answers that callers have not read
    patience: Patience = Patience()


class ServedPort:
    """Serves `listener` from its creation on."""

    def __init__(
        self,
        name: str,
        listener: socket.socket,
        limits: PortLimits,
        answer: Answer,
        secure: Secure | None = None,
    ) -> None:
        self._name = name
        self._listener = listener
        self._limits = limits
        self._answer = answer
        self._secure = secure
        self._readiness = Readiness()
        self._parking = Parking(name, self._readiness, limits.connections, limits.unread)
        self._changed = Condition()  # its lock guards the next four
        self._threads = self._idle = self._busy = 0
        self._stopping = False
        self._end, self._ending = os.pipe()  # closing `_ending` wakes all threads
        self._readiness.watch(self._end, once=False)
        listener.setblocking(False)
        self._listen_on()
        self._hire()

    def stop(self, grace: float) -> None:
        """Take no new request, and wait at most `grace` seconds for answers to complete ones."""
        with self._changed:
            if self._stopping:
                return
            self._stopping = True
            self._listener.close()
            os.close(self._ending)
        self._parking.close()
        with self._changed:
            self._changed.wait_for(lambda: not self._busy, grace)

    # ---- threads

    def _hire(self) -> None:
        """Start threads until enough of them wait, or there may be no more."""
        with self._changed:
            new = max(min(_LEAST_IDLE - self._idle, self._limits.threads - self._threads), 0)
            self._threads += new
            self._idle += new
        for _ in range(new):
            Thread(target=self._attend, name=self._name, daemon=True).start()

    def _attend(self) -> None:
        descriptor: int | None = -1
        while not self._leaves(had_nothing=descriptor is None):
            patience = min(PERIOD, max(0.0, self._parking.next_look - time.monotonic()))
            descriptor = self._readiness.wait(patience)
            if descriptor == self._listener.fileno():
                self._accept()
            elif descriptor is not None and (connection := self._parking.take(descriptor)):
                self._serve(connection)
            self._parking.look(time.monotonic())

    def _leaves(self, had_nothing: bool) -> bool:
        """Whether this thread ends; the last thread of a stopped port also releases what they shared."""
        with self._changed:
            if not self._stopping and not (had_nothing and self._idle > _MOST_IDLE):
                return False
            self._idle -= 1
            self._threads -= 1
            if not self._threads:
                self._readiness.close()
                os.close(self._end)
            return True

    # ---- connections

    def _accept(self) -> None:
        try:
            sock, client = self._listener.accept()
        except OSError:  # the caller is gone, there are too many open files, or the port is stopped
            time.sleep(_PAUSE)
            return self._listen_on()
        self._listen_on()
        try:
            sock = self._secured(sock)
            connection = CallerConnection(
                sock, client, self._limits.body, self._limits.patience, time.monotonic()
            )
        except OSError:
            return sock.close()
        if self._parking.admit():
            self._serve(connection)
        else:
            connection.close()

    def _listen_on(self) -> None:
        with self._changed:
            if not self._stopping:
                self._readiness.watch(self._listener.fileno())

    def _secured(self, sock: socket.socket) -> socket.socket:
        """The socket, with TLS if the port has it. Raises an OSError."""
        if self._secure is None:
            return sock
        if (context := self._secure()) is None:
            raise ssl.SSLError("no certificate yet")
        sock.setblocking(False)
        return context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)

    # ---- requests

    def _serve(self, connection: CallerConnection) -> None:
        """Answer all complete requests of a connection. Whatever happens, the thread goes on to the next
        one."""
        try:
            while connection.flush(time.monotonic()) and (request := connection.receive(time.monotonic())):
                self._respond(connection, request)
            return self._parking.park(connection)
        except HTTPException as fault:
            return self._refuse(connection, fault)
        except OSError as fault:
            log.debug("a connection ended", port=self._name, error=str(fault))
        except Exception:
            log.exception("a connection failed", port=self._name)
        self._parking.let_go(connection)

    def _respond(self, connection: CallerConnection, request: bytes) -> None:
        """Raises HTTPException, and OSError if the connection has ended."""
        with self._changed:
            self._idle -= 1
            self._busy += 1
        self._hire()
        try:
            answer, more = self._answer(connection, request)
            connection.answer(answer, time.monotonic(), last=self._stopping or not more)
            connection.flush(time.monotonic())
        finally:
            with self._changed:
                self._idle += 1
                self._busy -= 1
                self._changed.notify_all()

    def _refuse(self, connection: CallerConnection, fault: HTTPException) -> None:
        try:
            connection.refuse(fault, time.monotonic())
        except OSError:
            self._parking.let_go(connection)
        else:
            self._parking.park(connection)
