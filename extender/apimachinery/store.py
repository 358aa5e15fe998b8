"""Objects, the log of their changes, and followers of the log, like informers of an API server.

Every change gets the next number of one sequence, and this number is the object's resourceVersion. So a
version is a position in the log, and a watch continues after the last version that its client saw. The log
has a limit: a client with a version that is too old must list again. A write replaces the stored object
and never changes it, so that callers may get the stored object without a copy.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

from extender.apimachinery.errors import StatusError
from extender.apimachinery.kinds import Json, ResourceKind

Key = tuple[str, str]  # namespace, name


class Change(NamedTuple):
    """Entry of the log. For a deletion it has the object's last state, with the version of the deletion."""

    version: int
    type: str  # ADDED, MODIFIED, DELETED
    kind: ResourceKind
    object: Json
    old_object: Json | None


_MAX_CHANGES = 50_000


class Store:
    """Store of objects. `with store:` makes several reads and writes one atomic step.

    `version` is the version of the latest change.
    """

    def __init__(self, version: int = 1) -> None:
        self._condition = threading.Condition()
        self._objects: dict[ResourceKind, dict[Key, Json]] = {}
        self._log: list[Change] = []
        self.is_closed = False
        self.version = version
        self.changed_at = time.monotonic()

    def __enter__(self) -> "Store":
        self._condition.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._condition.release()

    def get(self, kind: ResourceKind, namespace: str, name: str) -> Json | None:
        return self._objects.get(kind, {}).get((namespace, name))

    def all(self, kind: ResourceKind, namespace: str = "") -> list[Json]:
        """Return the current objects, sorted by namespace and name."""
        return self.listing(kind, namespace)[0]

    def listing(self, kind: ResourceKind, namespace: str = "", version: int = 0) -> tuple[list[Json], int]:
        """Return the objects as of `version`, and that version. Version 0 means the current objects."""
        with self:
            objects = self._objects.get(kind, {})
            if version:  # for an older version, undo the later changes
                objects = dict(objects)
                for change in reversed(self._changes_since(version)):
                    if change.kind is kind and change.old_object is None:
                        objects.pop(key_of(change.object), None)
                    elif change.kind is kind and change.old_object is not None:
                        objects[key_of(change.old_object)] = change.old_object
            keys = sorted(key for key in objects if namespace in ("", key[0]))
            return [objects[key] for key in keys], version or self.version

    def put(self, kind: ResourceKind, obj: Json) -> Json:
        """Store `obj` under a new version. The caller must not change the object afterwards."""
        with self:
            objects = self._objects.setdefault(kind, {})
            before = objects.get(key_of(obj))
            self._record("MODIFIED" if before else "ADDED", kind, obj, before)
            objects[key_of(obj)] = obj
            return obj

    def remove(self, kind: ResourceKind, key: Key) -> Json:
        with self:
            before = self._objects[kind].pop(key)
            deleted_object = {**before, "metadata": dict(before["metadata"])}
            self._record("DELETED", kind, deleted_object, before)
            return deleted_object

    def _record(self, type_: str, kind: ResourceKind, obj: Json, before: Json | None) -> None:
        self.version += 1
        if not _changes_only_usage(obj, before or {}):
            self.changed_at = time.monotonic()
        obj["metadata"]["resourceVersion"] = str(self.version)
        self._log.append(Change(self.version, type_, kind, obj, before))
        if len(self._log) > _MAX_CHANGES:
            del self._log[: _MAX_CHANGES // 2]
        self._condition.notify_all()

    def wait(self, version: int, seconds: float) -> list[Change]:
        """Return the changes after `version`. If there are none, wait up to `seconds` for a change.

        Raises:
            StatusError: 410 if the log does not have all changes after `version`.
        """
        with self:
            if self.version <= version and not self.is_closed:
                self._condition.wait(seconds)
            return self._changes_since(version)

    def close(self) -> None:
        """Close the store, and wake all followers."""
        with self:
            self.is_closed = True
            self._condition.notify_all()

    def _changes_since(self, version: int) -> list[Change]:
        oldest_version = self.version - len(self._log)
        if version < oldest_version:
            raise StatusError(410, "Expired", f"too old resource version: {version}")
        return self._log[version - oldest_version :]


def key_of(obj: Json) -> Key:
    meta = obj["metadata"]
    return meta.get("namespace", ""), meta["name"]


MAX_WAIT = 1.0  # seconds


def _changes_only_usage(obj: Json, before: Json) -> bool:
    """Return whether a write changes only the recent usage in a queue's status.

    Writes of the usage happen all the time, and do not count as changes of the cluster.
    """
    new, old = obj.get("status") or {}, before.get("status") or {}
    return new.get("usage") != old.get("usage") and new | {"usage": None} == old | {"usage": None}


class StoreFollower(ABC):
    def __init__(
        self, store: Store, name: str, seconds_to_wait: Callable[[], float] = lambda: MAX_WAIT
    ) -> None:
        """Follow a store in a thread. `seconds_to_wait` returns the maximum wait for a change."""
        self._store, self._seconds_to_wait = store, seconds_to_wait
        self._stop_event = threading.Event()
        self._version = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop_event.set()

    @property
    def is_behind(self) -> bool:
        """Return whether the store has changes that the follower has not handled yet."""
        return self._version < self._store.version

    @abstractmethod
    def _list_all(self) -> int:
        """List all objects, and return the version of the list.

        The follower lists at its start, and again if the log lacks changes.
        """

    @abstractmethod
    def _handle_changes(self, changes: Sequence[Change]) -> None:
        """Handle the changes since the last call. The list may be empty."""

    def _run(self) -> None:
        self._version = self._list_all()
        while not self._stop_event.is_set():
            try:
                changes = self._store.wait(self._version, self._seconds_to_wait())
            except StatusError:
                self._version = self._list_all()
            else:
                self._handle_changes(changes)
                self._version = changes[-1].version if changes else self._version
