"""The newest copies of objects as the API server has them, for the controllers that write to them; how
objects name others, and dated conditions.
"""

import threading
from collections.abc import Callable, Hashable
from datetime import UTC, datetime
from typing import Any, Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from extender.api.objects.base import Condition, Reference
from extender.api.objects.pods import Pod
from extender.api.objects.queues import LocalQueue, PodGroup, Queue
from extender.domain.model.records import GroupKey, GroupRecord, Origin, PodRecord, Uid
from extender.domain.snapshot.jobs import JobRecord
from extender.kube.resources import NATIVE_POD_GROUPS, PLUGINS_POD_GROUPS, POD_GROUPS

# ---- Conditions as statuses have them, with the time of their last transition.


def timestamp(moment: datetime) -> str:
    """In UTC and to the second, as Kubernetes writes it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def dated(now: Condition, before: Condition | None) -> Condition:
    """`now` with a time of transition: that of `before` if the status is the same, otherwise the current
    one."""
    same = before is not None and before.status == now.status
    since = before.last_transition_time if before is not None and same else None
    return replace(now, last_transition_time=since or timestamp(datetime.now(UTC)))


# ---- How objects name others: those that Events are about, and owners.

GROUP_KINDS = {
    Origin.VOLCANO: POD_GROUPS,
    Origin.PLUGINS: PLUGINS_POD_GROUPS,
    Origin.NATIVE: NATIVE_POD_GROUPS,
}
POD_GROUP_KIND = "PodGroup"  # in all of these APIs
_VOLCANO = POD_GROUPS.version


def of_pod(pod: PodRecord) -> Reference:
    return Reference("v1", "Pod", pod.name, pod.namespace, pod.uid)


def of_group(group: GroupRecord) -> Reference:
    version = GROUP_KINDS[group.origin].version
    return Reference(version, POD_GROUP_KIND, group.name, group.namespace, group.uid)


def of_job(job: JobRecord) -> Reference:
    return Reference(job.kind.api_version, job.kind.kind, job.name, job.namespace, job.uid)


def of_queue(name: str, uid: str) -> Reference:
    return Reference(_VOLCANO, "Queue", name, "", uid)


def owner_group(group: GroupRecord) -> dict[str, Any]:
    """An owner reference to a group, of whichever API it is. It does not block the group's deletion, which
    would take the right to update its finalizers."""
    return {
        "apiVersion": GROUP_KINDS[group.origin].version,
        "kind": POD_GROUP_KIND,
        "name": group.name,
        "uid": group.uid,
        "controller": True,
    }


# ---- The newest copies of objects as the API server has them, for the controllers that write to them.
#
# The ledger keeps what decisions need, not the objects themselves. This store keeps what patches are
# made from: versions, conditions of other controllers, amounts that have to be removed. Watches put
# objects in; listeners get the key of each object that is new, has changed or is gone.

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
