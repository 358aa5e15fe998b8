"""Objects created by eight clients at once, and the watch that sees pods bound.

The watch is for bound pods only, and for their metadata only, so that it costs the API server the same
for every scheduler. It resumes where it was dropped: an observer that does not reports nonsense.
"""

import http.client
import json
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, Generic, Self, TypeVar
from urllib.parse import quote

import msgspec

from tests.bench.line import JSON, Line
from tests.e2e.harness.client import Access
from tests.e2e.harness.resources import PODS, Resource
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.watch import ApiError

Json = dict[str, Any]
Wish = tuple[Resource, Json]
CLIENTS = 8
BOUND = f"fieldSelector={quote('spec.nodeName!=')}"
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_GONE = 410


def create(access: Access, wishes: Iterable[Wish]) -> float:
    """Create all of it in this order, as far as eight clients keep one; returns when the first was sent."""
    shared, failures = _Shared(wishes), list[BaseException]()
    clients = [threading.Thread(target=_client, args=(access, shared, failures)) for _ in range(CLIENTS)]
    started = time.monotonic()
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    if failures:
        raise failures[0]
    return started


def _client(access: Access, wishes: "_Shared", failures: list[BaseException]) -> None:
    line = Line.to(access)
    try:
        while not failures and (wish := wishes.take()) is not None:
            resource, body = wish
            path = resource.path(str(body["metadata"].get("namespace", "")))
            line.want("POST", path, json.dumps(body).encode())
    except (ApiError, OSError, http.client.HTTPException) as fault:
        failures.append(fault)
    finally:
        line.close()


class _Shared:
    """An iterator that many threads take from."""

    def __init__(self, wishes: Iterable[Wish]) -> None:
        self._wishes = iter(wishes)
        self._lock = threading.Lock()

    def take(self) -> Wish | None:
        with self._lock:
            return next(self._wishes, None)


class ObjectMeta(msgspec.Struct, rename="camel"):
    name: str = ""
    resource_version: str = ""


class _Object(msgspec.Struct):
    metadata: ObjectMeta
    code: int = 0


class _Event(msgspec.Struct):
    type: str
    object: _Object


E = TypeVar("E")


class EventWatch(Generic[E]):
    """Watch of one resource that passes events on to `record`, from `with` on.

    `kind`: the decoded type of an event; it has `type` and `object`.
    """

    def __init__(self, access: Access, path: str, kind: type[E], accept: str = JSON) -> None:
        """Prepare a watch. `path`: with a query, without those of a watch."""
        self._access, self._path, self._accept = access, path, accept
        self._version = ""
        self._ended = threading.Event()
        self._decoder = msgspec.json.Decoder(kind)
        self._thread = threading.Thread(target=self._run, name="bench-watch", daemon=True)

    def __enter__(self) -> Self:
        listing = json.loads(Line.to(self._access).want("GET", f"{self._path}&limit=1"))
        self._version = listing["metadata"]["resourceVersion"]
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def record(self, event: E) -> str:
        """Record an event and return the version to go on from.

        Raises ApiError for an event that ends the watch.
        """
        raise NotImplementedError

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                for event in self._events():
                    self._version = self.record(event) or self._version
            except (ApiError, OSError, http.client.HTTPException):
                self._ended.wait(0.1)

    def _events(self) -> Iterator[E]:
        """Yield the events of short watches, so that it ends soon after `stop`."""
        query = f"&watch=1&allowWatchBookmarks=1&timeoutSeconds=10&resourceVersion={self._version}"
        line = Line.to(self._access)
        try:
            yield from map(self._decoder.decode, line.stream(self._path + query, self._accept))
        finally:
            line.close()


class BoundWatch(EventWatch[_Event]):
    """Watch of bound pods with their times.

    `with BoundWatch(access, namespace) as bound: ...; bound.wait(100, 60)`.
    """

    def __init__(self, access: Access, namespace: str) -> None:
        super().__init__(access, f"{PODS.path(namespace)}?{BOUND}", _Event, _METADATA)
        self.at: dict[str, float] = {}

    def wait(self, count: int, timeout: float) -> bool:
        """Return whether that many pods were bound in time."""
        try:
            wait_for(lambda: len(self.at) >= count, timeout)
        except TimeoutError:
            return False
        return True

    @property
    def last(self) -> float:
        return max(self.at.values(), default=0.0)

    def record(self, event: _Event) -> str:
        if event.type == "ERROR":
            raise ApiError(event.object.code, "the watch was refused")
        if event.type == "ADDED":
            self.at.setdefault(event.object.metadata.name, time.monotonic())
        return event.object.metadata.resource_version


def count_bound(access: Access, namespace: str) -> int:
    """Count the bound pods by a list, as a second way to count."""
    return len(json.loads(Line.to(access).want("GET", f"{PODS.path(namespace)}?{BOUND}"))["items"])
