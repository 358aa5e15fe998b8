"""The campaign itself: a seed brings its requests back, and answers are read as they are written."""

from random import Random

import pytest

from tests.fuzz import through_view
from tests.fuzz.answers import Unreadable, statuses

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_a_seed_brings_requests_through_the_view_back() -> None:
    first, again, other = (
        [through_view.request(Random(f"{seed}/{number}"), "secret") for number in range(200)]
        for seed in (7, 7, 8)
    )
    assert first == again != other


def test_another_secret_changes_nothing_else() -> None:
    for number in range(200):
        here, there = (through_view.request(Random(f"7/{number}"), secret) for secret in ("aBc", "xYz"))
        assert len(here) == len(there)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (CHUNKED + b"3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n", [200]),
        (CHUNKED + b"0\r\n\r\n" + b"HTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\nx", [200, 404]),
    ],
)
def test_answers_in_chunks_are_read(data: bytes, found: list[int]) -> None:
    assert statuses(data, without_body=False) == found


@pytest.mark.parametrize("body", [b"", b"3\r\nab", b"3\r\nabcd\r\n0\r\n\r\n", b"3\r\nabc\r\n", b"zz\r\n"])
def test_chunks_that_do_not_end_are_noticed(body: bytes) -> None:
    with pytest.raises(Unreadable):
        statuses(CHUNKED + body, without_body=False)
