"""Newest copies of objects, for the controllers that write to them; references and conditions.

The stores keep what patches are made from: versions, conditions of other controllers, amounts that have to be
removed. Listeners get the key of each object that is new, has changed or is gone.
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
        """Store the `answer` to a write on `written_on`, unless the watch has shown a newer copy."""
        with self._lock:
            if self._objects.get(key) is written_on:
                self._objects[key] = answer

    def _notify(self, key: K) -> None:
        for listener in self._listeners:
            listener(key)


class QueueCopy(NamedTuple):
    queue: Queue
    known_at: int  # the ledger's version since which it has this copy or a newer one


class Objects:
    def __init__(self) -> None:
        self.podgroups: ObjectStore[GroupKey, PodGroup] = ObjectStore()
        self.queues: ObjectStore[str, QueueCopy] = ObjectStore()
        self.local_queues: ObjectStore[str, LocalQueue] = ObjectStore()


# References to objects, of Events and owners.


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
    """Return a time in UTC, to the second, as Kubernetes writes it."""
    return instant.strftime("%Y-%m-%dT%H:%M:%SZ")


def with_transition_time(now: Condition, before: Condition | None) -> Condition:
    """Return a condition with its lastTransitionTime: that of `before` if the status is the same."""
    same = before is not None and before.status == now.status
    since = before.last_transition_time if before is not None and same else None
    return replace(now, last_transition_time=since or timestamp(datetime.now(UTC)))
