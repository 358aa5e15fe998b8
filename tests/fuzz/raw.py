"""Bytes that are no request, nearly one, or more than one."""

from collections.abc import Callable
from random import Random

METHODS = (
    b"GET",
    b"POST",
    b"PUT",
    b"HEAD",
    b"OPTIONS",
    b"TRACE",
    b"CONNECT",
    b"DELETE",
    b"PRI",
    b"get",
    b"G\x00T",
    b"A" * 300,
)
PATHS = (
    b"/",
    b"/livez",
    b"/readyz?verbose&exclude=" + b"a" * 500,
    b"/metrics",
    b"/metrics?name[]=%00",
    b"/debug/",
    b"/debug/decisions?limit=-1",
    b"/debug/decisions?limit=%F0%9F",
    b"/debug/podgroups/a/b",
    b"/debug/pods/%2e%2e/%2f",
    b"/debug/pods/" + b"%00" * 100 + b"/x",
    b"/v1/filter",
    b"/v1/filter/",
    b"/v1/bind?x=" + b"y" * 5000,
    b"//v1/filter",
    b"http://evil.example/livez",
    b"*",
    b"/%",
    b"/%ff%fe",
    b"/../../etc/passwd",
    b"/queues/validate",
    b"/\xff\xfe",
)
FIELDS = (
    b"Host: localhost",
    b"Host: evil.example",
    b"Host:",
    b"Origin: null",
    b"Connection: close",
    b"Connection: keep-alive, upgrade",
    b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__",
    b"Expect: 100-continue",
    b"Expect: the worst",
    b"Accept: application/openmetrics-text; version=1.0.0",
    b"Accept: ;;;q=x,",
    b"Accept-Encoding: gzip",
    b"Content-Type: \xff",
    b"Script_Name: /v1",
    b"SCRIPT_NAME: /v1",
    b"X-Forwarded-Proto: https",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: chunked, chunked",
    b"Transfer-Encoding : gzip",
    b"Content-Length: 0",
    b"Content-Length: -5",
    b"Content-Length: 99999999999999999999",
    b"Content-Length: 0x10",
    b"Content-Length: 3, 3",
    b"Range: bytes=0-1",
    b": nameless",
    b"No colon",
    b" folded: x",
    b"Cookie: " + b"a=b; " * 1500,
    b"X-Large: " + b"x" * 70_000,
    b"X\x00: y",
    b"Y: \x00\x01\x7f",
)
CHUNKS = (
    b"3\r\nabc\r\n0\r\n\r\n",
    b"ffffffffffffffff\r\nabc",
    b"-1\r\n",
    b"3;x=" + b"y" * 1000 + b"\r\nabc\r\n0\r\n\r\n",
    b"zz\r\n",
    b"0\r\nTrailer: x\r\n\r\n",
)
_HOST = b"Host: localhost"
_WITH_A_HOST = 0.8  # a server of HTTP/1.1 reads little of a request that has none
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"


def nonsense(dice: Random) -> bytes:
    """Return all bytes that one connection sends."""
    return dice.choice(_KINDS)(dice)


def half(dice: Random) -> bytes:
    """Return the beginning of a request, for which a server should wait a while."""
    whole = b"POST /v1/filter HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{        }"
    return whole[: dice.randrange(1, len(whole))]


def _head(dice: Random, *more: bytes) -> bytes:
    if dice.random() < _WITH_A_HOST:
        more = (_HOST, *more)
    version = dice.choices((b"HTTP/1.1", b"HTTP/1.0", b"HTTP/9.9", b"HTTP/", b""), (12, 3, 1, 1, 1))[0]
    fields = [dice.choice(FIELDS) for _ in range(dice.choice((0, 1, 2, 5, 150)))]
    line = dice.choice((b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r"))
    first = b" ".join((dice.choice(METHODS), dice.choice(PATHS), version))
    return line.join((first, *fields, *more)) + line * 2


def _request(dice: Random) -> bytes:
    body = dice.randbytes(dice.choice((0, 1, 50, 9000)))
    length = len(body) + dice.choice((0, 0, 0, 1, -1))
    return _head(dice, b"Content-Length: %d" % length) + body


def _plain(dice: Random) -> bytes:
    fields = b"".join(dice.choice(FIELDS) + b"\r\n" for _ in range(dice.randrange(3)))
    method, path = dice.choice((b"GET", b"HEAD", b"OPTIONS", b"POST")), dice.choice(PATHS)
    return method + b" " + path + b" HTTP/1.1\r\n" + _HOST + b"\r\n" + fields + b"\r\n"


def _chunked(dice: Random) -> bytes:
    return _head(dice, b"Transfer-Encoding: chunked") + dice.choice(CHUNKS)


def _pipelined(dice: Random) -> bytes:
    return b"".join(_plain(dice) for _ in range(dice.randrange(2, 30)))


def _unfinished(dice: Random) -> bytes:
    whole = _request(dice)
    return whole[: dice.randrange(len(whole) + 1)]


def _flipped(dice: Random) -> bytes:
    whole = bytearray(_request(dice))
    for _ in range(dice.randrange(1, 10)):
        whole[dice.randrange(len(whole))] = dice.randrange(256)
    return bytes(whole)


def _noise(dice: Random) -> bytes:
    return dice.randbytes(dice.choice((0, 1, 10, 1000, 100_000)))


def _fixed(dice: Random) -> bytes:
    large = (
        b"POST /v1/filter HTTP/1.1\r\nHost: localhost\r\nContent-Length: 17000000\r\n\r\n" + b" " * 200_000
    )
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + dice.randbytes(500)
    return dice.choice(
        (PREFACE, large, hello, b"\r\n" * 500, b"\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 9000)
    )


_KINDS: tuple[Callable[[Random], bytes], ...] = (
    _request,
    _plain,
    _chunked,
    _pipelined,
    _unfinished,
    _flipped,
    _noise,
    _fixed,
)
