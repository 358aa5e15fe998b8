"""The wire format of protobuf: what is written is read again, and other bytes are refused."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.api.protobuf import BrokenMessage, field, fields, texts, varint

NUMBERS = st.integers(1, 2**29 - 1)


@given(st.lists(st.tuples(NUMBERS, st.binary(max_size=300) | st.integers(0, 2**64 - 1))))
def test_fields_come_back_as_they_were_written(message: list[tuple[int, bytes | int]]) -> None:
    data = b"".join(
        field(number, value) if isinstance(value, bytes) else varint(number << 3) + varint(value)
        for number, value in message
    )
    assert list(fields(data)) == message


@pytest.mark.parametrize(
    ("value", "written"), [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**64 - 1, "ff" * 9 + "01")]
)
def test_numbers_as_the_specification_writes_them(value: int, written: str) -> None:
    assert varint(value).hex() == written


@pytest.mark.parametrize(
    "data",
    [
        "0a",
        "80",
        "08",
        "0880",
        "0a05616263",
        "0aff",
        "0d00000000",
        "0b0c",
        "08" + "80" * 10 + "01",
        "ff" * 30,
    ],
)
def test_broken_messages(data: str) -> None:
    with pytest.raises(BrokenMessage):
        list(fields(bytes.fromhex(data)))


@given(st.binary(max_size=100))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(BrokenMessage):
        assert sum(len(value) if isinstance(value, bytes) else 1 for _, value in fields(data)) <= len(data)


def test_texts() -> None:
    wanted = frozenset({1, 2})
    assert texts(field(1, b"a") + field(3, b"\xff") + field(1, "☃".encode()), wanted) == {1: "☃"}
    for data in (field(1, b"\xff"), varint(1 << 3) + varint(5)):
        with pytest.raises(BrokenMessage):
            texts(data, wanted)
