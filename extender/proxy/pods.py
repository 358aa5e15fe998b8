"""Lists and watches of pods, with the pods that each client sees by the rules of PodWatch.

A list is read and written page by page, so that no list is in memory as a whole.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import aiohttp
from aiohttp import hdrs, web
from multidict import CIMultiDict, CIMultiDictProxy

from extender.api.units import human_duration
from extender.domain.ledger.releases import Bypasses
from extender.domain.model.versioned_pod_watch import (
    AS_STORED,
    Appearance,
    Appearances,
    BrokenPods,
    ListedPod,
    PassOn,
    PodCodec,
    PodList,
    PodListWriter,
    PodPage,
    PodWatch,
    Show,
    TakeAway,
    UnwritablePod,
    WaitingPod,
    WaitingPods,
    Writes,
)
from extender.kube.decoding import FIRST_LIMIT, next_page_size
from extender.proxy.pod_events.json import JsonPods
from extender.proxy.pod_events.protobuf import ProtobufPods
from extender.proxy.target import ApiTarget, MalformedTarget, headers_for_client
from extender.proxy.upstream import CutOff, Upstream, UpstreamGone, hand_over, pass_on, pieces
from extender.telemetry import metrics
from extender.telemetry.logs import logger


class PodLists:
    def __init__(self, upstream: Upstream, appearances: Appearances) -> None:
        self._upstream, self._appearances = upstream, appearances

    def first_page_target(self, target: ApiTarget) -> ApiTarget:
        """Return the target of the first page of a list.

        The target lacks the client's limit, since the client gets all pods at once. The target lacks the
        client's version, too, so the API server answers with the newest version. The newest version is always
        a valid answer, unless the client requests an exact version.

        Raises:
            MalformedTarget: The query is invalid.
        """
        if target.parameter("continue"):
            raise MalformedTarget("lists of pods are not continued here: the first answer has all of them")
        if target.parameter("resourceVersionMatch") == "Exact":
            return target.with_parameters(limit=str(FIRST_LIMIT))
        return target.with_parameters(limit=str(FIRST_LIMIT), resourceVersion=None, resourceVersionMatch=None)

    async def send(
        self,
        request: web.BaseRequest,
        first_target: ApiTarget,
        answer: aiohttp.ClientResponse,
        codec: PodCodec,
        waiting_pods: WaitingPods,
        version: int,
    ) -> web.StreamResponse:
        """Send a list to the client. The first page is in `answer`.

        Raises:
            CutOff: The API server's answer ended early.
        """
        pod_list = PodList(waiting_pods, self._appearances, version)
        page = await _read(answer, codec)
        headers = headers_for_client(answer.headers)
        headers.popall(hdrs.CONTENT_LENGTH, None)
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        writer = codec.list_writer(codec.list_metadata(page.version))
        await response.write(writer.start())
        async for pods in self._pages(first_target, request.headers, codec, page):
            await response.write(b"".join(_encode(writer, pod, pod_list.appearance(pod)) for pod in pods))
        pod_list.end(page.version)
        await response.write(writer.end())
        await response.write_eof()
        return response

    async def read_unbound(
        self, target: ApiTarget, headers: CIMultiDictProxy[str], codec: PodCodec, waiting_pods: WaitingPods
    ) -> None:
        """Read the unbound pods, since another process may have shown some of them to the client.

        Raises:
            UpstreamGone: The API server does not answer.
        """
        selector = ",".join(filter(None, (target.parameter("fieldSelector"), "spec.nodeName=")))
        selectors = {"fieldSelector": selector, "labelSelector": target.parameter("labelSelector")}
        first_target = target._replace(query="").with_parameters(**selectors, limit=str(FIRST_LIMIT))
        unbound_pods = {}
        try:
            page = await self._page(first_target, headers, codec)
            async for pods in self._pages(first_target, headers, codec, page):
                for facts, pod in pods:
                    if facts is not None and waiting_pods.is_unbound_member(facts):
                        unbound_pods[facts.uid] = WaitingPod(facts, pod)
        except CutOff as fault:
            raise UpstreamGone(str(fault)) from fault
        waiting_pods.store_all(unbound_pods, page.version)

    async def _pages(
        self, first_target: ApiTarget, headers: CIMultiDictProxy[str], codec: PodCodec, page: PodPage
    ) -> AsyncIterator[list[ListedPod]]:
        """Yield the pods of this page and of all further pages."""
        yield page.pods
        while page.continue_token:
            limit = str(next_page_size(len(page.pods), sum(len(item.pod) for item in page.pods)))
            options = {"continue": page.continue_token, "limit": limit}
            target = first_target.with_parameters(resourceVersion=None, resourceVersionMatch=None, **options)
            page = await self._page(target, headers, codec)
            yield page.pods

    async def _page(self, target: ApiTarget, headers: CIMultiDictProxy[str], codec: PodCodec) -> PodPage:
        """Return a page of a list.

        Raises:
            CutOff: The API server's answer ended early.
        """
        try:
            async with self._upstream.open(target, headers) as answer:
                if answer.status != 200:
                    raise CutOff(f"the API server answered {answer.status} to a page of pods")
                return await _read(answer, codec)
        except UpstreamGone as fault:
            raise CutOff(str(fault)) from fault


async def _read(answer: aiohttp.ClientResponse, codec: PodCodec) -> PodPage:
    """Return the page of pods in an answer.

    Raises:
        CutOff: The page is incomplete or malformed.
    """
    try:
        return codec.page(await answer.read())
    except (aiohttp.ClientError, OSError, TimeoutError, BrokenPods) as fault:
        raise CutOff(f"a page of pods cannot be read: {fault}") from fault


def _encode(writer: PodListWriter, item: ListedPod, appearance: Appearance | None) -> bytes:
    """Return a pod as it appears to the client; empty if the client does not see the pod."""
    if item.facts is None:
        metrics.view_unreadable_pods.inc()
    if appearance is None:
        return b""
    try:
        return writer.item(item.pod, appearance)
    except UnwritablePod:
        metrics.view_unreadable_pods.inc()
        return writer.item(item.pod, AS_STORED)


log = logger(__name__)

_MAX_QUEUED = 256  # most queued writes while events are read from the API server
_MAX_UNSENT = 200_000  # most queued writes; beyond them the client is cut off, and continues from its version
_PIECE_BYTES = 256 * 1024  # approximate number of bytes that are encoded at a time
_MAX_CLIENTS = 16  # remembered clients; for other clients, the pods are read again
_CODECS: tuple[PodCodec, ...] = (JsonPods(), ProtobufPods())
_OTHER_FORMATS = ("as=table", "as=partialobjectmetadata")  # formats for users and for other controllers


class PodReader(NamedTuple):
    name: str  # User-Agent of the program: kube-scheduler/v1.36.3 (linux/amd64) ...
    open_time: float  # seconds since the watch was opened
    silent_time: float  # seconds since the API server's last event; bookmarks come each minute


def readers_text(readers: Sequence[PodReader], bypasses: Bypasses) -> str:
    """Return a status line about clients that read pods here, and schedulers that read pods elsewhere."""
    texts = [
        f"{reader.name.partition(' ')[0] or 'a client'} reads pods here"
        f" for {human_duration(int(reader.open_time))},"
        f" and got the last event {human_duration(int(reader.silent_time))} ago"
        for reader in readers
    ]
    summary = "; ".join(texts) or "no client reads pods here"
    if bypasses.age is None:
        return summary
    calls = f"{bypasses.calls} call{'s' if bypasses.calls > 1 else ''}"
    last = f"the last {human_duration(int(bypasses.age))} ago"
    return f"{summary}; a scheduler reads pods elsewhere: {calls} about pods not shown here, {last}"


class ClientWatch:
    """Watch of pods that is sent to a client. Call `put` in the event loop, and await `run`."""

    def __init__(
        self, request: web.BaseRequest, response: web.StreamResponse, stream: PodWatch, codec: PodCodec
    ) -> None:
        self.stream = stream
        self.started_at = self.last_event_at = time.monotonic()  # times of the start and of the last event
        self._request, self._response, self._codec = request, response, codec
        self._queue: deque[PassOn | Show | TakeAway] = deque()
        self._has_work = asyncio.Event()
        self._has_space = asyncio.Event()  # whether the API server may be read
        self._has_space.set()
        self._has_ended = False

    def put(self, writes: Writes) -> None:
        """Queue writes for the client. `run` sends queued writes together, in pieces of limited size."""
        self._queue.extend(writes)
        if self._queue:
            self._has_work.set()
        if len(self._queue) > _MAX_QUEUED:
            self._has_space.clear()
        if len(self._queue) > _MAX_UNSENT:
            log.warning("a client that does not read its watch of pods is cut off")
            self.abort()

    def abort(self) -> None:
        """End the connection, and drop all queued writes."""
        self._queue.clear()
        if self._request.transport:
            self._request.transport.abort()

    async def run(self, answer: aiohttp.ClientResponse) -> None:
        """Serve the watch until the API server's answer ends.

        Raises:
            CutOff: The answer ended early, or cannot be read.
        """
        self.put(self.stream.begin())
        events = self._codec.events()
        writing = asyncio.create_task(self._write())
        writing.add_done_callback(self._abort_if_failed)
        try:
            async for piece in pieces(answer):
                try:
                    for event in events.feed(piece):
                        if event.is_unreadable:
                            metrics.view_unreadable_pods.inc()
                        self.last_event_at = time.monotonic()
                        self.put(self.stream.process(event))
                except BrokenPods as fault:
                    raise CutOff(str(fault)) from fault
                await self._has_space.wait()
            self._has_ended = True
            self._has_work.set()
            await writing
        finally:
            writing.cancel()

    async def _write(self) -> None:
        """Send the queued writes until the API server's answer has ended."""
        while self._queue or not self._has_ended:
            await self._has_work.wait()
            self._has_work.clear()
            while self._queue:
                frames, size = [], 0
                while self._queue and size < _PIECE_BYTES:
                    frames.append(self._frame(self._queue.popleft()))
                    size += len(frames[-1])
                await self._response.write(b"".join(frames))
                if len(self._queue) <= _MAX_QUEUED:
                    self._has_space.set()
        await self._response.write_eof()

    def _abort_if_failed(self, writing: asyncio.Task[None]) -> None:
        """Abort the client's connection if a write has failed, which also ends `run`."""
        if not writing.cancelled() and writing.exception():
            self.abort()

    def _frame(self, write: PassOn | Show | TakeAway) -> bytes:
        """Return the bytes of a write.

        If the codec cannot change a pod, the client gets the stored pod. If the codec cannot write the stored
        pod either, the result is empty.
        """
        if isinstance(write, PassOn):
            return write.frame
        if isinstance(write, TakeAway):
            return self._codec.deleted(*write)
        try:
            return self._codec.write(*write)
        except UnwritablePod as fault:
            metrics.view_unreadable_pods.inc()
            log.warning("a pod is shown to the scheduler as it is", error=str(fault))
        with suppress(UnwritablePod):
            return self._codec.write(*write._replace(appearance=AS_STORED))
        return b""


class PodClient:
    """Client that reads pods, with the waiting pods that it knows and its open watches."""

    def __init__(self, schedulers: frozenset[str]) -> None:
        self.waiting_pods = WaitingPods(schedulers)
        self.watches: set[ClientWatch] = set()

    def abort_watches(self) -> None:
        """Abort the earlier watches of a client that reads again.

        The client has ended these watches, even if the proxy has not noticed their end.
        """
        for watch in self.watches:
            watch.abort()

    def readers(self, name: str) -> list[PodReader]:
        """Return the open watches of the client. `name` is the name of its program."""
        now = time.monotonic()
        watches = (watch for watch in self.watches.copy() if not watch.stream.is_superseded)
        return [PodReader(name, now - watch.started_at, now - watch.last_event_at) for watch in watches]


class PodRequests:
    """Handler of requests for pods.

    Create and call it in the event loop; only `on_change`, `readers` and `debug_state` may be called in any
    thread.
    """

    def __init__(self, upstream: Upstream, appearances: Appearances, schedulers: frozenset[str]) -> None:
        self._upstream, self._appearances = upstream, appearances
        self._schedulers = schedulers
        # Clients, keyed by program, encoding, path and selectors of pods.
        self._clients: OrderedDict[tuple[str | None, ...], PodClient] = OrderedDict()
        self._lists = PodLists(upstream, appearances)
        self._loop = asyncio.get_running_loop()
        self._is_send_planned = False

    def on_change(self) -> None:
        """Let the event loop send the changed appearances of pods to all watches.

        Changes before the next iteration of the event loop are sent together.
        """
        if not self._is_send_planned:
            self._is_send_planned = True
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._send_changes)

    def _send_changes(self) -> None:
        """Send the changed appearances of pods to all watches."""
        self._is_send_planned = False
        changes = self._appearances.take_changes()
        for client in self._clients.values():
            for watch in client.watches:
                watch.put(watch.stream.change(changes))

    def debug_state(self) -> list[dict[str, object]]:
        """Return each reader of pods with its number of visible pods. Safe to call in any thread."""
        key_names = ("client", "encoding", "path", "fieldSelector", "labelSelector")
        state: list[dict[str, object]] = []
        for key, client in self._clients.copy().items():
            waiting = client.waiting_pods
            visible = sum(trace.is_shown for trace in waiting.traces.copy().values())
            watches = [
                {"seconds": round(reader.open_time, 1), "secondsSinceEvent": round(reader.silent_time, 1)}
                for reader in client.readers("")
            ]
            counts = {"version": waiting.version, "shown": visible, "hidden": len(waiting.pods) - visible}
            state.append({**dict(zip(key_names, key, strict=True)), **counts, "watches": watches})
        return state

    def readers(self) -> list[PodReader]:
        """Return the open watches of pods. Safe to call in any thread."""
        clients = self._clients.copy().items()
        return [reader for key, client in clients for reader in client.readers(key[0] or "")]

    async def __call__(self, request: web.BaseRequest, target: ApiTarget, body: bytes) -> web.StreamResponse:
        """Answer a request; raise the errors of `pass_on`."""
        accept = request.headers.get(hdrs.ACCEPT, "").lower()
        if request.method != "GET" or any(form in accept for form in _OTHER_FORMATS):
            return await pass_on(self._upstream, request, target, body)
        first_target = target if target.is_watch else self._lists.first_page_target(target)
        async with self._upstream.open(first_target, request.headers) as answer:
            media_type = answer.headers.get(hdrs.CONTENT_TYPE, "").partition(";")[0].strip().lower()
            codec = next((codec for codec in _CODECS if codec.content_type == media_type), None)
            if codec is None or answer.status != 200 or hdrs.CONTENT_ENCODING in answer.headers:
                return await hand_over(self._upstream, answer, request, target)  # pass it on unchanged
            selectors = (target.parameter("fieldSelector"), target.parameter("labelSelector"))
            key = (request.headers.get(hdrs.USER_AGENT), codec.content_type, target.path, *selectors)
            client = self._clients.setdefault(key, PodClient(self._schedulers))
            self._clients.move_to_end(key)
            if len(self._clients) > _MAX_CLIENTS:
                _, oldest = self._clients.popitem(last=False)
                oldest.abort_watches()
            if target.is_watch:
                return await self._watch(request, target, answer, codec, client)
            client.abort_watches()
            if target.parameter("resourceVersion") == "0":
                self._appearances.record_fresh_start()
            version = version_of(target)
            return await self._lists.send(request, first_target, answer, codec, client.waiting_pods, version)

    async def _watch(
        self,
        request: web.BaseRequest,
        target: ApiTarget,
        answer: aiohttp.ClientResponse,
        codec: PodCodec,
        client: PodClient,
    ) -> web.StreamResponse:
        """Serve a watch.

        A client may continue a watch from a version that another process sent. That process may have shown
        pods to the client, so the unbound pods are read before the watch is served.
        """
        version, wants_initial_events = version_of(target), target.parameter("sendInitialEvents") == "true"
        if wants_initial_events and not version:
            self._appearances.record_fresh_start()
        reads_all = wants_initial_events or not version
        if not reads_all and not client.waiting_pods.knows_version(version):
            headers = CIMultiDict(request.headers)
            headers[hdrs.ACCEPT] = codec.content_type
            await self._lists.read_unbound(target, CIMultiDictProxy(headers), codec, client.waiting_pods)
        stream = PodWatch(client.waiting_pods, self._appearances, version, reads_all)
        response = web.StreamResponse(headers=headers_for_client(answer.headers))
        await response.prepare(request)
        client.abort_watches()
        watch = ClientWatch(request, response, stream, codec)
        client.watches.add(watch)
        try:
            await watch.run(answer)
        finally:
            client.watches.discard(watch)
        return response


def version_of(target: ApiTarget) -> int:
    """Return the resourceVersion that the client has; 0 if it has none."""
    version = target.parameter("resourceVersion") or ""
    return int(version) if version.isascii() and version.isdecimal() else 0
