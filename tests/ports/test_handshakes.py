"""Handshakes of TLS that a port ends: their descriptors are other connections' at once."""

import asyncio
import socket
import ssl
import time
from contextlib import suppress
from typing import Any

from aiohttp import web

from extender.api.setting_kinds import Address
from extender.ports.connection import CallerConnection
from extender.ports.connections import ConnectionLimits
from extender.ports.port import ServedPort
from extender.web.sockets import Identity, listen
from extender.webhooks.certificates import make_pair

LIMITS = ConnectionLimits(max_connections=100, max_body=1000, max_unread=100_000)


class HandshakeCaller:
    """A client that sends each part of its handshake on request."""

    def __init__(self, address: Any) -> None:
        self.sock = socket.create_connection(address)
        self.sock.setblocking(False)
        context = ssl._create_unverified_context()
        self._came, self._said = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._came, self._said)

    def go_on(self) -> None:
        with suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        self.sock.sendall(self._said.read())

    async def hear(self) -> None:
        loop = asyncio.get_running_loop()
        self._came.write(await loop.sock_recv(self.sock, 65_536))


async def echoed(request: web.BaseRequest, connection: CallerConnection) -> web.Response:
    body = await connection.body(request)
    connection.serve()
    return web.Response(body=body)


async def answer(address: tuple[str, int]) -> bytes:
    reader, writer = await asyncio.open_connection(*address, ssl=ssl._create_unverified_context())
    writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
    found = await reader.read()
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return found


async def play() -> list[dict[str, Any]]:
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
    pair, identity = make_pair(["127.0.0.1"], 3600, time.time()), Identity("webhooks")
    identity.use(pair.certificate, pair.key)
    listener = listen("--listen", Address("127.0.0.1", 0))
    address = listener.getsockname()
    port = ServedPort("stage", listener, LIMITS, echoed, secure=lambda: identity.context)
    caller = HandshakeCaller(address)
    caller.go_on()
    await caller.hear()
    caller.go_on()
    await asyncio.sleep(0)  # the rest of the handshake is read in this turn of the loop, after these lines
    port.connections.drop_waiting()
    for _ in range(3):
        assert (await answer(address)).endswith(b"hello")
    caller.sock.close()
    await port.stop(0)
    return faults


def test_a_handshake_that_completes_while_it_is_cancelled_leaves_no_transport() -> None:
    assert asyncio.run(play()) == []
