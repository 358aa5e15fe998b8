"""List and watch of pods: what the scheduler is shown of them. What that is, PodStream and PodList say."""

import asyncio
from contextlib import suppress

import aiohttp
from aiohttp import hdrs, web
from multidict import CIMultiDict, CIMultiDictProxy

from extender.domain.view.appearance import Appearances
from extender.domain.view.pod_stream import PodStream
from extender.telemetry import metrics
from extender.view.clients import PodClient, PodClients
from extender.view.headers import for_client
from extender.view.passing import CutOff, hand_over, pass_on, pieces
from extender.view.pod_events.codec import BrokenPods, PodCodec
from extender.view.pod_events.json import JsonPods
from extender.view.pod_events.protobuf import ProtobufPods
from extender.view.pod_lists import PodLists
from extender.view.readers import PodReader
from extender.view.sending import Sending
from extender.view.target import ViewTarget
from extender.view.upstream import Upstream

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
                await _run(sending, answer, codec)
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


async def _run(sending: Sending, answer: aiohttp.ClientResponse, codec: PodCodec) -> None:
    """Raises CutOff, also if there are bytes that nobody can read."""
    sending.put(sending.stream.begin())
    writing = asyncio.create_task(sending.run())
    writing.add_done_callback(lambda done: _check(done, sending))
    try:
        await _read(sending, answer, codec)
        sending.end()
        await writing
    finally:
        writing.cancel()


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
