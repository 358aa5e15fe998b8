"""What came back on one connection, read as strictly as a careful client would."""

import re

_HEAD = re.compile(rb"HTTP/1\.[01] ([0-9]{3}) [^\r\n]*\r\n((?:[!-9;-~]+:[^\r\n]*\r\n)*)\r\n")
_LENGTH = re.compile(rb"content-length:[ \t]*([0-9]+)[ \t]*\r\n", re.IGNORECASE)


class Unreadable(ValueError):
    """This is not HTTP."""


def statuses(data: bytes, without_body: bool) -> list[int]:
    """Those of the answers, one after the other. `without_body`: some may be answers to HEAD. Raises
    Unreadable."""
    found = []
    while data:
        head = _HEAD.match(data)
        if head is None:
            raise Unreadable(repr(data[:200]))
        found.append(int(head[1]))
        data = data[head.end() :]
        length = _LENGTH.search(head[0])
        if length is None or (without_body and data.startswith(b"HTTP/1.")):
            continue
        if without_body and not data:
            break
        if len(data) < int(length[1]):
            raise Unreadable(f"{len(data)} of {int(length[1])} bytes came")
        data = data[int(length[1]) :]
    return found
