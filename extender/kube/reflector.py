"""Reflector: keeps a sink up to date with one resource, by a list in pages, then watches, endlessly.

    list ──► watch ──► watch ──► watch ──► …      from the last version seen, also after an interruption
      ▲                  │
      └──────────────────┘  the version is too old (410), or the watch cannot be trusted

A watch that ended without any event, not even the bookmark that is sent every minute, is not trusted: the
reflector lists again, which is cheap, since the sink gets only the differences. If the server cannot be
reached, or asks clients to wait, the reflector waits; if it repeatedly answers with faults of its own, it may
have lost that version, and the reflector lists again.
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
from extender.kube.decoding import FIRST_PAGE, Decoders, Encoding, NamedObject, Undecodable, next_page_size
from extender.kube.errors import Ambiguous, ApiError, Gone, NotFound, ServerFault, refused
from extender.kube.resources import Resource
from extender.kube.writers import Backoff

log = structlog.get_logger(__name__)

T_contra = TypeVar("T_contra", contravariant=True)
T = TypeVar("T", bound=NamedObject)
Passed = TypeVar("Passed")

ObjectKey = tuple[str, str]  # namespace, name

_REMEMBERED_BAD = 100
_LONGEST = 300  # characters of a fault
_LIST_TIMEOUT = 60.0
_WATCH_SECONDS = (300, 600)
_SILENCE = 150.0  # longer than two intervals of bookmarks: a connection silent for longer is dead
_SHORT_WATCH = 1.0  # a watch that ended sooner is not opened again without a pause
_SERVER_FAULTS = 3  # faults in a row after which the reflector lists again
_REMOVED = 4  # "not found" answers in a row after which the objects count as gone


class Removed(NamedTuple):
    namespace: str
    name: str
    uid: str


class Sink(Protocol[T_contra]):
    """Receiver of objects. Called only by the reflector's thread, in the order of the API server."""

    def upsert(self, obj: T_contra) -> None:
        """Record that the object is new or has changed."""

    def remove(self, gone: Removed) -> None:
        """Record that the object is gone. A new object of the same name is passed on only after this."""


class Inventory(Generic[T]):
    """Inventory of the objects that a sink has, so that after a gap it gets only the differences.

    The inventory has a UID and a version for each object: 50,000 pods cost a few MB. Undecodable
    objects and a sink that raises do not stop it.
    """

    def __init__(self, plural: str, sink: Sink[T]) -> None:
        self._plural = plural
        self._sink = sink
        self._known: dict[ObjectKey, tuple[str, str]] = {}  # UID and version that the sink has
        self.bad: dict[ObjectKey, str] = {}  # faults by object; bounded
        self.bad_objects = 0  # how many times an object could not be read or processed
        self._not_removed: list[Removed] = []  # failed removals: repeated after the next list

    def __len__(self) -> int:
        return len(self._known)

    def put(self, item: T | Undecodable) -> ObjectKey:
        """Pass on an object unless the sink already has this version of it.

        An object that the sink could not process is recorded without a version, so that the next list
        passes it on again.
        """
        meta = item.metadata
        key = (intern(meta.namespace), meta.name)
        uid, version = self._known.get(key, ("", ""))
        if uid and uid != meta.uid:
            self.discard(key)
        if isinstance(item, Undecodable):
            self._record_bad(key, item.fault)
        elif (uid, version) != (meta.uid, meta.resource_version):
            fault = self._call_sink(self._sink.upsert, item)
            self._known[key] = (meta.uid, meta.resource_version if fault is None else "")
            if fault is None:
                self.bad.pop(key, None)
            else:
                reason = f"it could not be taken in: {type(fault).__name__}: {fault}"[:_LONGEST]
                self._record_bad(key, reason, fault)
        return key

    def discard(self, key: ObjectKey) -> None:
        """Remove an object from the sink, if the sink has it."""
        self.bad.pop(key, None)
        if known := self._known.pop(key, None):
            self._remove(Removed(*key, uid=known[0]))

    def keep_only(self, present: Set[ObjectKey]) -> None:
        """Remove all objects from the sink that are not in a complete list. Failed removals are repeated."""
        failed, self._not_removed = self._not_removed, []
        for gone in failed:
            self._remove(gone)
        for key in self._known.keys() - present:
            self.discard(key)
        self.bad = {key: fault for key, fault in self.bad.items() if key in present}

    def _remove(self, gone: Removed) -> None:
        fault = self._call_sink(self._sink.remove, gone)
        if fault is not None:
            self._not_removed.append(gone)
            log.warning("handling a deleted object failed", resource=self._plural, exc_info=fault)

    def _call_sink(self, method: Callable[[Passed], None], obj: Passed) -> Exception | None:
        """Call a method of the sink. Return its error, which ends only this call, not the watch."""
        try:
            method(obj)
        except Exception as fault:
            return fault
        return None

    def _record_bad(self, key: ObjectKey, reason: str, fault: Exception | None = None) -> None:
        """Log each bad object once, up to a number of objects. The sink keeps the last good version."""
        self.bad_objects += 1
        if key in self.bad or len(self.bad) >= _REMEMBERED_BAD:
            return
        self.bad[key] = reason
        log.warning(
            "an object cannot be read and is skipped",
            resource=self._plural,
            namespace=key[0],
            name=key[1],
            error=reason,
            exc_info=fault,
        )


class Reflector(Generic[T]):
    """Reflector: `start()`, then check `synced`, `last_contact`, `relists`. Its thread calls the sink.

    Args:
        preferred: An encoding besides JSON, for servers that have it.
        removable: Whether the cluster may lose the kind, and with it all its objects. Then the sink's
            objects are removed, even if no watch was open to see their deletion.
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
        removable: bool = False,
        preferred: Encoding[T] | None = None,
        silence: float = _SILENCE,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
        watch_seconds: Callable[[], int] = lambda: random.randint(*_WATCH_SECONDS),
    ) -> None:
        self.resource = resource
        self.synced = False
        self.absent = False  # the API server does not know the resource
        self.last_contact: float | None = None
        self._last_step: float | None = None  # time of the last progress, such as an event
        self.relists = 0
        self.fault = ""  # last fault since the last complete list; empty: none
        self._connection = connection
        self._path = resource.path(namespace)
        self._selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._json: Encoding[T] = Decoders(kind)
        self._preferred = self._json if preferred is None else preferred
        self.inventory = Inventory(resource.plural, sink)
        self._max_silence = silence
        self._backoff = backoff or Backoff()
        self._clock = clock
        self._stopping = threading.Event()
        self._wait = wait or self._stopping.wait
        self._watch_seconds = watch_seconds
        self._version = ""  # empty: the next round lists
        self._delivered = False  # whether the watch of this round has delivered an event
        self._server_faults = 0  # rounds in a row that ended with a fault of the server before any event
        self._removable = removable
        self._unknown_answers = 0  # rounds in a row in which the API server did not know the resource
        self._stream: Stream | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"reflect-{self.resource.plural}", daemon=True)
        self._thread.start()

    def why_stuck(self) -> str | None:
        """Return the fault for /livez if the thread has been stuck longer than any of its waits may take.

        A thread that starts another one waits forever if that one dies of a lack of memory.
        """
        silent = self._clock() - self._last_step if self._last_step is not None else 0.0
        is_stuck = silent > 2 * self._max_silence and not self._stopping.is_set()
        return f"{self.resource.plural}: reading them has been stuck for {silent:.0f} s" if is_stuck else None

    def halt(self) -> None:
        """Stop the thread without waiting for it, even during a silent watch."""
        self._stopping.set()
        if stream := self._stream:
            stream.abort()

    def stop(self, timeout: float = 1.0) -> None:
        """Stop the thread, and wait up to `timeout` seconds: it may be connecting to a dead address."""
        self.halt()
        if self._thread:
            self._thread.join(timeout=timeout)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.round()

    def round(self) -> None:
        """Run one round: list if necessary, watch until the stream ends, and pause after a fault.

        Only a watch that delivered an event resets the backoff: a list alone may cost seconds.
        """
        started = self._last_step = self._clock()
        self._delivered = False
        try:
            if not self._version:
                self._list()
            self._watch()
        except ApiError as fault:
            self._recover(fault)
        except Exception as fault:
            self._version, self.fault = "", f"{type(fault).__name__}: {fault}"[:_LONGEST]
            log.exception("listing or watching failed unexpectedly", resource=self.resource.plural)
        else:
            self._server_faults = 0
            if not self._delivered:
                self._version = ""
            elif self._clock() - started > _SHORT_WATCH:
                return self._backoff.reset()
        if self._delivered:
            self._backoff.reset()
        self._wait(self._backoff.delay())

    def _recover(self, fault: ApiError) -> None:
        """Decide whether the next round may watch from this version; log the fault, a missing CRD once."""
        self.fault = str(fault)[:_LONGEST]
        is_server_fault = isinstance(fault, ServerFault) and not self._delivered
        self._server_faults = self._server_faults + 1 if is_server_fault else 0
        is_version_doubtful = isinstance(fault, Ambiguous) and not self._delivered
        if is_version_doubtful or not fault.transient or self._server_faults >= _SERVER_FAULTS:
            self._version, self._server_faults = "", 0
        self._unknown_answers = self._unknown_answers + 1 if isinstance(fault, NotFound) else 0
        if self._removable and self._unknown_answers == _REMOVED:
            self.inventory.keep_only(frozenset())
        if self._stopping.is_set():
            return
        if isinstance(fault, NotFound):
            if not self.absent:
                log.warning("the API server does not know this resource yet", resource=self._path)
            self.absent = True
        elif not isinstance(fault, Gone):
            plural = self.resource.plural
            log.warning("listing or watching was interrupted", resource=plural, error=str(fault))

    def _list(self) -> None:
        """Pass on all pages. The server prepares the next page while one is processed."""
        present: set[ObjectKey] = set()
        with ThreadPoolExecutor(1, f"read-ahead-{self.resource.plural}") as reader:
            page = reader.submit(self._page, "", FIRST_PAGE)
            while True:
                encoding, body = page.result()
                head, items = encoding.page(body)
                self.last_contact = self._last_step = self._clock()
                if head.continue_:
                    page = reader.submit(self._page, head.continue_, next_page_size(len(items), len(body)))
                present.update(map(self.inventory.put, items))
                if not head.continue_:
                    break
        self.inventory.keep_only(present)
        if self.synced:
            self.relists += 1
        self._version, self.fault = head.resource_version, ""
        self.synced, self.absent, self._unknown_answers = True, False, 0

    def _page(self, token: str, limit: int) -> tuple[Encoding[T], bytes]:
        """Return the page of a list at a continue token; Gone is raised if the token has expired.

        The time of a page is not limited: to list again would take longer than to wait for it.
        """
        pieces = []
        with self._open({"limit": limit, "continue": token}, _LIST_TIMEOUT) as stream:
            for piece in stream.pieces():
                pieces.append(piece)
                self._last_step = self._clock()
            return self._encoding_of(stream), b"".join(pieces)

    def _watch(self) -> None:
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
                    raise refused(bytes(change.object))
                exists = change.type in ("ADDED", "MODIFIED")
                item = encoding.object(change.object) if exists else None
                meta = item.metadata if item else encoding.identity(change.object)
                self.last_contact = self._last_step = self._clock()
                if _is_older(meta.resource_version, self._version):
                    continue
                if item:
                    self.inventory.put(item)
                elif change.type == "DELETED":
                    self.inventory.discard((meta.namespace, meta.name))
                self._version = meta.resource_version or self._version
                self._delivered = True

    @contextmanager
    def _open(self, query: QueryParams, read_timeout: float) -> Iterator[Stream]:
        """Open a stream that `halt` can cut at any point of its reading."""
        parameters = {key: value for key, value in {**query, **self._selectors}.items() if value}
        accept = self._preferred.accept
        with self._connection.stream(self._path, parameters, read_timeout, accept) as self._stream:
            if self._stopping.is_set():
                raise Ambiguous("stopping")
            yield self._stream

    def _encoding_of(self, stream: Stream) -> Encoding[T]:
        is_json = stream.headers.get("content-type", JSON).startswith(JSON)
        return self._json if is_json else self._preferred


def _is_older(version: str, newest: str) -> bool:
    """Return whether a watch repeats an old version, as through a proxy, or from a lagging server.

    An old version would undo newer changes. Versions are numbers; other texts are never older.
    """
    return version.isdecimal() and newest.isdecimal() and (len(version), version) < (len(newest), newest)
