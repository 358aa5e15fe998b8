"""What a connection makes of the bytes that arrive, however they are split."""

import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from werkzeug.exceptions import HTTPException

from extender.web.connection import LARGEST_HEAD, CallerConnection, HungUp, Patience

PATIENCE = Patience(idle=100, head=5, body=10, answer=30, discard=2)
LARGEST = 1000
Pair = tuple[CallerConnection, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield CallerConnection(ours, ("127.0.0.1", 1), LARGEST, PATIENCE, now=0), theirs


def request(body: bytes, *fields: bytes) -> bytes:
    given = (b"Content-Length: %d" % len(body), *fields)
    return b"POST / HTTP/1.1\r\n" + b"".join(b"%s\r\n" % each for each in given) + b"\r\n" + body


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=4), st.lists(st.integers(1, 40), max_size=30))
def test_requests_are_told_apart_however_they_are_cut(bodies: list[bytes], cuts: list[int]) -> None:
    """Requests are served in turn, even if the next one has arrived already."""
    sent, got = b"".join(map(request, bodies)), []
    ours, theirs = socket.socketpair()
    with ours, theirs:
        caller = CallerConnection(ours, ("127.0.0.1", 1), LARGEST, PATIENCE, now=0)
        for size in [*cuts, len(sent)]:
            piece, sent = sent[:size], sent[size:]
            theirs.sendall(piece)
            while (whole := caller.receive(0)) is not None:
                got.append(whole)
                caller.answer(b"", 0)
                assert caller.flush(0)
    assert got == [request(body) for body in bodies]


@given(st.binary(max_size=300))
def test_bytes_of_any_kind_are_a_request_or_a_fault_or_not_whole(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        caller = CallerConnection(ours, ("127.0.0.1", 1), LARGEST, PATIENCE, now=0)
        theirs.sendall(data)
        try:
            whole = caller.receive(0)
        except HTTPException as fault:
            status, whole = fault.code, None
        else:
            status = None
    assert status in (None, 400, 411, 413)
    assert whole is None or data.startswith(whole)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (request(b"", b"Transfer-Encoding: chunked"), 411),
        (request(b"", b"transfer-encoding : identity"), 411),
        (request(b"", b"Content-Length: 0"), 400),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1e3\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1001\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * LARGEST_HEAD, 431),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * LARGEST_HEAD + b"\r\n\r\n", 431),
    ],
)
def test_what_will_not_be_read_is_refused_and_no_more_is_kept(pair: Pair, sent: bytes, code: int) -> None:
    caller, theirs = pair
    theirs.sendall(sent)
    with pytest.raises(HTTPException) as refusal:
        caller.receive(0)
    assert refusal.value.code == code
    caller.refuse(refusal.value, 0)
    assert b" %d " % code in theirs.recv(1000)
    theirs.sendall(request(b"another"))
    assert caller.receive(1) is None
    assert (caller.size, caller.deadline) == (0, 2)
    theirs.close()
    with pytest.raises(HungUp):
        caller.receive(1)


def test_each_part_has_a_time_to_arrive_however_it_trickles(pair: Pair) -> None:
    """The deadline of a head counts from its first byte; further bytes do not extend it."""
    caller, theirs = pair
    deadlines = []
    for now, piece in enumerate([b"", b"POST / HTTP/1.1\r\n", b"Content-Length: 3\r\n", b"\r\n", b"a", b"b"]):
        theirs.sendall(piece)
        assert caller.receive(now) is None
        deadlines.append(caller.deadline)
    assert deadlines == [100, 6, 6, 13, 13, 13]
    theirs.sendall(b"c")
    assert caller.receive(6) is not None
    caller.answer(b"fine", 7)
    assert caller.flush(8)
    assert caller.deadline == 108


def test_who_hangs_up_half_way_is_gone(pair: Pair) -> None:
    caller, theirs = pair
    theirs.sendall(b"GET /")
    theirs.close()
    with pytest.raises(HungUp):
        caller.receive(0)


def test_an_answer_that_is_not_taken_waits_and_costs_no_thread(pair: Pair) -> None:
    caller, theirs = pair
    whole = b"x" * 10_000_000
    caller.answer(whole, 1)
    assert not caller.flush(2)
    assert (caller.sending, caller.deadline) == (True, 31)
    got = bytearray()
    while not caller.flush(3):
        got += theirs.recv(1_000_000)
    while len(got) < len(whole):
        got += theirs.recv(1_000_000)
    assert got == whole
    assert (caller.sending, caller.size, caller.deadline) == (False, 0, 103)


def test_the_last_answer_ends_the_connection_when_it_is_sent(pair: Pair) -> None:
    caller, theirs = pair
    caller.answer(b"bye", 0, last=True)
    with pytest.raises(HungUp):
        caller.flush(0)
    assert theirs.recv(10) == b"bye"
