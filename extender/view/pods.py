"""List and watch of pods: who reads them, and what each is shown."""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import aiohttp
from aiohttp import hdrs, web
from multidict import CIMultiDict, CIMultiDictProxy

from extender.api.durations import rounded
from extender.domain.ledger.releases import Bypasses
from extender.domain.model.appearance import AS_IT_IS, Appearances, Change
from extender.domain.view.events import PassOn, PodEvent, Show, TakeAway, UnwritablePod, Writes
from extender.domain.view.pod_stream import PodStream
from extender.domain.view.waiting_pods import WaitingPods
from extender.telemetry import metrics
from extender.telemetry.logs import logger
from extender.view.pod_events.codec import BrokenPods, PodCodec
from extender.view.pod_events.json import JsonPods
from extender.view.pod_events.protobuf import ProtobufPods
from extender.view.pod_lists import PodLists
from extender.view.target import ViewTarget
from extender.view.upstream import CutOff, Upstream, for_client, hand_over, pass_on, pieces

# ---- Who reads pods through the view, for the health port and for metrics.


class PodReader(NamedTuple):
    """One watch of pods that is open."""

    name: str  # of the program, as it names itself: kube-scheduler/v1.36.3 (linux/amd64) ...
    seconds: float  # since it was opened
    silent: float  # seconds since the last event came from the API server; bookmarks come each minute


def readers_text(readers: Sequence[PodReader], bypasses: Bypasses) -> str:
    """One line: who reads, since when, and how old that is; and whether a scheduler reads its pods
    elsewhere."""
    reading = "; ".join(map(_reading, readers)) or "nobody reads pods here"
    if bypasses.age is None:
        return reading
    calls = f"{bypasses.calls} call{'s' if bypasses.calls > 1 else ''}"
    last = f"the last {rounded(int(bypasses.age))} ago"
    return f"{reading}; a scheduler reads pods elsewhere: {calls} about pods not shown here, {last}"


def _reading(reader: PodReader) -> str:
    program = reader.name.partition(" ")[0] or "somebody"
    opened, silent = rounded(int(reader.seconds)), rounded(int(reader.silent))
    return f"{program} reads pods here for {opened}, and got the last event {silent} ago"


# ---- One watch of pods on its way to the client: a queue, and one writer.

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
                frames, size = [], 0
                while self._queue and size < _PIECE:
                    frames.append(self._frame(self._queue.popleft()))
                    size += len(frames[-1])
                await self._response.write(b"".join(frames))
                if len(self._queue) <= _MUCH:
                    self._room.set()
        await self._response.write_eof()

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
            try:
                return self._codec.write(*write._replace(appearance=AS_IT_IS))
            except UnwritablePod:
                return b""


# ---- Who reads pods through the view: for each, the pods that wait, and the watches that it has open.

_MOST_WATCHES = 16  # clients; of one that is forgotten, the pods are read again when it comes back


class PodClient:
    def __init__(self, schedulers: frozenset[str]) -> None:
        self.waiting = WaitingPods(schedulers)
        self.open: set[Sending] = set()

    def begin_anew(self) -> None:
        """What it read before is not read any more: nobody may have noticed the end of that connection."""
        for sending in self.open:
            sending.cut()

    def pass_changes_on(self, changes: Sequence[Change]) -> None:
        for sending in self.open:
            sending.put(sending.stream.change(changes))

    def show(self) -> dict[str, object]:
        shown = sum(trace.shown for trace in self.waiting.traces.copy().values())
        unbound, version = len(self.waiting.pods), self.waiting.version
        watches = [
            {"seconds": round(each.seconds, 1), "secondsSinceEvent": round(each.silent, 1)}
            for each in self.readers("")
        ]
        return {"version": version, "shown": shown, "hidden": unbound - shown, "watches": watches}

    def readers(self, name: str) -> list[PodReader]:
        """Its open watches; it has the name of its program."""
        now = time.monotonic()
        current = (each for each in self.open.copy() if not each.stream.superseded)
        return [PodReader(name, now - each.since, now - each.last_event) for each in current]


class PodClients:
    """One for each program, kind of encoding and selection of pods."""

    def __init__(self, schedulers: frozenset[str]) -> None:
        self._schedulers = schedulers
        self._clients: OrderedDict[tuple[str | None, ...], PodClient] = OrderedDict()

    def get(self, request: web.BaseRequest, target: ViewTarget, codec: PodCodec) -> PodClient:
        selectors = (target.parameter("fieldSelector"), target.parameter("labelSelector"))
        key = (request.headers.get(hdrs.USER_AGENT), codec.content_type, target.path, *selectors)
        client = self._clients.setdefault(key, PodClient(self._schedulers))
        self._clients.move_to_end(key)
        if len(self._clients) > _MOST_WATCHES:
            self._clients.popitem(last=False)[1].begin_anew()
        return client

    def pass_changes_on(self, changes: Sequence[Change]) -> None:
        for client in self._clients.values():
            client.pass_changes_on(changes)

    def readers(self) -> list[PodReader]:
        """Any thread."""
        clients = self._clients.copy().items()
        return [reader for key, client in clients for reader in client.readers(key[0] or "")]

    def show(self) -> list[dict[str, object]]:
        """For the debug page. Any thread."""
        parts = ("client", "encoding", "path", "fieldSelector", "labelSelector")
        return [
            {**dict(zip(parts, key, strict=True)), **client.show()}
            for key, client in self._clients.copy().items()
        ]


# ---- List and watch of pods: what the scheduler is shown of them. What that is, PodStream and PodList
# say.

_CODECS: tuple[PodCodec, ...] = (JsonPods(), ProtobufPods())
_OTHER_FORMS = ("as=table", "as=partialobjectmetadata")  # for people and for other controllers


class Pods:
    """The handler. Made in the event loop; `on_change` may be called in any thread."""

    def __init__(self, upstream: Upstream, appearances: Appearances, schedulers: frozenset[str]) -> None:
        self._upstream, self._appearances = upstream, appearances
        self._clients = PodClients(schedulers)
        self._lists = PodLists(upstream, appearances)
        self._loop = asyncio.get_running_loop()
        self._is_due = False

    def on_change(self) -> None:
        """The appearances have changed. All changes until the loop's next turn are one write."""
        if not self._is_due:
            self._is_due = True
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._pass_changes_on)

    def show(self) -> list[dict[str, object]]:
        """Who reads pods, and how many are shown, for the debug page. Any thread."""
        return self._clients.show()

    def readers(self) -> list[PodReader]:
        """The watches of pods that are open. Any thread."""
        return self._clients.readers()

    def _pass_changes_on(self) -> None:
        self._is_due = False
        self._clients.pass_changes_on(self._appearances.take_changes())

    async def __call__(self, request: web.BaseRequest, target: ViewTarget) -> web.StreamResponse:
        """Raises what `pass_on` raises."""
        accepted = request.headers.get(hdrs.ACCEPT, "").lower()
        if request.method != "GET" or any(form in accepted for form in _OTHER_FORMS):
            return await pass_on(self._upstream, request, target)
        if target.watches:
            return await self._watch(request, target)
        return await self._list(request, target)

    async def _list(self, request: web.BaseRequest, target: ViewTarget) -> web.StreamResponse:
        first = self._lists.first_page(target)
        async with self._upstream.open(first, request.headers) as answer:
            codec = _codec(answer)
            if codec is None:
                return await hand_over(self._upstream, answer, request, target)
            client = self._clients.get(request, target, codec)
            client.begin_anew()
            if target.parameter("resourceVersion") == "0":
                self._appearances.note_fresh_start()
            return await self._lists.send(request, first, answer, codec, client.waiting, version_of(target))

    async def _watch(self, request: web.BaseRequest, target: ViewTarget) -> web.StreamResponse:
        async with self._upstream.open(target, request.headers) as answer:
            codec = _codec(answer)
            if codec is None:
                return await hand_over(self._upstream, answer, request, target)
            client = self._clients.get(request, target, codec)
            stream = await self._stream(request, target, codec, client)
            response = web.StreamResponse(headers=for_client(answer.headers))
            await response.prepare(request)
            client.begin_anew()
            sending = Sending(request, response, stream, codec)
            client.open.add(sending)
            try:
                # Raises CutOff, also if there are bytes that nobody can read.
                sending.put(sending.stream.begin())
                writing = asyncio.create_task(sending.run())
                writing.add_done_callback(lambda done: _check(done, sending))
                try:
                    await _read(sending, answer, codec)
                    sending.end()
                    await writing
                finally:
                    writing.cancel()
            finally:
                client.open.discard(sending)
            return response

    async def _stream(
        self, request: web.BaseRequest, target: ViewTarget, codec: PodCodec, client: PodClient
    ) -> PodStream:
        version, asked = version_of(target), target.parameter("sendInitialEvents") == "true"
        if asked and not version:
            self._appearances.note_fresh_start()
        reads_all = asked or not version
        if not reads_all and not client.waiting.know(version):
            headers = _accepting(request.headers, codec)
            await self._lists.meet(target, headers, codec, client.waiting)
        return PodStream(client.waiting, self._appearances, version, reads_all)


def _check(writing: asyncio.Task[None], sending: Sending) -> None:
    """If nothing can be written any more, nothing needs to be read: the end of the connection ends that."""
    if not writing.cancelled() and writing.exception():
        sending.cut()


async def _read(sending: Sending, answer: aiohttp.ClientResponse, codec: PodCodec) -> None:
    events = codec.events()
    try:
        async for piece in pieces(answer):
            for event in events.feed(piece):
                if event.unreadable:
                    metrics.view_unreadable_pods.inc()
                sending.take(event)
            await sending.room()
    except BrokenPods as fault:
        raise CutOff(str(fault)) from fault


def version_of(target: ViewTarget) -> int:
    """The version that the client has; 0: none."""
    version = target.parameter("resourceVersion") or ""
    return int(version) if version.isascii() and version.isdecimal() else 0


def _codec(answer: aiohttp.ClientResponse) -> PodCodec | None:
    """None: the answer is not one with pods that we can read."""
    if answer.status != 200 or hdrs.CONTENT_ENCODING in answer.headers:
        return None
    form = answer.headers.get(hdrs.CONTENT_TYPE, "").partition(";")[0].strip().lower()
    return next((codec for codec in _CODECS if codec.content_type == form), None)


def _accepting(headers: CIMultiDictProxy[str], codec: PodCodec) -> CIMultiDictProxy[str]:
    changed = CIMultiDict(headers)
    changed[hdrs.ACCEPT] = codec.content_type
    return CIMultiDictProxy(changed)
