"""A watch: what became of some objects since a version, as it happens.

An object that begins to match the selectors is ADDED, one that no longer does is DELETED. Bookmarks tell the
version while nothing else does, and once more at the end, so that the next watch can go on from there.
"""

import time
from collections.abc import Callable, Iterator

import msgspec

from extender.sim.apiserver.kinds import Json
from extender.sim.apiserver.options import Query
from extender.sim.apiserver.requests import RequestTarget
from extender.sim.apiserver.selectors import Test, selecting
from extender.sim.apiserver.status_errors import StatusError
from extender.sim.apiserver.store import Change, Store

_LOOK = 1.0  # seconds between two looks at whether somebody still listens
_SECONDS = 1800
_INITIAL_END = "k8s.io/initial-events-end"

encode = msgspec.json.Encoder().encode


class Watch:
    """Iterate over `lines`; `listening` is asked now and then whether that is still worth it.

    `shape` makes of an object what the client wants to see of it.
    """

    def __init__(
        self,
        store: Store,
        target: RequestTarget,
        query: Query,
        listening: Callable[[], bool],
        shape: Callable[[Json], Json] = lambda obj: obj,
        bookmark_every: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._target = target
        self._listening = listening
        self._shape = shape
        self._bookmark_every = bookmark_every
        self._clock = clock
        self._test = selecting(query.get("labelSelector", ""), query.get("fieldSelector", ""))
        self._bookmarks = query.get("allowWatchBookmarks") in ("true", "1")
        self._seconds = int(query.get("timeoutSeconds") or _SECONDS)
        self._all_first = query.get("sendInitialEvents") == "true"
        self._version = 0 if self._all_first else int(query.get("resourceVersion") or 0)

    def lines(self) -> Iterator[bytes]:
        """Events, several in one piece where they come together."""
        try:
            if not self._version:
                yield self._first()
            yield from self._follow()
        except StatusError as refusal:  # 410: the head of the answer is long sent
            yield _line("ERROR", refusal.status())

    def _first(self) -> bytes:
        """What is there; a client that asked for all of it first is told where that ends."""
        objects, self._version = self._store.listing(self._target.kind, self._target.namespace)
        end = self._bookmark({_INITIAL_END: "true"}) if self._all_first else b""
        return b"".join(_line("ADDED", self._shape(obj)) for obj in objects if self._test(obj)) + end

    def _follow(self) -> Iterator[bytes]:
        ends = self._clock() + self._seconds
        bookmark_at = self._clock() + self._bookmark_every
        while self._clock() < ends and not self._store.closed and self._listening():
            wait = min(ends, bookmark_at, self._clock() + _LOOK) - self._clock()
            if events := self._events(self._store.wait(self._version, max(wait, 0.0))):
                yield events
            if self._clock() >= bookmark_at:
                bookmark_at = self._clock() + self._bookmark_every
                yield self._bookmark()
        yield self._bookmark()

    def _events(self, changes: list[Change]) -> bytes:
        if changes:
            self._version = changes[-1].version
        meant = (change for change in changes if self._means(change))
        return b"".join(
            _line(seen, self._shape(change.object))
            for change in meant
            if (seen := seen_as(change, self._test))
        )

    def _means(self, change: Change) -> bool:
        namespace = self._target.namespace
        return change.kind is self._target.kind and (
            not namespace or change.object["metadata"].get("namespace") == namespace
        )

    def _bookmark(self, annotations: dict[str, str] | None = None) -> bytes:
        if not self._bookmarks:
            return b""
        kind, meta = self._target.kind, {"resourceVersion": str(self._version), "annotations": annotations}
        return _line("BOOKMARK", {"kind": kind.name, "apiVersion": kind.api_version, "metadata": meta})


def seen_as(change: Change, test: Test) -> str:
    """What a change is to somebody who looks at matching objects only; empty: nothing."""
    before = change.before is not None and test(change.before)
    after = change.type != "DELETED" and test(change.object)
    if before:
        return "MODIFIED" if after else "DELETED"
    return "ADDED" if after else ""


def _line(type_: str, obj: Json) -> bytes:
    return encode({"type": type_, "object": obj}) + b"\n"
