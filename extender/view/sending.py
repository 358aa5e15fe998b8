"""One watch of pods on its way to the client: a queue, and one writer."""

import asyncio
import time
from collections import deque

from aiohttp import web

from extender.domain.view.appearance import AS_IT_IS
from extender.domain.view.events import PodEvent, UnwritablePod
from extender.domain.view.pod_stream import PodStream
from extender.domain.view.writes import PassOn, Show, TakeAway, Writes
from extender.telemetry import metrics
from extender.telemetry.logs import logger
from extender.view.pod_events.codec import PodCodec

_MUCH = 256  # queued: no more is read from the API server until the client has read some
_MOST = 200_000  # queued: the client is cut off, and comes back with the version that it has
_PIECE = 256 * 1024  # bytes, about: encoded at a time

log = logger(__name__)


class Sending:
    """`put` from the event loop, `run` until the end."""

    def __init__(
        self, request: web.BaseRequest, response: web.StreamResponse, stream: PodStream, codec: PodCodec
    ) -> None:
        self.stream = stream
        self.since = self.last_event = time.monotonic()  # when it was opened, and when the last event came
        self._request, self._response, self._codec = request, response, codec
        self._queue: deque[PassOn | Show | TakeAway] = deque()
        self._more = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._ended = False

    def take(self, event: PodEvent) -> None:
        """An event has come from the API server."""
        self.last_event = time.monotonic()
        self.put(self.stream.take(event))

    def put(self, writes: Writes) -> None:
        """All of them are in one write, unless they are many."""
        self._queue.extend(writes)
        if self._queue:
            self._more.set()
        if len(self._queue) > _MUCH:
            self._room.clear()
        if len(self._queue) > _MOST:
            log.warning("a client that does not read its watch of pods is cut off")
            self.cut()

    def end(self) -> None:
        """Nothing more comes."""
        self._ended = True
        self._more.set()

    def cut(self) -> None:
        """End the connection, whatever is queued."""
        self._queue.clear()
        if self._request.transport:
            self._request.transport.abort()

    async def room(self) -> None:
        """Until the client has read enough to be sent more."""
        await self._room.wait()

    async def run(self) -> None:
        while self._queue or not self._ended:
            await self._more.wait()
            self._more.clear()
            while self._queue:
                await self._response.write(self._piece())
                if len(self._queue) <= _MUCH:
                    self._room.set()
        await self._response.write_eof()

    def _piece(self) -> bytes:
        frames, size = [], 0
        while self._queue and size < _PIECE:
            frames.append(self._frame(self._queue.popleft()))
            size += len(frames[-1])
        return b"".join(frames)

    def _frame(self, write: PassOn | Show | TakeAway) -> bytes:
        if isinstance(write, PassOn):
            return write.frame
        if isinstance(write, TakeAway):
            return self._codec.deleted(*write)
        try:
            return self._codec.write(*write)
        except UnwritablePod as fault:
            metrics.view_unreadable_pods.inc()
            log.warning("a pod is shown to the scheduler as it is", error=str(fault))
            return self._unchanged(write)

    def _unchanged(self, write: Show) -> bytes:
        try:
            return self._codec.write(*write._replace(appearance=AS_IT_IS))
        except UnwritablePod:
            return b""
