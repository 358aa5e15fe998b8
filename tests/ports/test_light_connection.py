"""Light connections: accepted connections without a request, their states, and their transfer."""

import asyncio
import socket
from contextlib import closing

import pytest

from extender.ports.connections import NEVER, ConnectionLimits, Connections, Timeouts
from extender.ports.light_connection import LightConnection
from tests.e2e.harness.waiting import wait_for
from tests.rows import each_of

LIMITS = ConnectionLimits(max_connections=10, max_body=100, max_unread=1000)
STREAMS = LIMITS._replace(timeouts=Timeouts(answer=NEVER))
HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\ncontent-length: %d\r\n\r\n"
BEGUN, ENDED = "begun", "ended"


class Met:
    """A light connection on a real connection, in a loop that tests run step by step."""

    def __init__(self, limits: ConnectionLimits, secure: bool) -> None:
        with closing(socket.create_server(("127.0.0.1", 0))) as listener:
            self.caller = socket.create_connection(listener.getsockname())
            self.sock, _ = listener.accept()
        self._all = Connections("test", limits)
        self._begun: list[socket.socket] = []
        self.connection = LightConnection(
            self.sock, self._all, secure, lambda sock, _: self._begun.append(sock)
        )
        self.sent = 0

    async def say(self, piece: bytes) -> str:
        """Send a piece and return what the connection waits for afterwards."""
        self.caller.sendall(piece)
        self.sent += len(piece)
        wait_for(lambda: len(self.sock.recv(9999, socket.MSG_PEEK)) == self.sent, what="it has arrived")
        return await self.turn()

    async def turn(self) -> str:
        for _ in range(3):
            await asyncio.sleep(0)
        if self._begun:
            assert (self._begun, len(self._all)) == ([self.sock], 0)
            return BEGUN
        return self.connection.state if len(self._all) else ENDED

    def close(self) -> None:
        self._all.drop_all()
        for sock in (self.caller, *self._begun):
            sock.close()


def states(limits: ConnectionLimits, secure: bool, *pieces: bytes) -> list[str]:
    async def play() -> list[str]:
        with closing(Met(limits, secure)) as met:
            return [await met.say(piece) for piece in pieces]

    return asyncio.run(play())


@each_of(
    ([b"GET / HTTP/1.1\r\nHost", b": localhost\r\n", b"\r\n"], ["head", "head", BEGUN]),
    ([HEAD % 3, b"ab", b"c"], ["body", "body", BEGUN]),
    ([HEAD % 3 + b"abc"], [BEGUN]),
    ([HEAD % 101], [BEGUN]),  # longer than allowed: it is refused at once
    ([b"G", b"x" * 5000], ["head", BEGUN]),
    ([b"\x16\x03\x01"], [BEGUN]),  # TLS on a plain port: it is refused at once
)
def test_a_request_begins_when_it_is_worth_reading(pieces: list[bytes], expected: list[str]) -> None:
    assert states(LIMITS, False, *pieces) == expected


def test_a_streamed_body_is_not_awaited() -> None:
    assert states(STREAMS, False, b"POST", b" / HTTP/1.1\r\nContent-Length: 3\r\n\r\n") == ["head", BEGUN]


@each_of(
    ([b"\x16\x03\x01", b"\x00\x04abc", b"d"], ["handshake", "handshake", BEGUN]),
    ([b"GET /"], [BEGUN]),  # no TLS: the library closes it
)
def test_a_handshake_begins_with_its_first_record(pieces: list[bytes], expected: list[str]) -> None:
    assert states(LIMITS, True, *pieces) == expected


@each_of(b"", b"GET / HT")
def test_a_caller_that_hangs_up_before_its_request_is_dropped(said: bytes) -> None:
    async def play() -> str:
        with closing(Met(LIMITS, False)) as met:
            if said:
                assert await met.say(said) == "head"
            met.caller.close()
            while (state := await met.turn()) != ENDED:
                await asyncio.sleep(0.001)
            return state

    assert asyncio.run(play()) == ENDED


def test_an_incomplete_request_starts_no_work_until_more_bytes_arrive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks, look = [], LightConnection._check

    def counted(connection: LightConnection) -> None:
        looks.append(connection)
        look(connection)

    monkeypatch.setattr(LightConnection, "_check", counted)
    assert states(LIMITS, False, b"G", b"E", b"T") == ["head"] * 3
    assert len(looks) == 3
