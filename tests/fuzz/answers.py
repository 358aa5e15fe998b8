"""Strict reader of the answers on a connection."""

import re

_HEAD = re.compile(rb"HTTP/1\.[01] ([0-9]{3}) [^\r\n]*\r\n((?:[!-9;-~]+:[^\r\n]*\r\n)*)\r\n")
_LENGTH = re.compile(rb"content-length:[ \t]*([0-9]+)[ \t]*\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"transfer-encoding:[ \t]*chunked[ \t]*\r\n", re.IGNORECASE)
_CHUNK = re.compile(rb"([0-9A-Fa-f]+)\r\n")


class Unreadable(ValueError):
    """Error: the bytes are not HTTP."""


def statuses(data: bytes, without_body: bool) -> list[int]:
    """Return the status codes of consecutive answers.

    `without_body`: answers may be to HEAD. Raises Unreadable.
    """
    codes = []
    while data:
        head = _HEAD.match(data)
        if head is None:
            raise Unreadable(repr(data[:200]))
        codes.append(int(head[1]))
        data = data[head.end() :]
        if _CHUNKED.search(head[0]) and not without_body:
            data = _after_chunks(data)
            continue
        length = _LENGTH.search(head[0])
        if length is None or (without_body and data.startswith(b"HTTP/1.")):
            continue
        if without_body and not data:
            break
        if len(data) < int(length[1]):
            raise Unreadable(f"{len(data)} of {int(length[1])} bytes came")
        data = data[int(length[1]) :]
    return codes


def _after_chunks(data: bytes) -> bytes:
    """Return the bytes after a body in chunks. Raises Unreadable."""
    while size := _CHUNK.match(data):
        end = size.end() + int(size[1], 16)
        if data[end : end + 2] != b"\r\n":
            break
        data = data[end + 2 :]
        if int(size[1], 16) == 0:
            return data
    raise Unreadable(f"a chunk does not end: {data[:200]!r}")
