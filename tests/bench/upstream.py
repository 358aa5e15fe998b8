"""Simulated API server for reads, with empty lists and a watch of pods at a fixed rate of events.

A real API server would use CPU time of the machine on which the scheduler proxy is measured. This server has
TLS and both formats of watches. All events are about one pod of another scheduler, which was copied from a
real API server.

    python -m tests.bench.upstream PORT CERTIFICATE KEY POD.json POD.protobuf

`POST /go?rate=1000&seconds=10` sends the events to all open watches of pods, and then answers.
"""

import asyncio
import ssl
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from extender.domain.model.versioned_pod_watch import AS_STORED, PodCodec
from extender.proxy.pod_events.json import JsonPods
from extender.proxy.pod_events.protobuf import ProtobufPods

PODS = "/api/v1/pods"
CODECS: tuple[PodCodec, ...] = (JsonPods(), ProtobufPods())
_FIRST_VERSION = 1000


class Request(NamedTuple):
    """Request to the simulated API server. `codec` is the encoding that the client accepts."""

    method: str
    path: str
    query: dict[str, list[str]]
    codec: PodCodec
    body: bytes

    @property
    def watches(self) -> bool:
        """Return whether the request is a watch."""
        return self.query.get("watch", ["false"])[0] in ("1", "true")


class Upstream:
    """Simulated API server. `pods` has the encoded pod for each encoding."""

    def __init__(self, pods: Mapping[PodCodec, bytes]) -> None:
        self._pods = pods
        self._watches: dict[asyncio.StreamWriter, PodCodec] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve the requests of one connection."""
        with suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            while not writer.is_closing():
                request = await _read_request(reader)
                if request.watches:
                    await self._watch(request, reader, writer)
                else:
                    await self._answer(request, writer)
        writer.close()

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        """Answer a request that is not a watch.

        A request to /go is answered after all events have been sent.
        """
        if request.path == "/go":
            await self._send_events(int(request.query["rate"][0]), int(request.query["seconds"][0]))
        body, media_type = request.body or b"{}", "application/json"
        if request.method == "GET":
            body = b'{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"999"},"items":[]}'
            if request.path == PODS:
                encoder = request.codec.list_writer(request.codec.list_metadata(_FIRST_VERSION - 1))
                body, media_type = encoder.start() + encoder.end(), request.codec.content_type
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)

    async def _watch(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer a watch until the client closes the connection."""
        content_type_line = f"Content-Type: {request.codec.stream_type}\r\n"
        writer.write(f"HTTP/1.1 200 OK\r\n{content_type_line}Transfer-Encoding: chunked\r\n\r\n".encode())
        if request.path == PODS:
            self._watches[writer] = request.codec
        await reader.read()
        self._watches.pop(writer, None)
        writer.close()

    async def _send_events(self, rate: int, seconds: int) -> None:
        """Send each event to all watches at its time. Slow watches have buffers, and are not waited for."""
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        for number in range(rate * seconds):
            if (wait_seconds := started_at + number / rate - loop.time()) > 0:
                await asyncio.sleep(wait_seconds)
            chunks = {codec: self._chunk(codec, number) for codec in set(self._watches.values())}
            for writer, codec in self._watches.items():
                writer.write(chunks[codec])

    def _chunk(self, codec: PodCodec, number: int) -> bytes:
        """Return an event of the pod as a chunk of an HTTP answer."""
        frame = codec.write("MODIFIED", self._pods[codec], _FIRST_VERSION + number, AS_STORED)
        return b"%x\r\n%s\r\n" % (len(frame), frame)


async def _read_request(reader: asyncio.StreamReader) -> Request:
    """Read the next request of a connection."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    request_line, *lines = head.strip().split("\r\n")
    headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    method, target, _ = request_line.split(" ")
    url = urlsplit(target)
    json_pods, protobuf_pods = CODECS
    accepts_protobuf = "protobuf" in headers.get("accept", "") and url.path == PODS
    codec = protobuf_pods if accepts_protobuf else json_pods
    return Request(method, url.path, parse_qs(url.query), codec, body)


async def main(port: str, certificate: str, key: str, *pods: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    upstream = Upstream({codec: Path(pod).read_bytes() for codec, pod in zip(CODECS, pods, strict=True)})
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", int(port), ssl=context)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
