"""The newest copies of objects as the API server has them, for those controllers that write on them.

The ledger keeps what decisions need, not the objects themselves. Kept here is what a patch has to be made
from: versions, conditions of others, amounts that are to be taken back. Watches put in, for all; whoever
listens is told the key of what came, changed or went.
"""

import threading
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from extender.api.objects import Pod, PodGroup, Queue
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
        self._tell(key)

    def drop(self, key: K) -> None:
        with self._lock:
            self._objects.pop(key, None)
        self._tell(key)

    def follow(self, key: K, written_on: T, answer: T) -> None:
        """What a write on `written_on` made of it, unless the watch has shown another copy meanwhile."""
        with self._lock:
            if self._objects.get(key) is written_on:
                self._objects[key] = answer

    def _tell(self, key: K) -> None:
        for listener in self._listeners:
            listener(key)


class QueueCopy(NamedTuple):
    """`known_at`: the version of the ledger that knows all that the queue says."""

    queue: Queue
    known_at: int


class UnnamedPods:
    """Pods that do not bear the name of their group yet, by that group. Safe to use from any thread."""

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
    """One store for each kind that is written on."""

    podgroups: ObjectStore[GroupKey, PodGroup]
    queues: ObjectStore[str, QueueCopy]
    unnamed_pods: UnnamedPods


def objects() -> Objects:
    return Objects(ObjectStore(), ObjectStore(), UnnamedPods())
