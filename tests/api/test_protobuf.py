"""Messages made from tables: what a table lacks is kept, and what is no message is refused."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from extender.api.protobuf import message_types
from tests.proxy.protobuf_messages import field, varint
from tests.rows import each_of

TYPES = message_types(
    {
        "Box": {"name": (1, "string"), "count": (2, "int64"), "lid": (3, "Lid"), "tags": (4, "*string")},
        "Lid": {"open": (1, "bool"), "raw": (2, "bytes")},
    }
)
BOX = TYPES["Box"]


@given(st.text(), st.integers(-(2**63), 2**63 - 1), st.binary(), st.lists(st.text()))
def test_a_written_message_is_read_back(name: str, count: int, raw: bytes, tags: list[str]) -> None:
    box = BOX(name=name, count=count, lid={"raw": raw}, tags=tags)
    again = BOX.FromString(box.SerializeToString())
    assert (again.name, again.count, again.lid.raw, list(again.tags)) == (name, count, raw, tags)


def test_appended_fields_are_merged_and_unknown_fields_stay() -> None:
    unknown = field(9, b"kept")
    data = (
        field(1, b"a")
        + unknown
        + field(3, varint(1 << 3) + b"\1")
        + field(1, b"b")
        + field(3, field(2, b"x"))
    )
    box = BOX.FromString(data)
    assert (box.name, box.lid.open, box.lid.raw) == ("b", True, b"x")
    assert unknown in box.SerializeToString()


@each_of("0a", "80", "08", "0880", "0a05616263", "08" + "80" * 10 + "01", "ff" * 30)
def test_broken_messages(data: str) -> None:
    with pytest.raises(DecodeError):
        BOX.FromString(bytes.fromhex(data))


def test_a_text_with_invalid_utf8_is_refused() -> None:
    with pytest.raises(DecodeError):
        assert BOX.FromString(b"\x0a\x01\xff").name
