"""Creation of objects by eight clients, and a watch of bound pods.

The watch selects only bound pods and requests only their metadata. Its cost for the API server is therefore
the same with every scheduler. A dropped watch continues from its last version, so that no binding is missed.
"""

import http.client
import json
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, Generic, Self, TypeVar
from urllib.parse import quote

import msgspec

from tests.bench.api_connection import JSON, ApiConnection
from tests.e2e.harness.client import Access
from tests.e2e.harness.resources import PODS, Resource
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.watch import ApiError

Json = dict[str, Any]
NewObject = tuple[Resource, Json]
CLIENTS = 8
BOUND = f"fieldSelector={quote('spec.nodeName!=')}"
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


def create(access: Access, new_objects: Iterable[NewObject]) -> float:
    """Create objects by eight clients, approximately in this order. Return the time of the first request.

    Raise the first failure of a client.
    """
    shared_objects, failures = _SharedIterator(new_objects), list[BaseException]()
    clients = [
        threading.Thread(target=_create_as_client, args=(access, shared_objects, failures))
        for _ in range(CLIENTS)
    ]
    started_at = time.monotonic()
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    if failures:
        raise failures[0]
    return started_at


def _create_as_client(access: Access, new_objects: "_SharedIterator", failures: list[BaseException]) -> None:
    """Create objects over one connection until no objects are left, or until a client has failed."""
    connection = ApiConnection.to(access)
    try:
        while not failures and (new_object := new_objects.take()) is not None:
            resource, body = new_object
            path = resource.path(str(body["metadata"].get("namespace", "")))
            connection.expect_success("POST", path, json.dumps(body).encode())
    except (ApiError, OSError, http.client.HTTPException) as fault:
        failures.append(fault)
    finally:
        connection.close()


class _SharedIterator:
    """Iterator over objects that several threads share."""

    def __init__(self, new_objects: Iterable[NewObject]) -> None:
        self._new_objects = iter(new_objects)
        self._lock = threading.Lock()

    def take(self) -> NewObject | None:
        with self._lock:
            return next(self._new_objects, None)


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
    """Watch of one resource that passes each event to `record` while the context is active.

    `kind` is the class of decoded events, which has the fields `type` and `object`.
    """

    def __init__(self, access: Access, path: str, kind: type[E], accept: str = JSON) -> None:
        """Prepare a watch. `path` has the path and the query without the parameters of a watch."""
        self._access, self._path, self._accept = access, path, accept
        self._version = ""
        self._has_ended = threading.Event()
        self._decoder = msgspec.json.Decoder(kind)
        self._thread = threading.Thread(target=self._run, name="bench-watch", daemon=True)

    def __enter__(self) -> Self:
        listing = json.loads(ApiConnection.to(self._access).expect_success("GET", f"{self._path}&limit=1"))
        self._version = listing["metadata"]["resourceVersion"]
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended.set()

    def record(self, event: E) -> str:
        """Record an event, and return its resourceVersion.

        Raise ApiError for an event that ends the watch.
        """
        raise NotImplementedError

    def _run(self) -> None:
        """Run watches until the context ends. Each watch continues from the version of the last event."""
        while not self._has_ended.is_set():
            try:
                for event in self._events():
                    self._version = self.record(event) or self._version
            except (ApiError, OSError, http.client.HTTPException):
                self._has_ended.wait(0.1)

    def _events(self) -> Iterator[E]:
        """Yield the events of one short watch, so that the thread ends soon after the context ends."""
        query = f"&watch=1&allowWatchBookmarks=1&timeoutSeconds=10&resourceVersion={self._version}"
        connection = ApiConnection.to(self._access)
        try:
            yield from map(self._decoder.decode, connection.stream(self._path + query, self._accept))
        finally:
            connection.close()


class BoundWatch(EventWatch[_Event]):
    """Watch of bound pods that records when each binding was seen.

    Example: `with BoundWatch(access, namespace) as bound: ...; bound.wait(100, 60)`.
    """

    def __init__(self, access: Access, namespace: str) -> None:
        super().__init__(access, f"{PODS.path(namespace)}?{BOUND}", _Event, _METADATA)
        self.bound_at: dict[str, float] = {}

    def wait(self, count: int, timeout: float) -> bool:
        """Wait until `count` pods are bound.

        Return False if this does not happen within `timeout` seconds.
        """
        try:
            wait_for(lambda: len(self.bound_at) >= count, timeout)
        except TimeoutError:
            return False
        return True

    @property
    def last(self) -> float:
        """Return the time of the last binding, or 0 without bindings."""
        return max(self.bound_at.values(), default=0.0)

    def record(self, event: _Event) -> str:
        if event.type == "ERROR":
            raise ApiError(event.object.code, "the watch was refused")
        if event.type == "ADDED":
            self.bound_at.setdefault(event.object.metadata.name, time.monotonic())
        return event.object.metadata.resource_version


def count_bound(access: Access, namespace: str) -> int:
    """Return the number of bound pods according to a list, to check the count of the watch."""
    return len(
        json.loads(ApiConnection.to(access).expect_success("GET", f"{PODS.path(namespace)}?{BOUND}"))["items"]
    )
