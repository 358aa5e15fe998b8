"""Lists of pods, read and written page by page, so that no list is in memory as a whole."""

from collections.abc import AsyncIterator

import aiohttp
from aiohttp import hdrs, web
from multidict import CIMultiDictProxy

from extender.domain.model.appearance import AS_IT_IS, Appearance, Appearances
from extender.domain.view.codec import BrokenPods, ListedPod, PodCodec, PodListWriter, PodPage, UnwritablePod
from extender.domain.view.pod_stream import PodList, WaitingPod, WaitingPods
from extender.kube.decoding import FIRST_PAGE, next_page
from extender.telemetry import metrics
from extender.view.headers import for_client
from extender.view.target import MalformedTarget, ViewTarget
from extender.view.upstream import CutOff, Upstream, UpstreamGone


class PodLists:
    def __init__(self, upstream: Upstream, appearances: Appearances) -> None:
        self._upstream, self._appearances = upstream, appearances

    def first_page(self, target: ViewTarget) -> ViewTarget:
        """The client gets all pods, whatever limit it asks for. Without a version the API server answers with
        the newest, as good as any that it could choose. Raises MalformedTarget."""
        if target.parameter("continue"):
            raise MalformedTarget("lists of pods are not continued here: the first answer has all of them")
        if target.parameter("resourceVersionMatch") == "Exact":
            return target.asking(limit=str(FIRST_PAGE))
        return target.asking(limit=str(FIRST_PAGE), resourceVersion=None, resourceVersionMatch=None)

    async def send(
        self,
        request: web.BaseRequest,
        first: ViewTarget,
        answer: aiohttp.ClientResponse,
        codec: PodCodec,
        waiting: WaitingPods,
        version: int,
    ) -> web.StreamResponse:
        """The first page is in `answer`. Raises CutOff."""
        shown = PodList(waiting, self._appearances, version)
        page = await _read(answer, codec)
        headers = for_client(answer.headers)
        headers.popall(hdrs.CONTENT_LENGTH, None)
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        writer = codec.list_writer(codec.list_metadata(page.version))
        await response.write(writer.start())
        async for pods in self._pages(first, request.headers, codec, page):
            await response.write(b"".join(_written(writer, pod, shown.appearance(pod)) for pod in pods))
        shown.end(page.version)
        await response.write(writer.end())
        await response.write_eof()
        return response

    async def meet(
        self, target: ViewTarget, headers: CIMultiDictProxy[str], codec: PodCodec, waiting: WaitingPods
    ) -> None:
        """Reads the unbound pods, of which another process may have shown some. Raises UpstreamGone."""
        selector = ",".join(filter(None, (target.parameter("fieldSelector"), "spec.nodeName=")))
        kept = {"fieldSelector": selector, "labelSelector": target.parameter("labelSelector")}
        first = target._replace(query="").asking(**kept, limit=str(FIRST_PAGE))
        met = {}
        try:
            page = await self._page(first, headers, codec)
            async for pods in self._pages(first, headers, codec, page):
                for facts, pod in pods:
                    if facts is not None and waiting.are_those(facts):
                        met[facts.uid] = WaitingPod(facts, pod)
        except CutOff as fault:
            raise UpstreamGone(str(fault)) from fault
        waiting.met(met, page.version)

    async def _pages(
        self, first: ViewTarget, headers: CIMultiDictProxy[str], codec: PodCodec, page: PodPage
    ) -> AsyncIterator[list[ListedPod]]:
        """The pods of this page and of those after it."""
        yield page.pods
        while page.more:
            limit = str(next_page(len(page.pods), sum(len(item.pod) for item in page.pods)))
            further = {"continue": page.more, "limit": limit}
            next_ = first.asking(resourceVersion=None, resourceVersionMatch=None, **further)
            page = await self._page(next_, headers, codec)
            yield page.pods

    async def _page(self, target: ViewTarget, headers: CIMultiDictProxy[str], codec: PodCodec) -> PodPage:
        """Raises CutOff."""
        try:
            async with self._upstream.open(target, headers) as answer:
                if answer.status != 200:
                    raise CutOff(f"the API server answered {answer.status} to a page of pods")
                return await _read(answer, codec)
        except UpstreamGone as fault:
            raise CutOff(str(fault)) from fault


async def _read(answer: aiohttp.ClientResponse, codec: PodCodec) -> PodPage:
    try:
        return codec.page(await answer.read())
    except (aiohttp.ClientError, OSError, TimeoutError, BrokenPods) as fault:
        raise CutOff(f"a page of pods cannot be read: {fault}") from fault


def _written(writer: PodListWriter, item: ListedPod, appearance: Appearance | None) -> bytes:
    if item.facts is None:
        metrics.view_unreadable_pods.inc()
    if appearance is None:
        return b""
    try:
        return writer.item(item.pod, appearance)
    except UnwritablePod:
        metrics.view_unreadable_pods.inc()
        return writer.item(item.pod, AS_IT_IS)
