"""The protobuf wire format: fields by number, without their meaning.

Only varints and lengths are known: messages of Kubernetes have no others.
"""

from collections.abc import Iterator

# Before an object of its own, a body has this and then a runtime.Unknown.
KUBERNETES_PREFIX = b"k8s\0"
_VARINT, _BYTES = 0, 2
_LONGEST_VARINT = 63  # bits, before its last byte

Field = tuple[int, int | bytes]


class BrokenMessage(ValueError):
    """These bytes are no message, or one with fields of a form that Kubernetes does not use."""


def fields(data: bytes) -> Iterator[Field]:
    """The fields of a message in their order: a number for a varint, else bytes. Raises BrokenMessage."""
    at, length = 0, len(data)
    try:
        while at < length:
            key, value, at = data[at], data[at + 1], at + 2
            if key > 0x7F:
                key, at = _varint(data, at - 2)
                value, at = _varint(data, at)
            elif value > 0x7F:
                value, at = _varint(data, at - 1)
            if key & 7 == _BYTES:
                start, at = at, at + value
                if at > length:
                    raise BrokenMessage("a field is cut")
                yield key >> 3, data[start:at]
            elif key & 7 == _VARINT:
                yield key >> 3, value
            else:
                raise BrokenMessage("a field of a form that is not read")
    except IndexError:
        raise BrokenMessage("a number is cut") from None


def texts(data: bytes, wanted: frozenset[int]) -> dict[int, str]:
    """Some text fields of a message; of one that is given twice, the last. Raises BrokenMessage."""
    found = {number: value for number, value in fields(data) if number in wanted}
    try:
        return {number: str(value, "utf-8") for number, value in found.items()}  # type: ignore[arg-type]
    except (TypeError, UnicodeDecodeError):
        raise BrokenMessage("a text is no text") from None


def field(number: int, payload: bytes) -> bytes:
    """A text or a message as a field of another one."""
    return varint(number << 3 | _BYTES) + varint(len(payload)) + payload


def varint(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > _LONGEST_VARINT:
            raise BrokenMessage("a number is too long")
