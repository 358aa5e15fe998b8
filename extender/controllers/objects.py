"""Newest copies of objects, for the controllers that write to these objects.

Controllers make patches from these copies. A patch needs the version, the conditions of other controllers,
and the amounts that the patch removes. Listeners get the key of each object that is new, has changed or is
gone.
"""

import threading
from collections.abc import Callable, Hashable
from datetime import UTC, datetime
from typing import Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from extender.api.objects.base import Condition, Reference
from extender.api.objects.queues import LocalQueue, PodGroup, Queue
from extender.domain.model.records import GroupKey, GroupRecord, Origin, PodRecord
from extender.domain.snapshot.jobs import JobRecord
from extender.kube.resources import (
    ALPHA_POD_GROUPS,
    COMPOSITE_POD_GROUPS,
    NATIVE_POD_GROUPS,
    PLUGINS_POD_GROUPS,
    POD_GROUPS,
)

GROUP_KINDS = {
    Origin.VOLCANO: POD_GROUPS,
    Origin.PLUGINS: PLUGINS_POD_GROUPS,
    Origin.NATIVE: NATIVE_POD_GROUPS,
    Origin.ALPHA: ALPHA_POD_GROUPS,
    Origin.COMPOSITE: COMPOSITE_POD_GROUPS,
}
POD_GROUP_KIND, COMPOSITE_KIND = "PodGroup", "CompositePodGroup"

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class ObjectStore(Generic[K, T]):
    """Objects of one kind, by key. Safe to use from any thread."""

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

    def record_write(self, key: K, written_on: T, answer: T) -> None:
        """Store the `answer` to a write, unless the watch has replaced the copy `written_on` meanwhile."""
        with self._lock:
            if self._objects.get(key) is written_on:
                self._objects[key] = answer

    def _notify(self, key: K) -> None:
        for listener in self._listeners:
            listener(key)


class QueueCopy(NamedTuple):
    queue: Queue
    ledger_version: int  # version of the ledger that has this copy or a newer copy


class Objects:
    def __init__(self) -> None:
        self.podgroups: ObjectStore[GroupKey, PodGroup] = ObjectStore()
        self.queues: ObjectStore[str, QueueCopy] = ObjectStore()
        self.local_queues: ObjectStore[str, LocalQueue] = ObjectStore()


# References to objects, for Events and for owners.


def pod_reference(pod: PodRecord) -> Reference:
    return Reference("v1", "Pod", pod.name, pod.namespace, pod.uid)


def group_reference(group: GroupRecord) -> Reference:
    kind = COMPOSITE_KIND if group.origin is Origin.COMPOSITE else POD_GROUP_KIND
    return Reference(GROUP_KINDS[group.origin].version, kind, group.name, group.namespace, group.uid)


def job_reference(job: JobRecord) -> Reference:
    return Reference(job.kind.api_version, job.kind.kind, job.name, job.namespace, job.uid)


def queue_reference(name: str, uid: str) -> Reference:
    return Reference(POD_GROUPS.version, "Queue", name, "", uid)


def timestamp(instant: datetime) -> str:
    """Return a time in UTC, to the second, in the format of Kubernetes."""
    return instant.strftime("%Y-%m-%dT%H:%M:%SZ")


def with_transition_time(new: Condition, old: Condition | None) -> Condition:
    """Return the condition `new` with its lastTransitionTime.

    The time is the same as in `old` if the status is the same.
    """
    is_unchanged = old is not None and old.status == new.status
    since = old.last_transition_time if old is not None and is_unchanged else None
    return replace(new, last_transition_time=since or timestamp(datetime.now(UTC)))
