"""Limits of every port: the number of connections, how long each may wait, and how many bytes may be unread.

If there are too many connections, in all or from one address, one that waits for a request is closed: the one
that has waited longest without any answer yet or, if all have had answers, the one that has waited longest.
So a flood of silent connections closes only connections of the flood.
"""

import asyncio
from collections import Counter, deque
from typing import NamedTuple, Protocol

from extender.telemetry import metrics

NEVER = float("inf")
LARGEST_HEAD = 64 * 1024  # bytes
_BEGUN = ("handshake", "head", "body", "answer")  # states in which something has begun and not ended
_AT_A_TIME = 50  # late connections that one check closes


class Timeouts(NamedTuple):
    """Timeouts of the states of a connection, in seconds."""

    handshake: float = 5.0  # of a TLS handshake
    idle: float = 120.0  # above the 90 s of Go's transport: if the server closes first, a POST may fail
    head: float = 5.0  # from its first byte to its end
    body: float = 10.0  # from the end of the head until the request is served
    answer: float = 30.0  # until the caller has read it
    discard: float = 2.0  # after a refusal, while the caller still sends

    @property
    def streams(self) -> bool:
        """Return whether answers are streams without a time limit, which are served even if unread."""
        return self.answer == NEVER


TIMEOUTS = Timeouts()


class ConnectionLimits(NamedTuple):
    """Limits of the callers of a port."""

    connections: int  # open at the same time
    body: int  # bytes of one request
    unread: int  # bytes of all requests that are not served yet, and of answers that callers have not read
    timeouts: Timeouts = TIMEOUTS
    head: int = LARGEST_HEAD  # bytes
    line: int = 4094  # bytes of the request's first line
    field: int = 8190  # bytes of one header
    fields: int = 100
    chunks: bool = False  # whether a body may come in chunks
    per_address: int = 0  # connections from one address, which callers may share; 0: no separate limit


class Member(Protocol):
    """Connection, as far as the limits need it. `size`: its unread bytes, set only by `Connections`."""

    state: str
    deadline: float
    answered: int
    size: int
    address: str  # of the caller

    def end(self) -> None:
        """Close the connection in any state."""


class Connections:
    """All connections of one port. Used only in the event loop."""

    def __init__(self, name: str, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._name = name
        self._bytes = 0
        self._all: set[Member] = set()
        self._count_by_address: Counter[str] = Counter()
        self._waiting: dict[Member, None] = {}  # the longest waiting one first

    def admit(self, address: str = "") -> bool:
        """Return whether this address may have one more connection.

        If necessary, another connection is closed for it.
        """
        is_address_full = 0 < self.limits.per_address <= self._count_by_address[address]
        if not is_address_full and len(self._all) < self.limits.connections:
            return True
        self.count("full")
        waiting = [member for member in self._waiting if not is_address_full or member.address == address]
        if not waiting:
            return False
        self.drop(next((member for member in waiting if not member.answered), waiting[0]))
        return True

    def add(self, member: Member) -> None:
        self._all.add(member)
        self._count_by_address[member.address] += 1
        self._waiting[member] = None

    def remove(self, member: Member) -> None:
        """Remove an ended connection, if it is not removed yet."""
        if member in self._all:
            self._all.remove(member)
            self._count_by_address[member.address] -= 1
            if not self._count_by_address[member.address]:
                del self._count_by_address[member.address]
        self._waiting.pop(member, None)
        self.forget_unread(member)

    def wait(self, member: Member) -> None:
        if member in self._all:
            self._waiting[member] = None

    def serve(self, member: Member) -> None:
        """Record that a connection is served: it does not wait, and has no unread bytes."""
        self._waiting.pop(member, None)
        self.forget_unread(member)

    def grow(self, member: Member, size: int) -> None:
        """Count more unread bytes. Beyond the limit, the largest connections are dropped."""
        if member not in self._all:
            return
        member.size += size
        self._bytes += size
        while self._bytes > self.limits.unread:
            self.count("memory")
            self.drop(max(self._all, key=lambda member: member.size))

    def forget_unread(self, member: Member) -> None:
        """Stop counting the bytes of a connection as unread."""
        self._bytes -= member.size
        member.size = 0

    def drop_late(self, now: float) -> bool:
        """Close a few connections past their deadline; return whether there are more."""
        late = [member for member in self._waiting if member.deadline < now]
        for member in late[:_AT_A_TIME]:
            if member.state in _BEGUN:
                self.count(member.state)
            self.drop(member)
        return len(late) > _AT_A_TIME

    def drop_waiting(self) -> None:
        for member in [*self._waiting]:
            self.drop(member)

    def drop_all(self) -> None:
        for member in [*self._all]:
            self.drop(member)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def busy(self) -> bool:
        return len(self._all) > len(self._waiting)

    def drop(self, member: Member) -> None:
        self.remove(member)
        member.end()

    def count(self, reason: str) -> None:
        metrics.connections_dropped.labels(self._name, reason).inc()


class TurnsByAddress:
    """Turns of requests by address, with a limit of concurrent answers.

    A flood costs others a turn for each of its addresses, not for each request. Used only in the event
    loop.
    """

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._waiting_turns: dict[str, deque[asyncio.Future[None]]] = {}  # waiting turns by address, in order

    async def acquire(self, address: str) -> None:
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting_turns.setdefault(address, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the turn was granted already
                self.release()
            raise

    def release(self) -> None:
        while self._waiting_turns:
            address = next(iter(self._waiting_turns))
            turns = self._waiting_turns.pop(address)
            turn = turns.popleft()
            if turns:
                self._waiting_turns[address] = turns
            if not turn.done():  # its caller has not hung up
                return turn.set_result(None)
        self._free += 1
        return None
