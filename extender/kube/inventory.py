"""Which objects a sink has, so that after a gap it gets only the differences.

For each object only its UID and version are kept, not the object: 50,000 pods cost a few MB.
"""

from collections.abc import Callable, Set
from sys import intern
from typing import Generic, NamedTuple, Protocol, TypeVar

import structlog

from extender.kube.events import Bad, NamedObject

log = structlog.get_logger(__name__)

T_contra = TypeVar("T_contra", contravariant=True)
T = TypeVar("T", bound=NamedObject)

ObjectKey = tuple[str, str]  # namespace, name

_REMEMBERED_BAD = 100
_LONGEST = 300  # characters of a fault


class Removed(NamedTuple):
    """An object that is gone."""

    namespace: str
    name: str
    uid: str


class Sink(Protocol[T_contra]):
    """The receiver of objects. Called only by the reflector's thread, in the order of the API server."""

    def upsert(self, obj: T_contra) -> None:
        """The object is new or has changed."""

    def remove(self, gone: Removed) -> None:
        """The object is gone. A new object of the same name is passed on only after this."""


class Inventory(Generic[T]):
    """Passes on what has changed, and survives bad objects and a sink that raises."""

    def __init__(self, plural: str, sink: Sink[T]) -> None:
        self._plural = plural
        self._sink = sink
        self._known: dict[ObjectKey, tuple[str, str]] = {}  # UID and version that the sink has
        self.bad: dict[ObjectKey, str] = {}  # what is wrong with which object; bounded
        self.bad_objects = 0  # how many times an object could not be read or taken in
        self.sink_faults = 0  # how many times the sink raised
        self._not_removed: list[Removed] = []  # the sink raised: removed again after the next list

    def __len__(self) -> int:
        return len(self._known)

    def put(self, item: T | Bad) -> ObjectKey:
        """Pass on an object unless the sink already has this version of it."""
        meta = item.metadata
        key = (intern(meta.namespace), meta.name)
        uid, version = self._known.get(key, ("", ""))
        if uid and uid != meta.uid:
            self.discard(key)
        if isinstance(item, Bad):
            self._note_bad(key, item.fault)
        elif (uid, version) != (meta.uid, meta.resource_version):
            self._upsert(key, item)
        return key

    def discard(self, key: ObjectKey) -> None:
        """Remove an object from the sink, if the sink has it."""
        self.bad.pop(key, None)
        if known := self._known.pop(key, None):
            self._remove(Removed(*key, known[0]))

    def keep_only(self, present: Set[ObjectKey]) -> None:
        """Remove all objects from the sink that a complete list no longer shows."""
        again, self._not_removed = self._not_removed, []
        for gone in again:
            self._remove(gone)
        for key in self._known.keys() - present:
            self.discard(key)
        self.bad = {key: fault for key, fault in self.bad.items() if key in present}

    def _upsert(self, key: ObjectKey, item: T) -> None:
        """An object that the sink could not take in is remembered without a version, so that the next list
        passes it on again."""
        meta = item.metadata
        fault = self._fault_of(lambda: self._sink.upsert(item))
        self._known[key] = (meta.uid, meta.resource_version if fault is None else "")
        if fault is None:
            self.bad.pop(key, None)
        else:
            self._note_bad(
                key, f"it could not be taken in: {type(fault).__name__}: {fault}"[:_LONGEST], fault
            )

    def _remove(self, gone: Removed) -> None:
        fault = self._fault_of(lambda: self._sink.remove(gone))
        if fault is not None:
            self._not_removed.append(gone)
            log.warning("handling a deleted object failed", resource=self._plural, exc_info=fault)

    def _fault_of(self, pass_on: Callable[[], None]) -> Exception | None:
        """An object that makes the sink raise costs only that object, not the watch."""
        try:
            pass_on()
        except Exception as fault:
            self.sink_faults += 1
            return fault
        return None

    def _note_bad(self, key: ObjectKey, why: str, fault: Exception | None = None) -> None:
        """Log each bad object once, up to a number of objects. The sink keeps the last good version."""
        self.bad_objects += 1
        if key in self.bad or len(self.bad) >= _REMEMBERED_BAD:
            return
        self.bad[key] = why
        log.warning(
            "an object cannot be read and is skipped",
            resource=self._plural,
            namespace=key[0],
            name=key[1],
            error=why,
            exc_info=fault,
        )
