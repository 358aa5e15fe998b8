"""Limits of every port: number of connections, waiting times, and unread bytes.

If there are too many connections, in total or from one address, a connection that waits for a request is
closed. Connections without an answer so far are closed first; among them, the connection that has waited
longest. So a flood of silent connections closes only connections of the flood.
"""

import asyncio
from collections import Counter, deque
from typing import NamedTuple, Protocol

from extender.telemetry import metrics

NEVER = float("inf")
MAX_HEAD_BYTES = 64 * 1024  # bytes
_UNFINISHED_STATES = ("handshake", "head", "body", "answer")  # states in which a caller may be too slow
_MAX_LATE_DROPS = 50  # most late connections that one check closes


class Timeouts(NamedTuple):
    """Timeouts of the states of a connection, in seconds."""

    handshake: float = 5.0  # for a TLS handshake
    idle: float = 120.0  # longer than the 90 s of Go's transport, or else a POST may fail
    head: float = 5.0  # from the first byte of the head to its end
    body: float = 10.0  # from the end of the head until the request is served
    answer: float = 30.0  # until the caller has read the answer
    discard: float = 2.0  # after a refusal, while the caller still sends

    @property
    def has_streams(self) -> bool:
        """Return whether answers are streams, which have no time limit and continue if they are unread."""
        return self.answer == NEVER


TIMEOUTS = Timeouts()


class ConnectionLimits(NamedTuple):
    """Limits of the callers of a port."""

    max_connections: int  # most open connections
    max_body: int  # most bytes of the body of a request
    max_unread: int  # most bytes of all requests that are not served yet, and of all unread answers
    timeouts: Timeouts = TIMEOUTS
    max_head: int = MAX_HEAD_BYTES  # bytes
    max_line: int = 4094  # most bytes of the first line of a request
    max_field: int = 8190  # most bytes of a header
    max_fields: int = 100
    allows_chunks: bool = False  # whether a body may come in chunks
    max_per_address: int = 0  # most connections from one address, which callers may share; 0 means no limit


class Member(Protocol):
    """Interface of a connection for the limits of its port.

    `size` is the number of unread bytes; only `Connections` sets it.
    """

    state: str
    deadline: float
    answer_count: int
    size: int
    address: str  # address of the caller

    def end(self) -> None:
        """Close the connection in any state."""


class Connections:
    """All connections of one port. For use only in the event loop."""

    def __init__(self, name: str, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._name = name
        self._unread_bytes = 0
        self._members: set[Member] = set()
        self._count_by_address: Counter[str] = Counter()
        self._waiting: dict[Member, None] = {}  # the connection that has waited longest comes first

    def admit(self, address: str = "") -> bool:
        """Return whether an address may open one more connection.

        If the limit is reached, a connection that waits for its caller is closed for the new connection.
        """
        is_address_full = 0 < self.limits.max_per_address <= self._count_by_address[address]
        if not is_address_full and len(self._members) < self.limits.max_connections:
            return True
        self.count_drop("full")
        candidates = [member for member in self._waiting if not is_address_full or member.address == address]
        if not candidates:
            return False
        self.drop(next((member for member in candidates if not member.answer_count), candidates[0]))
        return True

    def add(self, member: Member) -> None:
        self._members.add(member)
        self._count_by_address[member.address] += 1
        self._waiting[member] = None

    def remove(self, member: Member) -> None:
        """Remove an ended connection, unless it was removed before."""
        if member in self._members:
            self._members.remove(member)
            self._count_by_address[member.address] -= 1
            if not self._count_by_address[member.address]:
                del self._count_by_address[member.address]
        self._waiting.pop(member, None)
        self.forget_unread(member)

    def wait(self, member: Member) -> None:
        """Record that a connection waits for its caller."""
        if member in self._members:
            self._waiting[member] = None

    def serve(self, member: Member) -> None:
        """Record that a connection is served: it no longer waits for its caller, and has no unread bytes."""
        self._waiting.pop(member, None)
        self.forget_unread(member)

    def add_unread(self, member: Member, size: int) -> None:
        """Add unread bytes of a connection. Beyond the port's limit, close the largest connections."""
        if member not in self._members:
            return
        member.size += size
        self._unread_bytes += size
        while self._unread_bytes > self.limits.max_unread:
            self.count_drop("memory")
            self.drop(max(self._members, key=lambda member: member.size))

    def forget_unread(self, member: Member) -> None:
        """Stop counting the bytes of a connection as unread."""
        self._unread_bytes -= member.size
        member.size = 0

    def drop_late(self, now: float) -> bool:
        """Close some connections whose deadline has passed; return whether more are left."""
        late_members = [member for member in self._waiting if member.deadline < now]
        for member in late_members[:_MAX_LATE_DROPS]:
            if member.state in _UNFINISHED_STATES:
                self.count_drop(member.state)
            self.drop(member)
        return len(late_members) > _MAX_LATE_DROPS

    def drop_waiting(self) -> None:
        for member in [*self._waiting]:
            self.drop(member)

    def drop_all(self) -> None:
        for member in [*self._members]:
            self.drop(member)

    def __len__(self) -> int:
        return len(self._members)

    @property
    def is_busy(self) -> bool:
        """Return whether a connection is being served."""
        return len(self._members) > len(self._waiting)

    def drop(self, member: Member) -> None:
        self.remove(member)
        member.end()

    def count_drop(self, reason: str) -> None:
        metrics.connections_dropped.labels(self._name, reason).inc()


class TurnsByAddress:
    """Queue of requests for a limited number of concurrent answers, fair between addresses.

    Addresses take turns, so a flood delays others by one turn for each of its addresses, not for each
    request. For use only in the event loop.
    """

    def __init__(self, slot_count: int) -> None:
        self._free_slots = slot_count
        self._waiters_by_address: dict[str, deque[asyncio.Future[None]]] = {}  # in order

    async def acquire(self, address: str) -> None:
        """Wait until a request of this address may be answered."""
        if self._free_slots:
            self._free_slots -= 1
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters_by_address.setdefault(address, deque()).append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():  # the turn was granted before
                self.release()
            raise

    def release(self) -> None:
        """Let the next waiting request be answered, or free the slot."""
        while self._waiters_by_address:
            address = next(iter(self._waiters_by_address))
            waiters = self._waiters_by_address.pop(address)
            waiter = waiters.popleft()
            if waiters:
                self._waiters_by_address[address] = waiters
            if not waiter.done():  # the caller still waits
                return waiter.set_result(None)
        self._free_slots += 1
        return None
