"""The campaign itself: a seed brings its requests back, and answers are read as they are written."""

from collections.abc import Callable
from random import Random

import pytest

from extender.ports import light_connection
from tests.fuzz import through_view
from tests.fuzz.answers import Unreadable, statuses
from tests.rows import each_of

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


MAKERS = pytest.mark.parametrize("made", [through_view.request, through_view.event])
Made = Callable[[Random, str], bytes]


@MAKERS
def test_a_seed_brings_requests_through_the_view_back(made: Made) -> None:
    first, again, other = (
        [made(Random(f"{seed}/{number}"), "secret") for number in range(200)] for seed in (7, 7, 8)
    )
    assert first == again != other


@MAKERS
def test_another_secret_changes_nothing_else(made: Made) -> None:
    for number in range(200):
        here, there = (made(Random(f"7/{number}"), secret) for secret in ("aBc", "xYz"))
        assert len(here) == len(there)


def test_of_the_events_some_are_as_a_scheduler_writes_them() -> None:
    """Make some short events, so that they reach the path that is theirs."""
    made = [through_view.event(Random(f"7/{number}"), "secret") for number in range(200)]
    assert 40 < sum(light_connection._GO_HEAD.match(each) is not None for each in made) < 160


@each_of(
    (CHUNKED + b"3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n", [200]),
    (CHUNKED + b"0\r\n\r\n" + b"HTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\nx", [200, 404]),
)
def test_answers_in_chunks_are_read(data: bytes, found: list[int]) -> None:
    assert statuses(data, without_body=False) == found


@each_of(b"", b"3\r\nab", b"3\r\nabcd\r\n0\r\n\r\n", b"3\r\nabc\r\n", b"zz\r\n")
def test_chunks_that_do_not_end_are_noticed(body: bytes) -> None:
    with pytest.raises(Unreadable):
        statuses(CHUNKED + body, without_body=False)
