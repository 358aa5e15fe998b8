"""Who reads pods through the view: for each, the pods that wait, and the watches that it has open."""

import time
from collections import OrderedDict
from collections.abc import Sequence

from aiohttp import hdrs, web

from extender.domain.view.appearance import Change
from extender.domain.view.waiting_pods import WaitingPods
from extender.view.pod_events.codec import PodCodec
from extender.view.readers import PodReader
from extender.view.sending import Sending
from extender.view.target import ViewTarget

_MOST = 16  # clients; of one that is forgotten, the pods are read again when it comes back


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
        if len(self._clients) > _MOST:
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
