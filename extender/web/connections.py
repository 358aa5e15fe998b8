"""All connections of the verbs' port: how many, how long each may wait, and how many bytes they leave unread.

If there are too many connections, one that waits is closed: among those that never had an answer, or
otherwise among all, the one that has waited longest. Well-behaved callers send their request at once, so a
flood of silent connections closes only its own. A connection whose request is being answered does not wait.
"""

from typing import Protocol

from extender.telemetry import metrics

_BEGUN = ("handshake", "head", "body", "answer")  # states in which something has begun and not ended
_AT_A_TIME = 50


class Member(Protocol):
    """One connection, as far as it matters here. `size`: its unread bytes, set only by `Connections`."""

    state: str
    deadline: float
    answered: int
    size: int

    def end(self) -> None:
        """Close it, whatever it does."""


class Connections:
    """`most`: connections. `room`: unread bytes of all. Used only in the event loop."""

    def __init__(self, name: str, most: int, room: int) -> None:
        self._name = name
        self._most = most
        self._room = room
        self._bytes = 0
        self._all: set[Member] = set()
        self._waiting: dict[Member, None] = {}  # the one that has waited longest first

    def admit(self) -> bool:
        """Whether there may be one more; if necessary, another is closed for it."""
        if len(self._all) < self._most:
            return True
        self.count("full")
        if not self._waiting:
            return False
        self.drop(next((each for each in self._waiting if not each.answered), next(iter(self._waiting))))
        return True

    def add(self, member: Member) -> None:
        self._all.add(member)
        self._waiting[member] = None

    def remove(self, member: Member) -> None:
        """For one that has ended; more than once does no harm."""
        self._all.discard(member)
        self._waiting.pop(member, None)
        self.settle(member)

    def wait(self, member: Member) -> None:
        if member in self._all:
            self._waiting[member] = None

    def serve(self, member: Member) -> None:
        self._waiting.pop(member, None)

    def grow(self, member: Member, size: int) -> None:
        """So many bytes more are unread. If there is no room for them, the largest are dropped."""
        member.size += size
        self._bytes += size
        while self._bytes > self._room:
            self.count("memory")
            self.drop(max(self._all, key=lambda each: each.size))

    def settle(self, member: Member) -> None:
        """Nothing of it is unread any more."""
        self._bytes -= member.size
        member.size = 0

    def look(self, now: float) -> bool:
        """Close connections past their deadline, a few at a time; whether there are more."""
        late = [each for each in self._waiting if each.deadline < now]
        for each in late[:_AT_A_TIME]:
            if each.state in _BEGUN:
                self.count(each.state)
            self.drop(each)
        return len(late) > _AT_A_TIME

    def drop_waiting(self) -> None:
        for each in [*self._waiting]:
            self.drop(each)

    @property
    def busy(self) -> bool:
        """Whether a request is being answered."""
        return len(self._all) > len(self._waiting)

    def drop(self, member: Member) -> None:
        self.remove(member)
        member.end()

    def count(self, reason: str) -> None:
        metrics.connections_dropped.labels(self._name, reason).inc()
