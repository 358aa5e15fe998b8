"""The newest copies of objects as the API server has them, for the controllers that write to them.

The ledger keeps what decisions need, not the objects themselves. This store keeps what patches are made from:
versions, conditions of other controllers, amounts that have to be removed. Watches put objects in; listeners
get the key of each object that is new, has changed or is gone.
"""

import threading
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from extender.api.objects.groups import PodGroup
from extender.api.objects.pods import Pod
from extender.api.objects.queues import LocalQueue, Queue
from extender.domain.model.records import GroupKey, Uid

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class ObjectStore(Generic[K, T]):
    """The objects of one kind, by key. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[K, T] = {}
        self._listeners: list[Callable[[K], None]] = []

    def listen(self, listener: Callable[[K], None]) -> None:
        self._listeners.append(listener)

    def get(self, key: K) -> T | None:
        return self._objects.get(key)

    def put(self, key: K, copy: T) -> None:
        with self._lock:
            self._objects[key] = copy
        self._notify(key)

    def drop(self, key: K) -> None:
        with self._lock:
            self._objects.pop(key, None)
        self._notify(key)

    def follow(self, key: K, written_on: T, answer: T) -> None:
        """Store the `answer` to a write on `written_on`, unless the watch has shown another copy
        meanwhile."""
        with self._lock:
            if self._objects.get(key) is written_on:
                self._objects[key] = answer

    def _notify(self, key: K) -> None:
        for listener in self._listeners:
            listener(key)


class QueueCopy(NamedTuple):
    queue: Queue
    known_at: int  # the version from which on the ledger has this copy or a newer one


class UnnamedPods:
    """Pods that do not have the name of their group yet, by that group. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pods: dict[GroupKey, dict[Uid, Pod]] = {}
        self._groups: dict[Uid, GroupKey] = {}

    def __contains__(self, uid: Uid) -> bool:
        return uid in self._groups

    def put(self, key: GroupKey, pod: Pod) -> None:
        uid = Uid(pod.metadata.uid)
        with self._lock:
            self._drop(uid)
            self._pods.setdefault(key, {})[uid] = pod
            self._groups[uid] = key

    def drop(self, uid: Uid) -> None:
        with self._lock:
            self._drop(uid)

    def of(self, key: GroupKey) -> list[Pod]:
        with self._lock:
            return list(self._pods.get(key, {}).values())

    def _drop(self, uid: Uid) -> None:
        key = self._groups.pop(uid, None)
        if key is not None:
            del self._pods[key][uid]
            if not self._pods[key]:
                del self._pods[key]


class Objects(NamedTuple):
    """One store for each kind that controllers write to."""

    podgroups: ObjectStore[GroupKey, PodGroup]
    queues: ObjectStore[str, QueueCopy]
    local_queues: ObjectStore[str, LocalQueue]
    unnamed_pods: UnnamedPods


def objects() -> Objects:
    return Objects(ObjectStore(), ObjectStore(), ObjectStore(), UnnamedPods())
