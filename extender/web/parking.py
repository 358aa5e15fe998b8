"""Connections that wait for the rest of a request, or for their answer to be read: how many, and how long.

If there are too many connections, one that waits here is closed: among those that never had an answer, or
otherwise among all, the one that has waited longest. Well-behaved callers send their request at once, so a
flood of silent connections closes only its own.
"""

from collections import OrderedDict
from threading import Lock

from extender.telemetry import metrics
from extender.web.connection import CallerConnection
from extender.web.readiness import Readiness

PERIOD = 1.0  # seconds between two looks at deadlines
_SOON = 0.01  # the same, while more connections are past their deadline than are closed at a time
_AT_A_TIME = 50
_BEGUN = ("handshake", "head", "body", "answer")  # states in which something has begun and not ended


class Parking:
    """`most`: connections, including those being served. `room`: bytes of all that wait.

    A connection belongs to the thread that admitted or took it, until that thread parks it again or lets it
    go."""

    def __init__(self, name: str, readiness: Readiness, most: int, room: int) -> None:
        self._name = name
        self._readiness = readiness
        self._most = most
        self._room = room
        self._lock = Lock()  # guards everything below
        self._parked = OrderedDict[int, CallerConnection]()  # by descriptor, the one parked last at the end
        self._bytes = 0  # of all parked connections
        self._open = 0  # connections, parked or being served
        self._closed = False
        self.next_look = 0.0  # when deadlines are checked next

    def admit(self) -> bool:
        """Whether there may be one more connection; if necessary, another is closed for it."""
        with self._lock:
            if self._open >= self._most:
                self._count("full")
                if not self._parked:
                    return False
                parked = self._parked.values()
                self._drop(next((each for each in parked if not each.answered), next(iter(parked))))
            self._open += 1
            return True

    def take(self, descriptor: int) -> CallerConnection | None:
        """Take a parked connection in order to serve it; None: it was closed meanwhile."""
        with self._lock:
            connection = self._parked.pop(descriptor, None)
            if connection:
                self._bytes -= connection.size
            return connection

    def park(self, connection: CallerConnection) -> None:
        with self._lock:
            if self._closed:
                self._open -= 1
                return connection.close()
            self._parked[connection.sock.fileno()] = connection
            self._bytes += connection.size
            self._readiness.watch(connection.sock.fileno(), writing=connection.sending)
            while self._bytes > self._room:
                self._count("memory")
                self._drop(max(self._parked.values(), key=lambda each: each.size))

    def let_go(self, connection: CallerConnection) -> None:
        with self._lock:
            self._open -= 1
        connection.close()

    def look(self, now: float) -> None:
        """Close connections past their deadline, only a few at a time, since other threads wait for the
        lock."""
        if now < self.next_look:
            return
        with self._lock:
            late = [each for each in self._parked.values() if each.deadline < now]
            self.next_look = now + (_SOON if len(late) > _AT_A_TIME else PERIOD)
            for connection in late[:_AT_A_TIME]:
                if connection.state in _BEGUN:
                    self._count(connection.state)
                self._drop(connection)

    def close(self) -> None:
        """Close all parked connections, and from now on each that is to be parked."""
        with self._lock:
            self._closed = True
            for connection in [*self._parked.values()]:
                self._drop(connection)

    def _drop(self, connection: CallerConnection) -> None:
        """Close a parked connection; called under the lock."""
        del self._parked[connection.sock.fileno()]
        self._bytes -= connection.size
        self._open -= 1
        connection.close()

    def _count(self, reason: str) -> None:
        metrics.connections_dropped.labels(self._name, reason).inc()
