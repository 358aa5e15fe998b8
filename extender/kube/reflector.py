"""Reflector: keeps a sink up to date with one resource, by a list in pages and then by watches, endlessly.

    list ──► watch ──► watch ──► watch ──► …      from the last version seen, also after an interruption
      ▲                  │
      └──────────────────┘  the version is too old (410), or the watch cannot be trusted

The API server sends at least a bookmark every minute. A watch that ends without any event is therefore not
trusted, and the reflector lists again. This is cheap, since the sink gets only the differences.

If the API server cannot be reached, or asks clients to wait, the reflector waits. If the API server answers
with several errors of its own in a row, it may have lost the version, and the reflector lists again.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from sys import intern
from typing import Generic, NamedTuple, Protocol, TypeVar

import structlog

from extender.kube.connection import JSON, Connection, QueryParams, Stream
from extender.kube.decoding import FIRST_LIMIT, Decoders, Encoding, NamedObject, Undecodable, next_page_size
from extender.kube.errors import Ambiguous, ApiError, Gone, NotFound, ServerFault, parse_refusal
from extender.kube.resources import Resource
from extender.kube.writers import Backoff

log = structlog.get_logger(__name__)

T_contra = TypeVar("T_contra", contravariant=True)
T = TypeVar("T", bound=NamedObject)
Passed = TypeVar("Passed")

ObjectKey = tuple[str, str]  # namespace and name

_MAX_BAD_OBJECTS = 100
_MAX_FAULT_LENGTH = 300  # most characters of a fault
_LIST_TIMEOUT = 60.0
_WATCH_SECONDS = (300, 600)
_MAX_SILENCE = 150.0  # more than two intervals of bookmarks: a connection that is silent for longer is dead
_MIN_WATCH_SECONDS = 1.0  # a watch that ends sooner is followed by a pause
_MAX_SERVER_FAULTS = 3  # errors of the API server in a row after which the reflector lists again
_MAX_NOT_FOUND = 4  # "not found" answers in a row, after which the objects count as gone


class Removed(NamedTuple):
    namespace: str
    name: str
    uid: str


class Sink(Protocol[T_contra]):
    """Receiver of objects. Only the reflector's thread calls it, in the order of the API server."""

    def upsert(self, obj: T_contra) -> None:
        """Record that the object is new or has changed."""

    def remove(self, removed: Removed) -> None:
        """Record that the object is gone. Only then, a new object of the same name is passed on."""


class Inventory(Generic[T]):
    """Inventory of the objects that a sink has. After an interruption, the sink gets only the differences.

    The inventory keeps a UID and a version for each object; 50,000 pods cost a few MB. It continues after
    undecodable objects and after exceptions of the sink.
    """

    def __init__(self, plural: str, sink: Sink[T]) -> None:
        self._plural = plural
        self._sink = sink
        self._versions: dict[ObjectKey, tuple[str, str]] = {}  # UIDs and versions in the sink
        self.faults: dict[ObjectKey, str] = {}  # at most _MAX_BAD_OBJECTS
        self.bad_count = 0  # how often an object could not be read or processed
        self._failed_removals: list[Removed] = []  # failed removals, which are repeated after the next list

    def __len__(self) -> int:
        return len(self._versions)

    def put(self, item: T | Undecodable) -> ObjectKey:
        """Pass on an object, unless the sink already has this version of the object.

        An object that the sink could not process is recorded without a version, so that the object is passed
        on again after the next list.
        """
        meta = item.metadata
        key = (intern(meta.namespace), meta.name)
        uid, version = self._versions.get(key, ("", ""))
        if uid and uid != meta.uid:
            self.discard(key)
        if isinstance(item, Undecodable):
            self._record_bad(key, item.fault)
        elif (uid, version) != (meta.uid, meta.resource_version):
            fault = self._call_sink(self._sink.upsert, item)
            self._versions[key] = (meta.uid, meta.resource_version if fault is None else "")
            if fault is None:
                self.faults.pop(key, None)
            else:
                reason = f"it could not be taken in: {type(fault).__name__}: {fault}"[:_MAX_FAULT_LENGTH]
                self._record_bad(key, reason, fault)
        return key

    def discard(self, key: ObjectKey) -> None:
        """Remove an object from the sink, if the sink has the object."""
        self.faults.pop(key, None)
        if uid_and_version := self._versions.pop(key, None):
            self._remove(Removed(*key, uid=uid_and_version[0]))

    def keep_only(self, present_keys: Set[ObjectKey]) -> None:
        """Remove all objects from the sink that a complete list lacks, and repeat failed removals."""
        failed_removals, self._failed_removals = self._failed_removals, []
        for removed in failed_removals:
            self._remove(removed)
        for key in self._versions.keys() - present_keys:
            self.discard(key)
        self.faults = {key: fault for key, fault in self.faults.items() if key in present_keys}

    def _remove(self, removed: Removed) -> None:
        fault = self._call_sink(self._sink.remove, removed)
        if fault is not None:
            self._failed_removals.append(removed)
            log.warning("handling a deleted object failed", resource=self._plural, exc_info=fault)

    def _call_sink(self, method: Callable[[Passed], None], obj: Passed) -> Exception | None:
        """Call a method of the sink; return the exception that it raises, so that the watch continues."""
        try:
            method(obj)
        except Exception as fault:
            return fault
        return None

    def _record_bad(self, key: ObjectKey, reason: str, fault: Exception | None = None) -> None:
        """Log a bad object once, unless there are too many bad objects.

        The sink keeps the last good version.
        """
        self.bad_count += 1
        if key in self.faults or len(self.faults) >= _MAX_BAD_OBJECTS:
            return
        self.faults[key] = reason
        log.warning(
            "an object cannot be read and is skipped",
            resource=self._plural,
            namespace=key[0],
            name=key[1],
            error=reason,
            exc_info=fault,
        )


class Reflector(Generic[T]):
    """Reflector of one resource, with a thread that calls the sink.

    Call `start()`, then check `is_synced`, `last_contact_at` and `relist_count`.

    Args:
        preferred_encoding: An encoding besides JSON, for API servers that support it.
        is_removable: Whether the cluster may lose the kind together with all its objects. The sink's objects
            are then removed, even if no watch has shown their deletion.
    """

    def __init__(
        self,
        connection: Connection,
        resource: Resource,
        kind: type[T],
        sink: Sink[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        is_removable: bool = False,
        preferred_encoding: Encoding[T] | None = None,
        max_silence: float = _MAX_SILENCE,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
        watch_seconds: Callable[[], int] = lambda: random.randint(*_WATCH_SECONDS),
    ) -> None:
        self.resource = resource
        self.is_synced = False
        self.is_absent = False  # whether the API server does not know the resource
        self.last_contact_at: float | None = None
        self._last_step_at: float | None = None  # time of the last progress, for example of an event
        self.relist_count = 0
        self.fault = ""  # last fault since the last complete list; empty if there is none
        self._connection = connection
        self._path = resource.path(namespace)
        self._selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._json: Encoding[T] = Decoders(kind)
        self._preferred_encoding = self._json if preferred_encoding is None else preferred_encoding
        self.inventory = Inventory(resource.plural, sink)
        self._max_silence = max_silence
        self._backoff = backoff or Backoff()
        self._clock = clock
        self._stop_event = threading.Event()
        self._wait = wait or self._stop_event.wait
        self._watch_seconds = watch_seconds
        self._version = ""  # version for the next watch; empty if the next round has to list
        self._has_delivered = False  # whether this round's watch has delivered an event
        self._server_fault_count = 0  # rounds in a row that ended with a server error before any event
        self._is_removable = is_removable
        self._not_found_count = 0  # rounds in a row with a "not found" answer
        self._stream: Stream | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"reflect-{self.resource.plural}", daemon=True)
        self._thread.start()

    def why_stuck(self) -> str | None:
        """Return the fault for /livez if the thread has made no progress for longer than any wait may take.

        A thread that starts another thread waits forever if the other thread ends from a lack of memory.
        """
        silent = self._clock() - self._last_step_at if self._last_step_at is not None else 0.0
        is_stuck = silent > 2 * self._max_silence and not self._stop_event.is_set()
        return f"{self.resource.plural}: reading them has been stuck for {silent:.0f} s" if is_stuck else None

    def halt(self) -> None:
        """Stop the thread, even during a silent watch, without waiting for its end."""
        self._stop_event.set()
        if stream := self._stream:
            stream.abort()

    def stop(self, timeout: float = 1.0) -> None:
        """Stop the thread, and wait up to `timeout` seconds for its end.

        The thread may be connecting to a dead address, which can take longer.
        """
        self.halt()
        if self._thread:
            self._thread.join(timeout=timeout)

    def _run(self) -> None:
        while not self._stop_event.is_set():
            self.list_and_watch()

    def list_and_watch(self) -> None:
        """Run one round: list if necessary, watch until the stream ends, and pause after a fault.

        A list alone does not reset the pause, because a list may be expensive; only a watch with an event
        does.
        """
        started_at = self._last_step_at = self._clock()
        self._has_delivered = False
        try:
            if not self._version:
                self._list()
            self._watch()
        except ApiError as fault:
            self._recover(fault)
        except Exception as fault:
            self._version, self.fault = "", f"{type(fault).__name__}: {fault}"[:_MAX_FAULT_LENGTH]
            log.exception("listing or watching failed unexpectedly", resource=self.resource.plural)
        else:
            self._server_fault_count = 0
            if not self._has_delivered:
                self._version = ""
            elif self._clock() - started_at > _MIN_WATCH_SECONDS:
                return self._backoff.reset()
        if self._has_delivered:
            self._backoff.reset()
        self._wait(self._backoff.delay())

    def _recover(self, fault: ApiError) -> None:
        """Decide whether the next round may continue from the version, and log the fault.

        A missing CRD is logged only once.
        """
        self.fault = str(fault)[:_MAX_FAULT_LENGTH]
        is_server_fault = isinstance(fault, ServerFault) and not self._has_delivered
        self._server_fault_count = self._server_fault_count + 1 if is_server_fault else 0
        is_version_doubtful = isinstance(fault, Ambiguous) and not self._has_delivered
        if is_version_doubtful or not fault.is_transient or self._server_fault_count >= _MAX_SERVER_FAULTS:
            self._version, self._server_fault_count = "", 0
        self._not_found_count = self._not_found_count + 1 if isinstance(fault, NotFound) else 0
        if self._is_removable and self._not_found_count == _MAX_NOT_FOUND:
            self.inventory.keep_only(frozenset())
        if self._stop_event.is_set():
            return
        if isinstance(fault, NotFound):
            if not self.is_absent:
                log.warning("the API server does not know this resource yet", resource=self._path)
            self.is_absent = True
        elif not isinstance(fault, Gone):
            plural = self.resource.plural
            log.warning("listing or watching was interrupted", resource=plural, error=str(fault))

    def _list(self) -> None:
        """Pass on all pages of a list. The API server prepares a page while the page before is processed."""
        present_keys: set[ObjectKey] = set()
        with ThreadPoolExecutor(1, f"read-ahead-{self.resource.plural}") as reader:
            page = reader.submit(self._page, "", FIRST_LIMIT)
            while True:
                encoding, body = page.result()
                meta, items = encoding.page(body)
                self.last_contact_at = self._last_step_at = self._clock()
                if meta.continue_:
                    page = reader.submit(self._page, meta.continue_, next_page_size(len(items), len(body)))
                present_keys.update(map(self.inventory.put, items))
                if not meta.continue_:
                    break
        self.inventory.keep_only(present_keys)
        if self.is_synced:
            self.relist_count += 1
        self._version, self.fault = meta.resource_version, ""
        self.is_synced, self.is_absent, self._not_found_count = True, False, 0

    def _page(self, token: str, limit: int) -> tuple[Encoding[T], bytes]:
        """Return a page of a list, and its encoding.

        The total time of a page is not limited, since a new list would take longer than waiting for the page.

        Raises:
            Gone: The continue token has expired.
        """
        pieces = []
        with self._open({"limit": limit, "continue": token}, _LIST_TIMEOUT) as stream:
            for piece in stream.pieces():
                pieces.append(piece)
                self._last_step_at = self._clock()
            return self._encoding_of(stream), b"".join(pieces)

    def _watch(self) -> None:
        """Watch from the last version until the stream ends, and pass on each change."""
        seconds = self._watch_seconds()
        query: QueryParams = {
            "watch": 1,
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": seconds,
        }
        with self._open(query, min(self._max_silence, seconds + 15)) as stream:
            encoding = self._encoding_of(stream)
            for change in encoding.events(stream):
                if change.type == "ERROR":
                    raise parse_refusal(bytes(change.object))
                exists = change.type in ("ADDED", "MODIFIED")
                item = encoding.object(change.object) if exists else None
                meta = item.metadata if item else encoding.identity(change.object)
                self.last_contact_at = self._last_step_at = self._clock()
                if _is_older(meta.resource_version, self._version):
                    continue
                if item:
                    self.inventory.put(item)
                elif change.type == "DELETED":
                    self.inventory.discard((meta.namespace, meta.name))
                self._version = meta.resource_version or self._version
                self._has_delivered = True

    @contextmanager
    def _open(self, query: QueryParams, read_timeout: float) -> Iterator[Stream]:
        """Open a stream that `halt` can abort at any time."""
        parameters = {key: value for key, value in {**query, **self._selectors}.items() if value}
        accept = self._preferred_encoding.accept
        with self._connection.stream(self._path, parameters, read_timeout, accept) as self._stream:
            if self._stop_event.is_set():
                raise Ambiguous("stopping")
            yield self._stream

    def _encoding_of(self, stream: Stream) -> Encoding[T]:
        is_json = stream.headers.get("content-type", JSON).startswith(JSON)
        return self._json if is_json else self._preferred_encoding


def _is_older(version: str, newest: str) -> bool:
    """Return whether a watch repeats an old version, through a proxy or from a lagging API server.

    An old version would undo newer changes. Versions that are not numbers never count as older.
    """
    return version.isdecimal() and newest.isdecimal() and (len(version), version) < (len(newest), newest)
