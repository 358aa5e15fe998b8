"""Objects of a cluster as its API server has them now, by watches with the user's rights: of all namespaces
where that is allowed, else of one."""

import time
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Lock
from typing import Any, Generic, NamedTuple, TypeVar

from extender.api.objects.cluster import Namespace, Node
from extender.api.objects.pods import Pod
from extender.api.objects.queues import LocalQueue, ResourceFlavor
from extender.cli.access import ClusterAccess
from extender.cli.lookup import ListedObject
from extender.domain.explain.observed import ObservedGroup, ObservedQueue
from extender.kube import resources as kube
from extender.kube.decoding import NamedObject, learn_structs
from extender.kube.errors import Forbidden, NotFound
from extender.kube.reflector import Reflector, Removed
from extender.kube.requests import Reader
from extender.kube.resources import Resource

T = TypeVar("T")
O = TypeVar("O", bound=NamedObject)  # noqa: E741

_FIRST = 20.0  # seconds that whoever looks first waits for the lists
_KINDS: tuple[tuple[Resource, type[Any]], ...] = (
    (kube.QUEUES, ObservedQueue),
    (kube.POD_GROUPS, ObservedGroup),
    (kube.PODS, Pod),
    (kube.NODES, Node),
    (kube.LOCAL_QUEUES, LocalQueue),
    (kube.RESOURCE_FLAVORS, ResourceFlavor),
    (kube.NAMESPACES, Namespace),
)
_OF_THE_CLUSTER = (kube.QUEUES, kube.NODES, kube.NAMESPACES, kube.RESOURCE_FLAVORS)


class Copies(Generic[O]):
    """A sink: all objects of a kind by namespace and name, and when any of them last changed."""

    def __init__(self, changed: Event) -> None:
        self.objects: dict[tuple[str, str], O] = {}
        self._changed = changed
        self._lock = Lock()

    def upsert(self, obj: O) -> None:
        with self._lock:
            self.objects[obj.metadata.namespace, obj.metadata.name] = obj
        self._changed.set()

    def remove(self, gone: Removed) -> None:
        with self._lock:
            self.objects.pop((gone.namespace, gone.name), None)
        self._changed.set()

    def all(self, namespace: str = "") -> list[O]:
        with self._lock:
            return [obj for key, obj in self.objects.items() if namespace in ("", key[0])]


class _Watch(NamedTuple):
    kind: type[Any]
    namespace: str  # empty: all
    copies: Copies[Any]
    reflector: Reflector[Any]


class WatchedReader(Reader):
    """Reads from copies what is watched, and all else from the API server. Each change sets `changed`."""

    def __init__(self, place: ClusterAccess, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(place.connection)
        self.changed = Event()
        self.unread: list[str] = []  # kinds that may not be listed, by their plural names
        self._place, self._clock = place, clock
        self._watches: dict[Resource, _Watch] = {}

    def start(self) -> None:
        """Find out what may be read, and wait until it has been. Raises ApiError."""
        learn_structs()
        for resource, kind in _KINDS:
            if (namespace := self._scope(resource)) is None:
                self.unread.append(resource.plural)
                continue
            copies: Copies[Any] = Copies(self.changed)
            reflector = Reflector(self._connection, resource, kind, copies, namespace=namespace)
            self._watches[resource] = _Watch(kind, namespace, copies, reflector)
            reflector.start()
        until = self._clock() + _FIRST
        while self._clock() < until and not all(it.reflector.synced for it in self._watches.values()):
            time.sleep(0.02)

    def stop(self) -> None:
        for watch in self._watches.values():
            watch.reflector.halt()

    def silence(self) -> float:
        """Seconds since the API server was last heard of, through any watch. Bookmarks come every minute."""
        heard = [it.reflector.last_contact or 0.0 for it in self._watches.values()]
        return self._clock() - max(heard) if heard else 0.0

    def scope(self, resource: Resource) -> str | None:
        """The namespace of which a kind is watched, empty for all; None: it may not be read."""
        watch = self._watches.get(resource)
        return watch.namespace if watch else None

    def watched(self, resource: Resource) -> list[Any]:
        """All of a kind that may be read."""
        watch = self._watches.get(resource)
        return watch.copies.all() if watch else []

    def get(self, resource: Resource, namespace: str, name: str, kind: type[T]) -> T:
        watch = self._watches.get(resource)
        if watch is not None and watch.kind is kind and watch.namespace in ("", namespace):
            with suppress(KeyError):
                found: T = watch.copies.objects[namespace, name]
                return found
        return super().get(resource, namespace, name, kind)

    def list(
        self, resource: Resource, namespace: str, kind: type[T], fields: str = "", labels: str = ""
    ) -> list[T]:
        """Raises Forbidden without asking for what may not be read of all namespaces."""
        watch = self._watches.get(resource)
        if fields or labels or (watch is not None and watch.kind is not kind):
            return super().list(resource, namespace, kind, fields, labels)
        if watch is not None and watch.namespace in ("", namespace):
            return watch.copies.all(namespace)
        if watch is not None or resource.plural in self.unread:
            raise Forbidden(403, "Forbidden", f"you may not list {resource.plural}")
        return super().list(resource, namespace, kind, fields, labels)

    def _scope(self, resource: Resource) -> str | None:
        own = () if resource in _OF_THE_CLUSTER else (self._place.namespace,)
        for namespace in ("", *filter(None, own)):
            with suppress(Forbidden, NotFound):
                self._get(resource.path(namespace), ListedObject, query={"limit": 1})
                return namespace
        return None
