"""Raw bytes: invalid, incomplete and pipelined requests."""

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
_WITH_A_HOST = 0.8  # a server reads little of a request without Host
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"


def nonsense(rng: Random) -> bytes:
    """Return all bytes that one connection sends."""
    return rng.choice(_KINDS)(rng)


def beginning_of_request(rng: Random) -> bytes:
    """Return the beginning of a request, of which a server waits for the rest."""
    request = b"POST /v1/filter HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{        }"
    return request[: rng.randrange(1, len(request))]


def _head(rng: Random, *further_fields: bytes) -> bytes:
    if rng.random() < _WITH_A_HOST:
        further_fields = (_HOST, *further_fields)
    version = rng.choices((b"HTTP/1.1", b"HTTP/1.0", b"HTTP/9.9", b"HTTP/", b""), (12, 3, 1, 1, 1))[0]
    fields = [rng.choice(FIELDS) for _ in range(rng.choice((0, 1, 2, 5, 150)))]
    line_end = rng.choice((b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r"))
    request_line = b" ".join((rng.choice(METHODS), rng.choice(PATHS), version))
    return line_end.join((request_line, *fields, *further_fields)) + line_end * 2


def _request(rng: Random) -> bytes:
    body = rng.randbytes(rng.choice((0, 1, 50, 9000)))
    length = len(body) + rng.choice((0, 0, 0, 1, -1))
    return _head(rng, b"Content-Length: %d" % length) + body


def _plain_request(rng: Random) -> bytes:
    fields = b"".join(rng.choice(FIELDS) + b"\r\n" for _ in range(rng.randrange(3)))
    method, path = rng.choice((b"GET", b"HEAD", b"OPTIONS", b"POST")), rng.choice(PATHS)
    return method + b" " + path + b" HTTP/1.1\r\n" + _HOST + b"\r\n" + fields + b"\r\n"


def _chunked(rng: Random) -> bytes:
    return _head(rng, b"Transfer-Encoding: chunked") + rng.choice(CHUNKS)


def _pipelined(rng: Random) -> bytes:
    return b"".join(_plain_request(rng) for _ in range(rng.randrange(2, 30)))


def _unfinished(rng: Random) -> bytes:
    request = _request(rng)
    return request[: rng.randrange(len(request) + 1)]


def _flipped(rng: Random) -> bytes:
    request = bytearray(_request(rng))
    for _ in range(rng.randrange(1, 10)):
        request[rng.randrange(len(request))] = rng.randrange(256)
    return bytes(request)


def _noise(rng: Random) -> bytes:
    return rng.randbytes(rng.choice((0, 1, 10, 1000, 100_000)))


def _fixed_text(rng: Random) -> bytes:
    large = (
        b"POST /v1/filter HTTP/1.1\r\nHost: localhost\r\nContent-Length: 17000000\r\n\r\n" + b" " * 200_000
    )
    tls_hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(500)
    return rng.choice(
        (PREFACE, large, tls_hello, b"\r\n" * 500, b"\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 9000)
    )


_KINDS: tuple[Callable[[Random], bytes], ...] = (
    _request,
    _plain_request,
    _chunked,
    _pipelined,
    _unfinished,
    _flipped,
    _noise,
    _fixed_text,
)
